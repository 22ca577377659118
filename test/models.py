"""Random Llama and Mistral models as Hugging Face folders, and what transformers says they compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TINY = {
    "hidden_size": 72, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 9,
    "num_key_value_heads": 3, "head_dim": 16, "vocab_size": 211, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
}
# The shape of a real small model, with random weights.
SMALL = {**TINY, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 8, "head_dim": 64,
         "vocab_size": 4096, "max_position_embeddings": 1024, "tie_word_embeddings": True}


def write_llama(folder: Path, seed: int = 0, dtype: str = "f32", **changes: object) -> Path:
    """A model with seeded random weights, and biases if it is a Qwen 2; `changes` override `TINY`'s configuration."""
    config = {**TINY, "model_type": "llama", "architectures": ["LlamaForCausalLM"], **changes}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(seed)
    hidden, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    width, inner, vocab = config["head_dim"], config["intermediate_size"], config["vocab_size"]

    def normal(*shape: int) -> np.ndarray:
        weight = rng.standard_normal(shape, dtype=np.float32) * (1.5 * shape[-1] ** -0.5)
        return round_to_bf16(weight) if dtype == "bf16" else weight

    tensors = {"model.embed_tokens.weight": normal(vocab, hidden) * 4}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        tensors |= {
            p + "self_attn.q_proj.weight": normal(heads * width, hidden),
            p + "self_attn.k_proj.weight": normal(kv * width, hidden),
            p + "self_attn.v_proj.weight": normal(kv * width, hidden),
            p + "self_attn.o_proj.weight": normal(hidden, heads * width),
            p + "mlp.gate_proj.weight": normal(inner, hidden), p + "mlp.up_proj.weight": normal(inner, hidden),
            p + "mlp.down_proj.weight": normal(hidden, inner),
            p + "input_layernorm.weight": 1 + 0.1 * rng.standard_normal(hidden, dtype=np.float32),
            p + "post_attention_layernorm.weight": 1 + 0.1 * rng.standard_normal(hidden, dtype=np.float32),
        }
        if config["model_type"] == "qwen2":
            tensors |= {f"{p}self_attn.{name}_proj.bias": rng.standard_normal(n * width, dtype=np.float32)
                        for name, n in (("q", heads), ("k", kv), ("v", kv))}
    tensors["model.norm.weight"] = 1 + 0.1 * rng.standard_normal(hidden, dtype=np.float32)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = normal(vocab, hidden)
    save_file(tensors, folder / "model.safetensors")
    words = {f"w{i}": i for i in range(vocab)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def write_mistral(folder: Path, window: int | None, seed: int = 0, **changes: object) -> Path:
    """The same layers, each token of which sees the last `window` ones only."""
    named = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    return write_llama(folder, seed, sliding_window=window, **named, **changes)


def write_qwen2(folder: Path, seed: int = 0, **changes: object) -> Path:
    """The same layers with biases on queries, keys and values, as Qwen 2 and 2.5 have them."""
    named = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "use_sliding_window": False}
    return write_llama(folder, seed, **{**named, **changes})


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """f32 values rounded to the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def transformers_logits(folder: Path, tokens: np.ndarray, dtype: str = "float32", device: str = "cpu",
                        weights: str | None = None) -> np.ndarray:
    """Logits (tokens, vocabulary) by transformers in `dtype`; `weights` rounds them to another type first."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, weights or dtype))
    model = model.to(device=device, dtype=getattr(torch, dtype)).eval()
    with torch.no_grad():
        logits = model(torch.tensor(np.asarray(tokens)[None], device=device)).logits[0]
    return logits.float().cpu().numpy()


def relative_error(got: np.ndarray, expected: np.ndarray) -> float:
    """Norm of the difference over the norm of what is expected."""
    return float(np.linalg.norm(got.astype(np.float64) - expected) / np.linalg.norm(expected))
