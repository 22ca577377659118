"""What every target's plan is made of: the roles of axes in a contraction, tile sizes and layouts by axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, FloorDiv, dim, linear, range_of
from tilec.dialects.schedule import Axis, Schedule
from tilec.pipelines.cost.rates import MOST_QUERIES, QUERIES
from tilec.pipelines.primop.structure import Access, Reduction, Structure, defining_op, is_contiguous, is_row, operand_index

T = TypeVar("T")
ROW_VECTOR = 4  # neighbours that a thread takes of a row that its program makes for itself


@dataclass(frozen=True)
class Roles:
    """The axes of a contraction: kept by the left operand only, by the right only, by both, and reduced."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    batch: tuple[int, ...]
    reduced: tuple[int, ...]


def largest(structure: Structure, axis: int) -> int:
    """The largest extent that an axis can have."""
    extent = structure.extents[axis]
    if extent.is_constant:
        return extent.constant
    bounds = range_of(extent, structure.ranges)
    assert bounds is not None
    return bounds[1]


def nearly_best(timed: Iterable[tuple[float, Any]], within: float, preference: Callable[[Any], Any]) -> list[tuple[float, Any]]:
    """Shapes by their cycles, but first, in the order of a preference, those that take less than `within` times the least: what
    estimates cannot tell apart."""
    ordered = sorted(timed)
    return sorted(ordered, key=lambda x: (0, preference(x[1])) if x[0] < within * ordered[0][0] else (1,))


def cache_of(structure: Structure) -> list[Access]:
    """What a chain reads of keys and values: what varies along its loop and, unlike a mask, along a head."""
    loop, head = Dim(structure.stages[0][0].axes[0]), {Dim(a) for a in structure.inner}
    return [a for a in structure.accesses if loop in a.offset.atoms() and head & a.offset.atoms() and not a.store]


def queries_of_a_key(structure: Structure, cache: Sequence[Access], most: int = QUERIES) -> Iterator[tuple[int, list[int]]]:
    """Axes of queries that read the same keys, and how many of them one program may take, up to `most` if that divides them,
    most first: heads of a group, or where there are no groups all along the last axis that keys do not vary along."""
    groups, free = {}, {}
    for h in (a for a in structure.grid if a != structure.part and structure.extents[a].is_constant):
        sizes = {atom.divisor for a in cache for atom, _ in a.offset.terms
                 if isinstance(atom, FloorDiv) and atom.numerator == dim(h)}
        if len(sizes) == 1 and largest(structure, h) % min(sizes) == 0:
            groups[h] = min(sizes)
        elif not any(Dim(h) in a.offset.atoms() for a in cache):
            free[h] = largest(structure, h)
    for h, group in groups.items() or [*free.items()][-1:]:
        some = [n for n in range(most, 1, -1) if group % n == 0] or [group] * (group <= MOST_QUERIES)
        yield h, list(dict.fromkeys([*some, 1]))


def contraction_operands(structure: Structure, reduction: Reduction) -> tuple[list[Access], list[Access]]:
    """The buffers that the left and the right operand of a contraction read."""
    product = defining_op(reduction.op.operand)
    assert isinstance(product, primop.Mul)
    point = operand_index(reduction.op, 0, reduction.point, structure.ranges)
    sides = []
    for k in (0, 1):
        buffers = _buffers_below(product.operands[k])
        axes = set().union(*(e.atoms() for e in operand_index(product, k, point, structure.ranges)), set())
        sides.append([a for a in structure.accesses if a.buffer in buffers and not a.store
                      and {x for x in a.offset.atoms() if isinstance(x, Dim)} <= axes])
    return sides[0], sides[1]


def _buffers_below(value: ir.Value) -> set[ir.Value]:
    found, seen, pending = set[ir.Value](), {value}, [value]
    while pending:
        current = pending.pop()
        op = defining_op(current)
        if op is None or is_row(op):
            found.add(current)
            continue
        pending += [v for v in dict.fromkeys(op.operands) if v not in seen]
        seen.update(op.operands)
    return found


def roles_of(structure: Structure, reduction: Reduction) -> Roles:
    """Which axes a contraction's two operands depend on."""
    product = defining_op(reduction.op.operand)
    assert isinstance(product, primop.Mul)
    point = operand_index(reduction.op, 0, reduction.point, structure.ranges)
    used: list[set[int]] = []
    for k in (0, 1):
        atoms = set().union(*(e.atoms() for e in operand_index(product, k, point, structure.ranges)), set())
        used.append({a.position for a in atoms if isinstance(a, Dim)})
    kept = [a for a in range(len(structure.extents)) if a not in reduction.axes and structure.extents[a] != linear(1)]
    return Roles(
        tuple(a for a in kept if a in used[0] and a not in used[1]),
        tuple(a for a in kept if a in used[1] and a not in used[0]),
        tuple(a for a in kept if a in used[0] and a in used[1]),
        reduction.axes,
    )


