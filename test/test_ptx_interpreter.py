"""The PTX interpreter against NumPy, against MLIR's own code, and against kernels with one planted mistake each."""

from __future__ import annotations

import math
import operator
import shutil
import subprocess
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from mlir import ir
from mlir.dialects import gpu
from mlir.passmanager import PassManager

from .ptx import Fault, Memory, Module, Unsupported, bf16_to_f32, f32_to_bf16, parse

PTXAS = shutil.which("ptxas")
RNG = np.random.default_rng(7)
Array = Any
REGISTERS = ".reg .pred %p<9>; .reg .b16 %h<30>; .reg .b32 %r<40>; .reg .b64 %d<30>; .reg .f32 %f<20>;"
ONES = 0xFFFFFFFF
LETTERS = {1: "p", 2: "h", 4: "r", 8: "d"}


def assemble(text: str) -> None:
    """What we write by hand must be PTX in the eyes of the vendor's assembler too."""
    if PTXAS:
        command = [PTXAS, "-arch=sm_90a", "-o", "/dev/null", "/dev/stdin"]
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode() + text


def module(
    body: str,
    parameters: str = "a, out",
    block: int = 32,
    declarations: str = "",
    check: bool = True,
    directives: str = "",
) -> Module:
    """A module of one kernel `k`, its parameters 64 bits each, `%r1` the thread number and `%d1..` the parameters."""
    names = [name.strip() for name in parameters.split(",")]
    listed = ", ".join(f".param .b64 {name}" for name in names)
    loads = "".join(f"ld.param.b64 %d{place}, [{name}];\n" for place, name in enumerate(names, 1))
    text = f""".version 8.6
.target sm_90a
.address_size 64
{declarations}
.visible .entry k({listed}) .reqntid {block}, 1, 1 {directives}
{{ {REGISTERS}
mov.u32 %r1, %tid.x;
{loads}{body}
ret;
}}
"""
    if check:
        assemble(text)
    return parse(text)


