"""A scatter writes its destination itself where nobody else reads the old contents; otherwise it copies.

Reads before the scatter count as well: fusion may move them into a kernel that runs after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import identity, make_map
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of, callee_of, extents_of, functions, kind_of
from tilec.pipelines.primop.structure import defining_op


@dataclass(frozen=True)
class InplaceScatter(Pass):
    """Make every scatter write in place: onto its destination where nothing else reads that, otherwise onto a copy."""

    name = "primop-inplace-scatter"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for chunk in functions(op, "primop.chunk"):
            for scatter in list(body_of(chunk).operations):
                if isinstance(scatter, primop.Scatter) and scatter.inplace is None:
                    if len(list(scatter.dest.uses)) > 1 or not _owned(op, chunk, scatter.dest):
                        _copy_destination(op, scatter)
                    scatter.attributes["inplace"] = ir.BoolAttr.get(True)


def _owned(module: ir.OpView, chunk: ir.OpView, dest: ir.Value) -> bool:
    """Whether the chunk may overwrite `dest`: a value it computed into memory, or a state that is passed to it alone."""
    if not isinstance(dest.owner, ir.Block):
        return not isinstance(dest.owner.opview, primop.Constant | primop.Iota)
    return kind_of(dest) == "state" and _only_user(module, chunk, dest)


def _copy_destination(module: ir.OpView, scatter: primop.Scatter) -> None:
    extents = extents_of(scatter.dest)
    symbols = len(primop.symbol_ranges(module.operation))
    with scatter.operation.location, ir.InsertionPoint(scatter):
        copy = primop.Cast(operand=scatter.dest, space=make_map(0, symbols, extents),
                           maps=[make_map(len(extents), symbols, identity(len(extents)))], result=scatter.dest.type)
    scatter.operation.operands[0] = copy.result


def _only_user(module: ir.OpView, chunk: ir.OpView, dest: ir.Value) -> bool:
    """Whether every call of the chunk passes a state that nothing else in its entry point reads and an output replaces."""
    name = ir.StringAttr(chunk.attributes["sym_name"]).value
    for entry in functions(module, "primop.entry"):
        ops = list(body_of(entry).operations)
        replaced = {op.alias for op in ops if isinstance(op, primop.Output)}
        for call in ops:
            if call.operation.name == "func.call" and callee_of(call) == name:
                label = defining_op(call.operands[dest.arg_number]).label
                same = [op for op in ops if isinstance(op, primop.Input) and op.label == label]
                if label not in replaced or sum(len(list(op.result.uses)) for op in same) != 1:
                    return False
    return True
