"""Floating-point arithmetic. Plain forms round exactly as PTX says. The .approx forms give the correctly rounded
value, which a GPU is only near to: compare their results with a tolerance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..decode import Decoder, Run, elementwise, instruction
from ..faults import Unsupported
from ..formats import TYPES, Array, Type, flush, fma_double, fma_single, narrow, odd_double, saturate, two_sum

PRED = TYPES["pred"]


def finished(at: Decoder, kind: Type, function: Callable[..., Array], sources: int) -> Run:
    """An elementwise instruction with its .ftz and .sat."""
    ftz, sat = at.take("ftz"), at.take("sat")
    if ftz and kind.name != "f32":
        raise Unsupported(f".ftz of {kind.name}")
    compute = function
    if ftz or sat:

        def compute(*values: Array) -> Array:
            result = function(*(flush(value) for value in values) if ftz else values)
            result = saturate(result) if sat else result
            return flush(result) if ftz else result

    return elementwise(at, compute, kind, *[kind] * sources)


def rounding(at: Decoder, kind: Type) -> str:
    mode = at.take("rn", "rz", "rm", "rp") or "rn"
    if mode != "rn" and kind.name != "f32":
        raise Unsupported(f".{mode} of {kind.name}")
    return mode


def directed(total: Array, error: Array, mode: str) -> Array:
    return narrow(odd_double(np.asarray(total), np.asarray(error)), TYPES["f32"], mode).view(np.float32)


@instruction("add", "sub", floating=True)
def add(at: Decoder) -> Run:
    kind = at.type()
    mode, sign = rounding(at, kind), np.float32(-1 if at.mnemonic == "sub" else 1)
    if mode == "rn":
        return finished(at, kind, np.subtract if at.mnemonic == "sub" else np.add, 2)
    wide = np.float64
    return finished(at, kind, lambda a, b: directed(*two_sum(a.astype(wide), (sign * b).astype(wide)), mode), 2)


@instruction("mul", floating=True)
def mul(at: Decoder) -> Run:
    kind = at.type()
    mode = rounding(at, kind)
    if mode == "rn":
        return finished(at, kind, np.multiply, 2)
    return finished(at, kind, lambda a, b: directed(np.multiply(a, b, dtype=np.float64), np.zeros(1), mode), 2)


@instruction("fma", "mad", floating=True)
def fma(at: Decoder) -> Run:
    kind, relu = at.type(), at.take("relu")
    mode = rounding(at, kind)

    def compute(a: Array, b: Array, c: Array) -> Array:
        if kind.name == "f64":
            return fma_double(a, b, c)
        if kind.name in ("f32", "f32x2"):
            return fma_single(a, b, c, mode)
        result = np.multiply(a, b, dtype=np.float64) + c
        return np.maximum(result, 0) if relu else result

    if relu and kind.native:
        raise Unsupported(f".relu of {kind.name}")
    return finished(at, kind, compute, 3)


@instruction("div", floating=True)
def div(at: Decoder) -> Run:
    kind, accuracy = at.type(), at.need("rn", "approx", "full")

    def compute(a: Array, b: Array) -> Array:
        if accuracy != "approx":
            return np.divide(a, b)
        huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)  # documented: a / b is then 0
        return np.where(huge, a * np.copysign(np.float32(0), b), np.divide(a, b))

    return finished(at, kind, compute, 2)


@instruction("min", "max", floating=True)
def extreme(at: Decoder) -> Run:
    kind, least, nan = at.type(), at.mnemonic == "min", at.take("NaN")
    pick = (np.minimum if least else np.maximum) if nan else (np.fmin if least else np.fmax)

    def compute(a: Array, b: Array) -> Array:
        result = pick(a, b)
        zeros = (a == 0) & (b == 0)
        if not zeros.any():
            return result
        negative = np.signbit(a) | np.signbit(b) if least else np.signbit(a) & np.signbit(b)
        return np.where(zeros, np.where(negative, -0.0, 0.0).astype(result.dtype), result)

    return finished(at, kind, compute, 2)


@instruction("abs", "neg", floating=True)
def sign(at: Decoder) -> Run:
    return finished(at, at.type(), np.abs if at.mnemonic == "abs" else np.negative, 1)


@instruction("copysign")
def copysign(at: Decoder) -> Run:
    return finished(at, at.type(), lambda a, b: np.copysign(b, a), 2)


@instruction("testp")
def testp(at: Decoder) -> Run:
    kind = at.type()
    tiny = np.finfo(kind.view).tiny
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & ((a == 0) | (np.abs(a) >= tiny)),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < tiny),
    }
    return elementwise(at, tests[at.need(*tests)], PRED, kind)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@instruction(*FUNCTIONS)
def function(at: Decoder) -> Run:
    """In float64, rounded once: exact enough to be the rounded value also for the .rn forms of rcp and sqrt."""
    kind, compute = at.type(), FUNCTIONS[at.mnemonic]
    at.need("approx", "rn") if at.mnemonic in ("rcp", "sqrt") else at.need("approx")
    if kind.name == "f64":
        at.take("ftz")
    result = np.float64 if kind.name == "f64" else np.float32
    return finished(at, kind, lambda a: compute(a.astype(np.float64)).astype(result), 1)
