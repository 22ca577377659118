"""Random programs: a hypothesis strategy that records one through the frontend, op by op, together with its inputs.

Every tensor under construction carries what its values may be (`Known`), so that a program stays where two correct
implementations agree: numbers keep moderate, and steps such as floor, less-than or float to integer are only taken on
numbers that are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tilec.dialects.index_expr import Linear, Symbol, dim, evaluate, linear
from tilec.frontend.tensor import Graph, ShapeError, Tensor, broadcast_shapes

from . import reference
from .reference import Array

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64, 65, 129)
SYMBOLS = {"n": (1, 40), "p": (0, 24)}
ELEMENTS, PRODUCTS = 1 << 14, 1 << 20  # of one tensor; of the space of one matrix product
FLOATS, INTEGERS = ("f32", "bf16", "f16"), ("i32", "i64")
LARGEST = {"f32": 1e6, "bf16": 1e6, "f16": 1e4, "i32": 2.0**30, "i64": 2.0**30, "i1": 1.0}
RUNS = 4


def examples(count: int) -> settings:
    """The same examples on every machine. They are not shrunk: that compiles hundreds of programs, in a suite that must end."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )


@dataclass
class Program:
    """A recorded module, not yet compiled, with inputs (as `reference` holds them) and values of its symbols."""

    graph: Graph
    inputs: dict[str, Array] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)  # of inputs and outputs
    kinds: dict[str, str] = field(default_factory=dict)  # of inputs
    symbols: dict[str, int] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)  # output to the state it replaces

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n} {self.dtypes[n]}{list(a.shape)}" for n, a in self.inputs.items())
        return f"symbols {self.symbols}, inputs {inputs}\n{self.graph.module}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis shows a failing program: as IR, not as arrays."""
        printer.text(repr(self))

    def input(self, name: str, shape: Sequence[Linear | int], dtype: str, values: Array, kind: str = "argument") -> Tensor:
        """Declares an input and what it will hold."""
        self.inputs[name], self.dtypes[name], self.kinds[name] = reference.rounded(values, dtype), dtype, kind
        return self.graph.input(name, shape, dtype, kind=kind)

    def output(self, name: str, tensor: Tensor, alias: str | None = None) -> None:
        self.dtypes[name] = tensor.dtype
        if alias:
            self.aliases[name] = alias
        self.graph.output(name, tensor, alias=alias)

    def expected(self, entry: str = "main") -> Expected:
        """What the outputs must be. Must be asked for before the module is compiled."""
        module = self.graph.module
        exact = reference.run(module, entry, self.inputs, self.symbols)
        shaken = [reference.run(module, entry, self.inputs, self.symbols, np.random.default_rng(i)) for i in range(RUNS)]
        return Expected(exact, {n: _tolerance(v, [s[n] for s in shaken], self.dtypes[n]) for n, v in exact.items()})


@dataclass(frozen=True)
class Expected:
    """Values of outputs, and how far each element may be from them."""

    values: dict[str, Array]
    tolerances: dict[str, Array]

    def check(self, results: dict[str, Array]) -> None:
        """AssertionError that says which elements of which output are wrong."""
        assert results.keys() == self.values.keys()
        for name, want in self.values.items():
            got, tolerance = results[name], self.tolerances[name]
            assert got.shape == want.shape, f"{name} has shape {got.shape}, not {want.shape}"
            with np.errstate(invalid="ignore"):
                good = (got == want) | (np.isnan(got) & np.isnan(want)) | (abs(_number(got) - _number(want)) <= tolerance)
            if not good.all():
                bad = np.argwhere(~good)
                lines = [
                    f"  {tuple(map(int, i))}: {got[tuple(i)]} is not {want[tuple(i)]} "
                    f"within {np.broadcast_to(tolerance, want.shape)[tuple(i)]:.3g}"
                    for i in bad[:8]
                ]
                raise AssertionError(f"{name}: {len(bad)} of {want.size} elements are wrong\n" + "\n".join(lines))


def _number(values: Array) -> Array:
    return values.astype(np.float64)


