"""As many blocks as the device runs at once, each walking over several programs: rings then fill while results are stored.

    program p: body   ->   for p = worker to programs step workers: body

Programs are numbered so that those that run together share operands: the fastest grid axis in groups of GROUP, and all the
others inside a group. Turns of rings go on counting from program to program. Part of the schedule: `persistent`, the number
of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import affine, arith, scf

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import Linear, linear, make_map
from tilec.dialects.schedule import Schedule
from tilec.pipelines.loops import index_constant
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of
from tilec.pipelines.tile import tile_functions

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
    if first is None or len(walks) != 1 or any(isinstance(o, tile.Await | tile.Fetch) for o in ops):
        return  # a slot that is filled before a loop would have to wait for the program before
    with function.operation.location:
        with ir.InsertionPoint(ops[first]):
            counts = _Counts(schedule, symbols)
            worker = tile.Worker(result=ir.IndexType.get()).result
            loop = scf.ForOp(worker, counts.total, index_constant(schedule.persistent), [index_constant(0)])
        turns = loop.inner_iter_args[0]
        with ir.InsertionPoint(loop.body):
            programs = counts.programs(loop.induction_variable)
        for op in ops[first:-1]:
            if isinstance(op, tile.ProgramId):
                op.result.replace_all_uses_with(programs[op.axis])
                op.operation.erase()
                continue
            op.operation.detach_from_parent()
            loop.body.append(op)
        walk = walks[0]
        for op in list(walk.body.operations):
            if isinstance(op, tile.Await):
                _count_on(op.turn, turns)
                break
        with ir.InsertionPoint(loop.body):
            here = arith.ceildivui(arith.subi(walk.upperBound, walk.lowerBound), walk.step)
            scf.YieldOp([arith.addi(turns, here)])
    function.attributes["tile.workers"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), schedule.persistent)


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
