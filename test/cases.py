"""Programs written by hand: every primop alone, and the shapes that the layers of a model are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilec.dialects import primop
from tilec.dialects.index_expr import dim
from tilec.frontend import nn
from tilec.frontend.tensor import Graph, Tensor

from . import reference
from .programs import FLOATS, INTEGERS, Program

ALL = (*FLOATS, *INTEGERS, "i1")
NUMBERS = (*FLOATS, *INTEGERS)
SHAPES = ((1,), (129,), (3, 17), (2, 5, 33))


@dataclass(frozen=True)
class Alone:
    """One primop: the element types that it takes, the op on one or two tensors of one shape, and its accuracy.

    `ulps` is how many units in the last place a result may be off; `absolute` is added to that.
    """

    dtypes: tuple[str, ...]
    apply: Callable[..., Tensor | list[Tensor]]
    ulps: float = 0.0
    absolute: float = 0.0
    positive: bool = False


def _index(x: Tensor, values: np.ndarray, program: Program, dtype: str) -> Tensor:
    return program.input(f"index{len(program.inputs)}", values.shape, dtype, values)


def _gathered(x: Tensor, program: Program) -> list[Tensor]:
    rows = x.shape[0].constant
    return [x.take(_index(x, np.array([[0, rows - 1, -3], [rows + 7, rows // 2, 0]]), program, d)) for d in INTEGERS]


def _scattered(x: Tensor, program: Program) -> list[Tensor]:
    """Along every axis, with an index on both sides of the dimension."""
    results = []
    for axis in range(x.rank):
        count = min(x.shape[axis].constant, 5)
        order = np.random.default_rng(axis).permutation(np.arange(-1, x.shape[axis].constant + 1))[:count]
        source = x[(*[slice(None)] * axis, slice(0, count))]
        results += [x.scatter(axis, _index(x, order, program, d), source) for d in INTEGERS]
    return results


def _custom(kind: str, **accuracy: float) -> Alone:
    return Alone(FLOATS, lambda x, y: x.custom(kind), **accuracy)  # type: ignore[arg-type]


def _shifts(x: Tensor) -> list[Tensor]:
    """Amounts up to the highest bit."""
    return [x.graph.constant(n, x.dtype) for n in (0, 1, 31, *([32, 63] if x.dtype == "i64" else []))]


ALONE: dict[str, Alone] = {
    "cast": Alone(ALL, lambda x, y: [x.cast(d, copy=True) for d in ALL]),
    "exp2": Alone(FLOATS, lambda x, y: x.exp2(), ulps=2),
    "log2": Alone(FLOATS, lambda x, y: x.log2(), ulps=2, positive=True),
    "sin": Alone(FLOATS, lambda x, y: x.sin(), ulps=1, absolute=1.5e-7),
    "recip": Alone(FLOATS, lambda x, y: x.recip(), positive=True),
    "sqrt": Alone(FLOATS, lambda x, y: x.sqrt(), positive=True),
    "add": Alone(ALL, lambda x, y: [x + y, *([x.add(y, "f32")] if x.dtype in ("bf16", "f16") else [])]),
    "mul": Alone(ALL, lambda x, y: [x * y, *([x.mul(y, "f32")] if x.dtype in ("bf16", "f16") else [])]),
    "mod": Alone(NUMBERS, lambda x, y: [x % y, -x % y], positive=True),
    "less_than": Alone(ALL, lambda x, y: [x < y, x < x]),
    "sum": Alone(NUMBERS, lambda x, y: [x.sum(*axes) for axes in ([0], [-1], range(x.rank))], ulps=1, absolute=2e-5),
    "max": Alone(NUMBERS, lambda x, y: [x.max(*axes) for axes in ([0], [-1], range(x.rank))]),
    "softmax": Alone(FLOATS, lambda x, y: [x.softmax(0), x.softmax(-1)], ulps=32),
    "gather": Alone(ALL, _gathered),
    "scatter": Alone(ALL, _scattered),
    "constant": Alone(ALL, lambda x, y: x.graph.constant(1, x.dtype).expand(*x.shape)),
    "iota": Alone(ALL, lambda x, y: x.graph.iota(x.shape[-1], x.dtype)),
    "input and output": Alone(ALL, lambda x, y: x),
    "select": Alone(ALL, lambda x, y: x.cast("i1", copy=True).where(x, y)),
    "arith.minimumf": Alone(FLOATS, lambda x, y: x.custom("arith.minimumf", y)),
    "arith.divf": Alone(FLOATS, lambda x, y: x.custom("arith.divf", y), positive=True),
    "arith.divsi": Alone(INTEGERS, lambda x, y: [x.custom("arith.divsi", y), (-x).custom("arith.divsi", y)], positive=True),
    "math.tanh": _custom("math.tanh", ulps=4),
    "math.erf": _custom("math.erf", ulps=4),
    "math.floor": _custom("math.floor"),
    "math.ceil": _custom("math.ceil"),
    "math.round": _custom("math.round"),
    "math.absf": _custom("math.absf"),
    "arith.xori": Alone((*INTEGERS, "i1"), lambda x, y: x.custom("arith.xori", y)),
    "arith.shrui": Alone(INTEGERS, lambda x, y: [x.custom("arith.shrui", s) for s in (y % 5 * (y % 5), *_shifts(x))]),
    "arith.bitcast": Alone(("f32", "i32"), lambda x, y: x.custom("arith.bitcast", dtype="i32" if x.dtype == "f32" else "f32")),
}
MADE_BY_PASSES = {"part"}  # which nobody can record: see test_shared_chains.py
assert {k.removeprefix("primop.") for k in primop.Primop.operations} <= {*ALONE, "input", "output", "custom", *MADE_BY_PASSES}
assert {"arith.select", *ALONE} >= set(primop.CUSTOM_KINDS), "every custom kind is tried"


def alone(name: str) -> Program:
    """One primop on every element type and some ragged shapes, each an output of its own."""
    op, rng = ALONE[name], np.random.default_rng(0)
    program = Program(Graph())
    with program.graph.entry("main"):
        for dtype in op.dtypes:
            for number, shape in enumerate(SHAPES):
                operands = []
                for side in "xy":
                    values = rng.uniform(-4, 4, shape) if dtype in FLOATS else rng.integers(-9, 10, shape)
                    values.flat[::7] = np.round(values.flat[::7])  # equals, halves and zeros
                    values = abs(values) + (values == 0) if op.positive else values
                    operands.append(program.input(f"{side}.{dtype}.{number}", shape, dtype, values))
                last = [program] if op.apply in (_gathered, _scattered) else operands[1:]
                made = op.apply(operands[0], *last)
                for i, tensor in enumerate(made if isinstance(made, list) else [made]):
                    program.output(f"{dtype}{list(shape)}.{i}", tensor)
    return program


# --- The shapes of a model -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A program and the most launches that fusion may leave of it."""

    record: Callable[[Program], None]
    launches: int


