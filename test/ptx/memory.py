"""Global memory: an arena in which no allocation touches the next and nothing starts out as a number."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .faults import Fault
from .formats import Array, bf16_to_f32

BASE = 0x7F00_0000_0000  # of global memory: above 32 bits, so that a truncated pointer points nowhere
GUARD = 1 << 16
SHARED_BASE, SHARED_WINDOW = 1024, 0x7E00_0000_0000
LOCAL_BASE, LOCAL_WINDOW = 64, 0x7D00_0000_0000
WINDOW = 1 << 32
POISON = 0xFF  # a NaN in every float format, -1 as an integer


class Regions:
    """Sorted address ranges that may be accessed."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, size: int) -> None:
        at = bisect.bisect(self.starts, start)
        self.starts.insert(at, start)
        self.ends.insert(at, start + size)

    def check(self, what: str, at: Array, nbytes: int, align: int) -> None:
        """Raise at the first address that is no multiple of `align`, or whose `nbytes` are not inside one range."""
        if np.bitwise_or.reduce(at) & (align - 1):
            bad = int(np.flatnonzero(at & (align - 1))[0])
            raise Fault(f"misaligned: this needs a multiple of {align}, but got {what} address {at[bad]:#x}", bad)
        low, high = int(at.min()), int(at.max()) + nbytes
        place = bisect.bisect(self.starts, low) - 1
        if place < 0 or high > self.ends[place]:
            near = np.searchsorted(np.array(self.starts, np.int64), at, "right") - 1
            outside = (near < 0) | (at + nbytes > np.array([*self.ends, 0], np.int64)[near])
            if outside.any():
                bad = int(np.flatnonzero(outside)[0])
                near_by = self.nearest(int(at[bad]))
                raise Fault(f"out of bounds: {nbytes} bytes at {what} address {at[bad]:#x} {near_by}", bad)

    def touched(self, at: Array) -> Array:
        """Which of the addresses lie in one of the ranges."""
        last = bisect.bisect(self.starts, int(at.max())) - 1
        if last < 0 or self.ends[last] <= int(at.min()):
            return np.zeros(len(at), bool)
        return within(at, list(zip(self.starts, self.ends, strict=True)))

    def nearest(self, address: int) -> str:
        place = bisect.bisect(self.starts, address) - 1
        if place < 0:
            return "lie below all allocations"
        start, end = self.starts[place], self.ends[place]
        return f"lie {address - start} bytes into {end - start} bytes allocated at {start:#x}"

    def whole(self, pointer: int) -> tuple[int, int]:
        place = bisect.bisect(self.starts, pointer) - 1
        if place < 0 or pointer >= self.ends[place]:
            raise ValueError(f"need a pointer into an allocation, but got {pointer:#x}")
        return pointer, self.ends[place]


class Memory:
    """Device memory. Pointers are plain integers, valid for every kernel launched with this object."""

    def __init__(self) -> None:
        self.bytes = np.zeros(1 << 24, np.uint8)
        self.regions = Regions()
        self.readonly = Regions()
        self.symbols: dict[object, int] = {}
        self.top = GUARD

    def alloc(self, content: int | Array, align: int = 256) -> int:
        """Room for `content` bytes (poisoned with 0xFF: NaNs), or for an array, copied in. Returns the pointer."""
        data = None
        if isinstance(content, int | np.integer):
            size = int(content)
        else:
            data = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
            size = len(data)
        start = -(-self.top // align) * align
        self.top = start + size + GUARD
        if self.top > len(self.bytes):
            grown = np.zeros(1 << math.ceil(math.log2(self.top + 1)), np.uint8)
            grown[:start] = self.bytes[:start]
            self.bytes = grown
        self.bytes[start : start + size] = POISON if data is None else data
        self.regions.add(BASE + start, size)
        return BASE + start

    def read(self, pointer: int, shape: int | Sequence[int], dtype: npt.DTypeLike) -> Array:
        """A copy of the array at `pointer`. dtype "bf16" gives its values as float32."""
        bf16 = isinstance(dtype, str) and dtype == "bf16"
        kind: np.dtype[Any] = np.dtype(np.uint16) if bf16 else np.dtype(dtype)
        count = shape if isinstance(shape, int) else math.prod(shape)
        raw = self._slice(pointer, count * kind.itemsize).view(kind).reshape(shape).copy()
        return bf16_to_f32(raw) if bf16 else raw

    def write(self, pointer: int, array: Array) -> None:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._slice(pointer, len(data))[:] = data

    def symbol(self, key: object, data: bytes, align: int, readonly: bool) -> int:
        """The storage of the module variable or kernel parameter known as `key`, made and filled on first use."""
        if key not in self.symbols:
            self.symbols[key] = pointer = self.alloc(np.frombuffer(data, np.uint8), max(align, 64))
            if readonly:
                self.readonly.add(pointer, len(data))
        return self.symbols[key]

    def _slice(self, pointer: int, size: int) -> Array:
        start, end = self.regions.whole(pointer) if size else (BASE, BASE)
        if start + size > end:
            raise ValueError(f"need {size} bytes at {pointer:#x}, but the allocation has {end - start}")
        return self.bytes[start - BASE : start - BASE + size]


Range = int | tuple[int, int]
"""A pointer (to the end of its allocation) or (pointer, nbytes)."""


def spans(memory: Memory, ranges: Sequence[Range]) -> list[tuple[int, int]]:
    return [memory.regions.whole(each) if isinstance(each, int) else (each[0], each[0] + each[1]) for each in ranges]


def within(at: Array, ranges: list[tuple[int, int]]) -> Array:
    inside = np.zeros(at.shape, bool)
    for start, end in ranges:
        inside |= (at >= start) & (at < end)
    return inside
