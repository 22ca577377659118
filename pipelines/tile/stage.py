"""Operands of products come through shared memory: the loads become fetches into rings.

    for k: a = load; b = load; acc = dot(a, b, acc)   ->   for k: fetch a; fetch b; acc = dot_shared(await a, await b, acc);
                                                                  release the slots of the turn before

A product of tensor cores that only the next turn's product waits for runs on while that starts; its slots are released one
turn later. Multiply-adds have read their operands when they have been made, so a turn's slots are released at its end. An
operand that is the same in every turn has a slot of its own, filled before the loop; a left operand that was computed
stays in registers. Loops that walk one axis, whole tiles and what a mask cuts, share rings: a turn is the number of steps
along the axis, from where the first of them begins.

An operand's mask is dropped. Along a kept axis it may be: an element that does not exist makes only results that do not
exist. Along the reduced axis a fetch reads zero, beyond the end of a row by itself and beyond a number of rows or of columns
by its `limit` or `column_limit`. Part of the schedule: `tensor` or `staged`, and `stages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects import tile
from tilec.dialects.index_expr import Dim, dim, make_map, map_results
from tilec.dialects.schedule import Schedule
from tilec.pipelines.loops import constant_of, index_constant
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import body_of
from tilec.pipelines.primop.structure import defining_op, offset_of
from tilec.pipelines.tile import op_after, tile_functions


@dataclass(frozen=True)
class Stage(Pass):
    """Bring the operands of products, by tensor cores or multiply-adds, through rings in shared memory."""

    name = "tile-stage"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for function, schedule in tile_functions(op):
            if schedule.rings:
                stager = _Stager(body_of(function), schedule)
                for loop in list(_loops(body_of(function))):
                    stager.stage(loop.body, loop)
                stager.stage(body_of(function), None)


def _loops(block: ir.Block) -> Iterator[scf.ForOp]:
    for op in block.operations:
        if isinstance(op, scf.ForOp):
            yield op
        for region in op.operation.regions:
            for inner in region.blocks:
                yield from _loops(inner)


@dataclass(frozen=True)
class _Operand:
    """How an operand of a product lies in memory: its slot's rows and column, and the axis that the product reduces."""

    load: tile.Load
    rows: list[int]
    column: int
    reduced: int
    cluster: int  # blocks that share the reduced axis: each has a part of the tile

    @property
    def shape(self) -> list[int]:
        sizes = self.load.result.type.shape
        return [prod(sizes[a] for a in self.rows), sizes[self.column] // self.cluster]

    @property
    def transposed(self) -> bool:
        return self.column != self.reduced


class _Stager:
    def __init__(self, entry: ir.Block, schedule: Schedule) -> None:
        self.entry, self.schedule = entry, schedule
        self.rings: dict[object, ir.Value] = {}
        self.fetched: dict[object, ir.Value] = {}  # slots of what is the same in every turn
        self.here: dict[object, ir.Value] = {}  # of what the present block fetches in turns

    def stage(self, block: ir.Block, loop: scf.ForOp | None) -> None:
        """Brings the operands of a block's products through rings; of a loop, in turns."""
        dots = [o for o in block.operations if isinstance(o, tile.Dot)]
        if not dots:
            return
        with dots[0].operation.location, ir.InsertionPoint.at_block_begin(block):
            turn = index_constant(0)
            if loop is not None:
                start = _beginning(loop)
                walked = loop.induction_variable if _is_zero(start) else arith.subi(loop.induction_variable, start)
                turn = arith.divui(walked, loop.step)
        in_flight = self.schedule.tensor and not self.schedule.copied  # products that have been started and not made
        running = loop is not None and in_flight and all(_only_feeds_products(d, loop) for d in dots)
        self.here = {}
        slots: dict[ir.Value, ir.Value] = {}
        readers: dict[ir.Value, tile.DotShared] = {}  # of every ring that has turns the last product
        loads: list[tile.Load] = []
        first: tile.DotShared | None = None
        for dot in dots:
            operands = [v for v in (dot.lhs, dot.rhs) if isinstance(defining_op(v), tile.Load)]
            for operand in operands:
                found = _operand(operand, dot, self.schedule)
                if operand not in slots:
                    loads.append(found.load)
                slots[operand] = self._fetched(found, first or dot, loop, turn)
            awaited = [defining_op(slots[v]) for v in operands if slots[v] in self.here.values()]
            made = _replace(dot, slots, self.schedule)
            if not in_flight and first is None:
                first = made  # products that take turns all wait for their operands before the first
            readers |= {each.ring: made for each in awaited}
        rings = list(readers)
        if loop is not None and in_flight and not running:
            for made in dict.fromkeys(readers.values()):
                with made.operation.location, ir.InsertionPoint(op_after(made)):
                    for ring in [r for r, reader in readers.items() if reader == made]:
                        tile.Release(ring=ring, turn=turn, running=0)
        for load in loads:
            load.operation.erase()
        if self.schedule.copied:
            _commit(block)
        if loop is not None and not in_flight:
            with loop.operation.location, ir.InsertionPoint(list(block.operations)[-1]):
                for ring in rings:
                    tile.Release(ring=ring, turn=turn, running=0)
        if running and loop is not None:
            with loop.operation.location, ir.InsertionPoint(list(block.operations)[-1]):
                branch = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ugt, turn, index_constant(0)))
                with ir.InsertionPoint(branch.then_block):
                    before = arith.subi(turn, index_constant(1))
                    for ring in rings:
                        tile.Release(ring=ring, turn=before, running=len(dots))
                    scf.YieldOp([])

    def _fetched(self, operand: _Operand, dot: ir.OpView, loop: scf.ForOp | None, turn: ir.Value) -> ir.Value:
        """The slot of an operand, of this turn or of all; what two products read of one place is fetched once."""
        load, space = operand.load, ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 3)
        element = load.result.type.element_type
        variable = loop.induction_variable if loop is not None else None
        in_turns = loop is not None and any(v == variable and Dim(i) in _used(load) for i, v in enumerate(load.origin))
        key = (load.source, *map_results(load.map), *operand.shape)
        name = "limit" if operand.transposed else "column_limit"
        more = {name: limit} if (limit := _limit(operand, self.schedule)) is not None else {}
        if key in self.fetched:
            return self.fetched[key]
        if key in self.here:
            fetch = next(o for o in dot.operation.block.operations if isinstance(o, tile.Fetch) and o.ring == self.rings[key])
            for name, limit in more.items():  # also where the other one does not need it
                fetch.operation.attributes[name] = ir.AffineMapAttr.get(limit)
            return self.here[key]
        with load.operation.location:
            if key not in self.rings:
                with ir.InsertionPoint.at_block_begin(self.entry):
                    slots = self.schedule.stages if in_turns else 1
                    kind = ir.MemRefType.get([slots, *operand.shape], element, memory_space=space)
                    self.rings[key] = tile.Ring(result=kind).result
            ring = self.rings[key]
            with ir.InsertionPoint(dot if in_turns or loop is None else loop):
                origin = [loop.lowerBound if loop is not None and not in_turns and v == variable else v for v in load.origin]
                turn = turn if in_turns else index_constant(0)
                tile.Fetch(rows=operand.rows, column=operand.column, map=load.map, ring=ring, turn=turn, source=load.source,
                           origin=origin, **more)
                if self.schedule.copied and not in_turns and loop is not None:
                    tile.Commit()
                slot = tile.Await(ring=ring, turn=turn,
                                  result=ir.MemRefType.get(operand.shape, element, memory_space=space)).result
        (self.here if in_turns else self.fetched)[key] = slot
        return slot


