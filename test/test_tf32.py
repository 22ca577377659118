"""Products of f32 in TF32, which only a program that asks for it gets: wgmma on Hopper, mma.sync elsewhere, interpreted.

The interpreter ignores the low 13 bits of every operand, as tensor cores do. So results are those of float64 on operands
that were cut off there, as closely as f32 adds up, and within 2^-9 of what the operands themselves give: 2^-10 for each.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlir import ir

from tilec.errors import TargetError
from tilec.frontend import nn
from tilec.frontend.checkpoints import open_checkpoint
from tilec.frontend.config import inverse_frequencies
from tilec.frontend.tensor import Graph
from tilec.llm import choose_dtype
from tilec.model_compiler import compile_model, record_for
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.recording import kernel_key
from tilec.pipelines.targets import CPU_TARGETS, GPU_TARGETS, find_target
from tilec.runtime.artifact import Artifact
from tilec.tools.bench import models
from tilec.tools.tune import program as tuned

from . import reference
from .gpu_simulator import SimulatedGpu
from .models import relative_error, transformers_logits, write_llama
from .programs import Program, examples
from .ptx import Fault
from .test_staged_products import EPILOGUES, gate_and_up, rotary_into_a_cache, rows
from .test_tensor_cores import check_product, compiled, edited, normal, projection, seq, simulate, text_of

Array = reference.Array
WGMMA = r"wgmma\.mma_async\S*\.m64n\d+k8\.f32\.tf32\.tf32 "
MMA = r"\smma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.tf32\.tf32\.f32 "
TENSOR = r"wgmma|\bmma\.sync"


def recorded(record: Callable[[Program], object], capacity: int = 128, used: int = 40, tf32: bool = True) -> Program:
    program = Program(Graph({"seq": (1, capacity)}, tf32=tf32), symbols={"seq": used})
    with program.graph.entry("main"):
        record(program)
    return program


def product(capacity: int, used: int, n: int, k: int, tf32: bool = True) -> Program:
    return recorded(lambda p: p.output("y", projection(p, rows(p, k), n=n)), capacity, used, tf32)


def cut(values: Array) -> Array:
    """f32 values as tensor cores read them, the low 13 bits of the mantissa gone."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def check(program: Program, artifact: Artifact) -> None:
    got, x, w = simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"]
    check_product(got, cut(x), cut(w), "f32")
    x, w = x.astype(np.float64), w.astype(np.float64)
    assert (abs(got - x @ w.T) <= (2.0**-9 + 2.0**-20) * (abs(x) @ abs(w).T)).all()


SIZES = [  # capacity, used, n, k
    (64, 17, 40, 72),
    (64, 17, 32, 32),  # one step of wgmma
    (128, 1, 40, 36),
    (9, 9, 129, 100),
    (200, 129, 72, 64),
    (999, 999, 33, 36),
    (64, 17, 999, 48),
    (64, 17, 34, 1000),
    (64, 1, 64, 1024),  # a depth that blocks split
]


@pytest.mark.parametrize(("capacity", "used", "n", "k"), [*SIZES, (4096, 150, 512, 132), (16384, 129, 520, 68)])
def test_a_product_by_wgmma_is_that_of_operands_cut_off(capacity: int, used: int, n: int, k: int) -> None:
    program = product(capacity, used, n, k)
    artifact = compiled(program)
    assert re.search(WGMMA, text_of(artifact)) and not re.search(MMA, text_of(artifact))
    check(program, artifact)


@pytest.mark.parametrize(("capacity", "used", "n", "k"), [*SIZES, (64, 17, 24, 4), (64, 17, 24, 20), (8, 5, 129, 328)])
def test_a_product_by_mma_is_that_of_operands_cut_off(capacity: int, used: int, n: int, k: int) -> None:
    program = product(capacity, used, n, k)
    artifact = compiled(program, "sm_80")
    assert re.search(MMA, text_of(artifact))
    check(program, artifact)


