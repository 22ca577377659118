"""`tilec tune`: what is measured is right, what it records is honoured or refused, and what dies of it is survived."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlir import ir

from tilec.dialects import core, primop
from tilec.errors import TilecError
from tilec.frontend.checkpoints import open_checkpoint
from tilec.llm import _key, choose_dtype, recording_path
from tilec.model_compiler import record_for
from tilec.pipelines.compiler import compile_kernels
from tilec.pipelines.cost_model import candidates, choose_schedule, key_of
from tilec.pipelines.passes import module_text, run_pipeline
from tilec.pipelines.pipeline import fused_pipeline, tile_pipeline
from tilec.pipelines.primop.outline import functions
from tilec.pipelines.primop.structure import analyse
from tilec.pipelines.recording import Choice, Measured, Recording, RecordingError, kernel_key
from tilec.pipelines.targets import find_target, host_cpu
from tilec.runtime import cpu_replay
from tilec.runtime.cpu import CpuProgram
from tilec.tools.bench import harness, models
from tilec.tools.cli import main
from tilec.tools.tune import child, command, exact, program

from .models import write_llama

ROOT = Path(__file__).resolve().parent.parent
TINY = replace(models.MODELS["llama-3.2-1b"], vocab_size=96, hidden_size=64, intermediate_size=96, layers=1, heads=4,
               kv_heads=2, head_dim=16, max_context=128, tied_embeddings=False)
QUICK = """
import sys
sys.path.insert(0, {root!r})
from tilec.tools.bench import harness
from tilec.tools.tune import child
harness.ROTATION, harness.TURN_MS, harness.REPLAY_MS, child.TURNS = 1, 1.0, 0.1, 1
"""
SIMULATED = """
from test.fake_cuda import FakeDriver
import tilec.runtime.cuda
driver = FakeDriver()
tilec.runtime.cuda._driver = lambda: driver
"""
# A child that measures nothing: candidate 1 ends it, 2 hangs, 3 is wrong.
DYING = """
import json, os, sys, time
numbers = json.load(sys.stdin)["schedules"]
def say(**line): print(json.dumps(line), flush=True)
for number in map(int, numbers):
    say(at=number)
    if number == 1: os.abort()
    if number == 2: time.sleep(60)
    if number == 3: say(failed=3, why="its result is wrong (error 0.5)")
