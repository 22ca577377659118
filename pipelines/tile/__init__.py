"""Passes over tile functions. Each reads its own part of a function's schedule and does nothing without it."""

from collections.abc import Iterator

from mlir import ir

from tilec.dialects.schedule import Schedule
from tilec.pipelines.primop.outline import functions


def tile_functions(module: ir.OpView) -> Iterator[tuple[ir.OpView, Schedule]]:
    """The tile functions of a module's nested modules, each with its schedule."""
    for nested in module.regions[0].blocks[0].operations:
        if nested.operation.name == "builtin.module":
            for function in functions(nested, "tile.kernel"):
                yield function, Schedule.from_attribute(function.attributes["tile.schedule"])
