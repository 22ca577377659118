"""What every primop means, in NumPy: an interpreter of recorded modules that shares no code with any pass.

    results = run(graph.module, "main", {"x": x, "w": w}, {"seq": 5})

Values are arrays: f32, f16, i64 and i32 of NumPy's own type, i1 as bool, and bf16 as float32 holding bf16 values. Floats are
computed in f64 and rounded once by every op, to nearest even, which for the arithmetic of these types is exact rounding.

A rounding error is measured, not guessed: with `noise` every op's result is off by a few units in the last place, at random,
and the spread of such runs is how far a correct implementation may be from this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, FloorDiv, Linear, Mod, Symbol, map_results

from .ptx.formats import bf16_to_f32, f32_to_bf16

Array = npt.NDArray[Any]
NUMPY = {"f32": np.float32, "bf16": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i1": np.bool_}
ULP = {"f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}  # of numbers in [1, 2)
TINIEST = {"f32": 2.0**-149, "bf16": 2.0**-126, "f16": 2.0**-24}  # AVX512_BF16 rounds to bf16 without subnormals
NOISE = 4.0  # units in the last place


def run(
    module: ir.Module,
    entry: str,
    inputs: Mapping[str, Array],
    symbols: Mapping[str, int] | None = None,
    noise: np.random.Generator | None = None,
) -> dict[str, Array]:
    """The outputs, by label, of an entry point of a recorded module that no pass has touched.

    `inputs` holds arguments, weights and states, in the shapes that the symbols give.
    """
    function = next(f for f in module.body.operations if f.operation.name == "func.func" and f.name.value == entry)
    names = list(primop.symbol_ranges(module.operation))
    values: dict[ir.Value, Array] = {}
    results: dict[str, Array] = {}
    for op in function.body.blocks[0].operations:
        if op.operation.name == "func.return":
            return results
        sizes = {Symbol(i): (symbols or {})[name] for i, name in enumerate(names)}
        point = _Evaluation(op, [values[v] for v in op.operands], sizes, inputs, results, noise)
        result = MEANINGS[op.operation.name.removeprefix("primop.")](point)
        if result is not None:
            values[op.result] = point.rounded(result)
    raise AssertionError(f"entry {entry} does not return")


def rounded(values: Array, dtype: str) -> Array:
    """Values in an element type: floats to nearest even, NaN stays NaN; to i1 tests non-zero; to integers truncates."""
    with np.errstate(all="ignore"):
        if dtype == "bf16":
            return bf16_to_f32(f32_to_bf16(np.asarray(values, np.float32)))
        if dtype == "i1":
            return np.asarray(values) != 0
        return np.asarray(values).astype(NUMPY[dtype])


def unit(values: Array, dtype: str) -> Array:
    """One unit in the last place of finite values."""
    exponent = np.floor(np.log2(np.maximum(np.nan_to_num(abs(values.astype(np.float64)), posinf=0.0), 2.0**-149)))
    return np.maximum(ULP[dtype] * 2.0**exponent, TINIEST[dtype])


def to_memory(values: Array, dtype: str) -> Array:
    """As the runtimes hold it: bf16 as its 16 bits."""
    return f32_to_bf16(np.asarray(values, np.float32)) if dtype == "bf16" else np.asarray(values, NUMPY[dtype])


def from_memory(memory: Array, dtype: str) -> Array:
    """The inverse of `to_memory`, a copy."""
    return bf16_to_f32(memory) if dtype == "bf16" else np.array(memory)


def index(expr: Linear, dims: Sequence[Array], sizes: Mapping[Symbol, int]) -> Array:
    """An index expression at every point of a space, `dims` its coordinates; floordiv and mod round down."""
    total: Array = np.asarray(expr.constant, np.int64)
    for atom, coefficient in expr.terms:
        if isinstance(atom, FloorDiv):
            value = index(atom.numerator, dims, sizes) // atom.divisor
        elif isinstance(atom, Mod):
            value = index(atom.numerator, dims, sizes) % atom.divisor
        else:
            value = dims[atom.position] if isinstance(atom, Dim) else np.asarray(sizes[atom])
        total = total + coefficient * value
    return total


@dataclass
class _Evaluation:
    """One op about to be evaluated: its whole operands, and how to read them through its views."""

    op: Any
    operands: list[Array]
    sizes: Mapping[Symbol, int]
    inputs: Mapping[str, Array]
    results: dict[str, Array]
    noise: np.random.Generator | None

    @property
    def dtype(self) -> str:
        return str(primop.element_type(self.op.result))

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the op's space."""
        return self.extents(self.op.space)

    def extents(self, shape: ir.AffineMap) -> tuple[int, ...]:
        return tuple(int(index(e, (), self.sizes)) for e in map_results(shape))

    def type_of(self, operand: int) -> str:
        return str(primop.element_type(self.op.operands[operand]))

    def places(self, operand: int, *more: Array) -> tuple[tuple[Array, ...], Array]:
        """The indices into an operand at every point of the space, and where the element exists."""
        dims = [*np.indices(self.shape, sparse=True), *more]
        exists: Array = np.asarray(True)
        if self.op.bounds is not None:
            for condition in map_results(self.op.bounds[operand]):
                exists = exists & (index(condition, dims, self.sizes) >= 0)
        where = tuple(index(e, dims, self.sizes) for e in map_results(self.op.maps[operand]))
        for i, extent in zip(where, self.operands[operand].shape, strict=True):
            outside = exists & ((i < 0) | (i >= extent))
            assert not np.broadcast_to(outside, np.broadcast_shapes(outside.shape, self.shape)).any(), (
                f"operand {operand} of {self.op} is read out of bounds"
            )
        return where, exists

    def read(self, operand: int, *more: Array) -> Array:
        """An operand through its view, over the space: zero where it does not exist."""
        where, exists = self.places(operand, *more)
        source = self.operands[operand]
        if 0 in self.shape or source.size == 0:
            return np.zeros(self.shape, source.dtype)
        safe = tuple(np.where(exists, i, 0) for i in where)
        found = np.where(exists, source[safe], np.zeros((), source.dtype))
        return np.broadcast_to(found, self.shape)

    def number(self, operand: int) -> Array:
        """An operand through its view, floats as f64, integers as they are."""
        values = self.read(operand)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return values.astype(np.float64) if self.type_of(operand) in primop.FLOATS else values

    def rounded(self, values: Array) -> Array:
        """The op's result in its element type, off by some units in the last place where there is noise."""
        computes = not isinstance(self.op, EXACT) and self.dtype in primop.FLOATS
        return rounded(self.shaken(values, self.dtype) if computes else values, self.dtype)

    def shaken(self, values: Array, dtype: str) -> Array:
        if self.noise is None:
            return values
        return np.asarray(values) * (1.0 + NOISE * ULP[dtype] * self.noise.uniform(-1.0, 1.0, np.shape(values)))

    def total(self, terms: Array, dims: tuple[int, ...]) -> Array:
        """A sum that keeps its dimensions; with noise, off by what n roundings of a f32 sum add up to at random."""
        exact = terms.sum(dims, keepdims=True)
        if self.noise is None:
            return exact
        size = abs(terms).sum(dims, keepdims=True) * math.prod(terms.shape[d] for d in dims) ** 0.5
        return exact + NOISE * ULP["f32"] * size * self.noise.uniform(-1.0, 1.0, exact.shape)


