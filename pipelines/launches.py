"""Calls of kernels: which of a chunk may become one launch, and how a kernel's arguments relate to a call's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mlir import ir

MOST_TOGETHER = 4  # kernels of one launch
BINDING, RESULTS = "tile.binding", "tile.results"


def independent_calls(
    calls: Sequence[ir.OpView], most: int = MOST_TOGETHER,
    joins: Callable[[list[ir.OpView], ir.OpView], bool] = lambda group, call: True,
) -> Iterator[list[ir.OpView]]:
    """Groups of several calls, in order, each call joining the first group that it `joins`.

    A group stands where its first call does, so what is made between that and a later call is not there yet.
    """
    pending = list(calls)
    while pending:
        group, later, made = [pending[0]], [], set(pending[0].results)
        for call in pending[1:]:
            if len(group) < most and not any(v in made for v in call.operands) and joins(group, call):
                group.append(call)
            else:
                later.append(call)
            made |= set(call.results)
        if len(group) > 1:
            yield group
        pending = later


def bind(declared: ir.OpView, binding: Sequence[int], results: Sequence[int]) -> None:
    """Makes a kernel's declaration say what `binding_of` returns, where it has several results."""
    declared.attributes[BINDING] = ir.DenseI64ArrayAttr.get(binding)
    declared.attributes[RESULTS] = ir.DenseI64ArrayAttr.get(results)


def binding_of(declared: ir.OpView, kernel: ir.OpView, operands: int) -> tuple[list[int], list[int]]:
    """For each kernel argument an operand's number or -1 - r for the memory of result r; for each result its argument.

    A kernel with several results says so itself. Otherwise the arguments are the operands, followed by the result unless it
    is written in place.
    """
    said = declared.attributes
    if BINDING in said:
        return list(ir.DenseI64ArrayAttr(said[BINDING])), list(ir.DenseI64ArrayAttr(said[RESULTS]))
    roles = [ir.StringAttr(a).value for a in ir.ArrayAttr(kernel.attributes["tile.arguments"])]
    in_place = len(roles) == operands
    return [*range(operands), *([] if in_place else [-1])], [roles.index("write")]
