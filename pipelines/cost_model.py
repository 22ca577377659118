"""Schedules follow from the target and from which axes the operands are contiguous along; nothing is recorded.

A contraction becomes an outer product (`tile.dot`) where an operand is contiguous along an axis that the result keeps:
its elements then fill vector registers, or neighbouring threads. Otherwise both operands are contiguous along the reduced
axis and the product is formed lane by lane and summed at the end.
"""

from __future__ import annotations

import logging
from typing import Any

from mlir import ir

from tilec.dialects.schedule import Schedule
from tilec.pipelines.cost.cpu import CpuPlan
from tilec.pipelines.cost.gpu import GpuPlan
from tilec.pipelines.primop.structure import Structure
from tilec.pipelines.targets import CpuTarget, GpuTarget

LOG = logging.getLogger("tilec.schedules")  # what was chosen and what else was considered, at level INFO


def choose_schedule(structure: Structure, target: CpuTarget | GpuTarget) -> Schedule:
    """The schedule of a kernel on a target."""
    contraction = next((r for stage in structure.stages for r in stage if r.contraction), None)
    plan: Any = CpuPlan(structure, target) if isinstance(target, CpuTarget) else GpuPlan(structure, target)
    schedule = plan.online() if structure.online else plan.contraction(contraction) if contraction else plan.elementwise()
    if LOG.isEnabledFor(logging.INFO):
        name = ir.StringAttr(structure.function.attributes["sym_name"]).value
        others = "; ".join(f"{shape} {cycles:.0f}" for cycles, shape in plan.considered)
        LOG.info("%s: %s%s", name, schedule, f" (tiles and cycles: {others})" if others else "")
    return schedule