def _tolerance(exact: Array, shaken: list[Array], dtype: str) -> Array:
    """Four times the spread of the shaken runs, at least that of a typical element, and one unit in the last place."""
    if dtype not in FLOATS:
        return np.zeros(())
    with np.errstate(invalid="ignore"):
        spread = np.max([np.nan_to_num(abs(_number(s) - _number(exact)), nan=0.0, posinf=0.0) for s in shaken], axis=0)
    typical = np.median(spread) if spread.size else 0.0
    size = np.where(np.isfinite(exact), abs(_number(exact)), 0.0)
    return 4 * np.maximum(spread, typical) + reference.ULP[dtype] * size + 4 * reference.TINIEST[dtype]


@dataclass
class Known:
    """A tensor, a bound of its magnitude, and whether any correct implementation computes the same numbers."""

    tensor: Tensor
    limit: float
    exact: bool = True

    @property
    def dtype(self) -> str:
        return self.tensor.dtype


class Declined(Exception):
    """The step that was drawn cannot be taken on the tensor that was drawn."""


@st.composite
def programs(draw: st.DrawFn, steps: int = 8, elements: int = ELEMENTS, products: int = PRODUCTS) -> Program:
    """A program of up to `steps` random steps; `elements` and `products` bound its tensors and its matrix products."""
    author = _Author(draw, elements, products)
    with author.graph.entry("main"):
        author.write(draw(st.integers(1, steps)))
    return author.program