SHAPES_OF_MODELS: dict[str, Shape] = {}


def shape_of_model(launches: int, **options: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enters a program into the table, under its name and its options."""

    def register(record: Callable[..., None]) -> Callable[..., None]:
        name = " ".join([record.__name__.strip("_").replace("_", " "), *(f"{k}={v}" for k, v in options.items())])
        SHAPES_OF_MODELS[name] = Shape(lambda program: record(program, **options), launches)
        return record

    return register


def record(name: str) -> Program:
    program = Program(Graph({"past": (0, 40), "seq": (1, 24)}), symbols={"past": 5, "seq": 7})
    with program.graph.entry("main"):
        SHAPES_OF_MODELS[name].record(program)
    return program


def _normal(program: Program, name: str, shape: tuple, dtype: str = "f32", kind: str = "argument") -> Tensor:
    """An input of standard normal numbers, scaled to keep products moderate."""
    sizes = [e if isinstance(e, int) else program.symbols["seq"] for e in shape]
    values = np.random.default_rng(len(program.inputs)).standard_normal(sizes) / (sizes[-1] ** 0.5 if kind == "weight" else 1)
    return program.input(name, shape, dtype, values, kind)


@shape_of_model(launches=1, dtype="f32")
@shape_of_model(launches=1, dtype="bf16")
def _norm(p: Program, dtype: str) -> None:
    x = _normal(p, "x", (p.graph.symbol("seq"), 65))
    p.output("y", nn.rms_norm(x, _normal(p, "w", (65,), kind="weight"), 1e-5, dtype))


@shape_of_model(launches=2, dtype="f32")
@shape_of_model(launches=2, dtype="bf16")
def _norm_and_matmul(p: Program, dtype: str) -> None:
    x = _normal(p, "x", (p.graph.symbol("seq"), 66))
    norm = nn.rms_norm(x, _normal(p, "n", (66,), kind="weight"), 1e-5, dtype)
    p.output("y", nn.linear(norm, _normal(p, "w", (35, 66), dtype, "weight")))


@shape_of_model(launches=1, dtype="f32")
@shape_of_model(launches=1, dtype="bf16")
@shape_of_model(launches=1, dtype="f16")
def _matmul_and_epilogue(p: Program, dtype: str) -> None:
    x = _normal(p, "x", (p.graph.symbol("seq"), 67), dtype)
    y = nn.linear(x, _normal(p, "w", (35, 67), dtype, "weight")) + _normal(p, "b", (35,), kind="weight")
    p.output("y", (nn.silu(y) + _normal(p, "r", (p.graph.symbol("seq"), 35))).cast(dtype))


@shape_of_model(launches=1, dtype="f32")
@shape_of_model(launches=1, dtype="bf16")
def _gate_and_up(p: Program, dtype: str) -> None:
    x = _normal(p, "x", (p.graph.symbol("seq"), 34), dtype)
    gate, up = (nn.linear(x, _normal(p, n, (49, 34), dtype, "weight")) for n in ("gate", "up"))
    p.output("y", (nn.silu(gate) * up).cast(dtype))


@shape_of_model(launches=1, dtype="f32")
@shape_of_model(launches=1, dtype="bf16")
def _rope(p: Program, dtype: str) -> None:
    seq, past = p.graph.symbol("seq"), p.graph.symbol("past")
    p.input("rotary.inverse_frequencies", (8,), "f32", 10000.0 ** (-np.arange(8) / 8), "weight")
    cos, sin = nn.rotary_table(p.graph.iota(past + seq, "f32")[past:], 16)
    p.output("y", nn.rotate(_normal(p, "x", (seq, 3, 16), dtype).cast("f32"), cos, sin).cast(dtype))


@shape_of_model(launches=3, heads=4, kv_heads=2, dtype="f32")
@shape_of_model(launches=3, heads=9, kv_heads=3, dtype="bf16")
@shape_of_model(launches=3, heads=5, kv_heads=1, dtype="f32")
def _attention(p: Program, heads: int, kv_heads: int, dtype: str) -> None:
    """Over a cache, with the queries at the end of the keys: fewer queries than keys."""
    seq, past = p.graph.symbol("seq"), p.graph.symbol("past")
    q = _normal(p, "q", (seq, heads, 16), dtype)
    keys, values = (_normal(p, n, (kv_heads, 64, 16), dtype, "state") for n in ("keys", "values"))
    p.output("y", nn.attention(q, keys[:, : past + seq], values[:, : past + seq], past))


@shape_of_model(launches=5, dtype="f32")
@shape_of_model(launches=5, dtype="bf16")
def _attention_with_new_keys(p: Program, dtype: str) -> None:
    """The keys and values of this step go into the cache first."""
    seq, past = p.graph.symbol("seq"), p.graph.symbol("past")
    q = _normal(p, "q", (seq, 6, 16), dtype)
    caches = []
    for name in ("keys", "values"):
        new = _normal(p, f"new {name}", (seq, 2, 16), dtype).permute(1, 0, 2)
        caches.append(_normal(p, name, (2, 64, 16), dtype, "state").scatter(1, p.graph.iota(past + seq)[past:], new))
        p.output(f"{name} after", caches[-1], alias=name)
    p.output("y", nn.attention(q, *(c[:, : past + seq] for c in caches), past))


@shape_of_model(launches=1)
def _masked_softmax(p: Program) -> None:
    """A mask that leaves the first two rows empty: zeros and not NaN."""
    scores = _normal(p, "x", (6, 33))
    masked = scores + p.graph.constant(-math.inf, "f32").expand(6, 33).where_index(dim(1) - dim(0) + 1)
    p.output("y", masked.softmax(-1))


@shape_of_model(launches=1)
def _largest(p: Program) -> None:
    p.output("y", nn.argmax(_normal(p, "x", (131,))).reshape(1))


@shape_of_model(launches=3)
def _layers_with_a_residual(p: Program) -> None:
    x = _normal(p, "x", (p.graph.symbol("seq"), 32))
    for i in range(3):
        p.graph.graph_break("layer")
        x = x + nn.linear(x, _normal(p, f"w{i}", (32, 32), kind="weight"))
    p.output("y", x)


@shape_of_model(launches=2)
def _product_and_its_transpose(p: Program) -> None:
    """A result that is read in two ways is no accumulator."""
    y = _normal(p, "x", (17, 9)) @ _normal(p, "w", (9, 17), kind="weight")
    p.output("y", y + y.transpose(0, 1))


@shape_of_model(launches=2)
def _product_and_a_row_of_it(p: Program) -> None:
    y = _normal(p, "x", (17, 9)) @ _normal(p, "w", (9, 35), kind="weight")
    p.output("y", y + y[3:4])


@shape_of_model(launches=2)
def _product_and_the_sums_of_rows(p: Program) -> None:
    """A reduction of rows cannot be where every element is its own accumulator."""
    x = _normal(p, "x", (p.graph.symbol("seq"), 33))
    p.output("y", x @ _normal(p, "w", (33, 17), kind="weight") + x.sum(-1, keepdim=True))


@shape_of_model(launches=2)
def _maxima_of_rows_and_of_everything(p: Program) -> None:
    x = _normal(p, "x", (17, 33))
    p.output("y", (x * x.max(0, 1)) * x.max(-1, keepdim=True))


@shape_of_model(launches=2)
def _rows_scaled_by_the_sum_of_everything(p: Program) -> None:
    x = _normal(p, "x", (17, 33))
    p.output("y", (x * x.sum(0, 1)).sum(-1))


# --- Memory ----------------------------------------------------------------------------------------------------------

MemoryCase = Callable[[Program, Tensor, Tensor, Tensor], None]
MEMORY: dict[str, MemoryCase] = {}


def memory_case(record: MemoryCase) -> MemoryCase:
    """Enters a program over an argument `x`, a state `s` and a weight `w` into the table, under its name."""
    MEMORY[record.__name__.strip("_").replace("_", " ")] = record
    return record


def memory(name: str) -> Program:
    program, rng = Program(Graph({"n": (1, 4)}), symbols={"n": 3}), np.random.default_rng(0)
    with program.graph.entry("main"):
        x = program.input("x", (program.graph.symbol("n"), 4), "f32", rng.standard_normal((3, 4)))
        s, w = (program.input(n, (6, 4), "f32", rng.standard_normal((6, 4)), k) for n, k in (("s", "state"), ("w", "weight")))
        MEMORY[name](program, x, s, w)
    return program


@memory_case
def _inputs_themselves(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    for name, tensor in {
        "x out": x,
        "s out": s,
        "w out": w,
        "one": p.graph.constant(1.0, "f32"),
        "iota": p.graph.iota(5),
    }.items():
        p.output(name, tensor)


@memory_case
def _rows_of_a_state_shifted(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    p.output("s after", s.scatter(0, p.graph.iota(5), s[1:]), alias="s")


@memory_case
def _a_state_read_before_it_is_written(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    old = s * 2.0
    new = s.scatter(0, p.graph.iota(p.graph.symbol("n")), x)
    p.output("both", old + new)
    p.output("s after", new, alias="s")


@memory_case
def _a_state_written_and_not_kept(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    p.output("new", s.scatter(0, p.graph.iota(p.graph.symbol("n")), x))
    p.output("old", s + 0.0)


@memory_case
def _a_state_replaced_by_a_computation(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    p.output("s after", s * 0.5 + w, alias="s")
    p.output("rows", s.sum(-1))


@memory_case
def _a_state_written_twice(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    once = s.scatter(0, p.graph.iota(p.graph.symbol("n")), x)
    p.graph.graph_break("next")
    twice = once.scatter(0, p.graph.iota(2), once[2:4])
    p.output("between", once)
    p.output("s after", twice, alias="s")


@memory_case
def _a_value_read_after_it_is_scattered_into(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    value = w.exp2()
    p.output("y", value.scatter(0, p.graph.iota(p.graph.symbol("n")), x) + value * 2.0)


@memory_case
def _a_constant_and_an_iota_of_another_chunk(p: Program, x: Tensor, s: Tensor, w: Tensor) -> None:
    p.graph.graph_break("first")
    two, count = p.graph.constant(2.0, "f32"), p.graph.iota(4, "f32")
    first = x * two + count
    p.graph.graph_break("second")
    p.output("y", first * two + count)


# --- NaN, infinities, signed zeros -----------------------------------------------------------------------------------


SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    math.inf,
    -math.inf,
    math.nan,
    0.5,
    3.25,
    -1e-3,
    1e3,
    -1e3,
    2.0**-14,
    200.0,
    -140.0,
    -126.5,
    -300.0,
)
ARITHMETIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
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
}
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "exp2": lambda x, y: x.exp2(),
    "log2": lambda x, y: x.log2(),
    "sin": lambda x, y: x.sin(),
    "tanh": lambda x, y: x.custom("math.tanh"),
    "erf": lambda x, y: x.custom("math.erf"),
}


def special(dtype: str) -> Program:
    """Arithmetic and functions of all pairs of special values."""
    program, values = Program(Graph()), np.array(SPECIAL)
    with program.graph.entry("main"):
        x = program.input("x", (len(values), 1), dtype, values[:, None])
        y = program.input("y", (len(values),), dtype, values)
        for name, function in {**ARITHMETIC, **FUNCTIONS}.items():
            program.output(name, function(x, y))
    return program


def check_special(results: dict[str, reference.Array], expected: dict[str, reference.Array], dtype: str, ulps: int) -> None:
    """Arithmetic has IEEE's results, signs of zeros included; functions have their limits, and are `ulps` accurate between."""
    for name, want in expected.items():
        got = results[name].astype(np.float64)
        finite = np.isfinite(want) if name in FUNCTIONS else np.zeros(want.shape, bool)
        np.testing.assert_array_equal(got[~finite], want[~finite].astype(np.float64), name)
        if name in FUNCTIONS:
            allowed = ulps * reference.unit(want[finite], dtype) + 1.5e-7 * (name == "sin")
            assert (abs(got[finite] - want[finite]) <= allowed).all(), name
        elif name != "minimum":  # which of two zeros is the smaller is left open
            number = ~np.isnan(got)
            np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want.astype(np.float64))[number], name)
