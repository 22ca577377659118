"""The command `tilec`: what it prints, and that a mistake is one sentence, exit code 1, and nothing half-written."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tilec.llm import DTYPES, X86_LEVELS, choose_dtype
from tilec.pipelines.targets import host_cpu
from tilec.runtime.cuda import find_gpu
from tilec.tools.cli import main

from .models import write_llama
from .test_checkpoints import GGUF, Q4_K, gguf_bytes, tiny_tensors

CONTEXT = "64"


@dataclass
class Result:
    """What a run of the command line left."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of this file's own, shared by its tests."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEC_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("models") / "tiny", num_hidden_layers=1, eos_token_id=[])


@pytest.fixture(scope="module")
def artifact(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifacts") / "cpu"
    assert main(["compile", str(model), "-o", str(folder), "--target", "cpu", "--context", CONTEXT]) == 0
    return folder


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs the command line in this process."""

    def run(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        return Result(code, *capfd.readouterr())

    return run


@pytest.fixture
def generate(cli: Cli, model: Path) -> Cli:
    """`tilec generate` on the tiny model; one compilation serves all tests, from the cache."""

    def run(prompt: str, *options: object, stdin: bytes = b"") -> Result:
        return cli("generate", model, prompt, "--target", "cpu", "--context", CONTEXT, *options, stdin=stdin)

    return run


def start(*arguments: object, **options: object) -> subprocess.Popen[str]:
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "tilec.tools.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def report(result: Result) -> dict:
    assert result.code == 0, result.err
    return json.loads(result.out)


def assert_refused(result: Result, *said: str) -> None:
    """Exit code 1, nothing on stdout, and one sentence on stderr that says `said`."""
    lines = [line for line in result.err.splitlines() if not line.startswith("compiling for ")]
    assert (result.code, result.out, len(lines)) == (1, "", 1), result
    assert lines[0].startswith("tilec: ")
    assert len(lines[0]) < 600
    for part in said:
        assert part in lines[0]


# Models that cannot be run --------------------------------------------------------------------------------------------


def broken(name: str, folder: Path) -> Path:
    """A model with one fault."""
    generator = np.random.default_rng(0)
    tensors = list(tiny_tensors(generator))
    path = folder / f"{name}.gguf"
    match name:
        case "not a gguf":
            path.write_bytes(b"#!/bin/sh\n" * 10)
        case "empty":
            path.write_bytes(b"")
        case "truncated gguf":
            path.write_bytes(gguf_bytes(GGUF, tensors)[:-2000])
        case "architecture":
            metadata = {key.replace("llama.", "mamba."): value for key, value in GGUF.items()}
            path.write_bytes(gguf_bytes({**metadata, "general.architecture": "mamba"}, tensors))
        case "rope":
            path.write_bytes(gguf_bytes({**GGUF, "llama.rope.scaling.type": "yarn"}, tensors))
        case "quantisation":
            spoiled = [(n, Q4_K if k else k, s, bytes(-(-len(raw) // 144) * 144)) for n, k, s, raw in tensors]
            path.write_bytes(gguf_bytes(GGUF, spoiled))
        case _:
            return broken_folder(name, folder)
    return path


def broken_folder(name: str, folder: Path) -> Path:
    path = write_llama(folder / "model", num_hidden_layers=1)
    weights, config = path / "model.safetensors", path / "config.json"
    tensors, settings = load_file(weights), json.loads(config.read_text())
    match name:
        case "no config":
            config.unlink()
        case "damaged config":
            config.write_text("{")
        case "folder architecture":
            config.write_text(json.dumps({**settings, "model_type": "qwen3"}))
        case "folder rope":
            config.write_text(json.dumps({**settings, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}))
        case "no weights":
            weights.unlink()
        case "truncated weights":
            weights.write_bytes(weights.read_bytes()[:-1000])
        case "lying weights":
            weights.write_bytes(struct.pack("<Q", 1 << 60) + weights.read_bytes()[8:])
        case "missing tensor":
            del tensors["model.layers.0.mlp.up_proj.weight"]
            save_file(tensors, weights)
        case "spare tensor":
            save_file({**tensors, "model.layers.0.self_attn.q_proj.bias": np.zeros(9, np.float32)}, weights)
        case "misshapen tensor":
            save_file({**tensors, "model.norm.weight": np.zeros(71, np.float32)}, weights)
        case "no tokenizer":
            (path / "tokenizer.json").unlink()
        case _:
            raise AssertionError(name)
    return path


FAULTS = {
    "not a gguf": ("not a GGUF file",),
    "empty": ("the file is empty",),
    "truncated gguf": (".gguf: ",),
    "architecture": ("'mamba'", "not supported"),
    "rope": ("yarn", "not supported"),
    "quantisation": ("Q4_K", "not supported"),
    "no config": ("no config.json",),
    "damaged config": ("config.json", "not JSON"),
    "folder architecture": ("'qwen3'", "not supported"),
    "folder rope": ("yarn", "not supported"),
    "no weights": ("no *.safetensors",),
    "truncated weights": ("model.safetensors",),
    "lying weights": ("model.safetensors",),
    "missing tensor": ("'model.layers.0.mlp.up_proj.weight'", "is missing"),
    "spare tensor": ("'model.layers.0.self_attn.q_proj.bias'", "has no place"),
    "misshapen tensor": ("need shape [72] for tensor 'model.norm.weight'", "[71]"),
}


@pytest.mark.parametrize("command", ["generate", "compile"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_model_with_a_fault_is_refused_by_what_is_wrong(cli: Cli, tmp_path: Path, fault: str, command: str) -> None:
    path = broken(fault, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    rest = ["hello"] if command == "generate" else ["-o", tmp_path / "artifact"]
    assert_refused(cli(command, path, *rest), *FAULTS[fault])
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_without_a_tokenizer_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert_refused(cli("generate", broken("no tokenizer", tmp_path), "w1", "--context", CONTEXT), "no tokenizer.json")


def test_a_model_that_is_not_there_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert_refused(cli("generate", tmp_path / "none.gguf", "hello"), "none.gguf: no such file or folder",
                   "smollm2-135m-instruct")
    assert_refused(cli("generate", "smollm2-135m-instruct", "hello"), "run `tilec pull smollm2-135m-instruct`")
    assert_refused(cli("pull", "gpt-5"), "gpt-5: no model of that name", "smollm2-135m-instruct")


def test_weights_given_without_their_folder_are_refused_with_what_to_give(cli: Cli, model: Path) -> None:
    assert_refused(cli("generate", model / "model.safetensors", "hello"), "give the folder")


# Requests that cannot be met ------------------------------------------------------------------------------------------


def test_a_prompt_longer_than_the_context_is_refused(generate: Cli) -> None:
    assert_refused(generate("w1 " * 64), "the prompt has 64 tokens, and the context holds 64", "--context")


def test_a_context_beyond_the_models_is_refused(cli: Cli, model: Path) -> None:
    assert_refused(cli("generate", model, "w1", "--context", 10**6), "contexts of 1 to 512 tokens, but 1000000")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-tokens", "0"], "max_tokens must be at least 1"),
        (["--temperature", "-1"], "temperature must be 0 or more"),
        (["--temperature", "nan"], "temperature must be 0 or more, but is nan"),
        (["--top-k", "-2"], "top_k must be 0"),
        (["--top-p", "0"], "top_p must be above 0"),
        (["--min-p", "2"], "min_p must be between 0 and 1"),
        (["--threads", "0"], "threads must be between 1 and 1024"),
        (["--target", "sm_1"], "unknown target 'sm_1'"),
        (["--context", "0"], "contexts of 1 to 512"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(cli: Cli, model: Path, options: list[str], said: str) -> None:
    assert_refused(cli("generate", model, "w1", *options), said)


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["generate"], ["generate", "m"], ["compile", "m"], ["fly"], ["generate", "m", "p", "--max-tokens", "many"],
        ["generate", "m", "p", "--dtype", "f64"], ["generate", "m", "p", "--no-such-option"],
    ],
    ids=" ".join,
)
def test_a_command_that_is_not_understood_shows_its_usage(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("usage: tilec") and "error: " in result.err.splitlines()[-1]


def test_an_empty_prompt_is_refused(generate: Cli) -> None:
    assert_refused(generate(""), "the prompt is empty")
    assert_refused(generate("-", stdin=b"\n"), "the prompt is empty")


def test_a_prompt_that_is_not_text_is_refused(generate: Cli) -> None:
    assert_refused(generate("-", stdin=b"w1 \xff\xfe"), "not UTF-8")


@pytest.mark.skipif(find_gpu() is not None, reason="this machine has a GPU")
def test_a_gpu_target_without_a_gpu_is_refused_before_anything_is_compiled(cli: Cli, model: Path) -> None:
    assert_refused(cli("generate", model, "w1", "--target", "sm_90a"), "needs an NVIDIA GPU", "use --target cpu")


def test_code_that_this_machine_cannot_run_is_refused_and_not_tried(cli: Cli, model: Path, tmp_path: Path) -> None:
    foreign = "aarch64" if os.uname().machine == "x86_64" else "x86-64"
    assert_refused(cli("generate", model, "w1", "--target", foreign), f"cannot run code for {foreign}")
    assert cli("compile", model, "-o", tmp_path / "foreign", "--target", foreign, "--context", CONTEXT).code == 0
    assert_refused(cli("generate", model, "w1", "--artifact", tmp_path / "foreign"), f"cannot run code for {foreign}")


# Artifacts ------------------------------------------------------------------------------------------------------------


def test_compile_verbosely_says_how_every_kernel_is_scheduled(cli: Cli, model: Path, tmp_path: Path) -> None:
    done = cli("compile", model, "--target", "sm_90a", "-o", tmp_path / "made", "-v")
    assert done.code == 0, done.err
    names = json.loads((tmp_path / "made" / "manifest.json").read_text())["kernels"]
    said = {line.split(":")[0] for line in done.out.splitlines()}
    assert {n for n in names if "_and_" not in n} <= said  # those of a merged launch are said one by one


def test_compile_says_what_it_wrote_and_the_artifact_runs(cli: Cli, model: Path, tmp_path: Path) -> None:
    result = cli("compile", model, "-o", tmp_path / "a", "--target", "cpu", "--dtype", "f32", "--context", CONTEXT)
    assert (result.code, result.out.startswith(f"{tmp_path / 'a'}: ")) == (0, True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]  # and nothing beside it
    answer = report(cli("generate", model, "w1 w2", "--artifact", tmp_path / "a", "--max-tokens", 3, "--json"))
    assert answer["dtype"] == "f32" and len(answer["tokens"]) == 3


def test_an_artifact_is_replaced_whole(cli: Cli, model: Path, artifact: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(artifact, tmp_path / "a")
    (folder / "kernels" / "left.over").write_text("")
    assert cli("compile", model, "-o", folder, "--target", "cpu", "--context", CONTEXT).code == 0
    assert not (folder / "kernels" / "left.over").exists()


def test_a_folder_with_other_files_is_not_overwritten(cli: Cli, model: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert_refused(cli("compile", model, "-o", tmp_path), "holds other files; name a new folder")
    assert_refused(cli("compile", model, "-o", tmp_path / "thesis.txt"), "is a file; name a new folder")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["years of work"]


def test_a_place_that_cannot_be_written_is_told(cli: Cli, model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(cli("compile", model, "-o", tmp_path / "file" / "a", "--target", "cpu", "--context", CONTEXT),
                   str(tmp_path / "file"))


def damage(artifact: Path, how: str) -> None:
    manifest = artifact / "manifest.json"
    code = next((artifact / "kernels").iterdir())
    match how:
        case "no manifest":
            manifest.unlink()
        case "manifest cut":
            manifest.write_text(manifest.read_text()[:500])
        case "manifest of another kind":
            manifest.write_text("[]")
        case "manifest without entries":
            manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "entries": None}))
        case "another schema":
            manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "schema": 999}))
        case "code changed":
            code.write_bytes(code.read_bytes()[:-1] + b"\0\0")
        case "code missing":
            code.unlink()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no manifest", "is not an artifact"),
        ("manifest cut", "is damaged"),
        ("manifest of another kind", "is damaged"),
        ("manifest without entries", "is damaged"),
        ("another schema", "has schema 999"),
        ("code changed", "is missing or was changed"),
        ("code missing", "is missing or was changed"),
    ],
)
def test_a_damaged_artifact_is_refused(
    cli: Cli, model: Path, artifact: Path, tmp_path: Path, how: str, said: str
) -> None:
    folder = shutil.copytree(artifact, tmp_path / "a")
    damage(folder, how)
    assert_refused(cli("generate", model, "w1", "--artifact", folder), str(folder), said)


def test_an_artifact_that_is_not_there_is_refused(cli: Cli, model: Path, tmp_path: Path) -> None:
    assert_refused(cli("generate", model, "w1", "--artifact", tmp_path / "none"), "is not an artifact", "tilec compile")


def test_an_artifact_of_another_model_is_refused(cli: Cli, artifact: Path, tmp_path: Path) -> None:
    other = write_llama(tmp_path / "other", num_hidden_layers=2)
    assert_refused(cli("generate", other, "w1", "--artifact", artifact), "compiled for another model", "layers")


@pytest.mark.parametrize("options", [["--dtype", "f32"], ["--context", "32"], ["--target", "sm_90a"]], ids=" ".join)
def test_an_artifact_of_another_kind_than_asked_for_is_refused(
    cli: Cli, model: Path, artifact: Path, options: list[str]
) -> None:
    assert_refused(cli("generate", model, "w1", "--artifact", artifact, *options), f"leave out {options[0]}")


@pytest.mark.skipif(find_gpu() is not None, reason="this machine has a GPU")
def test_an_artifact_for_a_gpu_is_refused_where_there_is_none(cli: Cli, model: Path, tmp_path: Path) -> None:
    assert cli("compile", model, "-o", tmp_path / "gpu", "--target", "sm_80", "--context", CONTEXT).code == 0
    assert {p.suffix for p in (tmp_path / "gpu" / "kernels").iterdir()} == {".ptx"}
    assert_refused(cli("generate", model, "w1", "--artifact", tmp_path / "gpu"), "needs an NVIDIA GPU")


def test_a_damaged_artifact_in_the_cache_is_made_again(generate: Cli, cache: Path) -> None:
    first = report(generate("w1 w2", "--dtype", "f16", "--json"))
    for manifest in cache.glob("artifacts/*/manifest.json"):
        manifest.write_text(manifest.read_text()[:1000])
    again = report(generate("w1 w2", "--dtype", "f16", "--json"))
    assert again["compile_seconds"] > 0 and again["tokens"] == first["tokens"]


# Answers --------------------------------------------------------------------------------------------------------------


def test_text_is_printed_and_then_one_line_of_facts(generate: Cli) -> None:
    result = generate("w1 w2 w3", "--max-tokens", 5)
    text, empty, facts = result.out.splitlines()
    assert text.startswith("w") and not empty
    for part in ("[3 prompt tokens at ", "5 tokens at ", " tokens/s on ", "ready after "):
        assert part in facts


def test_json_is_one_object_with_these_keys(generate: Cli) -> None:
    result = generate("w1 w2 w3", "--json", "--max-tokens", 4)
    answer = report(result)
    assert result.out.count("\n") == 1
    kinds = {
        "text": str, "tokens": list, "finish": str, "prompt_tokens": int, "target": str, "dtype": str,
        "prefill_seconds": float, "decode_seconds": float, "tokens_per_second": float, "compile_seconds": (int, float),
        "ready_seconds": float,
    }
    assert {key: isinstance(value, kinds.get(key, ())) for key, value in answer.items()} == dict.fromkeys(kinds, True)
    assert answer["text"] == "".join(f"w{token}" for token in answer["tokens"])
    assert (answer["finish"], answer["prompt_tokens"]) == ("length", 3)
    assert answer["dtype"] == choose_dtype(None, answer["target"])


def test_the_second_start_is_quick_and_compiles_nothing(generate: Cli) -> None:
    generate("w1", "--json", "--max-tokens", 1)
    again = report(generate("w1", "--json", "--max-tokens", 1))
    assert again["compile_seconds"] == 0
    assert again["ready_seconds"] < 2


def test_a_cache_that_cannot_be_written_is_told_and_no_hindrance(
    cli: Cli, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "file"))
    result = cli("generate", model, "w1", "--target", "cpu", "--context", CONTEXT, "--max-tokens", 2, "--json")
    assert len(report(result)["tokens"]) == 2
    assert "cannot be kept" in result.err and str(tmp_path / "file") in result.err


def test_no_cache_compiles_again_and_keeps_nothing(generate: Cli, cache: Path) -> None:
    before = sorted(cache.rglob("*"))
    answer = report(generate("w1", "--json", "--max-tokens", 1, "--no-cache"))
    assert answer["compile_seconds"] > 0 and sorted(cache.rglob("*")) == before


def test_greedy_is_the_default_and_what_temperature_zero_means(generate: Cli) -> None:
    texts = {report(generate("w1 w2", "--json", "--max-tokens", 12, *options))["text"] for options in (
        [], ["--temperature", 0], ["--temperature", 0, "--seed", 5], ["--temperature", 2, "--top-k", 1])}
    assert len(texts) == 1


def test_a_seed_repeats_a_text_and_another_changes_it(generate: Cli) -> None:
    def text(seed: int) -> str:
        return report(generate("w1", "--json", "--max-tokens", 16, "--temperature", 1.5, "--seed", seed))["text"]

    assert text(1) == text(1) != text(2)


def test_max_tokens_and_stop_end_the_text(generate: Cli) -> None:
    free = report(generate("w1 w2", "--json", "--max-tokens", 12))
    assert len(free["tokens"]) == 12
    stop = f"w{free['tokens'][6]}"
    stopped = report(generate("w1 w2", "--json", "--max-tokens", 12, "--stop", "never", "--stop", stop))
    assert stopped["text"] == free["text"][:free["text"].index(stop)]
    assert stopped["finish"] == "stop"


def test_the_context_ends_the_text(generate: Cli) -> None:
    answer = report(generate("w1 " * 60, "--json", "--max-tokens", 100))
    assert (answer["finish"], answer["prompt_tokens"] + len(answer["tokens"])) == ("context", 65)


def test_the_prompt_may_come_from_standard_input(generate: Cli) -> None:
    options = ("--json", "--max-tokens", 6)
    piped = report(generate("-", *options, stdin=b"w1 w2\n"))
    assert piped["tokens"] == report(generate("w1 w2", *options))["tokens"]


def test_the_chat_template_is_used_unless_the_text_is_raw(cli: Cli, model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model, tmp_path / "chat")
    template = "{% for m in messages %}w9 {{ m.content }} {% endfor %}w8"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))

    def prompt_tokens(*options: str) -> int:
        return report(cli("generate", folder, "w1 w2", "--target", "cpu", "--context", CONTEXT, "--max-tokens", 1,
                          "--json", *options))["prompt_tokens"]

    assert [prompt_tokens(), prompt_tokens("--raw"), prompt_tokens("--system", "w5")] == [4, 2, 6]


@pytest.mark.parametrize("command", ["generate", "compile", "tune"])
def test_tf32_is_refused_on_a_cpu(cli: Cli, model: Path, tmp_path: Path, command: str) -> None:
    more = {"generate": ["w1"], "compile": ["-o", tmp_path / "made"], "tune": []}[command]
    result = cli(command, model, *more, "--target", "cpu", "--dtype", "tf32")
    assert_refused(result, f"dtype tf32 needs the tensor cores of a GPU, and {host_cpu().name} is a CPU; use f32")


def test_tf32_can_be_compiled_for_a_gpu_that_is_not_here(cli: Cli, model: Path, tmp_path: Path) -> None:
    result = cli("compile", model, "-o", tmp_path / "made", "--target", "sm_86", "--dtype", "tf32", "--context", CONTEXT)
    assert result.code == 0, result.err
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text())
    assert manifest["model"]["dtype"] == "tf32" and {w["dtype"] for w in manifest["weights"].values()} == {"f32"}


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "tf32"])
def test_every_dtype_answers(generate: Cli, dtype: str) -> None:
    if dtype == "bf16" and not host_cpu().bf16_dot:
        pytest.skip("this machine's CPU does not compute in bf16")
    assert report(generate("w1 w2", "--json", "--max-tokens", 2, "--dtype", dtype))["dtype"] == dtype


@pytest.mark.parametrize("level", X86_LEVELS)
def test_every_cpu_level_that_this_machine_runs_gives_the_same_text(cli: Cli, model: Path, level: str) -> None:
    host = host_cpu().name
    if host not in X86_LEVELS or X86_LEVELS.index(level) < X86_LEVELS.index(host):
        pytest.skip(f"this machine cannot run code for {level}")

    def text(target: str, *dtype: str) -> str:
        return report(cli("generate", model, "w1 w2", "--target", target, "--context", CONTEXT, "--json",
                          "--max-tokens", 12, *dtype))["text"]

    assert text(level, "--dtype", "f32") == text("cpu", "--dtype", "f32")
    for dtype in ("bf16", "f16"):
        assert text(level, "--dtype", dtype)


def test_the_number_of_threads_does_not_change_the_answer(generate: Cli) -> None:
    texts = {report(generate("w1 w2", "--json", "--max-tokens", 20, "--threads", n))["text"] for n in (1, 2, 3)}
    assert len(texts) == 1


def test_version_and_help_are_printed(cli: Cli) -> None:
    assert cli("--version").out.startswith("tilec 0.")
    assert "--temperature" in cli("generate", "--help").out


# Leaving --------------------------------------------------------------------------------------------------------------


def test_an_interrupt_while_answering_leaves_cleanly(tmp_path: Path) -> None:
    model = write_llama(tmp_path / "long", num_hidden_layers=1, eos_token_id=[], max_position_embeddings=30000)
    process = start("generate", model, "w1", "--target", "cpu", "--context", 30000, "--max-tokens", 30000)
    assert process.stdout is not None and process.stdout.read(2)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "tilec: interrupted" and "Traceback" not in err and "prompt tokens" not in out
    assert time.monotonic() - began < 20


def test_an_interrupt_while_compiling_writes_nothing(model: Path, tmp_path: Path) -> None:
    process = start("compile", model, "-o", tmp_path / "a", "--target", "cpu", "--context", 63)
    assert process.stderr is not None and process.stderr.readline().startswith("compiling for ")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.split()) == (130, ["tilec:", "interrupted"])
    assert list(tmp_path.iterdir()) == []


def test_a_reader_who_leaves_is_no_error(generate: Cli, model: Path) -> None:
    generate("w1", "--max-tokens", 1)  # compiled
    process = start("generate", model, "w1", "--target", "cpu", "--context", CONTEXT, "--max-tokens", 60)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 141


def test_an_error_reaches_the_shell_as_one_line(tmp_path: Path) -> None:
    process = start("generate", tmp_path / "none", "hello")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count("\n")) == (1, "", 1)


def installed(command: str) -> Sequence[str] | None:
    path = Path(sys.executable).parent / command
    return [str(path)] if path.exists() else None


@pytest.mark.skipif(installed("tilec") is None, reason="tilec is not installed beside this interpreter")
@pytest.mark.parametrize("command", ["tilec", "tilec-opt"])
def test_the_commands_are_installed(command: str) -> None:
    assert subprocess.run([*(installed(command) or ()), "--help"], capture_output=True, check=True).stdout
