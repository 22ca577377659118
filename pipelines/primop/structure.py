"""What a fused kernel looks like as loops, read off its views: axes, which of them the grid splits, and its stages.

The root's dimensions become the first axes; one that the view of a contraction takes apart, d floordiv c and d mod c,
becomes two. An axis along which a contraction's result is read in both directions is `mirrored`: one thread holds all of
it. A reduction whose result is broadcast back over a root dimension makes that dimension `inner`: one program walks it,
first to reduce, then to produce the root. All other root dimensions are split over the grid. Reduced dimensions use an
inner axis of the same extent where there is one, and axes of their own otherwise. Reductions that do not need each other
and walk the same axes share a stage, one loop; so do sums that can be mended (see online_rows.py). A reduction that is
evaluated for every element that another one reads is nested: it has no stage, and its loop lies inside the other's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Atom, Dim, Linear, Ranges, Symbol, dim, linear, map_results, range_of, substitute
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.primop.fuse import (
    FACTOR,
    ONLINE,
    REDUCTIONS,
    STAGED,
    constant_ranges,
    is_contraction,
    splits_of,
    unflipped,
    whole_index,
)
from tilec.pipelines.primop.outline import body_of, extents_of

Index = tuple[Linear, ...]
MENDED = "primop.mended"  # set by primop-online-rows: the sum can share a loop with the reductions over its axes that it needs
ROW_ALIGNMENT = 16  # elements: rows of a symbolic length start at multiples of this


@dataclass(frozen=True)
class Reduction:
    """One reduction of a kernel: its op, the axes it walks, and each dimension of its space in terms of the axes."""

    op: ir.OpView
    axes: tuple[int, ...]
    point: Index
    contraction: bool


@dataclass(frozen=True)
class Access:
    """A read or write of a buffer: its element offset in terms of the axes, and the value that is the buffer."""

    buffer: ir.Value
    offset: Linear
    store: bool = False


@dataclass(frozen=True)
class Further:
    """A further result of a kernel: its op, where it is evaluated, and the axis that it sums, which lies within one tile."""

    op: ir.OpView
    point: Index
    axis: int | None

    @property
    def index(self) -> Index:
        """Where it is stored."""
        return self.point if self.axis is None else self.point[:-1]


@dataclass(frozen=True)
class Staged:
    """A row that a program makes for itself before its stages: its op, where that is evaluated, its axis, its reductions."""

    op: ir.OpView
    point: Index
    axis: int
    reductions: tuple[Reduction, ...]


@dataclass
class Structure:
    """See the module docstring. `extents` has one entry per axis; `point` locates the root's dimensions on the axes."""

    function: ir.OpView
    root: ir.OpView
    extents: list[Linear]
    grid: list[int]
    inner: list[int]
    stages: list[list[Reduction]]
    point: Index
    symbols: dict[str, tuple[int, int]]
    accesses: list[Access] = field(default_factory=list)
    nested: dict[ir.OpView, tuple[int, ...]] = field(default_factory=dict)  # reductions inside others, and their axes
    views: dict[ir.OpView, Index] = field(default_factory=dict)  # where each reduction's result is read, unflipped
    mirrored: frozenset[int] = frozenset()
    staged: list[Staged] = field(default_factory=list)
    online: bool = False  # the one stage is a maximum and sums that use it, in one loop (see online_reductions.py)
    tf32: bool = False  # the module allows tensor cores to read f32 as TF32
    parts: list[tuple[primop.Part, Index]] = field(default_factory=list)  # what programs that share a loop return, and where
    part: int = -1  # the axis that numbers these programs
    beside: list[Further] = field(default_factory=list)
    factors: list[Reduction] = field(default_factory=list)  # sums that scale the rows of a product, which need no others

    @property
    def blocks(self) -> frozenset[int]:
        """The axes that further results sum."""
        return frozenset(further.axis for further in self.beside if further.axis is not None)

    @property
    def mended(self) -> bool:
        """Whether some sum shares a loop with reductions that it needs."""
        return any(is_mended(stage) for stage in self.stages)

    @property
    def ranges(self) -> Ranges:
        """Ranges of the symbols and of the axes."""
        return _ranges(self.symbols, self.extents)

    def reduction(self, op: ir.OpView) -> Reduction | None:
        return next((r for stage in self.stages for r in stage if r.op == op), None)


