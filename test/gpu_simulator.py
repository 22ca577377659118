"""A GPU artifact without a GPU: every buffer exact and poisoned, every launch through the PTX interpreter, in order.

A dependent kernel finds everything that earlier launches wrote still being written until it waits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilec.runtime.artifact import Artifact, Buffer, Kernel
from tilec.runtime.expressions import evaluate
from tilec.runtime.weights import NUMPY

from .ptx import Memory, Module, TensorMap, parse


class SimulatedGpu:
    """Weights and states in simulated memory; `run` has the meaning of a program's `run` (see runtime/engine.py).

    Temporaries lie in the arena that the artifact plans, or `apart`, each with poison around it.
    """

    def __init__(
        self,
        artifact: Artifact,
        weights: Mapping[str, np.ndarray],
        states: Mapping[str, np.ndarray] | None = None,
        apart: bool = False,
    ) -> None:
        self.manifest, self.memory, self.apart = artifact.manifest, Memory(), apart
        self.modules: dict[str, Module] = {}
        self.files = artifact.files
        self.weights = {n: self._upload(a) for n, a in weights.items()}
        given = states or {}
        self.states = {
            n: self._upload(given.get(n, np.zeros(s.shape, NUMPY[s.dtype]))) for n, s in self.manifest.states.items()
        }
        self.launches = 0

    def run(self, entry: str, arguments: Mapping[str, np.ndarray], symbols: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Launches an entry point's kernels one after the other; copies of its results."""
        plan = self.manifest.entries[entry]
        known = {n: symbols.get(n, low) for n, (low, _) in self.manifest.symbols.items()}
        table = self.memory.alloc(np.array(list(known.values()) or [0], np.int64))
        arena = self._allocate(plan.arena_bytes)
        places = [self._place(b, arena, arguments, known) for b in plan.buffers]
        written: set[int] = set()
        before = {i: self._bytes(places[i], b.bytes) for i, b in enumerate(plan.buffers) if b.kind == "state"}
        for name, used in plan.launches:
            kernel = self.manifest.kernels[name]
            if name not in self.modules:
                self.modules[name] = parse(self.files[kernel.file].decode())
            grid = tuple(evaluate(e, known) for e in kernel.grid)
            if 0 not in grid:
                self.modules[name].kernel(name).launch(
                    grid=grid,
                    block=(kernel.block, 1, 1),
                    memory=self.memory,
                    args=[*(places[b] for b in used), table, *self._tensor_maps(kernel, [places[b] for b in used], known)],
                    shared_bytes=kernel.shared_bytes,
                    pending=[r for b in written for r in self._pending(places[b], plan.buffers[b].bytes, before.get(b))]
                    if kernel.dependent
                    else [],
                )
                self.launches += 1
                written |= {b for b in used if plan.buffers[b].kind not in ("weight", "argument")}
        return {n: self._read(plan.buffers[b], places[b], known) for n, b in plan.results.items()}

    def _bytes(self, place: int, count: int) -> np.ndarray:
        return self.memory.read(place, count, "u1")

    def _pending(self, place: int, count: int, before: np.ndarray | None) -> list[tuple[int, int]]:
        """What the kernel before may still be writing: of a state what has changed in this run, of all else everything."""
        if before is None:
            return [(place, count)]
        changed = np.zeros(count + 2, bool)
        changed[1:-1] = self._bytes(place, count) != before
        edges = np.flatnonzero(changed[1:] != changed[:-1])
        return [(place + int(a), int(b - a)) for a, b in edges.reshape(-1, 2)]

    def state(self, name: str) -> np.ndarray:
        """A copy of a state."""
        spec = self.manifest.states[name]
        return self._whole(self.states[name], spec.shape, spec.dtype)

    def _place(self, buffer: Buffer, arena: int, arguments: Mapping[str, np.ndarray], symbols: Mapping[str, int]) -> int:
        if buffer.kind == "weight":
            return self.weights[buffer.label]
        if buffer.kind == "state":
            return self.states[buffer.label]
        if buffer.kind == "temporary" and not self.apart:
            return arena + buffer.offset
        if buffer.kind == "argument":
            poisoned = np.full(buffer.bytes, 0xFF, np.uint8).view(NUMPY[buffer.dtype]).reshape(buffer.sizes)
            poisoned[self._region(buffer, symbols)] = arguments[buffer.label]
            return self._upload(poisoned)
        return self._allocate(buffer.bytes)

    @staticmethod
    def _tensor_maps(kernel: Kernel, places: list[int], symbols: Mapping[str, int]) -> list[TensorMap]:
        maps = []
        for m in kernel.tensor_maps:
            row = m.width * NUMPY[m.dtype].itemsize
            length = evaluate(m.length, symbols) if m.length else m.width
            sizes, strides = (length, evaluate(m.height, symbols), m.planes), (row, row * m.plane_rows)
            maps.append(TensorMap(places[m.argument], m.dtype, sizes, strides, (m.columns, m.rows, 1), 128))
        return maps

    def _allocate(self, size: int) -> int:
        """Poisoned memory, in multiples of 16 bytes: up to there LLVM may read past the end of what it knows is aligned."""
        return self.memory.alloc(max(-(-size // 16) * 16, 16))

    def _upload(self, array: np.ndarray) -> int:
        place = self._allocate(array.nbytes)
        self.memory.write(place, array)
        return place

    def _read(self, buffer: Buffer, place: int, symbols: Mapping[str, int]) -> np.ndarray:
        return self._whole(place, buffer.sizes, buffer.dtype)[self._region(buffer, symbols)]

    def _whole(self, place: int, sizes: list[int], dtype: str) -> np.ndarray:
        count = int(np.prod(sizes, dtype=np.int64)) * NUMPY[dtype].itemsize
        return np.array(self.memory.read(place, (count,), np.uint8)).view(NUMPY[dtype]).reshape(sizes)

    @staticmethod
    def _region(buffer: Buffer, symbols: Mapping[str, int]) -> tuple[slice, ...]:
        return tuple(slice(0, evaluate(e, symbols)) for e in buffer.shape)
