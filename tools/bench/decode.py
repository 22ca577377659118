"""Time of one decode step on a GPU, random weights at the true shapes of public models.

    tilec bench decode --model llama-3.2-1b --context 512 --json results.json
    tilec bench decode --model llama-3.1-8b --torch

Prints, per model, the median device time of a token, the bytes that must be read for it over the time, and their share of
the copy rate of an H200. `--kernels` adds what each kernel costs: the step's time with and without it. `--torch` adds a
decode step written in torch for this purpose, see `torch_decode.py`. `--entry sample` times the step that
draws its token, `--batch N` one that takes a token of each of N sequences of `--context` tokens. Models are in
`models.py`, which says what -shape means.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec.llm import DTYPES, choose_batch
from tilec.model_compiler import compile_model
from tilec.runtime.cuda import CudaProgram
from tilec.runtime.sampling import Sampler, SamplingParams
from tilec.runtime.weights import load_weights
from tilec.tools.bench import harness, torch_side
from tilec.tools.bench import report as reports
from tilec.tools.bench.models import MODELS, bytes_of_a_token, random_weights


def measure(name: str, target: str, dtype: str, context: int, repeats: int, kernels: bool,
            leave_out: Sequence[str] = (), entry: str = "decode", batch: int = 1) -> dict[str, Any]:
    """Compiles a model, fills its cache up to `context` in form only, and times decode steps around there."""
    config, first = MODELS[name], max(context - repeats // 2, 0)
    timed = f"{entry}_batch" if batch > 1 else entry
    artifact = compile_model(config, target, dtype, context + 2 * repeats + 64, leave_out=leave_out, batch=batch,
                             entries={"decode", timed})
    manifest = artifact.manifest
    program = CudaProgram(artifact, load_weights(manifest, random_weights(manifest, config), 8))
    tokens, symbols = {"tokens": np.full(batch, 7, np.int32)}, {"past": first}
    if entry == "sample":
        sampler = Sampler(SamplingParams(temperature=0.8, top_k=50, top_p=0.95, seed=1))
        tokens |= {name: np.repeat(value, batch) for name, value in sampler.arguments.items()}
    if batch > 1:
        entry, symbols = timed, {"past": first, "batch": batch}
        tokens["positions"] = np.full(batch, first, np.int32)
    median = statistics.median(program.time(entry, tokens, symbols, repeats)[5:])
    read = bytes_of_a_token(manifest, config, dtype, context, batch)
    launches = [kernel for kernel, _ in manifest.entries[entry].launches]
    result: dict[str, Any] = {
        "model": name, "dtype": dtype, "context": context, "ms_per_token": round(median, 4),
        "gigabytes": round(read / 1e9, 3), "terabytes_per_second": round(read / median / 1e9, 3),
        "share_of_copy_rate": round(read / median * 1e3 / harness.COPY_RATE, 3), "launches": len(launches),
    }
    if entry != "decode":
        result["entry"] = entry
    if batch > 1:
        result["batch"] = batch
    if leave_out:
        result["without"] = list(leave_out)
    if kernels:
        result["kernels"] = harness.costs_of_kernels(program, entry, tokens, symbols, 30)
    program.close()
    return result


def measure_torch(name: str, context: int, repeats: int, budget: int) -> dict[str, Any]:
    """The same of torch, as keys to add to a row; none where torch or its memory is missing."""
    torch = torch_side.find_torch()
    if torch is None:
        print("    torch is not installed or sees no GPU")
        return {}
    from tilec.tools.bench.torch_decode import time_steps

    times = time_steps(MODELS[name], context, repeats, budget)
    torch_side.release()
    by, best = min(times.items(), key=lambda item: item[1])
    print("".join(f"    torch, {n}: {t:.4f} ms\n" for n, t in times.items()), end="")
    return {"torch_ms": best, "torch_by": by, "torch_all": {n: round(t, 4) for n, t in times.items()}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = reports.parser("decode", __doc__.splitlines()[0])
    parser.add_argument("--model", action="append", choices=[*MODELS], help="default: all")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--context", type=int, default=512, help="tokens in the cache (default 512)")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--entry", default="decode", choices=["decode", "sample"], help="greedy, or drawing a token")
    parser.add_argument("--batch", type=int, default=1, help="sequences in a step (default 1)")
    parser.add_argument("--kernels", action="store_true", help="also what each kernel costs")
    parser.add_argument("--torch", action="store_true", help="also a bf16 step in torch, in this process")
    parser.add_argument("--compile-budget", type=int, default=120, metavar="SECONDS",
                        help="for torch.compile, per model; 0 leaves it out (default 120)")
    options = parser.parse_args(arguments)
    if options.torch and options.batch > 1:
        parser.error("torch's step takes one sequence: leave out --torch or --batch")
    columns = (("model", "", ""), ("dtype", "", ""), ("context", "", ""), ("batch", "", ""), ("ms_per_token", ".4f", "ms"),
               ("terabytes_per_second", ".3f", "TB/s"), ("share_of_copy_rate", ".1%", ""), ("launches", "", ""),
               ("torch_ms", ".4f", "ms"), ("torch_by", "", ""), ("ratio", ".3f", ""))
    report = reports.Report("decode", options.target, columns, options.json)
    for name in options.model or MODELS:
        row = measure(name, report.target, options.dtype, options.context, options.repeats, options.kernels, options.without,
                      options.entry, choose_batch(options.batch))
        row["repeats"] = options.repeats
        if options.torch:
            row |= measure_torch(name, options.context, options.repeats, options.compile_budget)
            if "torch_ms" in row:
                row["ratio"] = row["torch_ms"] / row["ms_per_token"]
        report.add(row)
    report.table()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
