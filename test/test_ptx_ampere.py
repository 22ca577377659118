"""cp.async and ldmatrix in the PTX interpreter, alone and as a ring that feeds mma.sync, with one planted mistake each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .ptx import Fault, Unsupported, bf16_to_f32, f32_to_bf16, parse
from .test_ptx_interpreter import compiled, launch, module, same

RNG = np.random.default_rng(13)
Array = Any


# cp.async


@pytest.mark.parametrize("space", ["shared", "shared::cta"])
@pytest.mark.parametrize("prefetch", ["", ".L2::64B", ".L2::128B", ".L2::256B"])
@pytest.mark.parametrize(("cache", "nbytes"), [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
def test_a_copy_of_every_size_moves_as_many_bytes(cache: str, nbytes: int, prefetch: str, space: str) -> None:
    body = f"""
    .shared .align 16 .b8 stage[{32 * nbytes}];
    mov.b32 %r2, stage; mad.lo.u32 %r2, %r1, {nbytes}, %r2;
    mad.wide.u32 %d3, %r1, {nbytes}, %d1; mad.wide.u32 %d4, %r1, {nbytes}, %d2;
    cp.async.{cache}.{space}.global{prefetch} [%r2], [%d3], {nbytes};
    cp.async.wait_all;
    {"".join(f"ld.shared.b32 %r3, [%r2+{at}]; st.global.b32 [%d4+{at}], %r3;" for at in range(0, nbytes, 4))}
"""
    source = RNG.integers(0, 2**32, 8 * nbytes).astype("u4")
    same(launch(module(body), source, 32 * nbytes)[1], source)


@pytest.mark.parametrize("nbytes", [4, 8, 16])
def test_bytes_past_the_size_of_the_source_are_zero_and_not_read(nbytes: int) -> None:
    """Lane i copies 31 - i bytes or all; memory ends where lane 31 begins, which copies none."""
    body = f"""
    .shared .align 16 .b8 stage[{32 * nbytes}];
    mov.b32 %r2, stage; mad.lo.u32 %r2, %r1, {nbytes}, %r2;
    mad.wide.u32 %d3, %r1, 32, %d1; mad.wide.u32 %d4, %r1, {nbytes}, %d2;
    sub.u32 %r4, 31, %r1; min.u32 %r4, %r4, {nbytes};
    cp.async.ca.shared.global [%r2], [%d3], {nbytes}, %r4;
    cp.async.wait_all;
    {"".join(f"ld.shared.b32 %r3, [%r2+{at}]; st.global.b32 [%d4+{at}], %r3;" for at in range(0, nbytes, 4))}
"""
    source = RNG.integers(1, 256, (31, 32)).astype("u1")
    out = launch(module(body), source, 32 * nbytes)[1].view("u1").reshape(32, nbytes)
    there = np.arange(nbytes) < np.minimum(31 - np.arange(32), nbytes)[:, None]
    same(out, np.where(there, np.r_[source, source[:1]][:, :nbytes], 0))
    mistakes = {
        f", {nbytes}, %r4;": (f", {nbytes};", f"out of bounds: {nbytes} bytes at global"),
        f"min.u32 %r4, %r4, {nbytes};": ("", f"cp.async of {nbytes} bytes from more than that"),
        "sub.u32 %r4, 31": ("sub.u32 %r4, 32", "out of bounds: 1 bytes at global"),
    }
    for old, (new, message) in mistakes.items():
        with pytest.raises(Fault, match=message):
            launch(module(body.replace(old, new)), source, 32 * nbytes)


ALONE = """
    .shared .align 16 .b8 stage[512];
    mov.b32 %r2, stage; mad.lo.u32 %r2, %r1, 16, %r2; mad.wide.u32 %d3, %r1, 16, %d1; mad.wide.u32 %d4, %r1, 16, %d2;
    cp.async.cg.shared.global [%r2], [%d3], 16;
    cp.async.commit_group;
    cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.b32 %r3, [%r2];
    st.global.b32 [%d4], %r3;
