"""The meaning of upstream's ops in a tile function: arith and math on tiles and on indices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from mlir import ir

from tilec.dialects.index_expr import Symbol, map_results
from tilec.dialects.schedule import Schedule

from .. import reference
from ..reference import Array
from .meanings import MEANINGS, Execute, Meaning, Program, dtype_of, meaning, number


@meaning("vector.broadcast")
def _broadcast(op: Any, _: Schedule) -> Execute:
    shape = tuple(op.results[0].type.shape)
    return lambda program, value: np.broadcast_to(value, shape)


@meaning("arith.constant")
def _constant(op: Any, _: Schedule) -> Execute:
    kind, attribute = op.results[0].type, op.attributes["value"]
    if not isinstance(kind, ir.VectorType):
        value = ir.IntegerAttr(attribute).value
    else:
        splat = ir.DenseElementsAttr(attribute).get_splat_value().value
        value = reference.rounded(np.full(list(kind.shape), splat), str(kind.element_type))
    return lambda program: value


@meaning("affine.apply")
def _apply(op: Any, _: Schedule) -> Execute:
    place = ir.AffineMapAttr(op.attributes["map"]).value
    (expr,), dims = map_results(place), place.n_dims

    def execute(_: Program, *operands: int) -> int:
        return int(reference.index(expr, operands[:dims], {Symbol(i): v for i, v in enumerate(operands[dims:])}))

    return execute


def elementwise(function: Callable[..., Any]) -> Meaning:
    """A function of tiles' elements or of indices. Floats are computed in f64 and rounded once."""

    def read(op: Any, _: Schedule) -> Execute:
        if not isinstance(op.results[0].type, ir.VectorType):
            return lambda program, *operands: function(*operands)
        dtype, dtypes = dtype_of(op.results[0]), [dtype_of(v) for v in op.operands]

        def execute(_: Program, *operands: Array) -> Array:
            return reference.rounded(function(*(number(v, d) for v, d in zip(operands, dtypes, strict=True))), dtype)

        return execute

    return read


def _unsigned(value: Any) -> Any:
    if isinstance(value, int) or value.dtype == np.bool_:
        return value  # an index is never negative
    return value.view(f"u{value.itemsize}")


FLOAT_COMPARISONS = {4: operator.lt, 13: operator.ne}  # olt, une
INTEGER_COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
INTEGER_COMPARISONS += [lambda a, b, f=f: f(_unsigned(a), _unsigned(b)) for f in INTEGER_COMPARISONS[2:]]


@meaning("arith.cmpi")
def _cmpi(op: Any, schedule: Schedule) -> Execute:
    return elementwise(INTEGER_COMPARISONS[ir.IntegerAttr(op.attributes["predicate"]).value])(op, schedule)


@meaning("arith.cmpf")
def _cmpf(op: Any, schedule: Schedule) -> Execute:
    return elementwise(FLOAT_COMPARISONS[ir.IntegerAttr(op.attributes["predicate"]).value])(op, schedule)


@meaning("arith.bitcast")
def _bitcast(op: Any, _: Schedule) -> Execute:
    dtype = dtype_of(op.results[0])
    return lambda program, value: np.ascontiguousarray(value).view(reference.NUMPY[dtype])


MEANINGS |= {name: elementwise(function) for name, function in {
    **reference.CUSTOM,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.remf": np.fmod,
    "arith.maximumf": np.maximum,
    "arith.extf": np.positive,
    "arith.truncf": np.positive,
    "arith.fptosi": np.positive,
    "arith.sitofp": lambda a: a,
    "arith.uitofp": lambda a: a,
    "arith.extsi": lambda a: a,
    "arith.extui": lambda a: a,
    "arith.trunci": lambda a: a,
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.minsi": lambda a, b: min(a, b) if isinstance(a, int) else np.minimum(a, b),
    "arith.maxsi": lambda a, b: max(a, b) if isinstance(a, int) else np.maximum(a, b),
    "arith.minui": min,
    "arith.divui": operator.floordiv,
    "arith.remui": operator.mod,
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.remsi": np.fmod,
    "math.exp2": np.exp2,
    "math.log2": np.log2,
    "math.sin": np.sin,
    "math.sqrt": np.sqrt,
    "math.fma": lambda a, b, c: a * b + c,
}.items()}
