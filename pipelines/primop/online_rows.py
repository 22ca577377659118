"""A row too long to be near is read once where its later sums see its earlier reductions only through what can be mended.

The rule is that of `primop-online-reductions`, for rows that are read from memory. Parts of a row, such as what one thread
has seen of it, can be summed before the whole row's maximum or mean is known, if what a part got from its own can be turned
into what it would have got from another. Two kinds of sums are like that:

- sum_j exp2(c (x_j + t)) v_j, where t falls as a maximum m over j grows and does not vary along j. Sums that saw m and m'
  differ by the factor exp2(c (t' - t)), which is at most 1 (Milakov and Gimelshein 2018): softmax, log-sum-exp, cross-entropy.
- sum_j (x_j + g)^2, where g is made of reductions and does not vary along j, such as a mean with a minus. A part carries its
  count n, its mean u and s, the sum of (x_j - u)^2, all of which merge without g (Chan, Golub and LeVeque 1983, the formula
  for parts), and (x_j + g)^2 sums to s + n (u + g)^2 whatever g turns out to be: variance. Means are kept as distances from
  a number of the row, and nothing large is subtracted from anything large, as it would be in sum x^2 - n mean^2.

A shorter row comes from the first-level cache when it is read again, of which 32 kB are each of eight blocks' share, or stays
in registers where one tile holds it: one loop would only add the mending. Numbers differ from those of two loops by rounding,
and where a row is -inf throughout: a sum of exponentials is then zero, also where x - m would have been NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, range_of
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.fuse import ONLINE, REDUCTIONS
from tilec.pipelines.primop.outline import body_of, functions
from tilec.pipelines.primop.structure import (
    MENDED,
    Index,
    Reduction,
    Structure,
    analyse,
    defining_op,
    dependent_on,
    operand_bound,
    operand_index,
)
from tilec.runtime.artifact import ITEM_BYTES


@dataclass(frozen=True)
class Factor:
    """What exp2(c (x + t)) takes from a maximum: t, the index where it is read, and c."""

    maximum: primop.Max
    term: ir.Value
    index: Index
    scale: float


@dataclass(frozen=True)
class Squares:
    """The sum x + g of a sum of squares, the point where it is evaluated, and which of its operands is g."""

    shifted: primop.Add
    point: Index
    late: int


@dataclass(frozen=True)
class OnlineRows(Pass):
    """Mark sums that can share a loop with the reductions they need, for rows of more than `near` bytes."""

    name = "primop-online-rows"
    anchor = "builtin.module"
    near: int = 32 << 10

    def run(self, op: ir.OpView) -> None:
        symbols = primop.symbol_ranges(op.operation)
        for kernel in functions(op, "primop.kernel"):
            reductions = [o for o in body_of(kernel).operations if isinstance(o, REDUCTIONS)]
            if len(reductions) > 1 and not any(ONLINE in o.operation.attributes for o in reductions):
                self._mark(analyse(kernel, symbols))

    def _mark(self, structure: Structure) -> None:
        if structure.nested or any(r.contraction for stage in structure.stages for r in stage):
            return
        stages = list(structure.stages)
        while len(stages) > 1:
            first, second = stages.pop(0), stages[0]
            earlier, axes = [r.op for r in first], first[0].axes
            late = dependent_on(body_of(structure.function).operations, earlier)
            waiting = [r for r in second if r.op in late]
            if axes != second[0].axes or len(axes) != 1 or _row_bytes(structure, axes[0]) <= self.near or \
                    any(match_mend(r, earlier, structure) is None for r in waiting):
                continue
            for reduction in waiting:
                reduction.op.operation.attributes[MENDED] = ir.UnitAttr.get(reduction.op.operation.context)
            stages.pop(0)


def _row_bytes(structure: Structure, axis: int) -> int:
    """Of all that is read along an axis, at its largest extent."""
    bounds = range_of(structure.extents[axis], structure.ranges)
    assert bounds is not None, "extents are made of symbols, which have ranges"
    read = {a.buffer for a in structure.accesses if not a.store and Dim(axis) in a.offset.atoms()}
    return bounds[1] * sum(ITEM_BYTES[str(primop.element_type(v))] for v in read)


def match_mend(reduction: Reduction, earlier: Sequence[ir.OpView], structure: Structure) -> Factor | Squares | None:
    """How a reduction that needs earlier ones over the same axes can share their loop, None if it cannot."""
    late = dependent_on(body_of(structure.function).operations, earlier)
    op, views = reduction.op, _Views(earlier, frozenset(late), reduction, structure)
    if not isinstance(op, primop.Sum) or op.bounds is not None or str(primop.element_type(op.operand)) not in primop.FLOATS:
        return None
    summed, point = defining_op(op.operand), views.at(op, 0, reduction.point)
    return _match_squares(summed, point, views) or _match_factor(summed, point, views)


@dataclass(frozen=True)
class _Views:
    """How a reduction reads what it is computed from, some of which is known only after earlier reductions."""

    earlier: Sequence[ir.OpView]
    later: frozenset[ir.OpView]  # these and all that is computed from them
    reduction: Reduction
    structure: Structure

    def at(self, op: ir.OpView, k: int, point: Index) -> Index:
        return operand_index(op, k, point, self.structure.ranges)

    def late(self, op: ir.OpView) -> int | None:
        """The one operand that is known late, None for none and for several."""
        late = [k for k, v in enumerate(op.operands) if defining_op(v) in self.later]
        return late[0] if len(late) == 1 else None

    def once_a_row(self, op: ir.OpView, k: int, point: Index) -> bool:
        varying = set().union(*(e.atoms() for e in self.at(op, k, point)), set())
        return not varying & {Dim(a) for a in self.reduction.axes} and not operand_bound(op, k, point, self.structure.ranges)


def _match_squares(product: ir.OpView | None, point: Index, views: _Views) -> Squares | None:
    """(x + g)^2"""
    if not isinstance(product, primop.Mul) or product.bounds is not None or product.lhs != product.rhs or \
            views.at(product, 0, point) != views.at(product, 1, point):
        return None
    shifted, point = defining_op(product.lhs), views.at(product, 0, point)
    if not isinstance(shifted, primop.Add) or (late := views.late(shifted)) is None or \
            not views.once_a_row(shifted, late, point):
        return None
    return Squares(shifted, point, late)


def _match_factor(op: ir.OpView | None, point: Index, views: _Views) -> Factor | None:
    """exp2(c (x + t)) v"""
    while isinstance(op, primop.Mul | primop.Cast) and op.bounds is None:
        late = views.late(op)
        if late is None:
            return None
        op, point = defining_op(op.operands[late]), views.at(op, late, point)
    if not isinstance(op, primop.Exp2) or op.bounds is not None:
        return None
    op, point, scale = defining_op(op.operand), views.at(op, 0, point), 1.0
    while isinstance(op, primop.Mul) and op.bounds is None and (factors := _constant_factors(op)):
        k, factor = factors[0]
        op, point, scale = defining_op(op.operands[k]), views.at(op, k, point), scale * factor
    if not isinstance(op, primop.Add) or (late := views.late(op)) is None or not views.once_a_row(op, late, point):
        return None
    maximum, slope = _maximum_below(op.operands[late])
    if maximum is None or maximum not in views.earlier or scale * slope >= 0:
        return None
    return Factor(maximum, op.operands[late], views.at(op, late, point), scale)


def _constant_factors(op: primop.Mul) -> list[tuple[int, float]]:
    """(the other operand, the value) for each operand of a product that is a constant."""
    constants = [(1 - k, defining_op(op.operands[k])) for k in (0, 1)]
    return [(k, ir.FloatAttr(c.attributes["value"]).value) for k, c in constants if isinstance(c, primop.Constant)]


def _maximum_below(value: ir.Value) -> tuple[primop.Max | None, float]:
    """The maximum that a value is, or is where that is above a constant, times a constant; and that constant."""
    op, slopes = defining_op(value), [1.0]
    while isinstance(op, primop.Mul) and op.bounds is None and (factors := _constant_factors(op)):
        op = defining_op(op.operands[factors[0][0]])
        slopes.append(factors[0][1])
    if isinstance(op, primop.Custom) and op.kind == "arith.select" and op.bounds is None:
        below, floor, maximum = (defining_op(v) for v in (op.first, op.second, op.third))
        if isinstance(floor, primop.Constant) and isinstance(below, primop.LessThan) and defining_op(below.lhs) == maximum and \
                isinstance(defining_op(below.rhs), primop.Constant):
            op = maximum
    return (op, prod(slopes)) if isinstance(op, primop.Max) else (None, 0.0)
