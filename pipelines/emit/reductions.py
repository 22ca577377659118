"""Stages of reductions become loop nests with accumulators: whole tiles first, then what is left under a mask."""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import Atom, Dim, Linear, ceildiv, dim, floordiv, linear, map_results, substitute
from tilec.pipelines.emit.expressions import Expressions
from tilec.pipelines.primop.fuse import is_contraction
from tilec.pipelines.primop.structure import Index, Reduction, defining_op, operand_bound, operand_index

Span = tuple[Linear | int | ir.Value, Linear | int | ir.Value, int, tuple[Linear, ...]]


def is_one_turn(start: Linear | int | ir.Value, stop: Linear | int | ir.Value, step: int) -> bool:
    """Whether a loop runs once, for all lengths. What is left of a constant extent stays a loop that assemblers see through."""
    if isinstance(start, ir.Value) or isinstance(stop, ir.Value):
        return False
    first, length = linear(start), linear(stop) - linear(start)
    return length.is_constant and 0 < length.constant <= step and (not first.is_constant or first == linear(0))


class Reductions(Expressions):
    """Loops over the axes of a stage."""

    def _spans(self, axis: int, copies: int) -> list[Span]:
        """The loops that cover an axis: (start, stop, step, guards), whole steps first and then what is left."""
        extent, size = self.structure.extents[axis], self.tiles[axis]
        step = size * copies
        if self.schedule.rings and axis not in self.structure.inner:
            ragged = (extent - 1 - dim(axis),) if not extent.is_constant or extent.constant % size else ()
            return [(0, ceildiv(extent, size) * size, size, ragged)]  # one loop: what is fetched past the end is zero
        if extent.is_constant:
            whole: Linear = linear(extent.constant // step * step)
            spans: list = [(0, whole, step, ())] if whole.constant else []
            rest = extent.constant - whole.constant
            if not rest:
                return spans
        else:
            from_extent = floordiv(extent, step) * step
            spans, whole, rest = [(0, from_extent, step, ())], from_extent, -1
            if step == 1:
                return [(0, extent, 1, ())]
        guard = (extent - 1 - dim(axis),) if size > 1 and (rest < 0 or rest % size) else ()
        return [*spans, (whole, extent, size, guard)]

    def _stage(self, stage: list[Reduction]) -> None:
        copies = self.schedule.unroll if stage[0].contraction else 1
        start = [self._neutral(r, self._accumulator_shape(r)) for r in stage for _ in range(copies)]
        final = self._reduce_loops(stage, list(stage[0].axes), start, copies)
        for i, reduction in enumerate(stage):
            parts = final[i * copies:(i + 1) * copies]
            while len(parts) > 1:
                parts = [self._combine(reduction, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            total = self._reduced_tile(reduction, parts[0])
            self.reduced[reduction.op] = self._converted(total, primop.element_type(reduction.op.result))

    def _reduced_tile(self, reduction: Reduction, total: ir.Value, sizes: Sequence[int] | None = None) -> ir.Value:
        """An accumulator combined along the reduced axes, which keep size 1, or `sizes`."""
        shape = list(total.type.shape)
        axes = [a for a in reduction.axes if shape[a] > (sizes[a] if sizes else 1)]
        if not axes:
            return total
        kept = [(sizes[a] if sizes else 1) if a in axes else n for a, n in enumerate(shape)]
        kind = tile.ReduceKind.ADD if isinstance(reduction.op, primop.Sum) else tile.ReduceKind.MAX
        return tile.Reduce(kind=kind, axes=axes, value=total,
                           result=ir.VectorType.get(kept, total.type.element_type)).result

    def _nested_reduction(self, op: ir.OpView, index: Index) -> ir.Value:
        """A reduction evaluated for every element of the current tile, its loop here and now."""
        own, parallel = self.structure.nested[op], iter(index)
        reduced, dims = iter(own), list(op.dims)
        point = tuple(dim(next(reduced)) if d in dims else next(parallel) for d in range(len(primop.space_of(op))))
        reduction = Reduction(op, own, point, is_contraction(op))
        memo, online = self.memo, self.structure.online
        self.structure.online = False
        start = [self._neutral(reduction, self._accumulator_shape(reduction))]
        final = self._reduce_loops([reduction], list(own), start, 1)[0]
        self.memo, self.structure.online = memo, online
        return self._converted(self._reduced_tile(reduction, final), primop.element_type(op.result))

    def _reduce_loops(self, stage: list[Reduction], axes: list[int], values: list[ir.Value], copies: int) -> list[ir.Value]:
        if not axes:
            return self._accumulate(stage, values, 1, 0)
        axis, inner = axes[0], axes[1:]
        used = copies if not inner else 1
        for start, stop, step, guard in self._spans(axis, used):
            size = self.tiles[axis] = min(self.tiles[axis], step)
            here = min(step // size, used)  # what else lies in a step is for other programs
            saved, guards = self.origin[axis], self.guards
            self.guards = guards + guard
            self.never = self._excluded_from(axis, guard)
            early, one_turn = self.early, is_one_turn(start, stop, step)
            self.early = self._told_held(axis, stop, bool(guard), one_turn)
            at_origin = not isinstance(start, ir.Value) and linear(start) == linear(0)
            if kept := one_turn and at_origin and here == 1:  # what was evaluated before is there, and stays
                values = self._reduce_loops(stage, inner, values, copies) if inner else \
                    self._accumulate(stage, values, copies, 0)
            elif one_turn:
                base = saved if at_origin else self._bound(start)
                values = self._steps(stage, axis, inner, values, base, here, copies)
            else:
                loop = scf.ForOp(self._bound(start), self._bound(stop), self._index(step), values)
                with ir.InsertionPoint(loop.body):
                    scf.YieldOp(self._steps(stage, axis, inner, list(loop.inner_iter_args), loop.induction_variable, here,
                                            copies))
                values = list(loop.results)
            self.origin[axis], self.guards, self.never, self.early = saved, guards, frozenset(), early
            self.memo = self.memo if kept else {}
            self.tiles[axis] = self.schedule.axes[axis].tile
        return values

    def _told_held(self, axis: int, stop: Linear | int | ir.Value, guarded: bool, one_turn: bool) -> dict[int, Linear | None]:
        """How what a loop along an axis reads, in all its layouts, can be told apart from what kernels write (see `early`)."""
        layouts = {axis, *(twin for twin, other in self.schedule.twins.items() if other == axis)}
        others = {a: end for a, end in self.early.items() if a not in layouts}
        if self._held_extent(axis) is None or (guarded and not one_turn):
            return others
        assert guarded or not isinstance(stop, ir.Value), "a loop over what is held ends at a known length"
        return others | dict.fromkeys(layouts, None if guarded else linear(stop))

    def _bound(self, bound: Linear | int | ir.Value) -> ir.Value:
        return bound if isinstance(bound, ir.Value) else self._value(linear(bound))

    def _steps(self, stage: list[Reduction], axis: int, inner: list[int], values: list[ir.Value], base: ir.Value,
               here: int, copies: int) -> list[ir.Value]:
        for copy in range(here):
            offset = copy * self.tiles[axis]
            self.origin[axis] = arith.addi(base, self._index(offset)) if offset else base
            self.memo = {}
            values = self._reduce_loops(stage, inner, values, copies) if inner else \
                self._accumulate(stage, values, copies, copy)
        return values

    def _accumulate(self, stage: list[Reduction], values: list[ir.Value], copies: int, copy: int) -> list[ir.Value]:
        values = list(values)
        for i, reduction in enumerate(stage):
            position = i * copies + copy
            with reduction.op.operation.location:
                values[position] = self._accumulated(reduction, values[position])
        return values

    def _held_extent(self, axis: int) -> Linear | None:
        """How much of an axis is read from rows that were there before, where its loops tell that apart."""
        return None

    def _excluded_from(self, axis: int, guard: tuple[Linear, ...]) -> frozenset[Linear]:
        """Conditions that hold nowhere in the tiles of a span."""
        return frozenset()

    def _accumulated(self, reduction: Reduction, accumulator: ir.Value) -> ir.Value:
        op = reduction.op
        index = operand_index(op, 0, reduction.point, self.ranges)
        tail = self._tail(reduction)
        if reduction.contraction and self.schedule.twins:
            return self._twin_product(reduction, index, tail, accumulator)
        if reduction.contraction and self.schedule.dot:
            sides = [self._side(reduction, k, index) for k in (0, 1)]
            zeroed = [self._zero_outside(tail, v) for v in sides]
            return tile.Dot(lhs=zeroed[0], rhs=zeroed[1], acc=accumulator, result=accumulator.type).result
        value = self._operand(op, 0, reduction.point)
        value = self._converted(value, accumulator.type.element_type)
        value = self._select_guard(tail, value, self._neutral_value(reduction))
        if self._in_parts(reduction):
            value = self._reduced_tile(reduction, self._whole(reduction, value), self._partial_sizes(reduction))
        return self._combine(reduction, accumulator, value)

    def _zero_outside(self, guard: tuple[Linear, ...], value: ir.Value) -> ir.Value:
        """An operand that is 0 where a condition does not hold: what is read under it is, and what rings fetch past the end."""
        load = defining_op(value)
        if isinstance(load, tile.Load) and (self.schedule.rings or
                                            (load.mask is not None and {*guard} <= {*map_results(load.mask)})):
            return value
        return self._select_guard(guard, value, 0.0)

    def _in_parts(self, reduction: Reduction) -> bool:
        """Whether what one thread holds of a tile becomes one partial result in each turn."""
        return self.structure.online

    def _tail(self, reduction: Reduction) -> tuple[Linear, ...]:
        """The conditions under which elements along a reduction's axes exist."""
        return tuple(g for g in self.guards if any(Dim(a) in g.atoms() for a in reduction.axes))

    def _whole(self, reduction: Reduction, value: ir.Value) -> ir.Value:
        """A tile with all its elements along a reduction's axes, also where they are equal."""
        return self._broadcast(value, [self.tiles[a] if a in reduction.axes else n for a, n in enumerate(value.type.shape)])

    def _twin_product(self, reduction: Reduction, index: Index, tail: tuple[Linear, ...], accumulator: ir.Value) -> ir.Value:
        """A product whose right operand is read along the twin of its columns, and of its depth if that has one."""
        (column, twin), *_ = self._twins_of(reduction).items()
        lhs = self._zero_outside(tail, self._side(reduction, 0, index))
        rhs = self._zero_outside(self._along_twins(reduction, tail), self._side(reduction, 1, index))
        return tile.DotTwin(column=column, twin=twin, depth=reduction.axes[0], depth_twin=self.schedule.depth_twin, lhs=lhs,
                            rhs=rhs, acc=accumulator, result=accumulator.type).result

    def _twins_of(self, reduction: Reduction) -> dict[int, int]:
        """The axes of a product with a second layout, along which its right operand is read: its columns, and its depth if that
        has one, each with that layout."""
        point = operand_index(reduction.op, 0, reduction.point, self.ranges)
        right = self._axes_of(operand_index(defining_op(reduction.op.operand), 1, point, self.ranges)) - {*reduction.axes}
        twins, depth = self.schedule.twins, self.schedule.depth_twin
        columns = next((axis, twin) for twin, axis in twins.items() if axis in right)
        return dict([columns] if depth is None else [columns, (twins[depth], depth)])

    def _along_twins(self, reduction: Reduction, expressions: Index) -> Index:
        """What a product's right operand reads, or is under, along its twins."""
        there: dict[Atom, Linear] = {Dim(axis): dim(twin) for axis, twin in self._twins_of(reduction).items()}
        return tuple(substitute(e, there, self.ranges) for e in expressions)

    def _side(self, reduction: Reduction, k: int, index: Index) -> ir.Value:
        """An operand of a product: with a tensor core a warp, the right one along the twin of its columns."""
        product = defining_op(reduction.op.operand)
        if k == 0 or not self.schedule.twins:
            return self._operand(product, k, index)
        guards, origin = self.guards, self.origin
        self.guards, self.origin = self._along_twins(reduction, guards), [*origin]
        for axis, twin in self._twins_of(reduction).items():
            self.origin[twin] = origin[axis]
        value = self._operand(product, 1, self._along_twins(reduction, index))
        self.guards, self.origin = guards, origin
        return value

    def _accumulator_shape(self, reduction: Reduction) -> list[int]:
        index = operand_index(reduction.op, 0, reduction.point, self.ranges)
        axes = self._axes_below(reduction.op.operand, index) | self._axes_of(operand_bound(reduction.op, 0, reduction.point))
        if reduction.contraction and self.schedule.dot:
            shape = self._shape(axes - set(reduction.axes))
            for a in reduction.axes:  # one partial sum for every thread along the axis, or where they share it every warp
                axis = self.schedule.axes[a]
                by_warps = self.schedule.twins or self.schedule.cores
                shape[a] = 1 if self.schedule.rings else axis.warps if by_warps else axis.threads
            return shape
        if any(self.tiles[a] > 1 for a in reduction.axes):
            axes |= set(reduction.axes)
        shape = self._shape(axes)
        if self._in_parts(reduction):
            sizes = self._partial_sizes(reduction)
            for a in reduction.axes:
                shape[a] = sizes[a]
        return shape

    def _partial_sizes(self, reduction: Reduction) -> list[int]:
        """What a chain carries along each axis: one part a thread, but with tensor cores one maximum for all of a row, and with
        a tensor core a warp one of everything."""
        shared = self.schedule.tensor and isinstance(reduction.op, primop.Max)
        return [1 if shared else axis.warps if self.schedule.twins else axis.threads for axis in self.schedule.axes]

    def _neutral_value(self, reduction: Reduction) -> float | int:
        if isinstance(reduction.op, primop.Sum):
            return 0
        element = primop.element_type(reduction.op.operand)
        return float("-inf") if str(element) in primop.FLOATS else -(1 << (ir.IntegerType(element).width - 1))

    def _neutral(self, reduction: Reduction, shape: Sequence[int]) -> ir.Value:
        element = primop.element_type(reduction.op.operand)
        if str(element) in primop.FLOATS:
            element = ir.F32Type.get()
        return self._splat(self._neutral_value(reduction), element, shape)

    def _combine(self, reduction: Reduction, a: ir.Value, b: ir.Value) -> ir.Value:
        a, b = self._aligned(a, b)
        is_float = str(a.type.element_type) in primop.FLOATS
        if isinstance(reduction.op, primop.Sum):
            return arith.addf(a, b) if is_float else arith.addi(a, b)
        return arith.maximumf(a, b) if is_float else arith.maxsi(a, b)
