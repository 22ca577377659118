"""Shared, global and local memory as lanes see them, with the shadow state that finds races.

A shadow entry covers a `grain`: the smallest access that the kernel makes to that space. Accesses are aligned, so this
loses nothing against one entry per byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .faults import Fault
from .formats import Array
from .lanes import Actors, Lanes
from .memory import BASE, LOCAL_BASE, POISON, SHARED_BASE, Memory, Range, Regions, spans, within

Change = Callable[[Array, Array], Array]
TIME = 18  # tokens: the time above these bits
ATOMIC = 1 << 17
AGENTS, WARPGROUPS = 128, 8  # asynchronous agents of a block: first its warpgroups, for wgmma, then its mbarriers
IN_FLIGHT, BULK, MBARRIER = (1 << 62) + np.arange(3)  # tokens of shared memory that nobody may touch
UNTOUCHABLE = (
    "cp.async in flight: the bytes are not there before its wait",
    "bulk copy in flight: the bytes are not there before a wait on its mbarrier",
    "here is an mbarrier, which only mbarrier instructions may touch before mbarrier.inval",
)
RANK = 24  # shared::cluster addresses: rank + 1 above these bits, 0 for the block itself; an address there below


@dataclass(frozen=True)
class Access:
    """How an instruction touches memory. `strong`: atomic, volatile, relaxed, acquire; these do not race each other."""

    nbytes: int
    strong: bool = False
    atomic: bool = False
    coherent: bool = True


class Order:
    """Happens-before within each cluster: a vector clock per warp, advanced by barriers (Lamport; FastTrack's epochs).

    A token is time << 18 | atomic << 17 | `number` of the thread in its cluster (of one block, mostly). `known[w, u]` is
    the last time of warp u of the cluster that warp w is ordered after, `floor` a token below which a lane is ordered
    after everything in its cluster. Asynchronous agents, `agents` to a block, have numbers and columns after the warps.
    `private` is what a lane knows beyond its warp, because it waited alone.
    """

    def __init__(self, blocks: int, threads: int, cluster: int = 1, agents: int = 0) -> None:
        self.agents = agents
        self.threads, self.cluster, self.warps = threads, cluster, cluster * threads // 32
        lane = np.arange(blocks * threads)
        self.thread, self.warp, self.block = lane % threads, lane // 32, lane // threads
        self.number = lane % (cluster * threads)
        self.known = np.zeros((len(lane) // 32, self.warps + cluster * agents), np.int64)
        self.last = np.zeros((blocks // cluster, cluster * agents), np.int64)  # time of each agent that anybody can know
        self.fenced = np.zeros(len(lane), np.int64)  # writes of a lane before this time are there for the async proxy
        self.private: Array | None = None
        self.epoch = np.ones(len(lane) // 32, np.int64)
        self.now = 1
        self.stamp = (1 << TIME) | self.number
        self.floor = np.full(len(lane), (1 << TIME) - 1)

    def _advance(self, lanes: Array | slice) -> None:
        self.now += 1
        self.epoch[self.warp[lanes]] = self.now
        self.stamp[lanes] = (self.now << TIME) | self.number[lanes]

    def block_barrier(self, lanes: Lanes) -> None:
        """All threads of the blocks in `lanes` have met."""
        warps = np.unique(self.warp[lanes.index]) if not lanes.full else np.arange(len(self.epoch))
        if self.cluster == 1:
            self.known[warps, : self.warps] = self.epoch.reshape(-1, self.warps)[warps // self.warps]
            self.known[warps, self.warps :] = self.last[warps // self.warps]
            self._advance(lanes.index)
            self.floor[lanes.index] = (self.now << TIME) - 1
            return
        each = self.threads // 32
        told = np.zeros_like(self.known)
        told[warps] = self.publish(warps)
        told = told.reshape(-1, each, told.shape[1]).max(axis=1)  # of each block
        self.known[warps] = np.maximum(self.known[warps], told[warps // each])

    def publish(self, warps: Array, lanes: Array | None = None) -> Array:
        """What somebody who waits for one of these warps (or these lanes of them) will be ordered after: a row for each."""
        told = self.known[warps]
        told[np.arange(len(warps)), warps % self.warps] = self.epoch[warps]
        mine = np.flatnonzero(np.isin(self.warp, warps))
        if self.private is not None:
            lanes = mine if lanes is None else lanes
            np.maximum.at(told, np.searchsorted(warps, self.warp[lanes]), self.private[lanes])
        self._advance(mine)
        return told

    def release(self, warps: Array) -> Array:
        """What somebody who waits for these warps of one block will be ordered after."""
        told: Array = self.publish(warps).max(axis=0)
        return told

    def acquire(self, warps: Array, told: Array) -> None:
        """`told`: one row for all of the warps, or for each."""
        self.known[warps] = np.maximum(self.known[warps], told)

    def acquire_alone(self, lanes: Lanes, told: Array, gone: Array) -> None:
        """These lanes are ordered after `told`, and their warps if no other lane is left of them (`gone`: exited)."""
        partial: Any = (~lanes.mask & ~gone).reshape(-1, 32).any(axis=1)
        self.acquire(whole := lanes.warps[~partial[lanes.warps]], told)
        if len(whole) < len(lanes.warps):
            if self.private is None:
                self.private = np.zeros((len(self.warp), self.known.shape[1]), np.int64)
            alone = lanes.numbers[partial[self.warp[lanes.index]]]
            self.private[alone] = np.maximum(self.private[alone], told)

    def knows(self, lanes: Lanes, told: Array) -> Array:
        """Which of the lanes are ordered after `told` already."""
        warp = self.warp[lanes.index]
        known = self.known[warp]
        if self.private is not None:
            known = np.maximum(known, self.private[lanes.index])
        behind = known < told
        behind[np.arange(len(warp)), warp % self.warps] = False
        return np.asarray(~behind.any(axis=1))

    def proxy_fence(self, lanes: Lanes) -> None:
        """What these lanes wrote so far, the async proxy may read."""
        self._advance(lanes.index)
        self.fenced[lanes.index] = self.now

    def agent(self, block: int, which: int) -> int:
        """The column of an asynchronous agent of a block."""
        return self.warps + block % self.cluster * self.agents + which

    def happen(self, column: int) -> int:
        """A token for something that an agent does now."""
        self.now += 1
        return self.now << TIME | column << 5

    def publish_agent(self, block: int, column: int, token: int) -> None:
        """Somebody of the block is about to be ordered after this act of an agent."""
        self.last[block // self.cluster, column - self.warps] = token >> TIME

    def raise_floor(self, lanes: Lanes) -> None:
        """Make use of the fact that these lanes may be ordered after everything that happened in their cluster."""
        oldest = self.known[:, : self.warps].min(axis=1)
        if self.agents:
            known = self.known[:, self.warps :]
            behind = known < np.repeat(self.last, self.warps, axis=0)
            oldest = np.where(behind, known, oldest[:, None]).min(axis=1, initial=self.now)
        floor = (oldest + 1 << TIME) - 1
        self.floor[lanes.index] = np.maximum(self.floor[lanes.index], floor[self.warp[lanes.index]])

    def warp_barrier(self, lanes: Lanes) -> None:
        warps = np.unique(self.warp[lanes.index])
        self.known[warps, warps % self.warps] = self.epoch[warps]
        if self.private is not None:
            self.acquire(warps, self.private.reshape(-1, 32, self.private.shape[1])[warps].max(axis=1))
        self._advance(lanes.index)

    def unordered(self, lane: Array, token: Array) -> Array:
        other = token & (ATOMIC - 1)
        known = self.known[self.warp[lane], other >> 5]
        if self.private is not None:
            known = np.maximum(known, self.private[lane, other >> 5])
        return (other != self.number[lane]) & (known < token >> TIME)

    def naming(self, number: int) -> str:
        """Who in the cluster has this number."""
        if number >= 32 * self.warps:
            place, which = divmod(number // 32 - self.warps, self.agents)
            home = f" the block of rank {place}" if self.cluster > 1 else " this block"
            return f"wgmma of warpgroup {which} of{home}" if which < WARPGROUPS else f"a bulk copy to{home}"
        rank = f" of the block of rank {number // self.threads}" if self.cluster > 1 else ""
        return f"thread number {number % self.threads}{rank}"


class Space:
    """Bytes with range checks. Addresses come compressed: one per lane of a `Lanes`, in its order."""

    name = "local"

    def __init__(self, data: Array, regions: Regions, origin: Array, grain: int = 1) -> None:
        """`origin` is, per lane, what to add to an address for the place in `data`."""
        self.data, self.regions, self.origin, self.grain = data, regions, origin, grain

    def locate(self, lanes: Actors, at: Array, nbytes: int, align: int = 0) -> Array:
        """Where in `data` the lanes' addresses are. `align` defaults to nbytes."""
        try:
            self.regions.check(self.name, at, nbytes, align or nbytes)
        except Fault as fault:
            assert fault.lane is not None
            fault.lane = int(lanes.numbers[fault.lane])
            raise
        return at + self.origin[lanes.index]

    def reading(self, lanes: Actors, at: Array, where: Array, access: Access) -> None: ...

    def writing(self, lanes: Actors, at: Array, where: Array, access: Access, changed: Array | None) -> None:
        """Check and note a write; `changed` says which lanes alter what is there (None: any may)."""

    def load(self, lanes: Lanes, at: Array, access: Access, dtype: np.dtype[Any]) -> Array:
        """(lanes, elements) values of `dtype`."""
        where = self.locate(lanes, at, access.nbytes)
        self.reading(lanes, at, where, access)
        return np.asarray(self.data.view(dtype).reshape(-1, access.nbytes // dtype.itemsize)[where // access.nbytes])

    def store(self, lanes: Lanes, at: Array, access: Access, values: Array) -> None:
        """Write (lanes, elements) values; where lanes collide the last one stays."""
        where = self.locate(lanes, at, access.nbytes)
        self.writing(lanes, at, where, access, None)
        self.data.view(values.dtype).reshape(-1, values.shape[1])[where // access.nbytes] = values

    def update(self, lanes: Lanes, at: Array, access: Access, change: Change, storage: np.dtype[Any]) -> Array:
        """Replace values by change(old, which lanes), one lane at a time where they meet. Returns the old values."""
        where = self.locate(lanes, at, access.nbytes)
        self.writing(lanes, at, where, access, None)
        cells, place = self.data.view(storage), where // access.nbytes
        old = np.empty(len(place), storage)
        order = np.argsort(place, kind="stable")
        ordered = place[order]
        first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        turn = np.arange(len(place)) - np.repeat(first, np.diff(np.r_[first, len(place)]))
        by_turn = np.argsort(turn, kind="stable")
        for each in np.split(order[by_turn], np.cumsum(np.bincount(turn))[:-1]):
            old[each] = cells[place[each]]
            cells[place[each]] = change(old[each], each)
        return old

    def grains(self, where: Array, nbytes: int, *per_lane: Array) -> tuple[Array, ...]:
        """The shadow entries of each access, one row after the other, with the per-lane values repeated to match."""
        first, many = where // self.grain, nbytes // self.grain
        if many == 1:
            return (first, *per_lane)
        return ((first[:, None] + np.arange(many)).ravel(), *(np.repeat(each, many) for each in per_lane))


class Shared(Space):
    """Per-block shared memory. Shadow: the last writer and the last two different readers of each grain.

    `visitor` is the last reader from another block of the cluster, whom readers of the block itself must not crowd out.
    """

    name = "shared"

    def __init__(self, regions: Regions, size: int, grain: int, order: Order) -> None:
        blocks, stride = len(order.block) // order.threads, -(-size // 128) * 128 + 128
        super().__init__(np.full(blocks * stride, POISON, np.uint8), regions, order.block * stride - SHARED_BASE, grain)
        self.order, self.stride = order, stride
        self.writer, self.reader, self.reader2 = (np.zeros(blocks * stride // grain, np.int64) for _ in range(3))
        self.visitor = np.zeros(blocks * stride // grain, np.int64) if order.cluster > 1 else None
        self.lent = np.zeros(blocks * stride // grain, np.int32) if order.agents else None  # asynchronous reads under way

    def refuse(self, what: str, lanes: Actors, token: Array, late: Array, nbytes: int, atomic: bool) -> None:
        """Raise where one of the tokens above the floor is of an access that no barrier separates from this one."""
        many = nbytes // self.grain
        place = np.flatnonzero(late)
        lane = lanes.numbers[place // many]
        suspects = token[place]
        if (barred := suspects >= IN_FLIGHT).any():
            first = int(barred.argmax())
            raise Fault(UNTOUCHABLE[int(suspects[first] - IN_FLIGHT)], int(lane[first]))
        bad = self.order.unordered(lane, suspects) & ~(atomic & (suspects & ATOMIC != 0))
        if bad.any():
            at = int(bad.argmax())
            other = int(suspects[at]) & (ATOMIC - 1)
            who = self.order.naming(other)
            raise Fault(f"data race: no barrier since {who} {what} this shared byte", int(lane[at]))

    def reading(self, lanes: Actors, at: Array, where: Array, access: Access) -> None:
        stamp, floor = self.order.stamp[lanes.index], self.order.floor[lanes.index]
        grain, stamp, floor = self.grains(where, access.nbytes, stamp, floor)
        token = self.writer[grain]
        if not token.all():
            lane = lanes.numbers[np.flatnonzero(token == 0)[0] // (access.nbytes // self.grain)]
            raise Fault("never written: this shared memory is read before any thread has written it", int(lane))
        if (late := token > floor).any():
            self.refuse("wrote", lanes, token, late, access.nbytes, False)
        before = self.reader[grain]
        self.reader[grain] = stamp
        if (other := (before > floor) & ((before ^ stamp) & (ATOMIC - 1) != 0)).any():
            self.reader2[grain[other]] = before[other]
        if (lost := self.reader[grain] != stamp).any():
            self.reader2[grain[lost]] = stamp[lost]

    def writing(self, lanes: Actors, at: Array, where: Array, access: Access, changed: Array | None) -> None:
        stamp = self.order.stamp[lanes.index] | (ATOMIC if access.atomic else 0)
        grain, stamp, floor = self.grains(where, access.nbytes, stamp, self.order.floor[lanes.index])
        if self.lent is not None and (lent := self.lent[grain] != 0).any():
            lane = lanes.numbers[np.flatnonzero(lent)[0] // (access.nbytes // self.grain)]
            raise Fault("wgmma or a bulk store may still be reading this shared memory, which is written here", int(lane))
        tables = (("wrote", self.writer), ("read", self.reader), ("read", self.reader2), ("read", self.visitor))
        for what, table in tables:
            if table is None:
                continue
            token = table[grain]
            if (late := token > floor).any():
                self.refuse(what, lanes, token, late, access.nbytes, access.atomic)
        self.writer[grain] = stamp
        if not access.atomic and (lost := self.writer[grain] != stamp).any():
            lane = lanes.numbers[np.flatnonzero(lost)[0] // (access.nbytes // self.grain)]
            raise Fault("data race: another thread writes the same shared byte in the same instruction", int(lane))

    def take_off(self, lanes: Lanes, at: Array, access: Access) -> None:
        """A copy to these addresses has been issued: until it lands there is only poison, which nobody may touch."""
        where = self.locate(lanes, at, access.nbytes)
        self.writing(lanes, at, where, access, None)
        self.data.reshape(-1, access.nbytes)[where // access.nbytes] = POISON
        self.writer[self.grains(where, access.nbytes)[0]] = IN_FLIGHT

    def land(self, lane: Array, at: Array, values: Array) -> None:
        """Copies issued by lanes `lane` arrive; values (n, nbytes) uint8."""
        where, nbytes = at + self.origin[lane], values.shape[1]
        self.data.reshape(-1, nbytes)[where // nbytes] = values
        grain, stamp = self.grains(where, nbytes, self.order.stamp[lane])
        self.writer[grain] = stamp

    # The async proxy. `where` are places in `data` of 16 bytes each.

    def depart(self, where: Array) -> None:
        """A bulk copy to there has been issued."""
        self.data.reshape(-1, 16)[where // 16] = POISON
        self.writer[self.grains(where, 16)[0]] = BULK

    def arrive(self, where: Array, values: Array, token: int) -> None:
        """It is there: values (n, 16) uint8."""
        self.data.reshape(-1, 16)[where // 16] = values
        self.writer[self.grains(where, 16)[0]] = token

    def lend(self, where: Array, lanes: Array) -> Array:
        """Something asynchronous may read there from now on, on behalf of all `lanes`; returns what `give_back` needs."""
        grain = np.unique(self.grains(where, 16)[0])
        tokens = np.unique(self.writer[grain])
        if tokens[0] == 0:
            raise Fault("never written: this shared memory is read before any thread has written it", int(lanes[0]))
        if tokens[-1] >= IN_FLIGHT:
            raise Fault(UNTOUCHABLE[int(tokens[-1] - IN_FLIGHT)], int(lanes[0]))
        for lane in lanes:
            if (bad := self.order.unordered(np.full(len(tokens), lane), tokens)).any():
                who = self.order.naming(int(tokens[bad.argmax()]) & (ATOMIC - 1))
                raise Fault(f"data race: no barrier since {who} wrote this shared byte", int(lane))
        number = tokens & (ATOMIC - 1)
        tokens, number = (each[number < 32 * self.order.warps] for each in (tokens, number))
        first = int(self.order.block[lanes[0]]) // self.order.cluster * self.order.cluster * self.order.threads
        if (generic := tokens >> TIME >= self.order.fenced[first + number]).any():
            who = self.order.naming(int(number[generic.argmax()]))
            raise Fault(f"no fence.proxy.async by {who} since it wrote this shared byte, before the async proxy reads it")
        assert self.lent is not None
        self.lent[grain] += 1
        return grain

    def give_back(self, grain: Array, token: int) -> None:
        """The asynchronous read is over; `token` is who ended it."""
        assert self.lent is not None
        self.lent[grain] -= 1
        before = self.reader[grain]
        self.reader[grain] = token
        other = (before ^ token) & (ATOMIC - 1) != 0
        self.reader2[grain[other]] = before[other]


class ClusterShared(Space):
    """The shared memory of all blocks of a cluster, as shared::cluster addresses show it; the shadow is that of `shared`.

    A block may look into another one once that has started (a cluster barrier lies between) and until it leaves, which
    must be ordered after the look: `visits` has, for each block, the last time of each warp of its cluster at a look.
    """

    name = "shared::cluster"

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared.data, shared.regions, shared.origin, shared.grain)
        self.shared, self.order = shared, shared.order
        blocks = len(self.order.block) // self.order.threads
        self.visits = np.zeros((blocks, self.order.warps), np.int64)
        self.met = np.zeros(len(self.order.block), bool)  # lanes that a cluster barrier has let go
        self.left = np.zeros(blocks, bool)

    def home(self, lanes: Actors, at: Array) -> Array:
        """The blocks of the batch in whose memory the addresses are."""
        own, rank = self.order.block[lanes.index], at >> RANK
        return np.where(rank == 0, own, own - own % self.order.cluster + rank - 1)

    def locate(self, lanes: Actors, at: Array, nbytes: int, align: int = 0) -> Array:
        if (wild := (at < 0) | (at >> RANK > self.order.cluster)).any():
            place = int(wild.argmax())
            raise Fault(f"out of bounds: no block has the shared::cluster address {at[place]:#x}", int(lanes.numbers[place]))
        order, own, home = self.order, self.order.block[lanes.index], self.home(lanes, at)
        where = self.shared.locate(lanes, at & ((1 << RANK) - 1), nbytes, align) + (home - own) * self.shared.stride
        if (gone := self.left[home]).any():
            place = int(gone.argmax())
            rank = int(home[place]) % order.cluster
            raise Fault(f"remote access: the block of rank {rank} has exited", int(lanes.numbers[place]))
        if (abroad := home != own).any():
            lane, home = lanes.numbers[abroad], home[abroad]
            warp = order.warp[lane]
            heard = order.known[:, : order.warps].reshape(len(order.known), order.cluster, -1).max(axis=2) > 0
            if (early := ~self.met[lane] & ~heard[warp, home % order.cluster]).any():
                place = int(early.argmax())
                rank = int(home[place]) % order.cluster
                raise Fault(f"remote access: the block of rank {rank} may not have started", int(lane[place]))
            self.visits[home, warp % order.warps] = order.epoch[warp]
        return where

    def leave(self, exited: Array) -> None:
        """Threads have exited; blocks of which none is left must not be looked into any more."""
        order = self.order
        gone = exited.reshape(-1, order.threads).all(axis=1) & ~self.left
        if not gone.any():
            return
        known = order.known[:, : order.warps].reshape(len(gone), -1, order.warps).max(axis=1)
        own = np.repeat(np.eye(order.cluster, dtype=bool), order.threads // 32, axis=1)
        late = (self.visits > known) & ~own[np.arange(len(gone)) % order.cluster] & gone[:, None]
        if late.any():
            block, warp = (int(each[0]) for each in np.nonzero(late))
            who = f"warp {warp % (order.threads // 32)} of the block of rank {warp * 32 // order.threads}"
            text = "this block exits, and no cluster barrier ensures that it does so after a remote access to it by"
            raise Fault(f"{text} {who}", block * order.threads)
        self.left |= gone

    def reading(self, lanes: Actors, at: Array, where: Array, access: Access) -> None:
        self.shared.reading(lanes, at, where, access)
        if self.shared.visitor is not None and (abroad := self.home(lanes, at) != self.order.block[lanes.index]).any():
            grain, stamp = self.grains(where[abroad], access.nbytes, self.order.stamp[lanes.numbers[abroad]])
            self.shared.visitor[grain] = stamp

    def writing(self, lanes: Actors, at: Array, where: Array, access: Access, changed: Array | None) -> None:
        self.shared.writing(lanes, at, where, access, changed)


class Global(Space):
    """Global memory in one launch. Shadow: who wrote (block + 1, times 2, plus 1 if strong), who read (-1: many)."""

    name = "global"

    def __init__(self, memory: Memory, grain: int, grid: int, pending: list[Range], cross_block: list[Range]) -> None:
        super().__init__(memory.bytes, memory.regions, np.zeros(0, np.int64), grain)
        self.readonly, self.grid = memory.readonly, grid
        self.pending, self.cross_block = spans(memory, pending), spans(memory, cross_block)
        self.writer, self.reader = (np.zeros(len(memory.bytes) // grain, np.int32) for _ in range(2))
        self.read_nc = np.zeros(len(memory.bytes) // grain, bool)
        self.any_nc = False

    def enter(self, block: Array) -> None:
        """Start a batch in which lane i belongs to linear block `block[i]`."""
        self.block = block.astype(np.int32) + 1
        self.origin = np.full(len(block), -BASE)
        self.waited = np.zeros(len(block), bool)
        self.on_write: list[Callable[[Actors, Array, int], None]] = []  # called with addresses and the bytes at each

    def refuse_early(self, lanes: Actors, at: Array) -> None:
        early = within(at, self.pending) & ~self.waited[lanes.index]
        if early.any():
            lane = int(lanes.numbers[early.argmax()])
            raise Fault("before griddepcontrol.wait: the previous kernel may still be writing this buffer", lane)

    def refuse(self, what: str, lanes: Actors, at: Array, bad: Array) -> None:
        """`bad` has one entry per grain, row by row."""
        racing = np.any(bad.reshape(len(at), -1), axis=1) & ~within(at, self.cross_block)
        if racing.any():
            place = int(racing.argmax())
            raise Fault(f"race between blocks: {what}, global address {int(at[place]):#x}", int(lanes.numbers[place]))

    def reading(self, lanes: Actors, at: Array, where: Array, access: Access) -> None:
        if self.pending:
            self.refuse_early(lanes, at)
        grain, mine = self.grains(where, access.nbytes, self.block[lanes.index])
        token = self.writer[grain]
        if not access.coherent:
            self.any_nc = True
            self.read_nc[grain] = True
            if (written := token != 0).any():
                lane = lanes.numbers[np.flatnonzero(written)[0] // (access.nbytes // self.grain)]
                raise Fault("non-coherent load of global memory that this launch has written", int(lane))
        if self.grid == 1:
            return
        if (foreign := (token != 0) & (token >> 1 != mine)).any():
            if access.strong:
                foreign &= token & 1 == 0
            self.refuse("a block reads what another block wrote in this launch", lanes, at, foreign)
        if not access.strong:
            before = self.reader[grain]
            fresh = np.where((before == 0) | (before == mine), mine, -1)
            self.reader[grain] = fresh
            if (lost := self.reader[grain] != fresh).any():
                self.reader[grain[lost]] = -1

    def writing(self, lanes: Actors, at: Array, where: Array, access: Access, changed: Array | None) -> None:
        if (constant := self.readonly.touched(at)).any():
            raise Fault("read-only: a constant or parameter is written", int(lanes.numbers[constant.argmax()]))
        for react in self.on_write:
            react(lanes, at, access.nbytes)
        if self.pending:
            self.refuse_early(lanes, at)
        differing = np.ones(len(at), bool) if changed is None else changed
        grain, mine, differs = self.grains(where, access.nbytes, self.block[lanes.index], differing)
        if self.any_nc and self.read_nc[grain].any():
            lane = lanes.numbers[np.flatnonzero(self.read_nc[grain])[0] // (access.nbytes // self.grain)]
            raise Fault("global memory is written that a non-coherent load of this launch has read", int(lane))
        if self.grid > 1:
            token = self.writer[grain]
            if (foreign := (token != 0) & (token >> 1 != mine)).any():
                foreign &= differs & ~((token & 1 == 1) & access.strong)
                self.refuse("another block wrote a different value in this launch", lanes, at, foreign)
            readers = self.reader[grain]
            if (foreign := (readers != 0) & (readers != mine)).any():
                self.refuse("a block changes what another block read in this launch", lanes, at, foreign & differs)
        self.writer[grain] = mine * 2 + access.strong

    def store(self, lanes: Lanes, at: Array, access: Access, values: Array) -> None:
        where = self.locate(lanes, at, access.nbytes)
        rows, place = self.data.view(values.dtype).reshape(-1, values.shape[1]), where // access.nbytes
        self.writing(lanes, at, where, access, (rows[place] != values).any(axis=1))
        rows[place] = values
        if self.grid > 1 and (lost := (rows[place] != values).any(axis=1)).any():
            foreign = self.writer[where // self.grain] >> 1 != self.block[lanes.index]
            self.refuse("another block wrote a different value in the same instruction", lanes, at, lost & foreign)


def local_space(size: int, regions: Regions, lanes: int) -> Space:
    """Every lane's own `.local` arrays, poisoned."""
    stride = -(-size // 64) * 64 + 64
    return Space(np.full(lanes * stride, POISON, np.uint8), regions, np.arange(lanes) * stride - LOCAL_BASE)
