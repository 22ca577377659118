"""From a model's configuration to an artifact: the one module of the public face that needs MLIR."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict

from tilec.frontend.config import ModelConfig
from tilec.frontend.models import llama
from tilec.frontend.tensor import Graph
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import Artifact

CHUNK, LONG_CHUNK = 256, 2048  # tokens that `prefill` and `prefill_long` take at once

Observer = Callable[[str, str, str], None]


def record_model(config: ModelConfig, dtype: str, context: int, chunk: int = CHUNK, long_chunk: int = 0) -> Graph:
    """A model's entry points in one graph: decode, sample, prefill and score (prefill with the logits of every token).

    With `long_chunk`, also `prefill_long` for as many tokens at once: kernels for long prompts and for short ones differ.
    """
    long = {"long": (1, long_chunk)} if long_chunk > chunk else {}
    graph = Graph({"seq": (1, chunk), "past": (0, context - 1), **long})
    past, length = graph.symbol("past"), graph.symbol("seq")
    with graph.entry("decode"):
        llama.record(graph, config, dtype, context, 1, past, "last")
    with graph.entry("sample"):
        llama.record(graph, config, dtype, context, 1, past, "sample")
    with graph.entry("prefill"):
        llama.record(graph, config, dtype, context, length, past, "last")
    if long:
        with graph.entry("prefill_long"):
            llama.record(graph, config, dtype, context, graph.symbol("long"), past, "last")
    with graph.entry("score"):
        llama.record(graph, config, dtype, context, length, past, "all")
    return graph


def compile_model(config: ModelConfig, target: str, dtype: str, context: int, chunk: int | None = None,
                  observer: Observer | None = None, leave_out: Collection[str] = ()) -> Artifact:
    """Compiles a model for a target; `observer(pass name, IR before, IR after)` sees every pass.

    `chunk` is the most tokens that prefill takes at once; by default there are two, for short and for long prompts, where
    attention keeps no scores in memory. `leave_out` names optional passes to do without, see `pipelines/pipeline.py`.
    """
    machine = find_target(target)
    long_chunk = LONG_CHUNK if chunk is None and getattr(machine, "wgmma", False) and dtype != "f32" else 0
    graph = record_model(config, dtype, context, min(chunk or CHUNK, context), min(long_chunk, context))
    return compile_module(graph.module, machine, {**asdict(config), "dtype": dtype}, observer, leave_out)
