"""Choosing the next token from logits. The generator is counter-based: token n of a seed is the same on every machine."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

from tilec.errors import TilecError


@dataclass(frozen=True)
class SamplingParams:
    """How to generate.

    `temperature` 0 is greedy. `top_k` keeps the k likeliest tokens (0: all), `top_p` the smallest set with that total
    probability, `min_p` those with at least that share of the likeliest one's. `stop` ends the text before any of these
    strings. `seed` None draws a fresh one.
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
    """Draws tokens for one sequence."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self.seed = params.seed if params.seed is not None else secrets.randbits(63)
        self._drawn = 0

    @property
    def greedy(self) -> bool:
        return self.params.temperature == 0

    def choose(self, logits: np.ndarray) -> int:
        """A token for f32 logits (vocabulary)."""
        if self.greedy:
            return int(np.argmax(logits))
        uniform = np.random.Generator(np.random.Philox(key=self.seed % (1 << 64), counter=self._drawn)).random()
        self._drawn += 1
        p = self.params
        order = np.arange(logits.size)
        if 0 < p.top_k < logits.size:
            order = np.argpartition(logits, -p.top_k)[-p.top_k:]
        order = order[np.argsort(-logits[order], kind="stable")]
        scaled = logits[order].astype(np.float64) / p.temperature
        probabilities = np.exp(scaled - scaled[0])
        if p.min_p > 0:
            keep = int(np.count_nonzero(probabilities >= p.min_p))
            order, probabilities = order[:keep], probabilities[:keep]
        probabilities /= probabilities.sum()
        cumulative = np.cumsum(probabilities)
        if p.top_p < 1:
            keep = int(np.searchsorted(cumulative, p.top_p)) + 1
            cumulative = cumulative[:keep]
        return int(order[min(int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right")), cumulative.size - 1)])
