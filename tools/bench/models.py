"""The models that benchmarks measure: true shapes, random weights.

Of those named `-shape` only the sizes agree with the public model, which is computed as a Llama is: Gemma 3 has other norms,
another activation and windows. What a step reads and multiplies is nearly the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from tilec.frontend.config import ModelConfig, inverse_frequencies
from tilec.runtime.artifact import ITEM_BYTES, Manifest, in_memory


def _llama(**shape: object) -> ModelConfig:
    common = {"norm_eps": 1e-5, "rope_theta": 500000.0, "max_context": 131072, "tied_embeddings": False}
    return ModelConfig(**{**common, **shape})  # type: ignore[arg-type]


MODELS = {
    "llama-3.2-1b": _llama(vocab_size=128256, hidden_size=2048, intermediate_size=8192, layers=16, heads=32, kv_heads=8,
                           head_dim=64, tied_embeddings=True),
    "tinyllama-1.1b": _llama(vocab_size=32000, hidden_size=2048, intermediate_size=5632, layers=22, heads=32, kv_heads=4,
                             head_dim=64, max_context=2048),
    "llama-3.1-8b": _llama(vocab_size=128256, hidden_size=4096, intermediate_size=14336, layers=32, heads=32, kv_heads=8,
                           head_dim=128),
    "qwen2.5-7b": _llama(vocab_size=152064, hidden_size=3584, intermediate_size=18944, layers=28, heads=28, kv_heads=4,
                         head_dim=128, architecture="qwen2"),
    "gemma-3-4b-shape": _llama(vocab_size=262208, hidden_size=2560, intermediate_size=10240, layers=34, heads=8, kv_heads=4,
                               head_dim=256, tied_embeddings=True),
}


def random_weights(manifest: Manifest, config: ModelConfig) -> Callable[[str, str], np.ndarray]:
    """Reads like a checkpoint, but gives slices of one random pool: values of a trained model's size, no repetition."""
    pool = np.random.default_rng(0).standard_normal(1 << 24, dtype=np.float32) * 0.02
    pools = {"f32": pool, "f16": pool.astype(np.float16), "bf16": (pool.view(np.uint32) >> 16).astype(np.uint16)}

    def read(name: str, dtype: str) -> np.ndarray:
        if name == "rotary.inverse_frequencies":
            return inverse_frequencies(config)
        shape = manifest.weights[name].shape
        if len(shape) == 1:
            return np.ones(shape, np.float32)
        count, source = int(np.prod(shape)), pools[dtype]
        start = zlib.crc32(name.encode()) % (source.size // 2)
        return np.resize(source[start:], count).reshape(shape)

    return read


def matrix_elements(config: ModelConfig) -> tuple[int, int]:
    """Elements of all layers' matrices, and of the head's."""
    heads = (2 * config.heads + 2 * config.kv_heads) * config.head_dim
    return config.layers * config.hidden_size * (heads + 3 * config.intermediate_size), config.vocab_size * config.hidden_size


def bytes_of_a_token(manifest: Manifest, config: ModelConfig, dtype: str, context: int, batch: int = 1) -> int:
    """What a decode step must read: every weight but the embedding's other rows, and keys and values of `context` tokens of
    each sequence."""
    used = {b.label for b in manifest.entries["decode"].buffers if b.kind == "weight"}
    read = sum(ITEM_BYTES[w.dtype] * int(np.prod(w.shape)) for n, w in manifest.weights.items()
               if n in used and not (n == "model.embed_tokens.weight" and not config.tied_embeddings))
    return read + 2 * config.layers * config.kv_heads * config.head_dim * context * batch * ITEM_BYTES[in_memory(dtype)]


def flop_of_a_prompt(config: ModelConfig, tokens: int) -> int:
    """Multiplications and additions of a prompt whose last token alone gets logits; half the square of attention."""
    layers, head = matrix_elements(config)
    return 2 * (layers * tokens + head) + 2 * config.layers * config.heads * config.head_dim * tokens * tokens
