"""Products that do not need each other may become one launch, if their blocks are alike: then these fill each other's gaps.

Each alone would choose what fills the multiprocessors by itself, such as a depth in parts for the few columns of keys and
values. Beside each other they need not be split: of all shapes with the same blocks those are taken whose programs together
take the fewest cycles, if that is less than one launch after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from mlir import ir
from mlir.dialects import func

from tilec.dialects.schedule import Schedule
from tilec.pipelines.cost.plan import largest
from tilec.pipelines.launches import independent_calls
from tilec.pipelines.primop.outline import body_of, callee_of, functions
from tilec.pipelines.primop.structure import Structure
from tilec.pipelines.targets import GpuTarget

LAUNCH_CYCLES = 2000  # until a launch of its own has begun
MOST_SHAPES = 5  # of one product that are considered


@dataclass(frozen=True)
class Shape:
    """One way to make a product by tensor cores: its programs, and the cycles that a wave of them takes."""

    schedule: Schedule
    cycles: float
    programs: int
    at_once: int  # programs of one wave

    @property
    def waves(self) -> int:
        return -(-self.programs // self.at_once)

    @property
    def blocks(self) -> tuple[int, int]:
        """What launches must have in common."""
        return self.schedule.threads, self.schedule.split


def shape_of(structure: Structure, schedule: Schedule, cycles: float, target: GpuTarget) -> Shape:
    programs = prod(-(-largest(structure, a) // schedule.axes[a].tile) for a in structure.grid)
    return Shape(schedule, cycles, programs, target.clusters(schedule.split) * max(schedule.resident, 1))


def fitting(products: Sequence[Sequence[Shape]]) -> list[Schedule] | None:
    """A schedule for each product, alike in their blocks; None if each had better have its first and a launch of its own."""
    best, chosen = sum(shapes[0].cycles for shapes in products) + LAUNCH_CYCLES * (len(products) - 1), None
    # Of few rows each keeps the blocks that it would have alone: fewer warps a block end in fewer waves, but read slower.
    considered = products[0][:1] if products[0][0].schedule.twins else products[0]
    for blocks in dict.fromkeys(shape.blocks for shape in considered):
        alike = [[s for s in shapes if s.blocks == blocks][:MOST_SHAPES] for shapes in products]
        for combination in itertools.product(*alike):
            cycles = _cycles(combination)
            if cycles < best:
                best, chosen = cycles, [shape.schedule for shape in combination]
    return chosen


def _cycles(shapes: Sequence[Shape]) -> float:
    """Of one launch: waves of programs, of which some take longer than others, in as many blocks at once as the kernel has
    that needs most registers."""
    programs, at_once = sum(s.programs for s in shapes), min(s.at_once for s in shapes)
    waves = [s.cycles / s.waves for s in shapes]
    work = sum(s.programs * cycles for s, cycles in zip(shapes, waves, strict=True))
    return max(*waves, -(-programs // at_once) * work / programs)


def independent_kernels(module: ir.OpView) -> Iterator[list[str]]:
    """The names of kernels that a chunk calls and of which none needs another, as long as there are several."""
    for chunk in functions(module, "primop.chunk"):
        for calls in independent_calls([o for o in body_of(chunk).operations if isinstance(o, func.CallOp)]):
            yield [callee_of(call) for call in calls]
