"""Moves, conversions, comparisons and selections."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Run, Write, elementwise, instruction
from ..faults import Fault, Unsupported
from ..formats import TYPES, Array, Type, flush, join, narrow, saturate, select, split
from ..lanes import Lanes
from ..memory import LOCAL_WINDOW, SHARED_WINDOW, WINDOW
from ..parser import Operand, Pair, Vector

if TYPE_CHECKING:
    from ..machine import Batch

PRED = TYPES["pred"]
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": 0}
WINDOWS |= {"shared::cta": SHARED_WINDOW, "shared::cluster": SHARED_WINDOW}


def _odd(values: Array) -> Array:
    """64-bit integers as f64 rounded to odd, which a second rounding to far fewer bits cannot tell from the exact value."""
    negative = values < 0
    size = np.where(negative, 0 - values, values).astype(np.uint64)
    large = (size >> np.uint64(53)) != 0
    kept = (size >> np.uint64(11)) | ((size & np.uint64(0x7FF)) != 0).astype(np.uint64)
    exact = np.where(large, kept, size).astype(np.float64) * np.where(large, 2048.0, 1.0)
    return np.where(negative, -exact, exact)


@instruction("mov")
def mov(at: Decoder) -> Run:
    kind = at.type()
    at.expect(2)
    target, source = at.operands
    if isinstance(source, Vector):
        parts = [at.reader(part, TYPES[f"b{kind.width // len(source.items)}"]) for part in source.items]
        write = at.writer(target, kind)

        def pack(batch: Batch, lanes: Lanes) -> None:
            columns = np.broadcast_arrays(*(part(batch, lanes) for part in parts))
            write(batch, lanes, join(np.stack(columns, axis=-1), kind.storage).view(kind.view))

        return pack
    if isinstance(target, Vector):
        bits = at.reader(source, TYPES[f"b{kind.width}"])
        writes = [at.writer(part, TYPES[f"b{kind.width // len(target.items)}"]) for part in target.items]

        def unpack(batch: Batch, lanes: Lanes) -> None:
            columns = split(bits(batch, lanes), len(writes))
            for place, each in enumerate(writes):
                each(batch, lanes, np.ascontiguousarray(columns[..., place]))

        return unpack
    return elementwise(at, lambda a: a, kind, kind)


@instruction("cvta")
def cvta(at: Decoder) -> Run:
    back, space, kind = at.take("to"), at.need(*WINDOWS), at.type()
    window = WINDOWS[space]
    at.expect(2)
    read, write = at.reader(1, TYPES["u64"]), at.writer(0, kind)

    def run(batch: Batch, lanes: Lanes) -> None:
        value = read(batch, lanes)
        if back and window:
            outside = ~((value >= window) & (value < window + WINDOW)) & lanes.mask
            if outside.any():
                raise Fault(f"a generic address not in {space} memory is converted to it", int(outside.argmax()))
        write(batch, lanes, value - np.uint64(window) if back else value + np.uint64(window))

    return run


@instruction("isspacep")
def isspacep(at: Decoder) -> Run:
    space = at.need("shared", "local", "global")

    def compute(a: Array) -> Array:
        inside = {name: (a >= WINDOWS[name]) & (a < WINDOWS[name] + WINDOW) for name in ("shared", "local")}
        return inside[space] if space != "global" else ~(inside["shared"] | inside["local"])

    return elementwise(at, compute, PRED, TYPES["u64"])


def to_integer(values: Array, to: Type, source: Type) -> Array:
    """Whole float64 values, clamped to the range. NaN becomes 0, or only the top bit where 64 bits are involved."""
    info = np.iinfo(to.view)
    too_big, nan = values >= float(info.max), np.isnan(values)
    inside = np.where(too_big | nan, 0, np.maximum(values, float(info.min))).astype(to.view)
    top = (1 << (to.width - 1) if 64 in (to.width, source.width) else 0) * (-1 if to.kind == "s" else 1)
    return np.where(nan, to.view.type(top), np.where(too_big, to.view.type(info.max), inside))


@instruction("cvt")
def cvt(at: Decoder) -> Run:
    source, ftz, sat, relu = at.type(), at.take("ftz"), at.take("sat"), at.take("relu")
    if at.take("tf32"):
        return tensor_float(at, source)
    to, mode = at.type(), at.take("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi")
    if to.packed:
        return packed(at, to, source, mode, bool(relu))
    if source.packed or relu:
        raise Unsupported("this conversion")
    whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}

    def from_float(values: Array) -> Array:
        values = flush(values) if ftz and source.name == "f32" else values
        if not to.floating:
            return to_integer(whole[mode](values.astype(np.float64)), to, source)
        exact = whole[mode](values).astype(np.float64) if mode in whole else values.astype(np.float64)
        exact = saturate(exact) if sat else exact
        result = to.decode(narrow(exact, to, mode if mode in ("rn", "rz", "rm", "rp") else "rn"))
        return flush(result) if ftz and to.name == "f32" else result

    def from_integer(values: Array) -> Array:
        if not to.floating:
            if sat:
                target, own = np.iinfo(to.view), np.iinfo(source.view)
                low, high = source.view.type(max(target.min, own.min)), source.view.type(min(target.max, own.max))
                values = np.clip(values, low, high)
            return values.astype(to.view)
        if source.width == 64 and to.width < 32:
            return to.decode(narrow(_odd(values), to, mode))
        if source.width == 64 and to.name != "f64":
            return np.asarray(values.astype(np.float32))
        return to.decode(narrow(values.astype(np.float64), to, mode))

    if source.floating and not to.floating and mode not in whole:
        raise Unsupported("a conversion to an integer without .rni, .rzi, .rmi or .rpi")
    inexact = source.width == 64 and mode != "rn"  # would be rounded twice
    if not source.floating and to.floating and (mode in ("", *whole) or inexact):
        raise Unsupported(f"this rounding of {source.name} to {to.name}")
    if source.floating and to.floating and to.width < source.width and not mode:
        raise Unsupported("a narrowing conversion without its rounding")
    return elementwise(at, from_float if source.floating else from_integer, to, source, wider=True)


def packed(at: Decoder, to: Type, source: Type, mode: str, relu: bool) -> Run:
    """cvt.rn.bf16x2.f32 d, a, b: a becomes the upper half."""
    if mode != "rn" or source.name != "f32":
        raise Unsupported("this packed conversion")

    def compute(high: Array, low: Array) -> Array:
        halves = np.stack(np.broadcast_arrays(low, high), axis=-1)
        return np.maximum(halves, 0) if relu else halves

    return elementwise(at, compute, to, source, source)


def tensor_float(at: Decoder, source: Type) -> Run:
    """cvt.rna.tf32.f32: ten bits of mantissa, ties away from zero."""
    at.need("rna")
    return elementwise(at, lambda bits: (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), TYPES["b32"], TYPES["b32"])


COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
BOOLEAN: dict[str, Callable[[Array, Array], Array]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def comparison(at: Decoder, kind: Type) -> Callable[[Array, Array], Array]:
    """Ordered float comparisons are false for NaN, ...u ones true."""
    if kind.floating:
        name = at.need(*COMPARE, *(each + "u" for each in COMPARE), "num", "nan")
        if name in ("num", "nan"):
            return lambda a, b: (np.isnan(a) | np.isnan(b)) == (name == "nan")
        compare = COMPARE[name[:2]]
        if name == "ne":
            return lambda a, b: compare(a, b) & ~(np.isnan(a) | np.isnan(b))
        return compare if len(name) == 2 else lambda a, b: compare(a, b) | np.isnan(a) | np.isnan(b)
    name = at.need(*COMPARE, *(UNSIGNED if kind.kind == "u" else ()))
    return COMPARE[UNSIGNED.get(name, name)]


@instruction("setp", "set")
def setp(at: Decoder) -> Run:
    kind, to, ftz = at.type(), at.type() if at.mnemonic == "set" else PRED, at.take("ftz")
    compare, combine = comparison(at, kind), BOOLEAN.get(at.take(*BOOLEAN))
    at.expect(4 if combine else 3)
    first, second = at.reader(1, kind), at.reader(2, kind)
    third = at.reader(3, PRED) if combine else None
    target = at.operands[0]
    targets: tuple[Operand, ...] = (target.first, target.second) if isinstance(target, Pair) else (target,)
    writes: list[Write] = [at.writer(each, to) for each in targets]
    if kind.packed and (len(writes) != 2 or combine):
        raise Unsupported("a packed comparison without two destinations")
    true = {"f": 1, "pred": True}.get(to.kind, -1 if to.kind == "s" else (1 << to.width) - 1)

    def run(batch: Batch, lanes: Lanes) -> None:
        a, b = first(batch, lanes), second(batch, lanes)
        result = compare(flush(a), flush(b)) if ftz else compare(a, b)
        results = [result[..., 0], result[..., 1]] if kind.packed else [result, ~result]
        for write, each in zip(writes, results, strict=False):
            if combine is not None and third is not None:
                each = combine(each, third(batch, lanes))
            write(batch, lanes, each if to is PRED else np.where(each, to.view.type(true), to.view.type(0)))

    return run


@instruction("selp")
def selp(at: Decoder) -> Run:
    kind = at.type()
    bits = kind if kind.native else TYPES[f"b{kind.width}"]
    return elementwise(at, lambda a, b, choice: select(choice, a, b), bits, bits, bits, PRED)


@instruction("slct")
def slct(at: Decoder) -> Run:
    choice, kind = at.type(), at.type()
    ftz = at.take("ftz")
    return elementwise(at, lambda a, b, c: select((flush(c) if ftz else c) >= 0, a, b), kind, kind, kind, choice)
