"""Reductions of long rows that share a loop: how often a row is read, and the numbers against float64 on hard data."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from mlir import ir

from tilec.dialects import core, tile
from tilec.frontend.tensor import LOG2_E, Graph, Tensor
from tilec.pipelines import pipeline
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.passes import run_pipeline
from tilec.pipelines.pipeline import primop_pipeline, tile_pipeline, without
from tilec.pipelines.primop.online_rows import OnlineRows
from tilec.pipelines.targets import find_target
from tilec.runtime.cpu import CpuProgram

from . import reference
from .gpu_simulator import SimulatedGpu

LN_2 = math.log(2.0)
ROWS = 3
LONGEST = 20000  # 80 kB: not near
LONG, MANY = 32768, 64  # a known length, and more rows than clusters of blocks can have for themselves


# --- Programs --------------------------------------------------------------------------------------------------------


def softmax(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    return x.softmax(-1)


def log_sum_exp(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    largest = x.max(-1, keepdim=True)
    return (((x - largest) * LOG2_E).exp2().sum(-1, keepdim=True).log2() * LN_2 + largest).squeeze(-1)


def log_sum_exp_of_scaled(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    """The factor is on both sides of the difference, and the maximum is never -inf: another way to write the same."""
    largest = x.max(-1, keepdim=True)
    finite = (largest < -1e30).where(x.graph.constant(-1e30, "f32"), largest)
    return ((x * LOG2_E - finite * LOG2_E).exp2().sum(-1, keepdim=True).log2() * LN_2 + finite).squeeze(-1)


def cross_entropy(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    """The logit of the label is picked out of the row while it passes."""
    at = x.graph.iota(x.shape[-1])
    zero, wanted = x.graph.constant(0.0, "f32"), label.unsqueeze(1)
    picked = (at < wanted).where(zero, (wanted < at).where(zero, x)).sum(-1)
    return log_sum_exp(x, label, inverse) - picked


def mean_under_softmax(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    """A sum of products of exponentials and something else."""
    powers = ((x - x.max(-1, keepdim=True)) * LOG2_E).exp2()
    return (powers * x).sum(-1) * powers.sum(-1).recip()


def variance(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    distance = x - x.sum(-1, keepdim=True) * inverse
    return (distance * distance).sum(-1) * inverse


def normalised(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    distance = x - x.sum(-1, keepdim=True) * inverse
    return distance * ((distance * distance).sum(-1, keepdim=True) * inverse + 1e-6).sqrt().recip()


def _softmax(x: np.ndarray) -> np.ndarray:
    largest = x.max(-1, keepdims=True)
    powers = np.exp(x - np.where(np.isfinite(largest), largest, 0.0))
    return powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)


def _log_sum_exp(x: np.ndarray) -> np.ndarray:
    largest = x.max(-1)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - shift[:, None]).sum(-1)) + shift


def _variance(x: np.ndarray) -> np.ndarray:
    return ((x - x.mean(-1, keepdims=True)) ** 2).mean(-1)


def _normalised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(_variance(x)[:, None] + 1e-6)


Row = Callable[[Tensor, Tensor, Tensor], Tensor]
EXPECTED: dict[Row, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    softmax: lambda x, label: _softmax(x),
    log_sum_exp: lambda x, label: _log_sum_exp(x),
    log_sum_exp_of_scaled: lambda x, label: _log_sum_exp(x),
    cross_entropy: lambda x, label: _log_sum_exp(x) - x[np.arange(len(x)), label],
    mean_under_softmax: lambda x, label: (_softmax(x) * x).sum(-1),
    variance: lambda x, label: _variance(x),
    normalised: lambda x, label: _normalised(x),
}
PASSES = {softmax: 2, normalised: 2}  # over a row, one of them to write; the others make one


def record(program: Row, length: int | None = None, dtype: str = "f32", rows: int = ROWS, longest: int = LONGEST) -> Graph:
    """A program over rows of a known length, or of any up to `longest`."""
    graph = Graph({"n": (1, longest)})
    with graph.entry("main"):
        x = graph.input("x", (rows, length or graph.symbol("n")), dtype)
        label, inverse = graph.input("label", (rows,), "i32"), graph.input("inverse", (1,), "f32")
        graph.output("y", program(x if program is softmax else x.cast("f32"), label, inverse))
    return graph


# --- How often memory is read ----------------------------------------------------------------------------------------


def _number(value: ir.Value) -> int:
    return ir.IntegerAttr(value.owner.attributes["value"]).value


def passes_over_a_row(graph: Graph, target: str, *leave_out: str) -> Fraction:
    """How often all programs of the one kernel together read each element of `x`."""
    with graph.context, ir.Location.unknown():
        core.load_all()
        run_pipeline(graph.module, without(tile_pipeline(target), leave_out))
    read = Fraction(0)

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal read
        load = op.opview
        if not isinstance(load, tile.Load) or ir.MemRefType(load.source.type).rank != 2:
            return ir.WalkResult.ADVANCE
        turns, around = 1, op.parent
        while around.name != "func.func":
            first, last, step = (_number(v) for v in list(around.operands)[:3])
            turns, around = turns * -(-(last - first) // step), around.parent
        read += Fraction(turns * ir.VectorType(load.result.type).shape[1], ir.MemRefType(load.source.type).shape[1])
        return ir.WalkResult.ADVANCE

    kernels = next(o for o in graph.module.body.operations if o.operation.name == "builtin.module")
    kernels.operation.walk(visit)
    assert len(list(kernels.regions[0].blocks[0].operations)) == 1
    return read


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("program", EXPECTED)
def test_one_pass_over_memory_is_lost(program: Row, target: str) -> None:
    expected = PASSES.get(program, 1)
    assert passes_over_a_row(record(program, LONG, rows=MANY), target) == expected
    assert passes_over_a_row(record(program, LONG, rows=MANY), target, OnlineRows.name) == expected + 1


def test_the_logit_of_a_label_is_gathered_without_another_pass() -> None:
    graph = Graph({})
    with graph.entry("main"):
        x, label = graph.input("x", (MANY, LONG), "f32"), graph.input("label", (MANY,), "i32")
        own = x.reshape(-1).take(graph.iota(MANY) * LONG + label)
        graph.output("y", log_sum_exp(x, label, x) - own)
    assert passes_over_a_row(graph, "sm_90a") == 1


@pytest.mark.parametrize("program", EXPECTED)
def test_a_row_that_registers_hold_is_read_once_in_any_case(program: Row) -> None:
    """A short one by a block, and a long one of a few by a cluster."""
    for length, rows in ((2048, MANY), (LONG, ROWS)):
        for left_out in ((), (OnlineRows.name,)):
            assert passes_over_a_row(record(program, length, rows=rows), "sm_90a", *left_out) == 1


def _marked(graph: Graph) -> int:
    """Sums that the pass marks, among all kernels for a GPU."""
    with graph.context, ir.Location.unknown():
        core.load_all()
        run_pipeline(graph.module, primop_pipeline(find_target("sm_80")))
    return str(graph.module).count("primop.mended")


def squares_and_maximum(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    """The maximum of the distances needs the mean first, in a loop of its own, which the squares may as well join."""
    distance = x - x.sum(-1, keepdim=True) * inverse
    return (distance * distance).sum(-1) + distance.max(-1)


def rising(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    """The factor between parts could overflow."""
    return (x + x.max(-1, keepdim=True)).exp2().sum(-1)


def absolute(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    return (x - x.sum(-1, keepdim=True) * inverse).custom("math.absf").sum(-1)


def varying(x: Tensor, label: Tensor, inverse: Tensor) -> Tensor:
    """What is known late is not one number a row."""
    late = x.max(-1, keepdim=True) * x.graph.iota(x.shape[-1], "f32")
    return (x - late).exp2().sum(-1)


@pytest.mark.parametrize("program", [squares_and_maximum, rising, absolute, varying])
def test_what_cannot_be_mended_stays_as_it_is(program: Row) -> None:
    assert not _marked(record(program))


def test_a_row_that_is_near_stays_as_it_is() -> None:
    assert not _marked(record(softmax, 8192))
    assert _marked(record(softmax, 8193)) == 1
    assert not _marked(record(softmax, 16384, "bf16"))


# --- Numbers ---------------------------------------------------------------------------------------------------------


class Device:
    """A compiled program on the CPU, with one loop a row as on a GPU, or in the PTX interpreter."""

    def __init__(self, graph: Graph, target: str, *leave_out: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if target == "cpu":
                patch.setattr(pipeline, "primop_pipeline", lambda target: primop_pipeline(find_target("sm_80")))
            self.artifact = compile_module(graph.module, find_target(target), {}, leave_out=leave_out)
        self.cpu = CpuProgram(self.artifact, [], 1) if target == "cpu" else None
        self.arguments = {b.label: b for b in self.artifact.manifest.entries["main"].buffers if b.kind == "argument"}

    def run(self, x: np.ndarray) -> np.ndarray:
        """The result for rows of x's length; memory beyond them is poisoned."""
        length = x.shape[1]
        given = {"x": x, "label": labels(length)[: len(x)], "inverse": np.array([1.0 / length], np.float32)}
        given = {n: a for n, a in given.items() if n in self.arguments}
        if self.cpu is None:
            return SimulatedGpu(self.artifact, {}).run("main", given, {"n": length})["y"]
        longest = self.artifact.manifest.symbols["n"][1]
        poison = np.full((len(x), longest, x.itemsize), 0xFF, np.uint8).view(x.dtype).reshape(len(x), longest)
        self.cpu.run("main", {**given, "x": poison}, {"n": longest})
        return np.array(self.cpu.run("main", given, {"n": length})["y"])


