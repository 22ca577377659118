"""Checkpoints: what is read is what was stored, and what is damaged or foreign is refused with its name."""

import json
import math
import random
import struct
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from tilec.errors import CheckpointError, TilecError, UnsupportedError
from tilec.frontend import hub
from tilec.frontend.checkpoints import check_tensors, expected_tensors, open_checkpoint
from tilec.frontend.checkpoints.dequantise import round_to_bf16
from tilec.frontend.checkpoints.gguf_file import canonical_name
from tilec.frontend.config import ModelConfig, RopeScaling, inverse_frequencies

F32, F16, Q4_0, Q4_1, Q8_0, BF16, Q4_K = 0, 1, 2, 3, 8, 30, 12
BLOCK = {F32: (1, 4), F16: (1, 2), BF16: (1, 2), Q4_0: (32, 18), Q4_1: (32, 20), Q8_0: (32, 34)}

HF = {
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GGUF = {
    "general.architecture": "llama",
    "llama.vocab_size": 40,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.block_count": 2,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.context_length": 128,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}
GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, value) -> bytes:
    if isinstance(value, bool):
        return string(key) + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return string(key) + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return string(key) + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return string(key) + struct.pack("<I", 8) + string(value)
    if isinstance(value[0], str):
        return string(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(string, value))
    return string(key) + struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def tensor(name: str, kind: int, shape, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1]) + struct.pack("<IQ", kind, offset)


def gguf_bytes(metadata, tensors, *, version=3, pairs=None, infos=None, counts=None) -> bytes:
    """A GGUF file of (name, type, shape, bytes) tensors; the keyword arguments lie about it."""
    offset, places = 0, []
    for name, kind, shape, raw in tensors:
        places.append(tensor(name, kind, shape, offset))
        offset += -(-len(raw) // 32) * 32
    pairs = [pair(*item) for item in metadata.items()] if pairs is None else pairs
    infos = places if infos is None else infos
    header = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(infos), len(pairs)))) + b"".join(pairs + infos)
    header += bytes(-len(header) % 32)
    return header + b"".join(raw + bytes(-len(raw) % 32) for *_, raw in tensors)


def blocks(kind: int, count: int, generator) -> bytes:
    """`count` elements in random blocks with moderate scales."""
    elements, size = BLOCK[kind]
    if kind in (F32, F16, BF16):
        values = generator.standard_normal(count).astype(np.float32)
        if kind == BF16:
            return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return values.astype(np.float32 if kind == F32 else np.float16).tobytes()
    raw = generator.integers(0, 256, (count // elements, size), dtype=np.uint8)
    scales = generator.standard_normal((len(raw), 2)).astype(np.float16).view(np.uint8)
    width = 4 if kind == Q4_1 else 2
    raw[:, :width] = scales[:, :width]
    return raw.tobytes()


def gguf_name(canonical: str) -> str:
    stem, kind = canonical.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def tiny_tensors(generator, kind=Q4_1, config=HF):
    """(name, type, shape, bytes) of a whole tiny Llama, its matrices stored as `kind`."""
    for name, shape in expected_tensors(ModelConfig.from_hf(config)):
        stored = F32 if len(shape) == 1 else kind
        yield gguf_name(name), stored, shape, blocks(stored, math.prod(shape), generator)


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@pytest.fixture
def write(tmp_path):
    def to_file(content: bytes, name="model.gguf"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return to_file


@pytest.fixture
def folder(tmp_path, generator):
    """Writes a Hugging Face folder of the tiny model; returns its path and tensors."""

    def to_folder(config=HF, tensors=None, **files):
        tensors = tensors if tensors is not None else {
            name: generator.standard_normal(shape).astype(np.float32)
            for name, shape in expected_tensors(ModelConfig.from_hf(config))
        }  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(config))
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        save_file(tensors, tmp_path / "model.safetensors")
        return tmp_path, tensors

    return to_folder


# Values


@pytest.mark.parametrize("kind", [Q4_0, Q4_1, Q8_0, F16, BF16, F32])
def test_every_block_format_dequantises_as_the_gguf_package_does(kind, write, generator):
    from gguf import GGMLQuantizationType, quants

    shape = (1430, 96)  # more than one piece, and not a whole number of pieces
    raw = blocks(kind, math.prod(shape), generator)
    checkpoint = open_checkpoint(write(gguf_bytes(GGUF, [("token_embd.weight", kind, shape, raw)])))
    want = quants.dequantize(np.frombuffer(raw, np.uint8), GGMLQuantizationType(kind)).reshape(shape)
    got = checkpoint.read("model.embed_tokens.weight", "f32")
    assert got.dtype == np.float32 and got.flags.c_contiguous
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(checkpoint.read("model.embed_tokens.weight", "f16"), want.astype(np.float16))
    torch = pytest.importorskip("torch")
    half = torch.from_numpy(want.copy()).to(torch.bfloat16).view(torch.uint16).numpy()
    np.testing.assert_array_equal(checkpoint.read("model.embed_tokens.weight", "bf16"), half)


def test_bf16_rounds_ties_to_even_and_keeps_infinity_and_nan():
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0xFFFFFFFF, 0x80000001])
    out = np.empty(8, np.uint16)
    round_to_bf16(bits.astype(np.uint32).view(np.float32), out, np.empty(8, np.uint32))
    assert [hex(value) for value in out[:5]] == ["0x3f80", "0x3f82", "0x3f81", "0x7f80", "0x7f80"]
    assert np.isnan((out[5:7].astype(np.uint32) << 16).view(np.float32)).all()
    assert out[7] == 0x8000


