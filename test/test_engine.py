"""The engine and what `LLM` makes of it: where a text ends and why, what is refused, and that nothing lingers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilec
from tilec.errors import ContextLengthError, TilecError
from tilec.llm import Completion, _StopStrings
from tilec.runtime.artifact import Entry, Manifest
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.engine import Engine
from tilec.runtime.weights import load_weights

from .models import write_llama

CONTEXT = 40
PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("tiny"), num_hidden_layers=1, eos_token_id=[])


@pytest.fixture(scope="module")
def llm(model: Path) -> tilec.LLM:
    return tilec.LLM(model, target="cpu", dtype="f32", context=CONTEXT, cache=False)


def greedy(count: int) -> tilec.SamplingParams:
    return tilec.SamplingParams(max_tokens=count)


# Where a text ends ----------------------------------------------------------------------------------------------------


def test_a_text_ends_after_max_tokens(llm: tilec.LLM) -> None:
    completion = llm.complete(PROMPT, greedy(7))
    assert (len(completion.tokens), completion.finish) == (7, "length")


def test_a_text_ends_where_the_context_is_full(llm: tilec.LLM) -> None:
    """The last token needs no place in the cache, because nothing follows it."""
    completion = llm.complete(PROMPT, greedy(1000))
    assert len(PROMPT) + len(completion.tokens) == CONTEXT + 1
    assert (completion.finish, llm.engine.length) == ("context", CONTEXT)


def test_a_stop_token_ends_the_text_and_is_no_part_of_it(llm: tilec.LLM) -> None:
    tokens = llm.complete(PROMPT, greedy(12)).tokens
    last = tokens[8]
    llm.engine.reset()
    until = list(llm.engine.generate(PROMPT, greedy(12), [last]))
    assert until == tokens[:tokens.index(last)]


def test_the_end_token_of_the_model_ends_the_text(model: Path, llm: tilec.LLM, tmp_path: Path) -> None:
    tokens = llm.complete(PROMPT, greedy(12)).tokens
    other = tilec.LLM(write_llama(tmp_path / "m", num_hidden_layers=1, eos_token_id=[2, tokens[5]]), target="cpu",
                      dtype="f32", context=CONTEXT, cache=False)
    completion = other.complete(PROMPT, greedy(12))
    assert completion.tokens == tokens[:tokens.index(tokens[5])]
    assert completion.finish == "stop"
    other.close()


def test_a_prompt_that_leaves_room_for_one_token_gets_two(llm: tilec.LLM) -> None:
    """One from the prompt, one from the last place in the cache."""
    assert len(llm.complete([5] * (CONTEXT - 1), greedy(9)).tokens) == 2


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1, 5000])
def test_a_prompt_that_fills_the_context_is_refused_with_both_lengths(llm: tilec.LLM, length: int) -> None:
    with pytest.raises(ContextLengthError, match=rf"the prompt has {length} tokens, and the context holds {CONTEXT}"):
        llm.complete([5] * length)


def test_more_than_the_rest_of_the_context_is_refused_and_changes_nothing(llm: tilec.LLM) -> None:
    engine = llm.engine
    engine.reset()
    engine.extend([5] * 30)
    with pytest.raises(ContextLengthError, match=f"41 tokens do not fit the context of {CONTEXT}"):
        engine.extend([5] * 11)
    assert engine.length == 30
    engine.extend([5] * 10)


@pytest.mark.parametrize("token", [-1, 211, 2**31, 2**40])
def test_a_token_outside_the_vocabulary_is_refused_by_number(llm: tilec.LLM, token: int) -> None:
    llm.engine.reset()
    with pytest.raises(TilecError, match=f"token {token} is outside the vocabulary of 211"):
        llm.engine.extend([1, token])
    assert llm.engine.length == 0


def test_no_tokens_are_refused(llm: tilec.LLM) -> None:
    with pytest.raises(TilecError, match="at least one token"):
        llm.engine.extend([])
    with pytest.raises(TilecError, match="the prompt is empty"):
        llm.generate("")


@pytest.mark.parametrize(("context", "message"), [(0, "1 to 512"), (513, "1 to 512"), (-1, "1 to 512")])
def test_a_context_that_the_model_does_not_take_is_refused(model: Path, context: int, message: str) -> None:
    with pytest.raises(ContextLengthError, match=message):
        tilec.LLM(model, target="cpu", context=context, cache=False)


# Nothing lingers ------------------------------------------------------------------------------------------------------


def test_a_text_that_is_aborted_leaves_no_trace(llm: tilec.LLM) -> None:
    whole = llm.complete(PROMPT, greedy(10)).tokens
    stream = llm.engine.generate([9, 8, 7, 6], greedy(30))
    for _ in range(4):
        next(stream)
    stream.close()
    assert llm.complete(PROMPT, greedy(10)).tokens == whole
    assert list(stream) == []


def test_a_stream_that_is_left_leaves_no_trace(llm: tilec.LLM) -> None:
    whole = llm.complete(PROMPT, greedy(10)).text
    for _ in llm.stream("w9 w8", greedy(30)):
        break
    assert llm.complete(PROMPT, greedy(10)).text == whole


def test_several_prompts_are_answered_as_each_alone(llm: tilec.LLM) -> None:
    together = llm.generate(["w5 w6", "w9", "w5 w6"], greedy(6))
    assert [c.tokens for c in together] == [llm.generate(p, greedy(6))[0].tokens for p in ("w5 w6", "w9", "w5 w6")]
    assert [c.prompt_tokens for c in together] == [2, 1, 2]


def test_tokens_are_the_same_one_at_a_time_and_all_at_once(llm: tilec.LLM) -> None:
    engine, tokens = llm.engine, np.random.default_rng(2).integers(3, 211, 20).tolist()
    engine.reset()
    at_once = np.array(engine.extend(tokens)["logits"])
    engine.reset()
    for token in tokens:
        logits = engine.extend([token])["logits"]
    assert np.abs(logits - at_once).max() < 1e-4


def test_a_seed_gives_the_same_text_again(llm: tilec.LLM) -> None:
    def text(seed: int | None) -> str:
        return llm.generate("w5", tilec.SamplingParams(max_tokens=20, temperature=1.0, seed=seed))[0].text

    assert text(3) == text(3) != text(4)


# Sampling -------------------------------------------------------------------------------------------------------------

SAMPLED = tilec.SamplingParams(max_tokens=30, temperature=1.0, top_k=40, top_p=0.95, min_p=0.001, seed=11)


def sampled(engine: Engine, prompt: list[int], params: tilec.SamplingParams = SAMPLED) -> list[int]:
    engine.reset()
    return list(engine.generate(prompt, params))


@pytest.fixture(scope="module")
def by_host(llm: tilec.LLM) -> Engine:
    """The same model without the entry point that draws."""
    manifest = llm.artifact.manifest
    entries = {name: entry for name, entry in manifest.entries.items() if name != "sample"}
    artifact = replace(llm.artifact, manifest=replace(manifest, entries=entries))
    return Engine(CpuProgram(artifact, load_weights(manifest, llm._read, 1), 1))


@pytest.mark.parametrize("prompt", [PROMPT, [5]], ids=["three tokens", "one token"])
@pytest.mark.parametrize("params", [SAMPLED, replace(SAMPLED, top_k=0, top_p=1.0, min_p=0.0, temperature=0.7, seed=-5)])
def test_a_program_draws_the_tokens_that_the_host_draws(
    llm: tilec.LLM, by_host: Engine, prompt: list[int], params: tilec.SamplingParams
) -> None:
    tokens = sampled(llm.engine, prompt, params)
    assert tokens == sampled(by_host, prompt, params) and len(set(tokens)) > 5


def test_drawing_is_a_step_of_its_program(llm: tilec.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the prompt's logits come to the host, and what a step asks for are a token and a position."""
    calls = []
    run = llm.engine.program.run

    def recorded(entry: str, arguments: object, symbols: object, fetch: object = None) -> dict:
        calls.append((entry, fetch))
        return run(entry, arguments, symbols, fetch)  # type: ignore[arg-type]

    monkeypatch.setattr(llm.engine.program, "run", recorded)
    sampled(llm.engine, PROMPT)
    assert calls[0] == ("prefill", ("logits", "position"))
    assert calls[1:] == [("sample", ("token", "position"))] * (SAMPLED.max_tokens - 1)


