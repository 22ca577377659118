"""Sampling against NumPy: what may be drawn is exactly the set that the options describe, as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.errors import TilecError
from tilec.runtime.sampling import Sampler, SamplingParams

LOGITS = np.random.default_rng(3).normal(0, 2, 50).astype(np.float32)
DRAWS = 4000


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    return weights / weights.sum()


def kept(logits: np.ndarray, params: SamplingParams) -> set[int]:
    """The definition, a token at a time: first k, then those near the likeliest, then up to the total probability."""
    order = sorted(range(logits.size), key=lambda i: -logits[i])
    if params.top_k:
        order = order[:params.top_k]
    weights = {i: math.exp((float(logits[i]) - float(logits[order[0]])) / params.temperature) for i in order}
    order = [i for i in order if weights[i] >= params.min_p]
    total, reached, result = sum(weights[i] for i in order), 0.0, set()
    for i in order:
        result.add(i)
        reached += weights[i]
        if reached >= params.top_p * total:
            break
    return result


def draw(params: SamplingParams, logits: np.ndarray = LOGITS, count: int = DRAWS) -> np.ndarray:
    sampler = Sampler(params)
    return np.array([sampler.choose(logits) for _ in range(count)])


def assert_frequencies(tokens: np.ndarray, probabilities: np.ndarray) -> None:
    """Every token about as often as its probability says: five standard deviations, and never where it is zero."""
    counts = np.bincount(tokens, minlength=probabilities.size)
    deviation = np.sqrt(tokens.size * probabilities * (1 - probabilities))
    assert (np.abs(counts - tokens.size * probabilities) <= 5 * deviation + 1e-9).all()


def test_greedy_takes_the_first_of_the_largest_logits() -> None:
    assert Sampler(SamplingParams(temperature=0)).choose(np.array([1, 5, 2, 5], np.float32)) == 1
    assert Sampler(SamplingParams(temperature=0, seed=9, top_k=3, top_p=0.5)).choose(LOGITS) == LOGITS.argmax()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_tokens_come_as_often_as_the_temperature_says(temperature: float) -> None:
    assert_frequencies(draw(SamplingParams(temperature=temperature, seed=1)), softmax(LOGITS, temperature))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, seed=2, top_k=7),
        SamplingParams(temperature=1.5, seed=2, top_p=0.8),
        SamplingParams(temperature=1.5, seed=2, min_p=0.05),
        SamplingParams(temperature=1.2, seed=2, top_k=20, top_p=0.9, min_p=0.02),
    ],
    ids=["top-k", "top-p", "min-p", "all"],
)
def test_what_is_kept_is_drawn_by_its_share_and_nothing_else_is(params: SamplingParams) -> None:
    keep = kept(LOGITS, params)
    assert 1 < len(keep) < LOGITS.size
    probabilities = softmax(LOGITS, params.temperature) * np.isin(np.arange(LOGITS.size), list(keep))
    assert_frequencies(draw(params), probabilities / probabilities.sum())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=30, unique=True),
    st.floats(0.05, 5), st.integers(0, 40), st.floats(0.01, 1), st.floats(0, 1), st.integers(0, 2**63),
)
def test_every_draw_is_among_what_the_options_keep(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    logits = np.array(values, np.float32)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    # A hair more is allowed: which token the total just reaches depends on rounding.
    loose = SamplingParams(temperature=temperature, top_k=top_k, top_p=min(1, top_p * (1 + 1e-9)),
                           min_p=min_p * (1 - 1e-9))
    assert set(draw(params, logits, 20).tolist()) <= kept(logits, loose)


def test_top_k_of_one_and_a_tiny_top_p_are_greedy() -> None:
    for params in (SamplingParams(temperature=3.0, top_k=1), SamplingParams(temperature=3.0, top_p=1e-9),
                   SamplingParams(temperature=3.0, min_p=1.0)):
        assert set(draw(params, count=50).tolist()) == {int(LOGITS.argmax())}


def test_a_very_low_temperature_is_greedy_and_overflows_nothing() -> None:
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert set(draw(SamplingParams(temperature=1e-4, seed=1), LOGITS * 1e3, 50).tolist()) == {int(LOGITS.argmax())}


def test_top_k_above_the_vocabulary_keeps_all() -> None:
    a, b = (draw(SamplingParams(temperature=1.0, seed=5, top_k=k), count=100) for k in (0, 1000))
    assert np.array_equal(a, b)


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = np.full(8, -np.inf, np.float32)
    logits[[2, 5]] = 0
    assert set(draw(SamplingParams(temperature=1.0, seed=1), logits, 200).tolist()) == {2, 5}


def test_a_seed_gives_the_same_tokens_again_and_another_seed_others() -> None:
    again = [draw(SamplingParams(temperature=1.0, seed=7), count=64).tolist() for _ in range(2)]
    assert again[0] == again[1]
    assert draw(SamplingParams(temperature=1.0, seed=8), count=64).tolist() != again[0]


def test_a_seed_means_the_same_tokens_on_every_machine() -> None:
    """The generator is Philox (Salmon et al. 2011), counted by token: these are its values for seed 1."""
    assert draw(SamplingParams(temperature=1.0, seed=1), np.zeros(1000, np.float32), 6).tolist() == [
        303, 900, 408, 736, 309, 971]


def test_no_seed_draws_afresh_each_time() -> None:
    first, second = (draw(SamplingParams(temperature=1.0), np.zeros(1000, np.float32), 20).tolist() for _ in range(2))
    assert first != second


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("max_tokens", 0, "max_tokens must be at least 1, but is 0"),
        ("max_tokens", -3, "max_tokens must be at least 1"),
        ("temperature", -0.1, "temperature must be 0 or more, but is -0.1"),
        ("temperature", math.nan, "temperature must be 0 or more, but is nan"),
        ("top_k", -1, "top_k must be 0"),
        ("top_p", 0.0, "top_p must be above 0 and at most 1, but is 0.0"),
        ("top_p", 1.1, "top_p must be above 0"),
        ("top_p", math.nan, "top_p must be above 0"),
        ("min_p", -0.1, "min_p must be between 0 and 1"),
        ("min_p", 1.5, "min_p must be between 0 and 1, but is 1.5"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused_by_name(name: str, value: float, rule: str) -> None:
    with pytest.raises(TilecError) as caught:
        SamplingParams(**{name: value})
    assert rule in str(caught.value)
