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


def record_model(config: ModelConfig, dtype: str, context: int, chunks: Sequence[int] = CHUNKS, batch: int = 1,
                 entries: Collection[str] | None = None) -> Graph:
    """A model's entry points in one graph: decode, sample, prefill and score (prefill with the logits of every token).

    Prefill takes up to `chunks[0]` tokens at once; each further length N, ascending, has an entry `prefill_N` with kernels for
    prompts of about that length. With a `batch` above 1, the cache has as many slots, one of which the other entries work on,
    and `decode_batch` and `sample_batch` take the next token of several sequences. With dtype 'tf32' all is f32, and products
    may be in TF32. `entries` names those that are wanted, if not all; ValueError for one that the model does not have.
    """
    several = {"batch": (1, batch), "slot": (0, batch - 1)} if batch > 1 else {}
    names = ["", *(f"_{n}" for n in chunks[1:])]
    lengths = {f"seq{name}": (1, size) for name, size in zip(names, chunks, strict=True)}
    graph = Graph({**lengths, "past": (0, context - 1), **several}, tf32=dtype == TF32)
    past = graph.symbol("past")
    slot = graph.symbol("slot") if several else linear(0)

    def of_one(tokens: Linear) -> llama.Sequences:
        return llama.Sequences(tokens, past, context, batch, slot)

    possible = {"decode": (of_one(linear(1)), "last"), "sample": (of_one(linear(1)), "sample")}
    possible |= {f"prefill{name}": (of_one(graph.symbol(f"seq{name}")), "last") for name in names}
    possible["score"] = of_one(graph.symbol("seq")), "all"
    if several:
        together = llama.Sequences(graph.symbol("batch"), past, context, batch, together=True)
        possible |= {"decode_batch": (together, "last"), "sample_batch": (together, "sample")}
    if missing := sorted({*(entries or ())} - {*possible}):
        raise ValueError(f"a model has the entries {', '.join(possible)}, but not {', '.join(missing)}")
    for name, (sequences, outputs) in possible.items():
        if entries is None or name in entries:
            with graph.entry(name):
                llama.record(graph, config, in_memory(dtype), sequences, outputs)
    return graph


def record_for(config: ModelConfig, target: str, dtype: str, context: int, chunks: Sequence[int] | None = None,
               batch: int = 1, entries: Collection[str] | None = None) -> Graph:
    """A model's entry points as they suit a target: with tensor cores, prompts of several lengths have kernels of their own."""
    if chunks is None:
        chunks = TENSOR_CHUNKS if getattr(find_target(target), "wgmma", False) and dtype != "f32" else CHUNKS
    return record_model(config, dtype, context, sorted({min(n, context) for n in chunks}), batch, entries)


def compile_model(config: ModelConfig, target: str, dtype: str, context: int, chunks: Sequence[int] | None = None,
                  observer: Observer | None = None, leave_out: Collection[str] = (), batch: int = 1,
                  tuned: str = "", entries: Collection[str] | None = None) -> Artifact:
    """Compiles a model for a target, for up to `batch` sequences; `observer(pass name, IR before, IR after)` sees every pass.

    `chunks` are the lengths that prefill has kernels for; by default there are several where tensor cores make schedules
    differ. `leave_out` names optional passes to do without, see `pipelines/pipeline.py`; `tuned` is a file of `tilec tune`;
    `entries` the entry points that are wanted, if not all.
    """
    graph = record_for(config, target, dtype, context, chunks, batch, entries)
    return compile_module(graph.module, find_target(target), {**asdict(config), "dtype": dtype}, observer, leave_out, tuned)
