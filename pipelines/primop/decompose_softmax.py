"""Softmax is kept whole until here, then written in the primops whose fusion the compiler understands."""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import identity, make_map
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import ops_in, place_in_chunk

LOG2_E = 1.4426950408889634
# A finite stand-in for the maximum of a row that is -inf throughout: no inf - inf, so no NaN.
LOWEST = {"f32": -1.0e30, "bf16": -1.0e30, "f16": -65504.0}


@dataclass(frozen=True)
class DecomposeSoftmax(Pass):
    """Write softmax as max, exp2, sum and recip; a row that is -inf throughout becomes zeros."""

    name = "primop-decompose-softmax"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        symbols = len(primop.symbol_ranges(op.operation))
        for softmax in ops_in(op, primop.Softmax):
            with softmax.operation.location, ir.InsertionPoint(softmax):
                result = _decomposed(softmax, symbols)
            softmax.result.replace_all_uses_with(result)
            softmax.operation.erase()


def _decomposed(op: primop.Softmax, symbols: int) -> ir.Value:
    extents = primop.space_of(op)
    rank, row_rank = len(extents), len(extents) - 1
    row = [e for i, e in enumerate(identity(rank)) if i != op.dim]
    element = primop.element_type(op.operand)
    space, whole = op.space, make_map(rank, symbols, identity(rank))
    row_space = make_map(0, symbols, [e for i, e in enumerate(extents) if i != op.dim])
    row_whole, of_row = make_map(row_rank, symbols, identity(row_rank)), make_map(rank, symbols, row)
    scalar, row_scalar = make_map(rank, symbols, ()), make_map(row_rank, symbols, ())
    row_type = ir.RankedTensorType.get([s for i, s in enumerate(op.result.type.shape) if i != op.dim], element)

    def emit(op_class: type, /, **fields: object) -> ir.Value:
        made = op_class(**fields)
        place_in_chunk(made, op)
        return made.result

    def constant(value: float) -> ir.Value:
        return emit(primop.Constant, value=ir.FloatAttr.get(element, value), result=ir.RankedTensorType.get([], element))

    def at_least(value: ir.Value, threshold: float, instead: float) -> ir.Value:
        """`value` where it is not below the threshold, otherwise a constant."""
        flags = ir.RankedTensorType.get(row_type.shape, ir.IntegerType.get_signless(1))
        below = emit(primop.LessThan, lhs=value, rhs=constant(threshold), space=row_space, maps=[row_whole, row_scalar],
                     result=flags)
        return emit(primop.Custom, kind="arith.select", space=row_space, maps=[row_whole, row_scalar, row_whole],
                    result=row_type, first=below, second=constant(instead), third=value)

    lowest = LOWEST[str(element)]
    reads = {"bounds": op.bounds} if op.bounds is not None else {}
    largest = at_least(emit(primop.Max, operand=op.operand, space=space, maps=op.maps, dims=[op.dim], result=row_type,
                            **reads), lowest, lowest)
    negated = emit(primop.Mul, lhs=largest, rhs=constant(-1.0), space=row_space, maps=[row_whole, row_scalar],
                   result=row_type)
    reads = {"bounds": [*op.bounds, make_map(rank, symbols, ())]} if op.bounds is not None else {}
    shifted = emit(primop.Add, lhs=op.operand, rhs=negated, space=space, maps=[*op.maps, of_row], result=op.result.type,
                   **reads)
    scaled = emit(primop.Mul, lhs=shifted, rhs=constant(LOG2_E), space=space, maps=[whole, scalar], result=op.result.type)
    powers = emit(primop.Exp2, operand=scaled, space=space, maps=[whole], result=op.result.type)
    # The largest element contributes 1, so only an empty row sums to less than a half.
    total = at_least(emit(primop.Sum, operand=powers, space=space, maps=[whole], dims=[op.dim], result=row_type), 0.5, 1.0)
    inverse = emit(primop.Recip, operand=total, space=row_space, maps=[row_whole], result=row_type)
    return emit(primop.Mul, lhs=powers, rhs=inverse, space=space, maps=[whole, of_row], result=op.result.type)