def launch(kernel: Module, *buffers: int | Array, grid: int | tuple[int, ...] = 1, **options: Any) -> list[Array]:
    """Run kernel `k` on arrays (copied in) and sizes (poisoned). Returns the buffers afterwards, sizes as uint32."""
    memory = Memory()
    pointers = [memory.alloc(buffer) for buffer in buffers]
    for option in ("pending", "cross_block"):
        options[option] = [pointers[each] for each in options.get(option, ())]
    kernel.kernel("k").launch(grid=grid, args=pointers, memory=memory, **options)
    kinds = [(each // 4, "u4") if isinstance(each, int) else (each.shape, each.dtype) for each in buffers]
    return [memory.read(pointer, *kind) for pointer, kind in zip(pointers, kinds, strict=True)]


def evaluate(instruction: str, result: str, *operands: Array) -> Array:
    """One instruction on arrays: `{d}` is its destination, `{0}`, `{1}`.. are its operands, one element a thread."""
    count = len(operands[0])
    block = 32 * math.ceil(count / 32)
    body, names = "", []
    sizes = [np.dtype(each.dtype).itemsize for each in operands]
    for place, size in enumerate(sizes):
        names.append(f"%{LETTERS[size]}{10 + place}")
        body += f"mad.wide.u32 %d9, %r1, {size}, %d{place + 2};\nld.global.b{8 * size} {names[-1]}, [%d9];\n"
    predicate = result == "bool"
    kind = np.dtype("u4" if predicate else result)
    size = kind.itemsize
    body += instruction.format(*names, d="%p1" if predicate else f"%{LETTERS[size]}20") + "\n"
    if predicate:
        body += "selp.b32 %r20, 1, 0, %p1;\n"
    body += f"mad.wide.u32 %d9, %r1, {size}, %d1;\nst.global.b{8 * size} [%d9], %{LETTERS[size]}20;"
    parameters = ", ".join(["out", *(f"in{place}" for place in range(len(operands)))])
    padded = [np.resize(each, block) for each in operands]
    out = launch(module(body, parameters, block), np.zeros(block, kind), *padded)[0][:count]
    return out.astype(bool) if predicate else out


def ints(kind: str, count: int = 96) -> Array:
    info = np.iinfo(kind)
    values = RNG.integers(info.min, info.max, count, dtype=kind, endpoint=True)
    values[:6] = [info.min, info.max, 0, 1, 2, info.max - 1]
    return values


def floats(count: int = 96, kind: str = "f4") -> Array:
    values = (RNG.standard_normal(count) * np.exp(RNG.uniform(-8, 8, count))).astype(kind)
    values[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 2.5]
    return values


def same(got: Array, expected: Array) -> None:
    expected = np.array(expected, got.dtype) if isinstance(expected, list) else np.asarray(expected).astype(got.dtype)
    np.testing.assert_array_equal(got, expected)


# Arithmetic


@pytest.mark.parametrize(
    ("instruction", "kind", "expected"),
    [
        ("add.s32 {d}, {0}, {1};", "i4", np.add),
        ("sub.s64 {d}, {0}, {1};", "i8", np.subtract),
        ("sub.s16 {d}, {0}, {1};", "i2", np.subtract),
        ("mul.lo.s32 {d}, {0}, {1};", "i4", np.multiply),
        ("mul.lo.u64 {d}, {0}, {1};", "u8", np.multiply),
        ("mul.hi.s32 {d}, {0}, {1};", "i4", lambda a, b: a.astype("i8") * b >> 32),
        ("mul.hi.u64 {d}, {0}, {1};", "u8", lambda a, b: [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]),
        ("mul.hi.s64 {d}, {0}, {1};", "i8", lambda a, b: [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]),
        ("mad.lo.u32 {d}, {0}, {1}, 7;", "u4", lambda a, b: a * b + np.uint32(7)),
        ("mad.hi.u32 {d}, {0}, {1}, 5;", "u4", lambda a, b: (a.astype("u8") * b >> np.uint64(32)) + np.uint64(5)),
        ("min.s32 {d}, {0}, {1};", "i4", np.minimum),
        ("max.u64 {d}, {0}, {1};", "u8", np.maximum),
        ("add.sat.s32 {d}, {0}, {1};", "i4", lambda a, b: np.clip(a.astype("i8") + b, -(2**31), 2**31 - 1)),
        ("and.b64 {d}, {0}, {1};", "u8", np.bitwise_and),
        ("or.b16 {d}, {0}, {1};", "u2", np.bitwise_or),
        ("xor.b32 {d}, {0}, {1};", "u4", np.bitwise_xor),
        ("lop3.b32 {d}, {0}, {1}, 255, 0x6a;", "u4", lambda a, b: a & b ^ np.uint32(255)),
    ],
)
def test_integer_arithmetic_wraps_like_the_machine(instruction: str, kind: str, expected: Callable[..., Array]) -> None:
    a, b = ints(kind), ints(kind)[::-1].copy()
    same(evaluate(instruction, kind, a, b), expected(a, b))


@pytest.mark.parametrize("kind", ["i4", "u4", "i8", "u8", "i2"])
def test_division_truncates_toward_zero(kind: str) -> None:
    a, b = ints(kind), np.where((x := ints(kind)[::-1]) == 0, 3, x).astype(kind)
    letter = {"i": "s", "u": "u"}[kind[0]] + str(8 * int(kind[1]))
    quotient = [abs(int(x)) // abs(int(y)) * (-1 if (x < 0) != (y < 0) else 1) for x, y in zip(a, b, strict=True)]
    remainder = [int(x) - q * int(y) for x, y, q in zip(a, b, quotient, strict=True)]
    wrap, unsigned = 1 << 8 * int(kind[1]), f"u{kind[1]}"
    same(evaluate(f"div.{letter} {{d}}, {{0}}, {{1}};", unsigned, a, b), [q % wrap for q in quotient])
    same(evaluate(f"rem.{letter} {{d}}, {{0}}, {{1}};", unsigned, a, b), [r % wrap for r in remainder])


def test_wide_products_keep_every_bit() -> None:
    a, b = ints("i4"), ints("i4")[::-1].copy()
    same(evaluate("mul.wide.s32 {d}, {0}, {1};", "i8", a, b), a.astype("i8") * b)
    u = a.view("u4")
    same(evaluate("mad.wide.u32 {d}, {0}, {1}, {2};", "u8", u, u, ints("u8")[:96] * 0 + 5), u.astype("u8") * u + 5)
    h = ints("u2")
    same(evaluate("mul.wide.u16 {d}, {0}, {0};", "u4", h), h.astype("u4") ** 2)


def test_carries_chain_through_extended_precision() -> None:
    a, b = ints("u4"), ints("u4")[::-1].copy()
    high = evaluate("add.cc.u32 %r21, {0}, {1};\naddc.u32 {d}, 0, 0;", "u4", a, b)
    same(high, (a.astype("u8") + b) >> np.uint64(32))
    low = evaluate("sub.cc.u32 %r21, {0}, {1};\nsubc.u32 {d}, 0, 0;", "u4", a, b)
    same(low, np.where(a < b, 0xFFFFFFFF, 0))
    top = evaluate("mad.lo.cc.u32 %r21, {0}, {1}, {0};\nmadc.hi.u32 {d}, {0}, {1}, 0;", "u4", a, b)
    same(top, [(int(x) * int(y) + int(x)) >> 32 for x, y in zip(a, b, strict=True)])


@pytest.mark.parametrize("kind", ["b32", "s32", "u32", "b64", "s64", "b16", "s16"])
def test_shifts_beyond_the_width_leave_nothing_but_the_sign(kind: str) -> None:
    width = int(kind[1:])
    numpy = f"{'i' if kind[0] == 's' else 'u'}{width // 8}"
    a, by = ints(numpy), RNG.integers(0, width + 40, 96).astype("u4")
    by[:3] = [width - 1, width, 2**32 - 1]
    if kind[0] != "b":
        expected = [int(x) >> min(int(s), width) for x, s in zip(a, by, strict=True)]
        same(evaluate(f"shr.{kind} {{d}}, {{0}}, {{1}};", numpy, a, by), np.array(expected, numpy))
    else:
        expected = [(int(x) << min(int(s), width)) % (1 << width) for x, s in zip(a, by, strict=True)]
        same(evaluate(f"shl.{kind} {{d}}, {{0}}, {{1}};", numpy, a, by), np.array(expected, numpy))


def test_funnel_shifts_take_their_bits_from_both_words() -> None:
    low, high, by = ints("u4"), ints("u4")[::-1].copy(), RNG.integers(0, 50, 96).astype("u4")
    both = [(int(h) << 32) | int(x) for x, h in zip(low, high, strict=True)]
    for name, amount in (("wrap", by & 31), ("clamp", np.minimum(by, 32))):
        left = [(word << int(n) >> 32) & 0xFFFFFFFF for word, n in zip(both, amount, strict=True)]
        right = [(word >> int(n)) & 0xFFFFFFFF for word, n in zip(both, amount, strict=True)]
        same(evaluate(f"shf.l.{name}.b32 {{d}}, {{0}}, {{1}}, {{2}};", "u4", low, high, by), left)
        same(evaluate(f"shf.r.{name}.b32 {{d}}, {{0}}, {{1}}, {{2}};", "u4", low, high, by), right)


def extracted(value: int, start: int, count: int, width: int, signed: bool) -> int:
    """The manual's loop, bit by bit."""
    bits = value % (1 << width)
    sign = bits >> min(start + count - 1, width - 1) & 1 if signed and count else 0
    field = [bits >> (start + i) & 1 if i < count and start + i < width else sign for i in range(width)]
    return sum(bit << i for i, bit in enumerate(field))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_fields_follow_the_manual(kind: str) -> None:
    width = int(kind[1:])
    numpy = f"u{width // 8}"
    a, b = ints(numpy), ints(numpy)[::-1].copy()
    start, count = RNG.integers(0, width + 8, 96).astype("u4"), RNG.integers(0, width + 8, 96).astype("u4")
    rows = list(zip(a, start, count, strict=True))
    expected = [extracted(int(v), int(s), int(c), width, kind[0] == "s") for v, s, c in rows]
    same(evaluate(f"bfe.{kind} {{d}}, {{0}}, {{1}}, {{2}};", numpy, a, start, count), np.array(expected, numpy))
    masks = [((1 << int(c)) - 1 << int(s)) % (1 << width) for _, s, c in rows]
    inserted = [int(y) & ~m | (int(v) << int(s)) & m for (v, s, _), y, m in zip(rows, b, masks, strict=True)]
    got = evaluate(f"bfi.b{width} {{d}}, {{0}}, {{1}}, {{2}}, {{3}};", numpy, a, b, start, count)
    same(got, np.array(inserted, numpy))


def test_bits_are_counted_found_reversed_and_permuted() -> None:
    a, b, selector = ints("u4"), ints("u8"), ints("u4")[::-1].copy()
    same(evaluate("popc.b32 {d}, {0};", "u4", a), [int(x).bit_count() for x in a])
    same(evaluate("clz.b64 {d}, {0};", "u4", b), [64 - int(x).bit_length() for x in b])
    same(evaluate("brev.b32 {d}, {0};", "u4", a), [int(f"{int(x):032b}"[::-1], 2) for x in a])
    same(evaluate("bfind.u32 {d}, {0};", "i4", a), [int(x).bit_length() - 1 for x in a])
    signed = a.view("i4")
    same(evaluate("bfind.s32 {d}, {0};", "i4", signed), [int(x if x >= 0 else ~x).bit_length() - 1 for x in signed])
    c = a[::-1].copy()
    octets = [[*int(x).to_bytes(4, "little"), *int(y).to_bytes(4, "little")] for x, y in zip(a, c, strict=True)]
    picks = [[int(s) >> 4 * i & 15 for i in range(4)] for s in selector]
    words = [[(o[p & 7] >> 7) * 255 if p > 7 else o[p] for p in row] for o, row in zip(octets, picks, strict=True)]
    got = evaluate("prmt.b32 {d}, {0}, {1}, {2};", "u4", a, c, selector)
    same(got, [int.from_bytes(word, "little") for word in words])


@pytest.mark.parametrize(
    ("instruction", "kind", "expected"),
    [
        ("add.rn.f32 {d}, {0}, {1};", "f4", np.add),
        ("sub.f32 {d}, {0}, {1};", "f4", np.subtract),
        ("mul.f64 {d}, {0}, {1};", "f8", np.multiply),
        ("div.rn.f32 {d}, {0}, {1};", "f4", np.divide),
        ("min.f32 {d}, {0}, {1};", "f4", np.fmin),
        ("max.f32 {d}, {0}, {1};", "f4", np.fmax),
        ("max.NaN.f32 {d}, {0}, {1};", "f4", np.maximum),
        ("add.f16 {d}, {0}, {1};", "f2", np.add),
        ("mul.rn.f16 {d}, {0}, {1};", "f2", np.multiply),
        ("copysign.f32 {d}, {0}, {1};", "f4", lambda a, b: np.copysign(b, a)),
        ("add.sat.f32 {d}, {0}, {1};", "f4", lambda a, b: np.where(np.isnan(a + b), 0, np.clip(a + b, 0, 1))),
    ],
)
def test_float_arithmetic_is_exactly_numpys(instruction: str, kind: str, expected: Callable[..., Array]) -> None:
    a, b = floats(kind=kind), floats(kind=kind)[::-1].copy()
    with np.errstate(all="ignore"):
        same(evaluate(instruction, kind, a, b), expected(a, b).astype(kind))


def test_a_fused_multiply_add_rounds_once_in_every_direction() -> None:
    a, b = floats()[8:], floats()[8:]
    c = (-(a.astype("f8") * b) * (1 + RNG.integers(-3, 3, len(a)) * 2.0**-24)).astype("f4")  # cancels nearly all
    a[0], b[0], c[0] = 1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60  # a tie of the product, which only c breaks
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
    for mode in ("rn", "rz", "rm", "rp"):
        got = evaluate(f"fma.{mode}.f32 {{d}}, {{0}}, {{1}}, {{2}};", "f4", a, b, c)
        for value, truth in zip(got, exact, strict=True):
            below, above = np.nextafter(value, np.float32(-np.inf)), np.nextafter(value, np.float32(np.inf))
            error = Fraction(float(value)) - truth
            if mode == "rn":
                assert abs(error) <= min(abs(Fraction(float(each)) - truth) for each in (below, above))
            else:
                assert {"rz": abs(Fraction(float(value))) <= abs(truth), "rm": error <= 0, "rp": error >= 0}[mode]
                assert abs(error) < Fraction(float(above)) - Fraction(float(below))


def test_bf16_is_rounded_to_nearest_even_and_packed_pairs_are_two_values() -> None:
    x, y, z = (RNG.standard_normal(192).astype("f4") for _ in range(3))
    a, b, c = (f32_to_bf16(each).view("u4") for each in (x, y, z))
    wide = [bf16_to_f32(each.view("u2")) for each in (a, b, c)]
    got = evaluate("fma.rn.bf16x2 {d}, {0}, {1}, {2};", "u4", a, b, c)
    same(got.view("u2"), f32_to_bf16(wide[0].astype("f8") * wide[1] + wide[2]))
    same(evaluate("add.rn.bf16x2 {d}, {0}, {1};", "u4", a, b).view("u2"), f32_to_bf16(wide[0] + wide[1]))
    halves = x.astype("f2").view("u4")
    same(evaluate("mul.f16x2 {d}, {0}, {0};", "u4", halves).view("f2"), x.astype("f2") * x.astype("f2"))
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0xFF800000, 0x00000001], "u4")
    same(evaluate("cvt.rn.bf16.f32 {d}, {0};", "u2", ties), [0x3F80, 0x3F82, 0x3F81, 0x7F80, 0xFF80, 0])
    pairs = evaluate("cvt.rn.bf16x2.f32 {d}, {0}, {1};", "u4", x, y)
    same(pairs, f32_to_bf16(x).astype("u4") << 16 | f32_to_bf16(y))
    pairs = evaluate("cvt.rn.f16x2.f32 {d}, {0}, {1};", "u4", x, y)
    same(pairs, x.astype("f2").view("u2").astype("u4") << 16 | y.astype("f2").view("u2"))


@pytest.mark.parametrize(
    ("instruction", "source", "result", "expected"),
    [
        ("cvt.s64.s32 {d}, {0};", "i4", "i8", lambda a: a.astype("i8")),
        ("cvt.u64.u32 {d}, {0};", "u4", "u8", lambda a: a.astype("u8")),
        ("cvt.u32.u64 {d}, {0};", "u8", "u4", lambda a: a.astype("u4")),
        ("cvt.s32.s8 {d}, {0};", "i4", "i4", lambda a: a.astype("i1").astype("i4")),
        ("cvt.u16.u8 {d}, {0};", "u2", "u2", lambda a: a & np.uint16(255)),
        ("cvt.sat.s8.s32 {d}, {0};", "i4", "i4", lambda a: np.clip(a, -128, 127)),
        ("cvt.rn.f32.s32 {d}, {0};", "i4", "f4", lambda a: a.astype("f4")),
        ("cvt.rn.f32.u64 {d}, {0};", "u8", "f4", lambda a: a.astype("f4")),
        ("cvt.rn.f16.s32 {d}, {0};", "i4", "f2", lambda a: a.astype("f8").astype("f2")),
        ("cvt.rn.f64.s64 {d}, {0};", "i8", "f8", lambda a: a.astype("f8")),
    ],
)
def test_integers_convert(instruction: str, source: str, result: str, expected: Callable[..., Array]) -> None:
    a = ints(source)
    with np.errstate(over="ignore"):
        same(evaluate(instruction, result, a), expected(a).astype(result))


def test_floats_convert_to_integers_by_their_rounding_and_clamp() -> None:
    a = np.concatenate([floats(), [0.5, 1.5, 2.5, -0.5, -2.5, 3e9, -3e9, 1e20, -1e20]]).astype("f4")
    for mode, whole in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        for kind, numpy in (("s32", "i4"), ("u32", "u4"), ("s64", "i8")):
            info = np.iinfo(numpy)
            nan = info.min if kind == "s64" else 0
            inside = [nan if math.isnan(x) else int(whole(np.clip(x, -1e25, 1e25))) for x in a]
            got = evaluate(f"cvt.{mode}.{kind}.f32 {{d}}, {{0}};", numpy, a)
            same(got, [max(info.min, min(info.max, x)) for x in inside])
        same(evaluate(f"cvt.{mode}.f32.f32 {{d}}, {{0}};", "f4", a), whole(a))
    same(evaluate("cvt.rz.f32.f64 {d}, {0};", "f4", np.full(32, 1 - 2.0**-30)), np.full(32, 1 - 2.0**-24))
    same(evaluate("cvt.rp.f32.f64 {d}, {0};", "f4", np.full(32, 1 + 2.0**-30)), np.full(32, 1 + 2.0**-23))
    same(evaluate("cvt.sat.f32.f32 {d}, {0};", "f4", a), np.where(np.isnan(a), 0, np.clip(a, 0, 1)))
    same(evaluate("cvt.f32.f16 {d}, {0};", "f4", a[:96].astype("f2")), a[:96].astype("f2").astype("f4"))
    tiny = np.full(32, 1e-40, "f4")
    same(evaluate("mul.ftz.f32 {d}, {0}, 0f3F800000;", "f4", tiny), 0 * tiny)
    same(evaluate("mul.f32 {d}, {0}, 0f3F800000;", "f4", tiny), tiny)
    same(evaluate("cvt.rna.tf32.f32 {d}, {0};", "u4", np.full(32, 0x3F801000, "u4")), np.full(32, 0x3F802000))


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_treat_nan_as_asked(name: str) -> None:
    a, b = floats(), np.resize(floats()[[1, 4, 5, 6, 0, 7, 2]], 96)
    compare = getattr(operator, name)
    nan = np.isnan(a) | np.isnan(b)
    same(evaluate(f"setp.{name}.f32 {{d}}, {{0}}, {{1}};", "bool", a, b), compare(a, b) & ~nan)
    same(evaluate(f"setp.{name}u.f32 {{d}}, {{0}}, {{1}};", "bool", a, b), compare(a, b) | nan)
    i, j = ints("i4"), np.resize(ints("i4")[:9], 96)
    same(evaluate(f"setp.{name}.s32 {{d}}, {{0}}, {{1}};", "bool", i, j), compare(i, j))
    if name not in ("eq", "ne"):
        same(evaluate(f"setp.{name}.u32 {{d}}, {{0}}, {{1}};", "bool", i, j), compare(i.view("u4"), j.view("u4")))
    same(evaluate(f"set.{name}.u32.s32 {{d}}, {{0}}, {{1}};", "u4", i, j), np.where(compare(i, j), 2**32 - 1, 0))


def test_comparisons_combine_select_and_classify() -> None:
    a, b = floats(), floats()[::-1].copy()
    nan = np.isnan(a) | np.isnan(b)
    same(evaluate("setp.nan.f32 {d}, {0}, {1};", "bool", a, b), nan)
    text = "setp.num.f32 %p2, {0}, {1};\nsetp.lt.and.f32 {d}|%p3, {0}, {1}, !%p2;"
    same(evaluate(text, "bool", a, b), np.zeros(96, bool))
    text = "setp.lt.f32 %p3|%p2, {0}, {1};\nsetp.gt.or.f32 {d}, {0}, 0f3F800000, %p2;"
    same(evaluate(text, "bool", a, b), ~(a < b) | (a > 1))
    text = "setp.lt.f32 %p2, {0}, {1};\nxor.pred %p2, %p2, 1;\nnot.pred %p2, %p2;\nselp.f32 {d}, {0}, {1}, %p2;"
    same(evaluate(text, "f4", a, b), np.where(a < b, a, b))
    chooser = ints("i4")
    same(evaluate("slct.f32.s32 {d}, {0}, {1}, {2};", "f4", a, b, chooser), np.where(chooser >= 0, a, b))
    same(evaluate("testp.infinite.f32 {d}, {0};", "bool", a), np.isinf(a))
    same(evaluate("testp.normal.f32 {d}, {0};", "bool", a), np.isfinite(a))
    same(evaluate("neg.f32 {d}, {0};", "f4", a), -a)
    same(evaluate("abs.s32 {d}, {0};", "i4", chooser), np.abs(chooser))


def test_approximations_are_close() -> None:
    x = np.concatenate([np.linspace(0.01, 20, 64), 10.0 ** RNG.uniform(-6, 6, 64)]).astype("f4")
    functions: dict[str, Callable[[Array], Array]] = {
        "rcp.approx.ftz": lambda v: 1 / v, "rsqrt.approx": lambda v: v**-0.5, "sqrt.rn": np.sqrt, "lg2.approx": np.log2,
        "sin.approx": np.sin, "cos.approx": np.cos, "tanh.approx": np.tanh,
    }
    for name, truth in functions.items():
        got = evaluate(f"{name}.f32 {{d}}, {{0}};", "f4", x)
        np.testing.assert_allclose(got, truth(x.astype("f8")), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(evaluate("ex2.approx.ftz.f32 {d}, {0};", "f4", np.log2(x)), x, rtol=3e-6)
    halves = np.log2(x[:64]).astype("f2")
    np.testing.assert_allclose(evaluate("ex2.approx.f16 {d}, {0};", "f2", halves), x[:64], rtol=5e-3)


def test_vectors_are_packed_and_unpacked() -> None:
    a, b = ints("u4"), ints("u4")[::-1].copy()
    same(evaluate("mov.b64 {d}, {{{0}, {1}}};", "u8", a, b), b.astype("u8") << np.uint64(32) | a)
    same(evaluate("mov.b32 {{%h1, {d}}}, {0};", "u2", a), a >> 16)
    same(evaluate("mov.b32 {{_, %h2}}, {0};\nmov.b32 {d}, {{%h2, 7}};", "u4", a), 7 << 16 | a >> 16)


# Control flow


def test_divergent_loops_reconverge() -> None:
    body = """
    mov.b32 %r2, 0; mov.b32 %r3, 0;
LOOP:
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    and.b32 %r4, %r2, 1;
    setp.eq.u32 %p2, %r4, 0;
    @%p2 bra EVEN;
    add.u32 %r3, %r3, 100;
    bra.uni NEXT;
EVEN:
    add.u32 %r3, %r3, %r2;
NEXT:
    add.u32 %r2, %r2, 1;
    bra.uni LOOP;
DONE:
    shfl.sync.idx.b32 %r5, %r3, 31, 31, -1;
    @!%p1 add.u32 %r3, %r3, 1000000;
    add.u32 %r3, %r3, %r5;
    mad.wide.u32 %d9, %r1, 4, %d1;
    st.global.b32 [%d9], %r3;
"""
    sums = np.array([sum(100 if i % 2 else i for i in range(n)) for n in range(32)])
    same(launch(module(body, "out"), 128)[0], sums + sums[31])


def test_switches_and_calls_of_functions_with_stacks_work_for_each_thread() -> None:
    functions = """
.func (.param .b32 result) twice (.param .b32 x, .param .align 4 .b8 pair[8])
{
    .local .align 4 .b8 stack[16];
    .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p;
    ld.param.b32 %r1, [x];
    ld.param.v2.b32 {%r2, %r3}, [pair];
    mov.b64 %d1, stack;
    cvta.local.u64 %d2, %d1;
    st.b32 [%d2+8], %r3;
    setp.gt.u32 %p, %r1, 3;
    @%p bra BIG;
    st.param.b32 [result], %r2;
    ret;
BIG:
    ld.local.b32 %r4, [%d1+8];
    add.u32 %r4, %r4, %r1;
    st.param.b32 [result], %r4;
    ret;
}
"""
    body = """
    and.b32 %r2, %r1, 3;
TABLE: .branchtargets ZERO, ONE, TWO, ONE;
    brx.idx %r2, TABLE;
ZERO:
    mov.b32 %r3, 7;
    bra.uni END;
ONE:
    {
    .param .b32 p0; .param .align 4 .b8 p1[8]; .param .b32 back;
    st.param.b32 [p0], %r1;
    st.param.v2.b32 [p1], {5, 1000};
    call.uni (back), twice, (p0, p1);
    ld.param.b32 %r3, [back];
    }
    bra.uni END;
TWO:
    mov.b32 %r3, 9;
END:
    mad.wide.u32 %d9, %r1, 4, %d1;
    st.global.b32 [%d9], %r3;
"""
    expected = [{0: 7, 2: 9}.get(t % 4, 5 if t <= 3 else 1000 + t) for t in range(32)]
    same(launch(module(body, "out", declarations=functions), 128)[0], expected)


def test_special_registers_number_threads_and_blocks_in_three_dimensions() -> None:
    text = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 4 out) {
    .reg .b32 %r<20>; .reg .b64 %d<4>;
    ld.param.b64 %d1, [out];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
    mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y;
    mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1;
    mov.u32 %r7, %ctaid.y; mov.u32 %r8, %nctaid.x; mov.u32 %r9, %ctaid.x;
    mad.lo.u32 %r7, %r7, %r8, %r9;
    mad.lo.u32 %r10, %r7, 60, %r6;
    mov.u32 %r11, %laneid; mov.u32 %r12, %warpid; mad.lo.u32 %r12, %r12, 32, %r11;
    mad.lo.u32 %r12, %r7, 1000, %r12;
    mad.wide.u32 %d2, %r10, 4, %d1;
    st.global.b32 [%d2], %r12;
    ret;
}
"""
    assemble(text)
    memory = Memory()
    out = memory.alloc(6 * 60 * 4)
    parse(text).kernel("k").launch(grid=(3, 2), block=(5, 4, 3), args=[out], memory=memory, batch_threads=128)
    same(memory.read(out, (6, 60), "u4"), np.arange(6)[:, None] * 1000 + np.arange(60))


def test_spin_loops_end_when_another_group_of_threads_answers() -> None:
    body = """
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra SET;
SPIN:
    ld.relaxed.gpu.global.b32 %r2, [%d1];
    setp.ne.u32 %p2, %r2, 5;
    @%p2 bra SPIN;
    bra.uni DONE;
SET:
    st.relaxed.gpu.global.b32 [%d1], 5;
DONE:
"""
    same(launch(module(body, "out", 64), 4)[0], [5])


# Memory


def test_vector_accesses_of_every_width_and_hint_move_bytes() -> None:
    body = """
    mad.wide.u32 %d3, %r1, 16, %d1;
    mad.wide.u32 %d4, %r1, 16, %d2;
    ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {%r2, %r3, %r4, %r5}, [%d3];
    st.global.v2.b32 [%d4], {%r2, %r3};
    ld.global.L1::evict_last.b64 %d5, [%d3+8];
    st.global.cs.b64 [%d4+8], %d5;
    ld.global.v4.b8 {%h1, %h2, %h3, %h4}, [%d3+4];
    st.global.v2.b8 [%d4+4], {%h3, %h4};
    ld.global.s8 %r6, [%d3];
    st.global.b8 [%d4+1], %r6;
    ld.volatile.global.v2.b16 {%h5, %h6}, [%d3+12];
    st.volatile.global.v2.u16 [%d4+12], {%h6, %h5};
    prefetch.global.L2 [%d3];
"""
    source = RNG.integers(0, 256, (32, 16), dtype=np.uint8)
    expected = source.copy()
    expected[:, 4:6], expected[:, 1] = source[:, 6:8], source[:, 0]
    expected[:, 12:14], expected[:, 14:16] = source[:, 14:16], source[:, 12:14]
    same(launch(module(body), source, np.zeros_like(source))[1], expected)


def test_generic_addresses_reach_shared_local_global_and_constant_memory() -> None:
    declarations = """
.const .align 4 .b32 table[4] = {10, 0x14, 30, -40};
.global .align 4 .b8 bytes[8] = {1, 2, 3};
.global .align 4 .f32 ones = 0f3F800000;
.extern .shared .align 16 .b8 dynamic[];
"""
    body = """
    .shared .align 4 .b32 word[32];
    .local .align 4 .b32 own[2];
    mov.b64 %d3, word; cvta.shared.u64 %d4, %d3;
    mov.b64 %d5, own; cvta.local.u64 %d6, %d5;
    mad.wide.u32 %d7, %r1, 4, %d4;
    st.b32 [%d7], %r1;
    st.local.b32 [own+4], 77;
    and.b32 %r2, %r1, 3;
    mov.b64 %d8, table; mad.wide.u32 %d8, %r2, 4, %d8;
    ld.const.b32 %r3, [%d8];
    cvta.to.shared.u64 %d10, %d7;
    ld.shared.b32 %r4, [%d10];
    ld.b32 %r5, [%d6+4];
    setp.lt.u32 %p1, %r1, 16;
    add.u64 %d6, %d6, 4;
    selp.b64 %d11, %d7, %d6, %p1;
    ld.b32 %r6, [%d11];
    ld.global.u8 %r7, [bytes+1];
    ld.global.b32 %f1, [ones]; cvt.rzi.u32.f32 %r8, %f1;
    mov.b64 %d12, dynamic; mad.wide.u32 %d12, %r1, 2, %d12; cvt.u16.u32 %h1, %r1;
    st.shared.b16 [%d12], %h1; ld.shared.u16 %r9, [%d12];
    isspacep.shared %p2, %d11; selp.u32 %r10, 1000, 0, %p2;
    add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6;
    add.u32 %r3, %r3, %r7; add.u32 %r3, %r3, %r8; add.u32 %r3, %r3, %r9; add.u32 %r3, %r3, %r10;
    mad.wide.u32 %d9, %r1, 4, %d1;
    st.b32 [%d9], %r3;
"""
    expected = [[10, 20, 30, -40][t % 4] + t + 77 + 2 + 1 + t + (t + 1000 if t < 16 else 77) for t in range(32)]
    kernel = module(body, "out", declarations=declarations)
    same(launch(kernel, np.zeros(32, "i4"), shared_bytes=64)[0], expected)


def test_atomics_count_every_thread_once() -> None:
    body = """
    .shared .align 8 .b32 counts[4];
    mov.b64 %d3, counts;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 st.shared.v4.b32 [counts], {0, 0, 0, 0};
    bar.sync 0;
    and.b32 %r2, %r1, 3;
    mad.wide.u32 %d4, %r2, 4, %d3;
    atom.shared.add.u32 %r3, [%d4], 1;
    atom.global.add.u32 %r4, [%d1], %r3;
    red.relaxed.gpu.global.add.f32 [%d1+4], 0f3F000000;
    red.global.max.s32 [%d1+8], %r1;
    atom.global.cas.b32 %r5, [%d1+12], 0, %r1;
    atom.global.exch.b64 %d5, [%d1+16], 9;
    atom.global.min.u64 %d6, [%d1+24], 5;
    mov.b32 %r7, 0x3C004000; red.global.add.noftz.f16x2 [%d1+32], %r7;
    atom.global.inc.u32 %r6, [%d1+36], 9;
"""
    out = launch(module(body, "out", 64), np.zeros(10, "u4"), grid=3)[0]
    assert out[0] == 3 * 4 * sum(range(16))
    assert out[1].view("f4") == 3 * 64 * 0.5
    assert out[2] == 63 and out[3] != 0 and out[4] == 9 and out[6] == 0
    np.testing.assert_array_equal(out[8:9].view("f2"), [384, 192])
    assert out[9] == 192 % 10


# Warps and blocks


def test_shuffles_follow_the_manual() -> None:
    rng = np.random.default_rng(3)
    for mode in ("up", "down", "bfly", "idx"):
        for segment, by in ((0, 1), (0, 7), (16, 3), (24, 6), (28, 2)):
            clamp = 0 if mode == "up" else 31
            body = f"""
    mad.wide.u32 %d9, %r1, 4, %d1;
    ld.global.b32 %r2, [%d9];
    shfl.sync.{mode}.b32 %r3|%p1, %r2, {by}, {segment << 8 | clamp}, -1;
    @!%p1 add.u32 %r3, %r3, 1000;
    mad.wide.u32 %d9, %r1, 4, %d2;
    st.global.b32 [%d9], %r3;
"""
            values = rng.integers(0, 999, 64).astype("u4")
            expected = []
            for t in range(64):
                lane, base = t % 32, t % 32 & segment
                limit = base | (clamp & ~segment & 31)
                source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": base | (by & ~segment)}[mode]
                inside = source >= limit if mode == "up" else source <= limit
                expected.append(int(values[t // 32 * 32 + source]) if inside else int(values[t]) + 1000)
            same(launch(module(body, block=64), values, 256)[1], expected)


def test_votes_matches_and_reductions_look_at_the_named_lanes() -> None:
    body = """
    mad.wide.u32 %d9, %r1, 4, %d1;
    ld.global.b32 %r2, [%d9];
    mad.wide.u32 %d10, %r1, 32, %d2;
    setp.gt.s32 %p1, %r2, 0;
    vote.sync.ballot.b32 %r3, %p1, -1;
    vote.sync.all.pred %p2, %p1, -1;
    vote.sync.any.pred %p3, %p1, -1;
    selp.b32 %r4, 1, 0, %p2; @%p3 or.b32 %r4, %r4, 2;
    st.global.v2.b32 [%d10], {%r3, %r4};
    match.any.sync.b32 %r5, %r2, -1;
    redux.sync.add.s32 %r6, %r2, -1;
    st.global.v2.b32 [%d10+8], {%r5, %r6};
    setp.lt.u32 %p4, %r1, 16;
    mov.b32 %r7, 0xffff; @!%p4 mov.b32 %r7, 0xffff0000;
    redux.sync.min.s32 %r8, %r2, %r7;
    activemask.b32 %r9;
    st.global.v2.b32 [%d10+16], {%r8, %r9};
    match.all.sync.b32 %r10|%p5, %r7, %r7;
    elect.sync %r11|%p6, %r7;
    @%p6 add.u32 %r11, %r11, 100;
    @%p5 add.u32 %r10, %r10, 1;
    st.global.v2.b32 [%d10+24], {%r10, %r11};
"""
    values = RNG.integers(-3, 4, 32).astype("i4")
    out = launch(module(body), values, np.zeros((32, 8), "u4"))[1]
    lane = np.arange(32)
    same(out[:, 0], [sum(1 << i for i in range(32) if values[i] > 0)] * 32)
    same(out[:, 1], [2] * 32)
    same(out[:, 2], [sum(1 << i for i in range(32) if values[i] == mine) for mine in values])
    same(out[:, 3].view("i4"), np.full(32, values.sum()))
    same(out[:, 4].view("i4"), np.where(lane < 16, values[:16].min(), values[16:].min()))
    same(out[:, 5], np.full(32, 2**32 - 1))
    same(out[:, 6], np.where(lane < 16, 0xFFFF, 0xFFFF0000) + 1)
    same(out[:, 7], np.where(lane < 16, 0, 16) + np.where(lane % 16 == 0, 100, 0))


def test_a_warp_whose_halves_arrive_apart_still_shuffles_together() -> None:
    body = """
    mov.b32 %r2, 0;
    setp.lt.u32 %p1, %r1, 5;
LOOP:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, 3;
    and.pred %p2, %p1, %p2;
    @%p2 bra LOOP;
    shfl.sync.bfly.b32 %r3, %r2, 31, 31, -1;
    mad.wide.u32 %d9, %r1, 4, %d1;
    st.global.b32 [%d9], %r3;
"""
    same(launch(module(body, "out"), 128)[0], [1] * 27 + [3] * 5)


REDUCTION = """
    .shared .align 4 .b32 buffer[128];
    mov.b64 %d3, buffer;
    mad.wide.u32 %d4, %r1, 4, %d3;
    mov.u32 %r9, %ctaid.x; mad.lo.u32 %r8, %r9, 128, %r1;
    mad.wide.u32 %d5, %r8, 4, %d1;
    ld.global.b32 %r2, [%d5];
    st.shared.b32 [%d4], %r2;
    mov.b32 %r3, 64;
LOOP:
    bar.sync 0;
    setp.ge.u32 %p1, %r1, %r3;
    @%p1 bra SKIP;
    mad.wide.u32 %d6, %r3, 4, %d4;
    ld.shared.b32 %r4, [%d6];
    ld.shared.b32 %r5, [%d4];
    add.u32 %r5, %r5, %r4;
    st.shared.b32 [%d4], %r5;
SKIP:
    shr.u32 %r3, %r3, 1;
    setp.ne.u32 %p2, %r3, 0;
    @%p2 bra LOOP;
    setp.ne.u32 %p3, %r1, 0;
    @%p3 bra END;
    mad.wide.u32 %d7, %r9, 4, %d2;
    st.global.b32 [%d7], %r5;
END:
"""


def test_a_block_reduces_through_shared_memory() -> None:
    values = RNG.integers(0, 1000, (40, 128)).astype("u4")
    same(launch(module(REDUCTION, block=128), values, 160, grid=40)[1], values.sum(1))


def test_a_missing_barrier_in_it_is_a_data_race() -> None:
    values = RNG.integers(0, 1000, (2, 128)).astype("u4")
    wrong = REDUCTION.replace("LOOP:\n    bar.sync 0;", "    bar.sync 0;\nLOOP:")
    with pytest.raises(Fault, match=r"data race: no barrier since thread number \d+ (wrote|read)") as caught:
        launch(module(wrong, block=128), values, 8, grid=2)
    assert caught.value.kernel == "k" and "shared" in caught.value.instruction


def test_named_barriers_order_the_warps_that_use_them() -> None:
    """Warp 0 produces for warp 1 (arrive and sync on barrier 1), while warps 2 and 3 meet on barrier 2."""
    body = """
    .shared .align 4 .b32 buffer[128];
    mov.b64 %d3, buffer; mad.wide.u32 %d4, %r1, 4, %d3; mad.wide.u32 %d9, %r1, 4, %d1;
    mov.b32 %r5, 0;
    setp.ge.u32 %p1, %r1, 32; @%p1 bra OTHERS;
    st.shared.b32 [%d4], %r1;
    bar.arrive 1, 64;
    bra.uni END;
OTHERS:
    setp.ge.u32 %p1, %r1, 64; @%p1 bra PAIR;
    bar.sync 1, 64;
    ld.shared.b32 %r5, [%d4+-128];
    bra.uni END;
PAIR:
    st.shared.b32 [%d4], %r1;
    bar.sync 2, 64;
    sub.u32 %r6, 191, %r1; mad.wide.u32 %d5, %r6, 4, %d3;
    ld.shared.b32 %r5, [%d5+0];
    bar.sync 2, 64;
END:
    st.global.b32 [%d9], %r5;
"""
    kernel = module(body, "out", 128)
    expected = [0] * 32 + list(range(32)) + [191 - t for t in range(64, 128)]
    same(launch(kernel, 512)[0], expected)
    apart = body.replace("bar.arrive 1", "bar.arrive 3")
    with pytest.raises(Fault, match="data race"):
        launch(module(apart.replace("bar.sync 1, 64", "bar.warp.sync -1"), "out", 128), 512)
    with pytest.raises(Fault, match="deadlock"):
        launch(module(apart, "out", 128), 512)
    with pytest.raises(Fault, match="divergent barrier: only a part of this lane's warp"):
        launch(module("and.b32 %r2, %r1, 16; setp.eq.u32 %p1, %r2, 0; @%p1 bar.sync 1, 32;", "out", 64), 4)
    with pytest.raises(Fault, match="divergent barrier: 32 threads are expected, but 64 arrived"):
        launch(module("bar.sync 1, 32;", "out", 64), 4)


# Tensor cores


SHAPES = [("m16n8k16", "bf16"), ("m16n8k16", "f16"), ("m16n8k8", "bf16"), ("m16n8k8", "tf32"), ("m16n8k4", "tf32")]


@pytest.mark.parametrize(("shape", "kind"), SHAPES)
def test_mma_fragments_multiply_matrices(shape: str, kind: str) -> None:
    k, per = int(shape.split("k")[1]), 1 if kind == "tf32" else 2
    a, b, c = (RNG.standard_normal(size).astype("f4") for size in ((16, k), (8, k), (16, 8)))
    bits, back = {
        "bf16": (f32_to_bf16, bf16_to_f32),
        "f16": (lambda x: x.astype("f2").view("u2"), lambda x: x.view("f2").astype("f4")),
        "tf32": (lambda x: x.view("u4") & 0xFFFFE000, lambda x: x.view("f4")),
    }[kind]
    half = k // (4 * per)
    loads = ""
    for i in range(2 * half):  # register i of A: row group + 8 * (i % 2), k from member * per + 4 * per * (i // 2)
        offset = (8 * (i % 2) * k + 4 * per * (i // 2)) * 4 // per
        loads += f"ld.global.b32 %r{10 + i}, [%d5+{offset}];\n"
    for i in range(half):
        loads += f"ld.global.b32 %r{20 + i}, [%d6+{4 * per * i * 4 // per}];\n"
    lists = [", ".join(f"%r{start + i}" for i in range(count)) for start, count in ((10, 2 * half), (20, half))]
    body = f"""
    shr.u32 %r2, %r1, 2; and.b32 %r3, %r1, 3;
    mul.lo.u32 %r4, %r2, {k * 4 // per}; mad.lo.u32 %r4, %r3, 4, %r4;
    cvt.u64.u32 %d7, %r4; add.u64 %d5, %d1, %d7; add.u64 %d6, %d2, %d7;
    {loads}
    mul.lo.u32 %r5, %r2, 32; mad.lo.u32 %r5, %r3, 8, %r5; cvt.u64.u32 %d8, %r5; add.u64 %d8, %d3, %d8;
    ld.global.v2.b32 {{%f1, %f2}}, [%d8];
    ld.global.v2.b32 {{%f3, %f4}}, [%d8+256];
    mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32
        {{%f1, %f2, %f3, %f4}}, {{{lists[0]}}}, {{{lists[1]}}}, {{%f1, %f2, %f3, %f4}};
    st.global.v2.b32 [%d8], {{%f1, %f2}};
    st.global.v2.b32 [%d8+256], {{%f3, %f4}};
"""
    out = launch(module(body, "a, b, c"), bits(a), bits(b), c)[2]
    np.testing.assert_allclose(out, back(bits(a)) @ back(bits(b)).T + c, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("transposed", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix_deal_rows_to_lanes(count: int, transposed: str) -> None:
    registers = ", ".join(f"%r{10 + i}" for i in range(count))
    body = f"""
    .shared .align 16 .b8 tiles[512];
    .shared .align 16 .b8 copies[512];
    mov.b64 %d3, tiles; mad.wide.u32 %d4, %r1, 16, %d3; mad.wide.u32 %d5, %r1, 16, %d1;
    mov.b64 %d6, copies; mad.wide.u32 %d7, %r1, 16, %d6;
    ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%d5];
    st.shared.v4.b32 [%d4], {{%r2, %r3, %r4, %r5}};
    st.shared.v4.b32 [%d7], {{0, 0, 0, 0}};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {{{registers}}}, [%d4];
    mad.wide.u32 %d8, %r1, {4 * count}, %d2;
    {"".join(f"st.global.b32 [%d8+{4 * i}], %r{10 + i};" for i in range(count))}
    stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%d7], {{{registers}}};
    bar.warp.sync -1;
    ld.shared.v4.b32 {{%r2, %r3, %r4, %r5}}, [%d7];
    st.global.v4.b32 [%d5], {{%r2, %r3, %r4, %r5}};
