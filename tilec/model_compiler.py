"""From a model's configuration to an artifact: the one module of the public face that needs MLIR."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict

from tilec.dialects.index_expr import Linear, linear
from tilec.frontend.config import ModelConfig
from tilec.frontend.models import llama
from tilec.frontend.tensor import Graph
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import Artifact

CHUNK, LONG_CHUNK = 256, 2048  # tokens that `prefill` and `prefill_long` take at once

Observer = Callable[[str, str, str], None]


def record_model(config: ModelConfig, dtype: str, context: int, chunk: int = CHUNK, long_chunk: int = 0,
                 batch: int = 1) -> Graph:
    """A model's entry points in one graph: decode, sample, prefill and score (prefill with the logits of every token).

    With `long_chunk`, also `prefill_long` for as many tokens at once: kernels for long prompts and for short ones differ.
    With a `batch` above 1, the cache has as many slots, one of which the other entries work on, and `decode_batch` takes the
    next token of several sequences.
    """
    long = {"long": (1, long_chunk)} if long_chunk > chunk else {}
    several = {"batch": (1, batch), "slot": (0, batch - 1)} if batch > 1 else {}
    graph = Graph({"seq": (1, chunk), "past": (0, context - 1), **long, **several})
    past, length = graph.symbol("past"), graph.symbol("seq")
    slot = graph.symbol("slot") if several else linear(0)

    def entry(name: str, tokens: Linear, outputs: str) -> None:
        with graph.entry(name):
            llama.record(graph, config, dtype, llama.Sequences(tokens, past, context, batch, slot), outputs)

    entry("decode", linear(1), "last")
    entry("sample", linear(1), "sample")
    entry("prefill", length, "last")
    if long:
        entry("prefill_long", graph.symbol("long"), "last")
    entry("score", length, "all")
    if several:
        with graph.entry("decode_batch"):
            together = llama.Sequences(graph.symbol("batch"), past, context, batch, together=True)
            llama.record(graph, config, dtype, together, "last")
    return graph


def compile_model(config: ModelConfig, target: str, dtype: str, context: int, chunk: int | None = None,
                  observer: Observer | None = None, leave_out: Collection[str] = (), batch: int = 1) -> Artifact:
    """Compiles a model for a target, for up to `batch` sequences; `observer(pass name, IR before, IR after)` sees every pass.

    `chunk` is the most tokens that prefill takes at once; by default there are two, for short and for long prompts, where
    attention keeps no scores in memory. `leave_out` names optional passes to do without, see `pipelines/pipeline.py`.
    """
    machine = find_target(target)
    long_chunk = LONG_CHUNK if chunk is None and getattr(machine, "wgmma", False) and dtype != "f32" else 0
    graph = record_model(config, dtype, context, min(chunk or CHUNK, context), min(long_chunk, context), batch)
    return compile_module(graph.module, machine, {**asdict(config), "dtype": dtype}, observer, leave_out)
