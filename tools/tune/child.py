"""Measures the candidates of one kernel, in a process that may die of them: a fault of a GPU ends all that it knows.

The job is a JSON object on standard input. Each line that is printed says what was reached: {"at": n} before candidate n is
touched, {"failed": n, "why": ...} where it cannot be had or is wrong, and last {"us": {n: microseconds}, "fastest": n}.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mlir import ir

from tilec.dialects import core, primop
from tilec.errors import TilecError
from tilec.pipelines.compiler import compile_kernels
from tilec.pipelines.primop.fuse import FACTOR
from tilec.pipelines.primop.outline import body_of, functions
from tilec.pipelines.recording import Choice, Recording, kernel_key
from tilec.pipelines.targets import find_target
from tilec.runtime import cpu_replay, cuda_replay
from tilec.runtime.artifact import Artifact, Buffer
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.cuda import CudaProgram
from tilec.runtime.expressions import evaluate
from tilec.runtime.weights import NUMPY
from tilec.tools.bench import harness
from tilec.tools.tune.exact import Exact
from tilec.tools.tune.program import ARGUMENT, RESULT

TURNS = 5
Say = Callable[[dict[str, Any]], None]


@dataclass
class _Announced:
    """A contestant that says when its turn has come."""

    replay: harness.Contestant
    announce: Callable[[], None]

    @property
    def sets(self) -> int:
        return self.replay.sets

    @property
    def runs(self) -> int:
        return self.replay.runs

    def capture(self, rounds: int) -> None:
        self.announce()
        self.replay.capture(rounds)

    def time(self, repeats: int) -> list[float]:
        self.announce()
        return self.replay.time(repeats)


def measure(job: Mapping[str, Any], say: Say) -> None:
    """Compares the candidates `schedules` (number to text) of the kernel in `program`, on `target`, at lengths `symbols`."""
    contestants: dict[str, harness.Contestant] = {}
    with contextlib.ExitStack() as stack, ir.Context():
        core.load_all()
        module = ir.Module.parse(job["program"])  # kept: the kernel is part of it
        kernel = functions(module.operation, "primop.kernel")[0]
        sets: list[harness.Arrays] = []
        exact: Any = None
        for number, schedule in job["schedules"].items():
            say({"at": int(number)})
            try:
                artifact = _compile(job, kernel, schedule)
                if not sets:
                    given = [b for b in artifact.manifest.entries["main"].buffers if b.kind == "argument"]
                    made = harness.rotation(partial(_inputs, given, job["symbols"], _sums_of_squares(kernel)))
                    arguments = [made[-1].get(f"{ARGUMENT}{i}", np.empty(0)) for i in range(len(kernel.arguments))]
                    exact, sets = Exact(kernel, arguments, job["symbols"]).samples(), made
                gpu = artifact.manifest.kind == "gpu"
                program: Any = CudaProgram(artifact, []) if gpu else CpuProgram(artifact, [])
                stack.callback(program.close)
                replay = (cuda_replay if gpu else cpu_replay).Replay(program, "main", sets, job["symbols"])
                stack.callback(replay.close)
                error = _error(program, replay.run(), exact)
                if error > harness.LIMITS[_dtype(kernel, module)]:
                    raise TilecError(f"its result is wrong (error {error:.1g})")
                contestants[number] = _Announced(replay, partial(say, {"at": int(number)}))
            except harness.FAILURES as failure:
                say({"failed": int(number), "why": str(failure).splitlines()[0]})
        times = harness.compare(contestants, TURNS)
        fastest = min(times, key=lambda number: times[number], default="0")
        if fastest != "0" and "0" in times:  # once more: the least of several noisy times alone would always seem a gain
            times |= harness.compare({n: contestants[n] for n in ("0", fastest)}, TURNS)
        say({"us": {n: 1e3 * ms for n, ms in times.items()}, "fastest": int(fastest)})


def _compile(job: Mapping[str, Any], kernel: ir.OpView, schedule: str) -> Artifact:
    """The program with a schedule, which it gets as any program does: from a recording."""
    module = ir.Module.parse(job["program"])
    symbols = primop.symbol_ranges(module.operation)
    key = kernel_key(kernel.operation.get_asm(use_local_scope=True), symbols, primop.allows_tf32(module.operation))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.json"
        Recording("", job["target"], {}, "", {key: Choice("", schedule, 0.0, ())}).save(path)
        return compile_kernels(module, find_target(job["target"]), str(path))


def _dtype(kernel: ir.OpView, module: ir.Module) -> str:
    """The coarsest type in which a kernel's floats are held or multiplied, which says how exact its result can be."""
    *_, end = body_of(kernel).operations
    types = [str(primop.element_type(v)) for v in (*kernel.arguments, *end.operands)]
    return next((t for t in ("bf16", "f16") if t in types), "tf32" if primop.allows_tf32(module.operation) else "f32")


def _sums_of_squares(kernel: ir.OpView) -> set[str]:
    """The labels of arguments that are sums of what other kernels have squared: norms are made of them."""
    factors = [o for o in body_of(kernel).operations if FACTOR in o.operation.attributes]
    return {f"{ARGUMENT}{a.arg_number}" for a in kernel.arguments if any(a in o.operands for o in factors)}


def _inputs(buffers: Sequence[Buffer], symbols: Mapping[str, int], squares: set[str], seed: int) -> harness.Arrays:
    return {b.label: _input(b, symbols, seed, b.label in squares) for b in buffers}


def _input(buffer: Buffer, symbols: Mapping[str, int], seed: int, square: bool = False) -> np.ndarray:
    """Normal numbers, or sums of 64 squares of such; integers count up, so that places that are written to are distinct."""
    shape = [evaluate(e, symbols) for e in buffer.shape]
    if buffer.dtype in primop.FLOATS:
        numbers = harness.normal(shape, buffer.dtype, seed)
        return 64 + 8 * numbers if square else numbers
    return np.arange(int(np.prod(shape))).reshape(shape).astype(NUMPY[buffer.dtype])


def _error(program: Any, results: list[dict[str, np.ndarray]], exact: tuple[tuple[np.ndarray, ...], np.ndarray]) -> float:
    """How far the result of the last set is from what is exact, at the places where that is known; no result may be NaN."""
    index, values = exact
    if program.manifest.states:  # written in place: of all sets onto the same memory, the last one's last
        label, state = next(iter(program.manifest.states.items()))
        wholes, dtype = [program.state(label)], state.dtype
    else:
        entry = program.manifest.entries["main"]
        wholes, dtype = [r[RESULT] for r in results], entry.buffers[entry.results[RESULT]].dtype
    numbers = [harness.as_float64(w, dtype) if dtype in primop.FLOATS else w for w in wholes]
    got, known = numbers[-1][index], np.isfinite(values)  # scores of what is not seen are -inf
    if any(np.isnan(n).any() for n in numbers) or not np.array_equal(got[~known], values[~known]):
        return math.inf
    return harness.error_of(got[known], values[known])


def main() -> None:
    """The child: reads a job, prints what was reached."""
    measure(json.load(sys.stdin), lambda line: print(json.dumps(line), flush=True))


if __name__ == "__main__":
    main()
