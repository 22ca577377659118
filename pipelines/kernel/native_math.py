"""A sigmoid is two instructions of a GPU's own, ex2 and rcp, each within two units in the last place.

A correctly rounded reciprocal is a branch for every element, and an epilogue has dozens of elements in each thread. The
forms that flush subnormal numbers need no scaling around the instruction either, and change no result above 2^-126: a power
that only joins a sum with a constant of at least 1 is lost there if it is smaller, and the sum is no subnormal number. Powers
whose maker allows it (`fastmath<afn>`) are flushed as well. Other reciprocals and powers stay as exact as they were.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, llvm, math

from tilec.pipelines.kernel import gpu_modules, replace_in_single
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import ops_in


@dataclass(frozen=True)
class NativeMath(Pass):
    """Compute sigmoids by ex2.approx.ftz and rcp.approx.ftz, and powers of which tiny ones cannot matter."""

    name = "kernel-native-math"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        found = [o for module in gpu_modules(op) for o in ops_in(module, arith.DivFOp, math.Exp2Op)]
        instructions = [(nested, _instruction(nested)) for nested in found]  # of the program as it was: each looks at others
        for nested, instruction in instructions:
            if instruction:
                replace_in_single(nested, list(nested.operands)[-1:], functools.partial(_issue, instruction))


def _instruction(op: ir.OpView) -> str | None:
    if op.operation.name == "math.exp2":
        joins = all(_is_power_and_one(use.owner) for use in op.results[0].uses)
        return "ex2.approx.ftz.f32" if joins or _allows_zero(op) else None
    is_sigmoid = _constant(op.operands[0]) == 1.0 and _is_power_and_one(op.operands[1].owner)
    return "rcp.approx.ftz.f32" if is_sigmoid else None


def _is_power_and_one(op: ir.OpView | ir.Operation | ir.Block) -> bool:
    """Whether it adds a constant of at least 1 to a power, which is positive."""
    if isinstance(op, ir.Block) or op.operation.name != "arith.addf":
        return False
    constants = [_constant(operand) for operand in op.operands]
    makers = [operand.owner for operand in op.operands]
    return any(constant is not None and constant >= 1.0 and not isinstance(maker, ir.Block) and maker.name == "math.exp2"
               for constant, maker in zip(constants, reversed(makers), strict=True))


def _allows_zero(power: ir.OpView) -> bool:
    return "fastmath" in power.attributes and "afn" in str(power.attributes["fastmath"])


def _constant(value: ir.Value) -> float | None:
    """The number that all elements of a value are, if it is known."""
    if isinstance(value.owner, ir.Block):
        return None
    if value.owner.name == "vector.broadcast":
        return _constant(value.owner.operands[0])
    if value.owner.name != "arith.constant":
        return None
    attribute = value.owner.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return None
        attribute = attribute.get_splat_value()
    return float(ir.FloatAttr(attribute).value)


def _issue(instruction: str, operands: list[ir.Value]) -> ir.Value:
    return llvm.inline_asm(ir.F32Type.get(), operands, f"{instruction} $0, $1;", "=f,f", asm_dialect=0)