"""
WAIT = "    cp.async.wait_group 1;\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (WAIT, WAIT + "    cp.async.commit_group;\n", None),
        (WAIT, "    cp.async.wait_all;\n", None),
        (WAIT, "", "cp.async in flight: the bytes are not there"),
        (WAIT, "    cp.async.wait_group 2;\n", "cp.async in flight: the bytes are not there"),
        (WAIT, "    st.shared.b32 [%r2+4], 0;\n" + WAIT, "cp.async in flight: the bytes are not there"),
        (WAIT, "    red.shared.add.u32 [%r2+4], 1;\n" + WAIT, "cp.async in flight: the bytes are not there"),
        (WAIT, "    st.global.b32 [%d3+12], 0;\n" + WAIT, "cp.async in flight: it may not have read this global memory"),
        (WAIT, "    red.global.add.u32 [%d1], 0;\n" + WAIT, "cp.async in flight: it may not have read this global memory"),
        (WAIT, "    st.global.b32 [%d1+512], 0;\n" + WAIT, None),
        (WAIT, WAIT + "    st.global.b32 [%d3+12], 0;\n", None),
        ("    st.global.b32 [%d4], %r3;\n", "    cp.async.cg.shared.global [%r2], [%d3], 16;\n", "this thread exits"),
        ("[%d3], 16;\n", "[%d3], 16, 0;\n" + WAIT + "    st.global.b32 [%d3+12], 0;\n", None),
        ("[%d3], 16;", "[%d3+8], 16;", "misaligned: this needs a multiple of 16, but got global"),
        ("[%r2], [%d3]", "[%r2+8], [%d3]", "misaligned: this needs a multiple of 16, but got shared"),
        ("[%r2], [%d3]", "[%r2+16], [%d3]", "out of bounds: 16 bytes at shared"),
        ("cg.shared.global [%r2]", "ca.shared.global [stage]", "data race: another thread writes"),
        ("    ld.shared.b32 %r3, [%r2];", "    xor.b32 %r2, %r2, 16; ld.shared.b32 %r3, [%r2];", "data race: no barrier"),
        ("    ld.shared.b32 %r3, [%r2];", "    bar.warp.sync -1; xor.b32 %r2, %r2, 16; ld.shared.b32 %r3, [%r2];", None),
    ],
)
def test_a_copy_is_in_flight_until_its_thread_has_waited(old: str, new: str, message: str | None) -> None:
    assert old in ALONE
    kernel = module(ALONE.replace(old, new, 1), "a, out")
    arguments = np.arange(132, dtype="u4"), np.zeros(128, "u4")
    if message is None:
        launch(kernel, *arguments)
        return
    with pytest.raises(Fault, match=message):
        launch(kernel, *arguments)


def test_groups_of_each_thread_are_its_own() -> None:
    """Lanes of the second half have committed one group more, so that the same wait leaves their copy in flight."""
    body = ALONE.replace(WAIT, "    setp.ge.u32 %p1, %r1, 16; @%p1 cp.async.commit_group;\n" + WAIT)
    launch(module(body), np.zeros(128, "u4"), 512)
    late = body.replace("    cp.async.commit_group;\n    cp", "    cp", 1)
    with pytest.raises(Fault, match=r"cp\.async in flight") as caught:
        launch(module(late), np.zeros(128, "u4"), 512)
    assert caught.value.thread == (0, 0, 0)


@pytest.mark.parametrize(
    "copy",
    [
        "cp.async.cg.shared.global [%r2], [%d1], 8;",
        "cp.async.ca.shared.global [%r2], [%d1], 12;",
        "cp.async.ca.shared.global [%r2], [%d1], 16, %p1;",
        "cp.async.ca.shared.global.L2::cache_hint [%r2], [%d1], 16, %d2;",
        "cp.async.ca.global.shared::cluster [%d1], [%r2], 16;",
        "cp.async.mbarrier.arrive.shared.b64 [%r2];",
        "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {%r3}, [%r2];",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r3}, [%r2];",
    ],
)
def test_other_forms_are_refused(copy: str) -> None:
    with pytest.raises(Unsupported):
        module(copy, check=False).kernel("k")


# ldmatrix

LOAD = """
    .shared .align 16 .b8 tiles[1024];
    mov.b32 %r2, tiles; mad.lo.u32 %r3, %r1, 32, %r2; mad.wide.u32 %d3, %r1, 16, %d1; mad.wide.u32 %d4, %r1, 16, %d2;
    cp.async.cg.shared.global [%r3], [%d3], 16;
    cp.async.wait_all;
    bar.warp.sync -1;
    sub.u32 %r4, 31, %r1; mad.lo.u32 %r5, %r4, 32, %r2;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r9}, [%r5];
    st.global.v4.b32 [%d4], {%r6, %r7, %r8, %r9};
