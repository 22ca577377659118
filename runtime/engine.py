"""Tokens in, tokens out: prefill in pieces of any length, decode step by step, on whatever a program runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from tilec.errors import ContextLengthError, TilecError
from tilec.runtime.artifact import Manifest
from tilec.runtime.sampling import Sampler, SamplingParams


class Program(Protocol):
    """What `CpuProgram` and `CudaProgram` offer."""

    manifest: Manifest

    def run(self, entry: str, arguments: Mapping[str, np.ndarray], symbols: Mapping[str, int],
            fetch: Sequence[str] | None = None) -> dict[str, np.ndarray]: ...

    def close(self) -> None: ...


class Engine:
    """One sequence on a program, or several, of which these methods work on the one in `slot`; see `batch.py` for all at once.

    Not for use by several threads at once.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        symbols = program.manifest.symbols
        self.chunk = symbols["seq"][1]
        self.prefills = sorted((symbols["seq" + e.removeprefix("prefill")][1], e) for e in program.manifest.entries
                               if e.startswith("prefill"))
        self.context = symbols["past"][1] + 1
        self.vocabulary = int(program.manifest.model["vocab_size"])
        self.slots = symbols["batch"][1] if "decode_batch" in program.manifest.entries else 1
        self.slot = 0
        self.lengths = [0] * self.slots

    @property
    def length(self) -> int:
        """Tokens whose keys and values are in the cache."""
        return self.lengths[self.slot]

    @length.setter
    def length(self, tokens: int) -> None:
        self.lengths[self.slot] = tokens

    def reset(self) -> None:
        """Forgets the sequence."""
        self.length = 0

    def _run(self, entry: str, arguments: Mapping[str, np.ndarray], symbols: Mapping[str, int],
             fetch: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Runs an entry on the sequence."""
        slot = {"slot": self.slot} if self.slots > 1 else {}
        return self.program.run(entry, arguments, {**symbols, "past": self.length, **slot}, fetch)

    def _check(self, tokens: Sequence[int]) -> np.ndarray:
        array = np.asarray(tokens, np.int64)
        if array.ndim != 1 or array.size == 0:
            raise TilecError("a prompt needs at least one token")
        if array.min() < 0 or array.max() >= self.vocabulary:
            raise TilecError(f"token {int(array[(array < 0) | (array >= self.vocabulary)][0])} is outside the vocabulary "
                             f"of {self.vocabulary}")
        if self.length + array.size > self.context:
            raise ContextLengthError(f"{self.length + array.size} tokens do not fit the context of {self.context}; "
                                     "shorten the prompt or use a larger --context")
        return array.astype(np.int32)

    def extend(self, tokens: Sequence[int], fetch: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Appends tokens; `logits` f32 (vocabulary) and `token` i32 (1), the greedy choice, follow the last of them."""
        array = self._check(tokens)
        results: dict[str, np.ndarray] = {}
        while array.size:
            size, entry = next((p for p in self.prefills if p[0] >= array.size), self.prefills[-1])
            piece = array[:size]
            symbols = {"seq" + entry.removeprefix("prefill"): piece.size}
            if piece.size == 1:
                entry, symbols = "decode", {}
            results = self._run(entry, {"tokens": piece}, symbols, fetch)
            self.length += piece.size
            array = array[piece.size:]
        return results

    def score(self, tokens: Sequence[int]) -> np.ndarray:
        """Appends tokens; returns the logits after each of them, f32 (tokens, vocabulary)."""
        array = self._check(tokens)
        rows = []
        for start in range(0, array.size, self.chunk):
            piece = array[start:start + self.chunk]
            result = self._run("score", {"tokens": piece}, {"seq": piece.size})
            rows.append(np.array(result["logits"]))
            self.length += piece.size
        return np.concatenate(rows)

    def generate(self, tokens: Sequence[int], params: SamplingParams, stop_tokens: Sequence[int] = ()) -> Iterator[int]:
        """Yields tokens after a prompt until one of `stop_tokens`, `max_tokens` or the end of the context.

        The first token after a prompt is drawn here from its logits, and so are all where the program has no entry point
        `sample`; otherwise the device draws. Both draw the same tokens. Closing the iterator aborts.
        """
        sampler = Sampler(params)
        on_device = sampler.greedy or "sample" in self.program.manifest.entries
        results = self.extend(tokens, ("token", "position") if sampler.greedy else ("logits", "position"))
        for produced in range(1, params.max_tokens + 1):
            drawn_here = not sampler.greedy and "logits" in results
            token = sampler.choose(results["logits"], self.length) if drawn_here else int(results["token"][0])
            if token in stop_tokens:
                return
            yield token
            if produced == params.max_tokens or self.length >= self.context:
                return
            results = self._step(token, sampler) if on_device else self.extend([token], ("logits", "position"))

    def _step(self, token: int, sampler: Sampler) -> dict[str, np.ndarray]:
        """Appends a token that a program gave; `token` i32 (1) is the next one."""
        entry, more = ("decode", {}) if sampler.greedy else ("sample", sampler.arguments)
        arguments = {"tokens": np.array([token], np.int32), **more}
        results = self._run(entry, arguments, {}, ("token", "position"))
        self.length += 1
        return results
