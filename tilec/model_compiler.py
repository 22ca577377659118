"""From a model's configuration to an artifact: the one module of the public face that needs MLIR."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict

from tilec.dialects.index_expr import Linear, linear
from tilec.frontend.config import ModelConfig
from tilec.frontend.models import llama
from tilec.frontend.tensor import Graph
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import TF32, Artifact, in_memory

CHUNKS, TENSOR_CHUNKS = (256,), (128, 512, 2048)  # the most tokens of each entry point that takes prompts

Observer = Callable[[str, str, str], None]


def record_model(config: ModelConfig, dtype: str, context: int, chunks: Sequence[int] = CHUNKS, batch: int = 1) -> Graph:
    """A model's entry points in one graph: decode, sample, prefill and score (prefill with the logits of every token).

    Prefill takes up to `chunks[0]` tokens at once; each further length N, ascending, has an entry `prefill_N` with kernels for
    prompts of about that length. With a `batch` above 1, the cache has as many slots, one of which the other entries work on,
    and `decode_batch` and `sample_batch` take the next token of several sequences. With dtype 'tf32' all is f32, and products
    may be in TF32.
    """
    several = {"batch": (1, batch), "slot": (0, batch - 1)} if batch > 1 else {}
    names = ["", *(f"_{n}" for n in chunks[1:])]
    lengths = {f"seq{name}": (1, size) for name, size in zip(names, chunks, strict=True)}
    graph = Graph({**lengths, "past": (0, context - 1), **several}, tf32=dtype == TF32)
    past = graph.symbol("past")
    slot = graph.symbol("slot") if several else linear(0)

    def entry(name: str, tokens: Linear, outputs: str) -> None:
        with graph.entry(name):
            llama.record(graph, config, in_memory(dtype), llama.Sequences(tokens, past, context, batch, slot), outputs)

    entry("decode", linear(1), "last")
    entry("sample", linear(1), "sample")
    for name in names:
        entry(f"prefill{name}", graph.symbol(f"seq{name}"), "last")
    entry("score", graph.symbol("seq"), "all")
    if several:
        together = llama.Sequences(graph.symbol("batch"), past, context, batch, together=True)
        for name, outputs in (("decode_batch", "last"), ("sample_batch", "sample")):
            with graph.entry(name):
                llama.record(graph, config, in_memory(dtype), together, outputs)
    return graph


def record_for(config: ModelConfig, target: str, dtype: str, context: int, chunks: Sequence[int] | None = None,
               batch: int = 1) -> Graph:
    """A model's entry points as they suit a target: with tensor cores, prompts of several lengths have kernels of their own."""
    if chunks is None:
        chunks = TENSOR_CHUNKS if getattr(find_target(target), "wgmma", False) and dtype != "f32" else CHUNKS
    return record_model(config, dtype, context, sorted({min(n, context) for n in chunks}), batch)


def compile_model(config: ModelConfig, target: str, dtype: str, context: int, chunks: Sequence[int] | None = None,
                  observer: Observer | None = None, leave_out: Collection[str] = (), batch: int = 1,
                  tuned: str = "") -> Artifact:
    """Compiles a model for a target, for up to `batch` sequences; `observer(pass name, IR before, IR after)` sees every pass.

    `chunks` are the lengths that prefill has kernels for; by default there are several where tensor cores make schedules
    differ. `leave_out` names optional passes to do without, see `pipelines/pipeline.py`; `tuned` is a file of `tilec tune`.
    """
    graph = record_for(config, target, dtype, context, chunks, batch)
    return compile_module(graph.module, find_target(target), {**asdict(config), "dtype": dtype}, observer, leave_out, tuned)