def test_a_value_beyond_f16_is_refused_by_the_tensors_name(folder):
    path, tensors = folder()
    tensors["model.norm.weight"][3] = 7e4
    save_file(tensors, path / "model.safetensors")
    checkpoint = open_checkpoint(path)
    with pytest.raises(UnsupportedError, match=r"'model.norm.weight' holds 70000, beyond .* use dtype bf16 or f32"):
        checkpoint.read("model.norm.weight", "f16")
    assert checkpoint.read("model.norm.weight", "bf16").shape == (64,)


def test_an_infinite_value_stays_infinite_in_f16(folder):
    path, tensors = folder()
    tensors["model.norm.weight"][3] = np.inf
    save_file(tensors, path / "model.safetensors")
    assert np.isinf(open_checkpoint(path).read("model.norm.weight", "f16")[3])


def test_a_tensor_that_needs_no_conversion_is_a_read_only_view_of_the_file(folder):
    path, tensors = folder()
    view = open_checkpoint(path).read("model.norm.weight", "f32")
    assert not view.flags.owndata and not view.flags.writeable
    np.testing.assert_array_equal(view, tensors["model.norm.weight"])


def test_a_tensor_is_read_into_a_given_array(folder):
    path, tensors = folder()
    checkpoint, out = open_checkpoint(path), np.zeros((64, 64), np.float16)
    assert checkpoint.read("model.layers.0.self_attn.q_proj.weight", "f16", out) is out
    np.testing.assert_array_equal(out, tensors["model.layers.0.self_attn.q_proj.weight"].astype(np.float16))
    with pytest.raises(ValueError, match="need a C-contiguous float16 array of shape"):
        checkpoint.read("model.layers.0.self_attn.q_proj.weight", "f16", out.T)


def test_safetensors_in_f16_and_bf16_read_as_f32(folder, generator):
    path, tensors = folder()
    values = generator.standard_normal((64, 64)).astype(np.float32)
    name, other = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"
    tensors[name] = values.astype(np.float16)
    save_file(tensors, path / "model.safetensors")
    np.testing.assert_array_equal(open_checkpoint(path).read(name, "f32"), values.astype(np.float16).astype(np.float32))
    torch, safe = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    safe.save_file({other: torch.from_numpy(values).bfloat16()}, path / "model.safetensors")
    want = torch.from_numpy(values).bfloat16().float().numpy()
    np.testing.assert_array_equal(open_checkpoint(path).read(other, "f32"), want)


# Names and row order


def test_a_gguf_file_has_the_canonical_names_and_everything_that_the_model_needs(write, generator):
    checkpoint = open_checkpoint(write(gguf_bytes(GGUF, list(tiny_tensors(generator)))))
    check_tensors(checkpoint.config, checkpoint)
    want = ModelConfig.from_hf(HF)
    assert checkpoint.names() == tuple(name for name, _ in expected_tensors(want))
    assert checkpoint.shape("model.layers.1.mlp.down_proj.weight") == (64, 96)
    assert checkpoint.stored_type("model.layers.1.mlp.down_proj.weight") == "Q4_1"
    assert checkpoint.config.tied_embeddings and checkpoint.config.norm_eps == pytest.approx(1e-5)


