"""How tiles lie in registers, and where the elements of a fragment are: values that the lowering of tiles computes with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import gcd, prod

from mlir import ir
from mlir.dialects import arith, vector

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import Atom, Dim, FloorDiv, Linear, Mod, dim, floordiv, mod, substitute
from tilec.runtime.artifact import ITEM_BYTES

Coordinates = tuple[int, ...]


def element_of(kind: ir.Type) -> ir.Type:
    """What a scalar or vector type has elements of."""
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


@dataclass(frozen=True)
class Layout:
    """How one tile shape lies in registers: `registers` and `box` per axis, and which coordinates are meant if not all."""

    registers: Coordinates
    box: Coordinates
    share: Callable[[Coordinates], bool] | None = None

    @property
    def length(self) -> int:
        """Elements of one fragment."""
        return prod(self.box)

    def coordinates(self) -> Iterator[Coordinates]:
        every = itertools.product(*map(range, self.registers))
        return filter(self.share, every) if self.share else every

    def inside(self) -> Iterator[Coordinates]:
        """Positions within a fragment, in the order of its elements."""
        return itertools.product(*map(range, self.box))


@dataclass
class Fragments:
    """A tile as SSA values: a scalar or a rank-1 vector for every register coordinate."""

    layout: Layout
    element: ir.Type
    values: dict[Coordinates, ir.Value]


@lru_cache(maxsize=1 << 16)
def shifted(expr: Linear, steps: tuple[int, ...], units: tuple[int, ...]) -> Linear:
    """`expr` with `steps[i]` added to dimension i, which is a multiple of `units[i]` (0 if that is 0).

    With a unit of 16 the floordiv and mod of a layout go: (d0 + 3) floordiv 16 * 64 + (d0 + 3) mod 16 is d0 * 4 + 3.
    """
    if not expr.nonlinear_atoms():
        terms, constant = [], expr.constant
        for atom, c in expr.terms:
            if isinstance(atom, Dim) and atom.position < len(steps):
                constant += c * steps[atom.position]
                if not units[atom.position]:
                    continue
            terms.append((atom, c))
        return Linear(constant, tuple(terms))
    scaled: dict[Atom, Linear] = {
        Dim(i): dim(i) * unit + step for i, (step, unit) in enumerate(zip(steps, units, strict=True))}
    return _unscaled(substitute(expr, scaled), units)


def step_of(expr: Linear, units: tuple[int, ...]) -> int:
    """The number whose multiples the values of an expression differ by, dimension i being a multiple of `units[i]`."""
    return gcd(*(c * units[a.position] if isinstance(a, Dim) and a.position < len(units) else c for a, c in expr.terms))


def have_one_sign(elements: list[Linear], units: tuple[int, ...]) -> bool:
    """Whether expressions that differ by constants are all negative or all not.

    With a unit of 8 none of 31999 - d0 to 31992 - d0 crosses zero: d0 is at most 31992, or at least 32000.
    """
    first, step = elements[0], step_of(elements[0], units)
    apart = [e - first for e in elements]
    return step > 0 and all(e.is_constant for e in apart) and len({(first + e).constant // step for e in apart}) == 1


def _unscaled(expr: Linear, units: tuple[int, ...]) -> Linear:
    """`expr` with every dimension i replaced by its `units[i]`-th part."""
    result = Linear(expr.constant)
    for atom, c in expr.terms:
        unit = units[atom.position] if isinstance(atom, Dim) and atom.position < len(units) else 1
        if isinstance(atom, FloorDiv | Mod):
            divide = floordiv if isinstance(atom, FloorDiv) else mod
            result += c * divide(_unscaled(atom.numerator, units), atom.divisor)
        elif c % unit == 0:
            result += Linear(0, ((atom, c // unit),))
        else:
            result += c * floordiv(Linear(0, ((atom, 1),)), unit)
    return result


def all_of(*conditions: ir.Value | None) -> ir.Value | None:
    """The conjunction of those that there are, None for none."""
    present = [c for c in conditions if c is not None]
    return reduce(arith.andi, present) if present else None


def words_of(value: ir.Value) -> list[ir.Value]:
    """A vector as the 32-bit words that it is held in."""
    count = value.type.shape[0] * ITEM_BYTES[str(value.type.element_type)] // 4
    words = vector.bitcast(ir.VectorType.get([count], ir.IntegerType.get_signless(32)), value)
    return [vector.extract(words, [], [i]) for i in range(count)]


def combiner(kind: tile.ReduceKind, element: ir.Type) -> Callable[[ir.Value, ir.Value], ir.Value]:
    """How two values of a reduction combine."""
    is_float = str(element) in primop.FLOATS
    if kind is tile.ReduceKind.ADD:
        return arith.addf if is_float else arith.addi
    return arith.maximumf if is_float else arith.maxsi
