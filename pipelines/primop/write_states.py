"""Outputs get memory of their own, and a state ends as its output says, also where no scatter could write it in place."""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import identity, make_map
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import body_of, callee_of, erase, extents_of, fresh_name, functions, outline
from tilec.pipelines.primop.structure import defining_op


@dataclass(frozen=True)
class WriteStates(Pass):
    """Copy outputs that lie in a state's memory without replacing it, and write outputs that replace a state into it."""

    name = "primop-write-states"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for entry in functions(op, "primop.entry"):
            ops = list(body_of(entry).operations)
            outputs = [o for o in ops if isinstance(o, primop.Output)]
            states = {o.label: o.result for o in ops if isinstance(o, primop.Input) and o.kind is primop.InputKind.STATE}
            places = {o.operation: _state_that_holds(op, o.value) for o in outputs}
            misplaced = [o for o in outputs if places[o.operation] != (o.alias if o.alias in states else None)]
            for output in misplaced:  # all copies come first: a state is read before it is written
                if places[output.operation] is not None:
                    _replace(op, entry, output, outputs[0], [_copy(op, output)])
            for output in misplaced:
                if output.alias in states:
                    _replace(op, entry, output, outputs[0], _write(op, output, states[output.alias]))


def _state_that_holds(module: ir.OpView, value: ir.Value) -> str | None:
    """The label of the state in whose memory an entry point's value lies, None where it has memory of its own."""
    op = defining_op(value)
    if isinstance(op, primop.Input):
        return op.label if op.kind is primop.InputKind.STATE else None
    chunk = ir.SymbolTable(module.operation)[callee_of(op)]
    inner = list(body_of(chunk).operations)[-1].operands[ir.OpResult(value).result_number]
    while isinstance(defining_op(inner), primop.Scatter):  # all of them write in place by now
        inner = defining_op(inner).dest
    return _state_that_holds(module, op.operands[inner.arg_number]) if isinstance(inner.owner, ir.Block) else None


def _copy(module: ir.OpView, output: primop.Output) -> ir.OpView:
    extents, symbols = extents_of(output.value), len(primop.symbol_ranges(module.operation))
    with output.operation.location, ir.InsertionPoint(output):
        return primop.Cast(operand=output.value, space=make_map(0, symbols, extents), result=output.value.type,
                           maps=[make_map(len(extents), symbols, identity(len(extents)))])


def _write(module: ir.OpView, output: primop.Output, state: ir.Value) -> list[ir.OpView]:
    """A scatter of all rows of an output onto a state."""
    extents, symbols = extents_of(output.value), len(primop.symbol_ranges(module.operation))
    rank = len(extents)
    if output.value.type != state.type or not rank:
        raise PassFailure(f"output {output.label} must have the type of the state that it replaces, {state.type}, with at "
                          f"least one dimension, but has {output.value.type}", output.operation.location)
    at = identity(rank + 1)
    with output.operation.location, ir.InsertionPoint(output):
        rows = primop.Iota(space=make_map(0, symbols, extents[:1]),
                           result=ir.RankedTensorType.get([extents[0].constant], ir.IntegerType.get_signless(32)))
        return [rows, primop.Scatter(
            dest=state, index=rows.result, source=output.value, space=make_map(0, symbols, extents),
            extent=extents[0].constant, inplace=True, result=state.type,
            maps=[make_map(rank + 1, symbols, [at[rank], *at[1:rank]]), make_map(rank, symbols, [at[0]]),
                  make_map(rank, symbols, identity(rank))])]


def _replace(module: ir.OpView, entry: ir.OpView, output: primop.Output, before: ir.OpView, ops: list[ir.OpView]) -> None:
    """Outlines ops as a chunk of their own, called before all outputs, and makes its result what `output` returns."""
    name = fresh_name(module, f"{ir.StringAttr(entry.attributes['sym_name']).value}_{output.label}")
    result = ops[-1].operation.results[0]
    call = outline(module, name, ops, [result], before, "primop.chunk", output.operation.location)
    output.operation.operands[0] = call.results[0]
    erase(ops)
