"""A model's configuration is read once, checked whole, and refused by name where tilec has no meaning for it.

Nothing is guessed: a size that is missing is an error although the reference implementation has a default for it
(its defaults describe one particular 7B model), and a setting that would change the mathematics is either
implemented or an `UnsupportedError`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from tilec.errors import CheckpointError, UnsupportedError, shown

RopeKind = Literal["default", "linear", "llama3", "divisors"]

SUPPORTED_ARCHITECTURES = ("llama", "mistral", "qwen2")  # a Mistral has a Llama's layers; a GGUF file calls it one
GGUF_ARCHITECTURES = ("llama", "qwen2")
SUPPORTED_ROPE = ("default", "linear", "llama3")


@dataclass(frozen=True)
class RopeScaling:
    """How the rotary frequencies are stretched beyond the context that the model was trained on.

    `linear` divides every frequency by `factor`. `llama3` divides those whose wavelength exceeds
    `original_max_position / low_freq_factor` positions, leaves those below `original_max_position /
    high_freq_factor`, and interpolates between. `divisors` divides each of the head_dim/2 frequencies by its own
    number: the form in which GGUF files carry the result of `llama3` (tensor rope_freqs.weight).

    Llama 3.1: RopeScaling("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192)
    """

    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_max_position: int = 0
    divisors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(RopeKind):
            raise _unsupported_rope(self.kind)
        if self.kind in ("linear", "llama3"):
            _check_positive("rope factor", self.factor)
        if self.kind == "llama3":
            _check_positive("rope low_freq_factor", self.low_freq_factor)
            _check_positive("rope high_freq_factor", self.high_freq_factor)
            _check_count("rope original_max_position_embeddings", self.original_max_position)
            if self.high_freq_factor <= self.low_freq_factor:
                raise CheckpointError(
                    "need rope high_freq_factor above low_freq_factor, "
                    f"but got {self.high_freq_factor} and {self.low_freq_factor}"
                )
        if self.kind == "divisors":
            if not self.divisors:
                raise CheckpointError("need one divisor per rotary frequency, but got none")
            for divisor in self.divisors:
                _check_positive("rope frequency divisor", divisor)


@dataclass(frozen=True)
class ModelConfig:
    """What the mathematics of one model depends on. Sizes are in elements, `max_context` in tokens.

    `sliding_window` is how many tokens each token sees, itself among them; None where it sees all that came before.
    `eos_token_ids` are all the tokens that end an answer; they may be empty, as `bos_token_id` may be None. The architecture
    qwen2 (Qwen 2 and 2.5) adds biases to queries, keys and values.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    max_context: int
    tied_embeddings: bool
    rope_scaling: RopeScaling = RopeScaling()
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    architecture: str = "llama"
    sliding_window: int | None = None

    def __post_init__(self) -> None:
        _check_architecture(self.architecture)
        for name in (
            "vocab_size", "hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "head_dim", "max_context"
        ):  # fmt: skip
            _check_count(name, getattr(self, name))
        if self.sliding_window is not None:
            _check_count("sliding_window", self.sliding_window)
        _check_positive("norm_eps", self.norm_eps)
        _check_positive("rope_theta", self.rope_theta)
        if self.heads % self.kv_heads:
            raise CheckpointError(f"need heads to be a multiple of kv_heads, but got {self.heads} and {self.kv_heads}")
        if self.head_dim % 2:
            raise CheckpointError(f"need an even head_dim for rotary embedding, but got {self.head_dim}")
        if self.rope_scaling.kind == "divisors" and len(self.rope_scaling.divisors) != self.head_dim // 2:
            raise CheckpointError(
                f"need {self.head_dim // 2} rotary frequency divisors for head_dim {self.head_dim}, "
                f"but got {len(self.rope_scaling.divisors)}"
            )
        special = [("eos", token) for token in self.eos_token_ids]
        if self.bos_token_id is not None:
            special.append(("bos", self.bos_token_id))
        for name, token in special:
            if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < self.vocab_size:
                raise CheckpointError(
                    f"need {name} token ids in the vocabulary of {self.vocab_size} tokens, but got {shown(token)}"
                )

    @property
    def projection_biases(self) -> bool:
        """Whether queries, keys and values have a bias each."""
        return self.architecture == "qwen2"

    @staticmethod
    def from_hf(raw: Mapping[str, Any]) -> ModelConfig:
        """From the content of a Hugging Face `config.json`, old (`rope_scaling`) or new (`rope_parameters`) style.

        Raises UnsupportedError for another architecture, rope type, activation, stored quantisation, attention bias (but a
        Qwen 2's) or sliding window (but a Mistral's), CheckpointError for missing or contradictory values.
        """
        architecture = raw.get("model_type")
        if architecture is None:
            raise CheckpointError("config.json has no 'model_type': it is not the configuration of a language model")
        _check_architecture(architecture)
        for key, neutral, what in _HF_NEUTRAL:
            if raw.get(key) not in (None, *neutral):
                raise UnsupportedError(f"{what} ({key}={shown(raw[key])}) is not supported for {architecture}")
        activation = raw.get("hidden_act", "silu")
        if activation not in ("silu", "swish"):
            raise UnsupportedError(
                f"activation {shown(activation)} is not supported for {architecture}; supported is 'silu'"
            )

        heads = _required(raw, "num_attention_heads", "config.json")
        hidden = _required(raw, "hidden_size", "config.json")
        _check_count("num_attention_heads", heads)
        _check_count("hidden_size", hidden)
        max_context = _required(raw, "max_position_embeddings", "config.json")
        theta, scaling = _hf_rope(raw, max_context)
        eos = raw.get("eos_token_id")
        return ModelConfig(
            architecture=architecture,
            vocab_size=_required(raw, "vocab_size", "config.json"),
            hidden_size=hidden,
            intermediate_size=_required(raw, "intermediate_size", "config.json"),
            layers=_required(raw, "num_hidden_layers", "config.json"),
            heads=heads,
            kv_heads=_or_default(raw.get("num_key_value_heads"), heads),
            head_dim=_or_default(raw.get("head_dim"), _even_share(hidden, heads)),
            norm_eps=_required(raw, "rms_norm_eps", "config.json"),
            rope_theta=theta,
            rope_scaling=scaling,
            max_context=max_context,
            sliding_window=_hf_window(raw, architecture),
            tied_embeddings=bool(raw.get("tie_word_embeddings", False)),
            bos_token_id=raw.get("bos_token_id"),
            eos_token_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
        )

    @staticmethod
    def from_gguf(
        metadata: Mapping[str, Any],
        tensor_names: Collection[str],
        rope_divisors: tuple[float, ...] | None = None,
    ) -> ModelConfig:
        """From GGUF metadata (keys to Python values) and the file's own tensor names.

        The head is tied exactly where the file has no `output.weight`. A file that has `rope_freqs.weight` needs its
        values as `rope_divisors`. Raises as `from_hf` does.
        """
        architecture = metadata.get("general.architecture")
        if architecture is None:
            raise CheckpointError("the GGUF file has no 'general.architecture': it is not a language model")
        _check_architecture(architecture, GGUF_ARCHITECTURES)

        def get(key: str, default: Any = None) -> Any:
            return metadata.get(f"{architecture}.{key}", default)

        def need(key: str) -> Any:
            return _required(metadata, f"{architecture}.{key}", "the GGUF file")

        for key, neutral, what in _GGUF_NEUTRAL:
            if get(key) not in (None, *neutral):
                raise UnsupportedError(
                    f"{what} ({architecture}.{key}={shown(get(key))}) is not supported for {architecture}"
                )
        heads, hidden = need("attention.head_count"), need("embedding_length")
        kv_heads = get("attention.head_count_kv", heads)
        for name, value in (("attention.head_count", heads), ("attention.head_count_kv", kv_heads)):
            if isinstance(value, list):
                raise UnsupportedError(f"a different number of heads in each layer ({name}) is not supported")
            _check_count(name, value)
        _check_count("embedding_length", hidden)
        head_dim = get("attention.key_length")
        if head_dim is None:
            head_dim = _even_share(hidden, heads)
        if get("attention.value_length", head_dim) != head_dim:
            raise UnsupportedError(
                f"keys of {head_dim} elements with values of {get('attention.value_length')} are not supported; "
                "both need the same size"
            )
        if get("rope.dimension_count", head_dim) != head_dim:
            raise UnsupportedError(
                f"rotary embedding over {get('rope.dimension_count')} of {head_dim} elements is not supported; "
                "it must cover the whole head"
            )
        vocab_size = get("vocab_size")
        if vocab_size is None:
            tokens = _required(metadata, "tokenizer.ggml.tokens", "the GGUF file")
            vocab_size = len(tokens) if isinstance(tokens, list) else tokens
        eos: list[Any] = []
        for key in _GGUF_EOS_KEYS:
            if key in metadata and metadata[key] not in eos:
                eos.append(metadata[key])
        return ModelConfig(
            architecture=architecture,
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=need("feed_forward_length"),
            layers=need("block_count"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            norm_eps=need("attention.layer_norm_rms_epsilon"),
            rope_theta=get("rope.freq_base", 10000.0),
            rope_scaling=_gguf_rope(get, "rope_freqs.weight" in tensor_names, rope_divisors),
            max_context=need("context_length"),
            sliding_window=get("attention.sliding_window") or None,
            tied_embeddings="output.weight" not in tensor_names,
            bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
            eos_token_ids=tuple(eos),
        )


def inverse_frequencies(config: ModelConfig) -> np.ndarray:
    """Rotary angles per position, f32[head_dim/2]: the angle at position p is p * result[i].

    The rounding follows the reference implementation (transformers, modeling_rope_utils.py): the exponent 2i/d and
    theta to its power are each rounded to f32. At position 9000 an error of one unit in the last place is 5e-4 rad.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    frequencies = np.float32(1) / (np.float64(config.rope_theta) ** exponents.astype(np.float64)).astype(np.float32)
    scaling = config.rope_scaling
    if scaling.kind == "linear":
        return frequencies / np.float32(scaling.factor)
    if scaling.kind == "divisors":
        return frequencies / np.asarray(scaling.divisors, dtype=np.float32)
    if scaling.kind == "llama3":
        return _llama3_frequencies(frequencies, scaling)
    return frequencies


def _llama3_frequencies(frequencies: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    """Llama 3.1's scaling (Meta, llama-models, apply_scaling) of f32 frequencies."""
    one, factor = np.float32(1), np.float32(scaling.factor)
    low, high = np.float32(scaling.low_freq_factor), np.float32(scaling.high_freq_factor)
    wavelength = np.float32(2 * math.pi) / frequencies
    long = wavelength > scaling.original_max_position / scaling.low_freq_factor
    short = wavelength < scaling.original_max_position / scaling.high_freq_factor
    smooth = (np.float32(scaling.original_max_position) / wavelength - low) / (high - low)
    between = (one - smooth) * (frequencies / factor) + smooth * frequencies
    return np.where(long, frequencies / factor, np.where(short, frequencies, between)).astype(np.float32)


# Settings that change the mathematics: (key, values at which they do not, what they are).
_HF_NEUTRAL: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("attention_bias", (False,), "attention bias"),
    ("mlp_bias", (False,), "a bias in the feed-forward network"),
    ("partial_rotary_factor", (1, 1.0), "rotary embedding over a part of the head"),
    ("quantization_config", (), "a quantised Hugging Face checkpoint"),
    ("num_local_experts", (0, 1), "a mixture of experts"),
    ("num_experts", (0, 1), "a mixture of experts"),
    ("logit_scale", (1, 1.0), "a scale on the logits"),
    ("attn_logit_softcapping", (), "a soft cap on attention scores"),
    ("final_logit_softcapping", (), "a soft cap on the logits"),
    ("qk_norm", (False,), "normalised queries and keys"),
)

_GGUF_NEUTRAL: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("attention.sliding_window_pattern", (), "a sliding attention window in some of the layers"),
    ("attention.causal", (True,), "attention that is not causal"),
    ("attention.scale", (0.0,), "a scale of its own on attention scores"),
    ("attention.clamp_kqv", (0.0,), "clamped queries, keys and values"),
    ("expert_count", (0,), "a mixture of experts"),
    ("logit_scale", (0.0, 1.0), "a scale on the logits"),
    ("residual_scale", (0.0, 1.0), "a scale on the residual"),
    ("embedding_scale", (0.0, 1.0), "a scale on the embedding"),
    ("attn_logit_softcapping", (0.0,), "a soft cap on attention scores"),
    ("final_logit_softcapping", (0.0,), "a soft cap on the logits"),
    ("rope.scaling.attn_factor", (1.0,), "a scale on rotated queries and keys"),
    ("tensor_data_layout", (), "a tensor layout of its own"),
)

