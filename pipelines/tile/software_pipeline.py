"""A loop whose threads fetch for themselves does so turns ahead: a prologue fills the slots, then each turn fetches the tile
that is needed when all other slots have been used.

    for k: fetch k; commit; await k; use; release k   ->   fetch 0; commit; fetch 1; commit;
                                                           for k: await k; if k + 2 < turns: fetch k + 2; commit; use; release k

With s slots a fetch is s - 1 turns ahead, into the slot that the turn before has released. A group may be empty, so that
their number says which have come: all but the last s - 2. Loops that walk one axis one after the other are one loop here:
the first has the prologue, and each fetches beyond its own end what the next one awaits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects import tile
from tilec.dialects.index_expr import map_results
from tilec.pipelines.loops import in_another_turn, index_constant
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of
from tilec.pipelines.tile import op_after, tile_functions


@dataclass(frozen=True)
class SoftwarePipeline(Pass):
    """Let loops whose threads fetch for themselves do so as many turns ahead as their rings have slots."""

    name = "tile-software-pipeline"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for function, schedule in tile_functions(op):
            if schedule.copied and schedule.stages > 1:
                for chain in list(_chains(body_of(function))):
                    _pipeline(chain, schedule.stages)


def _chains(block: ir.Block) -> Iterator[list[scf.ForOp]]:
    """Loops that fetch, each with those that go on where it ended."""
    chains: list[list[scf.ForOp]] = []
    for op in block.operations:
        if isinstance(op, scf.ForOp) and _fetches(op):
            last = chains[-1][-1] if chains else None
            if last is not None and last.upperBound == op.lowerBound and last.step == op.step and _alike(last, op):
                chains[-1].append(op)
            else:
                chains.append([op])
        for region in op.operation.regions:
            for inner in region.blocks:
                yield from _chains(inner)
    yield from chains


def _fetches(loop: scf.ForOp) -> list[tile.Fetch]:
    return [o for o in loop.body.operations if isinstance(o, tile.Fetch)]


def _alike(one: scf.ForOp, other: scf.ForOp) -> bool:
    """Whether two loops fetch the same tiles into the same rings."""
    views = [[(f.ring, f.source, map_results(f.map)) for f in _fetches(loop)] for loop in (one, other)]
    return views[0] == views[1]


def _pipeline(chain: list[scf.ForOp], slots: int) -> None:
    first, last = chain[0], chain[-1]
    template = _fetches(last)
    ahead = slots - 1
    moved: list[ir.OpView] = []
    with first.operation.location, ir.InsertionPoint(first):
        for turn in range(ahead):
            index = first.lowerBound
            if turn:
                index = arith.addi(index, arith.muli(index_constant(turn), first.step))
            _fetch_at(index, template, chain)
    for loop in chain:
        waits = [o for o in loop.body.operations if isinstance(o, tile.Await)]
        moved += [o for o in loop.body.operations if isinstance(o, tile.Fetch | tile.Commit)]
        for wait in waits:
            wait.operation.attributes["later"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ahead - 1)
        with loop.operation.location, ir.InsertionPoint(op_after(waits[-1])):
            _fetch_at(arith.addi(loop.induction_variable, arith.muli(index_constant(ahead), loop.step)), template, chain)
    for op in moved:
        op.operation.erase()


def _fetch_at(index: ir.Value, template: list[tile.Fetch], chain: list[scf.ForOp]) -> None:
    """What the template fetches where the loops' variable is `index`, if there is such a turn, and a commit."""
    first, last = chain[0], chain[-1]
    branch = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ult, index, last.upperBound))
    with ir.InsertionPoint(branch.then_block):
        copies = {last.induction_variable: index}
        for fetch in template:
            clone = fetch.operation.clone()
            for i, operand in enumerate(clone.operands):
                with ir.InsertionPoint(clone):
                    clone.operands[i] = in_another_turn(operand, copies, first)
        scf.YieldOp([])
    tile.Commit()
