"""Instructions in which the lanes of a warp exchange values. Each waits for the lanes that its member mask names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..decode import Decoder, Key, Run, instruction
from ..faults import Fault, Unsupported
from ..formats import TYPES, Array
from ..lanes import Lanes
from ..parser import Operand, Pair

if TYPE_CHECKING:
    from ..machine import Batch

B32, PRED = TYPES["b32"], TYPES["pred"]
Body = Callable[["Batch", Lanes], None]


def synchronous(at: Decoder, mask: int, body: Body) -> Run:
    """Run `body` for the lanes whose partners, named by operand number `mask`, are all there."""
    members = at.reader(mask, B32)

    def run(batch: Batch, lanes: Lanes) -> list[tuple[Key, Lanes]] | None:
        group = batch.rendezvous(lanes, members)
        if group.count:
            body(batch, group)
        return batch.proceed(lanes, group)

    return run


def destinations(at: Decoder) -> tuple[Operand, Operand | None]:
    target = at.operands[0]
    return (target.first, target.second) if isinstance(target, Pair) else (target, None)


@instruction("shfl.sync")
def shfl(at: Decoder) -> Run:
    mode, kind = at.need("up", "down", "bfly", "idx"), at.type()
    at.expect(5)
    target, valid = destinations(at)
    source, by, limits, members = (at.reader(place, B32) for place in (1, 2, 3, 4))
    write, write_valid = at.writer(target, kind), at.writer(valid, PRED) if valid else None

    def body(batch: Batch, lanes: Lanes) -> None:
        value, lane = np.broadcast_to(source(batch, lanes), (batch.size,)), batch.lane
        step = (np.asarray(by(batch, lanes)) & 31).astype(np.int64)
        limit = np.asarray(limits(batch, lanes)).astype(np.int64)
        segment, clamp = limit >> 8 & 31, limit & 31
        lowest, highest = lane & segment, (lane & segment) | (clamp & ~segment)
        other = {"up": lane - step, "down": lane + step, "bfly": lane ^ step, "idx": lowest | (step & ~segment)}[mode]
        inside = other >= highest if mode == "up" else other <= highest
        other = np.where(inside, other, lane)
        named = (np.broadcast_to(members(batch, lanes), (batch.size,)) >> other.astype(np.uint32)) & np.uint32(1) == 1
        if (absent := lanes.mask & ~named).any():
            bad = int(absent.argmax())
            raise Fault(f"divergent shuffle: it reads lane {other[bad]}, which the member mask does not name", bad)
        write(batch, lanes, value[batch.order.warp * 32 + other].view(kind.view))
        if write_valid is not None:
            write_valid(batch, lanes, inside)

    return synchronous(at, 4, body)


def member_table(batch: Batch, lanes: Lanes, masks: Array) -> Array:
    """(warps, 32, 32) booleans: lane j takes part in what lane i computes."""
    masks = np.broadcast_to(masks, (batch.size,)).reshape(-1, 32)
    return (masks[:, :, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1) == 1


def to_mask(table: Array) -> Array:
    """(..., 32) booleans to the uint32 of their bits, one a lane."""
    return np.packbits(table, axis=-1, bitorder="little").view(np.uint32).reshape(-1)


@instruction("vote.sync")
def vote(at: Decoder) -> Run:
    mode, kind = at.need("all", "any", "uni", "ballot"), at.type()
    at.expect(3)
    source, members, write = at.reader(1, PRED), at.reader(2, B32), at.writer(0, kind)

    def body(batch: Batch, lanes: Lanes) -> None:
        table = member_table(batch, lanes, members(batch, lanes))
        value = np.broadcast_to(source(batch, lanes), (batch.size,)).reshape(-1, 1, 32)
        yes = table & value
        if mode == "ballot":
            return write(batch, lanes, to_mask(yes))
        some, every = yes.any(axis=-1).reshape(-1), (yes == table).all(axis=-1).reshape(-1)
        write(batch, lanes, {"all": every, "any": some, "uni": every | ~some}[mode])

    if kind.name != ("b32" if mode == "ballot" else "pred"):
        raise Unsupported("this type")
    return synchronous(at, 2, body)


@instruction("match")
def match(at: Decoder) -> Run:
    mode = at.need("any", "all")
    at.need("sync")
    kind = at.type()
    at.expect(3)
    target, agreed = destinations(at)
    source, members = at.reader(1, kind), at.reader(2, B32)
    write, write_agreed = at.writer(target, B32), at.writer(agreed, PRED) if agreed else None

    def body(batch: Batch, lanes: Lanes) -> None:
        table = member_table(batch, lanes, members(batch, lanes))
        value = np.broadcast_to(source(batch, lanes), (batch.size,)).reshape(-1, 32)
        same = table & (value[:, :, None] == value[:, None, :])
        if mode == "any":
            return write(batch, lanes, to_mask(same))
        every = (same == table).all(axis=-1).reshape(-1)
        write(batch, lanes, np.where(every, to_mask(table), np.uint32(0)))
        if write_agreed is not None:
            write_agreed(batch, lanes, every)

    return synchronous(at, 2, body)


REDUCE: dict[str, tuple[Callable[..., Array], Callable[[Any], int]]] = {
    "add": (np.add.reduce, lambda kind: 0),
    "min": (np.minimum.reduce, lambda kind: np.iinfo(kind).max),
    "max": (np.maximum.reduce, lambda kind: np.iinfo(kind).min),
    "and": (np.bitwise_and.reduce, lambda kind: np.iinfo(kind).max),
    "or": (np.bitwise_or.reduce, lambda kind: 0),
    "xor": (np.bitwise_xor.reduce, lambda kind: 0),
}


@instruction("redux.sync")
def redux(at: Decoder) -> Run:
    (reduce, neutral), kind = REDUCE[at.need(*REDUCE)], at.type()
    at.expect(3)
    if kind.name not in ("u32", "s32", "b32"):
        raise Unsupported(f"a reduction of {kind.name}")
    source, members, write = at.reader(1, kind), at.reader(2, B32), at.writer(0, kind)

    def body(batch: Batch, lanes: Lanes) -> None:
        table = member_table(batch, lanes, members(batch, lanes))
        value = np.broadcast_to(source(batch, lanes), (batch.size,)).reshape(-1, 1, 32)
        chosen = np.where(table, value, kind.view.type(neutral(kind.view)))
        write(batch, lanes, reduce(chosen, axis=-1, dtype=kind.view).reshape(-1))

    return synchronous(at, 2, body)


@instruction("activemask")
def activemask(at: Decoder) -> Run:
    write = at.writer(0, at.type())
    at.expect(1)
    return lambda batch, lanes: write(batch, lanes, np.repeat(lanes.ballot, 32))


@instruction("elect.sync")
def elect(at: Decoder) -> Run:
    at.expect(2)
    target, chosen = destinations(at)
    members, write = at.reader(1, B32), at.writer(target, B32)
    write_chosen = at.writer(chosen, PRED) if chosen else None

    def body(batch: Batch, lanes: Lanes) -> None:
        first = member_table(batch, lanes, members(batch, lanes)).argmax(axis=-1).reshape(-1)
        write(batch, lanes, first.astype(np.uint32))
        if write_chosen is not None:
            write_chosen(batch, lanes, first == batch.lane)

    return synchronous(at, 1, body)


@instruction("bar.warp.sync")
def warp_barrier(at: Decoder) -> Run:
    """Orders the memory accesses of a warp if all its lanes take part; a partial one is taken to order nothing."""
    at.expect(1)

    def body(batch: Batch, lanes: Lanes) -> None:
        whole = (lanes.ballot == ~np.packbits(batch.exited, bitorder="little").view(np.uint32)) & (lanes.ballot != 0)
        if whole.any():
            batch.order.warp_barrier(batch.sets.of(lanes.mask & np.repeat(whole, 32)))

    return synchronous(at, 0, body)
