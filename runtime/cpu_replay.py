"""Measures one entry point of a CPU program as `cuda_replay.py` does a GPU's: its launches over several sets of inputs in
rotation, which together are larger than the cache, in one hand-over to the team.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from tilec.runtime.cpu import CpuProgram, _region


class Replay:
    """An entry's launches on each of `sets`, one after the other; `runs` of them make one replay.

    A set maps labels of arguments to arrays. Results are NaN (bytes 0xFF) until the first run. States and temporaries are the
    program's, so sets share them.
    """

    def __init__(self, program: CpuProgram, entry: str, sets: Sequence[Mapping[str, np.ndarray]],
                 symbols: Mapping[str, int]) -> None:
        self._program, self.sets, self.runs = program, len(sets), 0
        self._symbols = {n: symbols.get(n, low) for n, (low, _) in program.manifest.symbols.items()}
        self._prepared = [program._prepare(program.manifest.entries[entry]) for _ in sets]
        self._launches = np.empty((0, 2), np.uint64)
        for inputs, (plan, arrays, _, _) in zip(sets, self._prepared, strict=True):
            for buffer, array in zip(plan.buffers, arrays, strict=True):
                if buffer.kind == "argument":
                    array[_region(buffer, self._symbols)] = inputs[buffer.label]
                elif buffer.kind == "result":
                    array.view(np.uint8).fill(0xFF)

    def run(self, fetch: Sequence[str] | None = None) -> list[dict[str, np.ndarray]]:
        """Runs every set once; the results of each, or of those named in `fetch`, until the next run."""
        self.capture(1)
        self._replay()
        return [{n: arrays[b][_region(plan.buffers[b], self._symbols)]
                 for n, b in plan.results.items() if not fetch or n in fetch} for plan, arrays, _, _ in self._prepared]

    def capture(self, rounds: int) -> None:
        """Makes the list of launches that `time` replays: all sets, `rounds` times."""
        self._launches = np.concatenate([launches for _, _, launches, _ in self._prepared] * rounds)
        self.runs = self.sets * rounds

    def time(self, repeats: int) -> list[float]:
        """Milliseconds of one run, as the mean of each of `repeats` replays after one that warms up."""
        self._replay()
        return [self._replay() * 1e3 / self.runs for _ in range(repeats)]

    def _replay(self) -> float:
        """One replay; its seconds."""
        program, launches = self._program, self._launches
        program._symbols[:len(self._symbols)] = list(self._symbols.values())
        values, barrier, threads = program._symbols.ctypes.data, program._barrier.ctypes.data, program._team.size
        start = time.perf_counter()
        program._team.run(lambda number: program._run(launches.ctypes.data, len(launches), values, number, threads, barrier))
        return time.perf_counter() - start

    def close(self) -> None:
        """Gives its memory back; the program stays."""
        self._prepared = []