EXACT = (primop.Input, primop.Constant, primop.Iota, primop.Max, primop.Part, primop.Gather, primop.Scatter)

Meaning = Callable[[_Evaluation], "Array | None"]
MEANINGS: dict[str, Meaning] = {}


def meaning(function: Meaning) -> Meaning:
    """Enters a function into the table under its op's name."""
    MEANINGS[function.__name__.strip("_")] = function
    return function


# --- In and out ------------------------------------------------------------------------------------------------------


@meaning
def _input(at: _Evaluation) -> Array:
    """What the caller, the checkpoint or a state gives under this label."""
    value = np.asarray(at.inputs[at.op.label])
    assert value.shape == at.extents(at.op.shape), f"{at.op.label} has shape {value.shape}, not {at.extents(at.op.shape)}"
    return value


@meaning
def _output(at: _Evaluation) -> None:
    """A named result."""
    at.results[at.op.label] = at.operands[0]


@meaning
def _constant(at: _Evaluation) -> Array:
    """A scalar."""
    return np.asarray(at.op.value.value)


@meaning
def _iota(at: _Evaluation) -> Array:
    """0, 1, 2, ..."""
    return np.arange(at.shape[0])


@meaning
def _cast(at: _Evaluation) -> Array:
    """The same number in another element type; `rounded` has the rules."""
    return at.number(0)


# --- Elementwise -----------------------------------------------------------------------------------------------------


@meaning
def _exp2(at: _Evaluation) -> Array:
    """2 ** x."""
    with np.errstate(over="ignore", under="ignore"):
        return np.exp2(at.number(0))


@meaning
def _log2(at: _Evaluation) -> Array:
    """Base-2 logarithm: -inf at both zeros, NaN below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log2(at.number(0))


@meaning
def _sin(at: _Evaluation) -> Array:
    """Sine of radians: NaN at infinities."""
    with np.errstate(invalid="ignore"):
        return np.sin(at.number(0))


@meaning
def _recip(at: _Evaluation) -> Array:
    """1 / x: an infinity of its sign at a zero."""
    with np.errstate(divide="ignore"):
        return 1.0 / at.number(0)


@meaning
def _sqrt(at: _Evaluation) -> Array:
    """Square root: -0.0 at -0.0, NaN below."""
    with np.errstate(invalid="ignore"):
        return np.sqrt(at.number(0))


def _widened(at: _Evaluation) -> tuple[Array, Array]:
    """Both operands in the result's type, floats in f64: products and sums of the narrower types are exact there."""
    if at.dtype in primop.FLOATS:
        return at.number(0), at.number(1)
    kind = NUMPY[at.dtype]
    return at.read(0).astype(kind), at.read(1).astype(kind)


