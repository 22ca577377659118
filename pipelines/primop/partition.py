"""Graph breaks cut an entry point into chunks, functions of their own, so that equal layers can be compiled once."""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import identity, make_map
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.fuse import FREE
from tilec.pipelines.primop.outline import (
    body_of,
    chunk_number,
    erase,
    extents_of,
    fresh_name,
    functions,
    outline,
    place_in_chunk,
)

IO = ("primop.input", "primop.output", "func.return", "func.call")


@dataclass(frozen=True)
class Partition(Pass):
    """Outline the ops between two graph breaks into a chunk function; what is outside any break is chunk 'main'."""

    name = "primop-partition"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for entry in functions(op, "primop.entry"):
            _partition(op, entry)


def _partition(module: ir.OpView, entry: ir.OpView) -> None:
    block = body_of(entry)
    ops = list(block.operations)
    first = next(op for op in ops if not isinstance(op, primop.Input))
    for op in ops:
        if isinstance(op, primop.Input):
            op.operation.move_before(first.operation)
        elif isinstance(op, primop.Output):
            op.operation.move_before(ops[-1].operation)  # the return
    _copy_uncomputed_outputs(module, block, first)
    _give_each_chunk_its_own(block)
    ops = list(block.operations)
    computing = [op for op in ops if op.operation.name not in IO]
    chunks: dict[int, list[ir.OpView]] = {}
    for op in computing:
        chunks.setdefault(chunk_number(op), []).append(op)
    chunk_of = {result: index for index, members in chunks.items() for op in members for result in op.results}
    for index, members in sorted(chunks.items()):
        label = ir.StringAttr(members[0].attributes["primop.chunk"]).value if index >= 0 else "main"
        outside = [result for op in members for result in op.results
                   if any(_chunk(use.owner, chunk_of) != index for use in result.uses)]
        name = fresh_name(module, f"{ir.StringAttr(entry.attributes['sym_name']).value}_{label}")
        # Chunks only read what earlier ones computed, so each call stands where its last op stood.
        call = outline(module, name, members, outside, members[-1], "primop.chunk", entry.operation.location)
        for old, new in zip(outside, call.results, strict=True):
            old.replace_all_uses_with(new)
            chunk_of[new] = index
        erase(members)


def _chunk(user: ir.OpView, chunk_of: dict[ir.Value, int]) -> int | None:
    """The chunk that a user belongs to; entry-level ops belong to none."""
    results = list(user.results)
    if user.name in IO or not results:
        return None
    return chunk_of.get(results[0])


def _copy_uncomputed_outputs(module: ir.OpView, block: ir.Block, first: ir.OpView) -> None:
    """Makes an output that is an input, a constant or an iota a computed one, so that it has memory of its own."""
    symbols = len(primop.symbol_ranges(module.operation))
    for op in block.operations:
        if not isinstance(op, primop.Output):
            continue
        source = op.value.owner.opview
        if isinstance(source, FREE) or (isinstance(source, primop.Input) and op.alias != source.label):
            extents = extents_of(op.value)
            with op.operation.location, ir.InsertionPoint(first):
                value = source.operation.clone().results[0] if isinstance(source, FREE) else op.value
                copy = primop.Cast(operand=value, space=make_map(0, symbols, extents), result=op.value.type,
                                   maps=[make_map(len(extents), symbols, identity(len(extents)))])
            op.operation.operands[0] = copy.result


def _give_each_chunk_its_own(block: ir.Block) -> None:
    """Repeats constants and iotas in every chunk that reads them: no kernel computes them, so none can pass them on."""
    for op in list(block.operations):
        if not isinstance(op, FREE):
            continue
        copies: dict[int, ir.OpView] = {chunk_number(op): op}
        for use in list(op.result.uses):
            user = use.owner.opview
            if chunk_number(user) not in copies:
                with op.operation.location, ir.InsertionPoint(user):
                    copies[chunk_number(user)] = copy = op.operation.clone()
                place_in_chunk(copy, user)
            user.operation.operands[use.operand_number] = copies[chunk_number(user)].results[0]
        if not list(op.result.uses):
            op.operation.erase()