class _Author:
    def __init__(self, draw: st.DrawFn, elements: int, products: int) -> None:
        self.draw, self.elements, self.products = draw, elements, products
        self.graph = Graph(SYMBOLS)
        values = {name: draw(st.sampled_from([low, 1, 2, 7, 17, high])) for name, (low, high) in SYMBOLS.items()}
        self.program = Program(self.graph, symbols=values)
        self.rng = np.random.default_rng(draw(st.integers(0, 99)))
        self.pool: list[Known] = []
        self.scattered: set[str] = set()

    def write(self, steps: int) -> None:
        self.pool.append(self.fresh(self.shape()))
        for _ in range(steps):
            step = self.choose(STEPS)
            try:
                made = step(self, self.seen(self.choose(self.pool[-4:])))
            except (Declined, ShapeError):
                continue
            if made is not None:
                self.pool.append(made)
        results = {id(self.pool[-1]): self.pool[-1], **{id(k): k for k in self.pool if self.chance(4)}}
        for i, known in enumerate(results.values()):
            self.program.output(f"result{i}", known.tensor)

    # What is drawn ------------------------------------------------------------------------------------------------

    def choose(self, options: Sequence) -> object:
        return self.draw(st.sampled_from(options))

    def chance(self, of: int) -> bool:
        """One time in `of`; when hypothesis simplifies, never."""
        return self.draw(st.integers(0, of - 1)) == of - 1

    def count(self, shape: Sequence[Linear]) -> int:
        """Elements of a shape."""
        values = {Symbol(i): self.program.symbols[n] for i, n in enumerate(sorted(SYMBOLS))}
        return int(np.prod([max(evaluate(linear(e), values), 0) for e in shape], dtype=np.int64))

    def extent(self) -> Linear:
        if not self.chance(4):
            return linear(self.choose(SIZES))
        n, p = (self.graph.symbol(s) for s in "np")
        return self.choose([n, n + p, n * 3, p])

    def shape(self) -> tuple[Linear, ...]:
        shape = tuple(self.extent() for _ in range(self.draw(st.integers(1, 4))))
        while self.count(shape) > self.elements:
            shape = shape[1:]
        return shape

    def data(self, shape: Sequence[Linear], dtype: str) -> Array:
        """Numbers of moderate size: integers, small integers as floats (so that equals meet), or floats."""
        sizes = [self.count([e]) for e in shape]
        if dtype == "i1":
            return self.rng.integers(0, 2, sizes)
        if dtype in INTEGERS or self.chance(4):
            return self.rng.integers(-9, 10, sizes)
        return self.rng.uniform(-2, 2, sizes)

    def fresh(
        self, shape: Sequence[Linear], dtype: str | None = None, kind: str | None = None, values: Array | None = None
    ) -> Known:
        """A new input."""
        dtype = dtype or self.choose(("f32", "f32", "bf16", "f16", "i32", "i64", "i1"))
        whole = all(e.is_constant for e in shape)
        kind = kind or self.choose(("argument", "weight", "argument")) if whole else "argument"
        values = self.data(shape, dtype) if values is None else values
        values = reference.rounded(values, dtype)
        tensor = self.program.input(f"{kind}{len(self.program.inputs)}", shape, dtype, values, kind)
        return Known(tensor, float(abs(values.astype(np.float64)).max(initial=1.0)))

    # Views --------------------------------------------------------------------------------------------------------

    def seen(self, known: Known) -> Known:
        """The same tensor through up to two views."""
        tensor = known.tensor
        for _ in range(self.draw(st.integers(0, 2))):
            try:
                viewed = self.choose(VIEWS)(self, tensor)
            except ShapeError:
                continue
            if self.count(viewed.shape) <= self.elements and viewed.rank <= 5:
                tensor = viewed
        return Known(tensor, known.limit, known.exact)

    def axis(self, tensor: Tensor) -> int:
        if not tensor.rank:
            raise Declined
        return self.draw(st.integers(0, tensor.rank - 1))

    def wide_axis(self, tensor: Tensor) -> int:
        """An axis of a known extent above 1."""
        axes = [i for i, e in enumerate(tensor.shape) if e.is_constant and e.constant > 1]
        if not axes:
            raise ShapeError("no axis to cut")
        return self.choose(axes)

    def permuted(self, tensor: Tensor) -> Tensor:
        return tensor.permute(*self.draw(st.permutations(range(tensor.rank))))

    def sliced(self, tensor: Tensor) -> Tensor:
        axis = self.wide_axis(tensor)
        start = self.draw(st.integers(0, tensor.shape[axis].constant - 1))
        stop = self.draw(st.integers(start + 1, tensor.shape[axis].constant))
        return tensor[(*[slice(None)] * axis, slice(start, stop, self.choose((1, 1, 2, 3))))]

    def picked(self, tensor: Tensor) -> Tensor:
        axis = self.wide_axis(tensor)
        at = self.draw(st.integers(-1, tensor.shape[axis].constant - 1))
        return tensor[(*[slice(None)] * axis, at)]

    def started_late(self, tensor: Tensor) -> Tensor:
        """The last n of n + p."""
        n, p = (self.graph.symbol(s) for s in "np")
        axes = [i for i, e in enumerate(tensor.shape) if e == n + p]
        if not axes:
            raise ShapeError("no axis of extent n + p")
        return tensor[(*[slice(None)] * axes[0], slice(p, None))]

    def padded(self, tensor: Tensor) -> Tensor:
        if not tensor.rank:
            raise ShapeError("nothing to pad")
        return tensor.pad(self.axis(tensor), self.choose((0, 1, 5)), self.choose((0, 2, 16)))

    def split(self, tensor: Tensor) -> Tensor:
        axis = self.wide_axis(tensor)
        size = tensor.shape[axis].constant
        factor = self.choose([f for f in range(1, size + 1) if size % f == 0])
        return tensor.reshape(*tensor.shape[:axis], size // factor, factor, *tensor.shape[axis + 1 :])

    def merged(self, tensor: Tensor) -> Tensor:
        if tensor.rank < 2:
            raise ShapeError("nothing to merge")
        axis = self.draw(st.integers(0, tensor.rank - 2))
        a, b = tensor.shape[axis : axis + 2]
        return tensor.reshape(*tensor.shape[:axis], a * b if b.is_constant else -1, *tensor.shape[axis + 2 :])

    def flattened(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(-1)

    def unsqueezed(self, tensor: Tensor) -> Tensor:
        return tensor.unsqueeze(self.draw(st.integers(0, tensor.rank)))

    def squeezed(self, tensor: Tensor) -> Tensor:
        axes = [i for i, e in enumerate(tensor.shape) if e == linear(1)]
        if not axes:
            raise ShapeError("nothing to squeeze")
        return tensor.squeeze(axes[0])

    def expanded(self, tensor: Tensor) -> Tensor:
        shape = [self.extent() if e == linear(1) else e for e in tensor.shape]
        return tensor.expand(*([self.extent()] if self.chance(2) else []), *shape)

    def triangle(self, tensor: Tensor) -> Tensor:
        """Zero above or below a diagonal."""
        if tensor.rank < 2:
            raise ShapeError("no diagonal")
        offset = self.choose((0, -1, 3))
        below = dim(tensor.rank - 2) - dim(tensor.rank - 1) + offset
        return tensor.where_index(below if self.chance(2) else -below)

    # Steps --------------------------------------------------------------------------------------------------------

    def need(self, condition: bool) -> None:
        if not condition:
            raise Declined

    def made(self, tensor: Tensor, limit: float, exact: bool) -> Known:
        self.need(limit <= LARGEST[tensor.dtype])
        return Known(tensor, limit, exact)

    def function(self, x: Known) -> Known:
        """A function of one float, where it is well conditioned."""
        self.need(x.dtype in FLOATS)
        t, limit = x.tensor, x.limit
        if limit > 8:
            t, limit = t * (4.0 / limit), 4.0
        square = limit * limit
        build, bound = self.choose(
            (
                (lambda: t.exp2(), 2.0**limit),
                (lambda: (t * t + 0.5).log2(), np.log2(square + 1) + 1),
                (lambda: t.sin(), 1.0),
                (lambda: (t * t + 1.0).recip(), 1.0),
                (lambda: (t * t + 0.25).sqrt(), limit + 1),
                (lambda: -t, limit),
                (lambda: t.custom("math.absf"), limit),
                (lambda: t.custom("math.tanh"), 1.0),
                (lambda: t.custom("math.erf"), 1.0),
            )
        )
        return self.made(build(), bound, False)

    def step_function(self, x: Known) -> Known:
        self.need(x.dtype in FLOATS and x.exact)
        return self.made(x.tensor.custom(self.choose(("math.floor", "math.ceil", "math.round"))), x.limit + 1, True)

    def cast(self, x: Known) -> Known:
        dtype = self.choose((*FLOATS, *INTEGERS, "i1"))
        self.need(x.exact or dtype in FLOATS)
        return self.made(x.tensor.cast(dtype), max(x.limit, 1.0), x.exact)

    def partner(self, x: Known) -> Known:
        """Something that `x` broadcasts with."""
        shape = x.tensor.shape
        options: list[Callable[[], Known]] = [
            lambda: self.fresh(
                [linear(1) if self.chance(3) else e for e in shape][self.draw(st.integers(0, max(len(shape) - 1, 0))) :],
                x.dtype,
            ),
            lambda: self.constant(x.dtype),
            lambda: x,
        ]
        if shape and x.dtype != "i1":
            options.append(lambda: Known(x.tensor.max(-1, keepdim=True), x.limit, x.exact))
        for other in self.pool:
            if other.dtype == x.dtype and self._broadcast(shape, other.tensor.shape):
                options.append(lambda o=other: o)
        if shape and x.dtype not in ("i1", "f16"):
            at = self.axis(x.tensor)
            lead = [1] * (len(shape) - 1 - at)
            options.append(lambda: Known(self.graph.iota(shape[at], x.dtype).reshape(-1, *lead), 256.0))
        return self.choose(options)()

    def _broadcast(self, a: Sequence[Linear], b: Sequence[Linear]) -> bool:
        try:
            return self.count(broadcast_shapes(a, b)) <= self.elements
        except ShapeError:
            return False

    def constant(self, dtype: str) -> Known:
        if dtype == "i1":
            return Known(self.graph.constant(self.draw(st.booleans()), dtype), 1.0)
        value = self.choose((1, -2, 3)) if dtype in INTEGERS else self.choose((0.5, -1.5, 2.0, 0.0, -1.0))
        return Known(self.graph.constant(value, dtype), abs(float(value)))

    def arithmetic(self, x: Known) -> Known:
        y = self.partner(x)
        wide = "f32" if x.dtype in ("bf16", "f16") and self.chance(3) else None
        exact = x.exact and y.exact and x.dtype not in FLOATS
        if self.chance(2):
            return self.made(x.tensor.add(y.tensor, wide), x.limit + y.limit, exact)
        return self.made(x.tensor.mul(y.tensor, wide), x.limit * y.limit, exact)

    def remainder(self, x: Known) -> Known:
        self.need(x.exact and x.dtype != "i1")
        divisor = self.choose((3, -5, 7)) if x.dtype in INTEGERS else self.choose((0.75, 3.0, -2.5))
        return self.made(x.tensor % divisor, abs(divisor), True)

    def quotient(self, x: Known) -> Known:
        if x.dtype in INTEGERS:
            return self.made(x.tensor.custom("arith.divsi", self.graph.constant(self.choose((3, -4)), x.dtype)), x.limit, True)
        self.need(x.dtype in FLOATS and x.limit <= 100)
        y = self.partner(x)
        self.need(y.limit <= 100)
        return self.made(x.tensor.custom("arith.divf", y.tensor * y.tensor + 1.0), x.limit, False)

    def comparison(self, x: Known) -> Known:
        y = self.partner(x)
        self.need(x.exact and y.exact)
        return self.made(x.tensor < y.tensor if self.chance(2) else x.tensor > y.tensor, 1.0, True)

    def choice(self, x: Known) -> Known:
        self.need(x.dtype != "i1")
        y = self.partner(x)
        self.need(x.exact and y.exact)
        less = x.tensor < y.tensor
        return self.made(less.where(x.tensor.expand(*less.shape), y.tensor.expand(*less.shape)), max(x.limit, y.limit), True)

    def minimum(self, x: Known) -> Known:
        self.need(x.dtype in FLOATS)
        y = self.partner(x)
        return self.made(x.tensor.custom("arith.minimumf", y.tensor), max(x.limit, y.limit), x.exact and y.exact)

    def reduction(self, x: Known) -> Known:
        self.need(x.dtype != "i1" and x.tensor.rank > 0)
        axes = self.draw(st.lists(st.integers(0, x.tensor.rank - 1), min_size=1, max_size=3, unique=True))
        keep = self.draw(st.booleans())
        if self.chance(3):
            self.need(all(self.count([x.tensor.shape[a]]) for a in axes))
            return self.made(x.tensor.max(*axes, keepdim=keep), x.limit, x.exact)
        count = max(self.count([x.tensor.shape[a] for a in axes]), 1)
        wide = "f32" if x.dtype in ("bf16", "f16") and self.chance(2) else None
        return self.made(x.tensor.sum(*axes, keepdim=keep, dtype=wide), x.limit * count, x.exact and x.dtype not in FLOATS)

    def softmax(self, x: Known) -> Known:
        self.need(x.dtype in FLOATS and x.tensor.rank > 0)
        return self.made(x.tensor.softmax(self.axis(x.tensor)), 1.0, False)

    def norm(self, x: Known) -> Known:
        self.need(x.dtype in ("f32", "bf16") and x.tensor.rank > 0 and x.tensor.shape[-1].is_constant and x.limit <= 1e3)
        wide = x.tensor.cast("f32")
        scale = ((wide * wide).sum(-1, keepdim=True) * (1.0 / x.tensor.shape[-1].constant) + 0.1).sqrt().recip()
        weight = self.fresh(x.tensor.shape[-1:], "f32", "weight")
        return self.made((wide * scale * weight.tensor).cast(x.dtype), 20.0 * weight.limit, False)

    def product(self, x: Known) -> Known:
        """A matrix product with a weight, an argument or another tensor, in either transposition."""
        self.need(x.dtype in (*FLOATS, "i32") and x.tensor.rank >= 1)
        t = x.tensor if x.tensor.rank > 1 else x.tensor.unsqueeze(0)
        k, n = t.shape[-1], self.extent()
        self.need(self.count([*t.shape, n]) <= self.products and self.count([*t.shape[:-1], n]) <= self.elements)
        batch = list(t.shape[:-2]) if self.chance(3) else []
        if self.draw(st.booleans()):
            y = self.fresh([*batch, n, k], x.dtype)
            right = y.tensor.transpose(-1, -2)
        else:
            y = self.fresh([*batch, k, n], x.dtype)
            right = y.tensor
        limit = x.limit * y.limit * max(self.count([k]), 1)
        if self.chance(4):
            right = right + right
            limit *= 2
        left, out = (right.transpose(-1, -2), t.transpose(-1, -2)) if self.chance(3) else (t, right)
        made = left @ out
        return self.made(made, limit, x.exact and x.dtype == "i32")

    def taken(self, x: Known) -> Known:
        """Rows by index, some of them outside."""
        self.need(x.tensor.rank > 0 and x.tensor.shape[0].is_constant)
        rows = x.tensor.shape[0].constant
        shape = [self.extent() for _ in range(self.draw(st.integers(1, 2)))]
        self.need(self.count([*shape, *x.tensor.shape[1:]]) <= self.elements)
        places = self.rng.integers(-2, rows + 2, [self.count([e]) for e in shape])
        places = self.fresh(shape, self.choose(INTEGERS), "argument", places).tensor
        return self.made(x.tensor.take(places), x.limit, x.exact)

    def scattered_into_state(self, x: Known) -> Known:
        """New rows of a state, at positions from p on or at computed ones, in place."""
        n, _p = (self.graph.symbol(s) for s in "np")
        rows, width = 80, self.choose(SIZES)
        values = self.data([linear(rows), linear(width)], x.dtype)
        state = self.fresh([linear(rows), linear(width)], x.dtype, "state", values)
        name = next(reversed(self.program.inputs))
        source = self.fresh([n, linear(width)], x.dtype)
        if self.chance(2):
            state.tensor.expand(rows, width)
            read = Known(state.tensor.max(-1, keepdim=True), state.limit) if x.dtype != "i1" else state
            self.pool.append(read)
        new = state.tensor.scatter(0, self.positions(n, rows), source.tensor)
        self.program.output(f"{name}_after", new, alias=name)
        return self.made(new, max(state.limit, source.limit), True)

    def scattered_into_value(self, x: Known) -> Known:
        """Some slices of a computed tensor replaced."""
        self.need(x.tensor.rank > 0 and all(e.is_constant for e in x.tensor.shape))
        axis = self.wide_axis(x.tensor)
        dest = (x.tensor + x.tensor if x.dtype != "i1" else x.tensor * x.tensor).contiguous()
        count = linear(self.choose((1, 2, 5, 17)))
        shape = [count if i == axis else e for i, e in enumerate(x.tensor.shape)]
        source = self.fresh(shape, x.dtype)
        new = dest.scatter(axis, self.positions(count, x.tensor.shape[axis].constant), source.tensor)
        return self.made(new, max(2 * x.limit, source.limit), x.exact)

    def positions(self, count: Linear, rows: int) -> Tensor:
        """Distinct indices, some of them outside of [0, rows)."""
        if self.chance(2):
            first = self.graph.symbol("p")
            return self.graph.iota(first + count)[first:]
        order = self.rng.permutation(np.arange(-2, max(rows, self.count([count])) + 2))[: self.count([count])]
        return self.fresh([count], self.choose(INTEGERS), "argument", order).tensor

    def counted(self, x: Known) -> Known:
        """The value of a size, as a scalar."""
        n, p = (self.graph.symbol(s) for s in "np")
        self.need(x.dtype in ("i32", "i64"))
        return self.made(x.tensor + self.graph.index(n * 2 + p, x.dtype), x.limit + 200, x.exact)

    def cut(self, x: Known) -> None:
        self.graph.graph_break(f"part{len(self.pool)}")


VIEWS = (
    _Author.permuted,
    _Author.sliced,
    _Author.picked,
    _Author.started_late,
    _Author.padded,
    _Author.split,
    _Author.merged,
    _Author.flattened,
    _Author.unsqueezed,
    _Author.squeezed,
    _Author.expanded,
    _Author.triangle,
)
STEPS = (
    _Author.function,
    _Author.arithmetic,
    _Author.product,
    _Author.reduction,
    _Author.norm,
    _Author.softmax,
    _Author.cast,
    _Author.arithmetic,
    _Author.product,
    _Author.taken,
    _Author.scattered_into_state,
    _Author.scattered_into_value,
    _Author.comparison,
    _Author.choice,
    _Author.minimum,
    _Author.remainder,
    _Author.quotient,
    _Author.step_function,
    _Author.counted,
    _Author.cut,
)
