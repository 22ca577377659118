"""Programs in which every value is read twice, many levels deep: what walks them once for each way through never ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from mlir import ir

from tilec.dialects import core, primop
from tilec.dialects.index_expr import dim
from tilec.frontend.tensor import Graph, Tensor
from tilec.pipelines.passes import run_pipeline
from tilec.pipelines.pipeline import primop_pipeline
from tilec.pipelines.primop import reads
from tilec.pipelines.primop.outline import body_of, functions
from tilec.pipelines.targets import find_target
from tilec.tools.tune.exact import Exact

from . import reference
from .programs import Program
from .test_ptx_programs import simulate
from .test_random_programs import run

DEPTH = 20
PATIENCE = 60  # seconds for one test
ROWS, COLUMNS = 4, 64


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """Ends a test that walks for ever."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# --- One level of each kind; none lets errors grow -----------------------------------------------------------------------


def square(x: Tensor, level: int) -> Tensor:
    return x * x * 0.5 + 0.25


def two_functions(x: Tensor, level: int) -> Tensor:
    return x.sin() * 0.5 + x.custom("math.tanh") * 0.5


def residual(x: Tensor, level: int) -> Tensor:
    return x + (x * -0.5 + 0.125)


def flipped(x: Tensor, level: int) -> Tensor:
    return (x + x.flip(level % 2)) * 0.5


def broadcast(x: Tensor, level: int) -> Tensor:
    return x * 0.5 + x[0:1] * 0.25 + x[:, 0:1] * 0.25


def transposed(x: Tensor, level: int) -> Tensor:
    return (x + x.reshape(16, 16).transpose(0, 1).reshape(ROWS, COLUMNS)) * 0.5


def sliced(x: Tensor, level: int) -> Tensor:
    """Two more columns to begin with than at the end."""
    return (x[:, :-1] + x[:, 1:]) * 0.5 if level % 2 else (x.pad(1, 0, 1) + x.pad(1, 1, 0)) * 0.5


def shifted(x: Tensor, level: int) -> Tensor:
    """A running mean over up to all columns: other points at every level."""
    return (x + x.pad(1, 1 << level % 6, 0)[:, :COLUMNS]) * 0.5


def masked(x: Tensor, level: int) -> Tensor:
    """Other conditions at every level."""
    return x * 0.5 + x.where_index(dim(1) - dim(0) - level) * 0.5


