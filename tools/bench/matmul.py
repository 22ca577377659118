"""Rate of C = A B^T and its error against float64, beside cuBLAS in the same process.

    tilec bench matmul --json matmul.json
    tilec bench matmul --dtype bf16 --shape 4096x4096x4096

Shapes are M x N x K: A is (M, K), B is (N, K), a weight, and C is (M, N) in the type of A, summed in f32. `ratio` is our
speed over torch's. f32 is computed as such, without TF32, on both sides; `--dtype tf32` lets both multiply f32 in TF32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec.frontend import nn
from tilec.frontend.tensor import Graph
from tilec.runtime.artifact import TF32, in_memory
from tilec.tools.bench import harness, torch_side
from tilec.tools.bench import report as reports

SHAPES = {
    "bf16": ((8192, 8192, 8192), (4096, 4096, 4096), (4096, 14336, 4096), (2048, 4096, 4096), (512, 14336, 4096),
             (512, 4096, 4096), (128, 4096, 4096)),
    "f32": ((4096, 4096, 4096), (512, 2048, 2048)),
}


def case(m: int, n: int, k: int, dtype: str, symbolic: bool = False) -> harness.Case:
    """One product; where it is `symbolic`, M is known only when it runs, as the length of a prompt is."""
    graph, held = Graph({"m": (1, m)} if symbolic else {}, tf32=dtype == TF32), in_memory(dtype)
    with graph.entry("main"):
        a = graph.input("a", (graph.symbol("m") if symbolic else m, k), held)
        graph.output("c", nn.linear(a, graph.input("b", (n, k), held, kind="weight")).cast(held))

    def inputs(number: int) -> harness.Arrays:
        return {"a": harness.normal((m, k), held, 2 * number + 1), "b": harness.normal((n, k), held, 2 * number)}

    def exact(arrays: harness.Arrays) -> tuple[Any, np.ndarray]:
        some = np.unique(np.random.default_rng(0).integers(0, m, 32))
        a, b = (harness.as_float64(x, held) for x in (arrays["a"][some], arrays["b"]))
        return some, a @ b.T

    def theirs(t: dict[str, Any]) -> Any:
        return t["a"] @ t["b"].T

    labels = {"shape": f"{m}x{n}x{k}", "flop": 2 * m * n * k, **({"symbolic": True} if symbolic else {})}
    calls = {"matmul": torch_side.in_tf32(theirs) if dtype == TF32 else theirs}
    return harness.Case(labels, graph, inputs, exact, calls, "c", dtype, {"m": m} if symbolic else {})


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = reports.parser("matmul", __doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", type=reports.sizes(3), metavar="MxNxK", help="default: a list by type")
    parser.add_argument("--dtype", action="append", choices=[*harness.LIMITS], help="default: bf16 and f32")
    parser.add_argument("--symbolic", action="store_true", help="compile without knowing M")
    parser.add_argument("--turns", type=int, default=7, help="how often ours and torch alternate (default 7)")
    options = parser.parse_args(arguments)
    report = reports.Report("matmul", options.target, (("shape", "", ""), *reports.RATES), options.json)
    for dtype in options.dtype or SHAPES:
        for m, n, k in options.shape or SHAPES.get(dtype, SHAPES["f32"]):
            made = case(m, n, k, dtype, options.symbolic)
            report.add(reports.with_rates(harness.measure(made, report.target, options.turns, options.without)))
    report.table()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
