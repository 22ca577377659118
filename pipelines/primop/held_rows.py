"""Rows of a state that no kernel of an entry point writes are there before its kernels run.

    cache' = scatter(cache, past + i, new);  read(cache', t) for t < past + n   ->   rows t < past of cache' are `held`

A kernel may read them while the kernel that writes the others still runs. The mark, on the argument of a kernel that reads
the state, gives the dimension and the number of rows. A state is written by one chunk alone (see inplace_scatter.py); of its
scatters each must write rows that are counted from a known one on.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import func

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, Linear, Symbol, dim, linear, make_map, map_results
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import attributes_of, body_of, callee_of, describe, functions, kind_of
from tilec.pipelines.primop.structure import defining_op

HELD = "primop.held"  # of an argument: (dimension, rows)
Held = tuple[int, Linear]


@dataclass(frozen=True)
class HeldRows(Pass):
    """Mark the rows of states that an entry point reads and does not write."""

    name = "primop-held-rows"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        kernels = {ir.StringAttr(k.attributes["sym_name"]).value: k for k in functions(op, "primop.kernel")}
        facts: dict[tuple[str, int], set[Held | None]] = {}
        for chunk in functions(op, "primop.chunk"):
            for call in body_of(chunk).operations:
                if isinstance(call, func.CallOp) and (name := callee_of(call)) in kernels:
                    for i, value in enumerate(call.operands):
                        facts.setdefault((name, i), set()).add(_held_rows(value, kernels))
        symbols = len(primop.symbol_ranges(op.operation))
        for (name, i), held in facts.items():
            if len(held) == 1 and (fact := next(iter(held))) is not None:
                rows = ir.AffineMapAttr.get(make_map(0, symbols, [linear(fact[0]), fact[1]]))
                describe(body_of(kernels[name]).arguments[i], HELD, rows)


def held_rows(function: ir.OpView) -> dict[ir.Value, Held]:
    """What is known of a kernel's arguments."""
    found = {}
    for argument in body_of(function).arguments:
        if HELD in (attributes := attributes_of(argument)):
            dimension, rows = map_results(ir.AffineMapAttr(attributes[HELD]).value)
            found[argument] = dimension.constant, rows
    return found


def _held_rows(value: ir.Value, kernels: dict[str, ir.OpView]) -> Held | None:
    """The rows of a value that are as they were when the entry point began: of a state after scatters onto it."""
    held: Held | None = None
    while isinstance(call := defining_op(value), func.CallOp):
        kernel = kernels.get(callee_of(call))
        scatter = defining_op(list(body_of(kernel).operations)[-1].operands[0]) if kernel is not None else None
        if not isinstance(scatter, primop.Scatter) or not isinstance(scatter.dest.owner, ir.Block):
            return None
        written = _first_written(scatter)
        if written is None or (held is not None and held != written):
            return None
        held, value = written, call.operands[ir.BlockArgument(scatter.dest).arg_number]
    return held if isinstance(value.owner, ir.Block) and kind_of(value) == "state" else None


def _first_written(scatter: primop.Scatter) -> Held | None:
    """The dimension along which a scatter writes, and the first row that it may write, if its rows are counted."""
    if not isinstance(defining_op(scatter.index), primop.Iota):
        return None
    (row,), place = map_results(scatter.maps[1]), map_results(scatter.maps[0])
    if any(not isinstance(a, Dim | Symbol) or (isinstance(a, Dim) and c < 0) for a, c in row.terms):
        return None
    target = dim(len(primop.space_of(scatter)))
    return place.index(target), Linear(row.constant, tuple((a, c) for a, c in row.terms if isinstance(a, Symbol)))
