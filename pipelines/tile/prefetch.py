"""Loops read their next turn's tiles while they compute on the present ones, which are carried in registers.

    for i: x = load(i); use(x)   ->   x0 = load(first); for i carrying x: next = load(i + step); use(x); yield next

The first tiles are read before the loops that come before as well. The last turn reads a tile too many: one that a condition
says does not exist, or is not `held`, or, where none ends the loop, its own tile again (a loop ends at a multiple of its step).
Then the first tile must lie inside the buffer even if the loop makes no turn; one that would not is moved there. A load that is
the same in every turn moves before the loop. Part of the schedule: `ahead`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects import tile
from tilec.dialects.index_expr import Dim, Linear, dim, make_map, map_results
from tilec.pipelines.loops import carry_on, carrying
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of
from tilec.pipelines.tile import tile_functions


@dataclass(frozen=True)
class Prefetch(Pass):
    """Read the masked tiles of a loop one turn ahead, and those that do not change before it."""

    name = "tile-prefetch"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for function, schedule in tile_functions(op):
            if schedule.ahead:
                _visit(body_of(function))


def _visit(block: ir.Block) -> None:
    for op in list(block.operations):
        if isinstance(op, scf.ForOp) and not any(_stores(o) for o in op.body.operations):
            _pipeline(op)
        else:
            for region in op.operation.regions:
                for inner in region.blocks:
                    _visit(inner)


def _stores(op: ir.OpView) -> bool:
    return isinstance(op, tile.Store | tile.Scatter) or any(
        _stores(o) for r in op.operation.regions for b in r.blocks for o in b.operations)


def _pipeline(loop: scf.ForOp) -> None:
    inside = {r for o in loop.body.operations for r in o.results} | set(loop.inner_iter_args)
    loads = [o for o in loop.body.operations if isinstance(o, tile.Load) and not any(v in inside for v in o.operands)]
    same = [o for o in loads if not any(_turns(o, m, loop) for m in (o.map, o.mask))]
    ahead = [o for o in loads if o not in same and (_bounded(o, loop) or _fits(o, loop))]
    for load in same:
        _at(load.operation, loop.induction_variable, loop.lowerBound)
        load.operation.move_before(loop.operation)
        _reuse(load)
    if not ahead:
        return
    with loop.operation.location, ir.InsertionPoint(_earliest(loop, ahead)):
        first = [_copy(o, loop.induction_variable, _first(o, loop)) for o in ahead]
    loop, carried = carrying(loop, first)
    with loop.operation.location, ir.InsertionPoint.at_block_begin(loop.body):
        following = arith.addi(loop.induction_variable, loop.step)
        nexts = [_copy(o, loop.induction_variable, following if _bounded(o, loop) else
                       arith.minsi(following, arith.subi(loop.upperBound, _length(o, loop)))) for o in ahead]
    for load, now, later in zip(ahead, carried, nexts, strict=True):
        carry_on(loop, now, later)
        load.result.replace_all_uses_with(now)
        load.operation.erase()


def _turns(load: tile.Load, place: ir.AffineMap | None, loop: scf.ForOp) -> bool:
    """Whether a map or mask of a load uses an origin that depends on the turn."""
    used = {a for e in map_results(place) for a in e.atoms()} if place is not None else set()
    return any(v == loop.induction_variable and Dim(i) in used for i, v in enumerate(load.origin))


def _reuse(load: tile.Load) -> None:
    """Takes what an earlier load has read, of the same place, if nothing is written in between."""
    used = {a for place in (load.map, load.mask) if place is not None for e in map_results(place) for a in e.atoms()}

    def place_of(op: tile.Load) -> tuple[object, ...]:
        symbols, said = list(op.operands)[1 + op.map.n_dims:], {n: op.attributes[n] for n in op.attributes}
        return (said, op.source, op.result.type, *symbols, *(v for i, v in enumerate(op.origin) if Dim(i) in used))

    for op in reversed(list(load.operation.block.operations)):
        if op.operation.is_before_in_block(load.operation):
            if isinstance(op, tile.Barrier) or _stores(op):
                return
            if isinstance(op, tile.Load) and place_of(op) == place_of(load):
                load.result.replace_all_uses_with(op.result)
                load.operation.erase()
                return


def _earliest(loop: scf.ForOp, loads: list[tile.Load]) -> ir.OpView:
    """Where the first tiles can be read: before the loops that come before, if what they need is known there and nothing is
    written in between."""
    needed = {v for o in loads for v in o.operands} | {loop.lowerBound}
    place: ir.OpView = loop
    for op in reversed(list(loop.operation.block.operations)):
        if op.operation.is_before_in_block(loop.operation):
            if any(r in needed for r in op.operation.results) or isinstance(op, tile.Barrier) or _stores(op):
                break
            place = op if isinstance(op, scf.ForOp) else place
    return place


def _bounded(load: tile.Load, loop: scf.ForOp) -> bool:
    """Whether a mask ends what exists along the loop: a condition falls with every turn."""
    turn = [Dim(i) for i, v in enumerate(load.origin) if v == loop.induction_variable]
    return any(e.coefficient(a) < 0 for e in _conditions(load) for a in turn)


def _conditions(load: tile.Load) -> list[Linear]:
    """What must hold for an element to be read in another turn: of what is `held` only that is, as the rest may be about to be
    written."""
    return [e for place in (load.mask, load.held) if place is not None for e in map_results(place)]


def _fits(load: tile.Load, loop: scf.ForOp) -> bool:
    """Whether a tile is inside the buffer whatever its length in use, if the loop starts at 0 or where `_first` says."""
    start, turn = loop.lowerBound.owner, [i for i, v in enumerate(load.origin) if v == loop.induction_variable]
    if _turns(load, load.mask, loop) or (start.name == "arith.constant" and ir.IntegerAttr(start.attributes["value"]).value):
        return False
    sizes = ir.MemRefType(load.source.type).shape
    return all(Dim(i) not in e.atoms() or (e == dim(i) and load.result.type.shape[i] <= size)
               for i in turn for e, size in zip(map_results(load.map), sizes, strict=True))


def _length(load: tile.Load, loop: scf.ForOp) -> ir.Value:
    """What a tile has along the loop: a step, or less where other programs take what is between."""
    step, used = loop.step.owner, {a for e in map_results(load.map) for a in e.atoms()}
    length = next(load.result.type.shape[i] for i, v in enumerate(load.origin)
                  if v == loop.induction_variable and Dim(i) in used)
    if step.name == "arith.constant" and ir.IntegerAttr(step.attributes["value"]).value == length:
        return loop.step
    return arith.constant(ir.IndexType.get(), length)


def _first(load: tile.Load, loop: scf.ForOp) -> ir.Value:
    """Where the first tile is read: where the loop starts or, if no mask ends it, at the last place in the buffer."""
    start = loop.lowerBound
    if start.owner.name == "arith.constant" or _bounded(load, loop):
        return start
    sizes = zip(map_results(load.map), ir.MemRefType(load.source.type).shape, strict=True)
    last = min(size - load.result.type.shape[i] for e, size in sizes
               for i, v in enumerate(load.origin) if v == loop.induction_variable and Dim(i) in e.atoms())
    return arith.minsi(start, arith.constant(ir.IndexType.get(), last))


def _copy(load: tile.Load, variable: ir.Value, turn: ir.Value) -> ir.Value:
    """The load for another turn, at the insertion point, which may be one that the loop does not make."""
    copy = load.operation.clone()
    if load.held is not None:
        mask = make_map(load.map.n_dims, load.map.n_symbols, _conditions(load))
        copy.attributes["mask"] = ir.AffineMapAttr.get(mask)
    _at(copy, variable, turn)
    return copy.results[0]


def _at(load: ir.Operation, variable: ir.Value, turn: ir.Value) -> None:
    for i, operand in enumerate(load.operands):
        if operand == variable:
            load.operands[i] = turn
