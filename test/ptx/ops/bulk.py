"""Bulk copies between global and shared memory, of contiguous bytes or of boxes of a tensor (TMA).

A load lands when nobody can go on without it (see mbarrier.py), a store reads shared memory at the wait of the thread
that issued it and writes global memory at its wait without `.read`. Swizzling exchanges the 16-byte chunks of shared
memory by their addresses: bits 4 and up are XORed with bits 7 and up, 1, 2 or 3 of them for 32, 64 or 128 bytes. Two
rules are the hardware's own, which calls it an illegal instruction if they are broken: the innermost coordinate is a
multiple of 16 bytes, and a store has no negative coordinate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Read, Run, instruction
from ..faults import Fault, Unsupported
from ..formats import TYPES, Array
from ..lanes import Issuer, Lanes
from ..memory import BASE
from ..parser import Address, Operand, Vector
from ..spaces import RANK, Access
from ..tensor_map import TensorMap
from .mbarrier import Barriers

if TYPE_CHECKING:
    from ..machine import Batch

U16, U32, S32, B64 = TYPES["u16"], TYPES["u32"], TYPES["s32"], TYPES["b64"]
CHUNK, WORD = Access(16), Access(4)
unpacked = lru_cache(maxsize=64)(TensorMap.unpack)


@dataclass
class Box:
    """What one copy moves: rows of `inner` bytes, of which bytes low to high of those that are `there` exist in global
    memory; `rows` has their addresses. In shared memory they follow each other from `offset` on, in `chunks` of 16 bytes.
    """

    inner: int
    rows: Array
    there: Array
    low: int
    high: int
    chunks: Array

    @property
    def nbytes(self) -> int:
        return self.inner * len(self.rows)

    def touched(self) -> Array:
        """The global addresses of the existing bytes: (rows, bytes)."""
        return np.asarray(self.rows[self.there][:, None] + np.arange(self.low, self.high))

    def check(self, batch: Batch, lane: int, write: bool) -> None:
        """That global memory may be read or written there."""
        touched = self.touched()
        if not touched.size:
            return
        space = batch.globals
        try:
            space.regions.check("global", touched[:, 0], self.high - self.low, 1)
        except Fault as fault:
            fault.lane = lane
            raise
        words = np.unique(touched & -4)
        issuer = Issuer(lane, len(words))
        if write:
            space.writing(issuer, words, words - BASE, WORD, None)
        else:
            space.reading(issuer, words, words - BASE, WORD)

    def fetch(self, batch: Batch) -> Array:
        """The bytes in global memory, zero where nothing is: (chunks, 16)."""
        data = np.zeros((len(self.rows), self.inner), np.uint8)
        data[self.there, self.low : self.high] = batch.globals.data[self.touched() - BASE]
        return data.reshape(-1, 16)

    def write(self, batch: Batch, data: Array) -> None:
        data = data.reshape(len(self.rows), self.inner)
        batch.globals.data[self.touched() - BASE] = data[self.there, self.low : self.high]


def swizzled(at: Array, span: int) -> Array:
    """Where in shared memory the 16-byte chunks that belong at these addresses are."""
    return at ^ ((at >> 7) & (max(span, 16) // 16 - 1)) << 4


def tensor_box(tensor: TensorMap, origin: list[int], target: int) -> Box:
    """The box of a tensor whose first element is at `origin`, innermost coordinate first."""
    size, inner = tensor.itemsize, tensor.box[0] * tensor.itemsize
    low, high = (min(max(edge - origin[0], 0), tensor.box[0]) * size for edge in (0, tensor.sizes[0]))
    rows, there = np.array([tensor.address + origin[0] * size]), np.array([high > low])
    for axis in range(len(tensor.sizes) - 1, 0, -1):
        place = origin[axis] + np.arange(tensor.box[axis])
        rows = (rows[:, None] + place * tensor.strides[axis - 1]).ravel()
        there = (there[:, None] & (place >= 0) & (place < tensor.sizes[axis])).ravel()
    chunks = target + 16 * np.arange(len(rows) * inner // 16)
    return Box(inner, rows, there, low, high, swizzled(chunks, tensor.swizzle))


@dataclass
class Load:
    """A bulk copy to `where` in the shared memory of one block."""

    batch: Batch
    box: Box
    where: Array
    nbytes: int

    def land(self, token: int) -> None:
        self.batch.shared.arrive(self.where, self.box.fetch(self.batch), token)


@dataclass
class Store:
    """A bulk copy from `where` in shared memory, which is borrowed until it has been read."""

    box: Box
    where: Array
    grain: Array
    data: Array | None = None


@dataclass
class Stores:
    """Of one lane: those not committed, and the groups not completed, of which `read` have been read."""

    open: list[Store] = field(default_factory=list)
    groups: list[list[Store]] = field(default_factory=list)


class Outgoing:
    """All stores under way, by the lane that issued them."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.lanes: dict[int, Stores] = {}
        batch.on_exit.append(self.leave)

    def of(self, lane: int) -> Stores:
        return self.lanes.setdefault(lane, Stores())

    def wait(self, lane: int, pending: int, only_read: bool) -> None:
        stores, batch = self.of(lane), self.batch
        done = stores.groups[: max(len(stores.groups) - pending, 0)]
        for store in (each for group in done for each in group):
            if store.data is None:
                store.data = batch.shared.data.reshape(-1, 16)[store.where // 16]
                batch.shared.give_back(store.grain, int(batch.order.stamp[lane]))
            if not only_read:
                store.box.check(batch, lane, True)
                store.box.write(batch, store.data)
        if not only_read:
            stores.groups = stores.groups[len(done) :]

    def leave(self) -> None:
        """Threads have exited: what they stored must have been read, and is written at last."""
        for lane in [each for each in self.lanes if self.batch.exited[each]]:
            stores = self.lanes[lane]
            if stores.open or any(store.data is None for group in stores.groups for store in group):
                text = "this thread exits and has not waited until its bulk stores have read shared memory"
                raise Fault(text, lane)
            self.wait(lane, 0, False)
            del self.lanes[lane]


def directions(at: Decoder) -> tuple[str, bool]:
    """The shared space that takes part, and whether the copy goes there."""
    names = [each for each in at.modifiers if each in ("global", "shared::cta", "shared::cluster")]
    if len(names) != 2 or (names[0] == "global") == (names[1] == "global"):
        raise Unsupported(f"a bulk copy between {' and '.join(names)}")
    at.take("global"), at.take("shared::cta", "shared::cluster")
    loads = names[1] == "global"
    at.need("mbarrier::complete_tx::bytes" if loads else "bulk_group")
    at.program.touches("shared", 8)
    at.program.touches("global", 4)
    at.program.asynchronous = True
    return names[0] if loads else names[1], loads


def extras(at: Decoder, first: int) -> Read | None:
    """The operands after the others: which blocks a multicast reaches, and a cache policy, which says nothing here."""
    reach = at.reader(first, U16) if at.take("multicast::cluster") else None
    hint = bool(at.take("L2::cache_hint"))
    at.expect(count := first + (reach is not None) + hint)
    if hint:
        at.reader(count - 1, B64)
    return reach


def issue_load(batch: Batch, lane: int, box: Box, target: int, barrier: int, reach: int | None, space: str) -> None:
    """One lane starts a copy to shared address `target`, or to that place in each block that `reach` has a bit for."""
    state, order, inside = batch.state(Barriers), batch.order, (1 << RANK) - 1
    ranks: list[int] = [rank for rank in range(16) if (reach or 0) >> rank & 1]
    if reach is not None and not (ranks and ranks[-1] < order.cluster):
        raise Fault(f"a multicast to the ranks {ranks} in a cluster of {order.cluster}", lane)
    box.check(batch, lane, False)
    memory = batch.shared if space == "shared::cta" else batch.cluster_shared
    places = [((rank + 1 << RANK) | target & inside, (rank + 1 << RANK) | barrier & inside) for rank in ranks]
    for base, bell in places or [(target, barrier)]:
        many, single = Issuer(lane, len(box.chunks)), Issuer(lane, 1)
        to = box.chunks - target + base
        ((signal, _),) = state.find(single, memory.locate(single, np.array([bell]), 8))
        where = memory.locate(many, to, 16)
        if signal.block != where[0] // batch.shared.stride:
            raise Fault("a bulk copy to one block that signals an mbarrier of another", lane)
        if not signal.ready:
            raise Fault("no fence.mbarrier_init or fence.proxy.async since the mbarrier.init of the object here", lane)
        memory.writing(many, to, where, CHUNK, None)
        batch.shared.depart(where)
        signal.flying.append(Load(batch, box, where, box.nbytes))
        state.doubts = 0


def issue_store(batch: Batch, lane: int, box: Box) -> None:
    where = batch.shared.locate(Issuer(lane, len(box.chunks)), box.chunks, 16)
    if batch.globals.pending and (touched := box.touched()).size:
        batch.globals.refuse_early(Issuer(lane, len(touched)), touched[:, 0])
    grain = batch.shared.lend(where, np.array([lane]))
    batch.state(Outgoing).of(lane).open.append(Store(box, where, grain))


def aligned(address: int, to: int, what: str, lane: int) -> None:
    if address % to:
        raise Fault(f"misaligned: a bulk copy needs a multiple of {to} as {what}, but got {address:#x}", lane)


@instruction("cp.async.bulk.tensor")
def tensor_copy(at: Decoder) -> Run:
    rank = int(at.need("1d", "2d", "3d", "4d", "5d")[0])
    at.take("tile")
    space, loads = directions(at)
    reach = extras(at, 3 if loads else 2)
    described, shared = (1, 0) if loads else (0, 1)
    descriptor, target = at.address(described, rest=True), at.address(shared)
    operand = at.operands[described]
    assert isinstance(operand, Address)
    given: tuple[Operand, ...] = operand.rest
    given = given[0].items if len(given) == 1 and isinstance(given[0], Vector) else given
    if len(given) != rank:
        raise Unsupported(f"{len(given)} coordinates in {rank} dimensions")
    coordinates, barrier = [at.reader(each, S32) for each in given], at.address(2) if loads else None

    def run(batch: Batch, lanes: Lanes) -> None:
        places = np.stack([np.broadcast_to(read(batch, lanes), (batch.size,)) for read in coordinates])
        ranks = np.broadcast_to(reach(batch, lanes), (batch.size,)) if reach else None
        bells = barrier(batch, lanes) if barrier else np.zeros(lanes.count, np.int64)
        numbers = lanes.numbers
        for lane, which, to, bell in zip(numbers, descriptor(batch, lanes), target(batch, lanes), bells, strict=True):
            tensor = tensor_map(batch, int(which), int(lane))
            if len(tensor.sizes) != rank:
                raise Fault(f"a tensor map of {len(tensor.sizes)} dimensions, where {rank} are needed", int(lane))
            origin = [int(each) for each in places[:, lane]]
            aligned(int(to), 128, "shared address", int(lane))
            aligned(origin[0] * tensor.itemsize, 16, "innermost coordinate in bytes", int(lane))
            if not loads and min(origin) < 0:
                raise Fault(f"a bulk store to the negative coordinates {origin}", int(lane))
            box = tensor_box(tensor, origin, int(to))
            if loads:
                issue_load(batch, int(lane), box, int(to), int(bell), None if ranks is None else int(ranks[lane]), space)
            else:
                issue_store(batch, int(lane), box)

    return run


def tensor_map(batch: Batch, address: int, lane: int) -> TensorMap:
    aligned(address, 64, "tensor map address", lane)
    place = batch.globals.locate(Issuer(lane, 1), np.array([address]), 128, 64)[0]
    try:
        return unpacked(batch.globals.data[place : place + 128].tobytes())
    except ValueError:
        raise Fault(f"there is no tensor map at address {address:#x}", lane) from None


@instruction("cp.async.bulk")
def linear_copy(at: Decoder) -> Run:
    space, loads = directions(at)
    reach = extras(at, 4 if loads else 3)
    outside, inside = (at.address(1), at.address(0)) if loads else (at.address(0), at.address(1))
    size, barrier = at.reader(2, U32), at.address(3) if loads else None

    def run(batch: Batch, lanes: Lanes) -> None:
        sizes = np.broadcast_to(size(batch, lanes), (batch.size,))
        ranks = np.broadcast_to(reach(batch, lanes), (batch.size,)) if reach else None
        bells = barrier(batch, lanes) if barrier else np.zeros(lanes.count, np.int64)
        numbers = lanes.numbers
        for lane, out, to, bell in zip(numbers, outside(batch, lanes), inside(batch, lanes), bells, strict=True):
            nbytes = int(sizes[lane])
            for value, what in ((int(out), "global address"), (int(to), "shared address"), (nbytes, "size")):
                aligned(value, 16, what, int(lane))
            if not nbytes:
                raise Fault("a bulk copy of no bytes", int(lane))
            box = Box(nbytes, np.array([out]), np.array([True]), 0, nbytes, int(to) + np.arange(0, nbytes, 16))
            if loads:
                issue_load(batch, int(lane), box, int(to), int(bell), None if ranks is None else int(ranks[lane]), space)
            else:
                issue_store(batch, int(lane), box)

    return run


def each_lane(act: Callable[[Outgoing, int], None]) -> Run:
    def run(batch: Batch, lanes: Lanes) -> None:
        state = batch.state(Outgoing)
        for lane in lanes.numbers:
            act(state, int(lane))

    return run


@instruction("cp.async.bulk.commit_group")
def commit(at: Decoder) -> Run:
    at.expect(0)
    at.program.asynchronous = True

    def act(state: Outgoing, lane: int) -> None:
        stores = state.of(lane)
        stores.groups.append(stores.open)
        stores.open = []

    return each_lane(act)


@instruction("cp.async.bulk.wait_group")
def wait(at: Decoder) -> Run:
    only_read = bool(at.take("read"))
    pending = at.constant(at.expect(1) - 1)
    at.program.asynchronous = True
    return each_lane(lambda state, lane: state.wait(lane, pending, only_read))