"""
    tiles = RNG.integers(0, 2**16, (4, 8, 8)).astype("u2")
    back, out = launch(module(body), tiles, 128 * count)
    seen = tiles[:count].transpose(0, 2, 1) if transposed else tiles[:count]
    same(out.view("u2").reshape(32, count, 2), seen.reshape(count, 32, 2).transpose(1, 0, 2))
    same(back, np.concatenate([tiles[:count], np.zeros_like(tiles[count:])]))


COPY = """
    .shared .align 16 .b8 stage[1024];
    mov.b64 %d3, stage; mad.wide.u32 %d4, %r1, 16, %d3; mad.wide.u32 %d5, %r1, 16, %d1; mad.wide.u32 %d6, %r1, 16, %d2;
    cp.async.cg.shared.global.L2::128B [%d4], [%d5], 16;
    cp.async.commit_group;
    cp.async.ca.shared.global [%d4+512], [%d5+512], 16, 8;
    cp.async.commit_group;
    cp.async.wait_group 1;
    bar.sync 0;
    xor.b32 %r2, %r1, 1; mad.wide.u32 %d7, %r2, 16, %d3;
    ld.shared.v4.b32 {%r3, %r4, %r5, %r6}, [%d7];
    st.global.v4.b32 [%d6], {%r3, %r4, %r5, %r6};
    cp.async.wait_all;
    ld.shared.v4.b32 {%r3, %r4, %r5, %r6}, [%d4+512];
    st.global.v4.b32 [%d6+512], {%r3, %r4, %r5, %r6};
