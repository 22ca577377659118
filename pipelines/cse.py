"""Upstream's CSE sees no effects of IRDL operations and skips them, so equal pure operations are merged here.

The rule is upstream's: an operation is replaced by an equal one that dominates it. Within a region that is what stands
before it in the block, in the enclosing ones, and in the region's first block, which dominates all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir

from tilec.pipelines.effects import is_pure
from tilec.pipelines.passes import ANY, Pass

# Regions of these see the values around them; every other operation with regions starts afresh, as a function does.
TRANSPARENT = ("scf.", "affine.", "linalg.")

Table = dict[tuple[object, ...], Sequence[ir.Value]]


@dataclass(frozen=True)
class Cse(Pass):
    """Merges equal pure operations, ours and upstream's."""

    name = "tilec-cse"
    anchor = ANY

    def run(self, op: ir.Operation) -> None:
        for region in op.regions:
            _merge_region(region, [])


def _merge_region(region: ir.Region, enclosing: list[Table]) -> None:
    first: list[Table] = []
    for block in region.blocks:
        table: Table = {}
        _merge_block(block, table, enclosing + first)
        first = first or [table]


def _merge_block(block: ir.Block, table: Table, enclosing: list[Table]) -> None:
    for op in [view.operation for view in block.operations]:
        visible = [table, *enclosing] if op.name.startswith(TRANSPARENT) else []
        for region in op.regions:
            _merge_region(region, visible)
        if not is_pure(op):
            continue
        key = _key(op)
        known = next((t[key] for t in (table, *enclosing) if key in t), None)
        if known is None:
            table[key] = list(op.results)
            continue
        for result, same in zip(op.results, known, strict=True):
            result.replace_all_uses_with(same)
        op.erase()


def _key(op: ir.Operation) -> tuple[object, ...]:
    """Equal for operations that compute the same values."""
    attributes = op.attributes
    return (
        op.name,
        tuple(op.operands),
        tuple((name, attributes[name]) for name in attributes),
        tuple(result.type for result in op.results),
    )