@pytest.mark.parametrize("kind", [F32, Q8_0])
@pytest.mark.parametrize(("part", "heads"), [("q", 4), ("k", 2), ("v", None)])
def test_the_rotary_row_order_of_llama_cpp_is_undone_for_q_and_k_only(part, heads, kind, write, generator):
    shape = ((heads or 2) * 16, 64)
    raw = blocks(kind, math.prod(shape), generator)
    rows = np.frombuffer(raw, np.uint8).reshape(shape[0], -1)
    if heads:  # as convert_hf_to_gguf.py stores them
        rows = rows.reshape(heads, 2, shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(shape[0], -1)
    plain = open_checkpoint(write(gguf_bytes(GGUF, [("token_embd.weight", kind, shape, raw)]), "plain.gguf"))
    stored = [(f"blk.0.attn_{part}.weight", kind, shape, rows.tobytes())]
    checkpoint = open_checkpoint(write(gguf_bytes(GGUF, stored)))
    for dtype in ("f32", "bf16"):
        got = checkpoint.read(f"model.layers.0.self_attn.{part}_proj.weight", dtype)
        np.testing.assert_array_equal(got, plain.read("model.embed_tokens.weight", dtype))


def test_an_untied_gguf_head_is_the_lm_head(write, generator):
    tensors = list(tiny_tensors(generator, config={**HF, "tie_word_embeddings": False}))
    checkpoint = open_checkpoint(write(gguf_bytes(GGUF, tensors)))
    assert not checkpoint.config.tied_embeddings
    check_tensors(checkpoint.config, checkpoint)


# Rotary frequencies

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_theta": 500000.0},
        {"rope_scaling": {"type": "linear", "factor": 2.5}},
        {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", **LLAMA3}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3}},
        {"hidden_size": 5120, "num_attention_heads": 32, "head_dim": 128, "rope_theta": 1000000.0},
        {"head_dim": 80, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3, "factor": 32.0}},
    ],
    ids=["default", "theta", "linear", "rope_type", "type", "rope_parameters", "head_dim", "factor 32"],
)
def test_rotary_frequencies_are_those_of_transformers_even_at_position_9000(changes):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    raw = {**HF, "max_position_embeddings": 131072, **changes}
    reference = llama.LlamaRotaryEmbedding(transformers.LlamaConfig(**raw))
    want = reference.inv_freq.numpy()
    got = inverse_frequencies(ModelConfig.from_hf(raw))
    assert got.dtype == np.float32 and got.shape == want.shape
    assert np.abs(got.view(np.int32) - want.view(np.int32)).max() <= 2  # units in the last place
    cos, _ = reference(torch.zeros(1), torch.tensor([[9000]]))
    np.testing.assert_allclose(np.cos(np.float32(9000) * got), cos[0, 0, : len(got)].numpy(), atol=2e-3)


def test_rope_freqs_of_a_gguf_file_divide_the_frequencies(write, generator):
    plain = ModelConfig.from_hf({**HF, "rope_theta": 500000.0})
    scaled = ModelConfig.from_hf({**HF, "rope_theta": 500000.0, "rope_scaling": {"type": "llama3", **LLAMA3}})
    divisors = (inverse_frequencies(plain) / inverse_frequencies(scaled)).astype(np.float32)
    tensors = [*tiny_tensors(generator), ("rope_freqs.weight", F32, (8,), divisors.tobytes())]
    metadata = {**GGUF, "llama.rope.freq_base": 500000.0}
    checkpoint = open_checkpoint(write(gguf_bytes(metadata, tensors)))
    check_tensors(checkpoint.config, checkpoint)
    assert checkpoint.config.rope_scaling.kind == "divisors"
    np.testing.assert_allclose(inverse_frequencies(checkpoint.config), inverse_frequencies(scaled), rtol=3e-7)

    short = [*tiny_tensors(generator), ("rope_freqs.weight", F32, (7,), divisors[:7].tobytes())]
    with pytest.raises(CheckpointError, match="need 8 rotary frequency divisors for head_dim 16, but got 7"):
        open_checkpoint(write(gguf_bytes(metadata, short)))


def test_linear_rope_of_a_gguf_file_is_read_in_both_spellings():
    for extra in (
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
        {"llama.rope.scale_linear": 4.0},
    ):
        assert ModelConfig.from_gguf({**GGUF, **extra}, ()).rope_scaling == RopeScaling("linear", 4.0)