"""


def test_asynchronous_copies_land_at_their_wait() -> None:
    source = RNG.integers(0, 2**32, (64, 4)).astype("u4")
    out = launch(module(COPY), source, np.zeros((64, 4), "u4"))[1]
    expected = source.copy()
    expected[:32] = source[:32].reshape(16, 2, 4)[:, ::-1].reshape(32, 4)
    expected[32:, 2:] = 0
    same(out, expected)


# Planted faults


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("wait_group 1", "wait_group 2", "cp.async in flight"),
        ("    cp.async.wait_all;\n", "", "cp.async in flight"),
        ("    bar.sync 0;\n", "", "data race"),
        ("[%d4+512], [%d5+512]", "[%d4+520], [%d5+512]", "misaligned"),
        ("[%d4+512], [%d5+512]", "[%d4+528], [%d5+512]", "out of bounds: 16 bytes at shared"),
        ("[%d4+512], [%d5+512]", "[%d4+512], [%d5+1024]", "out of bounds: 8 bytes at global"),
        ("[%d4+512], [%d5+512]", "[%d4], [%d5+512]", "cp.async in flight"),
    ],
)
def test_a_mistake_with_asynchronous_copies_is_found(old: str, new: str, message: str) -> None:
    assert old in COPY
    with pytest.raises(Fault, match=message):
        launch(module(COPY.replace(old, new, 1)), np.zeros((64, 4), "u4"), np.zeros((64, 4), "u4"))


ADDRESS = "mad.wide.u32 %d9, %r1, 4, %d1;\n"
SHARED = ".shared .align 4 .b32 word[32]; mov.b64 %d3, word; mad.wide.u32 %d4, %r1, 4, %d3;\n"


@pytest.mark.parametrize(
    ("body", "message", "thread"),
    [
        (ADDRESS + "ld.global.b32 %r2, [%d9+4];", "out of bounds: 4 bytes at global", 31),
        (ADDRESS + "st.global.b32 [%d9+-4], 0;", "out of bounds", 0),
        ("cvt.u64.u32 %d9, %r1; shl.b64 %d9, %d9, 2; st.global.b32 [%d9], 0;", "out of bounds", 0),
        ("mad.wide.u32 %d9, %r1, 2, %d1; ld.global.b32 %r2, [%d9];", "misaligned", 1),
        ("mad.wide.u32 %d9, %r1, 4, %d1; ld.global.v2.b32 {%r2, %r3}, [%d9];", "misaligned", 1),
        (ADDRESS + "setp.eq.u32 %p1, %r1, 9;\n@%p1 ld.global.b32 %r2, [%d9+128];", "out of bounds", 9),
        (SHARED + "st.shared.b32 [%d4+4], 0;", "out of bounds: 4 bytes at shared", 31),
        (SHARED + "ld.shared.b32 %r2, [%d4];", "never written: this shared memory", 0),
        (SHARED + "cvta.to.shared.u64 %d5, %d1;", "not in shared memory", 0),
        ("add.u32 %r2, %r3, 1;", "never written: register %r3", 0),
        ("setp.lt.u32 %p1, %r1, 7; @%p1 mov.b32 %r3, 1; add.u32 %r2, %r3, 1;", "never written: register %r3", 7),
        ("setp.lt.u32 %p1, %r1, 7; @%p1 bra A; mov.b32 %r3, 1;\nA: add.u32 %r2, %r3, 1;", "never written: register", 0),
        ("sub.u32 %r2, %r1, 3; div.u32 %r3, 1, %r2;", "integer division by zero", 3),
        ("setp.lt.u32 %p1, %r1, 4; @%p1 shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;", "divergent warp instruction", 0),
        ("setp.lt.u32 %p1, %r1, 4; @%p1 exit; shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;", "member mask is absent", 4),
        ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffff;", "member mask does not name", 16),
        (
            "setp.lt.u32 %p1, %r1, 16; @!%p1 bra E; shfl.sync.idx.b32 %r2, %r1, 20, 31, 0xffff;\nE:",
            "reads lane 20, which the member mask does not name",
            0,
        ),
        ("setp.lt.u32 %p1, %r1, 4; @%p1 bar.sync 0;", "divergent barrier", 0),
        ("setp.lt.u32 %p1, %r1, 4; @%p1 bra A; bar.sync 0; bra B;\nA: bar.sync 0;\nB:", "divergent barrier", 0),
        ("setp.lt.u32 %p1, %r1, 4; @%p1 exit; bar.sync 0;", "divergent barrier", 4),
        ("bar.sync 1, 64;", "deadlock", 0),
        (SHARED + "st.shared.b32 [%d3], %r1;", "data race: another thread writes the same", None),
        (SHARED + "st.shared.b32 [%d4], 1; setp.eq.u32 %p1, %r1, 3; @%p1 ld.shared.b32 %r2, [%d3+16];", "data race", 3),
        (
            SHARED + "st.shared.b32 [%d4], %r1; bar.sync 0; ld.shared.b32 %r2, [%d3+8]; st.shared.b32 [%d4], %r1;",
            "data race: no barrier since thread number .* read",
            2,
        ),
        (SHARED + "st.shared.b32 [%d4], 1; setp.eq.u32 %p1, %r1, 3; @%p1 red.shared.add.u32 [%d3], 1;", "data race", 3),
        (ADDRESS + "st.global.b32 [%d9], 1; ld.global.nc.b32 %r2, [%d9];", "non-coherent load", 0),
        (ADDRESS + "ld.global.nc.b32 %r2, [%d9]; st.global.b32 [%d9], 1;", "non-coherent load", 0),
        ("mov.b64 %d9, a; st.b32 [%d9], 1;", "read-only", 0),
        ("trap;", "trap", 0),
        ("FOREVER: bra FOREVER;", "no end after", 0),
    ],
)
def test_a_planted_fault_is_found_and_placed(body: str, message: str, thread: int | None) -> None:
    kernel = module(body, "a", check="mov.b64 %d9, a" not in body)
    with pytest.raises(Fault, match=message) as caught:
        launch(kernel, np.zeros(32, "u4"), max_steps=10000)
    fault = caught.value
    assert fault.kernel == "k" and fault.instruction in " ".join(body.split()) and fault.block == (0, 0, 0)
    assert thread is None or fault.thread == (thread, 0, 0)
    assert all(part in str(fault) for part in ("k, line", fault.instruction, str(fault.thread)))


BLOCKS = """mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 32, %r1;
    mad.wide.u32 %d9, %r3, 4, %d1; mad.wide.u32 %d8, %r1, 4, %d1;
