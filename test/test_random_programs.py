"""Programs on the CPU target against the reference: random ones, every primop alone, and the shapes that models are made of."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilec.frontend.tensor import Graph, Tensor
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import CPU_TARGETS, find_target, host_cpu
from tilec.runtime.artifact import Artifact
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.weights import pack

from . import cases, reference
from .programs import FLOATS, Program, programs
from .reference import Array

EXAMPLES = int(os.environ.get("TILEC_EXAMPLES", "100"))


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


def unit(values: Array, dtype: str) -> Array:
    """One unit in the last place of finite values."""
    exponent = np.floor(np.log2(np.maximum(np.nan_to_num(abs(values.astype(np.float64)), posinf=0.0), 2.0**-149)))
    return np.maximum(reference.ULP[dtype] * 2.0**exponent, reference.TINIEST[dtype])


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
            wrong = abs(got.astype(np.float64) - want) > op.ulps * unit(want, dtype) + op.absolute
            assert not wrong.any(), f"{label}: {got[wrong][:4]} are not {want[wrong][:4]}"


NAN, INF = math.nan, math.inf
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, 3.25, -1e-3, 1e3, -1e3, 2.0**-14, 200.0, -140.0, -126.5, -300.0])


def special(build: dict[str, object], dtype: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """Results and what they must be, of functions of all pairs of special values."""
    program = Program(Graph())
    with program.graph.entry("main"):
        x = program.input("x", (len(SPECIAL), 1), dtype, SPECIAL[:, None])
        y = program.input("y", (len(SPECIAL),), dtype, SPECIAL)
        for name, function in build.items():
            program.output(name, function(x, y))  # type: ignore[operator]
    return reference.run(program.graph.module, "main", program.inputs), run(program)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_infinities_and_signed_zeros_are_those_of_ieee_arithmetic(dtype: str) -> None:
    expected, results = special(
        {
            "add": lambda x, y: x + y,
            "mul": lambda x, y: x * y,
            "mod": lambda x, y: x % y,
            "recip": lambda x, y: x.recip(),
            "sqrt": lambda x, y: x.sqrt(),
            "divf": lambda x, y: x.custom("arith.divf", y),
            "less": lambda x, y: x < y,
            "minimum": lambda x, y: x.custom("arith.minimumf", y),
            "floor": lambda x, y: x.custom("math.floor"),
            "negative": lambda x, y: -x,
            "x + 0": lambda x, y: x + 0.0,
            "true": lambda x, y: x.cast("i1"),
        },
        dtype,
    )
    for name, want in expected.items():
        np.testing.assert_array_equal(results[name], want, name)
        if dtype == "f32" and name != "minimum":
            where = ~np.isnan(want.astype(np.float32))
            np.testing.assert_array_equal(np.signbit(results[name])[where], np.signbit(want)[where], name)


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_nan_infinities_and_extremes_have_their_limits(dtype: str) -> None:
    expected, results = special(
        {
            "exp2": lambda x, y: x.exp2(),
            "log2": lambda x, y: x.log2(),
            "sin": lambda x, y: x.sin(),
            "tanh": lambda x, y: x.custom("math.tanh"),
            "erf": lambda x, y: x.custom("math.erf"),
        },
        dtype,
    )
    for name, want in expected.items():
        got = results[name]
        finite = np.isfinite(want)
        np.testing.assert_array_equal(got[~finite], want[~finite], name)
        assert (
            abs(got[finite].astype(np.float64) - want[finite]) <= 2 * unit(want[finite], dtype) + 1.5e-7 * (name == "sin")
        ).all(), name


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [2, 17, 129])
def test_a_maximum_over_a_nan_is_nan_wherever_it_stands(dtype: str, size: int) -> None:
    rows = np.random.default_rng(0).uniform(-2, 2, (size + 1, size))
    rows[np.arange(size), np.arange(size)] = NAN
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
        [65504.0, 65519.9, 65520.0, 3.4e38, 1.00390625, 1.01171875, -1.00390625, 2049.0, 2051.0, NAN, INF, 1e-7, 6e-8]
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
    values[1] = -INF
    program = Program(Graph())
    with program.graph.entry("main"):
        program.output("y", program.input("x", shape, dtype, values).softmax(-1))
    expected = program.expected()
    assert (expected.values["y"][1] == 0).all()
    expected.check(run(program))


# --- Memory ----------------------------------------------------------------------------------------------------------


def outputs(record: object) -> Program:
    """A program over an argument `x`, a state `s` (6, 4) and a weight `w`."""
    program, rng = Program(Graph({"n": (1, 4)}), symbols={"n": 3}), np.random.default_rng(0)
    with program.graph.entry("main"):
        inputs = [
            program.input(n, s, "f32", rng.standard_normal((3, 4) if n == "x" else s), k)
            for n, s, k in (("x", (program.graph.symbol("n"), 4), "argument"), ("s", (6, 4), "state"), ("w", (6, 4), "weight"))
        ]
        record(program, *inputs)  # type: ignore[operator]
    return program


def _inputs_themselves(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    for name, tensor in {
        "x out": x,
        "s out": s,
        "w out": w,
        "one": p.graph.constant(1.0, "f32"),
        "iota": p.graph.iota(5),
    }.items():
        p.output(name, tensor)


def _rows_of_a_state_shifted(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    p.output("s after", s.scatter(0, p.graph.iota(5), s[1:]), alias="s")


def _a_state_read_before_it_is_written(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    old = s * 2.0
    new = s.scatter(0, p.graph.iota(p.graph.symbol("n")), x)
    p.output("both", old + new)
    p.output("s after", new, alias="s")


def _a_state_written_and_not_kept(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    p.output("new", s.scatter(0, p.graph.iota(p.graph.symbol("n")), x))
    p.output("old", s + 0.0)


def _a_state_replaced_by_a_computation(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    p.output("s after", s * 0.5 + w, alias="s")
    p.output("rows", s.sum(-1))


def _a_state_written_twice(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    once = s.scatter(0, p.graph.iota(p.graph.symbol("n")), x)
    p.graph.graph_break("next")
    twice = once.scatter(0, p.graph.iota(2), once[2:4])
    p.output("between", once)
    p.output("s after", twice, alias="s")


def _a_value_read_after_it_is_scattered_into(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    value = w.exp2()
    p.output("y", value.scatter(0, p.graph.iota(p.graph.symbol("n")), x) + value * 2.0)


def _a_constant_and_an_iota_of_another_chunk(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    p.graph.graph_break("first")
    two, count = p.graph.constant(2.0, "f32"), p.graph.iota(4, "f32")
    first = x * two + count
    p.graph.graph_break("second")
    p.output("y", first * two + count)


MEMORY = (
    _inputs_themselves,
    _rows_of_a_state_shifted,
    _a_state_read_before_it_is_written,
    _a_state_written_and_not_kept,
    _a_state_replaced_by_a_computation,
    _a_state_written_twice,
    _a_value_read_after_it_is_scattered_into,
    _a_constant_and_an_iota_of_another_chunk,
)


@pytest.mark.parametrize("record", MEMORY, ids=lambda f: f.__name__.strip("_").replace("_", " "))
def test_outputs_and_states_hold_what_they_must(record: object) -> None:
    program = outputs(record)
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
        memory[:, used:] = NAN
    np.testing.assert_allclose(run(program)["y"], expected, rtol=1e-5, atol=1e-5)