# A sliding window

MISTRAL = {"model_type": "mistral", "sliding_window": 24}


@pytest.mark.parametrize("window", [24, None])
def test_a_mistral_is_a_llama_with_a_window_or_without(window):
    config = ModelConfig.from_hf({**HF, **MISTRAL, "sliding_window": window})
    llama = ModelConfig.from_hf(HF)
    assert llama.sliding_window is None
    assert config == replace(llama, architecture="mistral", sliding_window=window)


@pytest.mark.parametrize(("stated", "window"), [({}, None), ({"llama.attention.sliding_window": 0}, None),
                                                ({"llama.attention.sliding_window": 24}, 24)])
def test_the_window_of_a_gguf_file_is_that_of_its_metadata(stated, window):
    assert ModelConfig.from_gguf({**GGUF, **stated}, ()).sliding_window == window


# Biases

QWEN2 = {"model_type": "qwen2", "sliding_window": 24, "use_sliding_window": False}


def test_a_qwen2_is_a_llama_with_biases():
    config = ModelConfig.from_hf({**HF, **QWEN2})
    assert config == replace(ModelConfig.from_hf(HF), architecture="qwen2") and config.projection_biases
    more = {n: s for n, s in expected_tensors(config) if n not in dict(expected_tensors(ModelConfig.from_hf(HF)))}
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    assert list(more.values()) == [(queries,), (keys,), (keys,)] * config.layers
    assert all(n.endswith("_proj.bias") for n in more)


def test_a_gguf_file_has_a_qwen2s_rows_in_the_models_order(write, generator):
    """Those of a Llama are interleaved for another rotary embedding."""
    metadata = {k.replace("llama.", "qwen2."): v for k, v in GGUF.items()} | {"general.architecture": "qwen2"}
    tensors = list(tiny_tensors(generator, F32, {**HF, **QWEN2}))
    checkpoint = open_checkpoint(write(gguf_bytes(metadata, tensors)))
    assert checkpoint.config.projection_biases
    check_tensors(checkpoint.config, checkpoint)
    for name, _, shape, raw in tensors:
        canonical = canonical_name(name)
        np.testing.assert_array_equal(checkpoint.read(canonical, "f32"), np.frombuffer(raw, np.float32).reshape(shape))


# What is not supported


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen3"}, "architecture 'qwen3' is not supported; supported: llama, mistral, qwen2"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "a sliding attention window in some of the layers"),
        ({"model_type": "qwen2", "attention_bias": True}, "attention bias"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn' .* default, linear, llama3"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope type 'dynamic'"),
        ({"attention_bias": True}, "attention bias"),
        ({"mlp_bias": True}, "a bias in the feed-forward network"),
        ({"sliding_window": 4096}, r"a sliding attention window \(sliding_window=4096\) is not supported for llama"),
        ({**MISTRAL, "layer_types": ["sliding_attention", "full_attention"]}, "layers of different kinds"),
        ({**MISTRAL, "sliding_window": None, "layer_types": ["sliding_attention"] * 2}, "layers of different kinds"),
        ({"hidden_act": "gelu"}, "activation 'gelu' .* supported is 'silu'"),
        ({"partial_rotary_factor": 0.5}, "rotary embedding over a part of the head"),
        ({"quantization_config": {"quant_method": "awq"}}, "a quantised Hugging Face checkpoint"),
        ({"num_local_experts": 8}, "a mixture of experts"),
    ],
)
def test_what_is_not_supported_in_a_config_is_refused_by_name(changes, message):
    with pytest.raises(UnsupportedError, match=message):
        ModelConfig.from_hf({**HF, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "config.json has no 'hidden_size', which is needed"),
        ({"num_attention_heads": 3}, "head_dim"),
        ({"num_key_value_heads": 3}, "need heads to be a multiple of kv_heads, but got 4 and 3"),
        ({"vocab_size": -1}, "need a positive whole number for vocab_size, .* got -1"),
        ({"vocab_size": 1e4}, "need a positive whole number for vocab_size"),
        ({"rms_norm_eps": "small"}, "need a positive number for norm_eps, but got 'small'"),
        ({"head_dim": 15}, "need an even head_dim"),
        ({"eos_token_id": 40}, "need eos token ids in the vocabulary of 40 tokens, but got 40"),
        ({"eos_token_id": [[1]]}, "need eos token ids"),
        ({"rope_scaling": {"type": "llama3", "factor": 8.0}}, "'low_freq_factor', which is needed"),
        ({"rope_scaling": {"type": "llama3", **LLAMA3, "high_freq_factor": 1.0}}, "high_freq_factor above"),
        ({"rope_scaling": [1]}, "need rope parameters to be an object"),
        ({"model_type": "mistral"}, "no 'sliding_window', which a Mistral must state, even if it is null"),
        ({**MISTRAL, "sliding_window": 0}, "need a positive whole number for sliding_window, .* got 0"),
        ({**MISTRAL, "sliding_window": True}, "need a positive whole number for sliding_window"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused_by_name(changes, message):
    with pytest.raises(CheckpointError, match=message):
        ModelConfig.from_hf({**HF, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "gemma3"}, "architecture 'gemma3' is not supported"),
        ({"llama.expert_count": 8}, "a mixture of experts"),
        ({"llama.attention.sliding_window_pattern": 4}, "a sliding attention window in some of the layers"),
        ({"llama.attention.value_length": 8}, "keys of 16 elements with values of 8"),
        ({"llama.rope.dimension_count": 8}, "rotary embedding over 8 of 16 elements"),
        ({"llama.rope.scaling.type": "yarn"}, "rope type 'yarn'"),
        ({"llama.attention.head_count_kv": [2, 4]}, "a different number of heads in each layer"),
        ({"split.count": 3}, "one of 3 parts of a model; join them with `llama-gguf-split --merge`"),
        ({"general.type": "adapter"}, "holds a 'adapter', not a model"),
    ],
)
def test_what_is_not_supported_in_gguf_metadata_is_refused_by_name(changes, message, write):
    path = write(gguf_bytes({**GGUF, **changes}, []))
    with pytest.raises(UnsupportedError, match=message) as error:
        open_checkpoint(path)
    assert str(path) in str(error.value)


