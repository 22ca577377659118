"""Slots of rings, and the phases of their barriers, are counted along from turn to turn, where a division finds them.

    for i: n = i floordiv step; slot = n mod 6; phase = n floordiv 6 mod 2
    ->   for i, carrying slot and phase: next = slot + 1; if next = 6: next = 0, the next phase is the other one

A division by what is no power of two is a chain of a dozen instructions, and the wait at the head of a turn depends on it.
Besides, what the next turn waits for is then known in this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects import kernel
from tilec.pipelines.kernel import kernel_loops
from tilec.pipelines.loops import carry_on, carrying, constant_of, in_another_turn, index_constant
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.structure import defining_op


@dataclass(frozen=True)
class CountTurns(Pass):
    """Carry slots and phases of rings from turn to turn instead of dividing for them."""

    name = "kernel-count-turns"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for loop in kernel_loops(op):
            if any(isinstance(o, kernel.MbarrierWait) for o in loop.body.operations):
                _count(loop)


def _count(loop: scf.ForOp) -> None:
    counted: dict[tuple[ir.Value, int], list[arith.RemUIOp]] = {}  # by what is counted, and slots
    phases: dict[tuple[ir.Value, int], list[arith.RemUIOp]] = {}
    for op in loop.body.operations:
        if isinstance(op, arith.RemUIOp) and (divisor := constant_of(op.rhs)):
            rounds = defining_op(op.lhs)
            slots = constant_of(rounds.rhs) if isinstance(rounds, arith.DivUIOp) else None
            if divisor == 2 and slots and _step(rounds.lhs, loop) == 1:
                phases.setdefault((rounds.lhs, slots), []).append(op)
            elif _step(op.lhs, loop) == 1:
                counted.setdefault((op.lhs, divisor), []).append(op)
    for (turn, slots), ops in counted.items():
        others = phases.get((turn, slots), [])
        with loop.operation.location, ir.InsertionPoint(loop):
            first = [in_another_turn(o[0].result, {loop.induction_variable: loop.lowerBound}, loop) for o in (ops, others) if o]
        loop, carried = carrying(loop, first)
        with loop.operation.location, ir.InsertionPoint.at_block_begin(loop.body):
            one, zero = index_constant(1), index_constant(0)
            following = arith.addi(carried[0], one)
            wraps = arith.cmpi(arith.CmpIPredicate.eq, following, index_constant(slots))
            nexts = [arith.select(wraps, zero, following)]
            nexts += [arith.select(wraps, arith.subi(one, phase), phase) for phase in carried[1:]]
        for now, later, replaced in zip(carried, nexts, (ops, others), strict=False):
            carry_on(loop, now, later)
            for op in replaced:
                op.result.replace_all_uses_with(now)
                op.operation.erase()


def _step(value: ir.Value, loop: scf.ForOp) -> int | None:
    """By how much an index grows from turn to turn, None if that is not always as much."""
    if value == loop.induction_variable:
        return constant_of(loop.step)
    op = defining_op(value)
    if (value.owner if op is None else op.operation.block) != loop.body:
        return 0  # made around the loop
    if op is None:
        return None  # carried
    steps = [_step(v, loop) for v in op.operands]
    left, right = steps[0], steps[-1]
    if len(steps) != 2 or left is None or right is None:
        return None
    if isinstance(op, arith.AddIOp):
        return left + right
    if isinstance(op, arith.SubIOp):
        return left - right
    divisor = constant_of(op.operands[1])
    if isinstance(op, arith.DivUIOp) and divisor and left % divisor == 0:
        return left // divisor
    return None
