"""The depth of a product is shared by the blocks of a cluster, each of which takes its part of every tile along it.

    for k step s: acc = dot(a, b, acc)   ->   for k step s split: acc = dot(a, b, acc), a part for each block; reduce acc

Where a product has few programs, more multiprocessors then read its operands. The parts are added up in one fixed order, and
the results dealt out: every block adds, goes on with and stores its own. Results that are reversed or added up stay together.
Part of the schedule: `split`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects import tile
from tilec.dialects.schedule import Schedule
from tilec.pipelines.loops import known_bounds
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import body_of
from tilec.pipelines.primop.structure import defining_op
from tilec.pipelines.tile import op_after, tile_functions


@dataclass(frozen=True)
class Split(Pass):
    """Share the depth of products whose operands are staged among the blocks of a cluster."""

    name = "tile-split"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for function, schedule in tile_functions(op):
            if schedule.rings and schedule.split > 1:
                block = body_of(function)
                loops = [o for o in block.operations if isinstance(o, scf.ForOp) and _dots(o)]
                depths = {_depth(dot) for loop in loops for dot in _dots(loop)}
                if len(depths) != 1 or any(isinstance(o, tile.Dot) for o in block.operations):
                    raise PassFailure("only the one depth of products in a loop can be split", function.operation.location)
                together = {o.axis for o in block.operations if isinstance(o, tile.Reverse)}
                together |= {a for o in block.operations if isinstance(o, tile.Reduce) for a in o.axes}
                for loop in loops:
                    with loop.operation.location, ir.InsertionPoint(loop):
                        _split(loop, next(iter(depths)), schedule.split, together)
                function.attributes["tile.schedule"] = _shared(schedule, next(iter(depths))).to_attribute(
                    len(ir.DictAttr(op.attributes["primop.symbols"])) if "primop.symbols" in op.attributes else 0)


def _dots(loop: scf.ForOp) -> list[tile.Dot]:
    return [o for o in loop.body.operations if isinstance(o, tile.Dot)]


def _depth(dot: tile.Dot) -> int:
    """The axis that a product reduces."""
    shapes = [list(v.type.shape) for v in (dot.lhs, dot.rhs, dot.acc)]
    return next(i for i, (a, b, c) in enumerate(zip(*shapes, strict=True)) if max(a, b) > c)


def _shared(schedule: Schedule, depth: int) -> Schedule:
    """The schedule afterwards: one thread along the depth in each block."""
    blocks, size = schedule.split, schedule.axes[depth].tile
    return replace(schedule, split=1).with_axis(depth, tile=size * blocks, threads=blocks, vector=size, cluster=blocks)


def _split(old: scf.ForOp, depth: int, blocks: int, together: set[int]) -> None:
    bounds = known_bounds(old)
    if bounds is None:
        raise PassFailure("the depth of a product can be split if it is known", old.operation.location)
    first, last, step = bounds
    if (last - first) % (step * blocks):
        raise PassFailure(f"a depth of {last - first} in steps of {step} cannot be split into {blocks} parts",
                          old.operation.location)
    start = [_zeros(v, depth, blocks) for v in old.initArgs]
    new = scf.ForOp(old.lowerBound, old.upperBound, arith.constant(ir.IndexType.get(), step * blocks), start)
    for before, after in zip(old.body.arguments, new.body.arguments, strict=True):
        before.replace_all_uses_with(after)
    for op in list(old.body.operations):
        op.operation.detach_from_parent()
        new.body.append(op)
    for dot in _dots(new):
        for operand in (dot.lhs, dot.rhs):
            load = defining_op(operand)
            if not isinstance(load, tile.Load):
                raise PassFailure("the depth of a product can be split if both operands are read from memory",
                                  dot.operation.location)
            if operand.type.shape[depth] == step:  # not yet replaced for another product
                load.result.set_type(_resized(operand.type, depth, step * blocks))
        dot.result.set_type(_resized(dot.result.type, depth, blocks))
    rest = op_after(old)
    while isinstance(rest, tile.Reduce):
        rest = op_after(rest)
    with ir.InsertionPoint(rest):  # what is added up besides is few: first, it needs no registers any more
        for before, after in zip(old.results, new.results, strict=True):
            dealt = [a for a, n in enumerate(before.type.shape) if n > 1 and a not in together]
            total = tile.Reduce(kind=tile.ReduceKind.ADD, axes=[depth], dealt=dealt, value=after, result=before.type)
            before.replace_all_uses_with(total.result)
    old.operation.erase()


def _resized(kind: ir.Type, axis: int, size: int) -> ir.Type:
    shape = list(kind.shape)
    shape[axis] = size
    return ir.VectorType.get(shape, kind.element_type)


def _zeros(value: ir.Value, depth: int, blocks: int) -> ir.Value:
    """What a sum starts with, for every part."""
    constant = defining_op(value)
    splat = ir.DenseElementsAttr(constant.attributes["value"]) if isinstance(constant, arith.ConstantOp) else None
    if splat is None or not splat.is_splat or ir.FloatAttr(splat.get_splat_value()).value != 0.0:
        raise PassFailure("a product that is split must start from zero", ir.Location.current)
    kind = _resized(value.type, depth, blocks)
    return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, splat.get_splat_value()))