def test_a_quantisation_type_that_is_not_supported_is_refused_by_name(write):
    file = gguf_bytes(GGUF, [], infos=[tensor("blk.0.ffn_up.weight", Q4_K, (96, 256), 0)])
    with pytest.raises(UnsupportedError, match=r"'blk.0.ffn_up.weight' has type Q4_K, .* supported are BF16, F16, F32"):
        open_checkpoint(write(file))


@pytest.mark.parametrize(("version", "message"), [(1, "GGUF version 1 is not"), (0x03000000, "big-endian GGUF is not")])
def test_another_gguf_version_is_refused_by_name(version, message, write):
    with pytest.raises(UnsupportedError, match=message):
        open_checkpoint(write(gguf_bytes(GGUF, [], version=version)))


# Damaged and hostile GGUF files

ROW = np.zeros(64, np.float32).tobytes()
HOSTILE_GGUF = {
    "another format": (b"PK\x03\x04" + bytes(100), "does not begin with 'GGUF'"),
    "nothing": (b"", "the file is empty"),
    "offset past the end": (
        gguf_bytes(GGUF, [], infos=[tensor("output_norm.weight", F32, (64,), 4096)]),
        "truncated or damaged: tensor 'output_norm.weight'",
    ),
    "offset that wraps around": (
        gguf_bytes(GGUF, [], infos=[tensor("output_norm.weight", F32, (64,), 2**64 - 32)]),
        "tensor 'output_norm.weight'",
    ),
    "shape times type overflows": (
        gguf_bytes(GGUF, [], infos=[tensor("token_embd.weight", F32, (2**33, 2**33), 0)]), "tensor 'token_embd.weight'",
    ),
    "overlapping tensors": (
        gguf_bytes(GGUF, [("a", F32, (64,), ROW), ("b", F32, (64,), ROW)],
                   infos=[tensor("a", F32, (64,), 0), tensor("b", F32, (64,), 128)]),
        "tensors 'a' and 'b' overlap",
    ),
    "a tensor twice": (
        gguf_bytes(GGUF, [("a", F32, (64,), ROW), ("a", F32, (64,), ROW)]), "has tensor 'a' twice",
    ),
    "two names for a tensor": (
        gguf_bytes(GGUF, [("output_norm.weight", F32, (64,), ROW), ("model.norm.weight", F32, (64,), ROW)]),
        "'model.norm.weight' under two names",
    ),
    "a long name": (gguf_bytes(GGUF, [], pairs=[pair("a" * 300, 1)]), "300 bytes for metadata key 0; .* most 256"),
    "a key twice": (
        gguf_bytes(GGUF, [], pairs=[pair("a", 1), pair("a", 2)]), "has the metadata key 'a' twice",
    ),
    "rank": (gguf_bytes(GGUF, [], infos=[tensor("a", F32, (1,) * 9, 0)]), "'a' with 9 dimensions"),
    "empty shape": (gguf_bytes(GGUF, [], infos=[tensor("a", F32, (0, 4), 0)]), "'a' with an empty shape"),
    "half a block": (gguf_bytes(GGUF, [], infos=[tensor("a", Q8_0, (4, 40), 0)]), "Q8_0 needs whole 32s"),
    "offset between": (gguf_bytes(GGUF, [], infos=[tensor("a", F32, (4,), 4)]), "not a multiple of 32"),
    "alignment": (gguf_bytes({**GGUF, "general.alignment": 3}, []), "needs a power of two as general.alignment"),
    "too many tensors": (gguf_bytes(GGUF, [], counts=(2**60, 12)), "claims 1152921504606846976 tensors"),
    "too many keys": (gguf_bytes(GGUF, [], counts=(0, 2**63)), "claims 9223372036854775808 metadata keys"),
    "long string": (
        gguf_bytes(GGUF, [], pairs=[string("a") + struct.pack("<IQ", 8, 2**62)]), "for the value of 'a', but only",
    ),
    "long array": (
        gguf_bytes(GGUF, [], pairs=[string("a") + struct.pack("<IIQ", 9, 5, 2**62)]), "claims .* values of 'a'",
    ),
    "long array of strings": (
        gguf_bytes(GGUF, [], pairs=[string("a") + struct.pack("<IIQ", 9, 8, 2**20)]), "claims .* strings of 'a'",
    ),
    "array of arrays": (
        gguf_bytes(GGUF, [], pairs=[string("a") + struct.pack("<IIQ", 9, 9, 1)]), "an array of unknown type 9",
    ),
    "unknown value": (
        gguf_bytes(GGUF, [], pairs=[string("a") + struct.pack("<IQ", 77, 0)]), "unknown type 77 as 'a'",
    ),
    "not text": (
        gguf_bytes(GGUF, [], pairs=[string("a") + struct.pack("<IQ", 8, 2) + b"\xff\xfe"]),
        "not UTF-8 in the value of 'a'",
    ),
    "no architecture": (gguf_bytes({"a": 1}, []), "has no 'general.architecture'"),
    "rows that are not heads": (
        gguf_bytes(GGUF, [("blk.0.attn_q.weight", F32, (62, 1), bytes(248))]), "need 4 heads of 16 rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), HOSTILE_GGUF.values(), ids=HOSTILE_GGUF.keys())
def test_a_damaged_gguf_file_is_refused_with_its_place_and_nothing_allocated(content, message, write):
    path = write(content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=message) as error:
            open_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert str(path) in str(error.value)


def test_a_gguf_file_cut_at_any_place_is_refused(write, generator):
    content = gguf_bytes(GGUF, list(tiny_tensors(generator)))
    for length in [*range(0, 6000, 7), len(content) - 33, len(content) - 5000]:
        with pytest.raises(CheckpointError):
            open_checkpoint(write(content[:length]))


def test_a_gguf_header_with_flipped_bytes_opens_or_is_refused_but_never_fails_otherwise(write, generator):
    metadata = {**GGUF, "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": [1, 1]}
    content = gguf_bytes(metadata, [("rope_freqs.weight", F32, (8,), bytes(32)), *tiny_tensors(generator)])
    chance, refused = random.Random(0), 0
    for _ in range(1500):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(4, 3000)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            checkpoint = open_checkpoint(write(bytes(damaged)))
            check_tensors(checkpoint.config, checkpoint)
        except TilecError:
            refused += 1
    assert refused > 500


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing.gguf: no such file or folder"):
        open_checkpoint(tmp_path / "nothing.gguf")


# Hugging Face folders


def test_a_folder_with_one_file_is_read(folder):
    path, tensors = folder()
    checkpoint = open_checkpoint(path)
    check_tensors(checkpoint.config, checkpoint)
    assert checkpoint.config == ModelConfig.from_hf(HF)
    for name, values in tensors.items():
        np.testing.assert_array_equal(checkpoint.read(name, "f32"), values)


@pytest.mark.parametrize("indexed", [True, False])
def test_shards_are_read_with_and_without_an_index(indexed, folder):
    path, tensors = folder()
    (path / "model.safetensors").unlink()
    weight_map = {}
    for part, names in enumerate((list(tensors)[:5], list(tensors)[5:])):
        file = f"model-0000{part + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names}, path / file)
        weight_map |= dict.fromkeys(names, file)
    if indexed:
        (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    checkpoint = open_checkpoint(path)
    check_tensors(checkpoint.config, checkpoint)
    for name, values in tensors.items():
        np.testing.assert_array_equal(checkpoint.read(name, "f32"), values)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"model.norm.weight": "other.safetensors"}, "the shard other.safetensors is missing"),
        ({"model.norm.weight": "../model.safetensors"}, "is not in the folder itself"),
        ({"model.nothing": "model.safetensors"}, "says that tensor 'model.nothing' is in model.safetensors"),
        ([1], "need a 'weight_map'"),
    ],
)
def test_an_index_that_lies_is_refused(weight_map, message, folder):
    path, _ = folder()
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)