def _commit(block: ir.Block) -> None:
    """What a block fetches becomes one group, that it then awaits."""
    fetches, awaits = ([o for o in block.operations if isinstance(o, kind)] for kind in (tile.Fetch, tile.Await))
    if not fetches:
        return
    last = fetches[-1]
    with last.operation.location, ir.InsertionPoint(op_after(last)):
        commit = tile.Commit()
    place = commit.operation
    for each in awaits:
        if each.operation.is_before_in_block(place):
            each.operation.move_after(place)
            place = each.operation


def _is_zero(value: ir.Value) -> bool:
    return constant_of(value) == 0


def _beginning(loop: scf.ForOp) -> ir.Value:
    """Where the first of the loops that walk an axis begins; each goes on where the one before it ended."""
    first = loop.lowerBound
    for op in reversed(list(loop.operation.block.operations)):
        if isinstance(op, scf.ForOp) and op.operation.is_before_in_block(loop.operation) and op.upperBound == first:
            first = op.lowerBound
    return first


def _used(load: tile.Load) -> set:
    return {a for e in map_results(load.map) for a in e.atoms()}


def _only_feeds_products(dot: tile.Dot, loop: scf.ForOp) -> bool:
    """Whether a product's result is read by nothing before the next turn's product adds to it."""
    uses = list(dot.result.uses)
    if len(uses) != 1 or uses[0].owner.operation.name != "scf.yield":
        return False
    carried = loop.inner_iter_args[uses[0].operand_number]
    return all(isinstance(u.owner, tile.Dot) and u.operand_number == 2 for u in carried.uses)


