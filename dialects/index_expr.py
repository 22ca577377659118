"""Index arithmetic is done on one canonical form, a linear combination of atoms, and only printed as affine maps.

MLIR's affine expressions carry no ranges, so `(d0 * 64 + d1) floordiv 64` never becomes `d0` there. Views are made of
such expressions; knowing that `d1 < 64` is what makes a reshape free and a load contiguous. Worked example:

    >>> d0, d1 = dim(0), dim(1)
    >>> floordiv(64 * d0 + d1, 64, {Dim(1): (0, 63)})          # the range of d1 decides
    d0
    >>> 64 * floordiv(d0, 64) + mod(d0, 64)                    # joined again: the split was a reshape
    d0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any

from mlir import ir


@dataclass(frozen=True)
class Dim:
    """Dimension `d<position>` of an iteration space."""

    position: int

    def __repr__(self) -> str:
        return f"d{self.position}"


@dataclass(frozen=True)
class Symbol:
    """Symbol `s<position>`: a size or position known when a kernel is launched."""

    position: int

    def __repr__(self) -> str:
        return f"s{self.position}"


@dataclass(frozen=True)
class FloorDiv:
    """`numerator floordiv divisor`, which no range could remove."""

    numerator: Linear
    divisor: int

    def __repr__(self) -> str:
        return f"({self.numerator} floordiv {self.divisor})"


@dataclass(frozen=True)
class Mod:
    """`numerator mod divisor`, which no range could remove."""

    numerator: Linear
    divisor: int

    def __repr__(self) -> str:
        return f"({self.numerator} mod {self.divisor})"


Atom = Dim | Symbol | FloorDiv | Mod
Ranges = Mapping[Atom, tuple[int, int]]  # inclusive; an atom without an entry is only known to be an integer


@dataclass(frozen=True)
class Linear:
    """`constant + sum(coefficient * atom)`, atoms sorted by their text so that equal expressions compare equal."""

    constant: int = 0
    terms: tuple[tuple[Atom, int], ...] = ()

    @staticmethod
    def of(constant: int, terms: Mapping[Atom, int]) -> Linear:
        """Canonical form of a sum; joins `c*q*(x floordiv q) ... + c*(x mod q)` back into `c*x`."""
        live = {atom: c for atom, c in terms.items() if c}
        for atom, c in list(live.items()):
            if isinstance(atom, Mod) and live.get(atom) == c:
                quotient = FloorDiv(atom.numerator, atom.divisor)
                if live.get(quotient) == c * atom.divisor:
                    del live[atom], live[quotient]
                    return Linear.of(constant, live) + c * atom.numerator
        return Linear(constant, tuple(sorted(live.items(), key=lambda item: repr(item[0]))))

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, atom: Atom) -> int:
        return dict(self.terms).get(atom, 0)

    def atoms(self) -> set[Atom]:
        """All dims and symbols, also those inside floordiv and mod."""
        found: set[Atom] = set()
        for atom, _ in self.terms:
            found |= atom.numerator.atoms() if isinstance(atom, FloorDiv | Mod) else {atom}
        return found

    def nonlinear_atoms(self) -> set[Atom]:
        """The dims and symbols that occur under a floordiv or a mod."""
        found: set[Atom] = set()
        for atom, _ in self.terms:
            if isinstance(atom, FloorDiv | Mod):
                found |= atom.numerator.atoms()
        return found

    def count_terms(self) -> int:
        """How many terms there are, also those inside floordiv and mod."""
        return sum(1 + a.numerator.count_terms() if isinstance(a, FloorDiv | Mod) else 1 for a, _ in self.terms)

    def __add__(self, other: Linear | int) -> Linear:
        other = linear(other)
        terms = dict(self.terms)
        for atom, c in other.terms:
            terms[atom] = terms.get(atom, 0) + c
        return Linear.of(self.constant + other.constant, terms)

    __radd__ = __add__

    def __mul__(self, factor: int | Linear) -> Linear:
        if isinstance(factor, Linear):
            if not factor.is_constant:
                if not self.is_constant:
                    raise ValueError(f"a product of two variables, ({self}) * ({factor}), is not an index expression")
                return factor * self.constant
            factor = factor.constant
        return Linear.of(self.constant * factor, {atom: c * factor for atom, c in self.terms})

    __rmul__ = __mul__

    def __neg__(self) -> Linear:
        return self * -1

    def __sub__(self, other: Linear | int) -> Linear:
        return self + linear(other) * -1

    def __rsub__(self, other: int) -> Linear:
        return linear(other) - self

    def __repr__(self) -> str:
        parts = [str(self.constant)] if self.constant or not self.terms else []
        parts += [f"{atom}" if c == 1 else f"{c}*{atom}" for atom, c in self.terms]
        return " + ".join(parts)


def linear(value: Linear | int) -> Linear:
    """An integer as a constant expression; an expression as it is."""
    return value if isinstance(value, Linear) else Linear(int(value))


def dim(position: int) -> Linear:
    return Linear(0, ((Dim(position), 1),))


def symbol(position: int) -> Linear:
    return Linear(0, ((Symbol(position), 1),))


def range_of(expr: Linear, ranges: Ranges) -> tuple[int, int] | None:
    """Inclusive bounds of an expression, or None when one of its atoms has no known range."""
    low = high = expr.constant
    for atom, c in expr.terms:
        if atom in ranges:
            bounds: tuple[int, int] | None = ranges[atom]
        elif isinstance(atom, Mod):
            bounds = (0, atom.divisor - 1)
        elif isinstance(atom, FloorDiv):
            inner = range_of(atom.numerator, ranges)
            bounds = (inner[0] // atom.divisor, inner[1] // atom.divisor) if inner else None
        else:
            bounds = None
        if bounds is None:
            return None
        low += min(c * bounds[0], c * bounds[1])
        high += max(c * bounds[0], c * bounds[1])
    return low, high


def _split(expr: Linear, divisor: int) -> tuple[Linear, Linear]:
    """`expr = divisor * quotient + rest`, term by term."""
    quotient, rest = {}, {}
    for atom, c in expr.terms:
        whole = c // divisor if c % divisor == 0 else 0
        if whole:
            quotient[atom] = whole
        if c - whole * divisor:
            rest[atom] = c - whole * divisor
    whole = expr.constant // divisor
    return Linear.of(whole, quotient), Linear.of(expr.constant - whole * divisor, rest)


def floordiv(expr: Linear | int, divisor: int, ranges: Ranges | None = None) -> Linear:
    """`expr floordiv divisor`, with every multiple of the divisor taken out."""
    quotient, rest = _split(linear(expr), divisor)
    bounds = range_of(rest, ranges or {})
    if divisor == 1 or (bounds and bounds[0] // divisor == bounds[1] // divisor):
        return quotient + (rest if divisor == 1 else Linear(bounds[0] // divisor))  # type: ignore[index]
    if len(rest.terms) == 1 and not rest.constant:  # (x floordiv a) floordiv b
        (atom, c), = rest.terms
        if c == 1 and isinstance(atom, FloorDiv):
            return quotient + Linear(0, ((FloorDiv(atom.numerator, atom.divisor * divisor), 1),))
    return quotient + Linear(0, ((FloorDiv(rest - _lost(rest, divisor, ranges or {}), divisor), 1),))


def _lost(expr: Linear, divisor: int, ranges: Ranges) -> Linear:
    """What of an expression a division loses: of 2 d0 + 1 by 4 the 1, and of 2 d0 + d1, where d1 is 0 or 1, d1."""
    for step in sorted({gcd(c, divisor) for _, c in expr.terms}, reverse=True):
        small = Linear.of(expr.constant % step, {a: c for a, c in expr.terms if c % step})
        bounds = range_of(small, ranges)
        if step > 1 and bounds and bounds[0] >= 0 and bounds[1] < step:
            return small
    return Linear()


def mod(expr: Linear | int, divisor: int, ranges: Ranges | None = None) -> Linear:
    """`expr mod divisor` (never negative), with every multiple of the divisor taken out."""
    _, rest = _split(linear(expr), divisor)
    bounds = range_of(rest, ranges or {})
    if bounds and bounds[0] // divisor == bounds[1] // divisor:
        return rest - divisor * (bounds[0] // divisor)
    if len(rest.terms) == 1 and not rest.constant:  # (x mod a) mod b where b divides a
        (atom, c), = rest.terms
        if c == 1 and isinstance(atom, Mod) and atom.divisor % divisor == 0:
            return mod(atom.numerator, divisor, ranges)
    return Linear(0, ((Mod(rest, divisor), 1),)) if divisor != 1 else Linear()


def ceildiv(expr: Linear | int, divisor: int, ranges: Ranges | None = None) -> Linear:
    return floordiv(linear(expr) + (divisor - 1), divisor, ranges)


def substitute(expr: Linear, replacements: Mapping[Any, Linear], ranges: Ranges | None = None) -> Linear:
    """Replace dims and symbols, and simplify what that makes decidable; `ranges` speaks of the new atoms."""
    result = Linear(expr.constant)
    for atom, c in expr.terms:
        if isinstance(atom, FloorDiv):
            value = floordiv(substitute(atom.numerator, replacements, ranges), atom.divisor, ranges)
        elif isinstance(atom, Mod):
            value = mod(substitute(atom.numerator, replacements, ranges), atom.divisor, ranges)
        else:
            value = replacements.get(atom, Linear(0, ((atom, 1),)))
        result = result + c * value
    return result


def evaluate(expr: Linear, values: Mapping[Atom, int]) -> int:
    """The integer an expression stands for; every atom must have a value."""
    total = expr.constant
    for atom, c in expr.terms:
        if isinstance(atom, FloorDiv):
            total += c * (evaluate(atom.numerator, values) // atom.divisor)
        elif isinstance(atom, Mod):
            total += c * (evaluate(atom.numerator, values) % atom.divisor)
        else:
            total += c * values[atom]
    return total


def from_affine(expr: ir.AffineExpr) -> Linear:
    """An MLIR affine expression in canonical form."""
    if isinstance(expr, ir.AffineConstantExpr):
        return Linear(expr.value)
    if isinstance(expr, ir.AffineDimExpr):
        return dim(expr.position)
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbol(expr.position)
    left, right = from_affine(expr.lhs), from_affine(expr.rhs)
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr):
        return left * right
    if isinstance(expr, ir.AffineFloorDivExpr):
        return floordiv(left, right.constant)
    if isinstance(expr, ir.AffineCeilDivExpr):
        return ceildiv(left, right.constant)
    return mod(left, right.constant)


def to_affine(expr: Linear) -> ir.AffineExpr:
    """The MLIR affine expression of a canonical form, in the current context."""
    result: ir.AffineExpr | None = None
    for atom, c in expr.terms:
        if isinstance(atom, Dim):
            value = ir.AffineExpr.get_dim(atom.position)
        elif isinstance(atom, Symbol):
            value = ir.AffineExpr.get_symbol(atom.position)
        elif isinstance(atom, FloorDiv):
            value = ir.AffineExpr.get_floor_div(to_affine(atom.numerator), atom.divisor)
        else:
            value = ir.AffineExpr.get_mod(to_affine(atom.numerator), atom.divisor)
        value = value if c == 1 else ir.AffineExpr.get_mul(value, c)
        result = value if result is None else ir.AffineExpr.get_add(result, value)
    if result is None:
        return ir.AffineExpr.get_constant(expr.constant)
    return ir.AffineExpr.get_add(result, expr.constant) if expr.constant else result


_RESULTS: dict[str, tuple[Linear, ...]] = {}  # by the map's text: parsing affine expressions through the bindings is slow


def map_results(affine_map: ir.AffineMap) -> tuple[Linear, ...]:
    """The results of a map in canonical form."""
    text = str(affine_map)
    if text not in _RESULTS:
        _RESULTS[text] = tuple(from_affine(result) for result in affine_map.results)
    return _RESULTS[text]


def make_map(dims: int, symbols: int, results: Sequence[Linear | int]) -> ir.AffineMap:
    """`(d0..)[s0..] -> (results)` in the current context."""
    return ir.AffineMap.get(dims, symbols, [to_affine(linear(result)) for result in results])


@cache
def identity(rank: int) -> tuple[Linear, ...]:
    return tuple(dim(i) for i in range(rank))
