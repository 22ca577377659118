"""What measurements of kernels share: inputs, checking before timing, timing in turns with torch.

A kernel is measured as a `Case`: its recorded program, inputs, what torch offers for it, and what is right. Inputs come in
several sets that together exceed the cache (see `runtime/cuda_replay.py`); results are NaN until they are computed, and are
compared with float64 before anything is timed. Times are those of graph replays between two events on the device, the
contestants in turns, so that clocks and temperatures are the same for all.
"""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tilec.errors import TilecError
from tilec.frontend.tensor import Graph
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.targets import find_target
from tilec.runtime.cuda import CudaProgram
from tilec.runtime.cuda_replay import Replay
from tilec.runtime.weights import NUMPY
from tilec.tools.bench import torch_side

COPY_RATE = 4.3e12  # bytes a second: a device copy on an H200, reads plus writes
ROTATION = 4 * 60 << 20  # bytes of all sets together: four times the L2 cache of an H200
REPLAY_MS, TURN_MS = 2.0, 50.0  # how long a replay and a contestant's turn should be
LIMITS = {"bf16": 5e-2, "f16": 1e-2, "tf32": 1e-2, "f32": 1e-4}  # errors (see `error_of`) above which a result counts as wrong
FAILURES = (TilecError, PassFailure)  # of one row, while others may do

Arrays = dict[str, np.ndarray]  # by label; bf16 as its 16 bits in uint16
Exact = Callable[[Arrays], tuple[Any, np.ndarray]]  # inputs to (index of some results, their float64 values)


class Contestant(Protocol):
    """What can be timed: `Replay` and `TorchReplay`."""

    @property
    def sets(self) -> int: ...

    @property
    def runs(self) -> int: ...

    def capture(self, rounds: int) -> None: ...

    def time(self, repeats: int) -> list[float]: ...


@dataclass
class Case:
    """One kernel to measure. `torch` maps names to calls on the inputs as torch tensors; `output` is our result's label."""

    labels: dict[str, Any]
    graph: Graph
    inputs: Callable[[int], Arrays]  # set number to inputs
    exact: Exact
    torch: Mapping[str, Callable[[dict[str, Any]], Any]]
    output: str
    dtype: str
    symbols: dict[str, int] = field(default_factory=dict)


# Inputs and errors ------------------------------------------------------------------------------------------------------


@functools.cache
def _pool(dtype: str) -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((1 << 24) + 43, dtype=np.float32)  # a prime: no two rows are equal
    return to_memory(values, dtype)


