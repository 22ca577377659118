"""Choosing the next token from logits, on the host: the same choice as `frontend/sampling.py` makes on a device.

That module says what is computed, ties and rounding included. The generator is counter-based: the random numbers for a seed
and a place in the sequence are the same on every machine. What programs and this module agree on bit for bit are those
numbers' integers, the distances of the logits from the largest, and so what top-k keeps; exponentials, logarithms and sums
may differ in their last places, so that a draw or the last token of top-p that is decided there can differ.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

from tilec.errors import TilecError

LOG2_E = np.float32(1.4426950408889634)
MOST_RATE = np.float32(2.0**60)
SCALE = np.float32(2.0**-64)


@dataclass(frozen=True)
class SamplingParams:
    """How to generate.

    `temperature` 0 is greedy. `top_k` keeps the k likeliest tokens (0: all), then `min_p` those with at least that share of
    the likeliest one's probability, then `top_p` the smallest set with that share of what is left; tokens as likely as the
    last one kept are kept too. `stop` ends the text before any of these strings. `seed` None draws a fresh one.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rules = (
            (self.max_tokens >= 1, "max_tokens", "at least 1", self.max_tokens),
            (self.temperature >= 0, "temperature", "0 or more", self.temperature),
            (self.top_k >= 0, "top_k", "0 (off) or more", self.top_k),
            (0 < self.top_p <= 1, "top_p", "above 0 and at most 1", self.top_p),
            (0 <= self.min_p <= 1, "min_p", "between 0 and 1", self.min_p),
        )
        for holds, name, rule, got in rules:
            if not holds:
                raise TilecError(f"{name} must be {rule}, but is {got}")


class Sampler:
    """Draws the tokens of one sequence. `arguments` is what the entry point `sample` takes besides tokens, each (1)."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self.seed = params.seed if params.seed is not None else secrets.randbits(63)
        limits = np.finfo(np.float32)
        self.arguments: dict[str, np.ndarray] = {
            "temperature": np.array([min(params.temperature, float(limits.max))], np.float32),
            "top_k": np.array([min(params.top_k, np.iinfo(np.int32).max)], np.int32),
            "top_p": np.array([params.top_p], np.float32),
            "min_p": np.array([params.min_p], np.float32),
            "seed": np.array([self.seed % (1 << 64)], np.uint64).view(np.int64),
        }

    @property
    def greedy(self) -> bool:
        return self.params.temperature == 0

    def choose(self, logits: np.ndarray, position: int) -> int:
        """A token for f32 logits (vocabulary); `position` is its place in the sequence."""
        temperature = self.arguments["temperature"][0]
        if temperature == 0:
            return int(np.argmax(logits))
        distance = distances(logits)
        weight = weights(distance, temperature, self.arguments["min_p"][0])
        kept = distance <= reach(distance, weight, self.params.top_k, float(self.arguments["top_p"][0]))
        rates = arrival_rates(logits.size, self.seed, position)
        return int(np.argmax(np.where(kept, weight * rates, np.float32(-1))))


def distances(logits: np.ndarray) -> np.ndarray:
    """How far below the largest each logit is, times SCALE: f32 (vocabulary)."""
    return (logits.max() - logits) * SCALE


def weights(distance: np.ndarray, temperature: np.float32, min_p: np.float32) -> np.ndarray:
    """Probabilities over the largest one, f32 (vocabulary), zero where below `min_p`."""
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        rate = np.minimum(np.float32(1) / temperature * LOG2_E, MOST_RATE)
        weight = np.exp2(distance * (rate * (np.float32(-1) / SCALE)))
    return np.where(weight < min_p, np.float32(0), weight)


def reach(distance: np.ndarray, weight: np.ndarray, top_k: int, top_p: float) -> float:
    """The distance of the last token that is kept, times SCALE."""
    order = np.argsort(distance)
    if 0 < top_k < distance.size:
        order = order[:np.searchsorted(distance[order], distance[order[top_k - 1]], side="right")]
    if top_p < 1:
        total = np.cumsum(weight[order], dtype=np.float64)
        order = order[:int(np.searchsorted(total, top_p * total[-1])) + 1]
    return float(distance[order[-1]])


def random_words(count: int, seed: int, position: int) -> np.ndarray:
    """`count` numbers of SplitMix64 with state `seed`, from number `position` 2^32 on: u64 (count)."""
    number = np.arange(count, dtype=np.uint64) + np.uint64((position << 32) + 1)
    word = number * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed % (1 << 64))
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def arrival_rates(count: int, seed: int, position: int) -> np.ndarray:
    """One over exponential random numbers in units of log 2, f32 (count)."""
    bits = (random_words(count, seed, position) >> np.uint64(33)).astype(np.int32)
    unit, half = np.float32(2.0**-31), np.float32(2.0**-32)
    v = bits.astype(np.float32) * unit + half
    u = (np.int32((1 << 31) - 1) - bits).astype(np.float32) * unit + half
    series = v * (v * (v * np.float32(1 / 3) + np.float32(0.5)) + np.float32(1)) * LOG2_E
    return np.float32(1) / np.where(v < np.float32(2.0**-8), series, -np.log2(u))
