"""Attention over a long cache by many programs, and the kernel that adds up what they have, against float64.

Both run in the PTX interpreter. What lies past the length is NaN, and so is everything that no kernel has written.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tilec.frontend import nn
from tilec.frontend.config import ModelConfig
from tilec.frontend.tensor import Graph
from tilec.model_compiler import compile_model
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target

from . import reference
from .gpu_simulator import SimulatedGpu
from .test_sliding_windows import Attention, attended

RNG = np.random.default_rng(11)
SHARED = "primop-share-chains"


def one_query(dtype: str, heads: int, kv_heads: int, width: int, capacity: int) -> Attention:
    return Attention("sm_90a", dtype, None, 1, capacity, heads, kv_heads, width)


# With the number of programs for each group of heads that one takes, and the keys that a thread has in flight.
CASES = {
    "groups of four": (one_query("bf16", 8, 2, 128, 16384), 64, 4),
    "groups of two in f32": (one_query("f32", 4, 2, 16, 16384), 64, 4),
    "groups of seven": (one_query("f16", 7, 1, 128, 16384), 64, 2),
    "as many parts as a head is wide": (one_query("f32", 2, 2, 64, 16384), 56, 4),
}


@pytest.mark.parametrize("name", CASES)
def test_programs_that_share_a_cache_find_what_one_would(name: str) -> None:
    """Lengths that leave programs without a row, at the edges of turns and of rounds of all programs, and the whole cache."""
    attention, parts, keys = CASES[name]
    artifact = attention.artifact()
    entry = artifact.manifest.entries["main"]
    (first, used), (second, _) = entry.launches
    assert first == f"{second}_parts" and "cluster" not in artifact.files[f"{first}.ptx"].decode()
    assert [entry.buffers[b].sizes[0] for b in used[3:]] == [parts] * 3
    turn = keys * 128 * 8 // attention.width  # so many keys of each group of threads, eight elements of a key a thread
    all_of_them = parts * turn
    for length in sorted({1, 2, turn - 1, turn, turn + 1, 2 * turn + 3, all_of_them, all_of_them + 1, 5000, 16384}):
        if length <= attention.capacity:
            attention.check(length - 1)


def test_one_kernel_is_left_where_the_pass_is_left_out_or_has_nothing_to_gain() -> None:
    shared, *_ = CASES["groups of four"]
    assert shared.launches == 2
    assert dataclasses.replace(shared, leave_out=(SHARED,)).launches == 1
    assert dataclasses.replace(shared, capacity=8192).launches == 1


def test_caches_that_are_read_side_by_side_share_both_launches() -> None:
    """Kernels with several results may be one launch as others may."""
    past, capacity, names = 700, 16384, ("a", "b")
    graph = Graph({"past": (0, capacity - 1)})
    with graph.entry("main"):
        here = graph.symbol("past")
        for n in names:
            q = graph.input(f"q{n}", (1, 4, 16), "f32")
            keys, values = (graph.input(f"{k}{n}", (2, capacity, 16), "f32", kind="state")[:, : here + 1] for k in "kv")
            graph.output(f"y{n}", nn.attention(q, keys, values, here))
    artifact = compile_module(graph.module, find_target("sm_90a"), {})
    assert len(artifact.manifest.entries["main"].launches) == 2
    given = {k + n: reference.rounded(RNG.standard_normal((1, 4, 16) if k == "q" else (2, capacity, 16)), "f32")
             for k in "qkv" for n in names}
    held = {name: reference.to_memory(a, "f32") for name, a in given.items()}
    states = {name: a for name, a in held.items() if name[0] != "q"}
    simulated = SimulatedGpu(artifact, {}, states, apart=True)
    found = simulated.run("main", {name: a for name, a in held.items() if name[0] == "q"}, {"past": past})
    for n in names:
        want, size = attended(given[f"q{n}"], given[f"k{n}"], given[f"v{n}"], past, capacity)
        assert (abs(found[f"y{n}"] - want) <= 2.0**-17 * size).all()


def test_a_model_with_a_long_cache_decodes_what_it_decodes_without_the_pass() -> None:
    config = ModelConfig(96, 64, 96, 2, 4, 2, 16, 1e-5, 1e4, 16384, True)
    logits = []
    for left in ((), (SHARED,)):
        artifact = compile_model(config, "sm_90a", "f32", 16384, leave_out=left, entries=("decode",))
        rng = np.random.default_rng(3)
        weights = {n: rng.standard_normal(w.sizes or w.shape).astype("f4") / 8 for n, w in artifact.manifest.weights.items()}
        simulated = SimulatedGpu(artifact, weights)
        logits.append(simulated.run("decode", {"tokens": np.array([5], "i4")}, {"past": 0})["logits"])
    np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-5)
