"""exp2, log2 and sin as polynomials on whole vectors: a call to the C library per element would cost more than a kernel.

Errors in f32, measured over the tests' ranges against f64: exp2 and log2 within 2 units in the last place, sin within
1.5e-7 absolute for angles up to 1e15. Formulas: exp2 by its Taylor series after removing the nearest integer, log2 by
the series of atanh((m - 1)/(m + 1)), sin by its Taylor series after removing multiples of pi in f64.
"""

from __future__ import annotations

import math as scalar_math
from collections.abc import Callable
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, math

from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import ops_in


@dataclass(frozen=True)
class ExpandMath(Pass):
    """Replace math.exp2, math.log2 and math.sin on vectors by polynomials in arith."""

    name = "cpu-expand-math"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        found = [o for o in ops_in(op, ir.OpView) if o.operation.name in EXPANSIONS]
        for call in [o for o in found if isinstance(o.results[0].type, ir.VectorType)]:
            with call.operation.location, ir.InsertionPoint(call):
                value, kind = call.operands[0], ir.VectorType(call.operands[0].type)
                wide = ir.VectorType.get(list(kind.shape), ir.F32Type.get())
                narrow = kind.element_type != ir.F32Type.get()
                result = EXPANSIONS[call.operation.name](_Vector(arith.extf(wide, value) if narrow else value)).value
                call.results[0].replace_all_uses_with(arith.truncf(kind, result) if narrow else result)
            call.operation.erase()


class _Vector:
    """Arithmetic on a vector value, with constants made where they meet it."""

    def __init__(self, value: ir.Value) -> None:
        self.value = value

    def _lift(self, other: _Vector | float) -> ir.Value:
        return other.value if isinstance(other, _Vector) else self.constant(other).value

    def constant(self, number: float) -> _Vector:
        kind = ir.VectorType(self.value.type)
        attribute = (ir.IntegerAttr.get(kind.element_type, int(number)) if isinstance(kind.element_type, ir.IntegerType)
                     else ir.FloatAttr.get(kind.element_type, number))
        return _Vector(arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute)))

    def like(self, element: ir.Type) -> ir.Type:
        return ir.VectorType.get(list(ir.VectorType(self.value.type).shape), element)

    def __add__(self, other: _Vector | float) -> _Vector:
        return _Vector(arith.addf(self.value, self._lift(other)))

    def __sub__(self, other: _Vector | float) -> _Vector:
        return _Vector(arith.subf(self.value, self._lift(other)))

    def __mul__(self, other: _Vector | float) -> _Vector:
        return _Vector(arith.mulf(self.value, self._lift(other)))

    def __truediv__(self, other: _Vector | float) -> _Vector:
        return _Vector(arith.divf(self.value, self._lift(other)))

    def fma(self, factor: _Vector | float, addend: _Vector | float) -> _Vector:
        return _Vector(math.fma(self.value, self._lift(factor), self._lift(addend)))

    def polynomial(self, coefficients: list[float]) -> _Vector:
        """Horner's rule, highest coefficient first."""
        result = self.constant(coefficients[0])
        for c in coefficients[1:]:
            result = result.fma(self, c)
        return result

    def rounded(self) -> _Vector:
        return _Vector(math.roundeven(self.value))

    def clamped(self, low: float, high: float) -> _Vector:
        return _Vector(arith.minimumf(arith.maximumf(self.value, self._lift(low)), self._lift(high)))

    def compare(self, predicate: arith.CmpFPredicate, other: _Vector | float) -> ir.Value:
        return arith.cmpf(predicate, self.value, self._lift(other))

    def where(self, flags: ir.Value, other: _Vector | float) -> _Vector:
        """This value where the flags are false, `other` where they are true."""
        return _Vector(arith.select(flags, self._lift(other), self.value))

    def bits(self) -> ir.Value:
        return arith.bitcast(self.like(ir.IntegerType.get_signless(32)), self.value)


def _integer(value: ir.Value, number: int) -> ir.Value:
    return _Vector(value).constant(number).value


def _power_of_two(exponent: ir.Value, like: _Vector) -> _Vector:
    """2^exponent for exponents of normal numbers, by writing the exponent field."""
    field = arith.shli(arith.addi(exponent, _integer(exponent, 127)), _integer(exponent, 23))
    return _Vector(arith.bitcast(like.like(ir.F32Type.get()), field))


def _exp2(x: _Vector) -> _Vector:
    is_nan = x.compare(arith.CmpFPredicate.UNO, x)
    safe = x.where(is_nan, 0.0).clamped(-151.0, 129.0)
    whole = safe.rounded()
    series = [scalar_math.log(2.0) ** n / scalar_math.factorial(n) for n in range(7, -1, -1)]
    fraction = (safe - whole).polynomial(series)
    exponent = arith.fptosi(x.like(ir.IntegerType.get_signless(32)), whole.value)
    # In two factors, so that results below the normal range and above the largest are reached.
    half = arith.shrsi(exponent, _integer(exponent, 1))
    result = fraction * _power_of_two(half, x) * _power_of_two(arith.subi(exponent, half), x)
    return result.where(is_nan, x)


def _log2(x: _Vector) -> _Vector:
    tiny = x.compare(arith.CmpFPredicate.OLT, 2.0 ** -126)
    scaled = x.where(tiny, x * 2.0 ** 23)
    bits = scaled.bits()
    # The mantissa is brought to [sqrt(1/2), sqrt(2)), where the series converges fastest.
    shifted = arith.subi(bits, _integer(bits, 0x3F3504F3))
    exponent = arith.shrsi(shifted, _integer(bits, 23))
    mantissa = _Vector(arith.bitcast(x.like(ir.F32Type.get()), arith.subi(bits, arith.shli(exponent, _integer(bits, 23)))))
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square = ratio * ratio
    series = square.polynomial([2.0 / scalar_math.log(2.0) / n for n in (11, 9, 7, 5, 3)])
    whole = _Vector(arith.sitofp(x.like(ir.F32Type.get()), exponent))
    whole = whole.where(tiny, whole - 23.0)
    result = (ratio * square).fma(series, ratio * (2.0 / scalar_math.log(2.0))) + whole
    result = result.where(x.compare(arith.CmpFPredicate.OEQ, 0.0), -scalar_math.inf)
    result = result.where(x.compare(arith.CmpFPredicate.OEQ, scalar_math.inf), scalar_math.inf)
    return result.where(x.compare(arith.CmpFPredicate.ULT, 0.0), scalar_math.nan)


def _sin(x: _Vector) -> _Vector:
    wide = _Vector(arith.extf(x.like(ir.F64Type.get()), x.value))
    turns = (wide * (1.0 / scalar_math.pi)).rounded()
    rest = turns.fma(-scalar_math.pi, wide).value
    rest = turns.fma(-1.2246467991473532e-16, _Vector(rest)).value  # what f64's pi lacks
    half = (turns * 0.5).rounded()
    parity = turns - half * 2.0  # -1, 0 or 1
    sign = (parity * parity) * -2.0 + 1.0
    narrow = x.like(ir.F32Type.get())
    angle = _Vector(arith.truncf(narrow, (_Vector(rest) * sign).value))
    square = angle * angle
    series = square.polynomial([(-1.0) ** n / scalar_math.factorial(2 * n + 1) for n in range(6, 0, -1)])
    return (angle * square).fma(series, angle)


EXPANSIONS: dict[str, Callable[[_Vector], _Vector]] = {"math.exp2": _exp2, "math.log2": _log2, "math.sin": _sin}