@examples(8)
@given(st.data())
def test_random_products_are_those_of_operands_cut_off(data: st.DataObject) -> None:
    capacity = data.draw(st.integers(2, 300), "capacity")
    used = data.draw(st.integers(1, capacity), "used")
    n, k = data.draw(st.integers(32, 300), "n"), 4 * data.draw(st.integers(8, 90), "k / 4")
    program = product(capacity, used, n, k)
    artifact = compiled(program, data.draw(st.sampled_from(["sm_90a", "sm_86"]), "target"))
    assert re.search(f"{WGMMA}|{MMA}", text_of(artifact))
    check(program, artifact)


# --- What else a kernel computes -------------------------------------------------------------------------------------


def without_low_bits(program: Program) -> Program:
    """All inputs such that TF32 holds them: then a product in TF32 is exact, and so is the reference."""
    program.inputs |= {n: cut(a) for n, a in program.inputs.items() if program.dtypes[n] == "f32"}
    return program


@pytest.mark.parametrize(
    ("record", "target"),
    [*((r, "sm_90a") for r in EPILOGUES), (gate_and_up, "sm_80"), (rotary_into_a_cache, "sm_80")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_epilogue_is_computed_where_the_product_is(record: Callable[[Program], object], target: str) -> None:
    program = without_low_bits(recorded(record))
    expected = program.expected()
    artifact = compiled(program, target)
    assert re.search(WGMMA if target == "sm_90a" else MMA, text_of(artifact))
    assert len(artifact.manifest.entries["main"].launches) == 1
    expected.check(simulate(program, artifact))


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_attention_has_its_scores_in_tf32_and_multiplies_values_exactly(target: str) -> None:
    """Values lie as (k, n), which tensor cores do not read as TF32."""
    program = Program(Graph({"past": (0, 100), "seq": (1, 160)}, tf32=True), symbols={"past": 40, "seq": 17})
    with program.graph.entry("main"):
        before = program.graph.symbol("past")
        q = normal(program, "q", (seq(program), 4, 64), "f32")
        k, v = (normal(program, n, (2, 260, 64), "f32", "state")[:, : before + seq(program)] for n in ("keys", "values"))
        program.output("y", nn.attention(q, k, v, before))
    without_low_bits(program)
    artifact = compiled(program, target)
    made = {n.rsplit("_", 1)[1]: artifact.files[k.file].decode() for n, k in artifact.manifest.kernels.items()}
    assert {n: bool(re.search(TENSOR, t)) for n, t in made.items()} == {"scores": True, "softmax": False, "values": False}
    q, keys, values = (program.inputs[n].astype(np.float64) for n in ("q", "keys", "values"))
    keys, values = (a[:, :57].repeat(2, axis=0) for a in (keys, values))
    scores = q.swapaxes(0, 1) @ keys.swapaxes(1, 2) / 8
    scores[:, np.arange(17)[:, None] + 40 < np.arange(57)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    want, size = (weights @ values).swapaxes(0, 1), (weights @ abs(values)).swapaxes(0, 1)
    assert (abs(simulate(program, artifact)["y"] - want) <= 2.0**-17 * size).all()


# --- Only on request -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", GPU_TARGETS)
def test_a_product_of_f32_uses_no_tensor_cores(target: str) -> None:
    assert not re.search(TENSOR, text_of(compiled(product(128, 40, 96, 72, tf32=False), target)))
    assert re.search(TENSOR, text_of(compiled(product(128, 40, 96, 72), target)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("tiny"), num_hidden_layers=1)


@functools.cache
def model(folder: Path, target: str, dtype: str) -> Artifact:
    return compile_model(open_checkpoint(folder).config, target, dtype, 64, batch=2 if target == "sm_90a" else 1)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_model_in_f32_uses_no_tensor_cores_and_one_in_tf32_only_for_products(folder: Path, target: str) -> None:
    plain, asked = (model(folder, target, dtype) for dtype in ("f32", "tf32"))
    assert not re.search(TENSOR, text_of(plain))
    assert plain.manifest.weights == asked.manifest.weights and plain.manifest.states == asked.manifest.states
    assert (plain.manifest.model["dtype"], asked.manifest.model["dtype"]) == ("f32", "tf32")
    using = {name.removesuffix(".ptx") for name, code in asked.files.items() if re.search(TENSOR, code.decode())}
    assert using and all(re.search("scores|output|gate_up|down|logits|rotary|cache|value", name) for name in using), using
    assert not any(re.search("^(decode|sample)_(?!batch)", name) for name in using), using


def test_a_program_in_f32_is_the_same_whether_or_not_another_was_made_in_tf32() -> None:
    first = compiled(product(64, 17, 40, 72, tf32=False)).files
    assert compiled(product(64, 17, 40, 72)).files != first
    assert compiled(product(64, 17, 40, 72, tf32=False)).files == first


@pytest.mark.parametrize("target", CPU_TARGETS)
def test_a_cpu_refuses_tf32(target: str) -> None:
    why = f"dtype tf32 needs the tensor cores of a GPU, and {target} is a CPU; use f32"
    with pytest.raises(TargetError, match=why):
        choose_dtype("tf32", target)
    with pytest.raises(TargetError, match=why):
        compile_module(product(64, 17, 40, 72).graph.module, find_target(target), {})


@pytest.mark.parametrize("target", GPU_TARGETS)
def test_a_gpu_takes_tf32_and_never_chooses_it(target: str) -> None:
    assert choose_dtype("tf32", target) == "tf32"
    assert choose_dtype(None, target) != "tf32"


def test_a_recording_of_f32_is_not_one_of_tf32() -> None:
    """Nor the other way: the same kernel has other schedules."""
    config = replace(models.MODELS["llama-3.2-1b"], vocab_size=96, hidden_size=64, intermediate_size=96, layers=1, heads=4,
                     kv_heads=2, head_dim=16, max_context=128)
    f32, tf32 = (tuned.kernels_of(tuned.Request(config, "sm_90a", dtype, 64), 3) for dtype in ("f32", "tf32"))
    assert not {k.key for k in f32} & {k.key for k in tf32}
    assert all("tf32" not in k.program for k in f32) and all("primop.tf32" in k.program for k in tf32)
    assert any("tf32" in s for k in tf32 for s in k.schedules)
    assert kernel_key("func.func @a()", {}) != kernel_key("func.func @a()", {}, tf32=True)


def test_the_request_is_an_attribute_of_the_module() -> None:
    config = replace(models.MODELS["llama-3.2-1b"], layers=1)
    for dtype in ("f32", "tf32"):
        module = record_for(config, "sm_90a", dtype, 64).module
        assert ("primop.tf32" in module.operation.attributes) == (dtype == "tf32")
        assert "bf16" not in str(module) and isinstance(module, ir.Module)


# --- A whole model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_model_in_tf32_has_the_logits_of_transformers_but_for_the_bits_cut_off(folder: Path, target: str) -> None:
    """An error of 2^-10 in each operand of each product, not of its sum, and much more than that of f32."""
    checkpoint = open_checkpoint(folder)
    tokens = np.random.default_rng(1).integers(3, 211, 17).astype(np.int32)
    want = transformers_logits(folder, tokens)
    errors = {}
    for dtype in ("f32", "tf32"):
        artifact = model(folder, target, dtype)
        held = {n: inverse_frequencies(checkpoint.config) if n.startswith("rotary") else checkpoint.read(n, w.dtype)
                for n, w in artifact.manifest.weights.items()}
        gpu = SimulatedGpu(artifact, held)
        got = gpu.run("score", {"tokens": tokens[:16]}, {"seq": 16, "past": 0})["logits"]
        last = gpu.run("decode", {"tokens": tokens[16:]}, {"past": 16})["logits"]
        errors[dtype] = relative_error(np.vstack([got, last[None]]), want)
    assert errors["f32"] < 1e-5 and 1e-4 < errors["tf32"] < 4e-3


# --- The assembler's opinion -----------------------------------------------------------------------------------------


def gate_and_up_of_a_model(p: Program) -> None:
    x = rows(p, 1024)
    p.output("y", nn.silu(projection(p, x, "gate", 1024)) * projection(p, x, "up", 1024))


def residual_of_a_model(p: Program) -> None:
    p.output("y", normal(p, "r", (seq(p), 512), "f32") + projection(p, rows(p, 1024), n=512))


ASSEMBLED: dict[str, Callable[[], Program]] = {
    "64 x 32": lambda: product(64, 1, 64, 136),
    "128 x 128, a long loop": lambda: product(4096, 1, 512, 4096),
    "128 x 256": lambda: product(16384, 1, 520, 4096),
    "few rows": lambda: product(8, 1, 4096, 4096),
    "a split depth": lambda: product(128, 1, 1024, 2048),
    "two products of 128 x 128": lambda: recorded(gate_and_up_of_a_model, 16384),
    "a residual": lambda: recorded(residual_of_a_model, 4096),
}


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not on the path")
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "sm_120a"])
@pytest.mark.parametrize("name", ASSEMBLED)
def test_accumulators_stay_in_registers_and_products_in_flight(name: str, target: str, tmp_path: Path) -> None:
    for file, code in compiled(ASSEMBLED[name](), target).files.items():
        (tmp_path / file).write_bytes(code)
        done = subprocess.run(
            ["ptxas", f"-arch={target}", "-v", file, "-o", "/dev/null"], cwd=tmp_path, capture_output=True, text=True
        )
        told = done.stdout + done.stderr
        assert done.returncode == 0, told
        assert re.search(TENSOR, code.decode())
        assert "0 bytes spill stores, 0 bytes spill loads" in told, told
        assert not re.search("serializ|warning|ignored", told, re.IGNORECASE), told


# --- Planted mistakes ------------------------------------------------------------------------------------------------


def test_operands_that_were_not_cut_off_would_be_found() -> None:
    """The bound is so close that exact products are outside it."""
    program = product(64, 17, 40, 72, tf32=False)
    with pytest.raises(AssertionError, match="elements are wrong"):
        check(program, compiled(program))


Edit = tuple[str, str, str | Callable[[re.Match[str]], str]]
MISTAKES: dict[str, Edit] = {  # a target, a pattern and what stands in its place
    "another step along the depth": ("sm_90a", r"(add\.s64 right, %\w+, )2;", r"\g<1>4;"),
    "one step for both halves of a row": ("sm_90a", r"(add\.s64 left, %\w+, )6;", r"\g<1>2;"),
    "no swizzle": ("sm_90a", r"(or\.b64\s+%\w+, %\w+, )(46116862933053603\d\d)", lambda m: f"{m[1]}{int(m[2]) - (1 << 62)}"),
    "rows in another order": ("sm_80", rf"({MMA}\{{[^}}]*\}}, \{{)(%\w+), (%\w+),", r"\1\3, \2,"),
    "another place in the row": ("sm_80", r"(xor\.b32\s+%\w+, %\w+, )16;", r"\g<1>8;"),
    "the depth in another order": ("sm_80", rf"({MMA}\{{[^}}]*\}}, \{{[^}}]*\}}, \{{)(%\w+), (%\w+)", r"\1\3, \2"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str) -> None:
    target, pattern, new = MISTAKES[name]
    program = product(64, 17, 64, 200)
    artifact = compiled(program, target)
    check(program, artifact)
    broken = edited(artifact, *artifact.files, pattern, new, 0)
    with pytest.raises((AssertionError, Fault), match="elements are wrong"):
        check(program, broken)
