"""Running a program: its roles by turns, the programs of a launch one after the other, the launches of an entry in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Symbol
from tilec.dialects.schedule import Schedule
from tilec.pipelines.plan import plan_module
from tilec.runtime.artifact import Buffer
from tilec.runtime.expressions import evaluate

from .. import programs, reference
from ..reference import Array
from . import arithmetic as arithmetic  # enters its meanings
from .meanings import MEANINGS, WAITS, Execute
from .memory import Fault, Memory, Slot, poison


@dataclass(frozen=True)
class Step:
    """One op: values have numbers."""

    op: ir.OpView
    name: str
    operands: list[int]
    results: list[int]
    blocks: list[Block]
    execute: Execute | None  # None for what has blocks


@dataclass(frozen=True)
class Block:
    arguments: list[int]
    steps: list[Step]
    yielded: list[int]


def _read_block(block: ir.Block, schedule: Schedule, numbers: dict[ir.Value, int]) -> Block:
    def numbered(values: Sequence[ir.Value]) -> list[int]:
        return [numbers.setdefault(v, len(numbers)) for v in values]

    arguments, steps = numbered(block.arguments), []
    *ops, end = list(block.operations)
    for op in ops:
        name, operands = op.operation.name, numbered(op.operands)
        inner = [_read_block(b, schedule, numbers) for region in op.operation.regions for b in region.blocks]
        execute = None if inner else MEANINGS[name](op, schedule)
        steps.append(Step(op, name, operands, numbered(op.operation.results), inner, execute))
    return Block(arguments, steps, numbered(end.operands))


@dataclass
class Running:
    """A program at work (the `Program` of meanings)."""

    schedule: Schedule
    number: int
    coordinates: dict[int, int]
    worker: int
    symbols: Mapping[str, int]
    producing: bool = False
    memory: dict[Any, Any] = field(default_factory=dict)
    products: list[tuple[Slot, ...]] = field(default_factory=list)
    executed: int = 0

    def run(self, body: Block, buffers: Sequence[Memory], roles: Sequence[bool]) -> None:
        """Runs the roles (whether it is the producer) by turns, each until it has to wait."""
        at_work = {role: self._walk(body, dict(zip(body.arguments, buffers, strict=True))) for role in roles}
        while at_work:
            before, waiting = self.executed, {}
            for role, walk in list(at_work.items()):
                self.producing = role
                waiting[role] = next(walk, None)
                if waiting[role] is None:
                    del at_work[role]
            if at_work and self.executed == before:
                raise Fault("a wait never ends: " + " and ".join(str(waiting[role].op) for role in at_work))

    def _walk(self, block: Block, values: dict[int, Any]) -> Iterator[Step]:
        """Runs a block; stops at every op that has to wait."""
        for step in block.steps:
            operands = [values[n] for n in step.operands]
            if step.name == "scf.for":
                first, end, stride, *results = operands
                body, = step.blocks
                for turn in range(first, end, stride):
                    values.update(zip(body.arguments, (turn, *results), strict=True))
                    yield from self._walk(body, values)
                    results = [values[n] for n in body.yielded]
            elif step.name == "scf.if":
                results = []
                for taken in step.blocks[:1] if operands[0] else step.blocks[1:]:
                    yield from self._walk(taken, values)
                    results = [values[n] for n in taken.yielded]
            else:
                can_run = WAITS.get(step.name)
                while can_run is not None and not can_run(*operands):
                    yield step
                self.executed += 1
                try:
                    results = [step.execute(self, *operands)]
                except Fault as fault:
                    fault.add_note(f"in program {self.coordinates or self.worker}: {step.op}")
                    raise
            values.update(zip(step.results, results, strict=False))


class Kernel:
    """A tile function, read once."""

    def __init__(self, function: ir.OpView) -> None:
        attributes = function.attributes
        self.schedule = Schedule.from_attribute(attributes["tile.schedule"])
        self.workers = ir.IntegerAttr(attributes["tile.workers"]).value if "tile.workers" in attributes else None
        self.body = _read_block(function.regions[0].blocks[0], self.schedule, {})
        self.roles = [True, False] if "tile.producer" in _names(self.body) else [False]

    def launch(self, buffers: Sequence[Memory], symbols: Mapping[str, int]) -> None:
        """Runs every program of the grid, or every worker."""
        for buffer in buffers:
            buffer.begin_launch()
        sizes = {Symbol(i): size for i, size in enumerate(symbols.values())}
        grid = self.schedule.grid
        counts = [range(int(reference.index(self.schedule.axes[a].programs, (), sizes))) for a in grid]
        places = itertools.product(*counts) if self.workers is None else itertools.repeat((), self.workers)
        with np.errstate(all="ignore"):
            for number, place in enumerate(places):
                program = Running(self.schedule, number, dict(zip(grid, place, strict=False)), number, symbols)
                program.run(self.body, buffers, self.roles)


def _names(block: Block) -> set[str]:
    return {s.name for s in block.steps}.union(*(_names(b) for s in block.steps for b in s.blocks))


def run(module: ir.Module, program: programs.Program, entry: str = "main") -> dict[str, Array]:
    """The outputs of a recorded program that has become tile functions, and the states that it replaces, by label."""
    plan = plan_module(module.operation)
    nested = next(o for o in module.body.operations if o.operation.name == "builtin.module")
    functions = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in nested.regions[0].blocks[0].operations}
    symbols = {n: program.symbols.get(n, low) for n, (low, _) in primop.symbol_ranges(module.operation).items()}
    known = plan.entries[entry]
    memories = [Memory(_contents(b, program, symbols)) for b in known.buffers]
    kernels: dict[str, Kernel] = {}
    for name, used in known.launches:
        if name not in kernels:
            kernels[name] = Kernel(functions[name])
        kernels[name].launch([memories[b] for b in used], symbols)
    found = {n: memories[b].values[_used(known.buffers[b], symbols)] for n, b in known.results.items()}
    states = {b.label: m.values for b, m in zip(known.buffers, memories, strict=True) if b.kind == "state"}
    return found | {label: states[state] for label, state in program.aliases.items()}


def _contents(buffer: Buffer, program: programs.Program, symbols: Mapping[str, int]) -> Array:
    """What a buffer holds at first: inputs where they are in use, and poison."""
    values = poison(buffer.sizes, buffer.dtype)
    if buffer.kind in ("weight", "state", "argument"):
        values[_used(buffer, symbols)] = program.inputs[buffer.label]
    return values


def _used(buffer: Buffer, symbols: Mapping[str, int]) -> tuple[slice, ...]:
    return tuple(slice(0, evaluate(e, symbols)) for e in buffer.shape)
