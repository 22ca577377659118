"""Attention over a long cache by many programs, and the kernel that adds up what they have, against float64.

Both run in the PTX interpreter. What lies past the length is NaN, and so is everything that no kernel has written.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pytest

from tilec.frontend import nn
from tilec.frontend.config import ModelConfig
from tilec.frontend.tensor import Graph
from tilec.model_compiler import compile_model
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import Artifact

from . import reference
from .gpu_simulator import SimulatedGpu
from .test_sliding_windows import attended

RNG = np.random.default_rng(11)
SHARED = "primop-share-chains"


@dataclass(frozen=True)
class Attention:
    """One query over a cache of `capacity` rows, `parts` programs for each group of heads that one takes."""

    dtype: str
    heads: int
    kv_heads: int
    width: int
    capacity: int
    parts: int

    def record(self) -> Graph:
        graph = Graph({"past": (0, self.capacity - 1)})
        with graph.entry("main"):
            past, shape = graph.symbol("past"), (self.kv_heads, self.capacity, self.width)
            q = graph.input("q", (1, self.heads, self.width), self.dtype)
            keys, values = (graph.input(n, shape, self.dtype, kind="state")[:, : past + 1] for n in ("keys", "values"))
            graph.output("y", nn.attention(q, keys, values, past))
        return graph

    def run(self, artifact: Artifact, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the kernels give, what they should, and that if all values were positive."""
        shapes = [(1, self.heads, self.width), *[(self.kv_heads, self.capacity, self.width)] * 2]
        q, keys, values = (reference.rounded(RNG.standard_normal(s), self.dtype) for s in shapes)
        want, size = attended(q, keys, values, length - 1, self.capacity)
        keys[:, length:], values[:, length:] = np.nan, np.nan
        held = {n: reference.to_memory(a, self.dtype) for n, a in (("q", q), ("keys", keys), ("values", values))}
        states = {n: held[n] for n in ("keys", "values")}
        simulated = SimulatedGpu(artifact, {}, states, apart=True)
        return simulated.run("main", {"q": held["q"]}, {"past": length - 1})["y"], want, size


@functools.cache
def compiled(attention: Attention, leave_out: tuple[str, ...] = ()) -> Artifact:
    return compile_module(attention.record().module, find_target("sm_90a"), {}, leave_out=leave_out)


CASES = {
    "groups of four": Attention("bf16", 8, 2, 128, 16384, 64),
    "groups of two in f32": Attention("f32", 4, 2, 16, 16384, 64),
    "groups of seven, each head by itself": Attention("f16", 7, 1, 128, 16384, 56),
    "as many parts as a head is wide": Attention("f32", 2, 2, 64, 16384, 56),
}


@pytest.mark.parametrize("name", CASES)
def test_programs_that_share_a_cache_find_what_one_would(name: str) -> None:
    """Lengths that leave programs without a row, at the edges of turns and of rounds of all programs, and the whole cache."""
    attention, artifact = CASES[name], compiled(CASES[name])
    entry = artifact.manifest.entries["main"]
    (first, used), (second, _) = entry.launches
    assert first == f"{second}_parts" and "cluster" not in artifact.files[f"{first}.ptx"].decode()
    assert [entry.buffers[b].sizes[0] for b in used[3:]] == [attention.parts] * 3
    turn = 4 * 128 * 8 // attention.width  # four keys of each group of threads, eight elements of a key a thread
    all_of_them = attention.parts * turn
    for length in sorted({1, 2, turn - 1, turn, turn + 1, 2 * turn + 3, all_of_them, all_of_them + 1, 5000, 16384}):
        if length <= attention.capacity:
            got, want, size = attention.run(artifact, length)
            bound = 2.0**-17 if attention.dtype == "f32" else 2.0**-7
            assert (abs(got - want) <= bound * size).all(), f"length {length}"


def test_one_kernel_is_left_where_the_pass_is_left_out_or_has_nothing_to_gain() -> None:
    shared = CASES["groups of four"]
    assert len(compiled(shared).manifest.entries["main"].launches) == 2
    assert len(compiled(shared, (SHARED,)).manifest.entries["main"].launches) == 1
    assert len(compiled(Attention("bf16", 8, 2, 128, 8192, 1)).manifest.entries["main"].launches) == 1


def test_a_model_with_a_long_cache_decodes_what_it_decodes_without_the_pass() -> None:
    config = ModelConfig(96, 64, 96, 2, 4, 2, 16, 1e-5, 1e4, 16384, True)
    logits = []
    for left in ((), (SHARED,)):
        artifact = compile_model(config, "sm_90a", "f32", 16384, leave_out=left)
        rng = np.random.default_rng(3)
        weights = {n: rng.standard_normal(w.sizes or w.shape).astype("f4") / 8 for n, w in artifact.manifest.weights.items()}
        simulated = SimulatedGpu(artifact, weights)
        logits.append(simulated.run("decode", {"tokens": np.array([5], "i4")}, {"past": 0})["logits"])
    np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-5)
