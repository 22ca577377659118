"""Benchmarks: what is measured here is what the README quotes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

# What `tilec bench NAME` runs, the module of that name, and the line that `tilec bench` prints of it.
BENCHMARKS = {
    "decode": "time of a token, by model, against the memory limit (and with --torch against torch)",
    "prefill": "time of a prompt, by model and number of tokens",
    "matvec": "y = W x in bf16: rate of reading W, beside cuBLAS",
    "matmul": "C = A B^T in bf16 and f32: rate and error, beside cuBLAS",
    "attention": "grouped-query attention in bf16, causal and full: rate and error, beside torch's kernels",
    "plot": "draws results (--json of the others) as an SVG",
}


def run(name: str | None, arguments: Sequence[str]) -> int:
    """Runs a benchmark, or without a name says which there are; returns the exit code."""
    if name is None:
        for known, line in BENCHMARKS.items():
            print(f"tilec bench {known:10} {line}")
        print("\nEach has --help.")
        return 0
    # Imported here: it loads MLIR, which no other command needs before it compiles.
    return importlib.import_module(f"tilec.tools.bench.{name}").main(arguments)