"""


@pytest.mark.parametrize("batch_threads", [32, 8192])
@pytest.mark.parametrize(
    "body",
    [
        BLOCKS + "st.global.b32 [%d8], %r2;",
        BLOCKS + "st.global.b32 [%d9], %r2; ld.global.b32 %r4, [%d8];",
        BLOCKS + "ld.global.b32 %r4, [%d8]; add.u32 %r4, %r4, %r2; add.u32 %r4, %r4, 1; st.global.b32 [%d9], %r4;",
        BLOCKS + "atom.global.add.u32 %r4, [%d1], 1; ld.global.b32 %r4, [%d1];",
    ],
)
def test_blocks_may_not_race_for_global_memory_unless_told_so(body: str, batch_threads: int) -> None:
    kernel = module(body, "a")
    with pytest.raises(Fault, match="race between blocks") as caught:
        launch(kernel, np.zeros(128, "u4"), grid=4, batch_threads=batch_threads)
    assert caught.value.block > (0, 0, 0) or batch_threads == 8192
    launch(kernel, np.zeros(128, "u4"), grid=4, batch_threads=batch_threads, cross_block=[0])


def test_blocks_may_write_the_same_value_and_read_the_same_input() -> None:
    kernel = module(BLOCKS + "ld.global.b32 %r4, [%d8+128]; st.global.b32 [%d8], %r4;", "a")
    same(launch(kernel, np.full(64, 5, "u4"), grid=4)[0], [5] * 64)


def test_buffers_of_the_previous_kernel_wait_for_griddepcontrol() -> None:
    body = ADDRESS + """griddepcontrol.launch_dependents; mad.wide.u32 %d8, %r1, 4, %d2;
    {}ld.global.b32 %r2, [%d9];
    {}st.global.b32 [%d8], %r2;"""
    wait = "griddepcontrol.wait;\n"
    for early, late, pending in ((wait, "", [0, 1]), ("", wait, [1]), ("", "", [])):
        launch(module(body.format(early, late)), np.zeros(32, "u4"), 128, pending=pending)
    for early, late, buffer, text in (("", wait, 0, "ld.global"), ("", "", 1, "st.global")):
        with pytest.raises(Fault, match=r"before griddepcontrol\.wait") as caught:
            launch(module(body.format(early, late)), np.zeros(32, "u4"), 128, pending=[buffer])
        assert caught.value.instruction.startswith(text)
    memory = Memory()
    a, out = memory.alloc(np.zeros(32, "u4")), memory.alloc(128)
    report = module(body.format(wait, "")).kernel("k").launch(args=[a, out], memory=memory, pending=[(a, 64)])
    assert report.waited and report.launched_dependents


def test_one_thread_may_wait_for_the_previous_kernel_before_a_barrier() -> None:
    body = ADDRESS + """setp.eq.u32 %p1, %r1, 0; @%p1 griddepcontrol.wait;
    bar.sync 0;
    ld.global.b32 %r2, [%d9];"""
    launch(module(body, "a"), np.zeros(32, "u4"), pending=[0])
    with pytest.raises(Fault, match=r"before griddepcontrol\.wait"):
        launch(module(body.replace("bar.sync 0;", ""), "a"), np.zeros(32, "u4"), pending=[0])


def test_a_copy_that_is_all_zeros_reads_no_memory() -> None:
    body = """
    .shared .align 16 .b8 stage[512];
    mov.b64 %d3, stage; mad.wide.u32 %d4, %r1, 16, %d3; mad.wide.u32 %d5, %r1, 16, %d1; mad.wide.u32 %d6, %r1, 16, %d2;
    setp.lt.u32 %p1, %r1, 20; selp.b32 %r2, 16, 0, %p1; setp.eq.u32 %p2, %r1, 20; @%p2 mov.b32 %r2, 4;
    cp.async.cg.shared.global [%d4], [%d5], 16, %r2;
    cp.async.wait_all;
    ld.shared.v4.b32 {%r3, %r4, %r5, %r6}, [%d4];
    st.global.v4.b32 [%d6], {%r3, %r4, %r5, %r6};
