"""The PTX scalar types: how each is stored in a register, and the rounding that NumPy itself does not offer.

Registers hold unsigned bit patterns. `decode` gives arrays to compute on (f16 and bf16 become float32, packed pairs get
a last axis of 2, so that one elementwise function serves every type) and `encode` rounds back to the nearest even.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
STORAGE = {1: np.dtype(bool), 8: np.dtype("u1"), 16: np.dtype("u2"), 32: np.dtype("u4"), 64: np.dtype("u8")}


@dataclass(frozen=True)
class Type:
    """A PTX type such as `s32`; `kind` is b, u, s, f, bf or pred, `width` its bits in a register or in memory."""

    name: str
    kind: str
    width: int
    packed: bool = False

    @property
    def storage(self) -> np.dtype[Any]:
        return STORAGE[self.width]

    @property
    def floating(self) -> bool:
        return self.kind in ("f", "bf")

    @property
    def native(self) -> bool:
        """Whether the bits can be computed on as they are, after a change of view."""
        return not self.floating or self.name in ("f32", "f64")

    @property
    def view(self) -> np.dtype[Any]:
        kind = {"s": "i", "f": "f"}.get(self.kind, "u")
        return np.dtype(f"{kind}{self.width // 8}") if self.native and self.width > 1 else self.storage

    def decode(self, bits: Array) -> Array:
        if self.native:
            return bits.view(self.view)
        halves = split(bits, 2) if self.packed else bits
        if self.width == 64:
            return halves.view(np.float32)
        return bf16_to_f32(halves) if self.kind == "bf" else halves.view(np.float16).astype(np.float32)

    def encode(self, values: Array) -> Array:
        if self.native:
            return np.asarray(values, self.view).view(self.storage)
        if self.width == 64:
            return join(np.asarray(values, np.float32).view(np.uint32), self.storage)
        halves = f32_to_bf16(values) if self.kind == "bf" else np.asarray(values).astype(np.float16).view(np.uint16)
        return join(halves, self.storage) if self.packed else halves


TYPES = {f"{kind}{width}": Type(f"{kind}{width}", kind, width) for kind in "bus" for width in (8, 16, 32, 64)}
TYPES |= {f"f{width}": Type(f"f{width}", "f", width) for width in (16, 32, 64)}
TYPES |= {"pred": Type("pred", "pred", 1), "bf16": Type("bf16", "bf", 16)}
TYPES |= {"f16x2": Type("f16x2", "f", 32, True), "bf16x2": Type("bf16x2", "bf", 32, True)}
TYPES |= {"f32x2": Type("f32x2", "f", 64, True)}


def split(bits: Array, parts: int) -> Array:
    """(n,) wide words to (n, parts) narrower ones, least significant first."""
    narrow = np.dtype(f"u{bits.dtype.itemsize // parts}")
    return np.ascontiguousarray(bits).view(narrow).reshape(*bits.shape, parts)


def join(parts: Array, storage: np.dtype[Any]) -> Array:
    """(n, parts) narrow words to (n,) words of `storage`."""
    return np.ascontiguousarray(parts).view(storage)[..., 0]


def bf16_to_f32(bits: Array) -> Array:
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: Array) -> Array:
    """bfloat16 bit patterns (uint16) of `values`, to nearest even; float64 is narrowed so that it rounds only once."""
    values = np.asarray(values)
    single = odd_single(values) if values.dtype == np.float64 else values.astype(np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(single), np.uint16(0x7FFF), rounded.astype(np.uint16))


def odd_single(values: Array) -> Array:
    """float64 to float32 by truncation, with the last bit set when inexact (Boldo and Melquiond's round to odd)."""
    single = values.astype(np.float32)
    bits, back = single.view(np.uint32), single.astype(np.float64)
    bits = np.where(np.abs(back) > np.abs(values), bits - np.uint32(1), bits)
    return np.where((back != values) & ~np.isnan(values), bits | np.uint32(1), bits).view(np.float32)


def odd_double(total: Array, error: Array) -> Array:
    """total + error (at most half an ulp of total) as float64 rounded to odd, so that rounding it again is exact."""
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total)
    toward_zero = (error < 0) != (total < 0)
    bits = np.where(inexact & (bits & 1 == 0), bits + np.where(toward_zero, -1, 1), bits)
    return bits.view(np.float64)


def select(choice: Array, a: Array, b: Array) -> Array:
    return np.asarray(np.where(choice, a, b))


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its exact error (Knuth)."""
    total = a + b
    part = total - a
    return total, np.asarray((a - (total - part)) + (b - part))


def narrow(values: Array, to: Type, mode: str) -> Array:
    """Bits of float64 `values` in `to`, rounded as `mode` (rn, rz, rm, rp) says."""
    bits = to.encode(values)
    if mode == "rn":
        return bits
    back, values = to.decode(bits).astype(np.float64), np.asarray(values)
    negative = np.signbit(back)
    if mode == "rz":
        step = np.where(np.abs(back) > np.abs(values), -1, 0)
    elif mode == "rm":
        step = np.where(back > values, np.where(negative, 1, -1), 0)
    else:
        step = np.where(back < values, np.where(negative, -1, 1), 0)
    return bits + step.astype(bits.dtype)


def fma_single(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a * b + c of float32 values, rounded once: the product is exact in float64; only a tie needs the sum's error."""
    product, addend = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    result = total.astype(np.float32)
    tied = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == 0x10000000 if mode == "rn" else np.ones(total.shape, bool)
    if tied.any():
        exact = odd_double(*two_sum(*(np.broadcast_to(each, total.shape)[tied] for each in (product, addend))))
        result[tied] = narrow(exact, TYPES["f32"], mode).view(np.float32)
    return result


def fma_double(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of float64 values through a double-double product (Dekker); off by an ulp only next to a tie."""

    def halves(x: Array) -> tuple[Array, Array]:
        big = x * 134217729.0
        high = big - (big - x)
        return high, x - high

    product = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    total, error = two_sum(product, c)
    exact = total + (error + (((ah * bh - product) + ah * bl + al * bh) + al * bl))
    return np.where(np.isfinite(exact), exact, product + c)


def flush(values: Array) -> Array:
    """`.ftz`: subnormal float32 values become zeros of the same sign."""
    return np.where(np.abs(values) < np.float32(2.0**-126), np.copysign(np.float32(0), values), values)


def saturate(values: Array) -> Array:
    """`.sat`: clamped to [0, 1], NaN and -0 to 0."""
    return np.where(values > 0, np.minimum(values, 1), 0).astype(values.dtype)
