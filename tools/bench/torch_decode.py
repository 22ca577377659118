"""A decode step in torch, written for speed as `tilec bench decode` needs something to be compared with.

bf16 throughout, packed query-key-value and gate-up projections, a static cache, everything in one CUDA graph. The cache
holds exactly `context` positions and the step is always that of the last one: no mask, and no positions beyond what is
used, so the comparison is in torch's favour. Each variant is one way of computing attention, eager or compiled by layer
(which needs a C compiler and time); the caller takes the fastest.
"""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from tilec.frontend.config import ModelConfig
from tilec.tools.bench.torch_side import TorchReplay, find_torch

Layer = tuple[Any, ...]  # norm, qkv (heads + 2 kv_heads, D, H), output, norm, gate and up (2 F, H), down, keys, values


class Step:
    """One model's weights, cache and step. `device` and `dtype` are torch's."""

    def __init__(self, torch: Any, config: ModelConfig, context: int, device: str = "cuda", dtype: Any = None) -> None:
        self.torch, self.config = torch, config
        dtype = dtype or torch.bfloat16
        hidden, width, inner = config.hidden_size, config.head_dim, config.intermediate_size
        torch.manual_seed(0)

        def matrix(rows: int, columns: int) -> Any:
            return torch.empty(rows, columns, device=device, dtype=dtype).normal_(0.0, 0.02)

        ones = torch.ones(hidden, device=device, dtype=dtype)
        self.layers: list[Layer] = []
        for _ in range(config.layers):
            cache = [torch.empty(config.kv_heads, context, width, device=device, dtype=dtype).normal_() for _ in "kv"]
            self.layers.append((
                ones.clone(), matrix((config.heads + 2 * config.kv_heads) * width, hidden),
                matrix(hidden, config.heads * width), ones.clone(), matrix(2 * inner, hidden), matrix(hidden, inner), *cache))
        self.norm, self.table = ones, matrix(config.vocab_size, hidden)
        self.head = self.table if config.tied_embeddings else matrix(config.vocab_size, hidden)
        self.token = torch.full((1,), 7, device=device)
        self.position = torch.full((1,), context - 1, device=device)
        frequencies = config.rope_theta ** -(torch.arange(0, width, 2, device=device) / width)
        angles = torch.arange(context, device=device)[:, None] * frequencies
        self.cos, self.sin = angles.cos(), angles.sin()

    def sdpa(self, q: Any, keys: Any, values: Any) -> Any:
        """Attention of q (heads, D) over keys and values (kv_heads, T, D), by torch's own function."""
        mixed = self.torch.nn.functional.scaled_dot_product_attention(
            q[None, :, None], keys[None], values[None], enable_gqa=True)
        return mixed.reshape(1, -1)

    def matmuls(self, q: Any, keys: Any, values: Any) -> Any:
        """The same by matrix products, the queries of one head of keys together."""
        grouped = q.view(self.config.kv_heads, -1, self.config.head_dim)
        scores = (grouped @ keys.transpose(1, 2)).float() * (1.0 / math.sqrt(self.config.head_dim))
        return (scores.softmax(-1).to(values.dtype) @ values).reshape(1, -1)

    def layer(self, x: Any, position: Any, cos: Any, sin: Any, layer: Layer, attend: Callable[..., Any]) -> Any:
        """x (1, H) after one layer; writes keys and values at `position`. cos and sin are (1, D / 2)."""
        torch, config = self.torch, self.config
        norm1, qkv, output, norm2, gate_up, down, keys, values = layer
        linear, rms = torch.nn.functional.linear, torch.nn.functional.rms_norm
        size, rotated = (config.hidden_size,), config.heads + config.kv_heads
        heads = linear(rms(x, size, norm1, config.norm_eps), qkv).view(-1, config.head_dim)
        low, high = heads[:rotated].float().chunk(2, -1)
        turned = torch.cat((low * cos - high * sin, high * cos + low * sin), -1).to(x.dtype)
        keys.index_copy_(1, position, turned[config.heads:, None])
        values.index_copy_(1, position, heads[rotated:, None])
        x = x + linear(attend(turned[:config.heads], keys, values), output)
        gate, up = linear(rms(x, size, norm2, config.norm_eps), gate_up).chunk(2, -1)
        return x + linear(torch.nn.functional.silu(gate) * up, down)

    def step(self, layer: Callable[..., Any], attend: Callable[..., Any]) -> Any:
        """One token: reads `token`, replaces it by the greedy choice; returns the logits (1, vocabulary)."""
        functional = self.torch.nn.functional
        x = functional.embedding(self.token, self.table)
        cos, sin = self.cos[self.position], self.sin[self.position]
        for each in self.layers:
            x = layer(x, self.position, cos, sin, each, attend)
        logits = functional.linear(functional.rms_norm(x, (x.shape[-1],), self.norm, self.config.norm_eps), self.head)
        self.token.copy_(logits.argmax(-1))
        return logits


def time_steps(config: ModelConfig, context: int, repeats: int, budget: int) -> dict[str, float]:
    """Median milliseconds of a token for every variant that works; compiling may take `budget` seconds altogether."""
    model, times = Step(find_torch(), config, context), {}
    attentions = {"sdpa": model.sdpa, "matmuls": model.matmuls}
    for name, attend in attentions.items():
        times[name] = _median(functools.partial(model.step, model.layer, attend), repeats)
    if budget:
        best = min(attentions, key=lambda name: times[name])
        try:
            import torch._inductor.config as inductor

            with _deadline(budget):
                # Products of a matrix and a vector become generated kernels, as fast decoders in torch have it.
                inductor.coordinate_descent_tuning = True
                compiled = model.torch.compile(model.layer, fullgraph=True, dynamic=False)
                times[f"{best}, compiled"] = _median(functools.partial(model.step, compiled, attentions[best]), repeats)
        except Exception as error:  # no compiler for its kernels, or out of time: it is optional
            print(f"    torch.compile: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}")
    return times


def _median(call: Callable[[], Any], repeats: int) -> float:
    replay = TorchReplay([call])
    replay.capture(1)
    return statistics.median(replay.time(repeats))


@contextlib.contextmanager
def _deadline(seconds: int) -> Iterator[None]:
    """TimeoutError in the block after so many seconds."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done in {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
