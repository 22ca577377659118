"""Schedules follow from the target and from which axes the operands are contiguous along; nothing is recorded.

A contraction becomes an outer product (`tile.dot`) where an operand is contiguous along an axis that the result keeps:
its elements then fill vector registers, or neighbouring threads. Otherwise both operands are contiguous along the reduced
axis and the product is formed lane by lane and summed at the end.
"""

from __future__ import annotations

from typing import Any

from tilec.dialects.schedule import Schedule
from tilec.pipelines.cost.cpu import CpuPlan
from tilec.pipelines.cost.gpu import GpuPlan
from tilec.pipelines.primop.structure import Structure
from tilec.pipelines.targets import CpuTarget, GpuTarget


def choose_schedule(structure: Structure, target: CpuTarget | GpuTarget) -> Schedule:
    """The schedule of a kernel on a target."""
    contraction = next((r for stage in structure.stages for r in stage if r.contraction), None)
    plan: Any = CpuPlan(structure, target) if isinstance(target, CpuTarget) else GpuPlan(structure, target)
    if structure.online:
        return plan.online()
    return plan.contraction(contraction) if contraction else plan.elementwise()