def test_a_step_that_draws_feeds_the_next_as_decoding_does(llm: tilec.LLM) -> None:
    entries = llm.artifact.manifest.entries
    assert entries["sample"].feedback == entries["decode"].feedback == {"token": "tokens", "position": "symbol:past"}


def test_temperature_zero_on_the_device_is_greedy(llm: tilec.LLM) -> None:
    """A temperature that is zero in f32 takes the way of sampling."""
    tokens = sampled(llm.engine, PROMPT, tilec.SamplingParams(max_tokens=20, temperature=1e-60))
    assert tokens == sampled(llm.engine, PROMPT, greedy(20))


def test_a_stop_token_ends_what_is_drawn(llm: tilec.LLM) -> None:
    tokens = sampled(llm.engine, PROMPT)
    for last in (tokens[0], tokens[9]):
        llm.engine.reset()
        assert list(llm.engine.generate(PROMPT, SAMPLED, [last])) == tokens[:tokens.index(last)]


def test_drawing_ends_where_the_context_is_full(llm: tilec.LLM) -> None:
    tokens = sampled(llm.engine, PROMPT, replace(SAMPLED, max_tokens=1000))
    assert (len(PROMPT) + len(tokens), llm.engine.length) == (CONTEXT + 1, CONTEXT)


def test_what_is_drawn_does_not_depend_on_threads_or_on_what_ran_before(model: Path, llm: tilec.LLM) -> None:
    tokens = sampled(llm.engine, PROMPT)
    other = tilec.LLM(model, target="cpu", dtype="f32", context=CONTEXT, threads=3, cache=False)
    sampled(other.engine, [9, 8, 7], replace(SAMPLED, seed=None))
    assert sampled(other.engine, PROMPT) == tokens
    other.close()