"""
    source = np.arange(1, 82, dtype="u4")
    same(launch(module(body), source, 512)[1], np.resize([*source, *[0] * 47], 128))


@pytest.mark.parametrize(
    "body",
    [
        "frobnicate.b32 %r2, %r1;",
        "add.rn.sat.s32 %r2, %r1, %r1;",
        "ld.global.L1::surprise.b32 %r2, [%d1];",
        "mov.u32 %r2, %clock;",
        "add.s32 %r2, %h1, %r1;",
        "add.s32 %r2, %r1;",
        "cvt.f16.f32 %h1, %f1;",
        "mov.b32 %r2, 0x123456789;",
        "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%d1, {%r1}];",
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1, %r2}, {%r1, %r2}, {%r1, %r2}, {%r1, %r2};",
    ],
)
def test_what_is_not_modelled_is_refused_and_never_skipped(body: str) -> None:
    with pytest.raises(Unsupported) as caught:
        module(body, "a", check=False).kernel("k")
    assert body.rstrip(";")[:12] in str(caught.value)


def test_what_is_not_modelled_does_not_stand_in_the_way_of_other_kernels() -> None:
    with pytest.raises(Unsupported, match="maxclusterrank"):
        module("", "a", directives=".maxclusterrank 8").kernel("k")


# Clusters of blocks


CLUSTER = """
    .shared .align 16 .b32 word[128];
    mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %ctaid.x;
    mov.b64 %d3, word; mad.wide.u32 %d4, %r1, 16, %d3; cvt.u32.u64 %r4, %d4;
    mad.lo.u32 %r5, %r3, 128, %r1;
    mad.wide.u32 %d9, %r5, 4, %d1;
    mad.lo.u32 %r6, %r3, 1000, %r1;
    add.u32 %r7, %r2, 1; and.b32 %r7, %r7, 3;
"""
MEET = "    barrier.cluster.arrive.aligned;\n    barrier.cluster.wait.aligned;\n"
WRITE = "    st.shared.b32 [%d4], %r6;\n"
REMOTE = "    { .reg .b32 remote; mapa.shared::cluster.u32 remote, %r4, %r7; ld.shared::cluster.b32 %r8, [remote]; }\n"
STORE = "    st.global.b32 [%d9], %r8;\n"
FOUR = ".explicitcluster .reqnctapercluster 4, 1, 1"


def clustered(body: str, grid: int = 4, check: bool = True, **options: Any) -> Array:
    """Run a body of 32 threads a block in clusters of four blocks; row b of the result is what block b left in `out`."""
    kernel = module(CLUSTER + body, "out", directives=FOUR, check=check)
    return launch(kernel, np.zeros((grid, 128), "u4"), grid=grid, **options)[0][:, :32]


@pytest.mark.parametrize("batch_threads", [1, 256, 8192])
def test_blocks_of_a_cluster_read_and_write_the_shared_memory_of_each_other(batch_threads: int) -> None:
    block, lane = np.arange(12)[:, None], np.arange(32)
    neighbour = block // 4 * 4 + (block + 1) % 4
    body = WRITE + MEET + REMOTE + STORE + MEET
    same(clustered(body, 12, batch_threads=batch_threads), neighbour * 1000 + lane)
    push = """
    mapa.shared::cluster.u64 %d5, %d4, %r7;
    mov.b64 %d6, {%r6, %r5};
    st.shared::cluster.b64 [%d5], %d6;
    st.shared::cluster.v2.b32 [%d5+8], {%r3, %r3};
"""
    pull = "    ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%d4]; add.u32 %r8, %r10, %r13;\n"
    before = block // 4 * 4 + (block + 3) % 4
    same(clustered(MEET + push + MEET + pull + STORE, 12), before * 1001 + lane)
    wide = pull.replace("ld.shared.v4.b32", "ld.shared::cluster.v4.u32").replace("[%d4]", "[%d5]")
    same(clustered(MEET + push + MEET + wide + STORE + MEET, 12), block * 1001 + lane)
    floats = "mov.b32 %f1, %r6; st.shared::cluster.f32 [%r9], %f1; ld.shared::cluster.f32 %f2, [%r9]; mov.b32 %r8, %f2;"
    body = MEET + "mapa.shared::cluster.u32 %r9, %r4, %r7;" + floats + STORE + MEET
    same(clustered(body, 12), block * 1000 + lane)


def test_a_block_reaches_its_own_memory_as_a_part_of_the_cluster_and_generic_addresses_reach_the_others() -> None:
    block, lane = np.arange(4)[:, None], np.arange(32)
    same(clustered(WRITE + "    ld.shared::cluster.b32 %r8, [%r4];\n" + STORE), block * 1000 + lane)
    generic = "    cvta.shared.u64 %d5, %d4; mapa.u64 %d6, %d5, %r7; ld.b32 %r8, [%d6];\n"
    same(clustered(WRITE + MEET + generic + STORE + MEET), (block + 1) % 4 * 1000 + lane)


def test_atomics_on_the_shared_memory_of_another_block_count_every_thread() -> None:
    body = """
    st.shared.b32 [%d4], 0;
    {0}
    mov.b32 %r7, 2; mapa.shared::cluster.u32 %r9, %r4, %r7;
    and.b32 %r9, %r9, 0xfffffe0f;
    red.relaxed.cluster.shared::cluster.add.u32 [%r9], 1;
    {0}
    ld.shared.b32 %r8, [%d4];
