"""Schedules follow from the target and from which axes the operands are contiguous along, or from what was measured.

A contraction becomes an outer product (`tile.dot`) where an operand is contiguous along an axis that the result keeps:
its elements then fill vector registers, or neighbouring threads. Otherwise both operands are contiguous along the reduced
axis and the product is formed lane by lane and summed at the end.

Where several shapes are possible they are candidates with the cycles that they would take. The first is taken, unless a
recording of `tilec tune` says which was the fastest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlir import ir

from tilec.dialects.schedule import Schedule
from tilec.pipelines.cost.cpu import CpuPlan
from tilec.pipelines.cost.gpu import GpuPlan
from tilec.pipelines.cost.together import fitting, independent_kernels, shape_of
from tilec.pipelines.primop.structure import Structure
from tilec.pipelines.recording import Recording, RecordingError, kernel_key
from tilec.pipelines.targets import CpuTarget, GpuTarget

LOG = logging.getLogger("tilec.schedules")  # what was chosen and what else was considered, at level INFO


@dataclass(frozen=True)
class Candidate:
    """A schedule that a kernel can have, what its shape is called, and the cycles that it would take (0: not predicted)."""

    schedule: Schedule
    shape: str = ""
    cycles: float = 0.0


def candidates(structure: Structure, target: CpuTarget | GpuTarget, best: int | None = None) -> list[Candidate]:
    """The schedules that a kernel can have on a target, or the first `best` of them; the first is what it gets by default."""
    found: dict[Schedule, Candidate] = {}
    known: dict[str, Any] = {}
    take, count = 0, 1
    while take < count and (best is None or len(found) < best):
        plan: Any = CpuPlan(structure, target, take) if isinstance(target, CpuTarget) else \
            GpuPlan(structure, target, take, known)
        contraction = next((r for stage in structure.stages for r in stage if r.contraction), None)
        schedule = plan.online() if structure.online else plan.contraction(contraction) if contraction else plan.elementwise()
        cycles, shape = plan.considered[take] if plan.considered else (0.0, "")
        found.setdefault(schedule, Candidate(schedule, shape, cycles))
        take, count = take + 1, len(plan.considered)
    return list(found.values())


def choose_schedule(structure: Structure, target: CpuTarget | GpuTarget, recording: Recording | None = None) -> Schedule:
    """The schedule of a kernel on a target: the recorded one where there is one (RecordingError if it no longer fits)."""
    function = structure.function
    choice = recording.choices.get(key_of(structure)) if recording else None
    verbose = LOG.isEnabledFor(logging.INFO)
    options = candidates(structure, target, None if choice or verbose else 1)
    schedule = options[0].schedule
    name = ir.StringAttr(function.attributes["sym_name"]).value
    if recording and choice:
        schedule = _recorded(name, choice.schedule, options, recording)
    if verbose:
        said = [f"measured: {choice.us:.1f} us"] if choice else []
        said += ["shapes and cycles: " + "; ".join(f"{c.shape} {c.cycles:.0f}" for c in options)] if options[0].shape else []
        LOG.info("%s: %s%s", name, schedule, f" ({'; '.join(said)})" if said else "")
    return schedule


def choose_schedules(module: ir.OpView, structures: Mapping[str, Structure], target: CpuTarget | GpuTarget,
                     recording: Recording | None = None) -> dict[str, Schedule]:
    """The schedule of every kernel of a module, by name: those that may be one launch are chosen together."""
    schedules = {name: choose_schedule(structure, target, recording) for name, structure in structures.items()}
    if isinstance(target, CpuTarget) or not target.wgmma:
        return schedules
    together: set[str] = set()
    for names in independent_kernels(module):
        names = [n for n in dict.fromkeys(names) if n in schedules and n not in together
                 and (schedules[n].tensor or schedules[n].twins) and not structures[n].online
                 and not (recording and key_of(structures[n]) in recording.choices)]
        if len(names) < 2:
            continue
        found = fitting([[shape_of(structures[n], c.schedule, c.cycles, target) for c in candidates(structures[n], target)]
                         for n in names])
        if found:
            together |= {*names}
            for name, schedule in zip(names, found, strict=True):
                LOG.info("%s beside %s: %s", name, ", ".join(n for n in names if n != name), schedule)
                schedules[name] = schedule
    return schedules


def key_of(structure: Structure) -> str:
    """What a kernel is called in recordings."""
    return kernel_key(structure.function.operation.get_asm(use_local_scope=True), structure.symbols, structure.tf32)


def _recorded(name: str, text: str, options: list[Candidate], recording: Recording) -> Schedule:
    """A recorded schedule as one of those that are considered today, or a RecordingError."""
    try:
        schedule = Schedule.from_attribute(ir.Attribute.parse(text))
    except (ValueError, KeyError, ir.MLIRError):
        raise RecordingError(f"{recording.path}: the schedule recorded for {name} cannot be read; {recording.remedy}") from None
    for option in options:  # equal kernels have equal extents, whose symbols may have other numbers
        axes = option.schedule.axes
        if len(axes) == len(schedule.axes):
            here = replace(schedule, axes=tuple(
                replace(a, extent=b.extent) for a, b in zip(schedule.axes, axes, strict=True)))
            if here == option.schedule:
                return option.schedule
    raise RecordingError(f"{recording.path}: the schedule recorded for {name} ({schedule}) is not one that this version "
                         f"of the compiler can give it; {recording.remedy}")
