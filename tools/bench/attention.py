"""Rate of grouped-query attention and its error against float64, beside torch's fastest kernel in the same process.

    tilec bench attention --json attention.json
    tilec bench attention --length 2048 --width 128 --causal

32 query heads over 8 key and value heads of the given width, one sequence, bf16. As in a model the length is known only
when it runs. Causal attention counts half the square. Torch is scaled_dot_product_attention with the flash and the cuDNN
backend, whichever is faster; `ratio` is our speed over torch's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilec.dialects.index_expr import linear
from tilec.frontend import nn
from tilec.frontend.tensor import Graph
from tilec.tools.bench import harness
from tilec.tools.bench import report as reports

LENGTHS, WIDTHS = (512, 2048, 8192), (64, 128)
HEADS, KV_HEADS = 32, 8


def case(length: int, width: int, causal: bool, heads: int = HEADS, kv_heads: int = KV_HEADS,
         dtype: str = "bf16") -> harness.Case:
    """q (S, heads, D), keys and values (kv_heads, S, D), the result (S, heads, D)."""
    graph, group = Graph({"seq": (1, length)}), heads // kv_heads
    with graph.entry("main"):
        seq = graph.symbol("seq")
        q = graph.input("q", (seq, heads, width), dtype)
        keys, values = (graph.input(n, (kv_heads, length, width), dtype)[:, :seq] for n in ("keys", "values"))
        graph.output("y", nn.attention(q, keys, values, linear(0) if causal else None).cast(dtype))

    def inputs(number: int) -> harness.Arrays:
        shapes = {"q": (length, heads, width), "keys": (kv_heads, length, width), "values": (kv_heads, length, width)}
        return {n: harness.normal(s, dtype, 3 * number + i) for i, (n, s) in enumerate(shapes.items())}

    def exact(arrays: harness.Arrays) -> tuple[Any, np.ndarray]:
        rng = np.random.default_rng(0)
        rows, some = np.append(rng.integers(0, length, 62), [0, length - 1]), rng.integers(0, heads, 64)
        results = []
        for row, head in zip(rows, some, strict=True):
            seen = row + 1 if causal else length
            q, keys, values = (harness.as_float64(a, dtype) for a in (
                arrays["q"][row, head], arrays["keys"][head // group, :seen], arrays["values"][head // group, :seen]))
            scores = keys @ q / np.sqrt(width)
            weights = np.exp(scores - scores.max())
            results.append(weights @ values / weights.sum())
        return (rows, some), np.stack(results)

    labels = {"shape": f"{length}x{width}", "causal": causal, "heads": heads, "kv_heads": kv_heads,
              "flop": 4 * heads * width * length * length // (2 if causal else 1)}
    calls = {name: _torch_call(name, causal) for name in ("flash", "cudnn")}
    return harness.Case(labels, graph, inputs, exact, calls, "y", dtype, {"seq": length})


def _torch_call(backend: str, causal: bool) -> Callable[[dict[str, Any]], Any]:
    """Torch's attention with one backend, on our inputs seen as (1, heads, S, D)."""

    def call(t: dict[str, Any]) -> Any:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        kind = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}[backend]
        with sdpa_kernel(kind):
            mixed = scaled_dot_product_attention(t["q"].transpose(0, 1)[None], t["keys"][None], t["values"][None],
                                                 is_causal=causal, enable_gqa=True)
        return mixed[0].transpose(0, 1)

    return call


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = reports.parser("attention", __doc__.splitlines()[0])
    parser.add_argument("--length", action="append", type=int, metavar="S", help=f"default: {', '.join(map(str, LENGTHS))}")
    parser.add_argument("--width", action="append", type=int, metavar="D", help="of a head; default: 64 and 128")
    parser.add_argument("--causal", action=argparse.BooleanOptionalAction, help="default: both")
    parser.add_argument("--heads", type=int, default=HEADS)
    parser.add_argument("--kv-heads", type=int, default=KV_HEADS)
    parser.add_argument("--turns", type=int, default=7, help="how often ours and torch alternate (default 7)")
    options = parser.parse_args(arguments)
    columns = (("shape", "", ""), ("causal", "", ""), *reports.RATES)
    report = reports.Report("attention", options.target, columns, options.json)
    for causal in (True, False) if options.causal is None else (options.causal,):
        for width in options.width or WIDTHS:
            for length in options.length or LENGTHS:
                made = case(length, width, causal, options.heads, options.kv_heads)
                report.add(reports.with_rates(harness.measure(made, report.target, options.turns, options.without)))
    report.table()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
