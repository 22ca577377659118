"""Which calls of a chunk may become one launch: those of which none needs what another makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mlir import ir

MOST_TOGETHER = 4  # kernels of one launch


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
