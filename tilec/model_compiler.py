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

CHUNK = 256  # tokens that prefill takes at once

Observer = Callable[[str, str, str], None]


def record_model(config: ModelConfig, dtype: str, context: int, chunk: int = CHUNK) -> Graph:
    """A model's four entry points in one graph.

    decode (one token, greedy), sample (decode with a token that is drawn), prefill, and score (prefill with the logits of
    every token).
    """
    graph = Graph({"seq": (1, chunk), "past": (0, context - 1)})
    past, length = graph.symbol("past"), graph.symbol("seq")
    with graph.entry("decode"):
        llama.record(graph, config, dtype, context, 1, past, "last")
    with graph.entry("sample"):
        llama.record(graph, config, dtype, context, 1, past, "sample")
    with graph.entry("prefill"):
        llama.record(graph, config, dtype, context, length, past, "last")
    with graph.entry("score"):
        llama.record(graph, config, dtype, context, length, past, "all")
    return graph


def compile_model(config: ModelConfig, target: str, dtype: str, context: int, chunk: int = CHUNK,
                  observer: Observer | None = None, leave_out: Collection[str] = ()) -> Artifact:
    """Compiles a model for a target; `observer(pass name, IR before, IR after)` sees every pass.

    `leave_out` names optional passes to do without, see `pipelines/pipeline.py`.
    """
    graph = record_model(config, dtype, context, min(chunk, context))
    return compile_module(graph.module, find_target(target), {**asdict(config), "dtype": dtype}, observer, leave_out)
