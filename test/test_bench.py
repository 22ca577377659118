"""The benchmarks without a GPU: what they measure is right, and everything around it runs, on a simulated driver."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilec.errors import TargetError, UnsupportedError
from tilec.model_compiler import compile_model
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.targets import find_target
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.cuda import CudaProgram, find_gpu
from tilec.runtime.cuda_replay import Replay
from tilec.runtime.weights import pack
from tilec.tools.bench import BENCHMARKS, attention, harness, matmul, matvec, models, torch_side
from tilec.tools.cli import main

from .fake_cuda import FakeDriver, FakeTorch

TINY = replace(models.MODELS["llama-3.2-1b"], vocab_size=96, hidden_size=64, intermediate_size=96, layers=1, heads=4,
               kv_heads=2, head_dim=16, max_context=128, tied_embeddings=False)
CASES: dict[str, Callable[[], harness.Case]] = {
    "matvec": lambda: matvec.case(48, 64),
    "matmul, bf16": lambda: matmul.case(16, 32, 64, "bf16"),
    "matmul, f32": lambda: matmul.case(16, 32, 64, "f32"),
    "matmul, symbolic": lambda: matmul.case(17, 32, 64, "f16", symbolic=True),
    "attention, causal": lambda: attention.case(24, 16, True, 4, 2),
    "attention, full": lambda: attention.case(24, 16, False, 4, 2),
}
COMMANDS = {
    "matvec": ["--shape", "48x64", "--turns", "1"],
    "matmul": ["--shape", "16x32x64", "--turns", "1", "--without", "tilec-cse"],
    "attention": ["--length", "24", "--width", "16", "--heads", "4", "--kv-heads", "2", "--turns", "1"],
    "prefill": ["--model", "tiny", "--tokens", "5", "--turns", "1", "--dtype", "tf32"],
    "decode": ["--model", "tiny", "--repeats", "6", "--context", "4", "--batch", "3"],
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A simulated GPU, no torch beside it, few repeats; afterwards nothing may be left on it."""
    driver = FakeDriver()
    monkeypatch.setattr("tilec.runtime.cuda._driver", lambda: driver)
    monkeypatch.setattr(torch_side, "find_torch", lambda: None)
    monkeypatch.setattr(harness, "ROTATION", 1)
    monkeypatch.setattr(harness, "TURN_MS", 1.0)
    monkeypatch.setitem(models.MODELS, "tiny", TINY)
    yield driver
    assert not driver.live and not driver.events


# The command --------------------------------------------------------------------------------------------------------


def test_bench_alone_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in BENCHMARKS:
        assert any(line.startswith(f"tilec bench {name} ") for line in lines)
        assert callable(importlib.import_module(f"tilec.tools.bench.{name}").main)


@pytest.mark.parametrize("arguments", [
    ["nothing"], ["matmul", "--shape", "3x4"], ["matvec", "--shape", "0x4"], ["attention", "--length", "x"],
    ["decode", "--model", "gpt-2"], ["decode", "--torch", "--batch", "2"], ["matvec", "--without", "primop-fuse"], ["plot"]])
def test_what_is_not_understood_shows_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench", *arguments])
    assert stop.value.code == 2 and "usage: tilec bench" in capsys.readouterr().err


@pytest.mark.skipif(find_gpu() is not None, reason="this machine has a GPU")
@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_gpu_a_benchmark_says_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", name]) == 1
    assert f"the {name} benchmark needs an NVIDIA GPU" in capsys.readouterr().err


@pytest.mark.parametrize(("dtype", "error"), [("f32", 1e-5), ("tf32", 1e-2)])
def test_only_tf32_multiplies_f32_by_tensor_cores(dtype: str, error: float, gpu: FakeDriver) -> None:
    case = matmul.case(40, 64, 160, dtype)
    row = harness.measure(case, "sm_90a", 1)
    assert row["ms"] and row["dtype"] == dtype and (row["error"] < 1e-5) == (dtype == "f32") and row["error"] < error
    theirs, arrays = case.torch["matmul"], case.inputs(0)
    index, exact = case.exact(arrays)
    got = theirs({n: torch_side.to_torch(a, "cpu") for n, a in arrays.items()})
    assert harness.error_of(got.double().numpy()[index], exact) < 1e-2


# What is measured ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_what_is_measured_is_what_it_is_compared_with(name: str) -> None:
    """Ours on the CPU, torch and float64 agree on the inputs of a case."""
    case = CASES[name]()
    arrays = case.inputs(1)
    index, exact = case.exact(arrays)
    artifact = compile_module(case.graph.module, find_target("cpu"), {})
    cpu = CpuProgram(artifact, ((n, pack(arrays[n], w)) for n, w in artifact.manifest.weights.items()), 1)
    result = np.array(cpu.run("main", arrays, case.symbols)[case.output])
    cpu.close()
    assert harness.error_of(harness.as_float64(result, case.dtype)[index], exact) < harness.LIMITS[case.dtype] / 2
    calls = {"math": attention._torch_call("math", "causal" in name)} if name.startswith("attention") else case.torch
    for call in calls.values():
        theirs = call({n: torch_side.to_torch(a, "cpu") for n, a in arrays.items()})
        assert harness.error_of(theirs.double().numpy()[index], exact) < harness.LIMITS[case.dtype] / 2


