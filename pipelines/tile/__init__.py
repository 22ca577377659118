"""Passes over tile functions. Each reads its own part of a function's schedule and does nothing without it."""

from collections.abc import Iterator
from typing import TypeVar

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects.schedule import Schedule
from tilec.pipelines.effects import is_pure
from tilec.pipelines.primop.outline import functions
from tilec.pipelines.primop.structure import defining_op

GROUP = 128  # threads that work on one product by wgmma

T = TypeVar("T")


def tile_functions(module: ir.OpView) -> Iterator[tuple[ir.OpView, Schedule]]:
    """The tile functions of a module's nested modules, each with its schedule."""
    for nested in module.regions[0].blocks[0].operations:
        if nested.operation.name == "builtin.module":
            for function in functions(nested, "tile.kernel"):
                yield function, Schedule.from_attribute(function.attributes["tile.schedule"])


def index_constant(value: int) -> ir.Value:
    """A constant index, at the insertion point."""
    return arith.constant(ir.IndexType.get(), value)


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


def ops_in(op: ir.OpView, kind: type[T]) -> list[T]:
    """All ops of a kind in an op: itself, and those in its loops and branches."""
    blocks = [block for region in op.operation.regions for block in region.blocks]
    inside = [o for block in blocks for inner in block.operations for o in ops_in(inner, kind)]
    return [op, *inside] if isinstance(op, kind) else inside


def in_another_turn(value: ir.Value, copies: dict[ir.Value, ir.Value], first: scf.ForOp) -> ir.Value:
    """An index that a loop's turn computes, for another turn, at the insertion point: `copies` has what differs, such as the
    loop's variable, and what is known before the `first` of the loops stays."""
    op = defining_op(value)
    if value in copies or op is None or not is_pure(op.operation) or _is_known(op.operation, first):
        return copies.get(value, value)
    operands = [in_another_turn(v, copies, first) for v in op.operands]
    clone = op.operation.clone()
    for i, operand in enumerate(operands):
        clone.operands[i] = operand
    copies.update(zip(op.operation.results, clone.results, strict=True))
    return copies[value]


def _is_known(op: ir.Operation, first: scf.ForOp) -> bool:
    """Whether an op stands before the first loop, in its block or around it."""
    block = first.operation.block
    while op.block != block:
        parent = op.parent
        if parent is None or parent.name == "func.func":
            return True  # around the loop
        op = parent
    return op.is_before_in_block(first.operation)