@meaning
def _add(at: _Evaluation) -> Array:
    """Sum: integers wrap around, logical or for i1 (NumPy's own meaning for bool)."""
    a, b = _widened(at)
    with np.errstate(invalid="ignore"):
        return a + b


@meaning
def _mul(at: _Evaluation) -> Array:
    """Product: integers wrap around, logical and for i1 (NumPy's own meaning for bool)."""
    a, b = _widened(at)
    with np.errstate(invalid="ignore"):
        return a * b


@meaning
def _mod(at: _Evaluation) -> Array:
    """C's fmod and %: the sign of the dividend; NaN where a float's divisor is zero."""
    with np.errstate(invalid="ignore"):
        return np.fmod(*_widened(at))


@meaning
def _less_than(at: _Evaluation) -> Array:
    """a < b: false where either is NaN."""
    return at.read(0) < at.read(1)


CUSTOM: dict[str, Callable[..., Array]] = {
    "arith.select": np.where,
    "arith.minimumf": np.minimum,  # NaN where either is
    "arith.divf": np.divide,
    "arith.divsi": lambda a, b: np.where((a < 0) != (b < 0), -(abs(a) // abs(b)), abs(a) // abs(b)),  # towards zero
    "math.tanh": np.tanh,
    "math.erf": np.vectorize(math.erf, otypes=[np.float64]),
    "math.floor": np.floor,
    "math.ceil": np.ceil,
    "math.round": lambda a: np.copysign(np.floor(abs(a) + 0.5), a),  # halves away from zero
    "math.absf": abs,
    "arith.xori": np.bitwise_xor,
    "arith.shrui": lambda a, b: (a.view(f"u{a.itemsize}") >> b.astype(f"u{a.itemsize}")).view(a.dtype),
}


@meaning
def _custom(at: _Evaluation) -> Array:
    """The named op of arith or math."""
    if at.op.kind == "arith.bitcast":
        return np.ascontiguousarray(at.read(0)).view(NUMPY[at.dtype])
    with np.errstate(all="ignore"):
        return np.asarray(CUSTOM[at.op.kind](*map(at.number, range(len(at.operands)))))


# --- Reductions ------------------------------------------------------------------------------------------------------


@meaning
def _sum(at: _Evaluation) -> Array:
    """Sum over dims; nothing is rounded before the end. Integers wrap around in the operand's type."""
    terms, dims = at.number(0), tuple(at.op.dims)
    if at.type_of(0) not in primop.FLOATS:
        return terms.sum(dims, dtype=terms.dtype)
    with np.errstate(invalid="ignore"):
        return at.total(terms, dims).squeeze(dims)


@meaning
def _max(at: _Evaluation) -> Array:
    """Maximum over dims: NaN if any element is; the lowest value where there is none."""
    terms = at.number(0)
    lowest = -np.inf if at.type_of(0) in primop.FLOATS else np.iinfo(terms.dtype).min
    return terms.max(tuple(at.op.dims), initial=lowest)


@meaning
def _part(at: _Evaluation) -> Array:
    """One way to share a loop: the last program has seen everything, and the others have seen nothing."""
    nothing = -np.inf if isinstance(at.op.operand.owner.opview, primop.Max) else 0.0
    parts = np.full((at.op.count, *at.operands[0].shape), nothing)
    parts[-1] = at.operands[0]
    return parts


@meaning
def _softmax(at: _Evaluation) -> Array:
    """exp(x - max) / sum: zeros where every element is -inf."""
    x, dim = at.number(0), at.op.dim
    with np.errstate(invalid="ignore", divide="ignore"):
        largest = x.max(dim, keepdims=True, initial=-np.inf)
        powers = np.exp(at.shaken(x - largest, at.dtype))
        return np.where(largest == -np.inf, 0.0, powers / at.total(powers, (dim,)))


# --- Computed places -------------------------------------------------------------------------------------------------


@meaning
def _gather(at: _Evaluation) -> Array:
    """`data` at the index, clamped to the dimension."""
    return at.read(0, np.clip(at.read(1), 0, at.op.extent - 1).astype(np.int64))


@meaning
def _scatter(at: _Evaluation) -> Array:
    """A copy of `dest` with `source` written at the index; indices outside the dimension are dropped."""
    rows, source, result = at.read(1), at.read(2), at.operands[0].copy()
    kept = (rows >= 0) & (rows < at.op.extent)
    where, _ = at.places(0, np.where(kept, rows, 0).astype(np.int64))
    result[tuple(np.broadcast_to(i, at.shape)[kept] for i in where)] = source[kept]
    return result


assert {f"primop.{name}" for name in MEANINGS} == set(primop.Primop.operations), "every primop needs a meaning"
