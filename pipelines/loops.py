"""Loops of index arithmetic, at any level: what another turn computes, and values that are carried besides."""

from mlir import ir
from mlir.dialects import arith, scf

from tilec.pipelines.effects import is_pure
from tilec.pipelines.primop.structure import defining_op


def index_constant(value: int) -> ir.Value:
    """A constant index, at the insertion point."""
    return arith.constant(ir.IndexType.get(), value)


def constant_of(value: ir.Value) -> int | None:
    """The number that an index is, if it is a constant."""
    op = defining_op(value)
    return ir.IntegerAttr(op.value).value if isinstance(op, arith.ConstantOp) else None


def known_bounds(loop: scf.ForOp) -> tuple[int, int, int] | None:
    """Where a loop begins and ends, and its step, if all are constants."""
    first, last, step = (constant_of(v) for v in (loop.lowerBound, loop.upperBound, loop.step))
    return None if first is None or last is None or step is None else (first, last, step)


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


def take_body(old: scf.ForOp, new: scf.ForOp) -> tuple[list[ir.OpView], ir.OpView]:
    """Moves a loop's ops to the end of another that carries as many values or more; the yield stays. Returns both."""
    for before, after in zip(old.body.arguments, new.body.arguments, strict=False):
        before.replace_all_uses_with(after)
    *body, end = list(old.body.operations)
    for op in body:
        op.operation.detach_from_parent()
        new.body.append(op)
    return body, end


def carrying(loop: scf.ForOp, values: list[ir.Value]) -> tuple[scf.ForOp, list[ir.Value]]:
    """A loop in place of another that also carries `values`, which stay as they are until its yield says otherwise.

    Returns the loop and what stands for the values in its turns.
    """
    count = len(loop.inner_iter_args)
    with loop.operation.location, ir.InsertionPoint(loop):
        longer = scf.ForOp(loop.lowerBound, loop.upperBound, loop.step, [*list(loop.operands)[3:], *values])
    for name in loop.attributes:
        longer.operation.attributes[name] = loop.attributes[name]
    _, end = take_body(loop, longer)
    carried = list(longer.inner_iter_args)[count:]
    with end.operation.location, ir.InsertionPoint(longer.body):
        scf.YieldOp([*end.operands, *carried])
    for before, after in zip(loop.results, longer.results, strict=False):
        before.replace_all_uses_with(after)
    loop.operation.erase()
    return longer, carried


def next_of(loop: scf.ForOp, carried: ir.Value) -> ir.Value:
    """What a value that a loop carries is in the next turn."""
    return _yield(loop).operands[list(loop.inner_iter_args).index(carried)]


def carry_on(loop: scf.ForOp, carried: ir.Value, following: ir.Value) -> None:
    """Sets what a value that a loop carries is in the next turn."""
    _yield(loop).operands[list(loop.inner_iter_args).index(carried)] = following


def _yield(loop: scf.ForOp) -> ir.Operation:
    return list(loop.body.operations)[-1].operation
