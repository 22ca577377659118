"""mbarrier: objects in shared memory whose phases end when enough threads have arrived and enough bytes have landed.

The bytes of bulk copies land only when nobody can go on without them. A wait fails once, before it blocks or succeeds,
unless the thread must know already that the phase is over: it might have come too early.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..decode import Decoder, Key, Run, Write, instruction
from ..faults import Fault, Unsupported
from ..formats import TYPES, Array
from ..lanes import Actors, Lanes
from ..parser import Name
from ..spaces import AGENTS, MBARRIER, TIME, WARPGROUPS, Access
from .memory import space

if TYPE_CHECKING:
    from ..machine import Batch

Outcome = list[tuple[Key, Lanes]] | None
U32, B64, PRED = TYPES["u32"], TYPES["b64"], TYPES["pred"]
WORD = Access(8)
LIMIT = (1 << 20) - 1  # of the counts
PHASE = 24  # a state as `arrive` returns it: the phase above these bits, the pending count before it below


class Piece(Protocol):
    """The part of a bulk copy that goes to one block."""

    nbytes: int

    def land(self, token: int) -> None: ...


@dataclass(eq=False)
class Barrier:
    """One mbarrier object, at `where` in the shared memory of the batch. Its phases are numbered from 0."""

    where: int
    block: int
    address: int
    column: int  # as an agent: what it says that bulk copies have done
    count: int
    pending: int
    maker: int  # the lane of mbarrier.init, and its token
    made: int
    told: Array  # what arrivals of this phase tell those who wait for it
    heard: Array  # what those who waited for the last phase are ordered after
    tx: int = 0
    phase: int = 0
    landed: int = 0
    ready: bool = False  # a fence lies between mbarrier.init and the async proxy
    waited: list[bool] = field(default_factory=lambda: [False, False])  # griddepcontrol.wait, told and heard
    flying: deque[Piece] = field(default_factory=deque)


class Barriers:
    """All objects, by place, and who waits at which."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.objects: dict[int, Barrier] = {}
        self.used = np.full(batch.size // batch.launch.threads, WARPGROUPS)
        self.waiting = np.full(batch.size, -1)
        self.refused, self.refused_phase = np.full(batch.size, -1), np.zeros(batch.size, np.int64)
        self.freed = np.zeros(batch.size, bool)
        self.doubts = 0
        batch.on_idle.append(self.land)
        batch.on_stuck.append(self.doubt)
        batch.on_exit.append(self.leave)
        batch.explain.append(self.describe)

    def create(self, lane: int, where: int, address: int, count: int) -> None:
        order, block = self.batch.order, where // self.batch.shared.stride
        if not 1 <= count <= LIMIT:
            raise Fault(f"mbarrier.init with a count of {count}", lane)
        if self.used[block] == AGENTS:
            raise Unsupported(f"more than {AGENTS - WARPGROUPS} mbarriers in a block")
        column = order.agent(block, int(self.used[block]))
        self.used[block] += 1
        told, heard = (np.zeros(order.known.shape[1], np.int64) for _ in range(2))
        made = int(order.stamp[lane])
        self.objects[where] = Barrier(where, block, address, column, count, count, lane, made, told, heard)

    def find(self, lanes: Actors, where: Array) -> list[tuple[Barrier, Array]]:
        """The objects that the lanes name, each with which of the entries name it."""
        found, order = [], self.batch.order
        for place in np.unique(where):
            mine = where == place
            lane = lanes.numbers[mine]
            barrier = self.objects.get(int(place))
            if barrier is None:
                raise Fault("mbarrier: mbarrier.init has not been executed for this address", int(lane[0]))
            new = order.unordered(lane, np.full(len(lane), barrier.made))
            if barrier.ready:
                new &= ~self.batch.cluster_shared.met[lane]  # the fence makes a relaxed cluster barrier enough
            if new.any():
                who = order.naming(barrier.made & ((1 << TIME) - 1))
                raise Fault(f"mbarrier: no barrier since {who} executed mbarrier.init", int(lane[new.argmax()]))
            found.append((barrier, mine))
        return found

    def locate(self, where: str, lanes: Lanes, at: Array) -> list[tuple[Barrier, Lanes]]:
        """The objects at these addresses, each with its lanes."""
        found = []
        for memory, some, to in self.batch.route(where, lanes, at):
            if memory not in (self.batch.shared, self.batch.cluster_shared):
                raise Fault("mbarrier: this is no address in shared memory", int(some.numbers[0]))
            for barrier, mine in self.find(some, memory.locate(some, to, 8)):
                found.append((barrier, some if mine.all() else self.batch.only(some, mine)))
        return found

    def expect(self, barrier: Barrier, lane: int, nbytes: int) -> None:
        barrier.tx += nbytes
        self.doubts = 0
        if abs(barrier.tx) > LIMIT:
            raise Fault(f"mbarrier: a tx-count of {barrier.tx}, beyond {LIMIT}", lane)

    def arrive(self, barrier: Barrier, lanes: Lanes, counts: Array, release: bool) -> None:
        """All of the lanes arrive, by as much as `counts` has for each."""
        order = self.batch.order
        if release:
            told = order.publish(lanes.warps, lanes.numbers).max(axis=0)
            barrier.told = np.maximum(barrier.told, told)
            barrier.waited[0] |= bool(self.batch.globals.waited[lanes.index].any())
        self.doubts = 0
        each = list(zip(lanes.numbers, counts, strict=True))
        for lane, count in [(each[0][0], counts.sum())] if counts.sum() <= barrier.pending else each:
            if count > barrier.pending:
                raise Fault(f"mbarrier: {count} more arrive where {barrier.pending} of {barrier.count} are pending", int(lane))
            barrier.pending -= int(count)
            self.settle(barrier)

    def settle(self, barrier: Barrier) -> None:
        """End the phase if all have arrived and all bytes have landed."""
        if barrier.pending or barrier.tx:
            return
        barrier.phase += 1
        barrier.pending = barrier.count
        barrier.heard = np.maximum(barrier.heard, barrier.told)
        barrier.told = np.zeros_like(barrier.told)
        barrier.waited = [False, barrier.waited[0] or barrier.waited[1]]
        if barrier.landed:
            barrier.heard[barrier.column] = barrier.landed >> TIME
            self.batch.order.publish_agent(barrier.block, barrier.column, barrier.landed)
        self.freed |= self.waiting == barrier.where
        self.doubts = 0

    def wake(self) -> bool:
        """Let those go whose phase has ended; they look again. Whether there were any."""
        if not self.freed.any():
            return False
        batch, freed = self.batch, self.freed
        for key, parked in list(batch.parked.items()):
            leaving = batch.sets.of(parked.mask & freed)
            if leaving.count:
                batch.unpark(key, leaving)
                batch.schedule(key, leaving)
        self.waiting[freed] = -1
        self.freed = np.zeros(batch.size, bool)
        return True

    def awaited(self) -> list[Barrier]:
        return [self.objects[int(place)] for place in np.unique(self.waiting[self.waiting >= 0])]

    def land(self) -> bool:
        """Complete, in the order of issue, the bulk copies for which alone somebody waits."""
        for barrier in self.awaited():
            phase = barrier.phase
            while barrier.flying and barrier.phase == phase and not barrier.pending:
                piece = barrier.flying.popleft()
                barrier.landed = self.batch.order.happen(barrier.column)
                piece.land(barrier.landed)
                barrier.tx -= piece.nbytes
                self.settle(barrier)
        return self.wake()

    def doubt(self) -> bool:
        """Nobody can go on: waits may fail as well, for threads that have something else to do meanwhile."""
        waiting = self.waiting >= 0
        if self.doubts == 3 or not waiting.any():
            return False
        self.doubts += 1
        self.refused[waiting] = -1
        self.freed = waiting
        return self.wake()

    def describe(self) -> list[str]:
        found = []
        for each in self.awaited():
            block = self.batch.linear_block[each.block * self.batch.launch.threads]
            text = f"the mbarrier at shared address {each.address:#x} of block {block} is in phase {each.phase}, with"
            text += f" {each.pending} of {each.count} arrivals pending and a tx-count of {each.tx}"
            found.append(text + (f" ({sum(piece.nbytes for piece in each.flying)} bytes in flight)" if each.flying else ""))
        return found

    def leave(self) -> None:
        """A block must not exit while a copy into it is in flight."""
        gone: Any = self.batch.exited.reshape(-1, self.batch.launch.threads).all(axis=1)
        for each in self.objects.values():
            if each.flying and gone[each.block]:
                text = "this block exits while a bulk copy into it is in flight, whose mbarrier nobody waits for"
                raise Fault(text, each.block * self.batch.launch.threads)


def qualifiers(at: Decoder) -> tuple[str, bool]:
    """The space, and whether the operation is an acquire or a release."""
    where = space(at)
    at.need("b64")
    ordered = at.take("release", "acquire", "relaxed") != "relaxed"
    at.take("cta", "cluster")
    if where not in ("shared", "shared::cluster", "generic"):
        raise Unsupported(f"an mbarrier in {where}")
    at.program.touches("shared", 8)
    at.program.asynchronous = True
    return where, ordered


@instruction("mbarrier.init")
def init(at: Decoder) -> Run:
    where, _ = qualifiers(at)
    at.expect(2)
    address, count = at.address(0), at.reader(1, U32)

    def run(batch: Batch, lanes: Lanes) -> None:
        state, counts = batch.state(Barriers), np.broadcast_to(count(batch, lanes), (batch.size,))
        for memory, some, to in batch.route(where, lanes, address(batch, lanes)):
            if memory not in (batch.shared, batch.cluster_shared):
                raise Fault("mbarrier: this is no address in shared memory", int(some.numbers[0]))
            memory.store(some, to, WORD, np.full((some.count, 8), 0xFF, np.uint8))
            places = memory.locate(some, to, 8)
            batch.shared.writer[batch.shared.grains(places, 8)[0]] = MBARRIER
            for lane, place, own in zip(some.numbers, places, to, strict=True):
                state.create(int(lane), int(place), int(own), int(counts[lane]))

    return run


@instruction("mbarrier.inval")
def inval(at: Decoder) -> Run:
    where, _ = qualifiers(at)
    address = at.address(at.expect(1) - 1)

    def run(batch: Batch, lanes: Lanes) -> None:
        state = batch.state(Barriers)
        for barrier, some in state.locate(where, lanes, address(batch, lanes)):
            if barrier.flying or (state.waiting == barrier.where).any():
                raise Fault("mbarrier.inval while threads wait or copies are in flight", int(some.numbers[0]))
            grain = batch.shared.grains(np.array([barrier.where]), 8)[0]
            batch.shared.writer[grain] = batch.order.stamp[some.numbers[0]]
            del state.objects[barrier.where]

    return run


@instruction("mbarrier.expect_tx", "mbarrier.complete_tx")
def expect_tx(at: Decoder) -> Run:
    sign = 1 if at.mnemonic.endswith("expect_tx") else -1
    where, _ = qualifiers(at)
    at.expect(2)
    address, amount = at.address(0), at.reader(1, U32)

    def run(batch: Batch, lanes: Lanes) -> Outcome:
        state, amounts = batch.state(Barriers), np.broadcast_to(amount(batch, lanes), (batch.size,))
        for barrier, some in state.locate(where, lanes, address(batch, lanes)):
            state.expect(barrier, int(some.numbers[0]), sign * int(amounts[some.index].sum()))
            state.settle(barrier)
        return [(batch.after(batch.key), lanes)] if state.wake() else None

    return run


@instruction("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(at: Decoder) -> Run:
    drop, expects, partial = at.mnemonic.endswith("drop"), bool(at.take("expect_tx")), bool(at.take("noComplete"))
    where, release = qualifiers(at)
    operands = at.expect(*((3,) if expects or partial else (2, 3)))
    if where == "shared::cluster" and at.operands[0] != Name("_"):
        raise Unsupported("the state of an mbarrier of another block")
    write, address = at.writer(0, B64), at.address(1)
    operand = at.reader(2, U32) if operands == 3 else None

    def run(batch: Batch, lanes: Lanes) -> Outcome:
        state, result = batch.state(Barriers), np.zeros(batch.size, np.uint64)
        given = np.broadcast_to(operand(batch, lanes) if operand else np.uint32(1), (batch.size,)).astype(np.int64)
        counts = np.ones(batch.size, np.int64) if expects else given
        for barrier, some in state.locate(where, lanes, address(batch, lanes)):
            first = int(some.numbers[0])
            if ((counts[some.index] < 1) | (counts[some.index] > LIMIT)).any():
                raise Fault("mbarrier.arrive with a count out of range", first)
            if expects:
                state.expect(barrier, first, int(given[some.index].sum()))
            before = barrier.pending - (np.cumsum(counts[some.index]) - counts[some.index])
            result[some.index] = barrier.phase << PHASE | np.maximum(before, 0)
            if partial and counts[some.index].sum() >= barrier.pending:
                raise Fault("mbarrier.arrive.noComplete, but all that were pending have arrived", first)
            if drop:
                barrier.count -= int(counts[some.index].sum())
            state.arrive(barrier, some, counts[some.index], release)
        write(batch, lanes, result)
        return [(batch.after(batch.key), lanes)] if state.wake() else None

    return run


@instruction("mbarrier.pending_count")
def pending_count(at: Decoder) -> Run:
    at.need("b64")
    at.expect(2)
    write, state = at.writer(0, U32), at.reader(1, B64)

    def run(batch: Batch, lanes: Lanes) -> None:
        write(batch, lanes, (state(batch, lanes) & np.uint64((1 << PHASE) - 1)).astype(np.uint32))

    return run


@instruction("mbarrier.test_wait", "mbarrier.try_wait")
def wait(at: Decoder) -> Run:
    parity = bool(at.take("parity"))
    where, acquire = qualifiers(at)
    hinted = at.expect(3, 4) == 4
    write: Write = at.writer(0, PRED)
    address, wanted = at.address(1), at.reader(2, U32 if parity else B64)
    if hinted:
        at.reader(3, U32)
    if where == "shared::cluster":
        raise Unsupported("waiting at an mbarrier of another block")

    def ended(barrier: Barrier, some: Lanes, values: Array) -> Array:
        """For which of the lanes the phase that they name is over."""
        values = values[some.index].astype(np.int64)
        if parity:
            if (values > 1).any():
                raise Fault(f"mbarrier: a parity of {values.max()}", int(some.numbers[(values > 1).argmax()]))
            return np.asarray(barrier.phase & 1 != values)
        phase = values >> PHASE
        if (stale := (phase > barrier.phase) | (phase < barrier.phase - 1)).any():
            raise Fault("mbarrier: a state that is not of this phase or the one before", int(some.numbers[stale.argmax()]))
        return np.asarray(phase < barrier.phase)

    def run(batch: Batch, lanes: Lanes) -> Outcome:
        state = batch.state(Barriers)
        values = np.broadcast_to(wanted(batch, lanes), (batch.size,))
        done, blocked = np.zeros(batch.size, bool), np.zeros(batch.size, bool)
        for barrier, some in state.locate(where, lanes, address(batch, lanes)):
            over = ended(barrier, some, values)
            phase = barrier.phase - over
            again = (state.refused[some.index] == barrier.where) & (state.refused_phase[some.index] == phase)
            state.refused[some.index], state.refused_phase[some.index] = barrier.where, phase
            sure = over & (again | batch.order.knows(some, barrier.heard))
            if (through := batch.only(some, sure)).count:
                done |= through.mask
                if acquire:
                    batch.order.acquire_alone(through, barrier.heard, batch.exited)
                    batch.globals.waited[through.index] |= barrier.waited[1]
            if (rest := batch.only(some, ~over & again)).count:
                state.waiting[rest.index] = barrier.where
                blocked |= rest.mask
        if not blocked.any():
            write(batch, lanes, done)
            return None
        batch.park(batch.sets.of(blocked))
        going = batch.sets.of(lanes.mask & ~blocked)
        if going.count:
            write(batch, going, done)
        return [(batch.after(batch.key), going)]

    return run


def make_ready(batch: Batch, lanes: Lanes) -> None:
    """The async proxy, and the cluster, may see the objects that these lanes have made."""
    for each in batch.state(Barriers).objects.values():
        each.ready |= bool(lanes.mask[each.maker])


@instruction("fence.mbarrier_init")
def fence_init(at: Decoder) -> Run:
    at.need("release"), at.need("cluster")
    at.expect(0)
    at.program.asynchronous = True
    return make_ready


@instruction("fence.proxy.async")
def fence_proxy(at: Decoder) -> Run:
    where = at.take("global", "shared::cta", "shared::cluster")
    at.expect(0)
    at.program.asynchronous = True

    def run(batch: Batch, lanes: Lanes) -> None:
        if where != "global":
            batch.order.proxy_fence(lanes)
            make_ready(batch, lanes)

    return run
