"""A kernel's expression at a point of its axes becomes ops on tiles, the views composing on the way down to the buffers."""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir
from mlir.dialects import arith, vector

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import Dim, FloorDiv, Linear, Mod, Symbol, dim, make_map, range_of, substitute
from tilec.dialects.schedule import Schedule
from tilec.pipelines.elementwise import convert, elementwise
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.primop.fuse import REDUCTIONS
from tilec.pipelines.primop.held_rows import held_rows
from tilec.pipelines.primop.structure import Index, Structure, defining_op, is_row, operand_bound, operand_index

INDEX_DTYPE = "i32"


class Expressions:
    """What is known at one place of a tile function: the tile's origin, the conditions it is under, what has been read."""

    def __init__(self, structure: Structure, schedule: Schedule) -> None:
        self.structure, self.schedule = structure, schedule
        structure.extents += [structure.extents[axis] for axis in schedule.twins.values()]
        self.symbols = list(structure.symbols)
        self.rank = len(structure.extents)
        self.ranges = structure.ranges
        self.tiles = [a.tile for a in schedule.axes]
        self.origin: list[ir.Value] = []
        self.symbol_values: list[ir.Value] = []
        self.guards: tuple[Linear, ...] = ()  # conditions, non-negative, under which an element of the tile exists
        self.buffers: dict[ir.Value, ir.Value] = {}
        self.rows: dict[ir.Value, ir.Value] = {}  # what the program has made for itself
        self.reduced: dict[ir.OpView, ir.Value] = {}
        self.memo: dict[tuple, ir.Value] = {}
        self.never: frozenset[Linear] = frozenset()  # conditions that hold nowhere in the present loop
        self.held = held_rows(structure.function)
        # Axes along which the present loop reads what is held, and how far; None: all that is left of it, and what follows.
        self.early: dict[int, Linear | None] = {}
        self.zeroed: dict[ir.Value, frozenset[Linear]] = {}  # tiles that are zero where one of these conditions does not hold

    # What reductions say (see reductions.py and online_loops.py) ------------------------------------------------------------

    def _nested_reduction(self, op: ir.OpView, index: Index) -> ir.Value:
        raise NotImplementedError

    def _special(self, op: ir.OpView, point: Index, element: ir.Type) -> ir.Value | None:
        """An op that is emitted in another way than from its operands alone, None for all others."""
        return None

    # Expressions ------------------------------------------------------------------------------------------------------

    def _operand(self, op: ir.OpView, k: int, point: Index) -> ir.Value:
        """Operand k of an op at a point, zero where its bound excludes the element."""
        bound = tuple(e for e in operand_bound(op, k, point, self.ranges) if not self._always(e))
        guards = self.guards
        self.guards = (*guards, *(e for e in bound if e not in guards))
        value = self._evaluate(op.operands[k], operand_index(op, k, point, self.ranges))
        self.guards = guards
        return self._select_guard(bound, value, 0)

    def _evaluate(self, value: ir.Value, index: Index) -> ir.Value:
        op = defining_op(value)
        if isinstance(op, REDUCTIONS) and op not in self.structure.nested:
            return self._mirrored(self.reduced[op], index)
        key = (value, index, self.guards)
        if key not in self.memo:
            if op is None:
                self.memo[key] = self._load(value, index)
            elif is_row(op):
                self.memo[key] = self._load_row(value, index)
            elif op in self.structure.nested:
                self.memo[key] = self._nested_reduction(op, index)
            else:
                self.memo[key] = self._compute(op, index)
        return self.memo[key]

    def _mirrored(self, value: ir.Value, index: Index) -> ir.Value:
        """A reduction's result as it is read: from the other end along axes whose coefficient is negative."""
        flipped = {atom.position for e in index for atom, c in e.terms if c < 0 and isinstance(atom, Dim)}
        for axis in sorted(flipped & self.structure.mirrored):
            if value.type.shape[axis] > 1:
                value = tile.Reverse(axis=axis, value=value, result=value.type).result
        return value

    def _load(self, value: ir.Value, index: Index) -> ir.Value:
        axes = self._axes_of(index)
        shape = self._shape(axes)
        relevant = tuple(g for g in self.guards if self._axes_of((g,)) <= axes)
        kind = ir.VectorType.get(shape, primop.element_type(value))

        def read(guards: Sequence[Linear], held: Sequence[Linear]) -> ir.Value:
            return tile.Load(source=self.buffers[value], result=kind, **self._place(index, guards, held=held)).result

        if value not in self.held:
            return read(relevant, ())
        dimension, rows = self.held[value]
        along = next((a for a in self.early if index[dimension] == dim(a)), None)
        if along is None:
            return read(relevant, ())
        if (end := self.early[along]) is not None:
            return read(relevant, (end - 1 - dim(along),))
        before = rows - 1 - dim(along)  # what is held may be read before the rest is written
        others = [g for g in relevant if not self._always(g - before)]
        whole = tile.LoadOver(value=read((*others, before), (before,)), source=self.buffers[value], result=kind,
                              **self._place(index, (*relevant, dim(along) - rows))).result
        self.zeroed[whole] = frozenset(relevant)
        return whole

    def _load_row(self, value: ir.Value, index: Index) -> ir.Value:
        place = tuple(e for e in index if not e.is_constant)
        kind = ir.VectorType.get(self._shape(self._axes_of(place)), primop.element_type(value))
        relevant = tuple(g for g in self.guards if self._axes_of((g,)) <= self._axes_of(place))
        return tile.Load(source=self.rows[value], result=kind, **self._place(place or (Linear(),), relevant)).result

    def _compute(self, op: ir.OpView, point: Index) -> ir.Value:
        with op.operation.location:
            element = primop.element_type(op.result)
            if isinstance(op, primop.Constant):
                attribute = op.attributes["value"]
                return self._splat(attribute.value, element, [1] * self.rank)
            if isinstance(op, primop.Iota):
                return self._converted(self._index_tile(point[0]), element)
            if isinstance(op, primop.Gather):
                return self._gather(op, point)
            special = self._special(op, point, element)
            if special is not None:
                return special
            values = [self._operand(op, k, point) for k in range(len(op.operands))]
            if isinstance(op, primop.Add | primop.Mul | primop.Mod):
                values = [self._converted(v, element) for v in values]
            if isinstance(op, primop.Cast):
                return self._converted(values[0], element)
            return elementwise(op, self._aligned(*values), element)

    def _clamped(self, index: ir.Value, low: int, high: int) -> ir.Value:
        """An index within bounds, and only then narrowed."""
        bounds = [self._splat(v, index.type.element_type, index.type.shape) for v in (low, high)]
        return self._converted(arith.minsi(arith.maxsi(index, bounds[0]), bounds[1]), ir.Type.parse(INDEX_DTYPE))

    def _gather(self, op: primop.Gather, point: Index) -> ir.Value:
        rows = self._clamped(self._operand(op, 1, point), 0, op.extent - 1)
        where = operand_index(op, 0, (*point, dim(self.rank)), self.ranges)
        axes = self._axes_of(where) | {a for a, n in enumerate(rows.type.shape) if n > 1}
        relevant = tuple(g for g in self.guards if self._axes_of((g,)) <= axes)
        return tile.Gather(source=self.buffers[op.data], index=rows,
                           result=ir.VectorType.get(self._shape(axes), primop.element_type(op.data)),
                           **self._place(where, relevant, 1)).result

    # Tiles ------------------------------------------------------------------------------------------------------------

    def _axes_of(self, index: Sequence[Linear]) -> set[int]:
        """The axes along which an index takes more than one value inside a tile: `h floordiv 4` in a tile of 4 takes one."""
        atoms = set().union(*(e.atoms() for e in index), set())
        axes = {a.position for a in atoms if isinstance(a, Dim) and a.position < self.rank and self.tiles[a.position] > 1}
        return {a for a in axes if any(self._varies(e, a) for e in index)}

    def _varies(self, expr: Linear, axis: int) -> bool:
        inside = Dim(self.rank + 1)
        split = dim(axis) * self.tiles[axis] + dim(inside.position)
        ranges = {**{k: v for k, v in self.ranges.items() if k != Dim(axis)}, inside: (0, self.tiles[axis] - 1)}
        return inside in substitute(expr, {Dim(axis): split}, ranges).atoms()

    def _axes_below(self, value: ir.Value, index: Index) -> set[int]:
        """The axes along which an expression varies."""
        place = (value, index, frozenset[int]())  # with the axes that nested reductions above have reduced
        found, seen, pending = set[int](), set[tuple[ir.Value, Index, frozenset[int]]](), [place]
        while pending:
            place = pending.pop()
            if place in seen:
                continue
            seen.add(place)
            value, index, reduced = place
            op = defining_op(value)
            if op is None or is_row(op) or isinstance(op, primop.Iota):
                found |= self._axes_of(index) - reduced
            elif op in self.structure.nested:
                own, parallel, dims = iter(self.structure.nested[op]), iter(index), list(op.dims)
                point = tuple(dim(next(own)) if d in dims else next(parallel) for d in range(len(primop.space_of(op))))
                pending.append((op.operand, operand_index(op, 0, point, self.ranges), reduced | {*self.structure.nested[op]}))
            elif isinstance(op, REDUCTIONS):
                found |= {a for a, n in enumerate(self.reduced[op].type.shape) if n > 1} - reduced
            else:
                for k, operand in enumerate(op.operands):
                    point = (*index, Linear()) if isinstance(op, primop.Gather) and k == 0 else index
                    pending.append((operand, operand_index(op, k, point, self.ranges), reduced))
                    bound = operand_bound(op, k, index, self.ranges)
                    found |= self._axes_of([e for e in bound if not self._always(e)]) - reduced
        return found

    def _shape(self, axes: set[int]) -> list[int]:
        return [self.tiles[a] if a in axes else 1 for a in range(self.rank)]

    def _always(self, condition: Linear) -> bool:
        bounds = range_of(condition, self.ranges)
        return bounds is not None and bounds[0] >= 0

    def _select_guard(self, guard: Sequence[Linear], value: ir.Value, otherwise: float | int) -> ir.Value:
        """`value` where all conditions hold, otherwise a constant."""
        if not guard or (otherwise == 0 and {*guard} <= self.zeroed.get(value, frozenset())):
            return value
        flags = self._flags(guard)
        flags, value = self._aligned(flags, value)
        return arith.select(flags, value, self._splat(otherwise, value.type.element_type, value.type.shape))

    def _flags(self, guard: Sequence[Linear]) -> ir.Value:
        result: ir.Value | None = None
        for condition in guard:
            at = self._index_tile(condition)
            zero = self._splat(0, at.type.element_type, at.type.shape)
            holds = arith.cmpi(arith.CmpIPredicate.sge, at, zero)
            result = holds if result is None else arith.andi(*self._aligned(result, holds))
        assert result is not None
        return result

    def _index_tile(self, expr: Linear) -> ir.Value:
        shape = self._shape(self._axes_of((expr,)))
        kind = ir.VectorType.get(shape, ir.Type.parse(INDEX_DTYPE))
        return tile.IndexTile(result=kind, **self._place((expr,))).result

    def _place(self, index: Sequence[Linear], guards: Sequence[Linear] = (), extra: int = 0,
               held: Sequence[Linear] = ()) -> dict[str, object]:
        """The map, masks and origin of an access; the symbols are passed only where one of them occurs."""
        used = any(isinstance(atom, Symbol) for e in (*index, *guards, *held) for atom in e.atoms())
        symbols = self.symbol_values if used else []
        place: dict[str, object] = {"map": make_map(self.rank + extra, len(symbols), index),
                                    "origin": [*self.origin, *symbols]}
        if guards:
            place["mask"] = make_map(self.rank, len(symbols), guards)
        if held:
            place["held"] = make_map(self.rank, len(symbols), held)
        return place

    def _aligned(self, *values: ir.Value) -> tuple[ir.Value, ...]:
        shape = [max(sizes) for sizes in zip(*(v.type.shape for v in values), strict=True)]
        return tuple(self._broadcast(v, shape) for v in values)

    def _broadcast(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        if list(value.type.shape) == list(shape):
            return value
        if any(n not in (1, m) for n, m in zip(value.type.shape, shape, strict=True)):  # one per thread, for its elements
            return tile.Spread(value=value, result=ir.VectorType.get(list(shape), value.type.element_type)).result
        return vector.broadcast(ir.VectorType.get(list(shape), value.type.element_type), value)

    def _splat(self, value: float | int | bool, element: ir.Type, shape: Sequence[int]) -> ir.Value:
        is_float = str(element) in primop.FLOATS
        attribute = ir.FloatAttr.get(element, float(value)) if is_float else ir.IntegerAttr.get(element, int(value))
        kind = ir.VectorType.get(list(shape), element)
        return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute))

    def _converted(self, value: ir.Value, element: ir.Type) -> ir.Value:
        result = convert(value, element)
        if value in self.zeroed:
            self.zeroed[result] = self.zeroed[value]
        return result

    def _index(self, value: int) -> ir.Value:
        return arith.constant(ir.IndexType.get(), value)

    def _value(self, expr: Linear) -> ir.Value:
        """The run-time value of an expression of symbols, none of which is negative."""
        result: ir.Value | None = self._index(expr.constant) if expr.constant or not expr.terms else None
        for atom, c in expr.terms:
            if isinstance(atom, Symbol):
                term = self.symbol_values[atom.position]
            elif isinstance(atom, FloorDiv):
                term = arith.divui(self._value(atom.numerator), self._index(atom.divisor))
            elif isinstance(atom, Mod):
                term = arith.remui(self._value(atom.numerator), self._index(atom.divisor))
            else:
                raise PassFailure(f"an extent must be made of symbols, but has {atom}")
            term = arith.muli(term, self._index(c)) if c != 1 else term
            result = term if result is None else arith.addi(result, term)
        assert result is not None
        return result
