"""Whole models on the CPU target against transformers: logits at every position, not words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec.errors import TilecError
from tilec.frontend.hub import resolve

from .models import relative_error, transformers_logits, write_llama, write_mistral, write_qwen2

TOKENS = np.random.default_rng(1).integers(3, 211, 128)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(model: Path) -> tilec.LLM:
    return tilec.LLM(model, target="cpu", dtype="f32", context=160, cache=False)


def fresh(llm: tilec.LLM) -> tilec.LLM:
    llm.engine.reset()
    return llm


def test_f32_logits_at_every_position_agree_with_transformers(model: Path, llm: tilec.LLM) -> None:
    assert relative_error(fresh(llm).engine.score(TOKENS), transformers_logits(model, TOKENS)) < 1e-4


def test_64_greedy_tokens_are_those_of_transformers(model: Path, llm: tilec.LLM) -> None:
    prompt = TOKENS[:9].tolist()
    ours = list(fresh(llm).engine.generate(prompt, tilec.SamplingParams(max_tokens=64)))
    logits = transformers_logits(model, np.array(prompt + ours))
    assert ours == logits[len(prompt) - 1:-1].argmax(-1).tolist()


def test_bf16_logits_err_at_most_half_as_much_again_as_torch(model: Path) -> None:
    exact = transformers_logits(model, TOKENS, weights="bfloat16")
    theirs = relative_error(transformers_logits(model, TOKENS, "bfloat16"), exact)
    bf16 = tilec.LLM(model, target="cpu", dtype="bf16", context=160, cache=False)
    assert relative_error(bf16.engine.score(TOKENS), exact) <= 1.5 * theirs


def test_prompt_lengths_1_to_40_agree_with_one_long_run(llm: tilec.LLM) -> None:
    whole = fresh(llm).engine.score(TOKENS[:40])
    for length in range(1, 41):
        logits = fresh(llm).engine.extend(TOKENS[:length].tolist())["logits"]
        assert relative_error(logits, whole[length - 1]) < 1e-5, length


def test_a_prompt_in_two_pieces_continues_where_the_first_ended(llm: tilec.LLM) -> None:
    whole = fresh(llm).engine.score(TOKENS[:50])
    engine = fresh(llm).engine
    engine.extend(TOKENS[:23].tolist())
    assert relative_error(engine.score(TOKENS[23:50]), whole[23:]) < 1e-5


def test_the_cache_beyond_the_length_is_never_read(model: Path, llm: tilec.LLM) -> None:
    whole = np.array(fresh(llm).engine.score(TOKENS[:33]))
    other = tilec.LLM(model, target="cpu", dtype="f32", context=160, cache=False)
    for name in other.engine.program.manifest.states:
        other.engine.program.state(name)[...] = np.nan
    assert np.array_equal(other.engine.score(TOKENS[:33]), whole)


def test_results_do_not_depend_on_the_number_of_threads(model: Path, llm: tilec.LLM) -> None:
    whole = np.array(fresh(llm).engine.score(TOKENS))
    for threads in (1, 3, 5):
        other = tilec.LLM(model, target="cpu", dtype="f32", context=160, threads=threads, cache=False)
        assert np.array_equal(other.engine.score(TOKENS), whole)
        other.close()


@pytest.mark.parametrize("changes", [
    {"head_dim": 32, "hidden_size": 90},  # head_dim is not hidden / heads
    {"tie_word_embeddings": True},
    {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 64}},
    {"num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 64, "intermediate_size": 130},
], ids=["head_dim", "tied", "llama3 rope", "one kv head, odd sizes"])
def test_variants_of_the_family_agree_with_transformers(tmp_path: Path, changes: dict) -> None:
    model = write_llama(tmp_path / "model", seed=3, **changes)
    llm = tilec.LLM(model, target="cpu", dtype="f32", context=160, cache=False)
    assert relative_error(llm.engine.score(TOKENS), transformers_logits(model, TOKENS)) < 1e-4


@pytest.mark.parametrize("changes", [{}, {"head_dim": 8, "tie_word_embeddings": True}])
def test_a_qwen2_with_its_biases_agrees_with_transformers(tmp_path: Path, changes: dict) -> None:
    model = write_qwen2(tmp_path / "model", seed=7, **changes)
    llm = tilec.LLM(model, target="cpu", dtype="f32", context=160, cache=False)
    assert relative_error(llm.engine.score(TOKENS), transformers_logits(model, TOKENS)) < 1e-4
    ours = list(fresh(llm).engine.generate(TOKENS[:9].tolist(), tilec.SamplingParams(max_tokens=32)))
    logits = transformers_logits(model, np.array(TOKENS[:9].tolist() + ours))
    assert ours == logits[8:-1].argmax(-1).tolist()


WINDOW = 29


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mistral(tmp_path_factory.mktemp("mistral"), WINDOW, seed=5)


@pytest.fixture(scope="module")
def windowed(mistral: Path) -> tilec.LLM:
    return tilec.LLM(mistral, target="cpu", dtype="f32", context=160, cache=False)


def test_a_prompt_longer_than_the_window_has_the_logits_of_transformers(mistral: Path, windowed: tilec.LLM,
                                                                        tmp_path: Path) -> None:
    expected = transformers_logits(mistral, TOKENS)
    assert relative_error(fresh(windowed).engine.score(TOKENS), expected) < 1e-4
    whole = transformers_logits(write_mistral(tmp_path / "whole", None, seed=5), TOKENS)
    np.testing.assert_allclose(whole[:WINDOW], expected[:WINDOW], atol=1e-4)
    assert relative_error(whole[WINDOW], expected[WINDOW]) > 1e-3  # from here on the first token is out of sight


def test_a_mistral_without_a_window_agrees_with_transformers(tmp_path: Path) -> None:
    model = write_mistral(tmp_path / "model", None, seed=6)
    llm = tilec.LLM(model, target="cpu", dtype="f32", context=160, cache=False)
    assert relative_error(llm.engine.score(TOKENS), transformers_logits(model, TOKENS)) < 1e-4


@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, 100])
def test_greedy_tokens_across_the_edge_of_the_window_are_those_of_transformers(mistral: Path, windowed: tilec.LLM,
                                                                               length: int) -> None:
    prompt = TOKENS[:length].tolist()
    ours = list(fresh(windowed).engine.generate(prompt, tilec.SamplingParams(max_tokens=48)))
    logits = transformers_logits(mistral, np.array(prompt + ours))
    assert ours == logits[length - 1:-1].argmax(-1).tolist()


def test_a_prompt_in_two_pieces_sees_the_window_across_them(windowed: tilec.LLM) -> None:
    whole = np.array(fresh(windowed).engine.score(TOKENS[:70]))
    engine = fresh(windowed).engine
    engine.extend(TOKENS[:41].tolist())
    assert relative_error(engine.score(TOKENS[41:70]), whole[41:]) < 1e-5


@pytest.mark.parametrize("group", range(3))
def test_each_query_head_reads_the_values_of_its_own_group(tmp_path: Path, group: int) -> None:
    """Nine query heads over three kv heads: a constant value per kv head shows which group each output came from."""
    from tilec.frontend import nn
    from tilec.frontend.tensor import Graph
    from tilec.pipelines.compiler import compile_module
    from tilec.pipelines.targets import find_target
    from tilec.runtime.cpu import CpuProgram

    graph = Graph({"past": (0, 0)})
    with graph.entry("main"):
        q, k, v = (graph.input(n, s, "f32") for n, s in (("q", (2, 9, 16)), ("k", (3, 2, 16)), ("v", (3, 2, 16))))
        graph.output("y", nn.attention(q, k, v, graph.symbol("past")))
    program = CpuProgram(compile_module(graph.module, find_target("cpu"), {}), [], 1)
    values = np.zeros((3, 2, 16), np.float32)
    values[group] = 1.0
    rng = np.random.default_rng(0)
    result = program.run("main", {"q": rng.standard_normal((2, 9, 16)), "k": rng.standard_normal((3, 2, 16)), "v": values},
                         {"past": 0})["y"]
    expected = np.zeros((2, 9, 16), np.float32)
    expected[:, 3 * group:3 * group + 3] = 1.0
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_a_residual_beyond_f16_does_not_overflow(tmp_path: Path) -> None:
    """Activations of 7e4 do not fit f16: the residual stream is f32."""
    from safetensors.numpy import load_file, save_file

    model = write_llama(tmp_path / "model", seed=4)
    tensors = load_file(model / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"] *= 3e4
    save_file(tensors, model / "model.safetensors")
    llm = tilec.LLM(model, target="cpu", dtype="f16", context=64, cache=False)
    logits = llm.engine.score(TOKENS[:20])
    assert np.isfinite(logits).all()
    assert relative_error(logits, transformers_logits(model, TOKENS[:20])) < 0.05


def test_one_artifact_runs_again_from_disk_with_the_same_bits(model: Path, llm: tilec.LLM, tmp_path: Path) -> None:
    tilec.compile(model, tmp_path / "artifact", target="cpu", dtype="f32", context=160)
    again = tilec.load(tmp_path / "artifact", model)
    assert np.array_equal(again.engine.score(TOKENS), fresh(llm).engine.score(TOKENS))


def test_an_artifact_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    tilec.compile(model, tmp_path / "artifact", target="cpu", dtype="f32", context=64)
    other = write_llama(tmp_path / "other", num_hidden_layers=2)
    with pytest.raises(TilecError, match=r"compiled for another model \(layers differ"):
        tilec.load(tmp_path / "artifact", other)


def test_a_thirty_layer_model_compiles_its_layer_once(tmp_path: Path) -> None:
    counts = []
    for layers in (2, 30):
        model = write_llama(tmp_path / f"model{layers}", num_hidden_layers=layers)
        counts.append(len(tilec.compile(model, target="cpu", dtype="f32", context=64).manifest.kernels))
    assert counts[0] == counts[1]


def real_model() -> Path | None:
    try:
        return resolve("smollm2-135m-instruct")
    except TilecError:
        return None


@pytest.fixture(scope="module")
def demo() -> tilec.LLM:
    return tilec.LLM("smollm2-135m-instruct", target="cpu", dtype="f32", context=1024)


@pytest.mark.skipif(real_model() is None, reason="the demo model is not here: run `tilec pull smollm2-135m-instruct`")
class TestTheDemoModel:
    def test_the_capital_of_france_is_paris(self, demo: tilec.LLM) -> None:
        completion = demo.generate("The capital of France is", tilec.SamplingParams(max_tokens=8))[0]
        assert completion.text.startswith(" Paris")

    def test_its_answer_about_compilers_speaks_of_machine_code(self, demo: tilec.LLM) -> None:
        question = [{"role": "user", "content": "Explain in one sentence what a compiler does."}]
        assert "machine code" in demo.chat(question, tilec.SamplingParams(max_tokens=60)).text

    def test_logits_and_greedy_tokens_agree_with_transformers(self, demo: tilec.LLM, tmp_path: Path) -> None:
        """The dequantised weights, written as a Hugging Face folder, are what transformers runs."""
        import json
        from dataclasses import asdict

        from safetensors.numpy import save_file

        checkpoint, config = demo.checkpoint, demo.config
        save_file({n: np.ascontiguousarray(checkpoint.read(n, "f32")) for n in checkpoint.names()},
                  tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
            "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads, "rms_norm_eps": config.norm_eps,
            "max_position_embeddings": config.max_context, "tie_word_embeddings": config.tied_embeddings,
            **{k: v for k, v in asdict(config).items() if k in (
                "vocab_size", "hidden_size", "intermediate_size", "head_dim", "rope_theta", "bos_token_id")}}))
        text = demo.encode("A compiler reads a program in one language and writes an equivalent program in another. " * 8)[:128]
        demo.engine.reset()
        logits = demo.engine.score(text)
        assert relative_error(logits, transformers_logits(tmp_path, np.array(text))) < 1e-3
        demo.engine.reset()
        prompt = text[:20]
        ours = list(demo.engine.generate(prompt, tilec.SamplingParams(max_tokens=64)))
        expected = transformers_logits(tmp_path, np.array(prompt + ours))
        assert ours == expected[len(prompt) - 1:-1].argmax(-1).tolist()