DONE:
"""


@pytest.mark.parametrize("transposed", [False, True])
def test_lanes_point_to_rows_in_any_order(transposed: bool) -> None:
    """Lane l points to row 31 - l of all, and gets what the manual says: elements 2 (l % 4) and the next of row l / 4."""
    tiles = RNG.integers(0, 2**16, (32, 8)).astype("u2")
    out = launch(module(LOAD.replace("x4.shared", "x4.trans.shared") if transposed else LOAD), tiles, 512)[1]
    got = out.view("u2").reshape(32, 4, 2)
    for lane in range(32):
        for matrix in range(4):
            for half in range(2):
                row, column = lane // 4, 2 * (lane % 4) + half
                row, column = (column, row) if transposed else (row, column)
                assert got[lane, matrix, half] == tiles[31 - (8 * matrix + row), column]


def test_lanes_past_the_rows_that_are_loaded_may_point_anywhere() -> None:
    body = LOAD.replace("x4.shared", "x1.shared").replace("{%r6, %r7, %r8, %r9}, [%r5]", "{%r6}, [%r5]")
    body = body.replace("    ldmatrix", "    setp.ge.u32 %p1, %r1, 8; @%p1 mov.b32 %r5, 1;\n    ldmatrix")
    body = body.replace("st.global.v4.b32 [%d4], {%r6, %r7, %r8, %r9}", "st.global.b32 [%d4], %r6")
    tiles = RNG.integers(0, 2**16, (32, 8)).astype("u2")
    same(launch(module(body), tiles, 512)[1].view("u2").reshape(8, 4, 8)[:, :, :2].reshape(8, 8), tiles[31:23:-1])


@pytest.mark.parametrize(
    ("old", "new", "message", "thread"),
    [
        ("    ldmatrix", "    add.u32 %r5, %r5, 8;\n    ldmatrix", "misaligned: this needs a multiple of 16", 0),
        ("    ldmatrix", "    setp.eq.u32 %p1, %r1, 9; @%p1 add.u32 %r5, %r5, 16;\n    ldmatrix", "never written", 9),
        ("    ldmatrix", "    setp.eq.u32 %p1, %r1, 9; @%p1 add.u32 %r5, %r5, 1024;\n    ldmatrix", "out of bounds", 9),
        ("    ldmatrix", "    setp.ge.u32 %p1, %r1, 16; @%p1 bra DONE;\n    ldmatrix", "divergent warp instruction", None),
        ("    ldmatrix", "    setp.eq.u32 %p1, %r1, 31; @%p1 exit;\n    ldmatrix", "member mask is absent", None),
        ("    bar.warp.sync -1;\n", "", "data race: no barrier since thread number 31 wrote", 0),
        ("    cp.async.wait_all;\n", "", "cp.async in flight: the bytes are not there", 0),
        ("    st.global", "    st.shared.b32 [%r3], 0;\n    st.global", "data race: no barrier since thread number 31 read", 0),
        ("    st.global", "    bar.warp.sync -1; st.shared.b32 [%r3], 0;\n    st.global", None, None),
    ],
)
def test_a_mistake_with_ldmatrix_is_found(old: str, new: str, message: str | None, thread: int | None) -> None:
    assert old in LOAD
    kernel = module(LOAD.replace(old, new, 1))
    if message is None:
        launch(kernel, np.zeros((32, 8), "u2"), 512)
        return
    with pytest.raises(Fault, match=message) as caught:
        launch(kernel, np.zeros((32, 8), "u2"), 512)
    assert thread is None or caught.value.thread == (thread, 0, 0)


# A ring of three stages that feeds mma.sync


M, N, K, PITCH = 29, 16, 139, 144
"""Rows and depth in use; a row of `PITCH` elements has NaNs past its depth."""

FETCH = """
    setp.lt.s32 %p4, %r8, 5;
    max.s32 %r11, %r6, 0; min.s32 %r11, %r11, 16;
    selp.b32 %r12, %r11, 0, %p2; selp.b32 %r13, %r11, 0, %p3;
    @%p4 cp.async.cg.shared.global [%r9], [%d4], 16, %r12;
    @%p4 cp.async.cg.shared.global [%r9+1024], [%d5], 16, %r13;
    WEIGHT
    cp.async.commit_group;
    add.u32 %r8, %r8, 1; sub.s32 %r6, %r6, 64; add.u64 %d4, %d4, 64; add.u64 %d5, %d5, 64;
    add.u32 %r9, %r9, 3072; setp.eq.u32 %p5, %r9, %r17; @%p5 mov.b32 %r9, %r2;