"""
    out = clustered(body.replace("{0}", MEET) + STORE)
    assert out[2].sum() == 128 and not out[[0, 1, 3]].any()


def test_special_registers_number_blocks_in_clusters_of_three_dimensions() -> None:
    names = ["%cluster_ctarank", "%cluster_nctarank"]
    names += [f"{name}.{axis}" for axis in "xyz" for name in ("%cluster_ctaid", "%cluster_nctaid", "%clusterid", "%nclusterid")]
    body = """
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %ctaid.z;
    mad.lo.u32 %r3, %r4, 6, %r3; mad.lo.u32 %r2, %r3, 4, %r2;
    mad.wide.u32 %d9, %r2, 64, %d1; setp.ne.u32 %p1, %r1, 0; @%p1 exit;
"""
    body += "".join(f"mov.u32 %r9, {name}; st.global.b32 [%d9+{4 * at}], %r9;\n" for at, name in enumerate(names))
    kernel = module(body, "out", directives=".reqnctapercluster 2, 3, 1")
    out = launch(kernel, np.zeros((2, 6, 4, 16), "u4"), grid=(4, 6, 2), batch_threads=500)[0]
    z, y, x = np.indices((2, 6, 4))
    for at, value in enumerate([y % 3 * 2 + x % 2, 6, x % 2, 2, x // 2, 2, y % 3, 3, y // 3, 2, 0 * z, 1, z, 2]):
        same(out[..., at], np.broadcast_to(value, (2, 6, 4)))
    alone = launch(module(body, "out"), np.zeros((2, 6, 4, 16), "u4"), grid=(4, 6, 2))[0]
    same(alone[1, 5, 3], [0, 1, 0, 1, 3, 4, 0, 1, 5, 6, 0, 1, 1, 2, 0, 0])


def test_a_grid_that_is_no_multiple_of_its_clusters_is_refused() -> None:
    kernel = module("", "a", directives=FOUR)
    launch(kernel, 4, grid=8)
    for grid in (2, 6):
        with pytest.raises(ValueError, match="need a grid of whole clusters"):
            launch(kernel, 4, grid=grid)
    with pytest.raises(ValueError, match="requires clusters of"):
        launch(kernel, 4, grid=4, cluster=2)
    explicit = module("", "a", directives=".explicitcluster")
    with pytest.raises(ValueError, match="need cluster="):
        launch(explicit, 4, grid=4)
    launch(explicit, 4, grid=4, cluster=2)
    with pytest.raises(ValueError, match="at most 16 blocks"):
        launch(explicit, 4, grid=32, cluster=32)


def test_the_halves_of_a_cluster_barrier_may_have_other_work_between_them() -> None:
    body = WRITE + "    barrier.cluster.arrive.release;\n    mad.wide.u32 %d5, %r1, 16, %d3; ld.shared.b32 %r10, [%d5];\n"
    body += "    barrier.cluster.wait.acquire;\n" + REMOTE + STORE + MEET
    same(clustered(body), (np.arange(4)[:, None] + 1) % 4 * 1000 + np.arange(32))


def test_a_cluster_barrier_does_not_wait_for_threads_that_have_exited() -> None:
    body = "    setp.eq.u32 %p1, %r2, 3; @%p1 exit; setp.gt.u32 %p2, %r1, 8; @%p2 exit;\n"
    body += "    barrier.cluster.arrive; barrier.cluster.wait;\n    mov.b32 %r8, 7;\n" + STORE
    same(clustered(body), np.where((np.arange(4)[:, None] < 3) & (np.arange(32) < 9), 7, 0))
    late = "    setp.ne.u32 %p1, %r2, 3; @%p1 bra STAY; bar.sync 0; exit;\nSTAY:\n    mov.b32 %r8, 7;\n" + MEET + STORE
    same(clustered(late), np.where(np.arange(4)[:, None] < 3, np.full(32, 7), 0))


def test_what_one_block_learns_at_a_barrier_it_may_pass_on_at_the_next_one() -> None:
    """Both warps write and meet; then warp 0 arrives without a release, and warp 1 alone tells the cluster."""
    body = CLUSTER + """
    st.shared.b32 [%d4], %r6;
    bar.sync 0;
    setp.lt.u32 %p1, %r1, 32;
    @%p1 barrier.cluster.arrive.relaxed.aligned; @!%p1 barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.aligned;
""" + REMOTE + MEET
    body = body.replace("word[128]", "word[256]")
    launch(module(body, "out", 64, directives=FOUR), 4, grid=4)
    with pytest.raises(Fault, match="data race: no barrier since thread number 0 of the block of rank 1 wrote"):
        launch(module(body.replace("bar.sync 0;", ""), "out", 64, directives=FOUR), 4, grid=4)


WAIT = "    barrier.cluster.wait.aligned;\n"
RELAXED = MEET.replace("arrive", "arrive.relaxed")
FENCE = "    fence.release.sync_restrict::shared::cta.cluster;\n"
PUSH = "    mapa.shared::cluster.u32 %r9, %r4, %r7; st.shared::cluster.b32 [%r9], %r6;\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (MEET + WRITE + REMOTE + MEET, "data race: no barrier since thread number 0 of the block of rank 1 wrote"),
        (RELAXED + WRITE + RELAXED + REMOTE + MEET, "data race: no barrier since thread number 0 of the block of rank 1 wrote"),
        (WRITE + FENCE + RELAXED + REMOTE + FENCE + RELAXED, None),
        (FENCE + WRITE + RELAXED + REMOTE + MEET, "data race: no barrier since thread number 0 of the block of rank 1 wrote"),
        (WRITE + FENCE + RELAXED + FENCE + REMOTE + RELAXED, "this block exits, and no cluster barrier ensures"),
        (MEET + WRITE + "bar.sync 0;" + REMOTE + MEET, "data race: no barrier since .* of rank 1 wrote"),
        (MEET + "barrier.cluster.arrive;" + WRITE + "barrier.cluster.wait;" + REMOTE + MEET, "data race: .* of rank 1 wrote"),
        (WRITE + MEET + REMOTE + WRITE + MEET, "data race: no barrier since thread number 0 of the block of rank 3 read"),
        (WRITE + MEET + REMOTE + "bar.sync 0;" + WRITE + MEET, "data race: no barrier since .* of rank 3 read"),
        (WRITE + MEET + PUSH + MEET, None),
        (MEET + PUSH + WRITE + MEET, "data race: no barrier since .* of rank 3 wrote"),
        (MEET + PUSH + "mov.b32 %r7, 3;" + PUSH + MEET, "data race"),
        (MEET + "mov.b32 %r7, 3;" + PUSH + MEET, "data race: another thread writes the same shared byte"),
        (MEET + PUSH + "bar.sync 0; ld.shared.b32 %r8, [%d4];" + MEET, "data race: no barrier since .* of rank 3 wrote"),
        (MEET + REMOTE + MEET, "never written: this shared memory"),
        (MEET + "add.u32 %r4, %r4, 64;" + PUSH + MEET, "out of bounds: 4 bytes at shared"),
        (MEET + "add.u32 %r4, %r4, 2;" + PUSH + MEET, "misaligned"),
        (MEET + PUSH.replace(".b32 [%r9], %r6", ".v2.b32 [%r9+4], {%r6, %r6}") + MEET, "misaligned"),
        (MEET + "mov.b32 %r7, 4;" + PUSH + MEET, "mapa: no block of rank 4 in a cluster of 4"),
        (MEET + PUSH.replace("st.", "mapa.shared::cluster.u32 %r9, %r9, %r7; st.") + MEET, "no address in this block's shared"),
        (MEET + "mov.b32 %r9, 0x06000400; st.shared::cluster.b32 [%r9], 0;" + MEET, "no block has the shared::cluster address"),
        (MEET + PUSH.replace("st.shared::cluster", "st.shared") + MEET, "out of bounds: 4 bytes at shared"),
        (PUSH + MEET, "remote access: the block of rank 1 may not have started"),
        (RELAXED + PUSH + MEET, None),
        (WRITE + MEET + REMOTE, "this block exits, and no cluster barrier ensures"),
        (WRITE + MEET + REMOTE + RELAXED, "this block exits, and no cluster barrier ensures"),
        (WRITE + MEET + "setp.eq.u32 %p1, %r2, 1; @%p1 exit;" + REMOTE, "remote access: the block of rank 1 has exited"),
        (MEET + WAIT, "wait without an arrive"),
        (WAIT, "wait without an arrive"),
        ("barrier.cluster.arrive; barrier.cluster.arrive;" + WAIT, "arrive twice"),
        ("setp.lt.u32 %p1, %r1, 9; @%p1 barrier.cluster.arrive;" + WAIT, "wait without an arrive"),
        ("setp.lt.u32 %p1, %r1, 9; @%p1 barrier.cluster.arrive.aligned;", "deadlock, divergent barrier"),
        ("setp.lt.u32 %p1, %r1, 9; @%p1 exit;" + MEET, "divergent barrier: .aligned, but this lane of the warp has exited"),
        ("setp.eq.u32 %p1, %r2, 2; @%p1 bar.sync 1, 64;" + MEET, "deadlock, divergent barrier"),
        ("setp.ne.u32 %p1, %r2, 2; @%p1 bra A; bar.sync 1, 64; exit;\nA:" + MEET, "deadlock, divergent barrier"),
    ],
)
def test_a_mistake_with_clusters_is_found_or_there_is_none(body: str, message: str | None) -> None:
    if message is None:
        clustered(body, 8)
        return
    for batch_threads in (128, 8192):
        with pytest.raises(Fault, match=message) as caught:
            clustered(body, 8, batch_threads=batch_threads)
        assert caught.value.kernel == "k" and caught.value.block[0] < 4


def test_a_reader_from_another_block_is_not_forgotten_for_those_of_the_block_itself() -> None:
    own = "    mad.wide.u32 %d5, %r1, 16, %d3; ld.shared.b32 %r10, [%d3]; ld.shared.b32 %r10, [%d3+16];\n"
    body = WRITE + MEET + REMOTE + own + "bar.sync 0;" + WRITE + MEET
    with pytest.raises(Fault, match=r"data race: no barrier since .* of rank 3 read"):
        clustered(body)
    clustered(WRITE + MEET + REMOTE + own + MEET + WRITE)


def test_a_thread_that_waited_for_the_previous_kernel_may_tell_the_cluster() -> None:
    body = "    setp.eq.u32 %p1, %r2, 1; @%p1 griddepcontrol.wait;\n" + MEET + STORE.replace("%r8", "%r6")
    clustered(body, pending=[0])
    for wrong in (body.replace(MEET, ""), body.replace(MEET, RELAXED)):
        with pytest.raises(Fault, match=r"before griddepcontrol\.wait"):
            clustered(wrong, pending=[0])


# Code from MLIR


def compiled(function: str, globals_: str = "") -> str:
    """The PTX of one kernel `k`, written in MLIR."""
    text = f"module attributes {{gpu.container_module}} {{ gpu.module @m {{ {globals_}\n{function} }} }}"
    pipeline = """builtin.module(nvvm-attach-target{chip=sm_90a features=+ptx86 O=3},
        gpu.module(convert-scf-to-cf,convert-gpu-to-nvvm,canonicalize,cse,convert-to-llvm,reconcile-unrealized-casts),
        gpu-module-to-binary{format=isa})"""
    with ir.Context():
        top = ir.Module.parse(text)
        PassManager.parse(pipeline).run(top.operation)
        (binary,) = [op for op in top.body.operations if op.operation.name == "gpu.binary"]
        return gpu.ObjectAttr(binary.attributes["objects"][0]).object.decode()


KERNEL = "attributes {gpu.kernel, nvvm.kernel, nvvm.reqntid = array<i32: 128, 1, 1>}"
INDEX = """
    %t = nvvm.read.ptx.sreg.tid.x : i32
    %b = nvvm.read.ptx.sreg.ctaid.x : i32
    %n = arith.constant 128 : i32
    %bn = arith.muli %b, %n : i32
    %i32 = arith.addi %bn, %t : i32
    %i = arith.extui %i32 : i32 to i64
