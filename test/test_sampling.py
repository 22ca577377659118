"""Sampling on the host: what may be drawn is exactly the set that the options describe, as often as they say.

`test_device_sampling.py` compares what programs draw with it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.errors import TilecError
from tilec.runtime.sampling import Sampler, SamplingParams, arrival_rates, random_words

LOGITS = np.random.default_rng(3).normal(0, 2, 50).astype(np.float32)
DRAWS = 4000


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    return weights / weights.sum()


def kept(logits: np.ndarray, params: SamplingParams) -> set[int]:
    """The definition, a tie at a time: first k, then those near the likeliest, then up to the share of what is left."""
    distance = np.round((logits.max() - logits).astype(np.float64) * 2.0**85) / 2.0**85
    ties = [np.flatnonzero(distance == d).tolist() for d in np.unique(distance)]
    weight = {i: math.exp(-float(distance[i]) / params.temperature) for i in range(logits.size)}
    by_count: list[list[int]] = []
    for tie in ties:
        if params.top_k and sum(map(len, by_count)) >= params.top_k:
            break
        by_count.append(tie)
    near = [tie for tie in by_count if weight[tie[0]] >= params.min_p]
    total, reached, result = sum(weight[i] for tie in near for i in tie), 0.0, set()
    for tie in near:
        result |= set(tie)
        reached += sum(weight[i] for i in tie)
        if params.top_p < 1 and reached >= params.top_p * total:
            break
    return result


def draw(params: SamplingParams, logits: np.ndarray = LOGITS, count: int = DRAWS) -> np.ndarray:
    sampler = Sampler(params)
    return np.array([sampler.choose(logits, position) for position in range(count)])


def assert_frequencies(tokens: np.ndarray, probabilities: np.ndarray) -> None:
    """Every token about as often as its probability says: five standard deviations, and never where it is zero."""
    counts = np.bincount(tokens, minlength=probabilities.size)
    deviation = np.sqrt(tokens.size * probabilities * (1 - probabilities))
    assert (np.abs(counts - tokens.size * probabilities) <= 5 * deviation + 1e-9).all()


def test_greedy_takes_the_first_of_the_largest_logits() -> None:
    assert Sampler(SamplingParams(temperature=0)).choose(np.array([1, 5, 2, 5], np.float32), 3) == 1
    assert Sampler(SamplingParams(temperature=0, seed=9, top_k=3, top_p=0.5)).choose(LOGITS, 3) == LOGITS.argmax()


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
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=30),
    st.floats(0.05, 5), st.integers(0, 40), st.floats(0.01, 1), st.floats(0, 1), st.integers(0, 2**63),
)
def test_every_draw_is_among_what_the_options_keep(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    logits = np.array(values, np.float32)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    # A hair more is allowed: which token the total just reaches depends on rounding.
    loose = SamplingParams(temperature=temperature, top_k=top_k, top_p=min(1, top_p * (1 + 1e-5)),
                           min_p=min_p * (1 - 1e-5))
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


def test_ties_with_the_last_token_kept_are_kept_and_drawn_alike() -> None:
    logits = np.array([1, 3, 2, 3, 2, 2, 0], np.float32)
    for params, tied in ((SamplingParams(temperature=1.0, seed=1, top_k=1), [1, 3]),
                         (SamplingParams(temperature=1.0, seed=1, top_p=0.01), [1, 3]),
                         (SamplingParams(temperature=1.0, seed=1, top_k=3), [1, 2, 3, 4, 5])):
        assert kept(logits, params) == set(tied)
        counts = np.bincount(draw(params, logits, 2000), minlength=7)
        assert set(np.flatnonzero(counts).tolist()) == set(tied) and abs(counts[1] - counts[3]) < 5 * counts[1] ** 0.5


# The random numbers ---------------------------------------------------------------------------------------------------


def test_the_generator_is_split_mix_64() -> None:
    """The numbers that Vigna's splitmix64.c gives for this state."""
    assert random_words(5, 1234567, 0).tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]


def test_a_place_in_the_sequence_is_2_to_the_32_numbers_on() -> None:
    """Adding the increment 2^32 times is adding 2^32 of it."""
    step = (0x9E3779B97F4A7C15 << 32) % (1 << 64)
    assert np.array_equal(random_words(100, 5, 3), random_words(100, (5 + 3 * step) % (1 << 64), 0))
    assert np.array_equal(random_words(100, -1, 0), random_words(100, (1 << 64) - 1, 0))


def uniforms(seed: int, position: int, count: int) -> np.ndarray:
    """The numbers in (0, 1) of which the rates are made."""
    return np.exp2(-1.0 / arrival_rates(count, seed, position).astype(np.float64))


def test_numbers_are_uniform_also_far_out() -> None:
    """Chi-square over 4096 equal bins, and how many lie in ever smaller ones at both ends."""
    u = np.concatenate([uniforms(1, position, 1 << 17) for position in range(16)])
    bins = np.bincount((u * 4096).astype(int), minlength=4096)
    mean = u.size / 4096
    assert abs(((bins - mean) ** 2 / mean).sum() - 4095) < 5 * (2 * 4095) ** 0.5
    for bits in range(1, 19):
        expected = u.size * 2.0**-bits
        for count in (np.count_nonzero(u < 2.0**-bits), np.count_nonzero(u > 1 - 2.0**-bits)):
            assert abs(count - expected) <= 5 * expected**0.5, bits


@pytest.mark.parametrize("neighbour", ["index", "position", "seed", "far seed"])
def test_neighbouring_numbers_are_independent(neighbour: str) -> None:
    """Chi-square over 64 by 64 bins of pairs: what differs in the least counts as much as what differs in everything."""
    pairs = []
    for n in range(8):
        a = uniforms(n, 7, (1 << 16) + 1)
        b = {"index": a[1:], "position": uniforms(n, 8, 1 << 16), "seed": uniforms(n + 1, 7, 1 << 16),
             "far seed": uniforms(n + (1 << 40), 7, 1 << 16)}[neighbour]
        pairs.append((a[:-1] * 64).astype(int) * 64 + (b[:1 << 16] * 64).astype(int))
    counts = np.bincount(np.concatenate(pairs), minlength=4096)
    mean = counts.sum() / 4096
    assert abs(((counts - mean) ** 2 / mean).sum() - 4095) < 5 * (2 * 4095) ** 0.5


def test_every_input_bit_turns_every_output_bit_half_of_the_time() -> None:
    words = random_words(1 << 14, 3, 5)
    for other in [random_words(1 << 14, 3 ^ (1 << b), 5) for b in range(0, 64, 7)] + [random_words(1 << 14, 3, 5 ^ (1 << b))
                                                                                     for b in range(0, 20, 3)]:
        turned = np.array([np.count_nonzero((words ^ other) >> np.uint64(b) & np.uint64(1)) for b in range(64)])
        assert (abs(turned - words.size / 2) < 6 * words.size**0.5 / 2).all()


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
