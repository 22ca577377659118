"""Which operands TMA can bring to shared memory so that products by multiply-adds need no masks.

A tensor map sees planes of rows; a fetch steps along all of them by multiples of 16 bytes. Along the reduced axis it must
read zero past the end: because the axis is a whole number of tiles, because rows in memory end there, or because its length
is known when the kernel is launched and then ends the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilec.dialects.index_expr import Dim
from tilec.pipelines.primop.outline import extents_of
from tilec.pipelines.primop.structure import Access, Structure, capacity, is_contiguous

F32_STEP, F16_STEP = 4, 8  # elements of 16 bytes


def lies_along(access: Access, row: int, k: int, depth: int, structure: Structure) -> bool:
    """Whether an operand's rows run along `row`, contiguous along the reduced axis `k`."""
    offset, extent = access.offset, structure.extents[k]
    width, steps = offset.coefficient(Dim(row)), [c for atom, c in offset.terms if atom != Dim(k)]
    if width <= 0 or {Dim(row), Dim(k)} & offset.nonlinear_atoms() or not is_contiguous(offset, [(k, depth)], structure.ranges):
        return False
    begins, whole = offset.constant % width if extent.is_constant else offset.constant, all(c % width == 0 for c in steps)
    if extent.is_constant:
        ends = extent.constant % depth == 0 or (width == extent.constant + begins and whole)
    else:
        ends = whole and begins == 0
    return ends and all(c % F32_STEP == 0 for c in (*steps, offset.constant))


def lies_across(access: Access, column: int, k: int, depth: int, structure: Structure) -> bool:
    """Whether an operand's rows run along the reduced axis `k`, contiguous along `column`."""
    offset, extent = access.offset, structure.extents[k]
    width, others = offset.coefficient(Dim(k)), [c for atom, c in offset.terms if atom not in (Dim(k), Dim(column))]
    if width <= 0 or {Dim(column), Dim(k)} & offset.nonlinear_atoms() or \
            not is_contiguous(offset, [(column, F32_STEP)], structure.ranges) or \
            any(c % F32_STEP for c in (width, *others, offset.constant)):
        return False
    if extent.is_constant:
        return extent.constant % depth == 0
    # The tensor map ends every plane of rows at the length: planes must be of one size.
    planes = [c // width for c in others if c % width == 0]
    total = -(-prod(capacity(extents_of(access.buffer), structure.symbols)) // width)
    return offset.constant == 0 and all(c % min(planes) == 0 for c in (*planes, total) if planes)


def in_pieces(access: Access, axis: int, structure: Structure, step: int = F16_STEP) -> bool:
    """Whether an operand can be copied in 16 bytes, `step` elements, along an axis: contiguous, and all else multiples."""
    offset = access.offset
    others = [c for atom, c in offset.terms if atom != Dim(axis)]
    return Dim(axis) not in offset.nonlinear_atoms() and is_contiguous(offset, [(axis, 2)], structure.ranges) and \
        not any(c % step for c in (*others, offset.constant))


def is_run(accesses: Sequence[Access], tiles: dict[int, int]) -> bool:
    """Whether the rows of a tile over several axes, the last fastest, are at equal distances in memory."""
    wide = [a for a, size in tiles.items() if size > 1]
    for access in accesses:
        step = access.offset.coefficient(Dim(wide[-1])) if wide else 0
        for a in reversed(wide):
            if access.offset.coefficient(Dim(a)) != step or Dim(a) in access.offset.nonlinear_atoms():
                return False
            step *= tiles[a]
    return True
