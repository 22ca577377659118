"""Time of a prompt on a GPU, by model and number of tokens, the whole prompt as one chunk into an empty cache.

    tilec bench prefill --model llama-3.2-1b --tokens 512 --json prefill.json

Weights are random at the true shapes of public models (`models.py`). A prompt ends with the logits and the greedy choice of
its last token; TFLOP/s count half the square of attention. Logits must be finite before anything is timed. `--kernels`
adds what each kernel costs: the time of the prompt with and without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
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


def measure(name: str, target: str, dtype: str, tokens: int, turns: int, leave_out: Sequence[str] = (),
            kernels: bool = False) -> dict[str, Any]:
    """Compiles a model as for any use and times its prefill of as many tokens, which must be one piece."""
    config = MODELS[name]
    row: dict[str, Any] = {"model": name, "dtype": dtype, "tokens": tokens, "ms": None}
    with contextlib.ExitStack() as stack:
        artifact = compile_model(config, target, dtype, max(tokens, TOKENS[-1]), leave_out=leave_out)
        program = CudaProgram(artifact, load_weights(artifact.manifest, random_weights(artifact.manifest, config), 8))
        stack.callback(program.close)
        prompt = np.random.default_rng(0).integers(0, config.vocab_size, tokens).astype(np.int32)
        entry = next((e for size, e in Engine(program).prefills if size >= tokens), None)
        if entry is None:
            raise TilecError(f"no entry point takes {tokens} tokens at once")
        symbols = {"seq" + entry.removeprefix("prefill"): tokens, "past": 0}
        replay = Replay(program, entry, [{"tokens": prompt}], symbols)
        stack.callback(replay.close)
        row["launches"] = len(artifact.manifest.entries[entry].launches)
        if not harness.is_finite(replay.run(["logits"])[0]["logits"]):
            return {**row, "wrong": True}
        row["ms"] = harness.compare({"tilec": replay}, turns)["tilec"]
        row["tokens_per_second"] = tokens / row["ms"] * 1e3
        row["tflops"] = flop_of_a_prompt(config, tokens) / row["ms"] / 1e9
        if kernels:
            row["kernels"] = harness.costs_of_kernels(program, entry, {"tokens": prompt}, symbols, 5)
        return row


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
        for tokens in options.tokens or TOKENS:
            try:
                report.add(measure(name, report.target, options.dtype, tokens, options.turns, options.without,
                                   options.kernels))
            except harness.FAILURES as error:
                report.add({"model": name, "dtype": options.dtype, "tokens": tokens, "failed": str(error).splitlines()[0]})
    report.table()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