"""
ROWS = """@%p4 cp.async.cg.shared.global [%r9+2048], [%d6], 16, %r11; add.u64 %d6, %d6, 64;"""
COLUMNS = """setp.gt.s32 %p6, %r7, 0; selp.b32 %r14, 16, 0, %p6; sub.s32 %r7, %r7, 32;
    @%p4 cp.async.ca.shared.global.L2::128B [%r9+2048], [%d6], 16, %r14; add.u64 %d6, %d6, 1024;"""


def ring(along: str) -> str:
    """c = a w^T of bf16, two warps of 16 rows each, in steps of 32 along the depth: the weight is (N, K), or (K, N)
    where `along` is "n".
    """
    weight = ROWS if along == "k" else COLUMNS
    start = f"shr.u32 %r15, %r1, 2; mad.wide.u32 %d6, %r15, {2 * PITCH}, %d2; and.b32 %r15, %r1, 3;"
    rows = "and.b32 %r19, %r18, 7; shr.u32 %r20, %r18, 4; mad.lo.u32 %r19, %r20, 8, %r19; mul.lo.u32 %r19, %r19, 64;"
    rows += "shr.u32 %r20, %r18, 3; and.b32 %r20, %r20, 1; mad.lo.u32 %r19, %r20, 16, %r19;"
    trans, half = "", 32
    if along == "n":
        start = "shr.u32 %r15, %r1, 1; mad.wide.u32 %d6, %r15, 32, %d2; and.b32 %r15, %r1, 1;"
        rows = "and.b32 %r19, %r18, 15; mul.lo.u32 %r19, %r19, 32; shr.u32 %r20, %r18, 4; mad.lo.u32 %r19, %r20, 16, %r19;"
        trans, half = ".trans", 512
    products = ""
    for i in range(2):
        products += f"""
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r22, %r23, %r24, %r25}}, [%r21+{32 * i}];
    add.u32 %r30, %r10, %r19;
    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r26, %r27, %r28, %r29}}, [%r30+{2048 + half * i}];
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
        {{%f1, %f2, %f3, %f4}}, {{%r22, %r23, %r24, %r25}}, {{%r26, %r27}}, {{%f1, %f2, %f3, %f4}};
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
        {{%f5, %f6, %f7, %f8}}, {{%r22, %r23, %r24, %r25}}, {{%r28, %r29}}, {{%f5, %f6, %f7, %f8}};"""
    fetch = FETCH.replace("WEIGHT", weight)
    return f"""
    .shared .align 16 .b8 ring[9216];
    mov.b32 %r2, ring; add.u32 %r17, %r2, 9216; mad.lo.u32 %r2, %r1, 16, %r2; mad.lo.u32 %r17, %r1, 16, %r17;
    {start} mad.wide.u32 %d6, %r15, 16, %d6; shr.u32 %r15, %r1, 1; sub.s32 %r7, {K}, %r15;
    shr.u32 %r3, %r1, 2; and.b32 %r4, %r1, 3;
    mul.lo.u32 %r5, %r4, 16; sub.s32 %r6, {2 * K}, %r5; setp.lt.u32 %p2, %r3, {M}; setp.lt.u32 %p3, %r3, {M - 16};
    mad.wide.u32 %d4, %r3, {2 * PITCH}, %d1; mad.wide.u32 %d4, %r4, 16, %d4; add.u64 %d5, %d4, {32 * PITCH};
    and.b32 %r18, %r1, 31; {rows}
    and.b32 %r31, %r18, 15; shr.u32 %r32, %r1, 5; mad.lo.u32 %r31, %r32, 16, %r31; mul.lo.u32 %r31, %r31, 64;
    shr.u32 %r20, %r18, 4; mad.lo.u32 %r31, %r20, 16, %r31;
    {" ".join(f"mov.b32 %f{i}, 0f00000000;" for i in range(1, 9))}
    mov.b32 %r8, 0; mov.b32 %r9, %r2; mov.b32 %r10, ring; mov.b32 %r33, 0;
{fetch}{fetch}
LOOP:
    cp.async.wait_group 1;
    bar.sync 0;
{fetch}
    add.u32 %r21, %r10, %r31;{products}
    add.u32 %r10, %r10, 3072; mov.b32 %r34, ring; add.u32 %r34, %r34, 9216;
    setp.eq.u32 %p5, %r10, %r34; @%p5 mov.b32 %r10, ring;
    add.u32 %r33, %r33, 1; setp.lt.u32 %p5, %r33, 5; @%p5 bra LOOP;
    shr.u32 %r20, %r18, 2; mad.lo.u32 %r20, %r32, 16, %r20; mad.wide.u32 %d7, %r20, 64, %d3; mad.wide.u32 %d7, %r4, 8, %d7;
    st.global.v2.b32 [%d7], {{%f1, %f2}}; st.global.v2.b32 [%d7+512], {{%f3, %f4}};
    st.global.v2.b32 [%d7+32], {{%f5, %f6}}; st.global.v2.b32 [%d7+544], {{%f7, %f8}};
