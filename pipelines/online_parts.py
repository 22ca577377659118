"""Sums of parts that are relative to maxima of their own become sums relative to one maximum, over all threads of a program.

Lanes of a warp combine first, then the groups of a block through shared memory, then the blocks of a cluster through each
other's. The results are dealt out: who stores one combines it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

from mlir import ir
from mlir.dialects import arith, math, scf, vector

from tilec.dialects import kernel, tile
from tilec.pipelines.layouts import Coordinates, Fragments, all_of
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.thread_reductions import Deal, ThreadReductions


class OnlineParts(ThreadReductions):
    """The part of a GPU's lowering that combines what an online loop has left in each thread."""

    def reduce_online(self, ops: list[tile.ReduceOnline]) -> list[Fragments]:
        """Every exchange takes maxima and sums together, and deals the results out: who stores one combines it."""
        axes = [a for a in ops[0].axes if self.schedule.axes[a].threads > 1]
        maximum, sums = self.tiles[ops[0].maximum], [self.tiles[op.value] for op in ops]
        if len(axes) != 1 or maximum.layout.length != 1 or (self.deal and self.deal.axis != axes[0]):
            raise PassFailure("an online reduction over threads needs one axis and scalar maxima", ir.Location.current)
        self._check_no_loop()
        axis = axes[0]
        apart = axis in self.shared_lanes  # whose lanes hold different elements, each with all of the warp's parts
        most = max((f.layout.registers for f in sums), key=prod) if apart else maximum.layout.registers
        self.deal = Deal(axis, tuple((i, 1, n) for i, n in enumerate(most) if n > 1)[:1])
        parts = _Parts(self, maximum, sums, ops[0].scale, ops[0].floor)
        if self._near(axis) > 1 and not apart:
            parts.shuffle(self._lanes_of(axis))
        groups, cluster = self._local(axis) // self._near(axis), self.schedule.axes[axis].cluster
        speaks, alive = None if apart else self._is_near_first(axis), self._alive() if self.padded else None
        far, deal = self._far(axis), self.deal

        def group_of(at: Coordinates) -> int:
            return deal.turn(at, groups)

        if groups > 1:
            base, distances, size = self._slots([axis], {axis: groups}, apart)
            memory, step = parts.memory(size), distances[1]
            with self._when(speaks, alive):
                parts.leave(memory, arith.addi(base, self._scaled(far, step)), parts.with_maxima(list(parts.sums)))
            self._barrier()
            parts.collect(
                lambda buffer, at, length, kind, group: kernel.LoadShared(
                    buffer=buffer, offset=self._at((at, group * step * length)), result=kind).result,
                memory, base, groups, group_of, lambda turn: all_of(speaks, self._is(far, turn)))
        if cluster > 1:
            base, _, size = self._slots([axis], {axis: 1}, apart)
            memory, rank = parts.memory(size), self._rank()
            for i, turn in enumerate(parts.turns(group_of)):
                with self._when(speaks, self._is(far, turn), alive):
                    own = parts.with_maxima(parts.taken(turn, group_of))
                    parts.leave(memory, base, [key for key in own if i == 0 or key not in parts.common])
            with self._reads_of_others() as found:
                parts.collect(
                    lambda buffer, at, length, kind, group: self._read_remote(buffer, at, kind, self._index(group)),
                    memory, base, cluster, lambda at: (deal.turn(at, cluster), group_of(at)),
                    lambda turn: all_of(speaks, self._is(rank, turn[0]), self._is(far, turn[1])))
                found += [s for value in parts.sums.values() for s in self._scalars(value)]
        return [Fragments(self.layout(op.result.type.shape), f.element, {
            tuple(0 if i == axis else x for i, x in enumerate(at)): parts.sums[n, at] for at in f.values})
            for n, (op, f) in enumerate(zip(ops, sums, strict=True))]


Key = tuple[int, Coordinates]