device = functools.cache(lambda program, target, *leave_out: Device(record(program), target, *leave_out))


def labels(length: int) -> np.ndarray:
    return np.array([0, length // 2, length - 1], np.int32)


LENGTHS = (1, 17, 999, 4097, 19999)


def ordinary(length: int) -> np.ndarray:
    return np.random.default_rng(length).standard_normal((ROWS, length))


def ascending(length: int) -> np.ndarray:
    """Every element is a new maximum, and the mean of what has been seen is never that of what comes."""
    return np.sort(ordinary(length)) * 20.0


def descending(length: int) -> np.ndarray:
    return ascending(length)[:, ::-1]


def far(length: int) -> np.ndarray:
    """Mean 1e4 and variance 1."""
    return ordinary(length) + 1e4


def led_by_an_outlier(length: int) -> np.ndarray:
    values = ordinary(length)
    values[:, 0] = 3e3
    return values


def equal(length: int) -> np.ndarray:
    return np.full((ROWS, length), 1000.0)


def masked(length: int) -> np.ndarray:
    """The first half -inf, a row of -inf, and a row whose one number comes last."""
    values = ordinary(length)
    values[:, : length // 2] = -np.inf
    values[1] = -np.inf
    values[2, :-1] = -np.inf
    return values


def huge(length: int) -> np.ndarray:
    """Differences and multiples of these overflow."""
    values = ordinary(length)
    values[:, ::2] *= 1e38
    values[0, 0] = 3.4e38
    return np.clip(values, -3.4e38, 3.4e38)


def below_every_floor(length: int) -> np.ndarray:
    """Smaller than what programs put in place of -inf, and finite."""
    return np.full((ROWS, length), -3e38)


Data = Callable[[int], np.ndarray]
ORDINARY: tuple[Data, ...] = (ordinary, ascending, descending, far, led_by_an_outlier)
CASES = [(p, d) for p in EXPECTED for d in ORDINARY] + [(p, equal) for p in EXPECTED if p is not normalised]
CASES += [(p, d) for p in (softmax, log_sum_exp) for d in (masked, huge)]
CASES += [(log_sum_exp_of_scaled, masked), (cross_entropy, huge), (log_sum_exp, below_every_floor)]


def allowed(program: Row, x: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Rounding: of the sums, of what is as large as the data, and of a mean that is rounded to f32."""
    size = np.nan_to_num(abs(x), posinf=0.0).max(-1)
    if program is variance:
        return 6e-6 * want + (1e-6 * size) ** 2  # without AVX-512, lanes of eight add up 2500 squares each
    if program is normalised:
        return 2e-6 * abs(want) + 4e-7 * size[:, None] / np.sqrt(_variance(x)[:, None] + 1e-6) + 1e-6
    if program is softmax:  # the exponent itself is rounded
        return want * (2e-6 + 2e-7 * (x.max(-1, keepdims=True) - x)) + 1e-37
    return 3e-6 * abs(want) + 4e-7 * size


def check(program: Row, x: np.ndarray, got: np.ndarray) -> None:
    exact = x.astype(np.float64)
    with np.errstate(all="ignore"):
        want = EXPECTED[program](exact, labels(x.shape[1])[: len(x)])
        good = (got == want) | (abs(got - want) <= allowed(program, exact, want))
    assert good.all(), (x.shape, got[~good][:5], want[~good][:5])


@pytest.mark.parametrize(("program", "data"), CASES, ids=lambda f: f.__name__)
def test_numbers_are_those_of_float64(program: Row, data: Data) -> None:
    for length in LENGTHS:
        x = data(length).astype(np.float32)
        check(program, x, device(program, "cpu").run(x))


@pytest.mark.parametrize(("program", "data"), [c for c in CASES if c[1] in (ascending, far, masked)], ids=lambda f: f.__name__)
def test_numbers_of_a_gpu_are_those_of_float64(program: Row, data: Data) -> None:
    """Less than a turn of all threads, and some turns and a rest."""
    for length in (17, 999, 9001):
        x = data(length).astype(np.float32)
        check(program, x, device(program, "sm_80").run(x))


@pytest.mark.parametrize("program", [softmax, cross_entropy, variance])
def test_a_cluster_shares_a_row(program: Row) -> None:
    """Longer than all threads of a cluster hold, so it takes a loop, and blocks combine after it."""
    cluster = Device(record(program, rows=1, longest=200000), "sm_90a")
    x = (ordinary(150001)[:1] * 3.0 + 100.0).astype(np.float32)
    check(program, x, cluster.run(x))


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_rows_of_16_bits(target: str) -> None:
    """All of a softmax in bf16, whose maximum grows with every element: mending rounds nothing to 16 bits."""
    x = reference.rounded(ascending(999) / 4.0, "bf16")
    compiled = Device(record(softmax, dtype="bf16"), target)
    got = reference.from_memory(compiled.run(reference.to_memory(x, "bf16")), "bf16")
    np.testing.assert_allclose(got, _softmax(x.astype(np.float64)), rtol=0.1, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("program", EXPECTED)
def test_what_is_no_number_stays_none(program: Row, value: float) -> None:
    """Wherever in the row it is seen, and only in that row."""
    x = ordinary(4097).astype(np.float32)
    x[0, 0] = x[2, -1] = value
    apart, together = (device(program, "cpu", *left_out).run(x) for left_out in ((OnlineRows.name,), ()))
    np.testing.assert_array_equal(np.isfinite(together), np.isfinite(apart))
    assert np.isnan(together[[0, 2]]).any() and np.isfinite(together[1]).all()


def test_a_maximum_that_somebody_else_needs_is_in_memory() -> None:
    """The sum's kernel reads it, and has nothing to mend."""
    graph = Graph({})
    with graph.entry("main"):
        x = graph.input("x", (ROWS, LONG), "f32")
        largest = x.max(-1, keepdim=True)
        graph.output("largest", largest)
        graph.output("y", (x - largest).exp2().sum(-1))
    assert not _marked(graph)