def is_mended(stage: Sequence[Reduction]) -> bool:
    """Whether some sum of a stage needs another of its reductions."""
    return any(MENDED in reduction.op.operation.attributes for reduction in stage)


def capacity(extents: Sequence[Linear], symbols: dict[str, tuple[int, int]]) -> list[int]:
    """The dimensions of the memory behind a tensor: symbolic extents at their largest, rows of them aligned."""
    ranges: Ranges = {Symbol(i): r for i, r in enumerate(symbols.values())}
    sizes = []
    for i, extent in enumerate(extents):
        bounds = range_of(extent, ranges)
        assert bounds is not None, "extents are made of symbols, which have ranges"
        size = max(bounds[1], 0)
        if not extent.is_constant and i == len(extents) - 1:
            size = -(-size // ROW_ALIGNMENT) * ROW_ALIGNMENT
        sizes.append(size)
    return sizes


def offset_of(index: Sequence[Linear], sizes: Sequence[int]) -> Linear:
    """Row-major element offset of an index."""
    return sum((e * prod(sizes[i + 1:]) for i, e in enumerate(index)), Linear())


def operand_index(op: ir.OpView, operand: int, point: Index, ranges: Ranges | None = None) -> Index:
    """Where an op reads an operand when it is evaluated at `point`."""
    replaced = {Dim(d): e for d, e in enumerate(point)}
    return tuple(substitute(e, replaced, ranges) for e in map_results(op.maps[operand]))


def operand_bound(op: ir.OpView, operand: int, point: Index, ranges: Ranges | None = None) -> Index:
    """The conditions, all non-negative, under which that element exists."""
    if op.bounds is None:
        return ()
    replaced = {Dim(d): e for d, e in enumerate(point)}
    return tuple(substitute(e, replaced, ranges) for e in map_results(op.bounds[operand]))


def defining_op(value: ir.Value) -> Any:
    """The op that computes a value inside a kernel, None for the kernel's arguments."""
    if isinstance(value.owner, ir.Block):
        return None
    return value.owner.opview if isinstance(value.owner, ir.Operation) else value.owner


def excludes(value: ir.Value) -> bool:
    """Whether a value is the constant -inf: what is added where a mask excludes."""
    op = defining_op(value)
    return isinstance(op, primop.Constant) and op.attributes["value"].value == float("-inf")


def analyse(function: ir.OpView, symbols: dict[str, tuple[int, int]]) -> Structure:
    """The structure of a kernel function; PassFailure where fusion joined what cannot share one."""
    returned = [defining_op(v) for v in list(body_of(function).operations)[-1].operands]
    parts = [op for op in returned if isinstance(op, primop.Part)]
    root = defining_op(parts[0].operand) if parts else returned[0]
    assert root is not None, "a kernel computes what it returns"
    if isinstance(root, REDUCTIONS):
        extents = list(extents_of(root.result))
    elif isinstance(root, primop.Scatter):
        extents = list(primop.space_of(root))
    else:
        extents = list(primop.space_of(root))
    root_point, extents = _axes_of_root(root, extents, symbols, [op for op in returned[1:] if isinstance(op, REDUCTIONS)])
    beside = [_further(op, root_point) for op in returned[1:] if not parts]
    rank = len(extents)
    ranges = _ranges(symbols, extents)
    found: dict[ir.OpView, Index] = {}
    order: list[ir.OpView] = []
    names: list[tuple[Linear, int]] = []
    mirrored: set[int] = set()
    places = [(part, tuple(substitute(e, {Dim(d): x for d, x in enumerate(root_point)}) for e in map_results(part.map)))
              for part in parts]
    tops = [(defining_op(part.operand), place) for part, place in places] or [(root, root_point)]
    for further in beside:
        op, point = further.op, further.point
        tops += [(op, point) if further.axis is None else (defining_op(op.operand), operand_index(op, 0, point, ranges))]
    for op, views in _collect(tops, ranges, order, names).items():
        flips = [[unflipped(e, constant_ranges(extents)) for e in view] for view in views]
        if len({tuple(e for e, _ in view) for view in flips}) > 1:
            raise PassFailure("a reduction is read through two different views in one kernel", op.operation.location)
        found[op] = tuple(e for e, _ in flips[0])
        if any(not isinstance(a, Dim) for view in flips for _, atoms in view for a in atoms):
            raise PassFailure("a reduction is read backwards along a part of a dimension", op.operation.location)
        mirrored |= {a.position for view in flips for _, atoms in view for a in atoms if isinstance(a, Dim)}
    top = [op for op in order if not _inside_another(found[op])]
    grid = set(range(rank))
    factors = [op for op in top if FACTOR in op.operation.attributes and any(map(is_contraction, top))]
    for op in (o for o in top if o not in factors):
        used = set().union(*(e.atoms() for e in found[op]), set())
        grid &= {d for d in range(rank) if Dim(d) in used or extents[d] == linear(1)}
    inner = [d for d in range(rank) if d not in grid]
    axis_of: dict[Atom, Linear] = {}  # the axis that a reduced dimension's temporary name stands for
    reductions: dict[ir.OpView, Reduction] = {}
    nested: dict[ir.OpView, tuple[int, ...]] = {}
    for op in [*top, *(op for op in order if op not in top)]:
        space, index = primop.space_of(op), tuple(substitute(e, axis_of) for e in found[op])
        taken = [a.position for e in index for a in e.atoms() if isinstance(a, Dim)] if op not in top else []
        own: list[int] = []
        for d in op.dims:
            options = [a for a in [*inner, *range(rank, len(extents))] if a not in [*taken, *own] and extents[a] == space[d]]
            if not options:
                extents.append(space[d])
                options = [len(extents) - 1]
            own.append(options[0])
        for d, name in zip(op.dims, _names_of(op, names), strict=True):
            axis_of.setdefault(Dim(name), dim(own[list(op.dims).index(d)]))
        parallel, reduced = iter(index), iter(own)
        point = tuple(dim(next(reduced)) if d in list(op.dims) else next(parallel) for d in range(len(space)))
        reductions[op] = Reduction(op, tuple(own), point, is_contraction(op))
        if op not in top:
            nested[op] = tuple(own)
    chain = [op for op in top if ONLINE in op.operation.attributes]
    stages = [[reductions[op] for op in chain]] if chain else _stages([op for op in top if op not in factors], reductions)
    structure = Structure(function, root, extents, sorted(grid), inner, stages, root_point, symbols, nested=nested, views=found,
                          mirrored=frozenset(mirrored), online=bool(chain), beside=beside,
                          factors=[reductions[op] for op in factors],
                          tf32=primop.allows_tf32(function.operation.parent))
    if chain and (len(chain) != len(top) or not isinstance(chain[0], primop.Max)):
        raise PassFailure("an online chain shares its kernel with other reductions", root.operation.location)
    if not structure.extents:
        structure.extents, structure.grid = [linear(1)], [0]
    if parts:
        structure.parts, structure.part = places, len(structure.extents)
        structure.extents.append(linear(parts[0].count))
        structure.grid.append(structure.part)
    structure.staged = _staged(structure)
    structure.accesses = list(_accesses(structure))
    return structure


def _further(op: ir.OpView, root_point: Index) -> Further:
    """A further result, evaluated at the root's point, of whose last dimension a sum takes blocks."""
    if not isinstance(op, REDUCTIONS):
        return Further(op, root_point, None)
    (block, _), (inside, _) = sorted(root_point[-1].terms, key=lambda term: -term[1])
    assert isinstance(block, Dim) and isinstance(inside, Dim), "a root's dimensions are made of axes"
    return Further(op, (*root_point[:-1], dim(block.position), dim(inside.position)), inside.position)


def is_row(op: ir.OpView | None) -> bool:
    """Whether an op's result is a row that a program makes for itself."""
    attributes = op.operation.attributes if op is not None else {}
    return STAGED in attributes and ir.StringAttr(attributes[STAGED]).value == "row"


def _staged(structure: Structure) -> list[Staged]:
    """The rows of a kernel, each with a new axis that it and its reductions run along."""
    found = []
    for op in body_of(structure.function).operations:
        if not is_row(op):
            continue
        space = primop.space_of(op)
        live = next(d for d, e in enumerate(space) if e != linear(1))
        axis = len(structure.extents)
        structure.extents.append(space[live])

        def along(o: ir.OpView, walked: int, axis: int = axis) -> Index:
            return tuple(dim(axis) if d == walked else Linear() for d in range(len(primop.space_of(o))))

        reductions = tuple(
            Reduction(o, (axis,), along(o, o.dims[0]), False) for o in body_of(structure.function).operations
            if isinstance(o, REDUCTIONS) and STAGED in o.operation.attributes and needs(op, o))
        found.append(Staged(op, along(op, live), axis, reductions))
    return found


TEMPORARY = 1000  # dimensions from here on name reduced dimensions until they have axes


def _names_of(op: ir.OpView, names: list[tuple[Linear, int]]) -> list[int]:
    """Temporary names of an op's reduced dimensions: equal extents have equal names, twice the same extent two."""
    space, result = primop.space_of(op), []
    for d in op.dims:
        key = (space[d], sum(space[e] == space[d] for e in op.dims if e < d))
        if key not in names:
            names.append(key)
        result.append(TEMPORARY + names.index(key))
    return result


def _inside_another(index: Index) -> bool:
    return any(isinstance(a, Dim) and a.position >= TEMPORARY for e in index for a in e.atoms())


def _ranges(symbols: dict[str, tuple[int, int]], extents: Sequence[Linear]) -> Ranges:
    ranges: dict[Atom, tuple[int, int]] = {Symbol(i): r for i, r in enumerate(symbols.values())}
    for axis, extent in enumerate(extents):
        bounds = range_of(extent, ranges)
        if bounds:
            ranges[Dim(axis)] = (0, max(bounds[1] - 1, 0))
    return ranges


def _axes_of_root(root: ir.OpView, extents: list[Linear], symbols: dict[str, tuple[int, int]],
                  sums: Sequence[ir.OpView]) -> tuple[Index, list[Linear]]:
    """The root's dimensions in terms of axes, and the extents of these: a dimension that views take apart has two, as has the
    last where blocks of it are summed."""
    views = _collect([(root, whole_index(extents))], _ranges(symbols, extents), [], [])
    constant = constant_ranges(extents)
    flipped = [v for v in views.values() if any(unflipped(e, constant)[1] for view in v for e in view)]
    splits = next((s for v in flipped if (s := splits_of(v)) is not None), {})
    for op in sums:
        splits = {**splits, len(extents) - 1: primop.space_of(op)[-1].constant}
    point, axes = [], list[Linear]()
    for d, extent in enumerate(extents):
        if d in splits and extent.is_constant and extent.constant % splits[d] == 0:
            point.append(dim(len(axes)) * splits[d] + dim(len(axes) + 1))
            axes += [linear(extent.constant // splits[d]), linear(splits[d])]
        else:
            point.append(Linear() if extent == linear(1) else dim(len(axes)))
            axes.append(extent)
    return tuple(point), axes


def _collect(tops: Iterable[tuple[ir.OpView, Index]], ranges: Ranges, order: list[ir.OpView],
             names: list[tuple[Linear, int]]) -> dict[ir.OpView, list[Index]]:
    """All views of the reductions below some ops at some places. `order` gets them, each after those that it needs."""
    found: dict[ir.OpView, list[Index]] = {}
    constant: Ranges = {atom: bounds for atom, bounds in ranges.items() if isinstance(atom, Dim)}

    seen: set[tuple[ir.OpView, Index]] = set()

    def walk(op: ir.OpView, index: Index) -> None:
        if (op, index) in seen:
            return
        seen.add((op, index))
        point = index
        if isinstance(op, REDUCTIONS):
            views = found.setdefault(op, [])
            views.append(index)
            if len(views) > 1:
                return
            parallel, reduced = iter([unflipped(e, constant)[0] for e in index]), iter(_names_of(op, names))
            point = tuple(dim(next(reduced)) if d in list(op.dims) else next(parallel)
                          for d in range(len(primop.space_of(op))))
        for k, operand in enumerate(op.operands):
            inner = defining_op(operand)
            if inner is not None and not isinstance(inner, primop.Constant | primop.Iota) and not is_row(inner):
                walk(inner, operand_index(op, k, point, ranges))
        if isinstance(op, REDUCTIONS):
            order.append(op)

    for top, place in tops:
        walk(top, place)
    return found


def dependent_on(ops: Iterable[ir.OpView], others: Collection[ir.OpView]) -> set[ir.OpView]:
    """Those of some ops, in order, that are among some others or computed from one."""
    found = set(others)
    for op in ops:
        if any(defining_op(v) in found for v in op.operands):
            found.add(op)
    return found


def needs(op: ir.OpView, other: ir.OpView) -> bool:
    """Whether an op is computed from another."""
    seen, pending = set[ir.OpView](), [op]
    while pending:
        for operand in pending.pop().operands:
            inner = defining_op(operand)
            if inner is not None and inner not in seen:
                if inner == other:
                    return True
                seen.add(inner)
                pending.append(inner)
    return False


def _stages(order: list[ir.OpView], reductions: dict[ir.OpView, Reduction]) -> list[list[Reduction]]:
    stages: list[list[Reduction]] = []
    for op in order:
        reduction = reductions[op]
        if stages and stages[-1][0].axes == reduction.axes and stages[-1][0].contraction == reduction.contraction and \
                (MENDED in op.operation.attributes or not any(needs(op, earlier.op) for earlier in stages[-1])):
            stages[-1].append(reduction)
        else:
            stages.append([reduction])
    return stages


def _accesses(structure: Structure) -> Iterator[Access]:
    """Every direct read and write; gathers and scatters at their computed place count with index 0."""
    ranges = structure.ranges
    seen: set[tuple[ir.Value, Index]] = set()
    visited: set[tuple[ir.OpView, Index]] = set()
    pending: list[tuple[ir.OpView, Index]] = [(structure.root, structure.point)]
    pending += [(r.op, r.point) for stage in (*structure.stages, structure.factors) for r in stage]
    if isinstance(structure.root, REDUCTIONS):
        pending = pending[1:]
    pending += [(further.op, further.point) for further in structure.beside]
    for row in structure.staged:
        pending += [(row.op, row.point), *((r.op, r.point) for r in row.reductions)]
    while pending:
        op, point = pending.pop()
        if (op, point) in visited:
            continue
        visited.add((op, point))
        for k, operand in enumerate(op.operands):
            here = (*point, Linear()) if isinstance(op, primop.Gather | primop.Scatter) and k == 0 else point
            index = operand_index(op, k, here, ranges)
            inner = defining_op(operand)
            if inner is None or is_row(inner):
                if (operand, index) not in seen:
                    seen.add((operand, index))
                    sizes = capacity(extents_of(operand), structure.symbols)
                    yield Access(operand, offset_of(index, sizes), isinstance(op, primop.Scatter) and k == 0)
            elif inner in structure.nested:
                own, parallel = iter(structure.nested[inner]), iter(index)
                dims = list(inner.dims)
                pending.append((inner, tuple(dim(next(own)) if d in dims else next(parallel)
                                             for d in range(len(primop.space_of(inner))))))
            elif not isinstance(inner, REDUCTIONS) and inner.operation.operands:
                pending.append((inner, index))
    if not isinstance(structure.root, primop.Scatter):
        sizes = capacity(extents_of(structure.root.result), structure.symbols)
        yield Access(structure.root.result, offset_of(structure.point[:len(sizes)], sizes), True)
    for further in structure.beside:
        sizes = capacity(extents_of(further.op.result), structure.symbols)
        yield Access(further.op.result, offset_of(further.index, sizes), True)


def is_contiguous(offset: Linear, box: Sequence[tuple[int, int]], ranges: Ranges) -> bool:
    """Whether a box of elements, (axis, size) pairs with the last fastest, aligned to its sizes, is one run of memory."""
    replaced: dict[Atom, Linear] = {}
    known = dict(ranges)
    for j, (axis, size) in enumerate(box):
        replaced[Dim(axis)] = dim(axis) * size + dim(2000 + j)
        known[Dim(2000 + j)] = (0, size - 1)
        if Dim(axis) in known:
            known[Dim(axis)] = (0, known[Dim(axis)][1] // size)
    inside = substitute(offset, replaced, known)
    nonlinear = inside.nonlinear_atoms()
    step = 1
    for j in range(len(box) - 1, -1, -1):
        if Dim(2000 + j) in nonlinear or inside.coefficient(Dim(2000 + j)) != step:
            return False
        step *= box[j][1]
    return True