"""


def multiply(along: str, changes: tuple[tuple[str, str], ...] = ()) -> tuple[Array, Array]:
    """What the ring computes of whole numbers, and what is right."""
    body = ring(along)
    for old, new in changes:
        assert old in body
        body = body.replace(old, new)
    a, w = (f32_to_bf16(RNG.integers(-4, 5, (rows, PITCH)).astype("f4")) for rows in (M, N))
    a[:, K:] = w[:, K:] = 0xFFFF
    given = w if along == "k" else np.ascontiguousarray(w[:, :K].T)
    got = launch(module(body, "a, w, c", block=64), a, given, np.zeros((32, N), "f4"))[2]
    want = np.zeros((32, N), "f4")
    want[:M] = bf16_to_f32(a[:, :K]) @ bf16_to_f32(w[:, :K]).T
    return got, want


@pytest.mark.parametrize("along", ["k", "n"])
def test_a_ring_multiplies_what_it_copies(along: str) -> None:
    same(*multiply(along))


BARRIER, LOOP_WAIT = "    bar.sync 0;\n", "    cp.async.wait_group 1;\n"


@pytest.mark.parametrize("along", ["k", "n"])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LOOP_WAIT, "", "cp.async in flight: the bytes are not there"),
        (LOOP_WAIT, "    cp.async.wait_group 2;\n", "cp.async in flight: the bytes are not there"),
        (BARRIER, "", "data race: no barrier since thread number"),
        (BARRIER, "    bar.warp.sync -1;\n", "data race: no barrier since thread number"),
        (LOOP_WAIT + BARRIER, BARRIER + LOOP_WAIT, "data race: no barrier since thread number"),
        ("    cp.async.commit_group;\n", "", "cp.async in flight: the bytes are not there"),
        (", 16, %r13;", ", 16;", "out of bounds: 16 bytes at global"),
        ("9216;", "6144;", "cp.async in flight: the bytes are not there"),  # two stages
        ("setp.lt.s32 %p4, %r8, 5;", "setp.lt.s32 %p4, %r8, 6;", "this thread exits"),
    ],
)
def test_a_mistake_with_a_ring_of_copies_is_found(along: str, old: str, new: str, message: str) -> None:
    with pytest.raises(Fault, match=message):
        multiply(along, ((old, new),))


@pytest.mark.parametrize(
    ("along", "old", "new"),
    [
        ("k", "max.s32 %r11, %r6, 0; min.s32 %r11, %r11, 16;", "setp.gt.s32 %p6, %r6, 0; selp.b32 %r11, 16, 0, %p6;"),
        ("n", "x4.trans", "x4"),
        ("k", "x4.shared.b16 {%r26", "x4.trans.shared.b16 {%r26"),
        ("k", "{%r26, %r27}", "{%r26, %r28}"),
        ("n", "{%r22, %r23, %r24, %r25}, {%r28", "{%r22, %r24, %r23, %r25}, {%r28"),
    ],
)
def test_wrong_sizes_and_fragments_give_wrong_products(along: str, old: str, new: str) -> None:
    got, want = multiply(along, ((old, new),))
    assert not np.array_equal(got, want)


# Code from MLIR


STAGE = "llvm.mlir.global internal @stage() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<512 x i8>"
KERNEL = """
  llvm.func @k(%a: !llvm.ptr<1>, %out: !llvm.ptr<1>)
      attributes {gpu.kernel, nvvm.kernel, nvvm.reqntid = array<i32: 32, 1, 1>} {
    %t = nvvm.read.ptx.sreg.tid.x : i32
    %stage = llvm.mlir.addressof @stage : !llvm.ptr<3>
    %sixteen = llvm.mlir.constant(16 : i32) : i32
    %from = llvm.mul %t, %sixteen : i32
    %to = llvm.getelementptr %stage[%from] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %source = llvm.getelementptr %a[%from] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %eight = llvm.mlir.constant(8 : i32) : i32
    %odd = llvm.and %t, %eight : i32
    %size = llvm.sub %sixteen, %odd : i32
    nvvm.cp.async.shared.global %to, %source, 16, cache = KIND : !llvm.ptr<3>, !llvm.ptr<1>
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    nvvm.barrier0
    %r = nvvm.ldmatrix %to {num = 4 : i32, layout = #nvvm.mma_layout<LAYOUT>,
        shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>}
        : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
    %place = llvm.getelementptr %out[%from] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    llvm.store %r, %place : !llvm.struct<(i32, i32, i32, i32)>, !llvm.ptr<1>
    llvm.return }
"""


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("kind", ["ca", "cg"])
def test_what_llvm_prints_for_copies_and_ldmatrix_runs(kind: str, sized: bool, layout: str) -> None:
    text = KERNEL.replace("KIND", kind).replace("LAYOUT", layout)
    if sized:  # lanes 8 to 15 and 24 to 31 copy half a row
        text = text.replace(f"{kind} : !llvm.ptr<3>, !llvm.ptr<1>", f"{kind}, %size : !llvm.ptr<3>, !llvm.ptr<1>, i32")
    ptx = compiled(text, STAGE)
    assert f"cp.async.{kind}.shared.global" in ptx and f"x4{'.trans' if layout == 'col' else ''}.shared.b16" in ptx
    tiles = RNG.integers(0, 2**16, (4, 8, 8)).astype("u2")
    seen = tiles.copy()
    if sized:
        seen[1::2, :, 4:] = 0
    seen = seen.transpose(0, 2, 1) if layout == "col" else seen
    out = launch(parse(ptx), tiles, 512)[1]
    same(out.view("u2").reshape(32, 4, 2), seen.reshape(4, 32, 2).transpose(1, 0, 2))
