"""Threads take roles: some only fetch, the others compute on what has come.

    for k: fetch; use   ->   if producer: for k: fetch   else: for k: use; ...

The producer runs as far ahead as the rings have slots. It keeps the loops, the indices that they carry and what fetches
need, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import scf

from tilec.dialects import tile
from tilec.pipelines.effects import is_pure
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of, ops_in
from tilec.pipelines.tile import tile_functions


@dataclass(frozen=True)
class Specialise(Pass):
    """Let threads of their own fetch the tiles of rings with more than one slot."""

    name = "tile-specialise"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for function, schedule in tile_functions(op):
            if schedule.roles:
                _specialise(body_of(function))


def _specialise(block: ir.Block) -> None:
    """Splits what follows the first op that fetches."""
    ops = list(block.operations)
    first = next((i for i, o in enumerate(ops) if _fetches(o)), None)
    if first is None:
        return
    with ops[first].operation.location, ir.InsertionPoint(ops[first]):
        producer = tile.Producer(result=ir.IntegerType.get_signless(1)).result
        branch = scf.IfOp(producer, has_else=True)
    copies: dict[ir.Value, ir.Value] = {}
    with ir.InsertionPoint(branch.then_block):
        for op in ops[first:-1]:
            if _is_part(op):
                _copy(op, copies)
        scf.YieldOp([])
    for op in ops[first:-1]:
        if isinstance(op, tile.Fetch):
            op.operation.erase()
            continue
        op.operation.detach_from_parent()
        branch.else_block.append(op)
        _drop_fetches(op.operation)
    with ir.InsertionPoint(branch.else_block):
        scf.YieldOp([])


def _fetches(op: ir.OpView) -> bool:
    return bool(ops_in(op, tile.Fetch))


def _drop_fetches(op: ir.Operation) -> None:
    for region in op.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                _drop_fetches(inner.operation)
                if isinstance(inner, tile.Fetch):
                    inner.operation.erase()


def _copy(op: ir.OpView, copies: dict[ir.Value, ir.Value]) -> None:
    """The producer's part of an op at the insertion point: loops without what they carry, fetches and their arithmetic."""
    if isinstance(op, scf.ForOp):
        counted = [i for i, v in enumerate(op.inner_iter_args) if isinstance(v.type, ir.IndexType)]
        start = [op.operands[3 + i] for i in counted]
        loop = scf.ForOp(*(copies.get(v, v) for v in list(op.operands)[:3]), [copies.get(v, v) for v in start])
        copies[op.induction_variable] = loop.induction_variable
        copies.update((op.inner_iter_args[i], v) for i, v in zip(counted, loop.inner_iter_args, strict=True))
        with ir.InsertionPoint(loop.body):
            *body, end = list(op.body.operations)
            for inner in body:
                if _is_part(inner):
                    _copy(inner, copies)
            scf.YieldOp([copies.get(end.operands[i], end.operands[i]) for i in counted])
        copies.update((op.results[i], v) for i, v in zip(counted, loop.results, strict=True))
        return
    clone = op.operation.clone()
    for i, operand in enumerate(clone.operands):
        clone.operands[i] = copies.get(operand, operand)
    copies.update(zip(op.operation.results, clone.results, strict=True))


def _is_part(op: ir.OpView) -> bool:
    """Whether an op belongs to the producer as well: it fetches, or computes an index."""
    return _fetches(op) or (is_pure(op.operation) and _is_index(op))


def _is_index(op: ir.OpView) -> bool:
    return all(isinstance(v.type, ir.IndexType) for v in [*op.operation.results, *op.operation.operands])
