"""The meaning of every tile op, entered into a table under its name; `arithmetic.py` has what is upstream's.

A meaning reads its op once, and gives the function that is run in every program: from the program and the operands' values
to the value of the result. Tiles are arrays as `reference` holds them, indices are int, buffers are `Memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from mlir import ir

from tilec.dialects import tile
from tilec.dialects.index_expr import Linear, Symbol, map_results
from tilec.dialects.schedule import Axis, Schedule

from .. import reference
from ..programs import FLOATS
from ..reference import Array
from .memory import Fault, Memory, ProgramMemory, Ring, Slot, poison


class Program(Protocol):
    """What an op can ask of the program that runs it."""

    schedule: Schedule
    number: int
    coordinates: dict[int, int]  # along the grid's axes
    worker: int
    symbols: dict[str, int]
    producing: bool  # the role that runs now
    memory: dict[Any, Any]  # rings and memory of the program, by the op that makes them
    products: list[tuple[Slot, ...]]  # of tensor cores, with the slots that each reads


Execute = Callable[..., Any]
Meaning = Callable[[Any, Schedule], Execute]
MEANINGS: dict[str, Meaning] = {}


def meaning(name: str) -> Callable[[Meaning], Meaning]:
    def enter(function: Meaning) -> Meaning:
        MEANINGS[name] = function
        return function

    return enter


def dtype_of(value: ir.Value) -> str:
    """The element type of a tile or a buffer."""
    return str(value.type.element_type)


def number(values: Array, dtype: str) -> Array:
    """Floats as f64, integers as they are."""
    return values.astype(np.float64) if dtype in FLOATS else values


# --- The program -----------------------------------------------------------------------------------------------------


@meaning("tile.program_id")
def _program_id(op: tile.ProgramId, _: Schedule) -> Execute:
    axis = op.axis
    return lambda program: program.coordinates[axis]


@meaning("tile.worker")
def _worker(_op: tile.Worker, _: Schedule) -> Execute:
    return lambda program: program.worker


@meaning("tile.producer")
def _producer(_op: tile.Producer, _: Schedule) -> Execute:
    return lambda program: program.producing


@meaning("tile.symbol")
def _symbol(op: tile.SymbolOp, _: Schedule) -> Execute:
    name = op.symbol
    return lambda program: program.symbols[name]


# --- Memory ----------------------------------------------------------------------------------------------------------


class Place:
    """The elements of a tile in memory: their indices, and which exist."""

    def __init__(self, shape: Sequence[int], indices: ir.AffineMap, mask: ir.AffineMap | None = None) -> None:
        self.shape = tuple(shape)
        self.steps = np.indices(self.shape, sparse=True)
        self.indices = map_results(indices)
        self.conditions: tuple[Linear, ...] = map_results(mask) if mask is not None else ()

    def __call__(self, origin: Sequence[int], *more: Array) -> tuple[tuple[Array, ...], Array]:
        """At an origin, which ends with the values of symbols; `more` are further dimensions, varying over the tile."""
        rank = len(self.shape)
        dims = [first + step for first, step in zip(origin, self.steps, strict=False)]
        symbols = {Symbol(i): value for i, value in enumerate(origin[rank:])}
        exists: Array = np.asarray(True)
        for condition in self.conditions:
            exists = exists & (reference.index(condition, dims, symbols) >= 0)
        return tuple(reference.index(e, [*dims, *more], symbols) for e in self.indices), exists


@meaning("tile.load")
def _load(op: tile.Load, _: Schedule) -> Execute:
    place = Place(op.result.type.shape, op.map, op.mask)

    def execute(program: Program, source: Memory, *origin: int) -> Array:
        return np.broadcast_to(source.read(*place(origin), program.number), place.shape)

    return execute


@meaning("tile.load_over")
def _load_over(op: tile.LoadOver, _: Schedule) -> Execute:
    place = Place(op.result.type.shape, op.map, op.mask)

    def execute(program: Program, value: Array, source: Memory, *origin: int) -> Array:
        where, exists = place(origin)
        return np.where(exists, np.broadcast_to(source.read(where, exists, program.number), place.shape), value)

    return execute


@meaning("tile.gather")
def _gather(op: tile.Gather, _: Schedule) -> Execute:
    place = Place(op.result.type.shape, op.map, op.mask)

    def execute(program: Program, source: Memory, index: Array, *origin: int) -> Array:
        return np.broadcast_to(source.read(*place(origin, index.astype(np.int64)), program.number), place.shape)

    return execute


@meaning("tile.store")
def _store(op: tile.Store, _: Schedule) -> Execute:
    place = Place(op.value.type.shape, op.map, op.mask)

    def execute(program: Program, value: Array, dest: Memory, *origin: int) -> None:
        dest.write(*place(origin), value, program.number)

    return execute


@meaning("tile.scatter")
def _scatter(op: tile.Scatter, _: Schedule) -> Execute:
    place, extent = Place(op.value.type.shape, op.map, op.mask), op.extent

    def execute(program: Program, value: Array, index: Array, dest: Memory, *origin: int) -> None:
        kept = (index >= 0) & (index < extent)
        where, exists = place(origin, np.where(kept, index, 0).astype(np.int64))
        dest.write(where, exists & kept, value, program.number)

    return execute


@meaning("tile.index")
def _index(op: tile.IndexTile, _: Schedule) -> Execute:
    place, dtype = Place(op.result.type.shape, op.map), dtype_of(op.result)
    return lambda program, *origin: np.broadcast_to(place(origin)[0][0].astype(reference.NUMPY[dtype]), place.shape)


@meaning("tile.alloc")
def _alloc(op: tile.Alloc, _: Schedule) -> Execute:
    shape, dtype = tuple(op.result.type.shape), dtype_of(op.result)

    def execute(program: Program) -> Memory:
        return program.memory.setdefault(op, ProgramMemory(poison(shape, dtype)))

    return execute


@meaning("tile.barrier")
def _barrier(_op: tile.Barrier, _: Schedule) -> Execute:
    def execute(program: Program) -> None:
        for memory in program.memory.values():
            if isinstance(memory, ProgramMemory):
                memory.phase += 1

    return execute


# --- Rings -----------------------------------------------------------------------------------------------------------


@meaning("tile.ring")
def _ring(op: tile.Ring, _: Schedule) -> Execute:
    """The rings of all blocks of a cluster are one: a slot has their parts of a tile side by side."""
    slots = op.result.type.shape[0]
    return lambda program: program.memory.setdefault(op, Ring(slots))


@meaning("tile.fetch")
def _fetch(op: tile.Fetch, schedule: Schedule) -> Execute:
    """A box of the source, with zeros outside, as the rows and columns of a slot."""
    along = [*op.rows, op.column]
    shape = [a.tile if i in along else 1 for i, a in enumerate(schedule.axes)]
    place, rank = Place(shape, op.map), len(shape)
    order = [*along, *(i for i in range(rank) if i not in along)]
    _, height, width = op.ring.type.shape
    limits = [(op.rows[-1] if op.rows else -1, op.limit), (op.column, op.column_limit)]

    def execute(program: Program, ring: Ring, turn: int, source: Memory, *origin: int) -> None:
        where, exists = place(origin)
        for i, size in zip(where, source.values.shape, strict=True):
            exists = exists & (i >= 0) & (i < size)
        symbols = {Symbol(i): value for i, value in enumerate(origin[rank:])}
        for axis, limit in limits:
            if limit is not None:
                exists = exists & (origin[axis] + place.steps[axis] < reference.index(map_results(limit)[0], (), symbols))
        box = np.broadcast_to(source.read(where, exists, program.number), shape)
        ring.fill(turn, box.transpose(order).reshape(height, width * schedule.axes[op.column].cluster))

    return execute


@meaning("tile.commit")
def _commit(_op: tile.Commit, _: Schedule) -> Execute:
    return lambda program: None


@meaning("tile.await")
def _await(_op: tile.Await, _: Schedule) -> Execute:
    return lambda program, ring, turn: Slot(ring, turn)


@meaning("tile.release")
def _release(op: tile.Release, _: Schedule) -> Execute:
    running = op.running

    def execute(program: Program, ring: Ring, turn: int) -> None:
        for slots in program.products[len(program.products) - running:]:
            if any(slot.ring is ring and slot.turn == turn for slot in slots):
                raise Fault(f"turn {turn} releases a slot that a product may still read")
        ring.release(turn)

    return execute


@meaning("tile.made")
def _made(_op: tile.Made, _: Schedule) -> Execute:
    return lambda program, value: value


@meaning("tile.take_turn")
@meaning("tile.pass_turn")
def _turn(_op: tile.TakeTurn | tile.PassTurn, _: Schedule) -> Execute:
    """A program is one thread."""
    return lambda program: None


WAITS: dict[str, Callable[..., bool]] = {  # what must be before an op can run
    "tile.fetch": lambda ring, turn, *_: ring.is_free(turn),
    "tile.await": lambda ring, turn: ring.has(turn),
}


# --- Tiles -----------------------------------------------------------------------------------------------------------


def threads_of(axis: Axis) -> Array:
    """Which thread holds each element of a whole tile along an axis (see `dialects/schedule.py`)."""
    warp, _, thread, _ = np.indices((axis.warps, axis.registers, axis.neighbours, axis.vector))
    return (warp * axis.neighbours + thread).reshape(-1)


def by_thread(values: Array, position: int, axis: Axis) -> Array:
    """A tile with the elements that each thread holds along one axis side by side, a new axis after it."""
    shape = values.shape
    if shape[position] == axis.tile:
        values = values.take(np.argsort(threads_of(axis), kind="stable"), position)
    elif shape[position] != axis.threads:
        raise Fault(f"a tile has {shape[position]} elements along axis {axis.name}, which has tiles of {axis.tile}")
    return values.reshape(*shape[:position], axis.threads, -1, *shape[position + 1:])


def by_parts(values: Array, position: int, axis: Axis, parts: int) -> Array:
    """The same with what each of `parts` holds: threads, or warps, of which each has a run."""
    if parts == axis.threads:
        return by_thread(values, position, axis)
    if parts != axis.warps:
        raise Fault(f"axis {axis.name} has {axis.threads} threads in {axis.warps} warps, but a tile has {parts} parts along it")
    return values.reshape(*values.shape[:position], parts, -1, *values.shape[position + 1:])


@meaning("tile.spread")
def _spread(op: tile.Spread, schedule: Schedule) -> Execute:
    before, after = op.value.type.shape, tuple(op.result.type.shape)
    own = [i for i, (n, m) in enumerate(zip(before, after, strict=True)) if n not in (1, m)]

    def execute(_: Program, value: Array) -> Array:
        for i in own:
            axis = schedule.axes[i]
            of_warp = np.arange(axis.tile) // (axis.tile // axis.warps)
            value = value.take(threads_of(axis) if before[i] == axis.threads else of_warp, i)
        return np.broadcast_to(value, after)

    return execute


@meaning("tile.reverse")
def _reverse(op: tile.Reverse, _: Schedule) -> Execute:
    axis = op.axis
    return lambda program, value: np.flip(value, axis)


def combined(values: Array, axes: Sequence[int], kind: tile.ReduceKind) -> Array:
    if kind is tile.ReduceKind.MAX:
        return values.max(tuple(axes), keepdims=True)
    return values.sum(tuple(axes), keepdims=True, dtype=values.dtype)


@meaning("tile.reduce")
def _reduce(op: tile.Reduce, schedule: Schedule) -> Execute:
    kind, axes, after, dtype = op.kind, list(op.axes), list(op.result.type.shape), dtype_of(op.result)

    def execute(_: Program, value: Array) -> Array:
        value = number(value, dtype)
        for axis in axes:
            if after[axis] == 1:
                value = combined(value, [axis], kind)
            else:
                value = combined(by_parts(value, axis, schedule.axes[axis], after[axis]), [axis + 1], kind).squeeze(axis + 1)
        return reference.rounded(value, dtype)

    return execute


@meaning("tile.reduce_online")
def _reduce_online(op: tile.ReduceOnline, _: Schedule) -> Execute:
    scale, floor, axes, dtype = op.scale, op.floor, tuple(op.axes), dtype_of(op.result)

    def execute(_: Program, maximum: Array, value: Array) -> Array:
        maximum = np.maximum(maximum.astype(np.float64), floor)
        factors = np.exp2(scale * (maximum - maximum.max(axes, keepdims=True)))
        return reference.rounded((value * factors).sum(axes, keepdims=True), dtype)

    return execute


# --- Products --------------------------------------------------------------------------------------------------------


def product(lhs: Array, rhs: Array, acc: Array, dtype: str, axes: Sequence[Axis] = ()) -> Array:
    """acc + sum(lhs * rhs) along the axes where acc is smaller, rounded once: the same for equal elements in equal order.

    Along a summed axis acc has size 1, or one element for each thread of `axes`, or for each warp.
    """
    rank, sides = acc.ndim, []
    for side in (lhs, rhs):
        for a in reversed(range(rank)):
            n, kept = side.shape[a], acc.shape[a]
            if 1 < kept < n:
                side = by_parts(side, a, axes[a], kept)
            else:  # all of it is kept, or nothing
                side = side.reshape(*side.shape[:a], *((1, n) if kept == 1 else (n, 1)), *side.shape[a + 1:])
        sides.append(side.transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]))
    held = np.broadcast_shapes(*(s.shape[rank:] for s in sides))
    left, right = (np.broadcast_to(s, (*s.shape[:rank], *held)) for s in sides)
    both = [a for a in range(rank) if left.shape[a] > 1 and right.shape[a] > 1]
    rows = [a for a in range(rank) if a not in both and right.shape[a] == 1]
    columns = [a for a in range(rank) if a not in both and a not in rows]
    summed = list(range(rank, 2 * rank))
    sizes = [[max(left.shape[a], right.shape[a]) for a in group] for group in (both, rows, columns, summed)]
    batch, height, width, depth = (prod(s) for s in sizes)
    matrices = left.transpose([*both, *rows, *columns, *summed]).reshape(batch, height, depth)
    others = right.transpose([*both, *columns, *rows, *summed]).reshape(batch, width, depth)
    kind = np.float64 if dtype in FLOATS else reference.NUMPY[dtype]
    total = np.ascontiguousarray(matrices, kind) @ np.ascontiguousarray(others, kind).swapaxes(1, 2)
    total = total.reshape(sizes[0] + sizes[1] + sizes[2]).transpose(np.argsort([*both, *rows, *columns]))
    return reference.rounded(acc.astype(kind) + total, dtype)


@meaning("tile.dot")
def _dot(op: tile.Dot, schedule: Schedule) -> Execute:
    dtype = dtype_of(op.result)
    return lambda program, lhs, rhs, acc: product(lhs, rhs, acc, dtype, schedule.axes)


@meaning("tile.dot_twin")
def _dot_twin(op: tile.DotTwin, _: Schedule) -> Execute:
    column, twin, depth, dtype = op.column, op.twin, op.depth, dtype_of(op.result)
    along = depth if op.depth_twin is None else op.depth_twin
    parts = op.acc.type.shape[depth]  # each warp has a run of the depth

    def execute(_: Program, lhs: Array, rhs: Array, acc: Array) -> Array:
        cut = [np.split(side, parts, depth) for side in (lhs, rhs.swapaxes(column, twin).swapaxes(depth, along), acc)]
        return np.concatenate([product(*sides, dtype) for sides in zip(*cut, strict=True)], depth)

    return execute


@meaning("tile.dot_shared")
def _dot_shared(op: tile.DotShared, schedule: Schedule) -> Execute:
    shape, dtype = tuple(op.result.type.shape), dtype_of(op.result)
    rows, columns, transposed = list(op.lhs_rows), list(op.rhs_rows), bool(op.transposed)
    height, width = (prod(shape[a] for a in axes) for axes in (rows, columns))
    others = [a for a in range(len(shape)) if a not in (*rows, *columns)]
    order = [*rows, *columns, *others]
    shared = next((schedule.axes[a] for a in others if shape[a] > 1), schedule.axes[0])  # the depth, by blocks of a cluster

    def execute(program: Program, lhs: Slot | Array, rhs: Slot, acc: Array) -> Array:
        program.products.append(tuple(side for side in (lhs, rhs) if isinstance(side, Slot)))
        if isinstance(lhs, Slot):
            left = lhs.read().T if op.lhs_transposed else lhs.read()
        else:
            left = lhs.transpose([*rows, *(a for a in range(len(shape)) if a not in rows)]).reshape(height, -1)
        right = rhs.read().T if transposed else rhs.read()
        parts = acc.transpose(order).reshape(height, width, -1)
        total = product(left[:, None], right[None], parts, dtype, [shared] * 3)
        return total.reshape([shape[a] for a in order]).transpose(np.argsort(order))

    return execute


assert {n for n in MEANINGS if n.startswith("tile.")} == set(tile.Tile.operations), "every tile op needs a meaning"
