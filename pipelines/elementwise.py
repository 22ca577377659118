"""What the elementwise primops are in upstream's arith and math, on tiles; `primop.cast` and its rounding are here."""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir
from mlir.dialects import arith, math

from tilec.dialects import primop


def convert(value: ir.Value, element: ir.Type) -> ir.Value:
    """A tile in another element type, as `primop.cast` defines it."""
    source = value.type.element_type
    if source == element:
        return value
    kind = ir.VectorType.get(list(value.type.shape), element)
    from_float, to_float = str(source) in primop.FLOATS, str(element) in primop.FLOATS
    widths = [t.width for t in (source, element)]
    if str(element) == "i1":
        zero = arith.constant(value.type, ir.DenseElementsAttr.get_splat(
            value.type, ir.FloatAttr.get(source, 0.0) if from_float else ir.IntegerAttr.get(source, 0)))
        return arith.cmpf(arith.CmpFPredicate.UNE, value, zero) if from_float else \
            arith.cmpi(arith.CmpIPredicate.ne, value, zero)
    if from_float and to_float:
        if widths[0] == widths[1]:  # bf16 and f16 through f32
            return arith.truncf(kind, arith.extf(ir.VectorType.get(list(value.type.shape), ir.F32Type.get()), value))
        return arith.extf(kind, value) if widths[0] < widths[1] else arith.truncf(kind, value)
    if from_float:
        return arith.fptosi(kind, value)
    if to_float:
        return arith.uitofp(kind, value) if str(source) == "i1" else arith.sitofp(kind, value)
    if widths[0] > widths[1]:
        return arith.trunci(kind, value)
    return arith.extui(kind, value) if str(source) == "i1" else arith.extsi(kind, value)


def elementwise(op: ir.OpView, values: Sequence[ir.Value], element: ir.Type) -> ir.Value:
    """What an elementwise primop is in upstream's arith and math."""
    name = op.operation.name.removeprefix("primop.")
    is_float = str(values[0].type.element_type) in primop.FLOATS
    if name == "custom":
        kind = ir.VectorType.get(list(values[0].type.shape), element)
        operands = [values[0], _divisor(values[1])] if op.kind == "arith.divsi" else list(values)
        return ir.Operation.create(op.kind, results=[kind], operands=operands).results[0]
    if name == "less_than":
        if is_float:
            return arith.cmpf(arith.CmpFPredicate.OLT, *values)
        signed = str(values[0].type.element_type) != "i1"
        return arith.cmpi(arith.CmpIPredicate.slt if signed else arith.CmpIPredicate.ult, *values)
    if is_float:
        if name == "recip":
            ones = arith.constant(values[0].type, ir.DenseElementsAttr.get_splat(
                values[0].type, ir.FloatAttr.get(values[0].type.element_type, 1.0)))
            return arith.divf(ones, values[0])
        floats = {"add": arith.addf, "mul": arith.mulf, "mod": arith.remf, "exp2": math.exp2, "log2": math.log2,
                  "sin": math.sin, "sqrt": math.sqrt}
        return floats[name](*values)
    if str(element) == "i1":
        return {"add": arith.ori, "mul": arith.andi}[name](*values)
    if name == "mod":
        return arith.remsi(values[0], _divisor(values[1]))
    return {"add": arith.addi, "mul": arith.muli}[name](*values)


def _divisor(value: ir.Value) -> ir.Value:
    """An integer divisor with its zeros replaced: elements outside of a ragged tile read as zero, and a CPU traps on those."""
    zero, one = (arith.constant(value.type, ir.DenseElementsAttr.get_splat(
        value.type, ir.IntegerAttr.get(value.type.element_type, n))) for n in (0, 1))
    return arith.select(arith.cmpi(arith.CmpIPredicate.eq, value, zero), one, value)
