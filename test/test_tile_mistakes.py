"""The interpreter of tile ops finds mistakes: in the IR that passes leave, in the passes, and in how memory is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
from mlir import ir
from mlir.dialects import arith

from tilec.dialects import tile
from tilec.pipelines.passes import run_pipeline
from tilec.pipelines.tile import persist, prefetch, software_pipeline, specialise, stage, tile_functions

from .programs import Program
from .test_tensor_cores import product, recorded
from .test_tile_passes import PASSES, assert_same_bits, attention, norm_and_row, ops, same_in_all_prefixes, tiled
from .tile import Fault, Memory, run


def long_product() -> Program:
    """Sixteen turns of rings with six slots."""
    return product(64, 17, 64, 1000)


def wide_product() -> Program:
    """Six programs of four turns for two workers."""
    return product(128, 128, 129, 200)


def prompt() -> Program:
    return attention(17, 40, 2, 2, 128)


def norm() -> Program:
    return recorded(norm_and_row)


def found(message: str | None, check: Callable[[], None]) -> None:
    """Expects a fault, or a wrong result where no rule is broken."""
    with pytest.raises(AssertionError if message is None else Fault, match=message or "Arrays are not equal"):
        check()


# --- In the IR -------------------------------------------------------------------------------------------------------


def index(value: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), value)


def one_more_runs(op: tile.Release) -> None:
    op.attributes["running"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), op.running + 1)


def one_later(operand: int) -> Callable[[ir.OpView], None]:
    def edit(op: ir.OpView) -> None:
        with op.operation.location, ir.InsertionPoint(op):
            op.operands[operand] = arith.addi(op.operands[operand], index(1))

    return edit


def always_zero(op: ir.OpView) -> None:
    with op.operation.location, ir.InsertionPoint(op):
        op.result.replace_all_uses_with(index(0))


def without(name: str) -> Callable[[ir.OpView], None]:
    def edit(op: ir.OpView) -> None:
        if name in op.attributes:
            del op.attributes[name]

    return edit


def erased(op: ir.OpView) -> None:
    op.operation.erase()


def before_its_product(op: tile.Release) -> None:
    block = list(op.operation.block.operations)
    op.operation.move_before(block[next(i for i, o in enumerate(block) if o.operation == op.operation) - 1].operation)


@dataclass(frozen=True)
class Edit:
    """What is done to all ops of a kind when all passes have run, and what is found."""

    record: Callable[[], Program]
    kind: type
    edit: Callable[..., None]
    message: str | None = None


EDITS = {
    "slots released too early": Edit(long_product, tile.Release, one_more_runs, "a slot that a product may still read"),
    "slots released before they are read": Edit(prompt, tile.Release, before_its_product, "after its release"),
    "slots not released": Edit(long_product, tile.Release, erased, "a wait never ends"),
    "slots released in another turn": Edit(prompt, tile.Release, one_later(1), "a slot that it does not hold"),
    "slots awaited in another turn": Edit(long_product, tile.Await, one_later(1), "a wait never ends"),
    "slots filled in another turn": Edit(long_product, tile.Fetch, one_later(1), "fills a slot whose next turn is"),
    "slots filled from another place": Edit(long_product, tile.Fetch, one_later(5)),
    "rows fetched past their end": Edit(prompt, tile.Fetch, without("limit")),
    "a row read before a barrier": Edit(norm, tile.Barrier, erased, "before a barrier"),
    "loads without a mask": Edit(norm, tile.Load, without("mask"), "is read out of bounds"),
    "stores without a mask": Edit(wide_product, tile.Store, without("mask"), "is written out of bounds"),
    "programs in one place": Edit(wide_product, tile.ProgramId, always_zero, "written by two programs"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_mistake_in_the_ir_is_found(name: str) -> None:
    mistake = EDITS[name]
    program = mistake.record()
    module = tiled(program, "sm_90a")
    with module.context, ir.Location.unknown():
        expected = run(module, program)
        run_pipeline(module, PASSES)
        for function, _ in tile_functions(module.operation):
            for op in list(ops(function.regions[0].blocks[0], mistake.kind)):
                mistake.edit(op)
        found(mistake.message, lambda: assert_same_bits(expected, run(module, program), name))


# --- In the passes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replaced:
    """A function of a pass that is replaced, and what is found."""

    record: Callable[[], Program]
    target: str
    module: ModuleType
    function: str
    mistaken: Callable[..., object]
    message: str | None = None


PIPELINE = software_pipeline._pipeline
REPLACED = {
    "turns that begin again with each program": Replaced(
        wide_product, "sm_90a", persist, "_count_on", lambda turn, before: None, "fills a slot whose next turn is"),
    "programs that no worker takes": Replaced(
        wide_product, "sm_90a", persist, "index_constant", lambda value: index(3 if value == 2 else value)),
    "rows without an end": Replaced(prompt, "sm_90a", stage, "_limit", lambda *_: None),
    "tiles that both roles fetch": Replaced(
        long_product, "sm_90a", specialise, "_drop_fetches", lambda op: None, "a wait never ends"),
    "tiles of all turns read once": Replaced(lambda: product(8, 5, 40, 1000), "sm_80", prefetch, "_turns", lambda *_: False),
    "turns fetched further ahead than there are slots": Replaced(
        long_product, "sm_80", software_pipeline, "_pipeline", lambda chain, slots: PIPELINE(chain, slots + 1),
        "a wait never ends"),
    "turns that nobody fetches ahead": Replaced(
        long_product, "sm_80", software_pipeline, "index_constant", lambda value: index(value + (value == 1)),
        "a wait never ends"),
    "tiles read past the last turn": Replaced(
        lambda: attention(1, 600, 9, 3, 64), "sm_90a", prefetch, "_bounded", lambda *_: True, "is read out of bounds"),
    "a first tile that does not fit behind where a loop begins": Replaced(
        lambda: attention(1, 700, 4, 2, 128, window=50), "sm_90a", prefetch, "_first", lambda load, loop: loop.lowerBound,
        "is read out of bounds"),
    "turns counted from the start of the cache": Replaced(
        lambda: attention(150, 400, 1, 1, 128, window=390), "sm_90a", stage, "_is_zero", lambda value: True,
        "fills a slot whose next turn is"),
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_mistake_in_a_pass_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mistake = REPLACED[name]
    program = mistake.record()
    module = tiled(program, mistake.target, workers=2)
    monkeypatch.setattr(mistake.module, mistake.function, mistake.mistaken)
    found(mistake.message, lambda: same_in_all_prefixes(module, program))


# --- In the use of memory --------------------------------------------------------------------------------------------


def test_what_another_program_has_written_is_not_read_in_the_same_launch() -> None:
    memory, here, there = Memory(np.zeros(8, np.float32)), [np.arange(4)], [np.arange(3, 7)]
    memory.write(here, np.asarray(True), np.ones(4, np.float32), program=0)
    np.testing.assert_array_equal(memory.read(here, np.asarray(True), program=0), 1)
    with pytest.raises(Fault, match="another program has written"):
        memory.read(there, np.asarray(True), program=1)
    memory.read(there, there[0] > 3, program=1)
    memory.begin_launch()
    np.testing.assert_array_equal(memory.read(there, np.asarray(True), program=1), [1, 0, 0, 0])