"""


@pytest.mark.parametrize(
    ("op", "truth", "low", "high"),
    [
        ("sin", np.sin, -1e6, 1e6),
        ("sin", np.sin, -10, 10),
        ("cos", np.cos, -1e6, 1e6),
        ("exp", np.exp, -80, 80),
        ("log", np.log, 1e-6, 1e6),
        ("tanh", np.tanh, -8, 8),
        ("exp2", np.exp2, -30, 30),
        ("rsqrt", lambda x: x**-0.5, 1e-3, 1e6),
    ],
)
def test_math_through_libdevice_is_accurate(op: str, truth: Callable[[Array], Array], low: float, high: float) -> None:
    text = compiled(f"""
  llvm.func @k(%x: !llvm.ptr<1>, %y: !llvm.ptr<1>) {KERNEL} {{ {INDEX}
    %p = llvm.getelementptr %x[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
    %q = llvm.getelementptr %y[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
    %v = llvm.load %p : !llvm.ptr<1> -> f32
    %r = math.{op} %v : f32
    llvm.store %r, %q : f32, !llvm.ptr<1>
    llvm.return }}""")
    x = RNG.uniform(low, high, 4096).astype("f4")
    if op == "sin":
        assert "__cudart_i2opi" in text and ".local" in text  # the path of large arguments is there
        x[:2] = [1e5, -1e6]
    y = launch(parse(text), x, np.zeros_like(x), grid=32)[1]
    np.testing.assert_allclose(y, truth(x.astype("f8")), rtol=1e-6, atol=2e-7)


def test_a_tiled_matmul_from_mlir_is_right_and_quick() -> None:
    """64x64 times 64x64 in 16x16 tiles through shared memory: 4096 threads, loops, barriers."""
    text = compiled(
        """
  llvm.func @k(%a: !llvm.ptr<1>, %b: !llvm.ptr<1>, %c: !llvm.ptr<1>)
      attributes {gpu.kernel, nvvm.kernel, nvvm.reqntid = array<i32: 16, 16, 1>} {
    %tx = nvvm.read.ptx.sreg.tid.x : i32
    %ty = nvvm.read.ptx.sreg.tid.y : i32
    %bx = nvvm.read.ptx.sreg.ctaid.x : i32
    %by = nvvm.read.ptx.sreg.ctaid.y : i32
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c16 = arith.constant 16 : i32
    %n = arith.constant 1024 : i32
    %zero = arith.constant 0.0 : f32
    %r0 = arith.muli %by, %c16 : i32
    %row = arith.addi %r0, %ty : i32
    %q0 = arith.muli %bx, %c16 : i32
    %col = arith.addi %q0, %tx : i32
    %l0 = arith.muli %ty, %c16 : i32
    %mine = arith.addi %l0, %tx : i32
    %sa = llvm.mlir.addressof @sa : !llvm.ptr<3>
    %sb = llvm.mlir.addressof @sb : !llvm.ptr<3>
    %pa = llvm.getelementptr %sa[%mine] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f32
    %pb = llvm.getelementptr %sb[%mine] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f32
    %rk = arith.muli %row, %n : i32
    %sum = scf.for %k = %c0 to %n step %c16 iter_args(%acc = %zero) -> f32 : i32 {
      %ak = arith.addi %k, %tx : i32
      %ai = arith.addi %rk, %ak : i32
      %ga = llvm.getelementptr %a[%ai] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
      %bk = arith.addi %k, %ty : i32
      %c64 = arith.constant 64 : i32
      %br = arith.muli %bk, %c64 : i32
      %bi = arith.addi %br, %col : i32
      %gb = llvm.getelementptr %b[%bi] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
      %va = llvm.load %ga invariant : !llvm.ptr<1> -> f32
      %vb = llvm.load %gb invariant : !llvm.ptr<1> -> f32
      nvvm.barrier
      llvm.store %va, %pa : f32, !llvm.ptr<3>
      llvm.store %vb, %pb : f32, !llvm.ptr<3>
      nvvm.barrier
      %part = scf.for %j = %c0 to %c16 step %c1 iter_args(%in = %acc) -> f32 : i32 {
        %xi = arith.addi %l0, %j : i32
        %yr = arith.muli %j, %c16 : i32
        %yi = arith.addi %yr, %tx : i32
        %xp = llvm.getelementptr %sa[%xi] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f32
        %yp = llvm.getelementptr %sb[%yi] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, f32
        %x = llvm.load %xp : !llvm.ptr<3> -> f32
        %y = llvm.load %yp : !llvm.ptr<3> -> f32
        %out = math.fma %x, %y, %in : f32
        scf.yield %out : f32
      }
      scf.yield %part : f32
    }
    %c64 = arith.constant 64 : i32
    %o0 = arith.muli %row, %c64 : i32
    %oi = arith.addi %o0, %col : i32
    %gc = llvm.getelementptr %c[%oi] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
    llvm.store %sum, %gc : f32, !llvm.ptr<1>
    llvm.return }""",
        """llvm.mlir.global internal @sa() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<256 x f32>
  llvm.mlir.global internal @sb() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<256 x f32>""",
    )
    kernel = parse(text).kernel("k")
    a, b = RNG.standard_normal((64, 1024)).astype("f4"), RNG.standard_normal((1024, 64)).astype("f4")
    memory = Memory()
    pointers = [memory.alloc(a), memory.alloc(b), memory.alloc(64 * 64 * 4)]
    start = time.perf_counter()
    kernel.launch(grid=(4, 4), args=pointers, memory=memory)
    assert time.perf_counter() - start < 10  # about one second
    np.testing.assert_allclose(memory.read(pointers[2], (64, 64), "f4"), a @ b, rtol=1e-3, atol=1e-4)
    wrong = text.replace("bar.sync", "// bar.sync", 1)
    with pytest.raises(Fault, match="data race"):
        parse(wrong).kernel("k").launch(grid=(4, 4), args=pointers, memory=memory)


def test_half_precision_arguments_vectors_and_inline_assembly_from_mlir() -> None:
    text = compiled(f"""
  llvm.func @k(%x: !llvm.ptr<1>, %y: !llvm.ptr<1>, %s: f32, %h: bf16, %g: f16, %m: i8) {KERNEL} {{ {INDEX}
    %p = llvm.getelementptr %x[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, vector<4xbf16>
    %q = llvm.getelementptr %y[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, vector<4xf32>
    %v = llvm.load %p {{alignment = 8 : i64}} : !llvm.ptr<1> -> vector<4xbf16>
    %w = arith.extf %v : vector<4xbf16> to vector<4xf32>
    %hs = arith.extf %h : bf16 to f32
    %gs = arith.extf %g : f16 to f32
    %mi = arith.sitofp %m : i8 to f32
    %a = arith.addf %hs, %gs : f32
    %a2 = arith.addf %a, %mi : f32
    %a3 = llvm.inline_asm "{{ .reg .f32 t; add.f32 t, $1, $2; mov.b32 $0, t; }}", "=f,f,f" %a2, %s : (f32, f32) -> f32
    %sv = vector.broadcast %a3 : f32 to vector<4xf32>
    %r = arith.mulf %w, %sv : vector<4xf32>
    llvm.store %r, %q {{alignment = 16 : i64}} : vector<4xf32>, !llvm.ptr<1>
    llvm.return }}""")
    memory = Memory()
    x = RNG.standard_normal((256, 4)).astype("f4")
    a, b = memory.alloc(f32_to_bf16(x)), memory.alloc(x.nbytes)
    arguments = [a, b, 2.5, f32_to_bf16(np.array(1.5, "f4")), np.float16(0.25), -3]
    parse(text).kernel("k").launch(grid=2, args=arguments, memory=memory)
    same(memory.read(b, x.shape, "f4"), memory.read(a, x.shape, "bf16") * np.float32(1.25))


def test_arguments_that_do_not_fit_are_refused() -> None:
    kernel, memory = module("", "a, b").kernel("k"), Memory()
    for arguments in ([1], [1, 2, 3], [1, np.float32(1)], [1, "2"]):
        with pytest.raises(TypeError, match="need"):
            kernel.launch(args=arguments, memory=memory)
    with pytest.raises(ValueError, match="requires blocks of"):
        kernel.launch(args=[1, 2], memory=memory, block=64)
    with pytest.raises(KeyError):
        module("").kernel("other")
    assert np.isnan(memory.read(memory.alloc(64), 16, "f4")).all()
    with pytest.raises(ValueError, match="need"):
        memory.read(memory.alloc(64), 17, "f4")
