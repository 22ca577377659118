"""GPU artifacts in the PTX interpreter against the reference and the CPU target: every kind of kernel, without a GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.frontend.config import ModelConfig, inverse_frequencies
from tilec.frontend.tensor import Graph
from tilec.model_compiler import compile_model
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import GPU_TARGETS, find_target
from tilec.runtime.artifact import Artifact
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.weights import pack

from . import cases, reference
from .gpu_simulator import SimulatedGpu
from .models import relative_error, round_to_bf16
from .programs import FLOATS, Program, examples, programs

pytestmark = pytest.mark.usefixtures("every_pass_is_verified")
EXAMPLES = max(int(os.environ.get("TILEC_EXAMPLES", "100")) // 5, 1)
CONFIG = ModelConfig(
    vocab_size=96,
    hidden_size=64,
    intermediate_size=96,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    norm_eps=1e-5,
    rope_theta=1e4,
    max_context=128,
    tied_embeddings=True,
)


def simulate(program: Program, target: str, apart: bool = True) -> dict[str, np.ndarray]:
    """Compiles a program for a GPU target and runs it in the interpreter, its temporaries apart or in their arena."""
    return simulated(program, target, apart)[0]


def simulated(program: Program, target: str, apart: bool = True) -> tuple[dict[str, np.ndarray], Artifact]:
    """The results, and what was run."""
    artifact = compile_module(program.graph.module, find_target(target), {})
    held = {n: reference.to_memory(a, program.dtypes[n]) for n, a in program.inputs.items()}
    manifest = artifact.manifest
    gpu = SimulatedGpu(artifact, {n: held[n] for n in manifest.weights}, {n: held[n] for n in manifest.states}, apart)
    results = gpu.run("main", {n: held[n] for n, kind in program.kinds.items() if kind == "argument"}, program.symbols)
    results |= {name: gpu.state(state) for name, state in program.aliases.items()}
    return {n: reference.from_memory(a, program.dtypes[n]) for n, a in results.items()}, artifact


@pytest.mark.parametrize("name", cases.SHAPES_OF_MODELS)
def test_the_shapes_of_models_compute_what_the_reference_says(name: str) -> None:
    program = cases.record(name)
    expected = program.expected()
    target = ("sm_90a", "sm_80")[sorted(cases.SHAPES_OF_MODELS).index(name) % 2]
    expected.check(simulate(program, target))


@pytest.mark.parametrize("name", cases.ALONE)
def test_a_primop_alone_computes_what_the_reference_says(name: str) -> None:
    """Every element type and ragged sizes; the instructions of a GPU may be one unit less accurate than polynomials, and than
    a square root that is rounded once."""
    op, program = cases.ALONE[name], cases.alone(name)
    expected = reference.run(program.graph.module, "main", program.inputs, program.symbols)
    results = simulate(program, "sm_90a")
    assert results.keys() == expected.keys()
    for output, want in expected.items():
        got, dtype = results[output], program.dtypes[output]
        error = abs(got.astype(np.float64) - want.astype(np.float64))
        ulps = op.ulps + (op.ulps > 0 or name == "sqrt")
        allowed = ulps * reference.unit(want, dtype) + op.absolute if dtype in FLOATS else 0.0
        assert ((error <= allowed) | (got == want) | (np.isnan(got) & np.isnan(want))).all(), output


@pytest.mark.parametrize("name", cases.MEMORY)
def test_outputs_and_states_hold_what_they_must(name: str) -> None:
    program = cases.memory(name)
    expected = program.expected()
    expected.check(simulate(program, "sm_90a", apart=False))


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_infinities_and_signed_zeros_have_ieee_results(dtype: str) -> None:
    program = cases.special(dtype)
    expected = reference.run(program.graph.module, "main", program.inputs)
    cases.check_special(simulate(program, "sm_90a"), expected, dtype, ulps=3)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@examples(EXAMPLES)
@given(program=programs(steps=10, elements=600, products=3000), apart=st.booleans())
def test_a_random_program_computes_what_the_reference_says(target: str, program: Program, apart: bool) -> None:
    expected = program.expected()
    expected.check(simulate(program, target, apart))


@pytest.mark.parametrize("dtype", ["i64", "i32", "f32"])
def test_long_rows_are_reduced_by_the_blocks_of_a_cluster(dtype: str) -> None:
    program = Program(Graph({"rows": (1, 3)}), symbols={"rows": 2})
    values = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, (2, 33000))
    with program.graph.entry("main"):
        x = program.input("x", (program.graph.symbol("rows"), 33000), dtype, values)
        program.output("sum", x.sum(-1))
        program.output("max", x.max(-1))
    expected, results, artifact = program.expected(), *simulated(program, "sm_90a")
    (kernel,) = artifact.manifest.kernels.values()  # both reductions in one launch of clusters
    assert kernel.grid[0] == "(rows * 16)" and b".reqnctapercluster" in artifact.files[kernel.file]
    expected.check(results)


def random_weights(artifact: Artifact, config: ModelConfig = CONFIG) -> dict[str, np.ndarray]:
    rng, weights = np.random.default_rng(0), {}
    for name, weight in artifact.manifest.weights.items():
        values = rng.standard_normal(weight.shape, dtype=np.float32) * (
            weight.shape[-1] ** -0.5 if len(weight.shape) > 1 else 1
        )
        weights[name] = inverse_frequencies(config) if name.startswith("rotary") else values
    return weights


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_model_gives_the_logits_of_the_cpu_in_prefill_and_decode(target: str, window: int | None) -> None:
    config = replace(CONFIG, sliding_window=window)
    on_cpu, artifact = (compile_model(config, name, "f32", 64, entries=("prefill", "decode")) for name in ("cpu", target))
    weights = random_weights(artifact)
    gpu = SimulatedGpu(artifact, weights)
    cpu = CpuProgram(on_cpu, ((n, pack(weights[n], w)) for n, w in on_cpu.manifest.weights.items()), 1)
    tokens = np.array([5, 90, 17, 3, 44, 8, 61], np.int32)
    past = 0
    for entry, piece, symbols in (
        ("prefill", tokens, {"seq": 7}),
        ("decode", tokens[:1], {}),
        ("decode", tokens[1:2], {}),
    ):
        theirs, ours = (p.run(entry, {"tokens": piece}, {**symbols, "past": past}) for p in (cpu, gpu))
        assert relative_error(ours["logits"], theirs["logits"]) < 1e-5
        assert ours["token"] == theirs["token"]
        past += len(piece)
        assert entry == "prefill" or int(ours["position"][0]) == past
    cpu.close()


@pytest.mark.parametrize(
    ("target", "product", "changes"),
    [("sm_90a", b"wgmma", {}), ("sm_80", b"mma.sync", {"sliding_window": 20}), ("sm_90a", b"wgmma", {"architecture": "qwen2"})],
)
def test_a_model_in_bf16_with_heads_of_96_has_the_logits_of_the_cpu(target: str, product: bytes, changes: dict) -> None:
    """A prompt in two pieces, whose projections, rotations and attention are made by tensor cores, and a token."""
    config = replace(CONFIG, hidden_size=128, head_dim=96, **changes)
    on_cpu, artifact = (compile_model(config, *how, 64, entries=("prefill", "decode"))
                        for how in (("cpu", "f32"), (target, "bf16")))
    weights = {n: round_to_bf16(w) for n, w in random_weights(on_cpu, config).items()}
    cache = {n: reference.to_memory(np.full(s.shape, np.nan), s.dtype) for n, s in artifact.manifest.states.items()}
    gpu = SimulatedGpu(
        artifact, {n: reference.to_memory(weights[n], w.dtype) for n, w in artifact.manifest.weights.items()}, cache
    )
    cpu = CpuProgram(on_cpu, ((n, pack(weights[n], w)) for n, w in on_cpu.manifest.weights.items()), 1)
    tokens, past = np.random.default_rng(3).integers(0, 96, 58).astype(np.int32), 0
    for entry, count in (("prefill", 37), ("prefill", 20), ("decode", 1)):
        piece, symbols = tokens[past : past + count], {"past": past, **({"seq": count} if entry == "prefill" else {})}
        theirs, ours = (p.run(entry, {"tokens": piece}, symbols)["logits"] for p in (cpu, gpu))
        assert relative_error(ours, theirs) < 3e-2
        past += count
    cpu.close()
    for name in ("rotary", "cache", "attention"):
        kernels = [k for k in artifact.manifest.kernels if k.startswith("prefill_layer") and name in k]
        assert kernels and all(product in artifact.files[artifact.manifest.kernels[k].file] for k in kernels), kernels


@pytest.mark.parametrize("batch", [1, 4])
def test_biases_are_part_of_what_they_are_added_to(batch: int) -> None:
    wanted = ("decode", "prefill") if batch == 1 else ("decode_batch",)
    counts = [{name: len(entry.launches) for name, entry in compile_model(
        replace(CONFIG, architecture=name), "sm_90a", "bf16", 64, batch=batch, entries=wanted).manifest.entries.items()}
        for name in ("llama", "qwen2")]
    assert counts[0] == counts[1] and {*counts[0]} == {*wanted}


def test_a_decode_layer_is_nine_launches_or_fewer() -> None:
    """Norm, projections, rotation with the cache writes, attention, output, norm, gate and up, down."""
    models = [compile_model(replace(CONFIG, layers=n), "sm_90a", "bf16", 64, entries=("decode",)) for n in (1, 2)]
    one, two = (len(model.manifest.entries["decode"].launches) for model in models)
    assert two - one <= 9


def test_only_the_entries_that_are_wanted_are_recorded() -> None:
    artifact = compile_model(CONFIG, "cpu", "f32", 64, batch=2, entries=("decode", "decode_batch"))
    assert [*artifact.manifest.entries] == ["decode", "decode_batch"]
    with pytest.raises(ValueError, match=r"prefill, score, decode_batch, sample_batch, but not prefil$"):
        compile_model(CONFIG, "cpu", "f32", 64, batch=2, entries=("prefil",))


ptxas = shutil.which("ptxas")


@pytest.mark.skipif(ptxas is None, reason="ptxas is not on the path")
@pytest.mark.parametrize("target", GPU_TARGETS)
def test_ptxas_accepts_every_kernel_of_a_model(target: str, tmp_path: Path) -> None:
    artifact = compile_model(replace(CONFIG, head_dim=64, layers=1), target, "bf16", 64)
    for name, text in artifact.files.items():
        (tmp_path / name).write_bytes(text)
        done = subprocess.run(
            [ptxas, f"-arch={target}", "-v", tmp_path / name, "-o", "/dev/null"], capture_output=True, text=True
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"


def test_activations_are_never_read_by_the_non_coherent_path() -> None:
    """ptxas moves such loads above the wait for the kernel that writes them."""
    artifact = compile_model(CONFIG, "sm_90a", "bf16", 64)
    for name, text in artifact.files.items():
        loads = re.findall(rb"ld\.global\.nc\S* \S+ \[(\S+?)[+\]]", text)
        assert not loads or b"__cudart_i2opi_f" in text, f"{name} has non-coherent loads"
