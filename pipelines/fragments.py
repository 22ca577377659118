"""A tile is spread over registers (and threads) the same way on every target; this is that way, written once.

By the layout of its axes a tile becomes fragments: one short vector per register coordinate, holding a box of
neighbouring elements. Elementwise ops and broadcasts (`fragment_values.py`), address arithmetic (`accesses.py`), reductions
inside a thread and loop-carried values are then the same for a CPU core and for a GPU thread. A target's lowering derives
from `FragmentLowering` and says how memory is read and written, what a thread's position is, and what instruction a dot
product is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import prod

from mlir import ir
from mlir.dialects import scf, vector

from tilec.dialects import tile
from tilec.pipelines.accesses import Accesses
from tilec.pipelines.layouts import Coordinates, Fragments, Layout, combiner
from tilec.pipelines.passes import PassFailure


class FragmentLowering(Accesses):
    """Rewrites the body of one tile function into ops on fragments at the current insertion point."""

    # The walk -----------------------------------------------------------------------------------------------------

    def lower_block(self, block: ir.Block) -> None:
        """Lowers every op of a block but its terminator."""
        self.lower_ops(list(block.operations)[:-1])

    def lower_ops(self, ops: list[ir.OpView]) -> None:
        while ops and not self.lower_shares(ops):
            together = [ops[0]]
            while len(together) < len(ops) and _alike(ops[0], ops[len(together)]):
                together.append(ops[len(together)])
            with ops[0].operation.location:
                if isinstance(ops[0], tile.Reduce):
                    self._lower_reduces(together)
                elif isinstance(ops[0], tile.ReduceOnline):
                    self.tiles |= zip((op.result for op in together), self.reduce_online(together), strict=True)
                else:
                    self.lower(ops[0])
            ops = ops[len(together):]

    def lower(self, op: ir.OpView) -> None:
        name = op.operation.name
        if isinstance(op, tile.Load | tile.LoadOver | tile.Gather):
            self.tiles[op.result] = self._lower_load(op)
        elif isinstance(op, tile.Store | tile.Scatter):
            self._lower_store(op)
        elif isinstance(op, tile.IndexTile):
            self.tiles[op.result] = self._lower_index(op)
        elif isinstance(op, tile.Dot):
            self.tiles[op.result] = self.dot(op, *(self.tiles[v] for v in op.operands))
        elif isinstance(op, tile.Reverse):
            self.tiles[op.result] = self._lower_reverse(op)
        elif isinstance(op, tile.Alloc):
            self.scalars[op.result] = self.alloc(op.result.type)
        elif isinstance(op, tile.Barrier):
            self.barrier()
        elif isinstance(op, tile.ProgramId):
            self.scalars[op.result] = self.program_id(op.axis)
        elif isinstance(op, tile.SymbolOp):
            self.scalars[op.result] = self.symbol(op.symbol)
        elif isinstance(op, scf.ForOp):
            self._lower_for(op)
        elif isinstance(op, scf.IfOp):
            self._lower_if(op)
        elif name in ("vector.broadcast", "tile.spread"):
            self.tiles[op.results[0]] = self._lower_broadcast(op)
        elif len(op.results) == 1 and isinstance(op.results[0].type, ir.VectorType):
            self.tiles[op.results[0]] = self._lower_elementwise(op)
        else:
            clone = op.operation.clone()
            for i, operand in enumerate(op.operands):
                clone.operands[i] = self.scalars[operand]
            self.scalars.update(zip(op.results, clone.results, strict=True))

    def _lower_for(self, op: scf.ForOp) -> scf.ForOp:
        carried = list(op.operands)[3:]
        start = [v for c in carried for v in self._flatten(c)]
        bounds = [self.scalars[v] for v in list(op.operands)[:3]]
        loop = scf.ForOp(*bounds, start)
        body = op.regions[0].blocks[0]
        self.scalars[body.arguments[0]] = loop.induction_variable
        with ir.InsertionPoint(loop.body), self._scope():
            self._unflatten(list(body.arguments)[1:], list(loop.inner_iter_args), carried)
            self.depth += 1
            self.lower_block(body)
            self.depth -= 1
            yielded = list(body.operations)[-1].operands
            scf.YieldOp([v for y in yielded for v in self._flatten(y)])
        self._unflatten(list(op.results), list(loop.results), carried)
        return loop

    def _lower_if(self, op: scf.IfOp) -> None:
        if len(op.results):
            raise PassFailure("a branch of a tile function cannot have results", op.operation.location)
        blocks = [r.blocks[0] for r in op.regions if len(r.blocks)]
        branch = scf.IfOp(self.scalars[op.operands[0]], has_else=len(blocks) > 1)
        for source, into in zip(blocks, [branch.then_block, branch.else_block] if len(blocks) > 1 else [branch.then_block],
                                strict=True):
            with ir.InsertionPoint(into), self._scope():
                self.lower_block(source)
                self.end_block()
                scf.YieldOp([])

    def _flatten(self, value: ir.Value) -> list[ir.Value]:
        return list(self.tiles[value].values.values()) if value in self.tiles else [self.scalars[value]]

    def _unflatten(self, old: list[ir.Value], new: list[ir.Value], like: list[ir.Value]) -> None:
        remaining = iter(new)
        for value, model in zip(old, like, strict=True):
            if model in self.tiles:
                known = self.tiles[model]
                self.tiles[value] = Fragments(known.layout, known.element, {c: next(remaining) for c in known.values})
            else:
                self.scalars[value] = next(remaining)

    # Reductions inside a thread -----------------------------------------------------------------------------------

    def _lower_reduces(self, ops: list[tile.Reduce]) -> None:
        """Reductions of one kind along the same axes, one after the other: what they exchange between threads is shared."""
        first, axes = ops[0], list(ops[0].axes)
        values: dict[Coordinates, ir.Value] = {}  # the number of the op follows the register coordinates
        for n, op in enumerate(ops):
            source = self.tiles[op.value]
            combine = combiner(op.kind, source.element)
            partial: dict[Coordinates, ir.Value] = {}
            for c, value in source.values.items():
                at = (*(0 if i in axes else x for i, x in enumerate(c)), n)
                partial[at] = combine(partial[at], value) if at in partial else value
            values |= {c: self._reduce_inside(v, source.layout.box, axes, op.kind, combine) for c, v in partial.items()}
        before, after = list(first.value.type.shape), list(first.result.type.shape)
        schedule = self.schedule.axes
        threads = [a for a in axes if before[a] > 1 and schedule[a].threads > after[a] == 1]
        lanes = [a for a in axes if before[a] > after[a] == schedule[a].warps > 1]
        if lanes:  # one result a warp
            values = self.reduce_lanes(values, first.kind, lanes)
        if threads:
            by_lanes = [a for a in threads if schedule[a].warps == 1 or before[a] != schedule[a].warps]
            values = self.reduce_threads(values, first.kind, threads, by_lanes, list(first.dealt or ()))
        for n, op in enumerate(ops):
            own = {at[:-1]: v for at, v in values.items() if at[-1] == n}
            self.tiles[op.result] = Fragments(self.layout(op.result.type.shape), op.result.type.element_type, own)

    def _reduce_inside(self, value: ir.Value, box: Coordinates, axes: list[int], kind: tile.ReduceKind,
                       combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        wide = [a for a in axes if box[a] > 1]
        if not wide:
            return value
        length = prod(box)
        if prod(box[a] for a in wide) == length:  # halves, then quarters: the same order on every target
            while length > 1:
                half = length // 2
                if length % 2:
                    return self._fold(value, length, combine)
                low, high = (vector.shuffle(value, value, list(range(s, s + half))) for s in (0, half))
                value, length = combine(low, high), half
            return vector.extract(value, [], [0])
        groups: dict[Coordinates, list[int]] = {}
        for flat, position in enumerate(itertools.product(*map(range, box))):
            groups.setdefault(tuple(0 if i in wide else p for i, p in enumerate(position)), []).append(flat)
        result: ir.Value | None = None
        for lane in range(len(next(iter(groups.values())))):
            part = vector.shuffle(value, value, [members[lane] for members in groups.values()])
            result = part if result is None else combine(result, part)
        assert result is not None
        return result

    def _fold(self, value: ir.Value, length: int, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        result = vector.extract(value, [], [0])
        for i in range(1, length):
            result = combine(result, vector.extract(value, [], [i]))
        return result

    # Products -----------------------------------------------------------------------------------------------------

    def dot_by_multiply_add(self, lhs: Fragments, rhs: Fragments, acc: Fragments) -> Fragments:
        """A dot product as multiply-adds on fragments, whatever the layouts."""
        registers = tuple(max(a, b) for a, b in zip(lhs.layout.registers, rhs.layout.registers, strict=True))
        box = tuple(max(a, b) for a, b in zip(lhs.layout.box, rhs.layout.box, strict=True))
        reduced = [i for i, (a, b) in enumerate(zip(box, acc.layout.box, strict=True)) if a != b]
        values = dict(acc.values)
        for at in Layout(registers, box).coordinates():
            into = tuple(0 if r == 1 else i for i, r in zip(at, acc.layout.registers, strict=True))
            sides = []
            for side in (lhs, rhs):
                here = tuple(0 if r == 1 else i for i, r in zip(at, side.layout.registers, strict=True))
                sides.append(self._converted(self._widened(side, here, box), acc.element))
            for a, b in self._lanes(sides, box, reduced):
                values[into] = self.multiply_add(a, b, values[into])
        return Fragments(acc.layout, acc.element, values)

    def _widened(self, side: Fragments, at: Coordinates, box: Coordinates) -> ir.Value:
        value = side.values[at]
        return self.remember(("widen", value, side.layout.box, box), lambda: self._widen(value, side.layout.box, box))

    def _lanes(self, sides: list[ir.Value], box: Coordinates, reduced: list[int]) -> Iterator[tuple[ir.Value, ir.Value]]:
        """The fragments' elements grouped by position along the reduced axes."""
        if not reduced:
            yield sides[0], sides[1]
            return
        groups: dict[Coordinates, list[int]] = {}
        for flat, position in enumerate(itertools.product(*map(range, box))):
            groups.setdefault(tuple(position[a] for a in reduced), []).append(flat)
        for members in groups.values():
            if len(members) == 1:
                yield vector.extract(sides[0], [], members), vector.extract(sides[1], [], members)
            else:
                yield vector.shuffle(sides[0], sides[0], members), vector.shuffle(sides[1], sides[1], members)


def _alike(first: ir.OpView, other: ir.OpView) -> bool:
    """Whether two reductions can share their exchanges: same axes and sizes along them, and the same kind or maximum."""
    if isinstance(first, tile.ReduceOnline) and isinstance(other, tile.ReduceOnline):
        return (first.maximum, list(first.axes), first.scale) == (other.maximum, list(other.axes), other.scale)
    if not isinstance(first, tile.Reduce) or not isinstance(other, tile.Reduce) or other.value == first.result:
        return False
    axes = list(first.axes)
    shapes = [[list(v.type.shape)[a] for a in axes] for op in (first, other) for v in (op.value, op.result)]
    kinds = [(op.kind, list(op.axes), list(op.dealt or ()), op.value.type.element_type) for op in (first, other)]
    return kinds[0] == kinds[1] and shapes[:2] == shapes[2:]
