"""A maximum and the sums that use it, in one loop (the algebra is in primop/online_reductions.py)."""

from __future__ import annotations

from mlir import ir
from mlir.dialects import affine, arith, math

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import Dim, Linear, dim, floordiv, linear, make_map, map_results, range_of, substitute
from tilec.pipelines.emit.reductions import Reductions, Span
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.primop.online_reductions import Chain, below_cast, match_power
from tilec.pipelines.primop.outline import body_of
from tilec.pipelines.primop.structure import (
    Index,
    Reduction,
    defining_op,
    dependent_on,
    excludes,
    is_contiguous,
    operand_bound,
    operand_index,
)


def exp2_of_factor(value: ir.Value) -> ir.Value:
    """For factors of sums whose largest is 1: what is below 2^-126 may be zero."""
    return math.exp2(value, fastmath=arith.FastMathFlags.afn)


def _number(constant: ir.Value) -> float:
    return ir.FloatAttr(defining_op(constant).attributes["value"]).value


class OnlineLoops(Reductions):
    """The loop of a chain: what it carries is mended whenever the maximum grows."""

    def _spans(self, axis: int, copies: int) -> list[Span]:
        spans, structure = self._spans_of_all(axis, copies), self.structure
        if structure.part < 0 or axis in structure.inner:
            return spans
        # Programs that share the loop take whole turns one after the other, and the last one what is left.
        (start, most, size, guard), *left = spans
        number, count = self.origin[structure.part], structure.extents[structure.part].constant
        own = arith.muli(number, self._index(size))
        first = arith.addi(start, own) if isinstance(start, ir.Value) else own  # otherwise all begin at 0
        last = arith.cmpi(arith.CmpIPredicate.eq, number, self._index(count - 1))
        rest = [(arith.select(last, self._bound(begin), self._bound(end)), end, step, masked)
                for begin, end, step, masked in left]
        return [(first, most, size * count, guard), *rest]

    def _spans_of_all(self, axis: int, copies: int) -> list[Span]:
        extent, size, threads = self.structure.extents[axis], self.tiles[axis], self.schedule.axes[axis].threads
        if not self.structure.online or axis in self.structure.inner or extent.is_constant:
            return super()._spans(axis, copies)
        guard = (extent - 1 - dim(axis),)
        if self._first_exclusions(axis):
            return self._window_spans(axis, guard)
        if self.schedule.tensor:
            whole = self._rounded(self._live_extent(axis, whole=True), size, up=False)
            end = self._rounded(self._live_extent(axis, whole=False), size, up=True)
            return [(0, whole, size, ()), (whole, end, size, guard)]
        if size <= threads:
            return super()._spans(axis, copies)
        held, least = self._held_extent(axis), self._least_turn(axis)
        most = floordiv(extent if held is None else held, size) * size
        if held is not None and self.structure.part < 0 and (extent - held).constant <= 1:
            # One turn takes what is left, and what kernels write. It comes first, so that the others find its registers free.
            return [(most, most + size, size, guard), (0, most, size, ())]
        return [(0, most, size, ()), (most, extent, least, guard if least > 1 or held is not None else ())]

    def _least_turn(self, axis: int) -> int:
        """What a turn takes of what is left: one element a thread, as a whole turn would mostly compute what does not exist. A
        tensor core a warp takes no less."""
        size = self.tiles[axis]
        return size if self.schedule.twins else min(size, self.schedule.axes[axis].threads)

    def _held_extent(self, axis: int) -> Linear | None:
        ends = {rows for _, rows in self.held.values()}
        if not self.structure.online or len(ends) != 1 or self.schedule.tensor or self._first_exclusions(axis) or \
                self.tiles[axis] <= self.schedule.axes[axis].threads:
            return None
        end = ends.pop()
        beyond = self.structure.extents[axis] - end
        return end if beyond.is_constant and beyond.constant >= 0 and not self.structure.extents[axis].is_constant else None

    def _window_spans(self, axis: int, guard: tuple[Linear, ...]) -> list[Span]:
        """The loops of a chain whose mask excludes what comes first: tiles are counted from the first element that is seen.

        With tensor cores, tiles that not all rows see whole are masked, at both ends.
        """
        size = self.tiles[axis]
        begin = self._live_start(axis, whole=False)
        if not self._begins_anywhere(axis):
            begin = self._rounded(begin, size, up=False)

        def counted(value: ir.Value, up: bool) -> ir.Value:
            return arith.addi(begin, self._rounded(arith.subi(arith.maxsi(value, begin), begin), size, up))

        if self.schedule.tensor:
            end = counted(self._live_extent(axis, whole=False), up=True)
            clear = arith.minsi(counted(self._live_start(axis, whole=True), up=True), end)
            whole = arith.maxsi(counted(self._live_extent(axis, whole=True), up=False), clear)
            return [(begin, clear, size, guard), (clear, whole, size, ()), (whole, end, size, guard)]
        end = self._value(self.structure.extents[axis])
        if size == 1:
            return [(begin, end, 1, ())]
        most = counted(end, up=False)
        least = self._least_turn(axis)
        return [(begin, most, size, ()), (most, end, least, guard if least > 1 else ())]

    def _begins_anywhere(self, axis: int) -> bool:
        """Whether tiles along an axis need not begin at multiples of their size: nothing reads neighbours along it at once,
        and no view takes a dimension of its extent apart."""
        extent = self.structure.extents[axis]
        if any(is_contiguous(a.offset, [(axis, 2)], self.ranges) for a in self.structure.accesses):
            return False
        ops = [o for o in body_of(self.structure.function).operations if "maps" in o.operation.attributes]
        return not any(Dim(d) in e.nonlinear_atoms() for o in ops for place in (*o.maps, *(o.bounds or ()))
                       for e in map_results(place) for d, n in enumerate(primop.space_of(o)) if n == extent)

    def _excluded_from(self, axis: int, guard: tuple[Linear, ...]) -> frozenset[Linear]:
        if not self.structure.online or (self.schedule.tensor and guard):
            return frozenset()
        if self.schedule.tensor:
            return frozenset(self._exclusions(axis))
        first = self._first_exclusions(axis)
        rows = {a for e in first for a in e.atoms() if isinstance(a, Dim) and a != Dim(axis)}
        behind = first and all(self.tiles[a.position] == 1 for a in rows) and self._begins_anywhere(axis)
        # What follows all that the loop takes, or all that exists.
        held = self._held_extent(axis) if not guard else None
        last = (self.structure.extents[axis] if held is None else held) - 1
        sums = {e: range_of(e + last - dim(axis), self.ranges) for e in self._exclusions(axis)}
        beyond = [e for e, bounds in sums.items() if bounds is not None and bounds[1] < 0]
        return frozenset((*first, *beyond) if behind else beyond)

    def _accumulate(self, stage: list[Reduction], values: list[ir.Value], copies: int, copy: int) -> list[ir.Value]:
        if self.structure.online:
            return self._accumulate_online(stage, list(values))
        return super()._accumulate(stage, values, copies, copy)

    def _online_stage(self, stage: list[Reduction]) -> None:
        maximum, chain = stage[0], self._chain(stage)
        for a in self.structure.inner:
            if self.structure.extents[a] != linear(self.tiles[a]):
                raise PassFailure(f"an online chain needs axis {self.schedule.axes[a].name} in one tile, but its extent is "
                                  f"{self.structure.extents[a]} and its tile {self.tiles[a]}", maximum.op.operation.location)
        start = []
        for reduction in stage:
            start.append(self._neutral(reduction, self._accumulator_shape(reduction)))
            self.reduced[reduction.op] = start[-1]  # its shape is all that the others need yet
        largest, *sums = self._reduce_loops(stage, list(maximum.axes), start, 1)
        axes = [a for a in maximum.axes if largest.type.shape[a] > 1]
        self.reduced[maximum.op] = self._reduced_tile(maximum, largest)  # removed again where nobody reads it
        for reduction, value in zip(stage[1:], sums, strict=True):
            if not axes:  # all parts are relative to one maximum
                value = self._reduced_tile(reduction, value)
            else:
                shape = [1 if a in axes else n for a, n in enumerate(value.type.shape)]
                kind = ir.VectorType.get(shape, value.type.element_type)
                value = tile.ReduceOnline(scale=_number(chain.scale), floor=chain.floor, axes=axes, maximum=largest,
                                          value=value, result=kind).result
            self.reduced[reduction.op] = self._converted(value, primop.element_type(reduction.op.result))

    def _accumulate_online(self, stage: list[Reduction], values: list[ir.Value]) -> list[ir.Value]:
        maximum, chain = stage[0], self._chain(stage)
        late = dependent_on(body_of(self.structure.function).operations, [maximum.op])
        for reduction in stage[1:]:  # what does not wait for the maximum is read now
            if reduction.contraction:
                index = operand_index(reduction.op, 0, reduction.point, self.ranges)
                for k, operand in enumerate(defining_op(reduction.op.operand).operands):
                    if defining_op(operand) not in late:
                        self._side(reduction, k, index)
        larger = self._accumulated(maximum, values[0])
        mend = self._mend(chain, maximum, values[0], larger)
        self.reduced[maximum.op] = larger
        result = [larger]
        for reduction, value in zip(stage[1:], values[1:], strict=True):
            with reduction.op.operation.location:
                mended = arith.mulf(*self._aligned(value, mend))
                result.append(self._accumulated(reduction, mended))
        return result

    def _chain(self, stage: list[Reduction]) -> Chain:
        for reduction in stage[1:]:
            operand = defining_op(reduction.op.operand)
            for op in (operand, *(below_cast(v) for v in operand.operands)):
                chain = match_power(op)
                if chain is not None:
                    return chain
        raise PassFailure("an online chain has no exponential of its maximum", stage[0].op.operation.location)

    def _rounded(self, value: ir.Value, size: int, up: bool) -> ir.Value:
        count = (arith.ceildivui if up else arith.divui)(value, self._index(size))
        return arith.muli(count, self._index(size))

    def _live_extent(self, axis: int, whole: bool) -> ir.Value:
        """The end of a chain's axis for this program: its extent, or where a mask begins that excludes all that follows.

        A summand that is -inf where a condition `axis - rest >= 0` holds excludes, for every element of the tile, what
        lies past the largest `rest`; with `whole`, for no element what lies before the smallest.
        """
        end = self._value(self.structure.extents[axis])
        for condition in self._exclusions(axis):
            if condition.coefficient(Dim(axis)) > 0:
                limit = self._extreme(axis, dim(axis) - condition, largest=not whole)
                end = arith.minsi(end, arith.maxsi(limit, self._index(0)))
        return end

    def _live_start(self, axis: int, whole: bool) -> ir.Value:
        """The begin of a chain's axis for this program: 0, or where a mask ends that excludes all that comes first.

        A summand that is -inf where a condition `rest - axis >= 0` holds excludes, for every element of the tile, what lies
        up to the smallest `rest`; with `whole`, for no element what lies behind the largest.
        """
        start = self._index(0)
        for condition in self._first_exclusions(axis):
            start = arith.maxsi(start, self._extreme(axis, condition + dim(axis) + 1, largest=whole))
        return arith.minsi(start, self._value(self.structure.extents[axis]))

    def _extreme(self, axis: int, expr: Linear, largest: bool) -> ir.Value:
        """The largest or the smallest value in a tile of an expression that does not depend on `axis`."""
        known = {Dim(a): dim(a) + (self.tiles[a] - 1 if (expr.coefficient(Dim(a)) > 0) == largest else 0)
                 for a in range(self.rank) if a != axis}
        place = make_map(self.rank, len(self.symbols), [substitute(expr, known)])
        return affine.apply(place, [*self.origin, *self.symbol_values])

    def _first_exclusions(self, axis: int) -> list[Linear]:
        """Those conditions that exclude what comes first, as a window does."""
        return [e for e in self._exclusions(axis) if e.coefficient(Dim(axis)) < 0]

    def _exclusions(self, axis: int) -> list[Linear]:
        """Conditions under which the scores of a chain are -inf: `axis - rest >= 0` or `rest - axis >= 0`."""
        maximum = self.structure.stages[0][0]
        pending, found = [(maximum.op.operand, operand_index(maximum.op, 0, maximum.point, self.ranges))], []
        seen = set()
        while pending:
            value, point = pending.pop()
            op = defining_op(value)
            if not isinstance(op, primop.Add) or (value, point) in seen:
                continue
            seen.add((value, point))
            for k, operand in enumerate(op.operands):
                bound = operand_bound(op, k, point, self.ranges)
                if excludes(operand):
                    found += [e for e in bound if len(bound) == 1 and abs(e.coefficient(Dim(axis))) == 1
                              and not any(a == Dim(axis) or self.tiles[a.position] > 1
                                      for a in e.nonlinear_atoms() if isinstance(a, Dim))]
                else:
                    pending.append((operand, operand_index(op, k, point, self.ranges)))
        return found

    def _mend(self, chain: Chain, maximum: Reduction, before: ir.Value, after: ir.Value) -> ir.Value:
        """The factor exp2(c (m_before - m_after)) that turns sums relative to one maximum into sums relative to another."""
        index = tuple(maximum.point[d] for d in range(len(maximum.point)) if d not in list(maximum.op.dims))
        memo, known = self.memo, self.reduced[maximum.op]
        clamped = []
        for value in (before, after):
            self.memo, self.reduced[maximum.op] = {}, value
            clamped.append(self._evaluate(chain.clamped, index))
        self.memo, self.reduced[maximum.op] = memo, known
        difference = arith.subf(*self._aligned(*clamped))
        scale = self._splat(_number(chain.scale), difference.type.element_type, difference.type.shape)
        return exp2_of_factor(arith.mulf(difference, scale))

    def _is_excluded(self, op: ir.OpView, k: int, point: Index) -> bool:
        """Whether an operand exists nowhere in the tiles of the present loop."""
        return bool(self.never) and any(e in self.never for e in operand_bound(op, k, point, self.ranges))

    def _power(self, chain: Chain, point: Index) -> ir.Value:
        """exp2((x - m) c) as exp2(x c - m c): one multiply-add for every element, the rest once a row."""
        scaled = defining_op(chain.power.operand)
        inside = operand_index(chain.power, 0, point, self.ranges)
        shifted, at = defining_op(scaled.lhs), operand_index(scaled, 0, inside, self.ranges)
        score, negated = (self._operand(shifted, k, at) for k in (0, 1))
        scale = _number(chain.scale)
        offset = arith.mulf(negated, self._splat(scale, negated.type.element_type, negated.type.shape))
        tail = self._tail(self.structure.stages[0][0]) if scale > 0 else ()
        score = self._select_guard(tail, score, float("-inf"))  # as the maximum reads it; its power is 0
        score, offset = self._aligned(score, offset)
        factor = self._splat(scale, score.type.element_type, score.type.shape)
        power = exp2_of_factor(math.fma(score, factor, offset))
        self.zeroed[power] = frozenset(tail)
        return power

    def _special(self, op: ir.OpView, point: Index, element: ir.Type) -> ir.Value | None:
        """The exponential of a chain, and sums with what a mask leaves out in the present loop."""
        if self.structure.online and isinstance(op, primop.Exp2) and (chain := match_power(op)) is not None:
            return self._power(chain, point)
        if isinstance(op, primop.Add) and any(self._is_excluded(op, k, point) for k in (0, 1)):
            kept = 1 if self._is_excluded(op, 0, point) else 0
            return self._converted(self._operand(op, kept, point), element)
        return None