# Chat models end a turn with a token that need not be the one that ends a text.
_GGUF_EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


def _hf_window(raw: Mapping[str, Any], architecture: str) -> int | None:
    """A Mistral's window, which all its layers have; a Qwen 2 may state one that it does not use, others none."""
    window = raw.get("sliding_window")
    if architecture == "qwen2":
        if raw.get("use_sliding_window"):
            raise UnsupportedError(
                f"a sliding attention window in some of the layers (use_sliding_window) is not supported for {architecture}"
            )
        return None
    if architecture != "mistral":
        if window is not None:
            raise UnsupportedError(
                f"a sliding attention window (sliding_window={shown(window)}) is not supported for {architecture}"
            )
        return None
    for key in ("sliding_window", "num_key_value_heads"):
        if key not in raw:
            raise CheckpointError(f"config.json has no {key!r}, which a Mistral must state, even if it is null")
    kind, kinds = "full_attention" if window is None else "sliding_attention", raw.get("layer_types") or []
    if not isinstance(kinds, list) or any(each != kind for each in kinds):
        raise UnsupportedError(f"layers of different kinds (layer_types={shown(kinds)}) are not supported for {architecture}")
    return window


def _hf_rope(raw: Mapping[str, Any], max_context: int) -> tuple[float, RopeScaling]:
    parameters = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(parameters, Mapping):
        raise CheckpointError(f"need rope parameters to be an object, but got {shown(parameters)}")
    theta = parameters.get("rope_theta", raw.get("rope_theta"))
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in SUPPORTED_ROPE:
        raise _unsupported_rope(kind)
    if parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedError(
            "rotary embedding over a part of the head "
            f"(partial_rotary_factor={parameters['partial_rotary_factor']}) is not supported"
        )
    theta = 10000.0 if theta is None else theta
    if kind == "default":
        return theta, RopeScaling()
    where = f"the {kind} rope parameters of config.json"
    factor = _required(parameters, "factor", where)
    if kind == "linear":
        return theta, RopeScaling("linear", factor)
    return theta, RopeScaling(
        "llama3",
        factor,
        low_freq_factor=_required(parameters, "low_freq_factor", where),
        high_freq_factor=_required(parameters, "high_freq_factor", where),
        original_max_position=parameters.get("original_max_position_embeddings", max_context),
    )