say(us={n: 10.0 - 2 * int(n) for n in numbers if n != "3"}, fastest=max(int(n) for n in numbers if n != "3"))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def children(monkeypatch: pytest.MonkeyPatch, *code: str) -> None:
    """Lets measuring processes run other code than theirs."""
    monkeypatch.setattr(command, "CHILD", [sys.executable, "-c", "".join(code).format(root=str(ROOT)) + "\nchild.main()"])


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Measures these kernels of a model alone."""
    monkeypatch.setattr(command, "kernels_of", lambda *given: [k for k in program.kernels_of(*given) if k.name in names])


def request(target: str = "cpu", dtype: str = "bf16", context: int = 64, batch: int = 1) -> program.Request:
    return program.Request(TINY, find_target(target).name, dtype, context, batch)


def kernels(target: str = "cpu", context: int = 64, dtype: str = "bf16", best: int = 4) -> dict[str, program.Kernel]:
    return {k.name: k for k in program.kernels_of(request(target, dtype, context), best)}


def job(kernel: program.Kernel, target: str = "cpu") -> dict[str, Any]:
    return {"program": kernel.program, "target": find_target(target).name, "symbols": kernel.symbols,
            "schedules": {str(i): s for i, s in enumerate(kernel.schedules)}}


def recording(kernel: program.Kernel, number: int, target: str) -> Recording:
    measured = tuple(Measured(s, c.shape, 1.5) for s, c in zip(kernel.schedules, kernel.candidates, strict=True))
    choice = Choice(kernel.name, kernel.schedules[number], 1.5, measured)
    return Recording("a machine", find_target(target).name, {"mlir": "1", "llvm": "2"}, "2026-11-29", {kernel.key: choice})


# Candidates and keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "names"), [
    ("sm_90a", {"decode_layer_gate_up": " loads by ", "prefill_layer_gate_up": " x ", "decode_layer_attention": "clusters"}),
    ("sm_80", {"decode_layer_gate_up": " loads by ", "prefill_layer_gate_up": " x "}),
    ("x86-64-avx2", {"decode_layer_gate_up": " vectors", "prefill_layer_gate_up": " vectors"}),
])
def test_products_and_attention_have_candidates_and_the_first_is_the_default(target: str, names: dict[str, str]) -> None:
    found = kernels(target, best=99)
    for name, shape in names.items():
        options = found[name].candidates
        assert len(options) > 2 and all(shape in c.shape and c.cycles > 0 for c in options), name
        assert len({c.schedule for c in options}) == len(options)
        assert [c.cycles for c in options[1:]] == sorted(c.cycles for c in options[1:])
        with ir.Context(), ir.Location.unknown():
            core.load_all()
            module = ir.Module.parse(found[name].program)
            function = functions(module.operation, "primop.kernel")[0]
            structure = analyse(function, primop.symbol_ranges(module.operation))
            assert choose_schedule(structure, find_target(target)) == options[0].schedule
            assert [c.schedule for c in candidates(structure, find_target(target), 2)] == [c.schedule for c in options[:2]]
            assert key_of(structure) == found[name].key  # alone as in its model


def test_a_kernel_has_one_key_in_all_models_that_have_it() -> None:
    short, long = kernels(context=64), kernels(context=128)
    assert short["decode_layer_gate_up"].key == long["decode_layer_gate_up"].key
    assert short["prefill_layer_gate_up"].key != long["prefill_layer_gate_up"].key  # up to 64 rows, and up to 128
    text = "func.func private @{}(%arg0: tensor<?xf32> {{primop.shape = affine_map<()[{}] -> ({})>}})"
    one = kernel_key(text.format("a", "s0, s1", "s1"), {"past": (0, 63), "seq": (1, 64)})
    assert one == kernel_key(text.format("b_2", "s0, s1, s2", "s2"), {"long": (1, 99), "past": (0, 7), "tokens": (1, 64)})
    assert one != kernel_key(text.format("a", "s0, s1", "s1"), {"past": (0, 63), "seq": (1, 65)})
    assert one != kernel_key(text.format("a", "s0, s1", "s1 * 2"), {"past": (0, 63), "seq": (1, 64)})


def test_lengths_leave_room_in_the_cache() -> None:
    lengths = {name: k.symbols for name, k in kernels(context=64).items()}
    assert lengths["decode_layer_attention_values_2"] == {"past": 32, "seq": 1}
    assert lengths["prefill_layer_gate_up"] == {"past": 0, "seq": 64}


# Recordings -----------------------------------------------------------------------------------------------------------


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    kernel = kernels()["decode_layer_gate_up"]
    made = recording(kernel, 1, "cpu")
    made.save(tmp_path / "some" / "file.json")
    read = Recording.load(tmp_path / "some" / "file.json")
    assert replace(read, path="") == made and read.digest == made.digest
    assert read.digest != recording(kernel, 0, "cpu").digest
    assert [p.name for p in (tmp_path / "some").iterdir()] == ["file.json"]


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "cpu"])
def test_a_recorded_choice_is_what_the_program_does(target: str, tmp_path: Path) -> None:
    kernel, name = kernels(target, best=2)["prefill_layer_gate_up"], find_target(target).name
    recording(kernel, 1, target).save(tmp_path / "tuned.json")
    for tuned, number in ((str(tmp_path / "tuned.json"), 1), ("", 0)):
        module = record_for(TINY, name, "bf16", 64).module
        with module.context, ir.Location.unknown():
            run_pipeline(module, tile_pipeline(name, tuned))
        text = next(line for line in module_text(module).splitlines() if f"@{kernel.name}(" in line and "tile.schedule" in line)
        assert [s in text for s in kernel.schedules] == [number == 0, number == 1]


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda s: s.replace("axes", "axis"), "the schedule recorded for prefill_layer_gate_up cannot be read"),
    (lambda s: "{" + s, "cannot be read"),
    (lambda s: s.replace("unroll = 1", "unroll = 3"), "is not one that this version of the compiler can give it"),
    (lambda s: s.replace('name = "m"', 'name = "z"'), "is not one that this version"),
])
def test_a_choice_that_no_longer_fits_is_refused(spoil: Callable[[str], str], said: str, tmp_path: Path) -> None:
    kernel = kernels(best=2)["prefill_layer_gate_up"]
    made = recording(kernel, 1, "cpu")
    choice = made.choices[kernel.key]
    replace(made, choices={kernel.key: replace(choice, schedule=spoil(choice.schedule))}).save(tmp_path / "tuned.json")
    with ir.Context(), pytest.raises(RecordingError, match=said) as refused:
        core.load_all()
        compile_kernels(ir.Module.parse(kernel.program), host_cpu(), str(tmp_path / "tuned.json"))
    assert "run `tilec tune` again, or delete the file" in str(refused.value) and "\n" not in str(refused.value)


# Measuring ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "TURNS", 1)
    for name, value in (("ROTATION", 1), ("TURN_MS", 1.0), ("REPLAY_MS", 0.1)):
        monkeypatch.setattr(harness, name, value)


@pytest.mark.parametrize(("dtype", "best"), [("bf16", 3), ("f32", 2)])
def test_candidates_of_all_kernels_of_a_model_are_right_and_measured(dtype: str, best: int, quick: None) -> None:
    for kernel in kernels(dtype=dtype, best=best).values():
        said: list[dict] = []
        child.measure(job(kernel), said.append)
        assert not [line for line in said if "failed" in line], kernel.name
        assert len(said[-1]["us"]) == len(kernel.candidates) and all(us > 0 for us in said[-1]["us"].values())


@pytest.mark.parametrize("name", ["decode_layer_cache", "prefill_layer_gate_up", "prefill_layer_attention_values_2"])
def test_what_is_wrong_is_not_measured(name: str, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(exact.MEANINGS, primop.Mul, lambda a, b: a * b * 1.2)  # then our results are too small
    said: list[dict] = []
    child.measure(job(kernels(best=2)[name]), said.append)
    assert [line["failed"] for line in said if "failed" in line] == [0, 1] and said[-1]["us"] == {}
    assert all("its result is wrong" in line["why"] for line in said if "failed" in line)


def test_a_result_that_is_rounded_is_compared_as_such() -> None:
    """A row of f32 that is divided by its norm and becomes bf16."""
    with ir.Context():
        core.load_all()
        module = record_for(models.MODELS["tinyllama-1.1b"], "sm_80", "bf16", 64).module
        run_pipeline(module, fused_pipeline("sm_80"))
        norm = next(f for f in functions(module.operation, "primop.kernel") if "prefill_layer_rms_norm" in str(f.name))
        assert {str(primop.element_type(a)) for a in norm.arguments} == {"f32"}
        assert child._dtype(norm, module) == "bf16"


def test_sets_of_a_cpu_have_memory_of_their_own_that_is_nan_until_they_run() -> None:
    kernel = kernels()["decode_layer_output"]
    with ir.Context():
        core.load_all()
        artifact = compile_kernels(ir.Module.parse(kernel.program), host_cpu())
    buffers = [b for b in artifact.manifest.entries["main"].buffers if b.kind == "argument"]
    sets = [{b.label: child._input(b, kernel.symbols, seed) for b in buffers} for seed in range(3)]
    cpu = CpuProgram(artifact, [], 2)
    replay = cpu_replay.Replay(cpu, "main", sets, kernel.symbols)
    results = [arrays[plan.results["result"]] for plan, arrays, _, _ in replay._prepared]
    assert all(np.isnan(r).all() for r in results)
    expected = [np.array(cpu.run("main", s, kernel.symbols)["result"]) for s in sets]
    assert all(np.array_equal(r["result"], e) for r, e in zip(replay.run(), expected, strict=True))
    replay.capture(4)
    assert replay.runs == 12 and all(0 < ms < 1e3 for ms in replay.time(3))
    replay.close()
    cpu.close()


def test_a_child_that_dies_or_hangs_is_survived(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "CHILD", [sys.executable, "-c", DYING])
    monkeypatch.setattr(command, "PATIENCE", 2.0)
    only(monkeypatch, "prefill_layer_down")
    lines: list[str] = []
    made = command.tune(request(), 5, tmp_path / "tuned.json", lines.append)
    choice, = made.choices.values()
    assert [m.us for m in choice.candidates] == [10.0, None, None, None, 2.0]
    assert [m.failed for m in choice.candidates] == [
        "", "the process ended with SIGABRT", "no answer for 2 s", "its result is wrong (error 0.5)", ""]
    assert choice.us == 2.0 and choice.schedule == choice.candidates[4].schedule
    assert lines[1].split()[:4] == ["prefill_layer_down", "10.0", "2.0", "5.00"] and "SIGABRT" in lines[2]
    assert "geometric mean of the gains of 1 kernels: 5.000" in lines[-1]


def test_a_child_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(command, "CHILD", [sys.executable, "-c", "import nothing_of_this_name"])
    only(monkeypatch, "prefill_layer_down")
    model = write_llama(tmp_path / "model", num_hidden_layers=1)
    assert main(["tune", str(model), "--target", "cpu", "--context", "64"]) == 1
    out, err = capsys.readouterr()
    assert err == "tilec: no kernel could be measured, so nothing is recorded\n" and "No module named" in out
    assert not recording_path(host_cpu().name).exists()


# The command ----------------------------------------------------------------------------------------------------------


def test_tuning_is_used_from_then_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, capfd: Any) -> None:
    model = write_llama(tmp_path / "model", num_hidden_layers=1, eos_token_id=[])
    given = [str(model), "--target", "cpu", "--context", "64"]
    children(monkeypatch, QUICK)
    only(monkeypatch, "decode_layer_gate_up", "decode_layer_cache")
    monkeypatch.setattr(command, "GAIN", 0.0)  # what is faster, be it by noise, is chosen
    assert main(["tune", *given, "--best", "2"]) == 0
    path = recording_path(host_cpu().name)
    made = Recording.load(path)
    assert path.parent == cache / "tuned" and {c.kernel for c in made.choices.values()} == {
        "decode_layer_gate_up", "decode_layer_cache"}
    assert all(len(c.candidates) == 2 and all(m.us for m in c.candidates) for c in made.choices.values())
    only(monkeypatch, "decode_layer_down")
    assert main(["tune", *given, "--best", "2"]) == 0
    assert len(Recording.load(path).choices) == 3  # what was there stays
    capfd.readouterr()

    texts = []
    for _ in range(2):
        assert main(["generate", *given[:1], "w1 w2", *given[1:], "--json", "--max-tokens", "4"]) == 0
        texts.append(json.loads(capfd.readouterr().out))
    assert [t["compile_seconds"] > 0 for t in texts] == [True, False] and texts[0]["text"] == texts[1]["text"]
    kept, = (cache / "artifacts").iterdir()
    config = open_checkpoint(model).config
    keys = [_key(config, made.target, choose_dtype(None, made.target), 64, 1, r) for r in (Recording.load(path), made, None)]
    assert keys[0] == kept.name and len(set(keys)) == 3  # what is recorded is part of it
    assert main(["compile", *given, "-o", str(tmp_path / "made"), "-v"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert said[0].startswith("schedules measured on ") and said[0].endswith(str(path))
    assert len([line for line in said if "(measured: " in line]) == 3
    assert next(line for line in said if line.startswith("decode_layer_gate_up: ")).count(" vectors") > 1


def test_a_gpu_is_tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a simulated one: a cache that is written in place, a cluster that reduces, tensor cores, a norm."""
    children(monkeypatch, QUICK, SIMULATED)
    names = ["decode_layer_cache", "decode_layer_attention", "prefill_layer_output", "prefill_layer_gate_up"]
    only(monkeypatch, *names)
    lines: list[str] = []
    made = command.tune(request("sm_90a"), 2, tmp_path / "tuned.json", lines.append)
    assert [c.kernel for c in made.choices.values()] == names and not [line for line in lines if "left out" in line]
    assert all(m.us == 500.0 for c in made.choices.values() for m in c.candidates)  # the driver's millisecond over two sets


