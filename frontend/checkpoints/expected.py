"""A checkpoint must hold exactly what its architecture needs: a tensor that is missing, spare or misshapen has a name.

A spare tensor is an error because it means that the model computes something which tilec does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilec.errors import CheckpointError
from tilec.frontend.checkpoints.base import Checkpoint
from tilec.frontend.config import ModelConfig

# Buffers that old exporters stored although they follow from the configuration.
IGNORED = re.compile(r"(model\.layers\.\d+\.self_attn\.rotary_emb|model\.rotary_emb)\.inv_freq")


def expected_tensors(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(canonical name, shape) of everything that the model reads, in the order in which it reads it."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "self_attn.q_proj.weight", (queries, hidden)
        yield prefix + "self_attn.k_proj.weight", (keys, hidden)
        yield prefix + "self_attn.v_proj.weight", (keys, hidden)
        if config.projection_biases:
            yield prefix + "self_attn.q_proj.bias", (queries,)
            yield prefix + "self_attn.k_proj.bias", (keys,)
            yield prefix + "self_attn.v_proj.bias", (keys,)
        yield prefix + "self_attn.o_proj.weight", (hidden, queries)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        yield prefix + "mlp.gate_proj.weight", (inner, hidden)
        yield prefix + "mlp.up_proj.weight", (inner, hidden)
        yield prefix + "mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    if not config.tied_embeddings:
        yield "lm_head.weight", (config.vocab_size, hidden)


def check_tensors(config: ModelConfig, checkpoint: Checkpoint) -> None:
    """Raise CheckpointError, naming the tensor, unless `checkpoint` holds what `config` needs and nothing else.

    Ignored: rotary `inv_freq` buffers, and `lm_head.weight` where the configuration ties it to the embedding.
    """
    spare = dict.fromkeys(checkpoint.names())
    for name, shape in expected_tensors(config):
        if name not in spare:
            hint = " (the configuration does not tie it to the embedding)" if name == "lm_head.weight" else ""
            raise CheckpointError(f"{checkpoint.path}: tensor {name!r} of shape {list(shape)} is missing{hint}")
        if checkpoint.shape(name) != shape:
            raise CheckpointError(
                f"{checkpoint.path}: need shape {list(shape)} for tensor {name!r}, "
                f"but got {list(checkpoint.shape(name))}"
            )
        del spare[name]
    if config.tied_embeddings:
        spare.pop("lm_head.weight", None)
    left = [name for name in spare if not IGNORED.fullmatch(name)]
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise CheckpointError(
            f"{checkpoint.path}: tensor {left[0]!r}{more} has no place in architecture {config.architecture!r}, "
            "so the model computes something that tilec does not"
        )
