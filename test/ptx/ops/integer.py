"""Integer arithmetic, logic and bit fields. Arrays wrap as the machine does; divisors of zero are a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Run, elementwise, instruction
from ..faults import Fault, Unsupported
from ..formats import TYPES, Array, Type, join, split
from ..lanes import Lanes
from ..parser import Register

if TYPE_CHECKING:
    from ..machine import Batch

U32, PRED = TYPES["u32"], TYPES["pred"]


def double(kind: Type) -> Type:
    return TYPES[f"{kind.kind}{kind.width * 2}"]


def product(kind: Type, part: str, a: Array, b: Array) -> Array:
    """The lo, hi or wide product of two `kind` values."""
    if part == "lo":
        return np.multiply(a, b)
    if kind.width < 64:
        wide = np.multiply(a, b, dtype=double(kind).view)
        return wide if part == "wide" else (wide >> kind.width).astype(kind.view)
    low = np.uint64(0xFFFFFFFF)
    ua, ub, half = np.asarray(a).view(np.uint64), np.asarray(b).view(np.uint64), np.uint64(32)
    a0, a1, b0, b1 = ua & low, ua >> half, ub & low, ub >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    high = a1 * b1 + (middle >> half) + ((a0 * b1 + (middle & low)) >> half)
    if kind.kind == "s":
        high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return np.asarray(high).view(kind.view)


@instruction("add", "sub", "addc", "subc", floating=False)
def add(at: Decoder) -> Run:
    kind, carry_out, saturated = at.type(), at.take("cc"), at.take("sat")
    subtract = at.mnemonic.startswith("sub")
    if carry_out or at.mnemonic.endswith("c"):
        return carried(at, kind, "", subtract, bool(carry_out))
    if saturated:
        low, high = np.iinfo(kind.view).min, np.iinfo(kind.view).max
        wide = np.subtract if subtract else np.add
        clipped = lambda a, b: np.clip(wide(a, b, dtype=np.int64), low, high).astype(kind.view)  # noqa: E731
        return elementwise(at, clipped, kind, kind, kind)
    return elementwise(at, np.subtract if subtract else np.add, kind, kind, kind)


@instruction("mul", "mad", "madc", floating=False)
def mul(at: Decoder) -> Run:
    kind, part = at.type(), at.need("lo", "hi", "wide")
    carry_out = at.take("cc")
    result = double(kind) if part == "wide" else kind
    if at.mnemonic == "mul":
        return elementwise(at, lambda a, b: product(kind, part, a, b), result, kind, kind)
    if carry_out or at.mnemonic == "madc":
        return carried(at, kind, part, False, bool(carry_out))
    return elementwise(at, lambda a, b, c: product(kind, part, a, b) + c, result, kind, kind, result)


def carried(at: Decoder, kind: Type, part: str, subtract: bool, carry_out: bool) -> Run:
    """Extended precision: a + b, a - b or `part` of a * b, + c; the carry flag goes in for ...c and out for .cc."""
    takes, unsigned = at.mnemonic.endswith("c"), TYPES[f"u{kind.width}"]
    flag = Register(0, f"carry flag of {at.function.name}", 1)
    reads = [at.reader(place, kind) for place in range(1, at.expect(4 if part else 3))]
    write, read_flag, write_flag = at.writer(0, unsigned), at.reader(flag, PRED), at.writer(flag, PRED)

    def run(batch: Batch, lanes: Lanes) -> None:
        values = [read(batch, lanes) for read in reads]
        if part:
            values = [product(kind, part, values[0], values[1]), values[2]]
        a, b = (np.asarray(value).view(unsigned.view) for value in values)
        extra = read_flag(batch, lanes).astype(unsigned.view) if takes else unsigned.view.type(0)
        first = a - b if subtract else a + b
        total = first - extra if subtract else first + extra
        out = (a < b) | (first < extra) if subtract else (first < a) | (total < first)
        write(batch, lanes, total)
        if carry_out:
            write_flag(batch, lanes, out)

    return run


@instruction("div", "rem", floating=False)
def div(at: Decoder) -> Run:
    kind = at.type()
    at.expect(3)
    write, first, second = at.writer(0, kind), at.reader(1, kind), at.reader(2, kind)
    unsigned = TYPES[f"u{kind.width}"].view

    def run(batch: Batch, lanes: Lanes) -> None:
        a, b = first(batch, lanes), np.broadcast_to(second(batch, lanes), (batch.size,))
        if (zero := (b == 0) & lanes.mask).any():
            raise Fault("integer division by zero", int(zero.argmax()))
        ua, ub = np.abs(a).view(unsigned), np.where(b == 0, unsigned.type(1), np.abs(b).view(unsigned))
        if at.mnemonic == "div":
            size, negative = ua // ub, (a < 0) != (b < 0)
        else:
            size, negative = ua % ub, np.asarray(a < 0)
        write(batch, lanes, np.where(negative, 0 - size, size).view(kind.view))

    return run


@instruction("min", "max", floating=False)
def extreme(at: Decoder) -> Run:
    kind = at.type()
    return elementwise(at, np.minimum if at.mnemonic == "min" else np.maximum, kind, kind, kind)


@instruction("abs", "neg", floating=False)
def unary(at: Decoder) -> Run:
    kind = at.type()
    return elementwise(at, np.abs if at.mnemonic == "abs" else np.negative, kind, kind)


@instruction("and", "or", "xor")
def logic(at: Decoder) -> Run:
    kind, functions = at.type(), {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    return elementwise(at, functions[at.mnemonic], kind, kind, kind)


@instruction("not")
def invert(at: Decoder) -> Run:
    kind = at.type()
    return elementwise(at, np.invert, kind, kind)


@instruction("cnot")
def cnot(at: Decoder) -> Run:
    kind = at.type()
    return elementwise(at, lambda a: np.equal(a, 0).astype(kind.view), kind, kind)


def shifted(kind: Type, left: bool, value: Array, by: Array) -> Array:
    """A shift by uint32 `by`, clamped at the width: what is shifted out is gone."""
    last, by = kind.width - 1, np.asarray(by)
    result = (np.left_shift if left else np.right_shift)(value, np.minimum(by, last).astype(kind.view))
    if kind.kind == "s" and not left:
        return result
    return np.where(by > last, kind.view.type(0), result)


@instruction("shl", "shr")
def shift(at: Decoder) -> Run:
    kind, left = at.type(), at.mnemonic == "shl"
    return elementwise(at, lambda a, by: shifted(kind, left, a, by), kind, kind, U32)


@instruction("shf")
def funnel(at: Decoder) -> Run:
    left, wrap, kind = at.need("l", "r") == "l", at.need("wrap", "clamp") == "wrap", at.type()

    def compute(low: Array, high: Array, by: Array) -> Array:
        both = high.astype(np.uint64) << np.uint64(32) | low
        by = (by & 31 if wrap else np.minimum(by, 32)).astype(np.uint64)
        return ((both << by) >> np.uint64(32) if left else both >> by).astype(np.uint32)

    return elementwise(at, compute, kind, U32, U32, U32)


def ones(count: Array) -> Array:
    """uint64 with the low `count` (0..64) bits set."""
    count = np.asarray(count).astype(np.uint64)
    return np.where(count > 63, ~np.uint64(0), (np.uint64(1) << np.minimum(count, np.uint64(63))) - np.uint64(1))


@instruction("bfe")
def extract(at: Decoder) -> Run:
    kind = at.type()
    top = kind.width - 1

    def compute(a: Array, start: Array, count: Array) -> Array:
        start, count = start & np.uint32(255), count & np.uint32(255)
        reach = ones(np.minimum(count, np.maximum(np.int64(kind.width) - start, 0)))
        field = shifted(TYPES["u64"], False, np.asarray(a).view(kind.storage).astype(np.uint64), start) & reach
        if kind.kind == "s":
            sign = np.asarray(a) >> np.minimum(start + count - np.uint32(1), np.uint32(top)).astype(kind.view)
            field = np.where((sign & 1 == 1) & (count > 0), field | ~reach, field)
        return field.astype(kind.storage).view(kind.view)

    return elementwise(at, compute, kind, kind, U32, U32)


@instruction("bfi")
def insert(at: Decoder) -> Run:
    kind = at.type()

    def compute(a: Array, b: Array, start: Array, count: Array) -> Array:
        start = start & np.uint32(255)
        mask = shifted(TYPES["u64"], True, ones(count & np.uint32(255)), start)
        moved = shifted(TYPES["u64"], True, a.astype(np.uint64), start)
        return (b.astype(np.uint64) & ~mask | moved & mask).astype(kind.view)

    return elementwise(at, compute, kind, kind, kind, U32, U32)


@instruction("popc")
def popc(at: Decoder) -> Run:
    return elementwise(at, lambda a: np.bitwise_count(a).astype(np.uint32), U32, at.type())


def bit_length(a: Array) -> Array:
    """The number of bits up to the highest one set (0 for 0), exact since frexp sees at most 32 bits at a time."""
    a = np.asarray(a).astype(np.uint64)
    high, low = a >> np.uint64(32), a & np.uint64(0xFFFFFFFF)
    lengths = [np.frexp(part.astype(np.float64))[1] for part in (high, low)]
    return np.where(high != 0, lengths[0] + 32, lengths[1])


@instruction("clz")
def clz(at: Decoder) -> Run:
    kind = at.type()
    return elementwise(at, lambda a: (kind.width - bit_length(a)).astype(np.uint32), U32, kind)


@instruction("bfind")
def bfind(at: Decoder) -> Run:
    amount, kind = at.take("shiftamt"), at.type()

    def compute(a: Array) -> Array:
        a = (np.where(a < 0, ~a, a) if kind.kind == "s" else np.asarray(a)).view(kind.storage)
        place = bit_length(a) - 1
        return np.where(place < 0, -1, kind.width - 1 - place if amount else place).astype(np.int32).view(np.uint32)

    return elementwise(at, compute, U32, kind)


@instruction("brev")
def brev(at: Decoder) -> Run:
    kind = at.type()

    def compute(a: Array) -> Array:
        octets = np.unpackbits(split(a, kind.width // 8), axis=-1, bitorder="little")
        return join(np.packbits(octets[..., ::-1], axis=-1, bitorder="little"), kind.storage)

    return elementwise(at, compute, kind, kind)


@instruction("prmt")
def permute(at: Decoder) -> Run:
    kind = at.type()

    def compute(a: Array, b: Array, selector: Array) -> Array:
        a, b, selector = np.broadcast_arrays(a, b, selector)
        source = split(b.astype(np.uint64) << np.uint64(32) | a, 8)
        pick = (selector[..., None] >> np.arange(0, 16, 4, dtype=np.uint32)) & np.uint32(15)
        octets = np.take_along_axis(source, (pick & 7).astype(np.int64), axis=-1)
        return join(np.where(pick > 7, (octets >> 7) * np.uint8(255), octets), kind.storage)

    return elementwise(at, compute, kind, U32, U32, U32)


@instruction("lop3")
def lop3(at: Decoder) -> Run:
    kind = at.type()
    at.expect(5)
    table = at.constant(4)
    write, reads = at.writer(0, kind), [at.reader(place, kind) for place in (1, 2, 3)]

    def run(batch: Batch, lanes: Lanes) -> None:
        a, b, c = (read(batch, lanes) for read in reads)
        result = np.zeros(batch.size, kind.view)
        for row in range(8):
            if table >> row & 1:
                result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        write(batch, lanes, result)

    if not 0 <= table < 256:
        raise Unsupported(f"the table {table}")
    return run