def test_a_tensor_in_two_shards_is_refused(folder):
    path, tensors = folder()
    (path / "model.safetensors").rename(path / "a.safetensors")
    save_file({"model.norm.weight": tensors["model.norm.weight"]}, path / "b.safetensors")
    with pytest.raises(CheckpointError, match=r"'model.norm.weight' is in both a.safetensors and b.safetensors"):
        open_checkpoint(path)


def test_all_files_of_a_folder_say_what_ends_an_answer(folder):
    path, _ = folder(generation_config={"eos_token_id": [5, 2]})
    assert open_checkpoint(path).config.eos_token_ids == (2, 5)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no config.json; give a GGUF file or a folder with"),
        ({"config.json": "{"}, r"config.json: the file is not JSON"),
        ({"config.json": "[]"}, "need a JSON object, but got a list"),
        ({"config.json": json.dumps(HF)}, r"has no \*.safetensors"),
        ({"config.json": json.dumps(HF), "pytorch_model.bin": ""}, "save the model again as safetensors"),
        ({"model.gguf": ""}, "give the GGUF file itself, such as .*model.gguf"),
    ],
)
def test_a_folder_that_is_not_a_model_says_what_to_give(files, message, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path)


def safetensors_bytes(header, data: int = 256, length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + bytes(data)


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HOSTILE_SAFETENSORS = {
    "too short": (b"abc", "too few for safetensors"),
    "header longer than the file": (safetensors_bytes({}, length=2**62), "claims a header of 46116860184273"),
    "not JSON": (safetensors_bytes(b"{"), "its header is not JSON"),
    "deep JSON": (safetensors_bytes(b"[" * 100_000), "its header is not JSON"),
    "not an object": (safetensors_bytes(b"[]"), "not a JSON object"),
    "a tensor twice": (safetensors_bytes(b'{"a": {}, "a": {}}'), "has 'a' twice"),
    "no offsets": (safetensors_bytes({"a": {"dtype": "F32", "shape": [4]}}), "'a' needs dtype, shape and data_offsets"),
    "past the end": (safetensors_bytes({"a": entry([128], 0, 512)}), "tensor 'a' would end at byte"),
    "shape and offsets differ": (safetensors_bytes({"a": entry([64], 0, 128)}), "'a' .* needs 256 bytes, .* span 128"),
    "shape overflows": (safetensors_bytes({"a": entry([2**62, 2**62], 0, 0)}), "tensor 'a' of shape"),
    "endless shape": (safetensors_bytes({"a": entry([2**62] * 9, 0, 0)}), "need positive extents as shape"),
    "negative shape": (safetensors_bytes({"a": entry([-4, -16], 0, 256)}), "need positive extents as shape"),
    "falling offsets": (safetensors_bytes({"a": entry([4], 16, 0)}), "need rising data_offsets of tensor 'a'"),
    "overlap": (safetensors_bytes({"a": entry([4], 0, 16), "b": entry([4], 8, 24)}), "tensors 'a' and 'b' overlap"),
}


@pytest.mark.parametrize(("content", "message"), HOSTILE_SAFETENSORS.values(), ids=HOSTILE_SAFETENSORS.keys())
def test_a_damaged_safetensors_file_is_refused_with_its_place(content, message, folder):
    path, _ = folder()
    (path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)


def test_a_safetensors_dtype_that_is_not_supported_is_refused_by_name(folder):
    path, _ = folder()
    (path / "model.safetensors").write_bytes(safetensors_bytes({"a": entry([4], 0, 4, "F8_E4M3")}))
    with pytest.raises(UnsupportedError, match=r"tensor 'a' has dtype 'F8_E4M3', .* supported are F32, BF16, F16"):
        open_checkpoint(path)


# Completeness


def test_a_missing_a_spare_and_a_misshapen_tensor_are_named(folder):
    path, tensors = folder()

    def check(changed):
        save_file(changed, path / "model.safetensors")
        checkpoint = open_checkpoint(path)
        check_tensors(checkpoint.config, checkpoint)

    name = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(CheckpointError, match=rf"tensor '{name}' of shape \[96, 64\] is missing"):
        check({key: value for key, value in tensors.items() if key != name})
    with pytest.raises(CheckpointError, match=rf"need shape \[96, 64\] for tensor '{name}', but got \[64, 96\]"):
        check({**tensors, name: tensors[name].T.copy()})
    bias = "model.layers.0.self_attn.q_proj.bias"
    with pytest.raises(CheckpointError, match=rf"tensor '{bias}' has no place in architecture 'llama'"):
        check({**tensors, bias: np.zeros(64, np.float32)})


def test_a_head_that_is_neither_tied_nor_there_is_missing(folder):
    path, tensors = folder({**HF, "tie_word_embeddings": False})
    del tensors["lm_head.weight"]
    save_file(tensors, path / "model.safetensors")
    checkpoint = open_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"'lm_head.weight' .* is missing \(the configuration does not tie it"):
        check_tensors(checkpoint.config, checkpoint)


