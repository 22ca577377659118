"""Branches, calls and the end of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Key, Run, instruction
from ..faults import Fault, Unsupported
from ..formats import TYPES
from ..lanes import Lanes
from ..parser import Name, Table, Target, Variable, Vector

if TYPE_CHECKING:
    from ..machine import Batch

Outcome = list[tuple[Key, Lanes]]


@instruction("bra")
def bra(at: Decoder) -> Run:
    at.take("uni")
    at.expect(1)
    target, starts = at.operands[0], at.starts
    if not isinstance(target, Target):
        raise Unsupported(f"the branch target {target}")
    return lambda batch, lanes: [((batch.key[0], starts[target.index], batch.key[2]), lanes)]


@instruction("brx.idx")
def brx(at: Decoder) -> Run:
    at.take("uni")
    at.expect(2)
    table, starts, index = at.operands[1], at.starts, at.reader(0, TYPES["u32"])
    if not isinstance(table, Table):
        raise Unsupported(f"the branch table {table}")

    def run(batch: Batch, lanes: Lanes) -> Outcome:
        chosen = index(batch, lanes)
        if (beyond := (chosen >= len(table.targets)) & lanes.mask).any():
            raise Fault(f"brx.idx beyond its {len(table.targets)} targets", int(beyond.argmax()))
        depth, _, stack = batch.key
        taken = [batch.sets.of(lanes.mask & (chosen == place)) for place in range(len(table.targets))]
        return [((depth, starts[target], stack), some) for target, some in zip(table.targets, taken, strict=True)]

    return run


@instruction("exit")
def leave(at: Decoder) -> Run:
    at.expect(0)

    def run(batch: Batch, lanes: Lanes) -> Outcome:
        batch.finish(lanes)
        return []

    return run


@instruction("ret")
def ret(at: Decoder) -> Run:
    at.take("uni")
    at.expect(0)

    def run(batch: Batch, lanes: Lanes) -> Outcome:
        depth, _, stack = batch.key
        if stack:
            return [((depth + 1, stack[-1], stack[:-1]), lanes)]
        batch.finish(lanes)
        return []

    return run


@instruction("call")
def call(at: Decoder) -> list[Run]:
    """Two steps: pass the arguments and go; and, once back, fetch the results."""
    at.take("uni")
    vectors = [each.items for each in at.operands if isinstance(each, Vector)]
    place = next((at for at, each in enumerate(at.operands) if isinstance(each, Name)), None)
    name = at.operands[place] if place is not None else None
    program = at.program
    if not isinstance(name, Name) or name.name not in program.functions or len(at.operands) > 3:
        raise Unsupported("a call of a function that the module does not define")
    callee = program.functions[name.name]
    if name.name not in program.called:
        program.called.append(name.name)
    results = vectors.pop(0) if place == 1 else ()
    arguments = vectors.pop(0) if vectors else ()

    def pairs(sources: object, targets: object, by_target: bool) -> list[tuple[int, int]]:
        """The registers to copy: every piece that the reading side knows."""
        found = []
        for source, target in zip(sources, targets, strict=True):  # type: ignore[call-overload]
            assert isinstance(source, Variable) and isinstance(target, Variable)
            pieces = program.stored(target), program.stored(source)
            for key, register in pieces[0].items():
                if key not in pieces[1]:
                    raise Fault(f"never written: bytes {key[0]} on of the parameter {source.name}, as {key[1]} bits")
                found.append((program.slot(pieces[1][key]), program.slot(register)))
        return found

    def transfer(batch: Batch, lanes: Lanes, slots: list[tuple[int, int]]) -> None:
        for source, target in slots:
            have = batch.defined[source]
            if have is None or not batch.sets.inside(lanes, have):
                raise Fault(f"never written: a value that passes to or from {callee.name}")
            batch.assign(target, lanes, batch.registers[source])

    def enter(batch: Batch, lanes: Lanes) -> Outcome:
        transfer(batch, lanes, pairs(arguments, callee.parameters, True))
        depth, counter, stack = batch.key
        return [((depth - 1, program.entries[callee.name], (*stack, counter + 1)), lanes)]

    def back(batch: Batch, lanes: Lanes) -> None:
        transfer(batch, lanes, pairs(callee.returns, results, False))

    return [enter, back]


@instruction("trap")
def trap(at: Decoder) -> Run:
    at.expect(0)

    def run(batch: Batch, lanes: Lanes) -> None:
        raise Fault("trap: the kernel itself reports an error")

    return run


@instruction("nanosleep")
def nanosleep(at: Decoder) -> Run:
    read = at.reader(at.expect(1) - 1, at.type())

    def run(batch: Batch, lanes: Lanes) -> None:
        np.asarray(read(batch, lanes))

    return run