FULL = {
    **{f"matvec {n}x{k}": functools.partial(matvec.case, n, k) for n, k in matvec.SHAPES},
    **{f"matmul {d} {s}": functools.partial(matmul.case, *s, d) for d, shapes in matmul.SHAPES.items() for s in shapes},
    **{f"attention {s} {d} {c}": functools.partial(attention.case, s, d, c)
       for s in attention.LENGTHS for d in attention.WIDTHS for c in (True, False)},
}


@pytest.mark.parametrize("name", FULL)
def test_every_row_compiles_at_its_true_size(name: str) -> None:
    try:
        assert compile_module(FULL[name]().graph.module, find_target("sm_90a"), {}).files
    except UnsupportedError as error:  # whose scores are too many to be kept in memory
        assert name.startswith("attention 8192 ") and "32-bit offsets" in str(error)


@pytest.mark.parametrize("name", models.MODELS)
def test_a_layer_of_every_model_compiles_at_its_true_size(name: str) -> None:
    config = replace(models.MODELS[name], layers=1)
    assert compile_model(config, "sm_90a", "bf16", 512, entries=("decode",)).manifest.entries["decode"].launches


def test_sizes_of_models_are_those_of_their_names() -> None:
    billions = {n: sum(models.matrix_elements(c)) / 1e9 * 1.0 for n, c in models.MODELS.items()}
    expected = {"llama-3.2-1b": 1.24, "tinyllama-1.1b": 1.03, "llama-3.1-8b": 7.50, "qwen2.5-7b": 7.07,
                "gemma-3-4b-shape": 3.88}
    assert billions == pytest.approx(expected, rel=0.01)


# Running them -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_runs_and_writes_a_record(name: str, gpu: FakeDriver, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "record.json"
    assert main(["bench", name, *COMMANDS[name], "--json", str(path)]) == 0
    record = json.loads(path.read_text())
    assert record["benchmark"] == name and record["device"] == "a simulated GPU" and record["target"] == "sm_90a"
    for row in record["results"]:
        assert "wrong" not in row and (row.get("ms") or row["ms_per_token"]) > 0
        assert row.get("error", 0.0) < harness.LIMITS[row["dtype"]]
    table = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert len(table) == 1 + len(record["results"]) and len(set(map(len, table))) == 1


def test_sets_have_memory_of_their_own_that_is_nan_until_they_run(gpu: FakeDriver) -> None:
    case = CASES["matmul, f32"]()
    sets = [case.inputs(i) for i in range(3)]
    program = CudaProgram(compile_module(case.graph.module, find_target("sm_90a"), {}), [("b", sets[0]["b"])])
    replay = Replay(program, "main", sets, {})
    poisoned = [gpu.memory.read(p.memory[p.entry.results["c"]], (16, 32), np.float32) for p in replay._prepared]
    assert np.isnan(poisoned).all()
    for arrays, result in zip(sets, replay.run(), strict=True):
        np.testing.assert_allclose(result["c"], arrays["a"] @ arrays["b"].T, rtol=1e-4, atol=1e-4)
    replay.capture(2)
    before = gpu.launches
    assert replay.time(5) == [1.0 / 6] * 5  # the driver's millisecond over three sets twice
    assert gpu.launches - before == 6 * 6
    with pytest.raises(ValueError, match="must have shape"):
        Replay(program, "main", [{**sets[0], "b": sets[0]["a"]}], {})
    replay.close()
    program.close()


def test_a_wrong_result_is_reported_and_not_timed(gpu: FakeDriver) -> None:
    case = CASES["matvec"]()
    exact = case.exact
    wrong = replace(case, exact=lambda arrays: (exact(arrays)[0], exact(arrays)[1] + 1.0))
    row = harness.measure(wrong, "sm_90a", 1)
    assert row["wrong"] and row["ms"] is None and row["error"] > 0.1 and gpu.graphs == 0


@pytest.mark.parametrize("place", ["compile_module", "Replay"])
@pytest.mark.parametrize("error", [TargetError("too much\nof it"), PassFailure("too much")])
def test_what_cannot_run_has_the_reason(place: str, error: Exception, gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(harness, place, fail)
    row = harness.measure(CASES["matvec"](), "sm_90a", 1)
    assert row["failed"].startswith("too much") and row["ms"] is None


def test_ours_and_torch_are_compared_in_turns(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_side, "find_torch", lambda fake=FakeTorch(): fake)
    monkeypatch.setattr(torch_side, "to_torch", functools.partial(torch_side.to_torch, device="cpu"))

    def missing(tensors: object) -> None:
        raise RuntimeError("No available kernel.")

    row = harness.measure(replace(case := CASES["matmul, bf16"](), torch={"missing": missing, **case.torch}), "sm_90a", 2)
    assert row["torch_by"] == "matmul" and row["torch_ms"] == pytest.approx(0.5 / 8) and row["ms"] == pytest.approx(1 / 4)
    assert row["ratio"] == pytest.approx(0.25) and row["torch_error"] < 0.05
