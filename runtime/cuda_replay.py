"""Measures one entry point of a GPU program: its launches as one graph, over several sets of inputs in rotation.

A kernel that runs twice on the same inputs finds them in the cache. So every set has memory of its own, and where the sets
together are larger than the cache, each run reads from memory as it would in a model. And as there, a kernel that was
compiled to start before its predecessor ends does so, also the first of a run: no run feeds another.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilec.runtime.artifact import Entry
from tilec.runtime.cuda import CudaProgram, _check, _Prepared, rows_apart
from tilec.runtime.weights import NUMPY


class Replay:
    """An entry's launches on each of `sets`, one after the other; `runs` of them make one replay.

    A set maps labels of arguments, and of weights that stand in for the program's own, to host arrays. The results of every
    set are NaN (bytes 0xFF) until the first run. States and temporaries are the program's, so sets share them.
    """

    def __init__(self, program: CudaProgram, entry: str, sets: Sequence[Mapping[str, np.ndarray]],
                 symbols: Mapping[str, int]) -> None:
        self._program, self._d, self._graph = program, program._d, None
        self.sets, self.runs = len(sets), 0
        self._symbols = {n: symbols.get(n, low) for n, (low, _) in program.manifest.symbols.items()}
        _check(self._d.cuCtxSetCurrent(program._context))
        before = len(program._allocations)
        self._prepared = [self._bind(program.manifest.entries[entry], inputs) for inputs in sets]
        self._allocations = program._allocations[before:]
        del program._allocations[before:]

    def _bind(self, entry: Entry, inputs: Mapping[str, np.ndarray]) -> _Prepared:
        """One set's own memory, filled."""
        program, given = self._program, {b.label: b for b in entry.buffers if b.kind in ("argument", "weight")}
        arrays = {n: np.ascontiguousarray(inputs[n], NUMPY[b.dtype]) for n, b in given.items() if n in inputs}
        weights = {n: program._allocate(a.nbytes) for n, a in arrays.items() if given[n].kind == "weight"}
        prepared = program._prepare(entry, weights)
        for buffer, place in zip(entry.buffers, prepared.memory, strict=True):
            if buffer.kind == "result":
                _check(self._d.cuMemsetD8Async(place, 0xFF, buffer.bytes, program._stream))
            elif buffer.kind == "argument" or buffer.label in weights:
                array = rows_apart(buffer, arrays[buffer.label], self._symbols)
                _check(self._d.cuMemcpyHtoDAsync(place, array.ctypes.data, array.nbytes, program._stream))
        _check(self._d.cuStreamSynchronize(program._stream))  # the host arrays may go now
        return prepared

    def _set_symbols(self) -> None:
        table = np.array(list(self._symbols.values()) or [0], np.int64)
        _check(self._d.cuMemcpyHtoDAsync(self._program._symbols, table.ctypes.data, table.nbytes, self._program._stream))
        _check(self._d.cuStreamSynchronize(self._program._stream))
        for other in self._program._entries.values():  # what they left on the device is there no more
            other.holds = None

    def run(self, fetch: Sequence[str] | None = None) -> list[dict[str, np.ndarray]]:
        """Runs every set once, without a graph; copies of the results of each, or of those named in `fetch`."""
        self._set_symbols()
        for prepared in self._prepared:
            self._program._launch_all(prepared, self._symbols)
        results = [{n: self._program._fetch(p, b, self._symbols) for n, b in p.entry.results.items() if not fetch or n in fetch}
                   for p in self._prepared]
        _check(self._d.cuStreamSynchronize(self._program._stream))
        return results

    def capture(self, rounds: int) -> None:
        """Makes the graph that `time` replays: all sets, `rounds` times."""
        self._drop()
        stream = self._program._stream
        _check(self._d.cuStreamBeginCapture(stream, self._d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
        for number, prepared in enumerate(self._prepared * rounds):
            self._program._launch_all(prepared, self._symbols, follows=number > 0)
        graph = _check(self._d.cuStreamEndCapture(stream))
        self._graph, self.runs = _check(self._d.cuGraphInstantiate(graph, 0)), self.sets * rounds
        _check(self._d.cuGraphDestroy(graph))

    def time(self, repeats: int) -> list[float]:
        """Milliseconds of device time of one run, as the mean of each of `repeats` replays; the first warms up."""
        self._set_symbols()
        stream: Any = self._program._stream
        events = [_check(self._d.cuEventCreate(self._d.CUevent_flags.CU_EVENT_DEFAULT)) for _ in range(repeats + 1)]
        _check(self._d.cuGraphLaunch(self._graph, stream))
        _check(self._d.cuEventRecord(events[0], stream))
        for event in events[1:]:
            _check(self._d.cuGraphLaunch(self._graph, stream))
            _check(self._d.cuEventRecord(event, stream))
        _check(self._d.cuStreamSynchronize(stream))
        times = [_check(self._d.cuEventElapsedTime(a, b)) / self.runs for a, b in itertools.pairwise(events)]
        for event in events:
            self._d.cuEventDestroy(event)
        return times

    def _drop(self) -> None:
        if self._graph is not None:
            self._d.cuGraphExecDestroy(self._graph)
            self._graph = None

    def close(self) -> None:
        """Gives its memory back; the program stays."""
        self._drop()
        for pointer in self._allocations:
            self._d.cuMemFree(pointer)
        self._allocations = []
