"""A loop over a long row whose sums are mended when what they need changes (the algebra is in primop/online_rows.py).

Every thread carries what it has seen of the row: its maximum, its plain sums, and for each sum that waits for these either
one number, relative to that maximum, or count, mean and squares. After the loop the plain reductions are combined first, and
then the others, whose parts are mended to what the whole row gave: as tiles, so that any layout can combine them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from mlir import ir
from mlir.dialects import arith

from tilec.dialects import primop
from tilec.pipelines.emit.online_loops import OnlineLoops, exp2_of_factor
from tilec.pipelines.emit.reductions import is_one_turn
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.primop.online_rows import Factor, Squares, match_mend
from tilec.pipelines.primop.structure import MENDED, Reduction

OF_SQUARES = 4  # values that a thread carries for a sum of squares: see _merged


@dataclass(frozen=True)
class _Row:
    """The reductions of a stage, those that wait with how they are mended."""

    plain: list[Reduction]
    waiting: list[tuple[Reduction, Factor | Squares]]

    def in_parts(self, reduction: Reduction) -> bool:
        """Whether a thread carries one number of a reduction: all that wait and the maxima that they are relative to."""
        maxima = [mend.maximum for _, mend in self.waiting if isinstance(mend, Factor)]
        return reduction not in self.plain or reduction.op in maxima

    def largest(self, mend: Factor) -> Reduction:
        """The maximum that a sum is relative to."""
        return next(r for r in self.plain if r.op == mend.maximum)


class OnlineRows(OnlineLoops):
    """Stages in which sums share a loop with reductions that they need."""

    row: _Row | None = None  # the stage whose loop is being written

    def _in_parts(self, reduction: Reduction) -> bool:
        return self.row.in_parts(reduction) if self.row is not None else super()._in_parts(reduction)

    def _accumulate(self, stage: list[Reduction], values: list[ir.Value], copies: int, copy: int) -> list[ir.Value]:
        if self.row is None:
            return super()._accumulate(stage, values, copies, copy)
        return self._accumulate_row(self.row, list(values))

    def _mended_stage(self, stage: list[Reduction]) -> None:
        plain = [r for r in stage if MENDED not in r.op.operation.attributes]
        waiting = [r for r in stage if r not in plain]
        if all(is_one_turn(start, stop, step) for start, stop, step, _ in self._spans(stage[0].axes[0], 1)):
            self._stage(plain)  # what one tile holds is at hand for both
            self._stage(waiting)
            return
        self.row = row = _Row(plain, [(r, self._mend_of(r, plain)) for r in waiting])
        start = []
        for reduction in plain:
            start.append(self._neutral(reduction, self._accumulator_shape(reduction)))
            self.reduced[reduction.op] = start[-1]  # its shape is all that the others need yet
        for reduction, mend in row.waiting:
            one = self._neutral(reduction, self._accumulator_shape(reduction))
            start += [one] * (1 if isinstance(mend, Factor) else OF_SQUARES)
        final = iter(self._reduce_loops(stage, list(stage[0].axes), start, 1))
        self.row, self.memo = None, {}
        parts = {reduction.op: next(final) for reduction in plain}
        for reduction in plain:
            self._finished(reduction, self._reduced_tile(reduction, parts[reduction.op]))
        for reduction, mend in row.waiting:
            with reduction.op.operation.location:
                if isinstance(mend, Factor):
                    seen = parts[mend.maximum]
                    factor = self._factor(mend, seen, self._reduced_tile(row.largest(mend), seen))
                    value = self._times(next(final), factor)
                else:
                    value = self._about(mend, list(islice(final, OF_SQUARES)))
                self._finished(reduction, self._reduced_tile(reduction, value))

    def _mend_of(self, reduction: Reduction, plain: list[Reduction]) -> Factor | Squares:
        mend = match_mend(reduction, [r.op for r in plain], self.structure)
        if mend is None:
            raise PassFailure("a sum is marked to share the loop of what it needs, but cannot be mended",
                              reduction.op.operation.location)
        return mend

    def _finished(self, reduction: Reduction, value: ir.Value) -> None:
        self.reduced[reduction.op] = self._converted(value, primop.element_type(reduction.op.result))

    def _accumulate_row(self, row: _Row, values: list[ir.Value]) -> list[ir.Value]:
        before = {r.op: v for r, v in zip(row.plain, values, strict=False)}
        after = {}
        for reduction in row.plain:
            with reduction.op.operation.location:
                after[reduction.op] = self._accumulated(reduction, before[reduction.op])
        result, carried = list(after.values()), iter(values[len(after):])
        for reduction, mend in row.waiting:
            with reduction.op.operation.location:
                if isinstance(mend, Factor):
                    factor = self._factor(mend, before[mend.maximum], after[mend.maximum])
                    self._finished(row.largest(mend), self._reference(after[mend.maximum]))
                    result.append(self._accumulated(reduction, self._times(next(carried), factor)))
                else:
                    result += self._merged(reduction, mend, list(islice(carried, OF_SQUARES)))
        return result

    # Exponentials of distances from a maximum -------------------------------------------------------------------------

    def _reference(self, largest: ir.Value) -> ir.Value:
        """A finite number where all that has been seen is -inf: the exponentials are then zero, and not of inf - inf."""
        nothing = arith.cmpf(arith.CmpFPredicate.OEQ, largest, self._like(largest, float("-inf")))
        return arith.select(nothing, self._like(largest, 0.0), largest)

    def _factor(self, mend: Factor, before: ir.Value, after: ir.Value) -> ir.Value:
        """What turns a sum that saw one maximum into one that saw another; 1 where they are equal, also at -inf."""
        before, after = self._aligned(before, after)
        memo, known = self.memo, self.reduced[mend.maximum]
        terms = []
        for largest in (before, after):
            self.memo, self.reduced[mend.maximum] = {}, self._converted(largest, primop.element_type(mend.maximum.result))
            terms.append(self._converted(self._evaluate(mend.term, mend.index), largest.type.element_type))
        self.memo, self.reduced[mend.maximum] = memo, known
        difference = self._less(terms[1], terms[0])
        power = exp2_of_factor(self._times(difference, self._like(difference, mend.scale)))
        return arith.select(arith.cmpf(arith.CmpFPredicate.OEQ, before, after), self._like(before, 1.0), power)

    # Squares of distances from a mean ---------------------------------------------------------------------------------

    def _merged(self, reduction: Reduction, mend: Squares, carried: Sequence[ir.Value]) -> list[ir.Value]:
        """What was seen before and this tile: reference, count, mean, squares (Chan, Golub and LeVeque 1983, (2.1)).

        The mean is kept as its distance from the reference, the mean of the first tile, so that it has all its digits.
        """
        reference, count, mean, squares = carried
        tail, sizes = self._tail(reduction), self._partial_sizes(reduction)

        def existing(tile: ir.Value) -> ir.Value:
            return self._whole(reduction, self._select_guard(tail, tile, 0.0))

        def summed(tile: ir.Value) -> ir.Value:
            return self._reduced_tile(reduction, tile, sizes)

        value = existing(self._converted(self._operand(mend.shifted, 1 - mend.late, mend.point), count.type.element_type))
        here = summed(existing(self._like(value, 1.0))) if tail else \
            self._like(count, self.tiles[reduction.axes[0]] // sizes[reduction.axes[0]])
        divisor = arith.maximumf(here, self._like(here, 1.0)) if tail else here
        first = arith.cmpf(arith.CmpFPredicate.OEQ, count, self._like(count, 0.0))
        reference = arith.select(*self._aligned(first, self._over(summed(value), divisor), reference))
        near = existing(self._less(value, reference))
        center = self._over(summed(near), divisor)
        distance = existing(self._less(near, center))
        total = self._plus(count, here)
        share = self._over(here, arith.maximumf(total, self._like(total, 1.0)) if tail else total)
        step = self._less(center, mean)
        between = self._times(self._times(step, step), self._times(count, share))
        within = summed(self._times(distance, distance))
        return [reference, total, self._plus(mean, self._times(step, share)), self._plus(squares, within, between)]

    def _about(self, mend: Squares, carried: Sequence[ir.Value]) -> ir.Value:
        """The squares of all that a part has seen, of distances from what is known now."""
        reference, count, mean, squares = carried
        late = self._converted(self._operand(mend.shifted, mend.late, mend.point), mean.type.element_type)
        distance = self._plus(self._plus(reference, late), mean)
        return self._plus(squares, self._times(count, self._times(distance, distance)))

    # Arithmetic on tiles that broadcast ---------------------------------------------------------------------------------

    def _plus(self, first: ir.Value, *others: ir.Value) -> ir.Value:
        for other in others:
            first = arith.addf(*self._aligned(first, other))
        return first

    def _less(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.subf(*self._aligned(a, b))

    def _times(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.mulf(*self._aligned(a, b))

    def _over(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.divf(*self._aligned(a, b))

    def _like(self, value: ir.Value, number: float) -> ir.Value:
        return self._splat(number, value.type.element_type, value.type.shape)
