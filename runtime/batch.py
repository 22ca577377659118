"""Several sequences in one step: each has a slot of the cache, and one that ends makes room for the next that waits.

A step takes the next token of every sequence that runs, so that the weights are read once for all of them. What is left of
a sequence that has ended writes to a place that the next one in its slot writes again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilec.runtime.engine import Engine
from tilec.runtime.sampling import Sampler, SamplingParams

GREEDY = Sampler(SamplingParams())  # for slots that are free


@dataclass
class _Running:
    """One sequence in its slot: which prompt it continues, how, and its last token, which is not yet in the cache."""

    prompt: int
    sampler: Sampler
    token: int
    produced: int = 1


def generate_together(engine: Engine, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams],
                      stop_tokens: Sequence[int] = (),
                      stopped: Callable[[int], bool] = lambda number: False) -> Iterator[tuple[int, int]]:
    """Yields (number of the prompt, token) in the order in which they come, for each prompt as `Engine.generate` does.

    `params` has an entry for each prompt. After each of its tokens a prompt may be given up by `stopped`. Closing the iterator
    aborts. All slots of the engine are used and left empty.
    """
    waiting, running = deque(range(len(prompts))), dict[int, _Running]()
    try:
        while waiting or running:
            while waiting and len(running) < engine.slots:
                number = waiting.popleft()
                engine.slot = next(s for s in range(engine.slots) if s not in running)
                engine.reset()
                sampler = Sampler(params[number])
                results = engine.extend(prompts[number], ("token",) if sampler.greedy else ("logits",))
                token = int(results["token"][0]) if sampler.greedy else sampler.choose(results["logits"], engine.length)
                if token in stop_tokens:
                    continue
                yield number, token
                if params[number].max_tokens > 1 and engine.length < engine.context and not stopped(number):
                    running[engine.slot] = _Running(number, sampler, token)
            if running:
                yield from _step(engine, running, stop_tokens)
                for slot in [s for s, sequence in running.items() if stopped(sequence.prompt)]:
                    del running[slot]
    finally:
        engine.slot, engine.lengths = 0, [0] * engine.slots


def _step(engine: Engine, running: dict[int, _Running], stop_tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
    """One token more for each sequence; those that have ended leave `running`."""
    rows = max(running) + 1
    tokens, positions = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    for slot, sequence in running.items():
        tokens[slot], positions[slot] = sequence.token, engine.lengths[slot]
    entry, more = "decode_batch", dict[str, np.ndarray]()
    if not all(s.sampler.greedy for s in running.values()):  # argmax is the draw of temperature 0
        samplers = [running[slot].sampler if slot in running else GREEDY for slot in range(rows)]
        entry, more = "sample_batch", {n: np.concatenate([s.arguments[n] for s in samplers]) for n in GREEDY.arguments}
    results = engine.program.run(entry, {"tokens": tokens, "positions": positions, **more},
                                 {"batch": rows, "past": int(positions.max())}, ("token", "positions", "position"))
    for slot in sorted(running):
        sequence = running[slot]
        engine.lengths[slot] += 1
        sequence.token = int(results["token"][slot])
        sequence.produced += 1
        ended = sequence.token in stop_tokens
        if not ended:
            yield sequence.prompt, sequence.token
        if ended or sequence.produced == sequence.sampler.params.max_tokens or engine.lengths[slot] >= engine.context:
            del running[slot]
