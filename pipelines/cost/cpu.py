"""Schedules for a CPU: vectors along one axis, and as many accumulators as hide the latency of a multiply-add."""

from __future__ import annotations

from math import prod

from tilec.dialects.schedule import Schedule
from tilec.pipelines.cost.plan import Plan, contraction_operands, largest, roles_of
from tilec.pipelines.primop.structure import Reduction, Structure, is_contiguous
from tilec.pipelines.targets import CpuTarget

LATENCY = 4  # cycles until a product can be added to; two start in each
NEAR_BYTES = 32  # that a core gets from its second-level cache in a cycle
# Tiles of a product, beside the one that is taken: rows, vectors, copies over the reduced axis.
WITH_ROWS = ((4, 2, 1), (8, 1, 1), (4, 4, 1), (8, 2, 1), (12, 2, 1), (2, 4, 1), (16, 1, 1), (4, 1, 2))
WITH_ONE_ROW = ((1, 1, 4), (1, 1, 8), (1, 2, 2), (1, 2, 4), (1, 4, 1), (1, 4, 2), (1, 1, 2))


class CpuPlan(Plan):
    """Vectors along one axis; enough independent accumulators to hide the latency of a fused multiply-add."""

    def __init__(self, structure: Structure, target: CpuTarget, take: int = 0) -> None:
        super().__init__(structure, take)
        self.lanes, self.registers = target.lanes, target.registers

    def _fit(self, axis: int, vectors: int) -> int:
        """At most `vectors` registers along an axis, fewer for short axes."""
        have = -(-largest(self.structure, axis) // self.lanes)
        return next(n for n in (8, 4, 2, 1) if n <= vectors and (n <= have or n == 1))

    def online(self) -> Schedule:
        """A chain of reductions one element at a time, vectors along what the last sum keeps."""
        s = self.structure
        cache = [a for a in s.accesses if not a.store]
        for d in s.inner:  # one tile holds all of it: the accumulators live through the loop
            size = largest(s, d)
            vectors = size % self.lanes == 0 and any(is_contiguous(a.offset, [(d, self.lanes)], s.ranges) for a in cache)
            self.set(d, size // self.lanes if vectors else size, vector=self.lanes if vectors else 1)
        return self.schedule(dot=True)

    def elementwise(self) -> Schedule:
        axis = self.streamed_axis()
        if axis is not None and largest(self.structure, axis) >= self.lanes:
            self.set(axis, self._fit(axis, 4), vector=self.lanes)
        return self.schedule()

    def contraction(self, reduction: Reduction) -> Schedule:
        s, lanes = self.structure, self.lanes
        roles = roles_of(s, reduction)
        left, right = contraction_operands(s, reduction)
        k = roles.reduced[-1]
        for kept, other, operand in ((roles.right, roles.left, right), (roles.left, roles.right, left)):
            for n in reversed(kept):
                pairs = self.contiguous(operand, (n, lanes), (k, 2))
                if pairs or self.contiguous(operand, (n, lanes)):
                    return self._outer(n, [a for a in other if a != n], k, 2 if pairs else 1, reduction)
        if self.contiguous(left, (k, lanes)) and self.contiguous(right, (k, lanes)):
            self.set(k, self._fit(k, 4), vector=lanes)
            free = [a for a in (*roles.left, *roles.right) if largest(s, a) > 1]
            if free:
                self.set(free[-1], 4)
            return self.schedule()
        free = [a for a in (*roles.left, *roles.right) if largest(s, a) >= 4]
        if free:
            self.set(free[-1], 4)
        return self.schedule(dot=True)

    def _outer(self, n: int, others: list[int], k: int, pair: int, reduction: Reduction) -> Schedule:
        s = self.structure
        rows = [a for a in others if largest(s, a) > 1]
        together = len([r for r in s.stages[0] if r.contraction])
        together *= prod(self.tile[a] for a in s.mirrored)
        each, panels, copies = self.pick(self._accumulators(n, rows, k, pair, together))
        if rows:
            self.set(rows[-1], each)
        self.set(n, panels, vector=self.lanes)
        self.set(k, 1, vector=pair)
        order = [a for a in s.grid if a != rows[-1]] + [rows[-1]] if rows and rows[-1] in s.grid else ()
        return self.schedule(order, copies, dot=True)

    def _accumulators(self, n: int, rows: list[int], k: int, pair: int,
                      together: int) -> list[tuple[float, str, tuple[int, int, int]]]:
        """Rows and vectors of a tile and copies over k, each with its cycles. One row has few accumulators: independent copies
        over k keep several products in flight."""
        s, panels = self.structure, self._fit(n, 2 if rows else 1)
        shapes = [(8 if together == 1 else 4, panels, 1)] if rows else [(1, panels, max(1, 4 // (panels * together)))]
        for each, wanted, copies in WITH_ROWS if rows else WITH_ONE_ROW:
            if each <= (largest(s, rows[-1]) if rows else 1) and each * wanted * copies * together <= self.registers:
                shapes.append((each, self._fit(n, wanted), copies))
        known = s.extents[k].constant if s.extents[k].is_constant else 0
        shapes = list(dict.fromkeys((m, p, 1 if known % (c * pair) else c) for m, p, c in shapes))
        found = []
        for each, panels, copies in shapes:
            spilt = max(0, each * panels * together * copies + panels * together + 1 - self.registers)
            step = max(each * panels * together / 2, (panels * together + each) / 2, LATENCY / copies,
                       panels * together * 4 * self.lanes / NEAR_BYTES) + 2 * spilt
            tiles = -(-largest(s, n) // (panels * self.lanes)) * (-(-largest(s, rows[-1]) // each) if rows else 1)
            tiles *= prod(largest(s, a) for a in s.grid if a not in (n, *rows[-1:]))
            name = f"{each} x {panels} vectors" + (f", {copies} copies" if copies > 1 else "")
            found.append((tiles * -(-largest(s, k) // pair) * step, name, (each, panels, copies)))
        return found
