"""Barriers of a block, by number. Whole blocks that arrive together pass at once; all others are parked and counted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Key, Run, instruction
from ..faults import Fault
from ..formats import TYPES, Array
from ..lanes import Lanes

if TYPE_CHECKING:
    from ..machine import Batch

U32 = TYPES["u32"]


class Barriers:
    """Who waits where: `number` per lane (-1: nowhere); and who only arrived (bar.arrive), with what they know."""

    def __init__(self, batch: Batch) -> None:
        self.number = np.full(batch.size, -1)
        self.early: dict[tuple[int, int], tuple[int, list[Array]]] = {}


@instruction("bar", "barrier")
def barrier(at: Decoder) -> Run:
    at.take("cta")
    waits = at.need("sync", "arrive") == "sync"
    aligned = bool(at.take("aligned")) or at.mnemonic == "bar"
    counted = at.expect(1, 2) == 2
    number, count = at.reader(0, U32), at.reader(1, U32) if counted else None

    def run(batch: Batch, lanes: Lanes) -> list[tuple[Key, Lanes]] | None:
        block, threads = math.prod(batch.launch.block), batch.launch.threads
        numbers = np.broadcast_to(number(batch, lanes), (batch.size,))
        expected = np.broadcast_to(count(batch, lanes) if count else np.uint32(block), (batch.size,))
        state, mine = batch.state(Barriers), lanes.index
        idle = not batch.parked and not state.early
        everybody = lanes.whole(threads, block) and (expected[mine] == block).all() and np.ptp(numbers[mine]) == 0
        if waits and idle and everybody:
            meet(batch, lanes)
            return None
        if (wrong := (expected % 32 != 0) & lanes.mask).any() and counted:
            raise Fault("a barrier's thread count must be a multiple of 32", int(wrong.argmax()))
        outcome: list[tuple[Key, Lanes]] = []
        if waits:
            state.number[mine] = numbers[mine]
            batch.park(lanes)
        else:
            outcome.append((batch.after(batch.key), lanes))
        for place, name in {(int(batch.order.block[lane]), int(numbers[lane])) for lane in lanes.numbers}:
            home = batch.order.block == place
            arriving = home & lanes.mask & (numbers == name)
            if not waits:
                told = batch.order.release(np.unique(batch.order.warp[arriving]))
                before, knowledge = state.early.get((place, name), (0, []))
                state.early[place, name] = (before + int(arriving.sum()), [*knowledge, told])
            outcome += release(batch, state, place, name, int(expected[arriving][0]), counted, aligned)
        return outcome

    return run


def meet(batch: Batch, lanes: Lanes) -> None:
    batch.order.block_barrier(lanes)
    waited = batch.globals.waited  # what one thread waited for, all may now see
    together = waited.reshape(-1, batch.launch.threads).any(axis=1).repeat(batch.launch.threads)
    waited |= together & lanes.mask


def release(
    batch: Batch, state: Barriers, place: int, name: int, expected: int, counted: bool, aligned: bool
) -> list[tuple[Key, Lanes]]:
    """Let the threads of block `place` at barrier `name` go if enough are there."""
    here = (batch.order.block == place) & (state.number == name)
    early, knowledge = state.early.get((place, name), (0, []))
    missing = expected - int(here.sum()) - early
    if missing > 0 or not here.any():
        return []
    first = int(here.argmax())
    if missing < 0:
        raise Fault(f"divergent barrier: {expected} threads are expected, but {expected - missing} arrived", first)
    keys = [key for key, lanes in batch.parked.items() if (lanes.mask & here).any()]
    if not counted and len(keys) > 1:
        lines = sorted({batch.launch.program.steps[key[1]].statement.line for key in keys})
        raise Fault(f"divergent barrier: threads of one block wait at different barriers, in lines {lines}", first)
    group = batch.sets.of(here)
    absent = ~batch.exited & ~here & np.repeat(group.ballot != 0, 32)
    if aligned and absent.any():
        raise Fault("divergent barrier: only a part of this lane's warp is there", int(absent.argmax()))
    state.number[here] = -1
    state.early.pop((place, name), None)
    if not knowledge and group.whole(batch.launch.threads, math.prod(batch.launch.block)):
        meet(batch, group)
    else:
        warps = np.unique(batch.order.warp[here])
        told = batch.order.release(warps)
        batch.order.acquire(warps, np.maximum.reduce([told, *knowledge]))
        batch.globals.waited |= here & bool(batch.globals.waited[here].any())
    outcome = []
    for key in keys:
        leaving = batch.sets.of(batch.parked[key].mask & here)
        batch.unpark(key, leaving)
        outcome.append((batch.after(key), leaving))
    return outcome