def _gguf_rope(get: Any, has_divisors: bool, divisors: tuple[float, ...] | None) -> RopeScaling:
    kind = get("rope.scaling.type", "none")
    factor = get("rope.scaling.factor", get("rope.scale_linear", 1.0))
    if has_divisors and divisors is None:
        raise CheckpointError("the GGUF file has rope_freqs.weight, whose values are needed with the configuration")
    if kind not in ("none", "linear"):
        raise _unsupported_rope(kind)
    linear = factor not in (0.0, 1.0) and (kind == "linear" or get("rope.scaling.type") is None)
    if divisors is not None:
        if linear:
            raise UnsupportedError("rope_freqs.weight together with linear rope scaling is not supported")
        return RopeScaling("divisors", divisors=divisors)
    return RopeScaling("linear", factor) if linear else RopeScaling()


def _unsupported_rope(kind: Any) -> UnsupportedError:
    return UnsupportedError(f"rope type {shown(kind)} is not supported; supported are {_listed(SUPPORTED_ROPE)}")


def _check_architecture(architecture: Any, supported: Collection[str] = SUPPORTED_ARCHITECTURES) -> None:
    if architecture not in supported:
        raise UnsupportedError(f"architecture {shown(architecture)} is not supported; supported: {_listed(supported)}")


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise CheckpointError(f"need a positive whole number for {name}, below 2^31, but got {shown(value)}")


def _check_positive(name: str, value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise CheckpointError(f"need a positive number for {name}, but got {shown(value)}")


def _required(raw: Mapping[str, Any], key: str, where: str) -> Any:
    if raw.get(key) is None:
        raise CheckpointError(f"{where} has no {key!r}, which is needed")
    return raw[key]


def _or_default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _even_share(hidden: int, heads: int) -> int:
    """The head size of a model that does not state it. An uneven share gives 0, which is refused where it is used."""
    return hidden // heads if hidden % heads == 0 else 0


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)
