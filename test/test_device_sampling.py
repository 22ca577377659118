"""Sampling as primitive ops: programs keep exactly the set and draw the tokens that `runtime/sampling.py` does.

What both agree on bit for bit is compared so; where exponentials and sums decide, a hair more or less is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tilec.frontend import sampling
from tilec.frontend.tensor import Graph
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime import sampling as host
from tilec.runtime.artifact import Artifact
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.sampling import Sampler, SamplingParams

from .gpu_simulator import SimulatedGpu

LAUNCHES = 16


def compiled(size: int, target: str) -> Artifact:
    """A program that draws a token for logits, and shows what it drew by."""
    graph = Graph({"position": (0, 1 << 20)})
    with graph.entry("main"):
        logits, parameters = graph.input("logits", (size,), "f32"), sampling.parameters(graph)
        position = graph.index(graph.symbol("position"), "i64")
        graph.output("token", sampling.sample(logits, parameters, position).reshape(1))
    with graph.entry("parts"):
        logits, parameters = graph.input("logits", (size,), "f32"), sampling.parameters(graph)
        position = graph.index(graph.symbol("position"), "i64")
        distance = sampling.distances(logits)
        weight = sampling.weights(distance, parameters)
        graph.output("rates", sampling.arrival_rates(size, parameters.seed, position))
        graph.output("distance", distance)
        graph.output("weight", weight)
        graph.output("reach", sampling.reach(distance, weight, parameters).reshape(1))
    return compile_module(graph.module, find_target(target), {})


@cache
def cpu(size: int) -> CpuProgram:
    return CpuProgram(compiled(size, "cpu"), [], 1)


def run(entry: str, logits: np.ndarray, params: SamplingParams, position: int = 0) -> dict[str, np.ndarray]:
    """Copies of the results on the CPU."""
    results = cpu(logits.size).run(entry, {"logits": logits, **Sampler(params).arguments}, {"position": position})
    return {name: np.array(value) for name, value in results.items()}


def tokens(logits: np.ndarray, params: SamplingParams, count: int) -> list[int]:
    return [int(run("main", logits, params, position)["token"][0]) for position in range(count)]


def kept(logits: np.ndarray, params: SamplingParams) -> set[int]:
    parts = run("parts", logits, params)
    return set(np.flatnonzero((parts["distance"] <= parts["reach"]) & (parts["weight"] > 0)).tolist())


def kept_by_host(logits: np.ndarray, params: SamplingParams) -> set[int]:
    given_ = Sampler(params).arguments
    distance = host.distances(logits)
    weight = host.weights(distance, given_["temperature"][0], given_["min_p"][0])
    reach = host.reach(distance, weight, params.top_k, float(given_["top_p"][0]))
    return set(np.flatnonzero((distance <= reach) & (weight > 0)).tolist())


def normal(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, size).astype(np.float32)


# What is kept ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 211, 1000])
def test_top_k_keeps_what_the_host_keeps_for_every_k(size: int) -> None:
    logits = normal(size)
    for k in {0, 1, 2, 3, size // 2, max(size - 1, 0), size, size + 1, 10**12}:
        params = SamplingParams(temperature=1.3, top_k=k)
        assert kept(logits, params) == kept_by_host(logits, params)
        assert len(kept(logits, params)) == (min(k, size) or size)


def test_all_that_tie_with_the_last_token_are_kept() -> None:
    logits = np.array([1, 3, 2, 3, 2, 2, 0], np.float32)
    for params, expected in ((SamplingParams(temperature=1.0, top_k=1), {1, 3}),
                             (SamplingParams(temperature=1.0, top_k=3), {1, 2, 3, 4, 5}),
                             (SamplingParams(temperature=1.0, top_k=6), {0, 1, 2, 3, 4, 5}),
                             (SamplingParams(temperature=1.0, top_p=0.01), {1, 3}),
                             (SamplingParams(temperature=1.0, top_p=0.7), {1, 2, 3, 4, 5}),
                             (SamplingParams(temperature=1.0, top_k=1, top_p=0.5), {1, 3})):
        assert kept(logits, params) == kept_by_host(logits, params) == expected


def test_neighbouring_floats_are_told_apart() -> None:
    """Above and below zero, and as far from the largest as floats allow."""
    top = np.float32(1.0)
    for base in (1.0, 0.999, 0.5, 1e-3, 0.0, -1e-3, -0.7, -30.0):
        distance = top - np.float32(base)
        others = [np.nextafter(distance, np.float32(n), dtype=np.float32) for n in (0, 100)]
        logits = np.array([top, *(top - d for d in (distance, *others) if d > 0), -50, -60], np.float32)
        for k in range(1, logits.size + 1):
            params = SamplingParams(temperature=1.0, top_k=k)
            assert kept(logits, params) == kept_by_host(logits, params), (base, k)


def test_a_tiny_top_p_and_a_min_p_of_one_are_greedy() -> None:
    logits = normal(211)
    for params in (SamplingParams(temperature=3.0, top_p=1e-9), SamplingParams(temperature=3.0, top_p=1e-45),
                   SamplingParams(temperature=3.0, min_p=1.0), SamplingParams(temperature=3.0, top_k=1)):
        assert kept(logits, params) == {int(logits.argmax())}
        assert set(tokens(logits, params, 20)) == {int(logits.argmax())}


def test_top_p_is_a_share_of_what_top_k_and_min_p_leave() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.1, 0.1, 0.06, 0.04], np.float32))
    assert kept(logits, SamplingParams(temperature=1.0, top_p=0.75)) == {0, 1, 2, 3}
    assert kept(logits, SamplingParams(temperature=1.0, top_p=0.75, top_k=2)) == {0, 1}
    assert kept(logits, SamplingParams(temperature=1.0, top_p=0.55, top_k=2)) == {0}
    assert kept(logits, SamplingParams(temperature=1.0, top_p=0.9, min_p=0.2)) == {0, 1, 2, 3}
    assert kept(logits, SamplingParams(temperature=1.0, top_p=0.75, min_p=0.5)) == {0, 1}


def test_a_top_p_just_below_one_never_reaches_beyond_top_k() -> None:
    logits = normal(1000)
    for k in (1, 5, 300):
        params = SamplingParams(temperature=5.0, top_k=k, top_p=float(np.nextafter(np.float32(1), np.float32(0))))
        assert kept(logits, params) <= kept_by_host(logits, SamplingParams(temperature=5.0, top_k=k))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.floats(-30, 30, width=32), st.integers(-3, 3).map(float), st.just(-np.inf)), min_size=7, max_size=7),
    st.floats(0.05, 5), st.integers(0, 9), st.one_of(st.just(1.0), st.floats(0.01, 1)),
    st.one_of(st.just(0.0), st.floats(0, 1)), st.integers(0, 2**64), st.integers(0, 1 << 20),
)
@example([0.0, -np.inf, 1.4e-44, -np.inf, 0.0, 1e-24, -1e-24], 1.0, 1, 1.0, 0.0, 0, 0)  # as near as distances tell apart
def test_any_logits_are_treated_as_on_the_host(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int, position: int
) -> None:
    logits = np.array(values, np.float32)
    assume(logits.max() > -np.inf)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    more, less = (replace(params, top_p=max(min(1.0, top_p + s * 1e-5), 1e-6) if top_p < 1 else 1.0,
                          min_p=max(min_p * (1 - s * 1e-5), 0.0)) if min_p <= 0.9999 else params for s in (1, -1))
    ours = kept(logits, params)
    assert kept_by_host(logits, less) <= ours <= kept_by_host(logits, more)
    token = int(run("main", logits, params, position)["token"][0])
    assert token in ours
    if kept_by_host(logits, less) == kept_by_host(logits, more):
        assert token == Sampler(params).choose(logits, position)


# What is drawn --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(temperature=0.5, seed=2),
        SamplingParams(temperature=2.5, seed=3),
        SamplingParams(temperature=1.0, seed=4, top_k=7),
        SamplingParams(temperature=1.5, seed=5, top_p=0.8),
        SamplingParams(temperature=1.5, seed=6, min_p=0.05),
        SamplingParams(temperature=1.2, seed=7, top_k=20, top_p=0.9, min_p=0.02),
    ],
    ids=["all", "cold", "hot", "top-k", "top-p", "min-p", "together"],
)
def test_tokens_come_as_often_as_they_should(params: SamplingParams) -> None:
    """Chi-square over the tokens that are expected at least ten times, the rest together, and nothing else ever."""
    logits, count = normal(48), 5000
    keep = np.isin(np.arange(48), list(kept_by_host(logits, params)))
    weight = np.exp((logits - logits.max()).astype(np.float64) / params.temperature) * keep
    expected = count * weight / weight.sum()
    counts = np.bincount(tokens(logits, params, count), minlength=48)
    assert not counts[~keep].any()
    often = expected >= 10
    rest = (counts[~often].sum() - expected[~often].sum()) ** 2 / max(expected[~often].sum(), 1)
    freedom = np.count_nonzero(often)
    distance = ((counts - expected)[often] ** 2 / expected[often]).sum() + rest
    assert distance < freedom + 4 * (2 * freedom) ** 0.5 + 4


def test_the_random_numbers_are_the_hosts() -> None:
    for seed, position in ((0, 0), (1, 1), (-1, 5), (2**63 + 11, 77), (2**64 - 1, 1 << 20)):
        rates = run("parts", normal(1000), SamplingParams(temperature=1.0, seed=seed), position)["rates"]
        np.testing.assert_allclose(rates, host.arrival_rates(1000, seed, position), rtol=1e-6)


def test_the_random_numbers_reach_far() -> None:
    """The smallest and the largest words: rates stay finite and positive."""
    for seed in range(40):
        rates = host.arrival_rates(1 << 16, seed, 0)
        assert np.isfinite(rates).all() and (rates >= 2.0**-5).all()
    assert rates.max() > 2.0**12


def test_many_tokens_are_those_of_the_host() -> None:
    logits = normal(1000)
    for params in (SamplingParams(temperature=1.0, seed=9), SamplingParams(temperature=0.8, seed=9, top_k=50, top_p=0.9)):
        sampler = Sampler(params)
        assert tokens(logits, params, 200) == [sampler.choose(logits, position) for position in range(200)]


def test_temperature_zero_takes_the_first_of_the_largest_logits() -> None:
    logits = np.array([1, 5, 2, 5, -np.inf, np.nextafter(np.float32(5), np.float32(0)), 0], np.float32)
    for params in (SamplingParams(), SamplingParams(top_k=4, top_p=0.9, seed=3), SamplingParams(temperature=1e-46)):
        assert set(tokens(logits, params, 8)) == {1}
    assert set(tokens(np.zeros(7, np.float32), SamplingParams(), 8)) == {0}


def test_extreme_temperatures_overflow_nothing() -> None:
    logits = normal(211) * 1e3
    assert set(tokens(logits, SamplingParams(temperature=1e-30, seed=1), 20)) == {int(logits.argmax())}
    assert len(set(tokens(logits, SamplingParams(temperature=np.inf, seed=1), 300))) > 100


def test_tokens_of_weight_zero_are_never_drawn() -> None:
    logits = np.full(211, -np.inf, np.float32)
    logits[[2, 5]], logits[7] = 0, -1e4
    assert set(tokens(logits, SamplingParams(temperature=1.0, seed=1), 100)) == {2, 5}


def test_undefined_logits_give_a_token_of_the_vocabulary() -> None:
    for value in (np.nan, np.inf, -np.inf):
        for count in (1, 211):
            logits = np.zeros(211, np.float32)
            logits[:count] = value
            for params in (SamplingParams(temperature=1.0, top_k=3, top_p=0.5), SamplingParams()):
                assert all(0 <= token < 211 for token in tokens(logits, params, 4))


def test_a_seed_gives_the_same_tokens_again_and_another_seed_others() -> None:
    logits = normal(211)
    first = tokens(logits, SamplingParams(temperature=2.0, seed=7), 40)
    assert tokens(logits, SamplingParams(temperature=2.0, seed=7), 40) == first
    assert tokens(logits, SamplingParams(temperature=2.0, seed=8), 40) != first


# How it is compiled ---------------------------------------------------------------------------------------------------


def test_a_search_is_one_kernel_launched_again() -> None:
    entry = cpu(1000).manifest.entries["main"]
    names = [name for name, _ in entry.launches]
    assert len(names) == LAUNCHES and len(set(names)) == 8


@pytest.fixture(params=[("sm_80", 211), ("sm_90a", 33000)], scope="module", ids=["one block", "a cluster"])
def simulated(request: pytest.FixtureRequest) -> Iterator[tuple[SimulatedGpu, int]]:
    """Two ways to walk a row, and the size of the vocabulary."""
    target, size = request.param
    yield SimulatedGpu(compiled(size, target), {}), size


@pytest.mark.parametrize("params", [
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=1.5, seed=-2, top_k=20, top_p=0.9, min_p=0.01),
    SamplingParams(),
], ids=["all", "together", "greedy"])
def test_ptx_draws_what_the_host_draws(simulated: tuple[SimulatedGpu, int], params: SamplingParams) -> None:
    gpu, size = simulated
    logits, sampler = normal(size), Sampler(params)
    arguments = {"logits": logits, **sampler.arguments}
    assert gpu.run("main", arguments, {"position": 1000})["token"][0] == sampler.choose(logits, 1000)
    parts = gpu.run("parts", arguments, {"position": 1000})
    np.testing.assert_allclose(parts["rates"], host.arrival_rates(size, sampler.seed, 1000), rtol=1e-6)
    if not sampler.greedy:
        inside = (parts["distance"] <= parts["reach"]) & (parts["weight"] > 0)
        assert set(np.flatnonzero(inside).tolist()) == kept_by_host(logits, params)


@pytest.mark.parametrize(("target", "size"), [("cpu", 1000), ("sm_90a", 211), ("sm_80", 211)])
def test_sequences_with_parameters_of_their_own_draw_what_each_draws_alone(target: str, size: int) -> None:
    graph = Graph({"batch": (1, 8)})
    with graph.entry("main"):
        batch = graph.symbol("batch")
        logits, position = graph.input("logits", (batch, size), "f32"), graph.input("position", (batch,), "i64")
        graph.output("token", sampling.sample(logits, sampling.parameters(graph, batch), position))
    artifact = compile_module(graph.module, find_target(target), {})
    samplers = [Sampler(p) for p in (
        SamplingParams(temperature=1.0, seed=1), SamplingParams(), SamplingParams(temperature=3.0, seed=-2, top_k=20),
        SamplingParams(temperature=1.5, seed=5, top_p=0.7), SamplingParams(temperature=0.5, seed=6, min_p=0.1, top_k=7))]
    values, places = np.stack([normal(size) + i for i in range(len(samplers))]), np.arange(1000, 1000 + len(samplers))
    arguments = {n: np.concatenate([s.arguments[n] for s in samplers]) for n in samplers[0].arguments}
    program = CpuProgram(artifact, [], 1) if target == "cpu" else SimulatedGpu(artifact, {})
    got = program.run("main", {"logits": values, "position": places, **arguments}, {"batch": len(samplers)})["token"]
    assert got.tolist() == [s.choose(row, int(place)) for s, row, place in zip(samplers, values, places, strict=True)]
