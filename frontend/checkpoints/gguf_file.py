"""A GGUF file as a checkpoint: llama.cpp's names and row order are undone here and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tilec.errors import CheckpointError, UnsupportedError, shown
from tilec.frontend.checkpoints.base import Checkpoint, StoredTensor, fingerprint_of, map_file
from tilec.frontend.checkpoints.dequantise import convert
from tilec.frontend.checkpoints.extents import TensorInfo
from tilec.frontend.checkpoints.gguf_header import GgufHeader, read_header
from tilec.frontend.config import ModelConfig
from tilec.runtime.tokenizer import Tokenizer

_OUTSIDE_LAYERS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INSIDE_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_DIVISORS = "rope_freqs.weight"
INTERLEAVED = ("llama",)  # architectures whose queries and keys llama.cpp stores in the order of its own rotary embedding


class GgufCheckpoint(Checkpoint):
    """Opened from one `.gguf` file; raises as `read_header` and `ModelConfig.from_gguf` do."""

    def __init__(self, path: Path) -> None:
        content = map_file(path)
        header = read_header(path, content)
        _refuse_other_contents(path, header)
        buffer = np.frombuffer(content, np.uint8)
        try:
            config = ModelConfig.from_gguf(header.metadata, header.tensors, _rope_divisors(path, header, buffer))
        except (CheckpointError, UnsupportedError) as error:
            raise type(error)(f"{path}: {error}") from None
        tensors: dict[str, StoredTensor] = {}
        for info in header.tensors.values():
            if info.name == ROPE_DIVISORS:
                continue  # already part of the configuration
            name = canonical_name(info.name)
            if name in tensors:
                raise CheckpointError(f"{path}: the file has tensor {name!r} under two names")
            tensors[name] = _stored(path, info, buffer, config)
        super().__init__(path, config, tensors)
        self.metadata = header.metadata
        self._header_bytes = bytes(buffer[: header.data_start])
        template = header.metadata.get("tokenizer.chat_template")
        self.chat_template = template if isinstance(template, str) else None

    def tokenizer(self) -> Tokenizer:
        try:
            return Tokenizer.from_gguf(self.metadata, eos_ids=self.config.eos_token_ids)
        except (CheckpointError, UnsupportedError) as error:
            raise type(error)(f"{self.path}: {error}") from None

    def fingerprint(self) -> str:
        return fingerprint_of([self.path], [self._header_bytes])


def canonical_name(name: str) -> str:
    """'blk.3.attn_q.weight' is 'model.layers.3.self_attn.q_proj.weight'; an unknown name stays as it is."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name):
        layer, part, kind = match.groups()
        if part in _INSIDE_LAYER:
            return f"model.layers.{layer}.{_INSIDE_LAYER[part]}.{kind}"
    elif match := re.fullmatch(r"(\w+)\.(weight|bias)", name):
        part, kind = match.groups()
        if part in _OUTSIDE_LAYERS:
            return f"{_OUTSIDE_LAYERS[part]}.{kind}"
    return name


def _stored(path: Path, info: TensorInfo, buffer: np.ndarray, config: ModelConfig) -> StoredTensor:
    raw = buffer[info.start : info.start + info.size]
    rotary = re.fullmatch(r"blk\.\d+\.attn_([qk])\.(weight|bias)", info.name)
    if rotary is None or config.architecture not in INTERLEAVED:
        return StoredTensor(info.type_name, info.shape, raw)
    heads = config.heads if rotary[1] == "q" else config.kv_heads
    if info.shape[0] != heads * config.head_dim:
        raise CheckpointError(
            f"{path}: need {heads} heads of {config.head_dim} rows in tensor {info.name!r}, "
            f"but got shape {list(info.shape)}"
        )
    return StoredTensor(info.type_name, info.shape, raw, rotary_heads=heads)


def _rope_divisors(path: Path, header: GgufHeader, buffer: np.ndarray) -> tuple[float, ...] | None:
    info = header.tensors.get(ROPE_DIVISORS)
    if info is None:
        return None
    if len(info.shape) != 1 or info.shape[0] > 4096:
        raise CheckpointError(f"{path}: need a list of divisors as {ROPE_DIVISORS!r}, but got {list(info.shape)}")
    values = np.empty(info.shape, np.float32)
    convert(info.name, info.type_name, buffer[info.start : info.start + info.size], "f32", values)
    return tuple(float(value) for value in values)


def _refuse_other_contents(path: Path, header: GgufHeader) -> None:
    kind = header.metadata.get("general.type", "model")
    if kind != "model":
        raise UnsupportedError(f"{path}: the file holds a {shown(kind)}, not a model")
    parts = header.metadata.get("split.count", 0)
    if parts not in (0, 1):
        raise UnsupportedError(
            f"{path}: the file is one of {shown(parts)} parts of a model; join them with `llama-gguf-split --merge`"
        )
