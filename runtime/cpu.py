"""Runs an artifact on this machine's cores: a team of threads walks the launch list together, a barrier after each.

One hand-over to the team a call; inside, threads meet at barriers in compiled code. Kernels split their grid over the
team by program number, so the results are the same for any team.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tilec.errors import TargetError
from tilec.runtime.artifact import Artifact, Buffer, Entry
from tilec.runtime.expressions import evaluate
from tilec.runtime.llvm_library import ObjectCode
from tilec.runtime.memory import aligned
from tilec.runtime.weights import NUMPY


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


class _Team:
    """Threads, each kept on one core, that call a function with their number and wait for the next."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._work: list[queue.SimpleQueue] = [queue.SimpleQueue() for _ in range(size)]
        self._done: queue.SimpleQueue = queue.SimpleQueue()
        cores = usable_cores()
        for i, work in enumerate(self._work):
            threading.Thread(target=self._member, args=(i, work, cores[i % len(cores)]), daemon=True,
                             name=f"tilec-{i}").start()

    def _member(self, number: int, work: queue.SimpleQueue, core: int) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.sched_setaffinity(threading.get_native_id(), {core})
        while (call := work.get()) is not None:
            call(number)
            self._done.put(None)

    def run(self, call: object) -> None:
        for work in self._work:
            work.put(call)
        for _ in self._work:
            self._done.get()

    def stop(self) -> None:
        for work in self._work:
            work.put(None)


class CpuProgram:
    """A loaded artifact with its weights and states.

    `weights` gives names and packed arrays (see `weights.load_weights`). `run` returns views of result memory that the next
    call overwrites.
    """

    def __init__(self, artifact: Artifact, weights: Iterable[tuple[str, np.ndarray]], threads: int | None = None) -> None:
        self.manifest = artifact.manifest
        if self.manifest.kind != "cpu":
            raise TargetError(f"this artifact was compiled for {self.manifest.target}, not for a CPU")
        self._code = ObjectCode(list(artifact.files.values()))
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p] +
                                     [ctypes.c_int64] * 2 + [ctypes.c_void_p])
        self._run = signature(self._code.address("tilec_run"))
        self._weights = dict(weights)
        self._states = {n: aligned(NUMPY[s.dtype], s.shape, zero=True) for n, s in self.manifest.states.items()}
        arena = max((e.arena_bytes for e in self.manifest.entries.values()), default=0)
        self._arena = aligned(np.dtype(np.uint8), [max(arena, 1)])
        self._symbols = np.zeros(max(len(self.manifest.symbols), 1), np.int64)
        self._barrier = np.zeros(64, np.int64)
        self._entries = {n: self._prepare(e) for n, e in self.manifest.entries.items()}
        self._team = _Team(threads or len(usable_cores()))

    def _prepare(self, entry: Entry) -> tuple[Entry, list[np.ndarray], np.ndarray, list[np.ndarray]]:
        arrays = [self._memory(b) for b in entry.buffers]
        tables = [np.array([arrays[b].ctypes.data for b in buffers], np.uint64) for _, buffers in entry.launches]
        addresses = {name: self._code.address(name) for name in {k for k, _ in entry.launches}}
        launches = np.array([[addresses[k], t.ctypes.data] for (k, _), t in zip(entry.launches, tables, strict=True)],
                            np.uint64)
        return entry, arrays, launches, tables

    def _memory(self, buffer: Buffer) -> np.ndarray:
        if buffer.kind == "weight":
            return self._weights[buffer.label]
        if buffer.kind == "state":
            return self._states[buffer.label]
        if buffer.kind == "temporary":
            return self._arena[buffer.offset:buffer.offset + buffer.bytes]
        return aligned(NUMPY[buffer.dtype], buffer.sizes)

    @property
    def threads(self) -> int:
        return self._team.size

    def state(self, name: str) -> np.ndarray:
        """The memory of a state."""
        return self._states[name]

    def run(self, entry: str, arguments: Mapping[str, np.ndarray], symbols: Mapping[str, int],
            fetch: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Runs an entry point; arguments have the shapes that the symbols give. `fetch` names the wanted results."""
        plan, arrays, launches, _ = self._entries[entry]
        for i, (name, (low, high)) in enumerate(self.manifest.symbols.items()):
            value = symbols.get(name, low)
            if not low <= value <= high:
                raise ValueError(f"symbol {name} must be in [{low}, {high}], but is {value}")
            self._symbols[i] = value
        for buffer, array in zip(plan.buffers, arrays, strict=True):
            if buffer.kind == "argument":
                array[_region(buffer, symbols)] = arguments[buffer.label]
        count, table = len(launches), launches.ctypes.data
        values, barrier, threads = self._symbols.ctypes.data, self._barrier.ctypes.data, self._team.size
        self._team.run(lambda number: self._run(table, count, values, number, threads, barrier))
        return {n: arrays[b][_region(plan.buffers[b], symbols)] for n, b in plan.results.items()
                if fetch is None or n in fetch}

    def close(self) -> None:
        """Ends the threads."""
        self._team.stop()


def _region(buffer: Buffer, symbols: Mapping[str, int]) -> tuple[slice, ...]:
    return tuple(slice(0, evaluate(e, symbols)) for e in buffer.shape)
