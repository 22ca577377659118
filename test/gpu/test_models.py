"""Whole models on a GPU against transformers and against the CPU target; skipped where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec.runtime.cuda import find_gpu
from tilec.runtime.sampling import Sampler

from ..models import SMALL, relative_error, transformers_logits, write_llama, write_mistral

gpu = find_gpu()
pytestmark = pytest.mark.skipif(gpu is None, reason="no NVIDIA GPU on this machine")
TOKENS = np.random.default_rng(5).integers(3, 4096, 128)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("small"), **SMALL)


@pytest.fixture(scope="module")
def on_gpu(model: Path) -> tilec.LLM:
    return tilec.LLM(model, target=gpu[0], dtype="f32", context=1024, cache=False)


def test_f32_logits_at_every_position_agree_with_transformers(model: Path, on_gpu: tilec.LLM) -> None:
    on_gpu.engine.reset()
    assert relative_error(on_gpu.engine.score(TOKENS), transformers_logits(model, TOKENS)) < 1e-3


def test_greedy_tokens_in_f32_are_those_of_the_cpu(model: Path, on_gpu: tilec.LLM) -> None:
    params = tilec.SamplingParams(max_tokens=64)
    on_cpu = tilec.LLM(model, target="cpu", dtype="f32", context=1024, cache=False)
    for llm in (on_gpu, on_cpu):
        llm.engine.reset()
    prompt = TOKENS[:17].tolist()
    assert list(on_gpu.engine.generate(prompt, params)) == list(on_cpu.engine.generate(prompt, params))


def test_decoding_with_and_without_uploads_gives_the_same_logits(on_gpu: tilec.LLM) -> None:
    """The device's own feedback of token and position, against the host setting both for every step."""
    engine, steps = on_gpu.engine, []
    for fetch in (("token", "position", "logits"), ("token", "logits")):  # without the position the host does not know
        engine.reset()
        result = engine.extend(TOKENS[:9].tolist(), fetch)
        rows = []
        for _ in range(20):
            result = engine.extend([int(result["token"][0])], fetch)
            rows.append(np.array(result["logits"]))
        steps.append(np.stack(rows))
    assert np.array_equal(*steps)


def test_tokens_drawn_on_the_device_are_those_that_the_host_draws_from_its_logits(on_gpu: tilec.LLM) -> None:
    for params in (tilec.SamplingParams(temperature=1.0, seed=3),
                   tilec.SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.001, seed=4)):
        engine, sampler = on_gpu.engine, Sampler(params)
        engine.reset()
        engine.extend(TOKENS[:9].tolist())
        token, agree = 5, 0
        for past in range(9, 73):
            result = engine.program.run("sample", {"tokens": np.array([token], np.int32), **sampler.arguments}, {"past": past})
            token = int(result["token"][0])
            agree += token == sampler.choose(result["logits"], past + 1)
        assert agree >= 63  # one may be decided in the last place of an exponential


def test_a_seed_draws_the_same_tokens_again(on_gpu: tilec.LLM) -> None:
    params = tilec.SamplingParams(max_tokens=64, temperature=1.0, top_p=0.9, seed=3)
    runs = []
    for _ in range(2):
        on_gpu.engine.reset()
        runs.append(list(on_gpu.engine.generate(TOKENS[:17].tolist(), params)))
    assert runs[0] == runs[1]


def test_bf16_logits_err_at_most_half_as_much_again_as_torch(model: Path) -> None:
    exact = transformers_logits(model, TOKENS, "float32", weights="bfloat16")
    theirs = relative_error(transformers_logits(model, TOKENS, "bfloat16", "cuda"), exact)
    llm = tilec.LLM(model, target=gpu[0], dtype="bf16", context=1024, cache=False)
    ours = relative_error(llm.engine.score(TOKENS), exact)
    print(f"relative error of the logits: tilec {ours:.2e}, torch {theirs:.2e}")
    assert ours <= 1.5 * theirs


def test_prompt_lengths_1_to_40_agree_with_one_long_run(on_gpu: tilec.LLM) -> None:
    engine = on_gpu.engine
    engine.reset()
    whole = engine.score(TOKENS[:40])
    for length in range(1, 41):
        engine.reset()
        logits = engine.extend(TOKENS[:length].tolist())["logits"]
        assert relative_error(logits, whole[length - 1]) < 1e-4


def test_a_window_shorter_than_the_prompt_and_decoding_past_it(tmp_path: Path) -> None:
    """In f32 scores are in memory; in bf16 the loops of a prompt and of a step begin where the window does."""
    model = write_mistral(tmp_path / "model", 50, **SMALL)
    exact = transformers_logits(model, TOKENS, weights="bfloat16")
    theirs = relative_error(transformers_logits(model, TOKENS, "bfloat16", "cuda"), exact)
    narrow = tilec.LLM(model, target=gpu[0], dtype="bf16", context=1024, cache=False)
    assert relative_error(narrow.engine.score(TOKENS), exact) <= 1.5 * theirs
    single = []
    narrow.engine.reset()
    for token in TOKENS.tolist():
        single.append(np.array(narrow.engine.extend([token])["logits"]))
    assert relative_error(np.stack(single), exact) <= 1.5 * theirs
    full = tilec.LLM(model, target=gpu[0], dtype="f32", context=1024, cache=False)
    assert relative_error(full.engine.score(TOKENS), transformers_logits(model, TOKENS)) < 1e-3
