"""Upstream's dead-code elimination keeps IRDL operations, whose effects it cannot know; here unused pure ones go.

Blocks are walked from last to first, so a dead chain goes in one walk. A loop or a branch that only computes goes too
when nothing reads its results.
"""

from dataclasses import dataclass

from mlir import ir

from tilec.pipelines.effects import is_pure
from tilec.pipelines.passes import ANY, Pass

# Always end, and do nothing but what their regions do.
CONTROL = ("scf.for", "scf.if", "affine.for", "affine.if")
TERMINATORS = ("scf.yield", "affine.yield")


@dataclass(frozen=True)
class Dce(Pass):
    """Erases pure operations, loops and branches whose results nobody reads."""

    name = "tilec-dce"
    anchor = ANY

    def run(self, op: ir.Operation) -> None:
        while _erase_dead(op):
            pass  # once more: a block may use what a block before it defines


def _erase_dead(parent: ir.Operation) -> bool:
    """Erases below `parent` and says whether a walk over several blocks left something to look at again."""
    again = False
    for region in parent.regions:
        blocks = list(region.blocks)
        for block in reversed(blocks):
            for op in reversed([view.operation for view in block.operations]):
                again |= _erase_dead(op)
                if _is_unused(op) and _only_computes(op):
                    op.erase()
                    again |= len(blocks) > 1
    return again


def _is_unused(op: ir.Operation) -> bool:
    return all(next(iter(result.uses), None) is None for result in op.results)


def _only_computes(op: ir.Operation) -> bool:
    if op.name not in CONTROL:
        return is_pure(op)
    inner = (view.operation for region in op.regions for block in region.blocks for view in block.operations)
    return all(child.name in TERMINATORS or _only_computes(child) for child in inner)
