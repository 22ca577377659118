"""As many blocks as the device runs at once, each walking over several programs: rings then fill while results are stored.

    program p: body   ->   for p = worker to programs step workers: body

Programs are numbered so that those that run together share operands: the fastest grid axis in groups of GROUP, and all the
others inside a group. Turns of rings go on counting from program to program, over all loops that walk an axis one after the
other. What comes before them, once in a program, gets a second slot, so that the next program's is fetched meanwhile. Part of
the schedule: `persistent`, the number of blocks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import affine, arith, scf

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import Linear, linear, make_map
from tilec.dialects.schedule import Schedule
from tilec.pipelines.loops import index_constant
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of
from tilec.pipelines.primop.structure import defining_op
from tilec.pipelines.tile import op_after, tile_functions

GROUP = 16  # programs along the fastest axis that run one after the other


@dataclass(frozen=True)
class Persist(Pass):
    """Let the blocks of a kernel whose operands come through rings walk over its programs."""

    name = "tile-persist"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        symbols = list(primop.symbol_ranges(op.operation))
        for function, schedule in tile_functions(op):
            if schedule.rings and schedule.persistent:
                _persist(function, schedule, symbols)


def _persist(function: ir.OpView, schedule: Schedule, symbols: list[str]) -> None:
    ops = list(body_of(function).operations)
    walks = [o for o in ops if isinstance(o, scf.ForOp) and any(isinstance(i, tile.Await) for i in o.body.operations)]
    first = next((i for i, o in enumerate(ops) if isinstance(o, tile.ProgramId)), None)
    once = [o for o in ops if isinstance(o, tile.Fetch | tile.Await)]
    if first is None or not walks or any(b.lowerBound != a.upperBound for a, b in itertools.pairwise(walks)) or \
            any(ops.index(o) > ops.index(walks[0]) for o in once):
        return
    if schedule.copied and (once or len(walks) > 1):
        return  # what all threads copy comes in groups, whose number must stay known
    with function.operation.location:
        with ir.InsertionPoint(ops[first]):
            counts, zero = _Counts(schedule, symbols), index_constant(0)
            worker = tile.Worker(result=ir.IndexType.get()).result
            loop = scf.ForOp(worker, counts.total, index_constant(schedule.persistent), [zero, zero] if once else [zero])
        turns, *before = loop.inner_iter_args
        with ir.InsertionPoint(loop.body):
            programs = counts.programs(loop.induction_variable)
        for op in ops[first:-1]:
            if isinstance(op, tile.ProgramId):
                op.result.replace_all_uses_with(programs[op.axis])
                op.operation.erase()
                continue
            op.operation.detach_from_parent()
            loop.body.append(op)
        for walk in walks:
            awaited = next(o for o in walk.body.operations if isinstance(o, tile.Await))
            _count_on(awaited.turn, turns)
        with ir.InsertionPoint(loop.body):
            here = arith.ceildivui(arith.subi(walks[-1].upperBound, walks[0].lowerBound), walks[0].step)
            scf.YieldOp([arith.addi(turns, here), *(arith.addi(number, index_constant(1)) for number in before)])
        _take_slots(once, walks[-1], *before)
    function.attributes["tile.workers"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), schedule.persistent)


def _take_slots(once: list[ir.OpView], last: scf.ForOp, number: ir.Value | None = None) -> None:
    """Lets what comes once in a program come in turns, of which this one has a number, and be released after the last loop."""
    for ring in dict.fromkeys(o.ring for o in once):
        kind, old = ir.MemRefType(ring.type), defining_op(ring)
        with old.operation.location, ir.InsertionPoint(old):
            wider = ir.MemRefType.get([2, *kind.shape[1:]], kind.element_type, memory_space=kind.memory_space)
            ring.replace_all_uses_with(tile.Ring(result=wider).result)
        old.operation.erase()
    for op in once:
        place = next(i for i, v in enumerate(op.operands) if v == op.turn)
        op.operation.operands[place] = number
    for op in once:
        if isinstance(op, tile.Await):
            with op.operation.location, ir.InsertionPoint(op_after(last)):
                tile.Release(ring=op.ring, turn=number, running=0)


def _count_on(turn: ir.Value, before: ir.Value) -> None:
    """Adds the turns of earlier programs to a turn."""
    owner = turn.owner.opview if isinstance(turn.owner, ir.Operation) else turn.owner
    ops = list(owner.operation.block.operations)
    after = ops[next(i for i, o in enumerate(ops) if o.operation == owner.operation) + 1]
    with owner.operation.location, ir.InsertionPoint(after):
        total = arith.addi(turn, before)
    for use in list(turn.uses):
        if use.owner.operation != total.owner.operation:
            use.owner.operation.operands[use.operand_number] = total


class _Counts:
    """How many programs there are along each grid axis, as values, and which one a number is."""

    def __init__(self, schedule: Schedule, symbols: list[str]) -> None:
        self.symbols = [tile.SymbolOp(symbol=s, result=ir.IndexType.get()).result for s in symbols]
        self.axes = [a for a in schedule.grid if schedule.axes[a].programs != linear(1)]
        self.all = list(schedule.grid)
        self.counts = {a: self._value(schedule.axes[a].programs) for a in self.axes}
        self.total = index_constant(1)
        for a in self.axes:
            self.total = arith.muli(self.total, self.counts[a])

    def _value(self, expr: Linear) -> ir.Value:
        if expr.is_constant:
            return index_constant(expr.constant)
        return affine.apply(make_map(0, len(self.symbols), [expr]), self.symbols)

    def programs(self, number: ir.Value) -> dict[int, ir.Value]:
        """The coordinates of program `number`."""
        found = {a: index_constant(0) for a in self.all}
        if not self.axes:
            return found
        *others, fastest = self.axes
        rest = index_constant(1)
        for a in others:
            rest = arith.muli(rest, self.counts[a])
        group = arith.divui(number, arith.muli(rest, index_constant(GROUP)))
        inside = arith.remui(number, arith.muli(rest, index_constant(GROUP)))
        start = arith.muli(group, index_constant(GROUP))
        height = arith.minui(arith.subi(self.counts[fastest], start), index_constant(GROUP))
        found[fastest] = arith.addi(start, arith.remui(inside, height))
        left = arith.divui(inside, height)
        for a in reversed(others):
            found[a] = arith.remui(left, self.counts[a])
            left = arith.divui(left, self.counts[a])
        return found
