"""What follows products is finished in shares of their results, so that beside the accumulators a thread holds what it reads
for one share.

Blocks of a cluster that have dealt out their sums go on with one share each, in a branch of its own: it reads nothing for the
others. Results that are reversed are made from two accumulators each, so none of these is free before both are stored: where
they and what is read with them do not fit a thread, the rows are finished in two shares, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from mlir import ir

from tilec.dialects import tile
from tilec.pipelines.layouts import Coordinates
from tilec.pipelines.online_parts import OnlineParts
from tilec.pipelines.thread_reductions import Deal

MOST_HELD = 208  # registers of a thread for results and what is read with them


class Epilogues(OnlineParts):
    """Lowers the end of a block once for every share, if its ops work element by element."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.belongs: Callable[[Coordinates], bool] | None = None  # to the share that is lowered
        self.dealt_axes: list[int] = []

    def lower_shares(self, ops: list[ir.OpView]) -> bool:
        if not self.schedule.rings or self.belongs is not None or not all(map(self._is_in_one_share, ops)):
            return False
        if self.deal is not None:
            if self._local(self.deal.axis) > 1 or self.depth:
                return False
            shares = prod(runs for _, _, runs in self.deal.registers)
            for turn in range(min(self.schedule.cluster, shares)):
                with self._when(self._is(self._rank(), turn)):
                    self._lower_share(ops, self.deal, turn, self.schedule.cluster)
            return True
        rows = self._rows_of_reversed(ops)
        if rows is None:
            return False
        halves = Deal(-1, ((rows, self.schedule.axes[rows].registers // 2, 2),))
        for turn in range(2):
            self._lower_share(ops, halves, turn, 2)
        return True

    def _is_in_one_share(self, op: ir.OpView) -> bool:
        """Whether an op makes or stores each element of a tile from the same elements of others, those that mirror them, or all
        along axes that are not dealt."""
        if isinstance(op, tile.Reduce):
            return self.deal is not None and not {*op.axes} & {self.deal.axis, *(a for a, _, _ in self.deal.registers)}
        if isinstance(op, tile.Tile.Operation):
            return isinstance(
                op, tile.Load | tile.Gather | tile.Store | tile.Scatter | tile.IndexTile | tile.Spread | tile.Reverse)
        return not len(op.operation.regions)

    def _lower_share(self, ops: list[ir.OpView], deal: Deal, turn: int, shares: int) -> None:
        self.dealt_axes = [a for a, _, _ in deal.registers]
        self.belongs = lambda at: deal.turn(at, shares) == turn
        self.lower_ops(ops)
        self.belongs = None

    def _rows_of_reversed(self, ops: list[ir.OpView]) -> int | None:
        """The axis of rows whose halves are shares, None where all of a reversed product fits the registers."""
        reverses = [o for o in ops if isinstance(o, tile.Reverse)]
        rows = [i for i, a in enumerate(self.schedule.axes) if a.warps > 1 and a.vector == 1 and a.registers % 2 == 0]
        if not reverses or len(rows) != 1 or rows[0] in [o.axis for o in reverses]:
            return None
        shapes = [reverses[0].value.type.shape, *(o.result.type.shape for o in ops if isinstance(o, tile.Load))]
        held = sum(prod(layout.registers) * layout.length for layout in map(self.layout, shapes))
        return rows[0] if held > MOST_HELD else None

    def share(self, registers: Coordinates) -> Callable[[Coordinates], bool] | None:
        return None if any(registers[a] == 1 for a in self.dealt_axes) else self.belongs

    def stores(self, at: Coordinates, shape: Sequence[int]) -> ir.Value | None:
        return super().stores(at, shape) if self.belongs is None else None

    def needs(self, at: Coordinates, shape: Sequence[int]) -> ir.Value | None:
        return super().needs(at, shape) if self.belongs is None else None
