"""A row that a matrix is multiplied with is made by every program for itself, in shared memory, if it is cheap to make.

A norm of one row costs less than a launch, and less than the wait between two kernels. So its last value is marked, with
everything below that nobody else uses, down to what is read from memory: `primop-fuse` then takes a copy of it into each
kernel that multiplies with it, and `convert-primop-to-tile` makes the row first, by all threads of the program.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Linear, linear
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.fuse import ONLINE, REDUCTIONS, STAGED, is_contraction
from tilec.pipelines.primop.outline import body_of, extents_of, functions
from tilec.runtime.artifact import ITEM_BYTES


@dataclass(frozen=True)
class StageRows(Pass):
    """Mark rows behind a reduction, such as a norm's, that contractions read and that fit shared memory."""

    name = "primop-stage-rows"
    anchor = "builtin.module"
    bytes: int = 32 << 10

    def run(self, op: ir.OpView) -> None:
        for chunk in functions(op, "primop.chunk"):
            for candidate in list(body_of(chunk).operations):
                if len(candidate.operation.results) == 1 and self._suits(candidate):
                    _mark(candidate)

    def _suits(self, op: ir.OpView) -> bool:
        """Whether an op is a row of known length that only contractions multiply, made by reductions along itself."""
        if not op.operation.name.startswith("primop.") or isinstance(op, (*REDUCTIONS, primop.Input, primop.Scatter)):
            return False
        length = _length(op.operation.results[0])
        users = [use.owner for use in op.operation.results[0].uses]
        if length is None or length * ITEM_BYTES[str(primop.element_type(op.operation.results[0]))] > self.bytes or not users:
            return False
        if not all(isinstance(u, primop.Mul) and all(_stands_alone(s.owner) for s in u.result.uses) for u in users):
            return False
        below = _below(op)
        reductions = [o for o in below if isinstance(o, REDUCTIONS)]
        return bool(reductions) and all(
            not is_contraction(o) and len(o.dims) == 1 and primop.space_of(o)[o.dims[0]] == linear(length) and
            all(e == linear(1) for e in extents_of(o.result)) for o in reductions) and \
            not any(isinstance(o, primop.Gather | primop.Scatter | primop.Softmax) for o in below)


def _stands_alone(op: ir.OpView) -> bool:
    """Whether an op is a contraction, and no part of a chain that one loop computes."""
    return is_contraction(op) and ONLINE not in op.operation.attributes


def _length(value: ir.Value) -> int | None:
    """The extent of the one dimension that is not 1, if it is known."""
    live: list[Linear] = [e for e in extents_of(value) if e != linear(1)]
    return live[0].constant if len(live) == 1 and live[0].is_constant else None


def _below(op: ir.OpView) -> list[ir.OpView]:
    """An op and what it alone is computed from, last first."""
    found = [op]
    known = {op}
    for candidate in reversed(list(op.operation.block.operations)):
        inside = candidate.operation.name.startswith("primop.") and not isinstance(candidate, primop.Input | primop.Constant)
        uses = [use.owner for result in candidate.operation.results for use in result.uses]
        if inside and candidate not in known and uses and all(u in known for u in uses):
            found.append(candidate)
            known.add(candidate)
    return found


def _mark(op: ir.OpView) -> None:
    for part in _below(op):
        part.operation.attributes[STAGED] = ir.StringAttr.get("row" if part == op else "part")
