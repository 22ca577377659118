"""Several sequences in one step: each gets what it would get alone, whatever the others are, on CPUs and as PTX."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec.errors import ContextLengthError, TilecError
from tilec.frontend.config import ModelConfig, inverse_frequencies
from tilec.model_compiler import compile_model
from tilec.runtime.artifact import Artifact
from tilec.runtime.batch import generate_together
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.weights import pack

from .gpu_simulator import SimulatedGpu
from .models import relative_error, round_to_bf16, write_llama, write_mistral
from .reference import to_memory

CONTEXT = 48
PROMPTS = [np.random.default_rng(n).integers(0, 211, n).tolist() for n in (1, 5, 17, 30, 3, 2, 9)]
DRAWN = tilec.SamplingParams(max_tokens=12, temperature=0.9, top_k=50, seed=7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("tiny"), num_hidden_layers=2, eos_token_id=[])


@pytest.fixture(scope="module")
def alone(folder: Path) -> tilec.LLM:
    return tilec.LLM(folder, target="cpu", dtype="f32", context=CONTEXT, cache=False)


@pytest.fixture(scope="module")
def together(folder: Path) -> tilec.LLM:
    return tilec.LLM(folder, target="cpu", dtype="f32", context=CONTEXT, cache=False, batch=3)


@pytest.mark.parametrize("params", [tilec.SamplingParams(max_tokens=60), DRAWN], ids=["greedy", "drawn"])
def test_each_sequence_gets_the_tokens_that_it_gets_alone(alone: tilec.LLM, together: tilec.LLM,
                                                          params: tilec.SamplingParams) -> None:
    """Seven prompts through three slots: some end at the context, others wait for their slots."""
    texts = [" ".join(f"w{t}" for t in prompt) for prompt in PROMPTS]
    got = together.generate(texts, params)
    expected = [alone.complete(alone.encode(t), params) for t in texts]
    assert [c.tokens for c in got] == [c.tokens for c in expected]
    assert [(c.text, c.finish, c.prompt_tokens) for c in got] == [(c.text, c.finish, c.prompt_tokens) for c in expected]


def test_each_sequence_sees_its_own_window(tmp_path: Path) -> None:
    model = write_mistral(tmp_path / "model", 9, num_hidden_layers=2, eos_token_id=[])
    alone, together = (tilec.LLM(model, target="cpu", dtype="f32", context=CONTEXT, cache=False, batch=n) for n in (1, 3))
    texts, params = [" ".join(f"w{t}" for t in prompt) for prompt in PROMPTS], tilec.SamplingParams(max_tokens=15)
    expected = [alone.complete(alone.encode(t), params).tokens for t in texts]
    assert [c.tokens for c in together.generate(texts, params)] == expected


def test_sequences_end_at_their_own_number_of_tokens_and_stop_tokens(alone: tilec.LLM, together: tilec.LLM) -> None:
    params = [tilec.SamplingParams(max_tokens=n) for n in (1, 9, 4, 2, 6, 7, 3)]
    expected = []
    for prompt, each in zip(PROMPTS, params, strict=True):
        alone.engine.reset()
        expected.append(list(alone.engine.generate(prompt, each, [expected[1][4]] if len(expected) > 1 else [])))
    for stop_tokens in ([], [expected[1][4]]):
        got: list[list[int]] = [[] for _ in PROMPTS]
        for number, token in generate_together(together.engine, PROMPTS, params, stop_tokens):
            got[number].append(token)
        cut = [next((e[:i] for i, t in enumerate(e) if t in stop_tokens), e) for e in expected]
        assert got[:2] == cut[:2]
        assert stop_tokens == [] or got == cut


def test_a_stop_string_ends_one_text_and_not_the_others(alone: tilec.LLM, together: tilec.LLM) -> None:
    texts = ["w5 w6", "w7 w8 w9"]
    stop = alone.generate(texts, tilec.SamplingParams(max_tokens=9))[0].text[4:8]
    params = tilec.SamplingParams(max_tokens=9, stop=(stop,))
    got, expected = together.generate(texts, params), alone.generate(texts, params)
    assert [(c.text, c.finish) for c in got] == [(c.text, c.finish) for c in expected]


def test_a_batch_that_is_given_up_leaves_nothing_behind(alone: tilec.LLM, together: tilec.LLM) -> None:
    started = generate_together(together.engine, PROMPTS[:3], [DRAWN] * 3)
    next(started)
    started.close()
    assert (together.engine.slot, together.engine.lengths) == (0, [0, 0, 0])
    assert together.complete(PROMPTS[2], DRAWN).tokens == alone.complete(PROMPTS[2], DRAWN).tokens


def test_what_a_batch_cannot_be_is_refused_in_one_sentence(folder: Path, together: tilec.LLM, tmp_path: Path) -> None:
    with pytest.raises(TilecError, match="batch must be between 1 and 8, but is 9"):
        tilec.LLM(folder, target="cpu", batch=9)
    with pytest.raises(ContextLengthError, match="the prompt has 50 tokens, and the context holds 48"):
        together.generate(["w1", " ".join(["w1"] * 50)])
    tilec.compile(folder, tmp_path / "artifact", target="cpu", dtype="f32", context=CONTEXT, batch=2)
    with pytest.raises(TilecError, match="was compiled for batch 2, but batch 3 was asked for"):
        tilec.LLM(folder, artifact=tmp_path / "artifact", batch=3)


# As PTX -----------------------------------------------------------------------------------------------------------------

CONFIG = ModelConfig(
    vocab_size=96, hidden_size=128, intermediate_size=192, layers=1, heads=4, kv_heads=2, head_dim=64, norm_eps=1e-5,
    rope_theta=1e4, max_context=128, tied_embeddings=True)


def weights_of(artifact: Artifact, config: ModelConfig) -> dict[str, np.ndarray]:
    rng, weights = np.random.default_rng(0), {}
    for name, weight in artifact.manifest.weights.items():
        values = rng.standard_normal(weight.shape, dtype=np.float32)
        values *= weight.shape[-1] ** -0.5 if len(weight.shape) > 1 else 1
        weights[name] = inverse_frequencies(config) if name.startswith("rotary") else round_to_bf16(values)
    return weights


@functools.cache
def compiled_for_cpu(config: ModelConfig) -> Artifact:
    return compile_model(config, "cpu", "f32", CONTEXT, entries=("prefill",))


@pytest.mark.parametrize(("target", "dtype", "config", "most"), [
    ("sm_90a", "bf16", CONFIG, 3e-2),  # products by groups of warps, operands by TMA
    ("sm_90a", "bf16", replace(CONFIG, heads=24, kv_heads=8, head_dim=32), 3e-2),  # attention by a tensor core a warp
    ("sm_80", "bf16", CONFIG, 3e-2),  # by single warps
    ("sm_90a", "bf16", replace(CONFIG, hidden_size=512), 3e-2),  # projections in runs of 128 bytes, of rotated rows, too
    ("sm_90a", "f32", replace(CONFIG, hidden_size=72, heads=9, kv_heads=3, head_dim=16), 1e-5),
    ("sm_90a", "tf32", CONFIG, 5e-3),
    ("sm_90a", "bf16", replace(CONFIG, sliding_window=3), 3e-2),
    ("sm_80", "f32", replace(CONFIG, sliding_window=3), 1e-5),
])
def test_sequences_of_different_lengths_have_the_logits_that_they_have_alone(target: str, dtype: str, config: ModelConfig,
                                                                            most: float) -> None:
    """Whatever lies in the cache beyond a sequence's length, here what is not a number."""
    on_cpu = compiled_for_cpu(config)
    artifact = compile_model(config, target, dtype, CONTEXT, batch=4, entries=("prefill", "decode_batch"))
    weights = weights_of(on_cpu, config)
    poison = {n: to_memory(np.full(s.shape, np.nan, np.float32), s.dtype) for n, s in artifact.manifest.states.items()}
    gpu = SimulatedGpu(artifact, {n: to_memory(weights[n], w.dtype) for n, w in artifact.manifest.weights.items()}, poison)
    cpu = CpuProgram(on_cpu, [(n, pack(weights[n], w)) for n, w in on_cpu.manifest.weights.items()], 1)
    prompts = [[5, 90, 17], [3], [44, 8, 61, 2, 90, 11]]
    for slot, prompt in enumerate(prompts):
        gpu.run("prefill", {"tokens": np.array(prompt, np.int32)}, {"seq": len(prompt), "past": 0, "slot": slot})
    positions = np.array([len(p) for p in prompts], np.int32)
    steps = np.array([[7, 8, 9], [50, 3, 95]], np.int32)
    for number, tokens in enumerate(steps):
        got = gpu.run("decode_batch", {"tokens": tokens, "positions": positions},
                      {"batch": 3, "past": int(positions.max())})
        for slot, prompt in enumerate(prompts):
            whole = np.array([*prompt, *steps[:number + 1, slot]], np.int32)
            expected = cpu.run("prefill", {"tokens": whole}, {"seq": len(whole), "past": 0})
            assert relative_error(got["logits"][slot], expected["logits"]) < most
            if dtype == "f32":
                assert got["token"][slot] == expected["token"]
        positions = got["positions"]
        assert positions.tolist() == [len(p) + number + 1 for p in prompts]
        assert int(got["position"][0]) == positions.max()
    cpu.close()