def room_for(queries: int, blocks: int) -> int:
    """How many of so many blocks there is room for where each thread holds `queries` queries."""
    return blocks if queries <= QUERIES else 2 * blocks // 3


class Plan:
    """Tile sizes and layouts by axis, all 1 until said otherwise."""

    def __init__(self, structure: Structure, take: int = 0, known: dict[str, Any] | None = None) -> None:
        self.structure = structure
        self.take = take  # which of the shapes that are considered
        self.known = {} if known is None else known  # what plans of one kernel find out once
        self.considered: list[tuple[float, str]] = []  # cycles that a shape would take, and the shape
        self.tile = [1] * len(structure.extents)
        self.threads = [1] * len(structure.extents)
        self.vector = [1] * len(structure.extents)
        self.cluster = [1] * len(structure.extents)
        for a in structure.mirrored:
            self.set(a, largest(structure, a))

    def pick(self, shapes: Sequence[tuple[float, str, T]]) -> T:
        """The shape that this plan takes, out of all with their cycles and names: where a kernel can have several, it is here.

        The first is taken unless somebody measures; the others follow by their cycles.
        """
        assert not self.considered, "a kernel chooses once"
        ordered = [shapes[0], *sorted(shapes[1:], key=lambda shape: shape[0])]
        self.considered = [(cycles, name) for cycles, name, _ in ordered]
        return ordered[self.take][2]

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, asked once for all plans of a kernel."""
        if name not in self.known:
            self.known[name] = make()
        return self.known[name]

    def set(self, axis: int, registers: int, threads: int = 1, vector: int = 1) -> None:
        if axis in self.structure.mirrored:  # one thread holds all of it, in vectors where they fit
            size = largest(self.structure, axis)
            vector = vector if size % vector == 0 else 1
            registers, threads = size // vector, 1
        self.tile[axis], self.threads[axis], self.vector[axis] = registers * threads * vector, threads, vector

    def schedule(self, order: Sequence[int] = (), unroll: int = 1, dot: bool = False, **more: Any) -> Schedule:
        s = self.structure
        names = _axis_names(s)
        rows = {row.axis for row in s.staged}
        block = prod(self.threads[a] // self.cluster[a] for a in range(len(s.extents)) if a not in rows)
        for a in rows:  # by all threads of the block
            wide = ROW_VECTOR if largest(s, a) % ROW_VECTOR == 0 else 1
            self.set(a, -(-largest(s, a) // (block * wide)), block, wide)
        axes = tuple(
            Axis(names[a], s.extents[a], self.tile[a], self.threads[a], self.vector[a], a in s.grid,
                 self.cluster[a], lanes_of="*" if a in rows and block > 1 else "")
            for a in range(len(s.extents)))
        return Schedule(axes, tuple(order), unroll, dot, **more)

    def contiguous(self, accesses: Sequence[Access], *box: tuple[int, int]) -> bool:
        return bool(accesses) and all(is_contiguous(a.offset, box, self.structure.ranges) for a in accesses)

    def streamed_axis(self) -> int | None:
        """The axis along which most accesses are contiguous; walked axes first, then the last."""
        s = self.structure
        walked = [a for stage in s.stages for r in stage for a in r.axes] + s.inner
        candidates = list(dict.fromkeys(walked)) or s.grid
        scores = {a: sum(is_contiguous(x.offset, [(a, 2)], s.ranges) for x in s.accesses) for a in candidates
                  if s.extents[a] != linear(1)}
        return max(scores, key=lambda a: (scores[a], a)) if scores and max(scores.values()) else None


def _axis_names(structure: Structure) -> list[str]:
    """m, n, k and batch for contractions; x for what the grid splits and r for what a program walks otherwise."""
    contraction = next((r for stage in structure.stages for r in stage if r.contraction), None)
    names = [f"x{a}" if a in structure.grid else f"r{a}" for a in range(len(structure.extents))]
    if contraction:
        roles = roles_of(structure, contraction)
        for letter, axes in (("m", roles.left), ("n", roles.right), ("b", roles.batch), ("k", roles.reduced)):
            for i, a in enumerate(axes):
                names[a] = letter + (str(i) if len(axes) > 1 else "")
    return names