# Stop strings ---------------------------------------------------------------------------------------------------------


def streamed(stops: Iterable[str], pieces: Iterable[str]) -> tuple[list[str], bool]:
    """What a stream lets through of pieces of text, and whether a stop string ended it."""
    filter_ = _StopStrings(list(stops))
    out = []
    for piece in pieces:
        out.append(filter_.push(piece))
        if filter_.hit:
            break
    out.append(filter_.flush())
    return [o for o in out if o], filter_.hit


@pytest.mark.parametrize(
    ("stops", "pieces", "expected"),
    [
        (["END"], ["a", "b END c"], "ab "),
        (["END"], ["a E", "N", "D b"], "a "),  # over three pieces
        (["END"], ["END"], ""),
        (["END"], ["a E", "N", "Z"], "a ENZ"),  # only looked like it
        (["END"], ["a EN"], "a EN"),  # held back, and let go at the end
        (["aab"], ["a", "a", "a", "b", "c"], "a"),  # begins again inside itself
        (["xy", "abc"], ["1ab", "c2", "xy"], "1"),  # whichever comes first
        (["b", "abc"], ["ab", "c"], "a"),  # the shorter one is complete before
        (["\n\n"], ["one\n", "\ntwo"], "one"),
        (["é"], ["caf", "é!"], "caf"),
        ([""], ["a", "b"], "ab"),  # means nothing
        ([], ["a", "b"], "ab"),
    ],
)
def test_text_ends_before_a_stop_string_however_it_is_cut(stops: list[str], pieces: list[str], expected: str) -> None:
    out, hit = streamed(stops, pieces)
    assert "".join(out) == expected
    assert hit == any(s and s in "".join(pieces) for s in stops)


def test_text_that_cannot_begin_a_stop_string_is_not_held_back() -> None:
    filter_ = _StopStrings(["END"])
    assert [filter_.push(p) for p in ("abc", "dE", "fN", "EN")] == ["abc", "d", "EfN", ""]


def test_a_stop_string_over_several_tokens_ends_a_completion(llm: tilec.LLM) -> None:
    free = llm.complete(PROMPT, greedy(16))
    # The words of the test models are written without a space: the end of one and the beginning of the next.
    pieces = list(llm.stream_tokens(PROMPT, greedy(16), Completion("")))
    at = free.text.index(pieces[5][-1] + pieces[6][:2], len("".join(pieces[:5])))
    stop = free.text[at:at + 3]
    at = free.text.index(stop)
    completion = Completion("")
    streamed_text = "".join(llm.stream_tokens(PROMPT, tilec.SamplingParams(max_tokens=16, stop=(stop,)), completion))
    assert streamed_text == completion.text == free.text[:at]
    assert completion.finish == "stop" and len(completion.tokens) < 16


@pytest.mark.parametrize(
    ("tokens", "pieces"),
    [
        (1, ["decode"]),
        (128, ["prefill 128"]),
        (129, ["prefill_512 129"]),
        (513, ["prefill_2048 513"]),
        (2304, ["prefill_2048 2048", "prefill_512 256"]),
        (2049, ["prefill_2048 2048", "decode"]),
        (5000, ["prefill_2048 2048", "prefill_2048 2048", "prefill_2048 904"]),
    ],
)
def test_a_prompt_is_taken_in_the_largest_pieces_that_there_are(tokens: int, pieces: list[str]) -> None:
    taken = []

    class Recorder:
        manifest = Manifest(
            "sm_90a",
            "gpu",
            {"seq": (1, 128), "past": (0, 8191), "seq_2048": (1, 2048), "seq_512": (1, 512)},
            {},
            {},
            {},
            dict.fromkeys(("decode", "prefill_512", "prefill", "prefill_2048"), Entry([], [], {}, {}, 0)),
            {"vocab_size": 10},
        )

        def run(self, entry: str, arguments: Any, symbols: Mapping[str, int], fetch: Any = None) -> dict[str, np.ndarray]:
            length = {k: v for k, v in symbols.items() if k != "past"}
            assert len(arguments["tokens"]) == next(iter(length.values()), 1)
            taken.append(" ".join([entry, *(str(v) for v in length.values())]))
            return {}

        def close(self) -> None: ...

    engine = Engine(Recorder())
    engine.extend([3] * tokens)
    assert taken == pieces and engine.length == tokens
