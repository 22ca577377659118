"""Rate at which y = W x reads its matrix, bf16, beside cuBLAS in the same process.

    tilec bench matvec --json matvec.json
    tilec bench matvec --shape 4096x4096

Shapes are rows x columns of W: the projections and the head of Llama-3.1-8B. Bytes are those of W.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec.dialects import primop
from tilec.frontend import nn
from tilec.frontend.tensor import Graph
from tilec.tools.bench import harness
from tilec.tools.bench import report as reports

SHAPES = ((4096, 4096), (6144, 4096), (14336, 4096), (4096, 14336), (128256, 4096))


def case(n: int, k: int, dtype: str = "bf16") -> harness.Case:
    """x (1, K) times W (N, K) transposed, as a decode step has it."""
    graph = Graph()
    with graph.entry("main"):
        x, w = graph.input("x", (1, k), dtype), graph.input("w", (n, k), dtype, kind="weight")
        graph.output("y", nn.linear(x, w).cast(dtype))

    def inputs(number: int) -> harness.Arrays:
        return {"x": harness.normal((1, k), dtype, 3 * number + 1), "w": harness.normal((n, k), dtype, 3 * number)}

    def exact(arrays: harness.Arrays) -> tuple[Any, np.ndarray]:
        some = np.unique(np.random.default_rng(0).integers(0, n, 4096))
        x, w = (harness.as_float64(a, dtype) for a in (arrays["x"], arrays["w"][some]))
        return (slice(None), some), x @ w.T

    return harness.Case({"shape": f"{n}x{k}", "gigabytes": n * k * (4 if dtype == "f32" else 2) / 1e9}, graph, inputs, exact,
                        {"linear": lambda t: t["x"] @ t["w"].T, "mv": lambda t: (t["w"] @ t["x"][0])[None]}, "y", dtype)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = reports.parser("matvec", __doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", type=reports.sizes(2), metavar="NxK", help="default: five of Llama's")
    parser.add_argument("--dtype", default="bf16", choices=primop.FLOATS)
    parser.add_argument("--turns", type=int, default=7, help="how often ours and torch alternate (default 7)")
    options = parser.parse_args(arguments)
    columns = (("shape", "", ""), ("dtype", "", ""), ("ms", ".4f", "ms"), ("terabytes_per_second", ".3f", "TB/s"),
               ("share_of_copy_rate", ".1%", ""), ("torch_by", "", ""), ("torch_ms", ".4f", "ms"),
               ("torch_terabytes_per_second", ".3f", "TB/s"), ("ratio", ".3f", ""), ("wrong", "", ""), ("error", ".1e", ""),
               ("torch_error", ".1e", ""), ("failed", ".60", ""))
    report = reports.Report("matvec", options.target, columns, options.json)
    for n, k in options.shape or SHAPES:
        row = harness.measure(case(n, k, options.dtype), report.target, options.turns, options.without)
        for side in ("", "torch_"):
            if row.get(f"{side}ms"):
                row[f"{side}terabytes_per_second"] = row["gigabytes"] / row[f"{side}ms"]
        if row["ms"]:
            row["share_of_copy_rate"] = row["gigabytes"] * 1e12 / row["ms"] / harness.COPY_RATE
        report.add(row)
    report.table()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
