"""What a kernel computes, in float64, at some points of its result: from each point back to what it needs of the inputs.

Indices are arrays that broadcast, so what several points share, such as the scale of a row, is computed once; and so is what
several ops read at the same points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, FloorDiv, Linear, Mod, Symbol, dim
from tilec.errors import UnsupportedError
from tilec.pipelines.primop.outline import body_of, extents_of
from tilec.pipelines.primop.structure import Index, defining_op, operand_bound, operand_index
from tilec.tools.bench.harness import as_float64

MOST_TERMS = 1 << 22  # of all sums together

MEANINGS: dict[type | str, Callable[..., Any]] = {
    primop.Add: np.add, primop.Mul: np.multiply, primop.Mod: np.fmod, primop.LessThan: np.less, primop.Exp2: np.exp2,
    primop.Log2: np.log2, primop.Sin: np.sin, primop.Sqrt: np.sqrt, primop.Recip: lambda x: 1.0 / x,
    "arith.select": np.where, "arith.minimumf": np.minimum, "arith.divf": np.divide, "math.tanh": np.tanh,
    "math.floor": np.floor, "math.ceil": np.ceil, "math.absf": np.abs,
}


class Exact:
    """A kernel function with its arguments in memory form, and the values of the module's symbols.

    A point is made of expressions of `dims`, arrays of indices: the samples, the terms of sums, rows that are looked up.
    """

    def __init__(self, kernel: ir.OpView, arguments: Sequence[np.ndarray], symbols: Mapping[str, int]) -> None:
        self.kernel, self.arguments = kernel, arguments
        self.sizes = {Symbol(i): n for i, n in enumerate(symbols.values())}
        self.dims: list[np.ndarray] = []
        self.axes: dict[tuple[int, int], Linear] = {}  # of sums, by extent and by how many dimensions follow
        self.known: dict[tuple[ir.Value, Index], np.ndarray] = {}  # what is read again and has the terms of the same sum
        self.reduced: dict[tuple[ir.Value, Index], np.ndarray] = {}

    def samples(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """(index of some results, their values); what is written in place counts at the places that are written."""
        *ops, ret = body_of(self.kernel).operations
        root = ret.operands[0].owner.opview
        reduced = {self._size(primop.space_of(o)[d]) for o in ops if isinstance(o, primop.Sum | primop.Max) for d in o.dims}
        count = min(max(MOST_TERMS // math.prod(reduced), 4), 256)
        in_place = isinstance(root, primop.Scatter)
        extents = primop.space_of(root) if in_place else extents_of(root.result)
        generator = np.random.default_rng(0)
        samples = tuple(generator.integers(0, max(self._size(e), 1), count) for e in extents)
        point = tuple(self._dim(indices) for indices in samples)
        with np.errstate(all="ignore"):
            if not in_place:
                return samples, np.broadcast_to(self._at(root.result, point), count)
            where = [self._index(e) for e in operand_index(root, 0, (*point, self._dim(self._read(root, 1, point))))]
            return tuple(np.broadcast_to(i, count) for i in where), np.broadcast_to(self._read(root, 2, point), count)

    def _dim(self, indices: np.ndarray) -> Linear:
        self.dims.append(indices)
        return dim(len(self.dims) - 1)

    def _size(self, extent: Linear) -> int:
        return int(self._index(extent))

    def _index(self, expr: Linear) -> np.ndarray:
        total = np.asarray(expr.constant)
        for atom, coefficient in expr.terms:
            if isinstance(atom, FloorDiv):
                value = self._index(atom.numerator) // atom.divisor
            elif isinstance(atom, Mod):
                value = self._index(atom.numerator) % atom.divisor
            else:
                value = self.dims[atom.position] if isinstance(atom, Dim) else np.asarray(self.sizes[atom])
            total = total + coefficient * value
        return total

    def _read(self, op: Any, operand: int, point: Index) -> np.ndarray:
        """An operand as an op reads it at a point: zero where it does not exist."""
        value = self._at(op.operands[operand], operand_index(op, operand, point))
        for condition in operand_bound(op, operand, point):
            value = np.where(self._index(condition) >= 0, value, 0)
        return value

    def _at(self, value: ir.Value, point: Index) -> np.ndarray:
        is_reduction = isinstance(defining_op(value), primop.Sum | primop.Max)
        known = self.reduced if is_reduction else self.known
        if (value, point) in known:
            return known[value, point]
        result = self._computed(value, point)
        if is_reduction or len(list(value.uses)) > 1:
            known[value, point] = result
        return result

    def _computed(self, value: ir.Value, point: Index) -> np.ndarray:
        op = defining_op(value)
        if op is None:
            array = self.arguments[value.arg_number]
            found = array[tuple(np.clip(self._index(i), 0, n - 1) for i, n in zip(point, array.shape, strict=True))]
            dtype = str(primop.element_type(value))
            return as_float64(found, dtype) if dtype in primop.FLOATS else found
        if isinstance(op, primop.Constant):
            return np.asarray(op.value.value)
        if isinstance(op, primop.Iota):
            return self._index(point[0])
        if isinstance(op, primop.Sum | primop.Max):
            return self._reduced(op, point)
        if isinstance(op, primop.Gather):
            return self._read(op, 0, (*point, self._dim(np.clip(self._read(op, 1, point), 0, op.extent - 1))))
        operands = [self._read(op, k, point) for k in range(len(op.operands))]
        if isinstance(op, primop.Cast):
            kind = str(primop.element_type(value))
            return operands[0].astype(np.float64 if kind in primop.FLOATS else np.bool_ if kind == "i1" else np.int64)
        meaning = MEANINGS.get(op.kind if isinstance(op, primop.Custom) else type(op))
        if meaning is None:
            raise UnsupportedError(f"there is nothing to compare {op.operation.name} with")
        return np.asarray(meaning(*operands))

    def _reduced(self, op: Any, point: Index) -> np.ndarray:
        """A reduction, along new leading dimensions of the indices."""
        base, kept = max((np.ndim(self._index(i)) for i in point), default=0), iter(point)
        sizes: list[int] = []
        inner = []
        for d, extent in enumerate(primop.space_of(op)):
            if d in list(op.dims):
                inner.append(self._axis(self._size(extent), base + len(sizes)))
                sizes.insert(0, self._size(extent))
            else:
                inner.append(next(kept))
        outside, self.known = self.known, {}
        terms = self._read(op, 0, tuple(inner))
        self.known = outside
        terms = terms.reshape([1] * (base + len(sizes) - terms.ndim) + list(terms.shape))
        terms = np.broadcast_to(terms, (*sizes, *terms.shape[len(sizes):]))
        axes = tuple(range(len(sizes)))
        return terms.sum(axes) if isinstance(op, primop.Sum) else terms.max(axes)

    def _axis(self, size: int, behind: int) -> Linear:
        if (size, behind) not in self.axes:
            self.axes[size, behind] = self._dim(np.arange(size).reshape(-1, *[1] * behind))
        return self.axes[size, behind]
