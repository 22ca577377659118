"""Time of a prompt on a GPU, by model and number of tokens, the whole prompt as one chunk into an empty cache.

    tilec bench prefill --model llama-3.2-1b --tokens 512 --json prefill.json

Weights are random at the true shapes of public models (`models.py`). A prompt ends with the logits and the greedy choice of
its last token; TFLOP/s count half the square of attention. Logits must be finite before anything is timed. `--kernels`
adds what each kernel costs: the time of the prompt with and without it.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilec.errors import TilecError
from tilec.model_compiler import compile_model
from tilec.runtime.cuda import CudaProgram
from tilec.runtime.cuda_replay import Replay
from tilec.runtime.engine import Engine
from tilec.runtime.weights import load_weights
from tilec.tools.bench import harness
from tilec.tools.bench import report as reports
from tilec.tools.bench.models import MODELS, flop_of_a_prompt, random_weights

TOKENS = (128, 512, 2048)


@contextlib.contextmanager
def load(name: str, target: str, dtype: str, longest: int, leave_out: Sequence[str] = ()) -> Iterator[CudaProgram]:
    """A model, compiled as for any use of prompts of up to `longest` tokens, with random weights on the GPU."""
    artifact = compile_model(MODELS[name], target, dtype, longest, leave_out=leave_out)
    program = CudaProgram(artifact, load_weights(artifact.manifest, random_weights(artifact.manifest, MODELS[name]), 8))
    try:
        yield program
    finally:
        program.close()


def measure(program: CudaProgram, name: str, tokens: int, turns: int, kernels: bool = False) -> dict[str, Any]:
    """What a prompt of as many tokens takes, which must be one piece."""
    config = MODELS[name]
    prompt = np.random.default_rng(0).integers(0, config.vocab_size, tokens).astype(np.int32)
    entry = next((e for size, e in Engine(program).prefills if size >= tokens), None)
    if entry is None:
        raise TilecError(f"no entry point takes {tokens} tokens at once")
    symbols = {"seq" + entry.removeprefix("prefill"): tokens, "past": 0}
    with contextlib.closing(Replay(program, entry, [{"tokens": prompt}], symbols)) as replay:
        row: dict[str, Any] = {"launches": len(program.manifest.entries[entry].launches), "ms": None}
        if not harness.is_finite(replay.run(["logits"])[0]["logits"]):
            return {**row, "wrong": True}
        row["ms"] = harness.compare({"tilec": replay}, turns)["tilec"]
    row["tokens_per_second"] = tokens / row["ms"] * 1e3
    row["tflops"] = flop_of_a_prompt(config, tokens) / row["ms"] / 1e9
    if kernels:
        row["kernels"] = harness.costs_of_kernels(program, entry, {"tokens": prompt}, symbols, 5)
    return row


def measured_or_why(program: CudaProgram, name: str, tokens: int, options: argparse.Namespace) -> dict[str, Any]:
    """A row, or what stands against it: others may do."""
    try:
        return measure(program, name, tokens, options.turns, options.kernels)
    except harness.FAILURES as error:
        return {"failed": str(error).splitlines()[0]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = reports.parser("prefill", __doc__.splitlines()[0])
    parser.add_argument("--model", action="append", choices=[*MODELS], help="default: all")
    parser.add_argument("--tokens", action="append", type=int, help=f"default: {', '.join(map(str, TOKENS))}")
    parser.add_argument("--dtype", default="bf16", choices=[*harness.LIMITS])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--kernels", action="store_true", help="also what each kernel costs")
    options = parser.parse_args(arguments)
    columns = (("model", "", ""), ("dtype", "", ""), ("tokens", "", ""), ("ms", ".3f", "ms"),
               ("tokens_per_second", ".0f", "tokens/s"), ("tflops", ".1f", "TFLOP/s"), ("launches", "", ""),
               ("wrong", "", ""), ("failed", ".60", ""))
    report = reports.Report("prefill", options.target, columns, options.json)
    for name in options.model or MODELS:
        lengths, about = options.tokens or TOKENS, {"model": name, "dtype": options.dtype}
        try:
            with load(name, report.target, options.dtype, max(*lengths, TOKENS[-1]), options.without) as program:
                for tokens in lengths:
                    report.add({**about, "tokens": tokens, **measured_or_why(program, name, tokens, options)})
        except harness.FAILURES as error:
            report.add({**about, "failed": str(error).splitlines()[0]})
    report.table()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