def to_memory(values: np.ndarray, dtype: str) -> np.ndarray:
    """f32 values as the runtimes hold them, bf16 rounded towards zero."""
    return (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else values.astype(NUMPY[dtype])


def normal(shape: Sequence[int], dtype: str, seed: int) -> np.ndarray:
    """Standard normal numbers in memory form."""
    pool, count = _pool(dtype), math.prod(shape)
    values = pool[seed * 100003 % (pool.size // 2):]
    return (values[:count] if count <= values.size else np.resize(values, count)).reshape(shape)


def rotation(inputs: Callable[[int], Arrays]) -> list[Arrays]:
    """Sets of inputs that together exceed the cache, two at least."""
    first = inputs(0)
    count = math.ceil(ROTATION / sum(a.nbytes for a in first.values()))
    return [first, *(inputs(i) for i in range(1, min(max(count, 2), 64)))]


def as_float64(values: np.ndarray, dtype: str) -> np.ndarray:
    """What numbers in memory form are."""
    return ((values.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else values).astype(np.float64)


def is_finite(values: np.ndarray) -> bool:
    """Whether numbers in memory form (uint16 is bf16) are neither NaN nor infinite."""
    return bool((values & 0x7F80 != 0x7F80).all() if values.dtype == np.uint16 else np.isfinite(values).all())


def error_of(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error over the root mean square of the exact values; NaN counts as infinite."""
    error = float(np.max(abs(got - exact)) / np.sqrt(np.mean(exact * exact)))
    return error if math.isfinite(error) else math.inf


# Timing -----------------------------------------------------------------------------------------------------------------


def compare(contestants: Mapping[str, Contestant], turns: int) -> dict[str, float]:
    """Median milliseconds of one run of each, taken in turns."""
    repeats: dict[str, int] = {}
    for name, contestant in contestants.items():
        contestant.capture(1)
        round_ms = statistics.median(contestant.time(3)) * contestant.sets
        rounds = min(max(math.ceil(REPLAY_MS / max(round_ms, 1e-3)), 1), 64)
        if rounds > 1:
            contestant.capture(rounds)
        repeats[name] = min(max(round(TURN_MS / max(round_ms * rounds, 1e-3)), 3 if round_ms < TURN_MS else 1), 50)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, contestant in contestants.items():
            times[name] += contestant.time(repeats[name])
    return {name: statistics.median(t) for name, t in times.items()}


def measure(case: Case, target: str, turns: int, leave_out: Sequence[str] = ()) -> dict[str, Any]:
    """A row: labels, milliseconds and error of ours and of torch's fastest, and the speed over torch's (`ratio`).

    What is `wrong` is not timed, what cannot be compiled or loaded has `failed`, a sentence; torch is measured all the same.
    """
    sets = rotation(case.inputs)
    index, exact = case.exact(sets[-1])
    row: dict[str, Any] = {**case.labels, "dtype": case.dtype, "ms": None}
    contestants: dict[str, Contestant] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(torch_side.release)
        try:
            ours = load(case, target, sets, leave_out, stack)
            results = [r[case.output] for r in ours.run([case.output])]
            whole = all(is_finite(r) for r in results)  # also where it is not compared
            row["error"] = error_of(as_float64(results[-1][index], case.dtype), exact) if whole else math.inf
            if row["error"] <= LIMITS[case.dtype]:
                contestants["tilec"] = ours
            else:
                row["wrong"] = True
        except FAILURES as error:
            row["failed"] = str(error).splitlines()[0]
        theirs = torch_side.replays(case.torch, sets)
        medians = compare({**contestants, **theirs}, turns)
        row["ms"] = medians.pop("tilec", None)
        if medians:
            row["torch_by"], row["torch_ms"] = min(medians.items(), key=lambda item: item[1])
            row["torch_error"] = error_of(theirs[row["torch_by"]].last()[index], exact)
            row["ratio"] = row["torch_ms"] / row["ms"] if row["ms"] else None
        return row


def costs_of_kernels(program: CudaProgram, entry: str, arguments: Arrays, symbols: Mapping[str, int],
                     repeats: int) -> dict[str, dict[str, float]]:
    """What each kernel of an entry costs, printed as it is known: the time of the whole with and without its launches.

    Kernels that run while others end or begin cost less than they take; where power limits the clock, as it does in long
    prompts, each costs more, because the others run faster without it.
    """
    def median(*skip: str) -> float:
        return statistics.median(program.time(entry, arguments, symbols, repeats + 5, frozenset(skip))[5:])

    launches, whole = [kernel for kernel, _ in program.manifest.entries[entry].launches], median()
    costs: dict[str, dict[str, float]] = {}
    for kernel in dict.fromkeys(launches):
        count = launches.count(kernel)
        costs[kernel] = {"launches": count, "microseconds_each": round((whole - median(kernel)) * 1e3 / count, 2)}
        print(f"    {kernel:40} {count:4} x {costs[kernel]['microseconds_each']:8.2f} us")
    return costs


def load(case: Case, target: str, sets: Sequence[Arrays], leave_out: Sequence[str], stack: contextlib.ExitStack) -> Replay:
    """A case's program, compiled and on the GPU with all sets, until the stack unwinds."""
    artifact = compile_module(case.graph.module, find_target(target), {}, leave_out=leave_out)
    program = CudaProgram(artifact, [(n, sets[0][n]) for n in artifact.manifest.weights])
    stack.callback(program.close)
    replay = Replay(program, "main", sets, case.symbols)
    stack.callback(replay.close)
    return replay