def shuffled(x: Tensor, level: int) -> Tensor:
    return (x + x.reshape(ROWS, 2, COLUMNS // 2).transpose(1, 2).reshape(ROWS, COLUMNS).flip(1)) * 0.5


def normalised(x: Tensor, level: int) -> Tensor:
    return x - x.sum(-1, keepdim=True) * (0.5 / COLUMNS) - x.max(-1, keepdim=True) * 0.25


def looked_up(x: Tensor, level: int) -> Tensor:
    return (x + x.take(x.graph.iota(ROWS) * 3 % ROWS)) * 0.5


LEVELS: dict[str, Callable[[Tensor, int], Tensor]] = {
    f.__name__: f
    for f in (square, two_functions, residual, flipped, broadcast, transposed, sliced, shifted, masked, shuffled, normalised,
              looked_up)
}


CUT = ("transposed", "sliced", "shifted", "masked", "shuffled", "normalised")  # with views, conditions or sums that add up


def deep(x: Tensor, level: Callable[[Tensor, int], Tensor], depth: int = DEPTH) -> Tensor:
    for i in range(depth):
        x = level(x, i)
    return x


def recorded(write: Callable[[Program, Tensor], None], dtype: str = "f32") -> Program:
    """A program that `write` makes of a matrix."""
    program = Program(Graph({"n": (1, 24)}), symbols={"n": 17})
    with program.graph.entry("main"):
        write(program, program.input("x", (ROWS, COLUMNS), dtype, normal(ROWS, COLUMNS)))
    return program


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape)


def check(program: Program, execute: Callable[[Program], dict[str, np.ndarray]]) -> None:
    expected = program.expected()
    expected.check(execute(program))


def several(program: Program, x: Tensor) -> None:
    for level in (flipped, shifted, normalised):
        program.output(level.__name__, deep(x, level))


def around_a_product(program: Program, x: Tensor) -> None:
    """Deep before a product, behind it, and a deep norm of one row, which its readers make for themselves."""
    w = program.input("w", (COLUMNS, COLUMNS), "f32", normal(COLUMNS, COLUMNS) / 8, kind="weight")
    program.output("before", deep(x, square) @ w)
    program.output("behind", deep(x @ w, flipped))
    mirrored = (x @ w.transpose(0, 1)).reshape(ROWS, 8, 2, 4)
    for _ in range(DEPTH):
        mirrored = mirrored + mirrored.flip(2) * 0.25
    program.output("mirrored", mirrored * 2.0**-DEPTH)
    row = deep(x[0:1], residual)
    program.output("row", (row * ((row * row).sum(-1, keepdim=True) + 1.0).sqrt().recip()) @ w)


def attention(program: Program, x: Tensor) -> None:
    """One query over a cache of any length: deep keys, a deep mask, and scores that are read on two ways."""
    length = program.graph.symbol("n")
    q = program.input("q", (2, 1, 64), "f32", normal(2, 1, 64) / 8)
    k, v = (program.input(name, (2, length, 64), "f32", normal(2, 17, 64) / 8) for name in ("k", "v"))
    hidden = q @ deep(k, residual).transpose(1, 2)
    nothing = program.graph.constant(float("-inf"), "f32").expand(2, 1, length)
    for i in range(DEPTH):
        hidden = hidden + nothing.where_index(dim(2) - 10 - i % 2)
    program.output("masked", hidden.softmax(-1) @ v)
    program.output("twice", deep(q @ k.transpose(1, 2), residual).softmax(-1) @ v)


@pytest.mark.parametrize("name", LEVELS)
def test_a_deep_program_of_one_kind_of_view_runs_on_the_cpu(name: str) -> None:
    check(recorded(lambda program, x: program.output("y", deep(x, LEVELS[name]))), run)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_deep_programs_with_products_run(target: str) -> None:
    def write(program: Program, x: Tensor) -> None:
        for part in (several, around_a_product, attention):
            part(program, x)

    check(recorded(write), run if target == "cpu" else lambda program: simulate(program, target))


def test_a_chain_deeper_than_the_stack_of_python_runs() -> None:
    check(recorded(lambda program, x: program.output("y", deep(x, square, 150))), run)


def test_a_view_of_views_stays_short() -> None:
    """Each reshape that takes other factors apart would write the index before it twice."""

    def write(program: Program, x: Tensor) -> None:
        y = x[:, :60]
        for i in range(8):
            y = y.reshape(ROWS, 6 - i % 3, 60 // (6 - i % 3)).transpose(1, 2).flip(1).reshape(ROWS, 60)
        program.output("y", y)

    program = recorded(write)
    longest = max(sum(e.count_terms() for e in primop.map_results(m)) for op in computed(program) for m in op.maps)
    assert longest <= reads.MOST_TERMS
    check(program, run)


def computed(program: Program) -> list[Any]:
    entry = functions(program.graph.module.operation, "primop.entry")[0]
    return [op for op in body_of(entry).operations if "maps" in op.operation.attributes]


def kernels(program: Program, target: str) -> list[ir.OpView]:
    module = program.graph.module
    with module.context, ir.Location.unknown():
        core.load_all()
        run_pipeline(module, primop_pipeline(find_target(target)))
    return functions(module.operation, "primop.kernel")


@pytest.mark.parametrize("name", [n for n in LEVELS if n != "looked_up"])
def test_kernels_hold_what_is_read_at_few_points(name: str) -> None:
    """Where points stay few a program is one kernel; otherwise kernels end after a few levels, and not after each."""
    found = len(kernels(recorded(lambda program, x: program.output("y", deep(x, LEVELS[name]))), "cpu"))
    assert (1 < found < DEPTH) if name in CUT else found == 1


def test_a_deep_kernel_is_judged_by_what_it_should_compute() -> None:
    """The oracle of `tilec tune`."""

    def write(program: Program, x: Tensor) -> None:
        program.output("y", deep(deep(x, lambda x, level: x * 0.5 + x.flip(1) * 0.5), normalised, 4))

    program = recorded(write)
    expected = reference.run(program.graph.module, "main", program.inputs, program.symbols)["y"]
    kernel, = kernels(program, "sm_90a")
    point, values = Exact(kernel, [program.inputs["x"]], program.symbols).samples()
    np.testing.assert_allclose(values, expected[point], rtol=1e-4, atol=1e-4)
