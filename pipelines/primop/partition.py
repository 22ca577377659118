"""Graph breaks cut an entry point into chunks, functions of their own, so that equal layers can be compiled once."""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from tilec.dialects import primop
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of, erase, fresh_name, functions, outline

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
    computing = [op for op in ops if op.operation.name not in IO]
    chunks: dict[int, list[ir.OpView]] = {}
    for op in computing:
        index = op.attributes["primop.chunk_index"].value if "primop.chunk_index" in op.attributes else -1
        chunks.setdefault(index, []).append(op)
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
