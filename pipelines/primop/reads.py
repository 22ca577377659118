"""How often a kernel's code evaluates a value, known from its views before the kernel is made, and how much is too much.

A kernel evaluates a value once for each point at which its root needs it: f(x) + g(x) needs x at one point, x + flip(x) at
two. Points are counted with the conditions under which they are read, as the code is. Each level of x = x[:-c] + x[c:] can
double them, and a view of a view can be longer than both. So a value is materialised where more would be too much: then a
kernel takes time and space in proportion to its ops, whatever the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, Linear, dim, map_results, substitute

MOST_POINTS = 8  # of a value in one kernel
MOST_TERMS = 16  # of all indices and conditions of a point together
MOST_DEPTH = 128  # ops from a kernel's root to what it reads
MOST_REDUCTIONS = 16  # in one kernel, each of which may evaluate again what the others do

Index = tuple[Linear, ...]


@dataclass(frozen=True)
class Point:
    """An index in terms of a root's dimensions, and the conditions, not negative, under which the element is read."""

    index: Index
    conditions: Index = ()

    @property
    def terms(self) -> int:
        return sum(e.count_terms() for e in (*self.index, *self.conditions))


@dataclass(frozen=True)
class Reads:
    """Where a kernel reads a value, and how many ops at most lie between it and the root."""

    points: frozenset[Point]
    depth: int = 0

    @property
    def views(self) -> set[Index]:
        """The indices alone."""
        return {point.index for point in self.points}

    @property
    def too_many(self) -> bool:
        return len(self.points) > MOST_POINTS or self.depth > MOST_DEPTH

    @property
    def too_long(self) -> bool:
        return any(point.terms > MOST_TERMS for point in self.points)


def union(several: Iterable[Reads]) -> Reads:
    """What several ops of a kernel read of one value."""
    several = list(several)
    return Reads(frozenset().union(*(r.points for r in several)), max(r.depth for r in several))


def operand_reads(op: ir.OpView, operand: int, reads: Reads) -> Reads:
    """Where a kernel that reads an op's result reads its operand."""
    view, bound = map_results(op.maps[operand]), map_results(op.bounds[operand]) if op.bounds is not None else ()
    return Reads(frozenset(_through(op, view, bound, point) for point in reads.points), reads.depth + 1)


def _through(op: ir.OpView, view: Sequence[Linear], bound: Sequence[Linear], point: Point) -> Point:
    at = {Dim(d): e for d, e in enumerate(_evaluated_at(op, point.index))}
    conditions = dict.fromkeys((*point.conditions, *(substitute(e, at) for e in bound)))
    return Point(tuple(substitute(e, at) for e in view), tuple(conditions))


def _evaluated_at(op: ir.OpView, index: Index) -> Index:
    """The point of an op's space that belongs to an index of its result; reduced dimensions have names of their own."""
    if not isinstance(op, primop.Sum | primop.Max):
        return index
    parallel, dims = iter(index), list(op.dims)
    names = iter(range(100, 200))  # that cannot clash with the root's
    return tuple(dim(next(names)) if d in dims else next(parallel) for d in range(len(primop.space_of(op))))

