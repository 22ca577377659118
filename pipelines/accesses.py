"""Where the elements of a fragment are in memory, which of them exist, and how they are read and written: as one vector if
they are a run that begins at a multiple of its length, or one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from math import gcd, prod

from mlir import ir
from mlir.dialects import affine, arith, vector

from tilec.dialects import tile
from tilec.dialects.index_expr import Atom, Dim, Linear, Symbol, dim, linear, make_map, map_results, substitute
from tilec.dialects.schedule import Axis
from tilec.pipelines.fragment_values import FragmentValues
from tilec.pipelines.layouts import Coordinates, Fragments, Layout, all_of, have_one_sign, shifted, step_of
from tilec.pipelines.loops import constant_of
from tilec.pipelines.primop.structure import offset_of


class Accesses(FragmentValues):
    """Loads, stores and the arithmetic of addresses and masks."""

    def _elements(self, expr: Linear, layout: Layout, at: Coordinates) -> list[Linear]:
        """An index expression at every element of a fragment, in terms of the thread's first element along every axis."""
        base = tuple(i * axis.neighbours * axis.vector for i, axis in zip(at, self.schedule.axes, strict=True))
        steps = [tuple(b + i for b, i in zip(base, inside, strict=True)) for inside in layout.inside()]
        return [shifted(expr, step, self.units) for step in steps]

    def _origin(self, op: ir.OpView, shape: Sequence[int]) -> tuple[list[ir.Value], list[ir.Value]]:
        """The first element of this thread along every axis, and the symbols, as values."""
        rank = len(self.schedule.axes)
        values = [self.scalars[v] for v in op.origin]
        origins = values[:rank]
        for i, axis in enumerate(self.schedule.axes):
            thread = self.thread(i) if axis.threads > 1 and shape[i] > 1 else None
            if thread is not None:
                origin = origins[i]
                origins[i] = self.remember(("origin", i, origin), functools.partial(self._moved, origin, thread, axis))
        return origins, values[rank:]

    def _moved(self, origin: ir.Value, thread: ir.Value, axis: Axis) -> ir.Value:
        """Where the elements of a thread begin: those of a warp are one run."""
        if axis.warps > 1 and axis.registers > 1:
            neighbours = self.constant(axis.neighbours, ir.IndexType.get())
            warp = self._scaled(arith.divui(thread, neighbours), axis.registers * axis.neighbours)
            thread = arith.addi(warp, arith.remui(thread, neighbours))
        return arith.addi(origin, self._scaled(thread, axis.vector))

    def _not_negative(self, value: ir.Value) -> ir.Value:
        return arith.cmpi(arith.CmpIPredicate.sge, value, self.constant(0, ir.IndexType.get()))

    def _scaled(self, value: ir.Value, factor: int) -> ir.Value:
        return arith.muli(value, self.constant(factor, ir.IndexType.get())) if factor != 1 else value

    def apply(self, expr: Linear, origins: list[ir.Value], symbols: list[ir.Value]) -> ir.Value:
        """An index expression as a value."""
        used_dims = sorted({a.position for a in expr.atoms() if isinstance(a, Dim)})
        used_symbols = sorted({a.position for a in expr.atoms() if isinstance(a, Symbol)})
        operands = [origins[i] for i in used_dims] + [symbols[i] for i in used_symbols]
        renamed: dict[Atom, Linear] = {Dim(old): dim(new) for new, old in enumerate(used_dims)}
        renamed |= {Symbol(old): Linear(0, ((Symbol(new), 1),)) for new, old in enumerate(used_symbols)}
        compact = substitute(expr, renamed)

        def make() -> ir.Value:
            if compact.is_constant:
                return self.constant(compact.constant, ir.IndexType.get())
            if compact == dim(0):
                return operands[0]
            return affine.apply(make_map(len(used_dims), len(used_symbols), [compact]), operands)

        return self.remember(("apply", compact, *operands), make)

    def _offset(self, expr: Linear, origins: list[ir.Value], symbols: list[ir.Value]) -> tuple[ir.Value, int]:
        return self.apply(expr - expr.constant, origins, symbols), expr.constant

    def _condition(self, op: ir.OpView, at: Coordinates, layout: Layout, origins: list[ir.Value], symbols: list[ir.Value],
                   whole: bool) -> tuple[ir.Value | None, ir.Value | None]:
        """The mask of a fragment: (one flag for all of it, one flag per element), either None. With `whole` a mask that cannot
        differ inside the fragment is one flag, even if it is another expression for each element."""
        if op.mask is None:
            return None, None
        uniform: ir.Value | None = None
        varying: ir.Value | None = None
        for condition in map_results(op.mask):
            elements = self._elements(condition, layout, at)
            if all(self._always(e, op) for e in elements):
                continue
            if all(e == elements[0] for e in elements) or (whole and have_one_sign(elements, self.units)):
                value = self.apply(elements[0], origins, symbols)
                flag = self.remember(("flag", value), functools.partial(self._not_negative, value))
                uniform = all_of(uniform, flag)
            else:
                values = self._vector_of(elements, origins, symbols)
                flag = arith.cmpi(arith.CmpIPredicate.sge, values, self.constant(0, values.type))
                varying = all_of(varying, flag)
        return uniform, varying

    def _always(self, condition: Linear, op: ir.OpView) -> bool:
        """Whether a condition holds for every thread, as far as its axes begin at a constant for all of them."""
        least = condition.constant
        for atom, c in condition.terms:
            if not isinstance(atom, Dim) or atom.position >= len(self.units):
                return False
            first, axis = constant_of(op.origin[atom.position]), self.schedule.axes[atom.position]
            if first is None:
                return False
            last = first + axis.tile - ((axis.registers - 1) * axis.neighbours + 1) * axis.vector
            least += c * (first if c > 0 else last)
        return least >= 0

    def _vector_of(self, elements: list[Linear], origins: list[ir.Value], symbols: list[ir.Value]) -> ir.Value:
        """Index expressions that differ by constants or more, as a vector of i32 (a scalar for one)."""
        narrow = ir.IntegerType.get_signless(32)
        base = self.apply(elements[0] - elements[0].constant, origins, symbols)
        base = self.remember(("i32", base), lambda: arith.index_cast(narrow, base))
        steps = [e - elements[0] for e in elements]
        if all(s.is_constant for s in steps):
            constants = [elements[0].constant + s.constant for s in steps]
            if len(elements) == 1:
                return arith.addi(base, self.constant(constants[0], narrow)) if constants[0] else base
            kind = ir.VectorType.get([len(elements)], narrow)
            ramp = arith.constant(kind, ir.DenseElementsAttr.get(
                [ir.IntegerAttr.get(narrow, c) for c in constants], kind))
            return arith.addi(self.splat(base, len(elements)), ramp)
        parts = [arith.index_cast(narrow, self.apply(e, origins, symbols)) for e in elements]
        return vector.from_elements(ir.VectorType.get([len(parts)], narrow), parts)

    def _lower_index(self, op: tile.IndexTile) -> Fragments:
        shape = op.result.type.shape
        layout, expr = self.layout(shape), map_results(op.map)[0]
        origins, symbols = self._origin(op, shape)
        values = {at: self._vector_of(self._elements(expr, layout, at), origins, symbols)
                  for at in layout.coordinates()}
        return Fragments(layout, op.result.type.element_type, values)

    def _access(self, op: ir.OpView, buffer: ir.Value, shape: Sequence[int]) -> Iterator[
            tuple[Coordinates, list[Linear], list[ir.Value], list[ir.Value], ir.Value | None, ir.Value | None]]:
        """For every fragment: the element offsets, the values they are made of, and the two masks."""
        layout = self.layout(shape)
        sizes = list(ir.MemRefType(buffer.type).shape)
        offset = offset_of(map_results(op.map), sizes)
        origins, symbols = self._origin(op, shape)
        for at in layout.coordinates():
            elements = self._elements(offset, layout, at)
            aligned = gcd(step_of(elements[0], self.units), elements[0].constant) % layout.length == 0
            whole = self.masks_by_element and aligned and layout.length > 2  # pairs of a tile's edge would all be read early
            yield (at, elements, origins, symbols, *self._condition(op, at, layout, origins, symbols, whole))

    def _rows(self, op: ir.OpView, at: Coordinates, layout: Layout) -> ir.Value:
        """The gathered indices of a fragment: a scalar where its elements share one, otherwise a vector with one for each."""
        index = self.tiles[op.index]
        here = tuple(0 if r == 1 else i for i, r in zip(at, index.layout.registers, strict=True))
        value = index.values[here]
        return value if index.layout.length == 1 else self._widen(value, index.layout.box, layout.box)

    def _with_rows(self, origins: list[ir.Value], rows: ir.Value, count: int) -> list[list[ir.Value]]:
        """The values that each element's offset is made of, with its gathered index as the last."""
        index = ir.IndexType.get()
        if not isinstance(rows.type, ir.VectorType):
            return [[*origins, arith.index_cast(index, rows)]] * count
        return [[*origins, arith.index_cast(index, vector.extract(rows, [], [i]))] for i in range(count)]

    def _is_run(self, elements: list[Linear], places: list[list[ir.Value]]) -> bool:
        """Whether the elements of a fragment are neighbours in memory, in order."""
        return all(e - elements[0] == linear(i) and p is places[0]
                   for i, (e, p) in enumerate(zip(elements, places, strict=True)))

    def _lower_load(self, op: tile.Load | tile.LoadOver | tile.Gather) -> Fragments:
        shape, element = list(op.result.type.shape), op.result.type.element_type
        layout, buffer = self.layout(shape), self.scalars[op.source]
        kind = self.fragment_type(layout, element)
        values: dict[Coordinates, ir.Value] = {}
        for at, elements, origins, symbols, uniform, varying in self._access(op, op.source, shape):
            places = [origins] * len(elements)
            uniform = all_of(uniform, self.needs(at, shape))
            if isinstance(op, tile.Gather):
                places = self._with_rows(origins, self._rows(op, at, layout), len(elements))
            known = self.tiles[op.value].values[at] if isinstance(op, tile.LoadOver) else None
            pad = known if known is not None else \
                self.constant(0, kind) if uniform is not None or varying is not None else None
            if self._is_run(elements, places):
                base, constant = self._offset(elements[0], places[0], symbols)
                if uniform is not None and varying is None and \
                        (value := self.load_when(buffer, (base, constant), kind, uniform, known)) is not None:
                    values[at] = value
                    continue
                if uniform is not None:  # a missing row is read from the buffer's start and thrown away
                    inside = self._inside(op, at, layout, constant)
                    base, constant = self._safe(uniform, base, constant - inside), inside
                if varying is not None:
                    assert pad is not None
                    value = self.load_masked(buffer, (base, constant), kind, varying, pad)
                else:
                    value = self.load(buffer, (base, constant), kind)
            else:
                parts = []
                for i, e in enumerate(elements):
                    base, constant = self._offset(e, places[i], symbols)
                    flag = all_of(uniform, None if varying is None else vector.extract(varying, [], [i]))
                    if flag is not None:
                        base, constant = self._safe(flag, base, constant), 0
                    parts.append(self.load(buffer, (base, constant), element))
                value = vector.from_elements(kind, parts)
                if varying is not None:
                    value = arith.select(varying, value, pad)
            if uniform is not None:
                value = self.or_zero(uniform, value) if known is None else arith.select(uniform, value, known)
            values[at] = value
        return Fragments(layout, element, values)

    def _inside(self, op: tile.Load | tile.LoadOver | tile.Gather, at: Coordinates, layout: Layout, constant: int) -> int:
        """The part of a fragment's constant offset that is safe whatever its mask says, because the mask does not vary along
        the axes that it comes from and the buffer is large enough: fragments that differ by it then share an address."""
        if not self.masks_by_element or isinstance(op, tile.Gather) or op.mask is None:
            return 0
        masked = {a.position for e in map_results(op.mask) for a in e.atoms() if isinstance(a, Dim)}
        sizes = list(ir.MemRefType(op.source.type).shape)
        first = tuple(x if i in masked else 0 for i, x in enumerate(at))
        inside = constant - self._elements(offset_of(map_results(op.map), sizes), layout, first)[0].constant
        return inside if 0 <= inside <= prod(sizes) - layout.length and inside % layout.length == 0 else 0

    def _safe(self, flag: ir.Value, base: ir.Value, constant: int) -> ir.Value:
        if constant:
            base = arith.addi(base, self.constant(constant, ir.IndexType.get()))
        return arith.select(flag, base, self.constant(0, ir.IndexType.get()))

    def _lower_store(self, op: tile.Store | tile.Scatter) -> None:
        shape = list(op.value.type.shape)
        with self._when(self.owns(shape)):
            self._store_fragments(op, shape)

    def _store_fragments(self, op: tile.Store | tile.Scatter, shape: list[int]) -> None:
        source, buffer = self.tiles[op.value], self.scalars[op.dest]
        for at, elements, origins, symbols, uniform, varying in self._access(op, op.dest, shape):
            places = [origins] * len(elements)
            uniform = all_of(uniform, self.stores(at, shape))
            if isinstance(op, tile.Scatter):
                rows = self._rows(op, at, source.layout)
                places = self._with_rows(origins, rows, len(elements))
                inside = arith.cmpi(arith.CmpIPredicate.ult, rows, self.constant(op.extent, rows.type))
                if isinstance(rows.type, ir.VectorType):
                    varying = all_of(varying, inside)
                else:
                    uniform = all_of(uniform, inside)
            with self._when(uniform):
                self._store_fragment(source.values[at], buffer, elements, places, symbols, varying)

    def _store_fragment(self, value: ir.Value, buffer: ir.Value, elements: list[Linear], places: list[list[ir.Value]],
                        symbols: list[ir.Value], varying: ir.Value | None) -> None:
        if self._is_run(elements, places):
            where = self._offset(elements[0], places[0], symbols)
            if varying is None:
                self.store(value, buffer, where)
            else:
                self.store_masked(value, buffer, where, varying)
            return
        for i, e in enumerate(elements):
            part = vector.extract(value, [], [i])
            where = self._offset(e, places[i], symbols)
            with self._when(None if varying is None else vector.extract(varying, [], [i])):
                self.store(part, buffer, where)
