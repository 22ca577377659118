"""Buffers, the memory of a program and rings, with the rules of who may touch what and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..programs import FLOATS
from ..reference import NUMPY, Array

NOBODY = -1


class Fault(Exception):
    """A program breaks a rule of the tile dialect."""


def poison(shape: Sequence[int], dtype: str) -> Array:
    """What memory holds before it is written: NaN, or a number that no test computes."""
    if dtype in FLOATS:
        return np.full(shape, np.nan, NUMPY[dtype])
    return np.full(shape, True if dtype == "i1" else np.iinfo(NUMPY[dtype]).min // 3, NUMPY[dtype])


class Memory:
    """A buffer. In one launch no program reads or writes what another one wrote."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self.writers: Array | None = None  # of each element in this launch

    def begin_launch(self) -> None:
        self.writers = None

    def read(self, where: Sequence[Array], exists: Array, program: int) -> Array:
        """The elements at some indices, zero where they do not exist."""
        at = self._flat(where, exists, "read")
        if self.writers is not None:
            self._check_read(self.writers[at], exists, program)
        return np.where(exists, self.values.reshape(-1)[at], np.zeros((), self.values.dtype))

    def write(self, where: Sequence[Array], exists: Array, values: Array, program: int) -> None:
        """Writes the elements that exist."""
        if self.writers is None:
            self.writers = np.full(self.values.size, NOBODY, np.int32)
        exists = np.broadcast_to(exists, values.shape)
        at = np.broadcast_to(self._flat(where, exists, "written"), values.shape)[exists]
        self._check_write(self.writers[at], program)
        self.values.reshape(-1)[at], self.writers[at] = values[exists], program

    def _flat(self, where: Sequence[Array], exists: Array, what: str) -> Array:
        """Indices as one, 0 where elements do not exist."""
        flat: Array = np.zeros((), np.int64)
        for i, size in zip(where, self.values.shape, strict=True):
            if (exists & ((i < 0) | (i >= size))).any():
                raise Fault(f"memory of {list(self.values.shape)} is {what} out of bounds")
            flat = flat * size + i
        return np.where(exists, flat, 0)

    def _check_read(self, writers: Array, exists: Array, program: int) -> None:
        if (exists & (writers != NOBODY) & (writers != program)).any():
            raise Fault("an element is read that another program has written")

    def _check_write(self, writers: Array, program: int) -> None:
        if ((writers != NOBODY) & (writers != program)).any():
            raise Fault("an element is written by two programs")


class ProgramMemory(Memory):
    """Memory of one program. What its threads write they may read after the next barrier."""

    phase = 0

    def read(self, where: Sequence[Array], exists: Array, program: int) -> Array:
        return super().read(where, exists, self.phase)

    def write(self, where: Sequence[Array], exists: Array, values: Array, program: int) -> None:
        super().write(where, exists, values, self.phase)

    def _check_read(self, writers: Array, exists: Array, program: int) -> None:
        if (exists & (writers == self.phase)).any():
            raise Fault("memory of the program is read before a barrier")

    def _check_write(self, writers: Array, program: int) -> None:
        return


class Ring:
    """Slots that are filled, read and released in turn."""

    def __init__(self, slots: int) -> None:
        self.tiles: list[Array | None] = [None] * slots
        self.turns = list(range(slots))  # the turn of the tile that a slot has, or that it is filled for next

    def is_free(self, turn: int) -> bool:
        return self.tiles[turn % len(self.tiles)] is None

    def has(self, turn: int) -> bool:
        return not self.is_free(turn) and self.turns[turn % len(self.tiles)] == turn

    def fill(self, turn: int, tile: Array) -> None:
        slot = turn % len(self.tiles)
        if self.turns[slot] != turn:
            raise Fault(f"turn {turn} fills a slot whose next turn is {self.turns[slot]}")
        self.tiles[slot] = tile

    def read(self, turn: int) -> Array:
        tile = self.tiles[turn % len(self.tiles)] if self.has(turn) else None
        if tile is None:
            raise Fault(f"a product reads the slot of turn {turn} after its release")
        return tile

    def release(self, turn: int) -> None:
        if not self.has(turn):
            raise Fault(f"turn {turn} releases a slot that it does not hold")
        slot = turn % len(self.tiles)
        self.tiles[slot] = None
        self.turns[slot] += len(self.tiles)


@dataclass(frozen=True)
class Slot:
    """The tile of one turn, as `tile.await` gives it."""

    ring: Ring
    turn: int

    def read(self) -> Array:
        return self.ring.read(self.turn)