def test_rotary_buffers_and_a_tied_copy_of_the_head_are_no_fault(folder):
    path, tensors = folder()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(8, np.float32)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    save_file(tensors, path / "model.safetensors")
    checkpoint = open_checkpoint(path)
    check_tensors(checkpoint.config, checkpoint)


def test_a_config_that_claims_endless_layers_is_refused_at_the_first_missing_one(folder):
    path, _ = folder()
    (path / "config.json").write_text(json.dumps({**HF, "num_hidden_layers": 2**30}))
    checkpoint = open_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"'model.layers.2.input_layernorm.weight' .* is missing"):
        check_tensors(checkpoint.config, checkpoint)


def test_the_fingerprint_changes_with_the_weights_and_with_the_configuration(folder, write, generator):
    path, tensors = folder()
    seen = {open_checkpoint(path).fingerprint()}
    assert open_checkpoint(path).fingerprint() in seen
    (path / "config.json").write_text(json.dumps({**HF, "rms_norm_eps": 1e-6}))
    seen.add(open_checkpoint(path).fingerprint())
    tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.float16)
    save_file(tensors, path / "model.safetensors")
    seen.add(open_checkpoint(path).fingerprint())
    for kind in (Q4_0, Q4_1):
        seen.add(open_checkpoint(write(gguf_bytes(GGUF, list(tiny_tensors(generator, kind))))).fingerprint())
    assert len(seen) == 5


# Whole


def test_checkpoints_and_tokenizers_work_without_mlir_and_torch():
    program = (
        "import sys, tilec.frontend.checkpoints, tilec.frontend.hub, tilec.runtime.chat; "
        "print([name for name in ('mlir', 'torch', 'transformers', 'gguf') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_demo_model_dequantises_as_the_gguf_package_does():
    from gguf import GGMLQuantizationType, quants

    try:
        path = hub.resolve("smollm2-135m-instruct")
    except TilecError as error:
        pytest.skip(str(error))
    checkpoint = open_checkpoint(path)
    check_tensors(checkpoint.config, checkpoint)
    assert (checkpoint.config.heads, checkpoint.config.kv_heads, checkpoint.config.head_dim) == (9, 3, 64)
    for name in ("model.embed_tokens.weight", "model.layers.7.mlp.down_proj.weight", "model.norm.weight"):
        stored = checkpoint._tensors[name]
        want = quants.dequantize(stored.raw, GGMLQuantizationType[stored.stored]).reshape(stored.shape)
        np.testing.assert_array_equal(checkpoint.read(name, "f32"), want)
