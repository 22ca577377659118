"""Passes over tile functions. Each reads its own part of a function's schedule and does nothing without it."""

from collections.abc import Iterator

from mlir import ir

from tilec.dialects.schedule import Schedule
from tilec.pipelines.primop.outline import functions

GROUP = 128  # threads that work on one product by wgmma

def tile_functions(module: ir.OpView) -> Iterator[tuple[ir.OpView, Schedule]]:
    """The tile functions of a module's nested modules, each with its schedule."""
    for nested in module.regions[0].blocks[0].operations:
        if nested.operation.name == "builtin.module":
            for function in functions(nested, "tile.kernel"):
                yield function, Schedule.from_attribute(function.attributes["tile.schedule"])


def op_before(op: ir.OpView) -> ir.OpView | None:
    """The op before another in its block."""
    return _neighbour(op, -1)


def op_after(op: ir.OpView) -> ir.OpView | None:
    """The op after another in its block."""
    return _neighbour(op, 1)


def _neighbour(op: ir.OpView, step: int) -> ir.OpView | None:
    ops = list(op.operation.block.operations)
    at = next(i for i, o in enumerate(ops) if o.operation == op.operation) + step
    return ops[at] if 0 <= at < len(ops) else None