def test_a_product_in_tf32_is_measured_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And is right but for the bits that tensor cores do not read, which would be wrong in f32."""
    children(monkeypatch, QUICK, SIMULATED)
    only(monkeypatch, "prefill_layer_output")
    lines: list[str] = []
    made = command.tune(request("sm_90a", "tf32"), 2, tmp_path / "tuned.json", lines.append)
    choice, = made.choices.values()
    assert "tf32" in choice.schedule and not [line for line in lines if "left out" in line]
    children(monkeypatch, QUICK, SIMULATED, "\nharness.LIMITS['tf32'] = harness.LIMITS['f32']")
    with pytest.raises(TilecError, match="no kernel could be measured"):
        command.tune(request("sm_90a", "tf32"), 2, tmp_path / "other.json", lines.append)
    assert any("its result is wrong" in line for line in lines)


@pytest.mark.parametrize(("arguments", "said"), [
    (["tune", "MODEL", "--target", "cpu", "--best", "1"], "--best must be at least 2, but is 1"),
    (["tune", "MODEL", "--target", "cpu", "-o", "FOLDER"], "is a folder; name a file"),
    (["tune", "MODEL", "--target", "cpu", "-o", "OTHER"], "was recorded for sm_90a on a machine; name another file"),
    (["tune", "MODEL", "--target", "cpu", "-o", "DAMAGED"], "is not a recording that this version of `tilec tune` wrote"),
    (["tune", "nowhere"], "nowhere: no such file or folder"),
    (["tune", "MODEL", "--target", "sm_1"], "unknown target 'sm_1'"),
    (["compile", "MODEL", "-o", "NEW", "--target", "cpu", "--tuned", "NEW"], "a recording is what `tilec tune` writes"),
    (["compile", "MODEL", "-o", "NEW", "--target", "cpu", "--tuned", "OTHER"], "was recorded for sm_90a (a machine), but "),
    (["compile", "MODEL", "-o", "NEW", "--target", "cpu", "--tuned", "DAMAGED"], "is not a recording"),
])
def test_a_mistake_is_one_sentence(arguments: list[str], said: str, tmp_path: Path, capsys: Any) -> None:
    places = {name: tmp_path / name.lower() for name in ("MODEL", "FOLDER", "OTHER", "DAMAGED", "NEW")}
    write_llama(places["MODEL"], num_hidden_layers=1)
    places["FOLDER"].mkdir()
    Recording("a machine", "sm_90a", {}, "2026-11-29").save(places["OTHER"])
    places["DAMAGED"].write_text('{"schema": 1, "choices": []}')
    assert main([str(places.get(a, a)) for a in arguments]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("tilec: ") and err.count("\n") == 1 and said in err and not out
    assert not places["NEW"].exists()
