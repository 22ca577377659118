"""Programs on the CPU target against the reference: random ones, every primop alone, and the shapes that models are made of."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilec.frontend.tensor import Graph
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import CPU_TARGETS, find_target, host_cpu
from tilec.runtime.artifact import Artifact
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.weights import pack

from . import cases, reference
from .programs import FLOATS, Program, programs
from .reference import Array

EXAMPLES = int(os.environ.get("TILEC_EXAMPLES", "100"))
pytestmark = pytest.mark.usefixtures("every_pass_is_verified")


def examples(count: int) -> settings:
    """The same examples on every machine; TILEC_EXAMPLES asks for more of them."""
    return settings(
        max_examples=max(count * EXAMPLES // 100, 1),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


class Loaded:
    """A compiled program with its weights on the CPU, to run more than once."""

    def __init__(
        self, program: Program, target: str = "cpu", threads: int | None = None, artifact: Artifact | None = None
    ) -> None:
        self.program = program
        self.artifact = artifact or compile_module(program.graph.module, find_target(target), {})
        weights = {n: pack(self._held(n), w) for n, w in self.artifact.manifest.weights.items()}
        self.cpu = CpuProgram(self.artifact, weights, threads)  # type: ignore[arg-type]

    def _held(self, name: str) -> Array:
        return reference.to_memory(self.program.inputs[name], self.program.dtypes[name])

    def run(self) -> dict[str, Array]:
        program = self.program
        for name in self.artifact.manifest.states:
            self.cpu.state(name)[...] = self._held(name)
        arguments = {n: self._held(n) for n, kind in program.kinds.items() if kind == "argument"}
        results = dict(self.cpu.run("main", arguments, program.symbols))
        assert not results.keys() & program.aliases.keys(), "what replaces a state is no result as well"
        results |= {name: self.cpu.state(state) for name, state in program.aliases.items()}
        return {n: reference.from_memory(a, program.dtypes[n]) for n, a in results.items()}


def run(program: Program, target: str = "cpu", threads: int | None = None) -> dict[str, Array]:
    """Compiles and runs the entry point `main`."""
    loaded = Loaded(program, target, threads)
    try:
        return loaded.run()
    finally:
        loaded.cpu.close()


def bits(results: dict[str, Array]) -> dict[str, bytes]:
    return {n: a.tobytes() for n, a in results.items()}


# --- Random programs -------------------------------------------------------------------------------------------------


@examples(100)
@given(programs(steps=12))
def test_a_random_program_computes_what_the_reference_says(program: Program) -> None:
    program.expected().check(run(program))


RUNNABLE = [
    t.name
    for t in CPU_TARGETS.values()
    if t.triple_arch == host_cpu().triple_arch
    and t.vector_bytes <= host_cpu().vector_bytes
    and t.bf16_dot <= host_cpu().bf16_dot
]


@pytest.mark.parametrize("target", RUNNABLE)
@examples(8)
@given(programs())
def test_a_random_program_runs_on_every_cpu_target_of_this_machine(target: str, program: Program) -> None:
    program.expected().check(run(program, target))


@examples(8)
@given(programs(steps=12), st.sampled_from((2, 3, 5)))
def test_the_number_of_threads_changes_no_bit(program: Program, threads: int) -> None:
    artifact = compile_module(program.graph.module, find_target("cpu"), {})
    one, many = Loaded(program, threads=1, artifact=artifact), Loaded(program, threads=threads, artifact=artifact)
    assert bits(one.run()) == bits(many.run())
    one.cpu.close()
    many.cpu.close()


@examples(8)
@given(programs(steps=12))
def test_poison_beyond_the_lengths_in_use_changes_nothing(program: Program) -> None:
    """A call at the largest sizes leaves NaN in all memory that depends on sizes; the next one is not to read it."""
    artifact = compile_module(program.graph.module, find_target("cpu"), {})
    loaded = Loaded(program, artifact=artifact)
    first = bits(loaded.run())
    entry, arrays, *_ = loaded.cpu._entries["main"]
    for buffer, array in zip(entry.buffers, arrays, strict=True):
        if buffer.kind != "weight":
            array.view(np.uint8)[...] = 0xFF
    assert bits(loaded.run()) == first
    loaded.cpu.close()


# --- Every primop alone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases.ALONE)
def test_a_primop_alone_is_accurate_on_every_element_type_and_ragged_sizes(name: str) -> None:
    op, program = cases.ALONE[name], cases.alone(name)
    expected = reference.run(program.graph.module, "main", program.inputs)
    results = run(program)
    assert results.keys() == expected.keys()
    for label, want in expected.items():
        got, dtype = results[label], program.dtypes[label]
        if dtype not in FLOATS or not op.ulps:
            np.testing.assert_array_equal(got, want, label)
        else:
            wrong = abs(got.astype(np.float64) - want) > op.ulps * reference.unit(want, dtype) + op.absolute
            assert not wrong.any(), f"{label}: {got[wrong][:4]} are not {want[wrong][:4]}"


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_infinities_and_signed_zeros_have_ieee_results(dtype: str) -> None:
    program = cases.special(dtype)
    expected = reference.run(program.graph.module, "main", program.inputs)
    cases.check_special(run(program), expected, dtype, ulps=2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [2, 17, 129])
def test_a_maximum_over_a_nan_is_nan_wherever_it_stands(dtype: str, size: int) -> None:
    rows = np.random.default_rng(0).uniform(-2, 2, (size + 1, size))
    rows[np.arange(size), np.arange(size)] = np.nan
    program = Program(Graph())
    with program.graph.entry("main"):
        program.output("y", program.input("x", rows.shape, dtype, rows).max(-1))
    got = run(program)["y"]
    assert np.isnan(got[:size]).all()
    assert got[size] == reference.rounded(rows[size], dtype).max()


def test_an_empty_sum_is_zero_and_an_empty_maximum_the_lowest_value() -> None:
    program = Program(Graph({"n": (0, 8)}), symbols={"n": 0})
    with program.graph.entry("main"):
        for dtype in ("f32", "bf16", "i32", "i64"):
            x = program.input(dtype, (3, program.graph.symbol("n")), dtype, np.zeros((3, 0)))
            program.output(f"sum {dtype}", x.sum(-1))
            program.output(f"max {dtype}", x.max(-1))
    expected = reference.run(program.graph.module, "main", program.inputs, program.symbols)
    for name, got in run(program).items():
        np.testing.assert_array_equal(got, expected[name], name)


def test_the_sine_of_large_angles_is_accurate() -> None:
    angles = np.concatenate([np.random.default_rng(0).uniform(-1, 1, 400) * 10.0**e for e in range(16)])
    program = Program(Graph())
    with program.graph.entry("main"):
        program.output("y", program.input("x", angles.shape, "f32", angles).sin())
    expected = np.sin(program.inputs["x"].astype(np.float64))
    np.testing.assert_allclose(run(program)["y"], expected, rtol=0, atol=1.5e-7)


def test_a_cast_rounds_to_nearest_even_and_overflows_to_infinity() -> None:
    values = np.array(
        [
            65504.0,
            65519.9,
            65520.0,
            3.4e38,
            1.00390625,
            1.01171875,
            -1.00390625,
            2049.0,
            2051.0,
            np.nan,
            np.inf,
            1e-7,
            6e-8,
        ]
    )
    program = Program(Graph())
    with program.graph.entry("main"):
        x = program.input("x", values.shape, "f32", values)
        for dtype in ("f16", "bf16"):
            program.output(dtype, x.cast(dtype))
        program.output(
            "truncated", program.input("i", (6,), "f32", np.array([-1.9, 1.9, -0.5, 2.5, 1e9, -(2.0**31)])).cast("i32")
        )
    expected = reference.run(program.graph.module, "main", program.inputs)
    for name, got in run(program).items():
        np.testing.assert_array_equal(got, expected[name], name)


@pytest.mark.parametrize("target", RUNNABLE)
def test_conversions_of_16_bit_floats_are_exact_on_every_cpu_target(target: str) -> None:
    """All f16 numbers, and random and halfway f32 numbers: also where the processor has no instruction for it."""
    narrow = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    wide = np.random.default_rng(0).integers(0, 1 << 32, 1 << 15, np.uint32)
    wide = np.concatenate([wide, wide & 0xFFFF8000, wide & 0x8FFFF000 | 0x38000000, (wide & 0x80000FFF) << 13]).view(np.float32)
    program = Program(Graph())
    with program.graph.entry("main"):
        h, x = program.input("h", narrow.shape, "f16", narrow), program.input("x", wide.shape, "f32", wide)
        for name, tensor in {
            "up": h.cast("f32"),
            "one": h[5:6].cast("f32"),
            "f16": x.cast("f16"),
            "bf16": x.cast("bf16"),
        }.items():
            program.output(name, tensor)
    expected = reference.run(program.graph.module, "main", program.inputs)
    for name, got in run(program, target).items():
        normal = ~(abs(expected[name]) <= 2.0**-126) | (name != "bf16")  # see `reference.TINIEST`
        np.testing.assert_array_equal(got[normal], expected[name][normal], name)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 1), (3, 17), (5, 130)])
def test_softmax_of_a_row_of_minus_infinity_is_zeros(dtype: str, shape: tuple[int, int]) -> None:
    values = np.random.default_rng(0).uniform(-2, 2, shape)
    values[1] = -np.inf
    program = Program(Graph())
    with program.graph.entry("main"):
        program.output("y", program.input("x", shape, dtype, values).softmax(-1))
    expected = program.expected()
    assert (expected.values["y"][1] == 0).all()
    expected.check(run(program))


# --- Memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases.MEMORY)
def test_outputs_and_states_hold_what_they_must(name: str) -> None:
    program = cases.memory(name)
    expected = program.expected()
    loaded = Loaded(program)
    expected.check(loaded.run())
    if "s" not in program.aliases.values():
        np.testing.assert_array_equal(loaded.cpu.state("s"), program.inputs["s"])
    loaded.cpu.close()


# --- The shapes of models --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases.SHAPES_OF_MODELS)
def test_the_shapes_of_models_compute_what_they_must_in_few_launches(name: str) -> None:
    program = cases.record(name)
    expected = program.expected()
    loaded = Loaded(program)
    expected.check(loaded.run())
    loaded.cpu.close()
    assert len(loaded.artifact.manifest.entries["main"].launches) <= cases.SHAPES_OF_MODELS[name].launches


def test_equal_chunks_share_their_kernels() -> None:
    program = cases.record("layers with a residual")
    manifest = compile_module(program.graph.module, find_target("cpu"), {}).manifest
    assert len(manifest.entries["main"].launches) == 3
    assert len(manifest.kernels) == 1


@pytest.mark.parametrize("length", [1, 2, 23])
def test_causal_attention_is_aligned_to_the_last_key(length: int) -> None:
    """q shorter than k: query i of `length` sees keys 0 .. past + i, whatever lies in the cache beyond."""
    name = "attention heads=4 kv_heads=2 dtype=f32"
    program = cases.record(name)
    program.symbols["seq"] = length
    q = np.random.default_rng(0).standard_normal((length, 4, 16)).astype(np.float32)
    keys, values = program.inputs["keys"], program.inputs["values"]
    program.inputs["q"] = q
    used = program.symbols["past"] + length
    expected = np.zeros((length, 4, 16))
    for i in range(length):
        seen = used - length + i + 1
        for head in range(4):
            scores = keys[head // 2, :seen] @ q[i, head] / 4.0
            weights = np.exp(scores - scores.max())
            expected[i, head] = weights @ values[head // 2, :seen] / weights.sum()
    for memory in (keys, values):
        memory[:, used:] = np.nan
    np.testing.assert_allclose(run(program)["y"], expected, rtol=1e-5, atol=1e-5)
