"""Operands of tensor cores come through shared memory: the loads of a loop's products become fetches into rings.

    for k: a = load; b = load; acc = dot(a, b, acc)   ->   for k: fetch a; fetch b; acc = dot_shared(await a, await b, acc);
                                                                  release the slots of the turn before

An operand's mask is dropped. Along a kept axis it may be: an element that does not exist makes only results that do not
exist. Along the reduced axis a fetch reads zero beyond the end of a row. Part of the schedule: `tensor` and `stages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects import tile
from tilec.dialects.schedule import Schedule
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import body_of, functions
from tilec.pipelines.primop.structure import defining_op


@dataclass(frozen=True)
class Stage(Pass):
    """Bring the operands of a tensor core's products through rings in shared memory."""

    name = "tile-stage"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for nested in op.regions[0].blocks[0].operations:
            if nested.operation.name == "builtin.module":
                for function in functions(nested, "tile.kernel"):
                    schedule = Schedule.from_attribute(function.attributes["tile.schedule"])
                    if schedule.tensor:
                        _stage(function, schedule)


def _stage(function: ir.OpView, schedule: Schedule) -> None:
    entry = body_of(function)
    for loop in list(_loops(entry)):
        dots = [o for o in loop.body.operations if isinstance(o, tile.Dot)]
        if not dots:
            continue
        with loop.operation.location:
            with ir.InsertionPoint.at_block_begin(loop.body):
                turn = arith.divui(arith.subi(loop.induction_variable, loop.lowerBound), loop.step)
            slots: dict[ir.Value, ir.Value] = {}
            rings = []
            for dot in dots:
                for operand in (dot.lhs, dot.rhs):
                    if operand not in slots:
                        ring, slots[operand] = _fetched(operand, dot, entry, schedule, turn)
                        rings.append(ring)
            for dot in dots:
                _replace(dot, slots)
            for operand in slots:
                defining_op(operand).operation.erase()
            with ir.InsertionPoint(list(loop.body.operations)[-1]):
                before = arith.subi(turn, arith.constant(ir.IndexType.get(), 1))
                later = arith.cmpi(arith.CmpIPredicate.ugt, turn, arith.constant(ir.IndexType.get(), 0))
                branch = scf.IfOp(later)
                with ir.InsertionPoint(branch.then_block):
                    for ring in rings:
                        tile.Release(ring=ring, turn=before, running=len(dots))
                    scf.YieldOp([])


def _loops(block: ir.Block) -> Iterator[scf.ForOp]:
    for op in block.operations:
        if isinstance(op, scf.ForOp):
            yield op
        for region in op.operation.regions:
            for inner in region.blocks:
                yield from _loops(inner)


def _rows(load: tile.Load, reduced: int) -> list[int]:
    return [i for i, n in enumerate(load.result.type.shape) if n > 1 and i != reduced]


def _reduced(dot: tile.Dot) -> int:
    shapes = [list(v.type.shape) for v in (dot.lhs, dot.rhs, dot.acc)]
    return next(i for i, (a, b, c) in enumerate(zip(*shapes, strict=True)) if max(a, b) > c)


def _fetched(operand: ir.Value, dot: tile.Dot, entry: ir.Block, schedule: Schedule,
             turn: ir.Value) -> tuple[ir.Value, ir.Value]:
    """A ring for an operand, and its slot of this turn."""
    load, reduced = defining_op(operand), _reduced(dot)
    if not isinstance(load, tile.Load):
        raise PassFailure("a product on tensor cores needs operands that are read from memory", dot.operation.location)
    rows, shape = _rows(load, reduced), operand.type.shape
    space = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 3)
    slot = [prod(shape[a] for a in rows), shape[reduced]]
    with load.operation.location:
        with ir.InsertionPoint.at_block_begin(entry):
            ring = tile.Ring(result=ir.MemRefType.get([schedule.stages, *slot], operand.type.element_type,
                                                      memory_space=space)).result
        with ir.InsertionPoint(load):
            tile.Fetch(rows=rows, column=reduced, map=load.map, ring=ring, turn=turn, source=load.source,
                       origin=list(load.origin))
        with ir.InsertionPoint(dot):
            kind = ir.MemRefType.get(slot, operand.type.element_type, memory_space=space)
            return ring, tile.Await(ring=ring, turn=turn, result=kind).result


def _replace(dot: tile.Dot, slots: dict[ir.Value, ir.Value]) -> None:
    reduced = _reduced(dot)
    with dot.operation.location, ir.InsertionPoint(dot):
        made = tile.DotShared(
            lhs_rows=_rows(defining_op(dot.lhs), reduced), rhs_rows=_rows(defining_op(dot.rhs), reduced),
            lhs=slots[dot.lhs], rhs=slots[dot.rhs], acc=dot.acc, result=dot.result.type)
    dot.result.replace_all_uses_with(made.result)
    dot.operation.erase()
