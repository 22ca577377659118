"""Kernels overlap with their predecessor: each starts early, fetches what no kernel writes, and waits for the rest.

Every kernel lets the next one start at its very beginning and waits before its first access to memory that kernels
write. As each of them waits for its predecessor to end, everything earlier has ended too, so no other hazard exists.
Weights, and rows of a state that were there before, are read before the wait: at the top of a kernel their loads are moved
above it with the arithmetic they need.
Where a kernel begins with a branch that whole blocks take together, each arm has its own wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import scf

from tilec.dialects import kernel
from tilec.pipelines.effects import is_pure
from tilec.pipelines.kernel import gpu_modules
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of
from tilec.runtime.artifact import ITEM_BYTES

MOST_EARLY_BYTES = 512  # of weights that one thread may hold while it waits


@dataclass(frozen=True)
class DependentLaunch(Pass):
    """Insert grid_wait and launch_dependents, and move weight loads above the wait, for programmatic dependent launch."""

    name = "kernel-dependent-launch"
    anchor = "builtin.module"
    prefetch: bool = True

    def run(self, op: ir.OpView) -> None:
        for module in gpu_modules(op):
            for function in module.regions[0].blocks[0].operations:
                if "kernel.block" in function.attributes:
                    _insert(function, self.prefetch)
                    function.attributes["kernel.dependent"] = ir.UnitAttr.get()


def _insert(function: ir.OpView, prefetch: bool) -> None:
    block = body_of(function)
    table = block.arguments[len(ir.ArrayAttr(function.attributes["tile.arguments"]))]
    with function.operation.location:
        with ir.InsertionPoint.at_block_begin(block):
            kernel.LaunchDependents()
        _insert_wait(block, table, set(block.arguments), prefetch)


def _insert_wait(block: ir.Block, table: ir.Value, known: set[ir.Value], prefetch: bool) -> None:
    """Puts a wait before the first access to written memory: inside both arms of a branch that all threads take alike."""
    ops = list(block.operations)
    first = next((o for o in ops if _touches_written_memory(o, table)), ops[-1])
    arms = [r.blocks[0] for r in first.operation.regions if len(r.blocks)] if isinstance(first, scf.IfOp) else []
    if len(arms) == 2:
        known = known | {r for o in ops[:ops.index(first)] for r in o.results}
        for arm in arms:
            _insert_wait(arm, table, known, prefetch)
        return
    with ir.InsertionPoint(first):
        wait = kernel.GridWait()
    if prefetch:
        _hoist_weights(block, wait, table, known)


def _is_constant_load(op: ir.OpView, table: ir.Value) -> bool:
    """Weights, what was written in an earlier run, and the table of symbols, which changes only between runs."""
    if isinstance(op, kernel.TmaLoad):
        return bool(op.constant)
    return isinstance(op, kernel.LoadGlobal) and (op.cache is not kernel.Cache.PLAIN or op.buffer == table)


def _touches_written_memory(op: ir.OpView, table: ir.Value) -> bool:
    if len(op.operation.regions):
        return any(_touches_written_memory(o, table) for r in op.operation.regions for b in r.blocks for o in b.operations)
    reads = kernel.LoadGlobal | kernel.LoadOver | kernel.StoreGlobal | kernel.TmaLoad | kernel.CopyAsync
    return isinstance(op, reads) and not _is_constant_load(op, table)


def _hoist_weights(block: ir.Block, wait: ir.OpView, table: ir.Value, known: set[ir.Value]) -> None:
    ops = list(block.operations)
    at = ops.index(wait)
    early = known | {r for o in ops[:at] for r in o.results}
    moved = 0
    for op in ops[at + 1:]:
        if len(op.operation.regions):
            if any(isinstance(o, scf.ForOp) for o in (op, *_inside(op))):
                break  # what follows a loop would be held across it
            continue
        movable = is_pure(op.operation) or _is_constant_load(op, table)
        if not movable or any(v not in early for v in op.operands):
            continue
        if isinstance(op, kernel.LoadGlobal):
            moved += _bytes(op.result.type)
            if moved > MOST_EARLY_BYTES:
                break
        op.operation.move_before(wait.operation)
        early |= set(op.results)


def _inside(op: ir.OpView) -> list[ir.OpView]:
    return [o for r in op.operation.regions for b in r.blocks for i in b.operations for o in (i, *_inside(i))]


def _bytes(kind: ir.Type) -> int:
    if isinstance(kind, ir.VectorType):
        return kind.shape[0] * _bytes(kind.element_type)
    return ITEM_BYTES[str(kind)]