class _Parts:
    """Maxima and sums of one thread on their way to being the program's."""

    def __init__(self, lowering: ThreadReductions, maximum: Fragments, sums: list[Fragments], scale: float,
                 floor: float) -> None:
        self.lowering, self.scale, self.floor = lowering, scale, floor
        self.registers = maximum.layout.registers
        self.maxima = dict(maximum.values)
        self.sums: dict[Key, ir.Value] = {(n, at): v for n, f in enumerate(sums) for at, v in f.values.items()}
        # Where others are dealt by an axis that maxima and some sums do not vary along, all who play need these.
        dealt = [axis for axis, _, _ in lowering.deal.registers if self.registers[axis] == 1] if lowering.deal else []
        self.common: set[object] = {(n, at) for n, f in enumerate(sums) for at in f.values
                                    if any(f.layout.registers[axis] == 1 for axis in dealt)}
        self.common |= {*self.maxima} if dealt else set()

    def turns(self, turn_of: Callable[[Coordinates], Any]) -> list[Any]:
        """Who plays, in order."""
        return list(dict.fromkeys(turn_of(at) for n, at in self.sums if (n, at) not in self.common))

    def taken(self, turn: Any, turn_of: Callable[[Coordinates], Any]) -> list[Key]:
        """The sums that one of them takes."""
        return [key for key in self.sums if key in self.common or turn_of(key[1]) == turn]

    def _of(self, key: Key) -> Coordinates:
        """The maximum that a sum is relative to."""
        return tuple(0 if n == 1 else x for x, n in zip(key[1], self.registers, strict=True))

    def _weight(self, before: ir.Value, after: ir.Value) -> ir.Value:
        low, scale = (self.lowering.constant(x, before.type) for x in (self.floor, self.scale))
        difference = arith.subf(arith.maximumf(before, low), arith.maximumf(after, low))
        return math.exp2(arith.mulf(difference, scale), fastmath=arith.FastMathFlags.afn)

    def _times(self, value: ir.Value, weight: ir.Value) -> ir.Value:
        return arith.mulf(value, self._widened(weight, value))

    def _widened(self, weight: ir.Value, value: ir.Value) -> ir.Value:
        return self.lowering.splat(weight, self._length(value))

    def shuffle(self, lanes: list[int]) -> None:
        """Combines over the lanes of a warp."""
        def reduced(kind: tile.ReduceKind, value: ir.Value) -> ir.Value:
            return kernel.WarpReduce(kind=kind, lanes=lanes, value=value, result=value.type).result

        after = {at: reduced(tile.ReduceKind.MAX, m) for at, m in self.maxima.items()}
        weights = {at: self._weight(m, after[at]) for at, m in self.maxima.items()}
        for key, value in self.sums.items():
            mended = self._times(value, weights[self._of(key)])
            scalars = [reduced(tile.ReduceKind.ADD, s) for s in self.lowering._scalars(mended)]
            self.sums[key] = vector.from_elements(mended.type, scalars) if len(scalars) > 1 else scalars[0]
        self.maxima = after

    def memory(self, slots: int) -> dict[object, tuple[ir.Value, int]]:
        """Room for everything, `slots` of each: (buffer, where it starts) of every maximum and sum."""
        places: dict[object, tuple[ir.Value, int]] = {}
        for length in sorted({self._length(v) for v in self.sums.values()} | {1}):
            keys: list[object] = [k for k, v in self.sums.items() if self._length(v) == length]
            keys += list(self.maxima) if length == 1 else []
            buffer = self.lowering._shared(len(keys) * slots * length, next(iter(self.maxima.values())).type)
            places |= {key: (buffer, i * slots * length) for i, key in enumerate(keys)}
        return places

    @staticmethod
    def _length(value: ir.Value) -> int:
        return value.type.shape[0] if isinstance(value.type, ir.VectorType) else 1

    def with_maxima(self, keys: list[Key]) -> list[object]:
        """Sums after the maxima that they are relative to."""
        return [*dict.fromkeys(map(self._of, keys)), *keys]

    def leave(self, memory: dict[object, tuple[ir.Value, int]], slot: ir.Value, keys: list[object]) -> None:
        """Writes some maxima and sums at a slot."""
        for key in keys:
            value = self.maxima[key] if key in self.maxima else self.sums[key]  # type: ignore[index]
            buffer, start = memory[key]
            at = self.lowering._at((self.lowering._scaled(slot, self._length(value)), start))
            kernel.StoreShared(value=value, buffer=buffer, offset=at)

    def collect(self, read: Callable[..., ir.Value], memory: dict[object, tuple[ir.Value, int]], base: ir.Value, groups: int,
                turn_of: Callable[[Coordinates], Any], plays: Callable[[Any], ir.Value | None]) -> None:
        """Combines what `groups` have left from slot `base` on; each sum where it is this thread's turn."""
        for turn in self.turns(turn_of):
            keys = self.taken(turn, turn_of)
            needed = list(dict.fromkeys(map(self._of, keys)))
            olds = [*(self.maxima[at] for at in needed), *(self.sums[key] for key in keys)]
            branch = scf.IfOp(plays(turn), [v.type for v in olds], has_else=True)
            with ir.InsertionPoint(branch.else_block):
                scf.YieldOp(olds)
            with ir.InsertionPoint(branch.then_block), self.lowering._scope():
                def left(key: object, value: ir.Value) -> list[ir.Value]:
                    (buffer, start), length = memory[key], self._length(value)
                    at = self.lowering._at((self.lowering._scaled(base, length), start))
                    return [read(buffer, at, length, value.type, group) for group in range(groups)]

                combined = []
                weights: dict[Coordinates, list[ir.Value]] = {}
                for at in needed:
                    maxima = left(at, self.maxima[at])
                    combined.append(functools.reduce(arith.maximumf, maxima))
                    weights[at] = [self._weight(m, combined[-1]) for m in maxima]
                for key in keys:
                    first, *others = zip(left(key, self.sums[key]), weights[self._of(key)], strict=True)
                    total = self._times(*first)
                    for value, weight in others:
                        total = self.lowering.multiply_add(value, self._widened(weight, value), total)
                    combined.append(total)
                scf.YieldOp(combined)
            results = list(branch.results)
            self.maxima |= zip(needed, results, strict=False)
            self.sums |= zip(keys, results[len(needed):], strict=True)
