"""Groups of warps start their products one after the other, so that some multiply while others compute.

    for k: s = dot(q, K[k]); o = dot(p, V[k - 1], o); ...   ->   for k: take turn; s = dot ...; o = dot ...; pass turn; ...

Tensor cores make what was started at once side by side, so that groups which start together also wait together, and leave the
tensor cores idle together while they compute their powers. In turns the products of one are ready before those of the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import scf

from tilec.dialects import tile
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import ops_in
from tilec.pipelines.tile import GROUP, op_after, tile_functions


@dataclass(frozen=True)
class TakeTurns(Pass):
    """Let groups of warps start two products of a turn one group after the other."""

    name = "tile-take-turns"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for function, schedule in tile_functions(op):
            if schedule.tensor and not schedule.copied and schedule.threads > GROUP:
                for loop in ops_in(function, scf.ForOp):
                    _take_turns(loop)


def _take_turns(loop: scf.ForOp) -> None:
    """In each turn of a loop that starts a product of what the turn before computed right after another one."""
    for first in loop.body.operations:
        second = op_after(first) if isinstance(first, tile.DotShared) else None
        if isinstance(second, tile.DotShared) and isinstance(second.lhs.type, ir.VectorType):
            with first.operation.location, ir.InsertionPoint(first):
                tile.TakeTurn()
            with second.operation.location, ir.InsertionPoint(op_after(second)):
                tile.PassTurn()
            return