def _operand(value: ir.Value, dot: tile.Dot, schedule: Schedule) -> _Operand:
    load = defining_op(value)
    shapes = [list(v.type.shape) for v in (dot.lhs, dot.rhs, dot.acc)]
    reduced = next(i for i, (a, b, c) in enumerate(zip(*shapes, strict=True)) if max(a, b) > c)
    offset = offset_of(map_results(load.map), list(ir.MemRefType(load.source.type).shape))
    wide = [i for i, n in enumerate(value.type.shape) if n > 1]
    column = next((i for i in wide if offset.coefficient(Dim(i)) == 1), None)
    if column is None or (value == dot.lhs and column != reduced and not (schedule.copied and schedule.tensor)):
        raise PassFailure("an operand that comes through shared memory must be contiguous in memory", dot.operation.location)
    if column != reduced and schedule.tf32:
        raise PassFailure("tensor cores read f32 as TF32 only along the reduced axis", dot.operation.location)
    cluster = schedule.axes[reduced].cluster
    if cluster > 1 and column != reduced:
        raise PassFailure("blocks of a cluster share an axis along which operands are contiguous", dot.operation.location)
    return _Operand(load, [i for i in wide if i != column], column, reduced, cluster)


def _limit(operand: _Operand, schedule: Schedule) -> ir.AffineMap | None:
    """Where an operand ends along the reduced axis: its mask there, as a number of rows or columns. Columns that TMA fetches
    and that are known when compiling end with the rows of the memory."""
    if operand.load.mask is None:
        return None
    for condition in map_results(operand.load.mask):
        end = condition + 1 + dim(operand.reduced)
        if condition.coefficient(Dim(operand.reduced)) == -1:
            told = operand.transposed or schedule.copied or not end.is_constant
            return make_map(0, operand.load.mask.n_symbols, [end]) if told else None
    return None


def _replace(dot: tile.Dot, slots: dict[ir.Value, ir.Value], schedule: Schedule) -> tile.DotShared:
    if dot.rhs not in slots:
        raise PassFailure("the right operand of a product in shared memory must be read from memory", dot.operation.location)
    right = _operand(dot.rhs, dot, schedule)
    columns = [*right.rows, right.column]
    columns.remove(right.reduced)
    rows = [i for i, n in enumerate(dot.lhs.type.shape) if n > 1 and i != right.reduced]
    left = _operand(dot.lhs, dot, schedule) if dot.lhs in slots else None
    if left is not None and left.transposed:
        rows = [*(a for a in left.rows if a != left.reduced), left.column]
    with dot.operation.location, ir.InsertionPoint(dot):
        made = tile.DotShared(
            lhs_rows=rows, rhs_rows=columns, transposed=True if right.transposed else None,
            lhs_transposed=True if left is not None and left.transposed else None,
            lhs=slots.get(dot.lhs, dot.lhs), rhs=slots[dot.rhs], acc=dot.acc, result=dot.result.type)
    dot.result.replace_all_uses_with(made.result)
    dot.operation.erase()
    return made
