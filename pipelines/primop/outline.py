"""Moves a set of operations into a function of their own; chunks and kernels are both made this way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from mlir import ir
from mlir.dialects import func

from tilec.dialects import primop
from tilec.dialects.index_expr import Linear, linear, make_map, map_results

SHAPE, KIND = "primop.shape", "primop.kind"
MARKS = ("primop.chunk", "primop.chunk_index")  # of what follows a graph break: its name, and which of all it is


T = TypeVar("T", bound=ir.OpView)


def body_of(function: ir.OpView) -> ir.Block:
    return function.regions[0].blocks[0]


def ops_in(op: ir.OpView, *kinds: type[T]) -> list[T]:
    """All ops of some kinds in an op: itself, and those in its loops and branches, outer ones first."""
    found: list[T] = []
    names = None if ir.OpView in kinds else {kind.OPERATION_NAME for kind in kinds}

    def visit(nested: ir.Operation) -> ir.WalkResult:
        if names is None or nested.name in names:
            found.append(nested.opview)
        return ir.WalkResult.ADVANCE

    op.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def functions(module: ir.OpView | ir.Operation, marker: str) -> list[ir.OpView]:
    """The module's functions that carry the unit attribute `marker`, in order."""
    return [f for f in module.regions[0].blocks[0].operations
            if f.operation.name == "func.func" and marker in f.attributes]


def callee_of(call: ir.OpView | ir.Operation) -> str:
    """The name of the function that is called."""
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def attributes_of(argument: ir.Value) -> ir.DictAttr:
    """What a function says of one of its arguments."""
    return ir.DictAttr(ir.ArrayAttr(argument.owner.owner.attributes["arg_attrs"])[argument.arg_number])


def describe(argument: ir.Value, name: str, attribute: ir.Attribute) -> None:
    """Makes a function say something of one of its arguments."""
    function, described = argument.owner.owner, {n.name: n.attr for n in attributes_of(argument)}
    every = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
    every[argument.arg_number] = ir.DictAttr.get({**described, name: attribute})
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(every)


def extents_of(value: ir.Value) -> tuple[Linear, ...]:
    """The extents of a tensor as expressions of the module's symbols."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return map_results(ir.AffineMapAttr(attributes_of(value)[SHAPE]).value)
    owner = owner.opview if isinstance(owner, ir.Operation) else owner
    number = ir.OpResult(value).result_number
    if isinstance(owner, primop.Input):
        return map_results(owner.shape)
    if isinstance(owner, primop.Constant):
        return ()
    if isinstance(owner, func.CallOp):
        callee = ir.SymbolTable(_module_of(owner))[callee_of(owner)]
        attributes = ir.DictAttr(ir.ArrayAttr(callee.attributes["res_attrs"])[number])
        return map_results(ir.AffineMapAttr(attributes[SHAPE]).value)
    if isinstance(owner, primop.Scatter):
        return tuple(linear(size) for size in ir.RankedTensorType(value.type).shape)
    if isinstance(owner, primop.Part):
        return linear(owner.count), *extents_of(owner.operand)
    space = primop.space_of(owner)
    dims = list(owner.dims) if isinstance(owner, primop.Sum | primop.Max) else []
    return tuple(e for i, e in enumerate(space) if i not in dims)


def kind_of(value: ir.Value) -> str:
    """'weight', 'state' or 'argument': what an entry's value ultimately is; results of computations are arguments."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return ir.StringAttr(attributes_of(value)[KIND]).value
    owner = owner.opview if isinstance(owner, ir.Operation) else owner
    return owner.kind.value if isinstance(owner, primop.Input) else "argument"


def _module_of(op: ir.OpView) -> ir.Operation:
    parent = op.operation
    while parent.name != "builtin.module":
        parent = parent.parent
    return parent


def described(value: ir.Value, symbols: int, kind: str | None = None) -> ir.Attribute:
    """What a function says of an argument or a result."""
    entries: dict[str, ir.Attribute] = {SHAPE: ir.AffineMapAttr.get(make_map(0, symbols, extents_of(value)))}
    if kind is not None:
        entries[KIND] = ir.StringAttr.get(kind)
    return ir.DictAttr.get(entries)


def outline(module: ir.OpView | ir.Operation, name: str, ops: Sequence[ir.OpView], results: Sequence[ir.Value],
            before: ir.OpView, marker: str, location: ir.Location) -> ir.OpView:
    """Copies `ops` (in order) into a new function `name` that returns `results`, and calls it before `before`.

    The function's arguments are the values that `ops` use and do not define, in order of first use. Returns the call; the
    caller replaces uses and erases what is dead.
    """
    symbols = len(primop.symbol_ranges(module.operation))
    inside = {result for op in ops for result in op.results}
    arguments: list[ir.Value] = []
    for op in ops:
        for operand in op.operands:
            if operand not in inside and operand not in arguments:
                arguments.append(operand)

    with location:
        with ir.InsertionPoint(module.regions[0].blocks[0]):
            function = func.FuncOp(name, ([a.type for a in arguments], [r.type for r in results]), visibility="private")
        function.attributes[marker] = ir.UnitAttr.get()
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([described(a, symbols, kind_of(a)) for a in arguments])
        function.attributes["res_attrs"] = ir.ArrayAttr.get([described(r, symbols) for r in results])
        block = function.add_entry_block()
        values = dict(zip(arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for op in ops:
                copy_op(op, values)
            func.ReturnOp([values[r] for r in results])
        with ir.InsertionPoint(before):
            call = func.CallOp([r.type for r in results], name, arguments)
    return call


def chunk_number(op: ir.OpView) -> int:
    """The number of an op's chunk, -1 for what is outside any graph break."""
    marks = op.operation.attributes
    return ir.IntegerAttr(marks[MARKS[1]]).value if MARKS[1] in marks else -1


def place_in_chunk(op: ir.OpView, other: ir.OpView) -> None:
    """Makes an op part of the chunk that another belongs to."""
    marks, wanted = op.operation.attributes, other.operation.attributes
    for name in MARKS:
        if name in wanted:
            marks[name] = wanted[name]
        elif name in marks:
            del marks[name]


def copy_op(op: ir.OpView, values: dict[ir.Value, ir.Value]) -> None:
    """Clones an op at the insertion point, reading `values` in place of the old operands, and records its results."""
    clone = op.operation.clone()
    for i, operand in enumerate(op.operands):
        clone.operands[i] = values[operand]
    for name in MARKS:
        if name in clone.attributes:
            del clone.attributes[name]
    values.update(zip(op.results, clone.results, strict=True))


def erase(ops: Iterable[ir.OpView]) -> None:
    """Erases ops, last first, that nothing uses any more."""
    for op in reversed(list(ops)):
        op.operation.erase()


def scope_name(location: ir.Location) -> str:
    """The name that the recording scope gave to an op, 'a.b' as 'a_b', or '' where it has none."""
    return location.name_str.replace(".", "_") if location.is_a_name() else ""


def fresh_name(module: ir.OpView | ir.Operation, name: str) -> str:
    """`name` as an identifier, or the first of name_2, name_3, ... that the module does not use."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    table = ir.SymbolTable(module.operation)
    candidate, count = name, 1
    while candidate in table:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
