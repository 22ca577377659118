"""mbarrier, bulk copies and wgmma in the PTX interpreter, against NumPy and with one planted mistake each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .ptx import Fault, Memory, Module, TensorMap, Unsupported, bf16_to_f32, f32_to_bf16, parse
from .test_ptx_interpreter import assemble

RNG = np.random.default_rng(11)
Array = Any
REGISTERS = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<60>; .reg .b64 %d<40>; .reg .f32 %f<140>;"


def module(body: str, parameters: str, block: int = 128, shared: str = "", cluster: int = 1, check: bool = True) -> Module:
    """Kernel `k`: `%r1` is the thread, `%p1` whether it is thread 0, `%d1..` the parameters (`*name`: a tensor map)."""
    names = [name.strip() for name in parameters.split(",")]
    maps = ".param .align 64 .b8 {}[128]"
    listed = ", ".join(maps.format(name[1:]) if name[0] == "*" else f".param .b64 {name}" for name in names)
    loads = ""
    for place, name in enumerate(names, 1):
        if name[0] == "*":
            loads += f"mov.b64 %d{place}, {name[1:]}; cvta.param.u64 %d{place}, %d{place};\n"
        else:
            loads += f"ld.param.b64 %d{place}, [{name}];\n"
    clusters = f".reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""
    text = f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k({listed}) .reqntid {block}, 1, 1 {clusters}
{{ {REGISTERS}
{shared}
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
{loads}{body}
ret;
}}
"""
    if check:
        assemble(text)
    return parse(text)


Argument = int | Array | Callable[[Memory], TensorMap]


def launch(kernel: Module, *arguments: Argument, grid: int = 1, **options: Any) -> list[Array]:
    """Run `k` on arrays (copied in), sizes (poisoned) and tensor maps over copies of arrays. Returns the buffers after it."""
    memory = Memory()
    pointers: list[Any] = [each(memory) if callable(each) else memory.alloc(each) for each in arguments]
    kernel.kernel("k").launch(grid=grid, args=pointers, memory=memory, **options)
    results = []
    for pointer, given in zip(pointers, arguments, strict=True):
        if isinstance(pointer, TensorMap):
            results.append(memory.read(pointer.address, given.shape, given.dtype))  # type: ignore[union-attr]
        elif isinstance(given, int):
            results.append(memory.read(pointer, given // 4, "u4"))
        else:
            results.append(memory.read(pointer, given.shape, given.dtype))  # type: ignore[union-attr]
    return results


class Mapped:
    """An array to be copied in, described by a tensor map; the last axis of the array is the innermost dimension."""

    def __init__(self, array: Array, box: tuple[int, ...], swizzle: int = 0, kind: str = "") -> None:
        self.shape, self.dtype, self.array, self.box, self.swizzle = array.shape, array.dtype, array, box, swizzle
        self.kind = kind or {"u2": "bf16", "u1": "u8", "f4": "f32"}[array.dtype.str[1:]]

    def __call__(self, memory: Memory) -> TensorMap:
        pointer = memory.alloc(self.array)
        strides = tuple(reversed(self.array.strides[:-1]))
        return TensorMap(pointer, self.kind, tuple(reversed(self.shape)), strides, self.box, self.swizzle)


def boxed(array: Array, origin: tuple[int, ...], box: tuple[int, ...]) -> Array:
    """The box at `origin`, innermost coordinate first, zero outside; element by element."""
    result = np.zeros(tuple(reversed(box)), array.dtype)
    for place in np.ndindex(result.shape):
        at = tuple(i + o for i, o in zip(place, reversed(origin), strict=True))
        if all(0 <= i < size for i, size in zip(at, array.shape, strict=True)):
            result[place] = array[at]
    return result


def swizzled(data: Array, span: int) -> Array:
    """The image in shared memory of bytes that start at a multiple of 1024: chunks of 16 bytes change places in a row."""
    chunks = data.reshape(-1, 16)
    image = np.empty_like(chunks)
    for number, chunk in enumerate(chunks):
        row = number // 8
        image[number ^ row % (max(span, 16) // 16)] = chunk
    return image.ravel()


START = """
@!%p1 bra START;
mbarrier.init.shared.b64 [full], 1;
fence.mbarrier_init.release.cluster;
"""
WAIT = """
START:
bar.sync 0;
WAIT:
mbarrier.try_wait.parity.shared.b64 %p2, [full], 0;
@!%p2 bra WAIT;
"""
FULL = ".shared .align 8 .b64 full;"


# Bulk copies


def tensor_load(rank: int, nbytes: int, coordinates: tuple[int, ...], extra: str = "") -> str:
    """One box to `tile`, which all threads then copy to `out`."""
    return f"""{START}
mbarrier.arrive.expect_tx.shared.b64 _, [full], {nbytes};
mov.b64 %d9, 0x12F0000000000000;
cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{extra}
    [tile], [%d1, {{{", ".join(map(str, coordinates))}}}], [full]{", %d9" if extra else ""};
{WAIT}
mov.b64 %d5, tile;
mad.wide.u32 %d5, %r1, 16, %d5; mad.wide.u32 %d6, %r1, 16, %d2;
mov.u32 %r2, %r1;
COPY:
setp.ge.u32 %p3, %r2, {nbytes // 16};
@%p3 bra DONE;
ld.shared.v4.b32 {{%r3, %r4, %r5, %r6}}, [%d5];
st.global.v4.b32 [%d6], {{%r3, %r4, %r5, %r6}};
add.u64 %d5, %d5, 2048; add.u64 %d6, %d6, 2048; add.u32 %r2, %r2, 128;
bra COPY;
DONE:
"""


@pytest.mark.parametrize(
    ("shape", "box", "origin", "swizzle"),
    [
        ((40, 64), (64, 32), (0, 4), 128),
        ((40, 72), (64, 32), (-8, 20), 128),
        ((40, 40), (32, 16), (16, -5), 64),
        ((40, 40), (16, 24), (0, 8), 32),
        ((40, 40), (24, 8), (32, 2), 0),
        ((200,), (64,), (152,), 0),
        ((3, 20, 64), (64, 8, 2), (0, 16, 2), 128),
        ((3, 4, 5, 8), (8, 3, 2, 2), (0, 3, 1, -1), 0),
        ((2, 3, 4, 5, 16), (16, 2, 3, 2, 2), (-8, 1, 2, 2, 1), 32),
    ],
)
def test_a_box_of_a_tensor_arrives_swizzled_with_zeros_outside(
    shape: tuple[int, ...], box: tuple[int, ...], origin: tuple[int, ...], swizzle: int
) -> None:
    array = RNG.integers(1, 2**16, shape).astype("u2")
    nbytes = 2 * math.prod(box)
    body = tensor_load(len(shape), nbytes, origin, ".L2::cache_hint" if swizzle == 32 else "")
    kernel = module(body, "*source, out", shared=f".shared .align 1024 .b8 tile[{nbytes}]; {FULL}")
    out = launch(kernel, Mapped(array, box, swizzle), nbytes)[1]
    np.testing.assert_array_equal(out.view("u1"), swizzled(boxed(array, origin, box).view("u1"), swizzle))


LOAD = tensor_load(2, 2048, (0, 0))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@!%p2 bra WAIT;", "", "bulk copy in flight"),
        ("[full], 0;", "[full], 1;", "bulk copy in flight"),
        ("[full], 2048;", "[full], 2032;", r"deadlock, mbarrier: .* 128 at `mbarrier.try_wait.* tx-count of -16"),
        ("[full], 2048;", "[full], 4096;", r"phase 0, with 0 of 1 arrivals pending and a tx-count of 2048"),
        ("[full], 1;", "[full], 2;", r"with 1 of 2 arrivals pending and a tx-count of 2048 \(2048 bytes in flight\)"),
        ("fence.mbarrier_init.release.cluster;", "", "no fence.mbarrier_init or fence.proxy.async"),
        ("bar.sync 0;", "", "no barrier since thread number 0 executed mbarrier.init"),
        ("mbarrier.init.shared.b64 [full], 1;", "", "mbarrier.init has not been executed"),
        ("[tile], [%d1", "[tile+64], [%d1", "misaligned: a bulk copy needs a multiple of 128"),
        ("[tile], [%d1", "[tile+128], [%d1", "out of bounds: 16 bytes at shared"),
        ("[tile], [%d1", "[tile], [%d2", "there is no tensor map at address"),
        ("{0, 0}", "{-7, 0}", "misaligned: a bulk copy needs a multiple of 16 as innermost coordinate"),
        ("[full];", "[full]; st.shared.b32 [tile], 0;", "bulk copy in flight"),
        ("[full];", "[full]; ld.shared.b32 %r9, [full];", "here is an mbarrier"),
        ("[full];", "[full]; mbarrier.inval.shared.b64 [full];", "inval while threads wait or copies are in flight"),
        ("START:", "@%p1 ret; START:", "divergent barrier"),
        ("bar.sync 0;", "bar.sync 0; ret;", "exits while a bulk copy into it is in flight"),
        ("setp.ge.u32 %p3", "@%p1 st.shared.b32 [tile+16], 0; setp.ge.u32 %p3", "data race"),
        ("WAIT:\n", "@!%p1 bra DONE; WAIT:\n", None),
        ("WAIT:\n", "@!%p1 bra AFTER; WAIT:\n", "bulk copy in flight"),
    ],
)
def test_a_mistake_with_a_bulk_load_is_found(old: str, new: str, message: str | None) -> None:
    assert old in LOAD
    body = LOAD.replace(old, new, 1).replace("mov.b64 %d5, tile;", "AFTER: mov.b64 %d5, tile;")
    kernel = module(body, "*source, out", shared=f".shared .align 1024 .b8 tile[2048]; {FULL}", check="[%d2" not in new)
    arguments = Mapped(np.ones((16, 64), "u2"), (64, 16), 128), 2048
    if message is None:
        launch(kernel, *arguments)
        return
    with pytest.raises(Fault, match=message) as caught:
        launch(kernel, *arguments)
    assert caught.value.kernel == "k" and caught.value.line


def test_a_lane_that_waits_alone_learns_alone() -> None:
    """The others see by a flag that thread 0 has waited, or at a barrier: only that orders them."""
    body = LOAD.replace("WAIT:\n", "@!%p1 bra POLL; WAIT:\n").replace(
        "mov.b64 %d5, tile;",
        """st.relaxed.cta.global.b32 [%d2+2048], 1;
POLL:
ld.relaxed.cta.global.b32 %r9, [%d2+2048]; setp.ne.u32 %p2, %r9, 1; @%p2 bra POLL;
bar.warp.sync -1; bar.sync 0;
mov.b64 %d5, tile;""",
    )
    shared = f".shared .align 1024 .b8 tile[2048]; {FULL}"
    arguments = Mapped(np.ones((16, 64), "u2"), (64, 16), 128), np.zeros(516, "u4")
    for right in (body, body.replace("bar.warp.sync -1; ", ""), body.replace(" bar.sync 0;\nmov", "\n@!%p1 bra DONE;\nmov")):
        launch(module(right, "*source, out", shared=shared), *arguments)
    for wrong in (body.replace(" bar.sync 0;\nmov", "\nmov"), body.replace("bar.warp.sync -1; bar.sync 0;\n", "")):
        with pytest.raises(Fault, match="data race: no barrier since a bulk copy to this block wrote") as caught:
            launch(module(wrong, "*source, out", shared=shared), *arguments)
        assert caught.value.thread == ((32 if "warp" in wrong else 1), 0, 0)


STORE = """
mov.b64 %d5, tile;
mad.wide.u32 %d5, %r1, 16, %d5;
shr.u32 %r2, %r1, 3; shl.b32 %r3, %r1, 4; xor.b32 %r4, %r3, %r2;
st.shared.v4.b32 [%d5], {%r1, %r2, %r3, %r4};
fence.proxy.async.shared::cta;
bar.sync 0;
@!%p1 bra OTHERS;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d1, {8, 12}], [tile];
cp.async.bulk.global.shared::cta.bulk_group [%d2], [tile], 512;
cp.async.bulk.commit_group;
cp.async.bulk.global.shared::cta.bulk_group [%d2+512], [tile+1024], 64;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 1;
st.shared.b32 [tile+528], 0;
cp.async.bulk.wait_group 0;
OTHERS:
bar.sync 0;
"""


def test_bulk_stores_write_what_exists_of_a_box_and_lines() -> None:
    lane = np.arange(128, dtype="u4")
    words = np.stack([lane, lane >> 3, lane << 4, lane << 4 ^ lane >> 3], axis=1)
    before = RNG.integers(0, 2**16, (20, 56)).astype("u2")
    kernel = module(STORE, "*target, out", shared=".shared .align 1024 .b8 tile[2048];")
    target, out = launch(kernel, Mapped(before, (64, 16), 128), 576)
    tile = swizzled(words.view("u1"), 128).view("u2").reshape(16, 64)  # its own inverse
    before[12:, 8:] = tile[:8, :48]
    np.testing.assert_array_equal(target, before)
    np.testing.assert_array_equal(out, np.concatenate([words.ravel()[:128], words.ravel()[256:272]]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fence.proxy.async.shared::cta;", "", "no fence.proxy.async by thread number 0 since"),
        ("fence.proxy.async.shared::cta;", "fence.proxy.async.global;", "no fence.proxy.async by thread number 0 since"),
        ("fence.proxy.async.shared::cta;", "@%p1 fence.proxy.async;", "no fence.proxy.async by thread number 1 since"),
        ("bar.sync 0;", "", "never written|data race"),
        ("wait_group.read 1", "wait_group.read 2", "may still be reading this shared memory"),
        ("cp.async.bulk.wait_group 0;", "", "has not waited until its bulk stores have read"),
        ("[%d1, {8, 12}], [tile]", "[%d1, {8, 12}], [tile+16]", "misaligned"),
        ("{8, 12}", "{4, 12}", "misaligned: a bulk copy needs a multiple of 16 as innermost coordinate"),
        ("{8, 12}", "{8, -4}", "a bulk store to the negative coordinates"),
        ("[%d2+512], [tile+1024], 64", "[%d2+512], [tile+1024], 80", "out of bounds: 80 bytes at global"),
        ("[%d2+512], [tile+1024], 64", "[%d2+520], [tile+1024], 32", "misaligned"),
        ("OTHERS:\n", "OTHERS: @%p1 bra E; st.shared.b32 [%d5], 0;\nE:", "data race|may still be reading"),
    ],
)
def test_a_mistake_with_a_bulk_store_is_found(old: str, new: str, message: str) -> None:
    assert old in STORE
    kernel = module(STORE.replace(old, new, 1), "*target, out", shared=".shared .align 1024 .b8 tile[2048];")
    with pytest.raises(Fault, match=message):
        launch(kernel, Mapped(np.zeros((20, 56), "u2"), (64, 16), 128), 576)


def test_a_bulk_store_waits_for_the_previous_kernel_like_any_other() -> None:
    def body(early: str, late: str) -> str:
        return f"""@!%p1 bra E; st.shared.b32 [tile], 1; st.shared.b32 [tile+4], 2; st.shared.b64 [tile+8], 3;
            fence.proxy.async; {early}
            cp.async.bulk.global.shared::cta.bulk_group [%d1], [tile], 16; {late} cp.async.bulk.commit_group;
            cp.async.bulk.wait_group 0;\nE:"""

    wait, shared = "griddepcontrol.wait;", ".shared .align 16 .b8 tile[16];"
    memory = Memory()
    out = memory.alloc(16)
    module(body(wait, ""), "out", shared=shared).kernel("k").launch(args=[out], memory=memory, pending=[out])
    np.testing.assert_array_equal(memory.read(out, 4, "u4"), [1, 2, 3, 0])
    with pytest.raises(Fault, match=r"before griddepcontrol\.wait"):
        module(body("", wait), "out", shared=shared).kernel("k").launch(args=[out], memory=memory, pending=[out])


MULTICAST = """
.reg .b32 rank; mov.u32 rank, %cluster_ctarank;
@!%p1 bra START;
mbarrier.init.shared.b64 [full], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [full], 4096;
START:
barrier.cluster.arrive; barrier.cluster.wait;
@!%p1 bra WAIT;
mov.b64 %d5, tile; mad.wide.u32 %d5, rank, 1024, %d5;
shl.b32 %r2, rank, 3; mov.b16 %h1, 15;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
    [%d5], [%d1, {0, %r2}], [full], %h1;
WAIT:
mbarrier.try_wait.parity.shared.b64 %p2, [full], 0;
@!%p2 bra WAIT;
mov.b64 %d5, tile; mad.wide.u32 %d5, %r1, 16, %d5;
mad.lo.u32 %r2, rank, 128, %r1; mad.wide.u32 %d6, %r2, 32, %d2;
ld.shared.v4.b32 {%r3, %r4, %r5, %r6}, [%d5]; st.global.v4.b32 [%d6], {%r3, %r4, %r5, %r6};
ld.shared.v4.b32 {%r3, %r4, %r5, %r6}, [%d5+2048]; st.global.v4.b32 [%d6+16], {%r3, %r4, %r5, %r6};
barrier.cluster.arrive; barrier.cluster.wait;
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", None),
        ("%h1, 15", "%h1, 7", "deadlock, mbarrier"),
        ("%h1, 15", "%h1, 31", "a multicast to the ranks"),
        ("barrier.cluster.arrive; barrier.cluster.wait;\n@!%p1", "bar.sync 0;\n@!%p1", "may not have started"),
        ("[%d5], [%d1", "[tile], [%d1", "bulk copy in flight"),
    ],
)
def test_a_multicast_reaches_the_blocks_that_its_mask_names(old: str, new: str, message: str | None) -> None:
    shared = f".shared .align 1024 .b8 tile[4096]; {FULL}"
    kernel = module(MULTICAST.replace(old, new, 1), "*source, out", shared=shared, cluster=4)
    array = RNG.integers(0, 2**16, (32, 64)).astype("u2")
    if message:
        with pytest.raises(Fault, match=message):
            launch(kernel, Mapped(array, (64, 8), 128), 4 * 4096, grid=4)
        return
    out = launch(kernel, Mapped(array, (64, 8), 128), 4 * 4096, grid=4)[1]
    image = swizzled(array.view("u1"), 128).view("u4").reshape(2, 128, 4).transpose(1, 0, 2)
    np.testing.assert_array_equal(out.reshape(4, 128, 2, 4), np.broadcast_to(image, (4, 128, 2, 4)))


def test_tensor_maps_that_the_hardware_would_refuse_are_refused() -> None:
    good: dict[str, Any] = {"address": 1024, "dtype": "bf16", "sizes": [100, 8], "strides": [208], "box": [64, 8]}
    good["swizzle"] = 128
    assert TensorMap.unpack(TensorMap(**good).pack()) == TensorMap(**good)
    wrong: list[dict[str, Any]] = [
        {"address": 1032}, {"strides": (200,)}, {"strides": ()}, {"box": (12, 8)}, {"box": (72, 8)}, {"box": (64, 257)},
        {"sizes": (0, 8)}, {"swizzle": 16}, {"sizes": (8,) * 6, "box": (8,) * 6, "strides": (16,) * 5},
    ]  # fmt: skip
    for each in wrong:
        with pytest.raises(ValueError, match="need"):
            TensorMap(**good | each)
    with pytest.raises(Unsupported, match="narrower than the swizzle"):
        TensorMap(**good | {"box": (32, 8)})


# mbarrier


def test_phases_count_arrivals_and_are_told_by_state_or_parity() -> None:
    body = """
@%p1 mbarrier.init.shared.b64 [full], 130;
bar.sync 0;
mbarrier.arrive.shared.b64 %d5, [full];
setp.eq.u32 %p3, %r1, 77;
@%p3 mbarrier.arrive.noComplete.shared.b64 %d6, [full], 1;
bar.sync 0;
mbarrier.test_wait.shared.b64 %p4, [full], %d5;
selp.b32 %r2, 1, 0, %p4;
bar.sync 0;
@%p3 mbarrier.arrive.release.cta.shared::cta.b64 %d7, [full], 1;
S: mbarrier.try_wait.shared.b64 %p4, [full], %d5, 1000; @!%p4 bra S;
mbarrier.test_wait.parity.shared.b64 %p4, [full], 0;
@%p4 or.b32 %r2, %r2, 2;
bar.sync 0;
@%p1 mbarrier.arrive_drop.shared.b64 %d8, [full], 2;
@!%p1 mbarrier.arrive.shared.b64 _, [full];
@%p3 mbarrier.arrive.shared.b64 _, [full];
P: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p4, [full], 1; @!%p4 bra P;
bar.sync 0;
@!%p1 mbarrier.arrive.shared.b64 _, [full];
@%p3 mbarrier.arrive.shared.b64 _, [full];
Q: mbarrier.try_wait.parity.shared.b64 %p4, [full], 0; @!%p4 bra Q;
bar.sync 0;
@%p1 mbarrier.inval.shared.b64 [full];
@%p1 st.shared.b64 [full], 5;
bar.sync 0;
ld.shared.b32 %r4, [full];
mad.lo.u32 %r2, %r4, 16, %r2;
@%p3 mbarrier.pending_count.b64 %r3, %d7;
@!%p3 mbarrier.pending_count.b64 %r3, %d5;
mad.wide.u32 %d9, %r1, 8, %d1;
st.global.v2.b32 [%d9], {%r2, %r3};
"""
    out = launch(module(body, "out", shared=FULL), 1024)[0].reshape(128, 2)
    assert (out[:, 0] == 16 * 5 + 2).all()
    assert out[77, 1] == 1 and out[:, 1].max() == 130 and np.delete(out[:, 1], 77).min() > 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("bar.sync 0; @%p1 mbarrier.arrive.shared.b64 _, [full], 3;", "3 more arrive where 2 of 2 are pending"),
        ("bar.sync 0; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], 1048576;", "a tx-count of 1048576"),
        ("bar.sync 0; @%p1 mbarrier.arrive.noComplete.shared.b64 %d5, [full], 2;", "all that were pending have arrived"),
        ("bar.sync 0; W: mbarrier.test_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra W;", "deadlock, mbarrier: .* 64 at"),
        ("bar.sync 0; mbarrier.test_wait.parity.shared.b64 %p2, [full], %r1;", "a parity of 63"),
        ("bar.sync 0; mov.b64 %d5, 999999999; mbarrier.test_wait.shared.b64 %p2, [full], %d5;", "not of this phase"),
        ("bar.sync 0; st.shared.b32 [full], 0;", "here is an mbarrier"),
        ("bar.sync 0; mbarrier.inval.shared.b64 [full]; mbarrier.arrive.shared.b64 _, [full];", "has not been executed"),
        ("mbarrier.arrive.shared.b64 _, [full];", "no barrier since thread number 0 executed mbarrier.init"),
        ("bar.sync 0; mbarrier.arrive.b64 _, [%d1];", "this is no address in shared memory"),
    ],
)
def test_a_mistake_with_an_mbarrier_is_found(body: str, message: str) -> None:
    kernel = module("@%p1 mbarrier.init.shared.b64 [full], 2;\n" + body, "out", 64, FULL)
    with pytest.raises(Fault, match=message):
        launch(kernel, 16)


REMOTE = """
.reg .b32 rank; mov.u32 rank, %cluster_ctarank;
@%p1 mbarrier.init.shared.b64 [full], 64;
@%p1 fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;
mov.b64 %d5, full; mapa.shared::cluster.u64 %d6, %d5, 0;
mov.b64 %d7, words; mad.wide.u32 %d7, rank, 128, %d7; mad.wide.u32 %d7, %r1, 4, %d7; mapa.shared::cluster.u64 %d8, %d7, 0;
add.u32 %r3, rank, 5; mul.lo.u32 %r2, %r1, %r3;
st.shared::cluster.b32 [%d8], %r2;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%d6];
setp.ne.u32 %p3, rank, 0; @%p3 bra END;
cvta.shared.u64 %d5, %d5;
WAIT: mbarrier.try_wait.parity.acquire.cluster.b64 %p2, [%d5], 0; @!%p2 bra WAIT;
xor.b32 %r4, %r1, 21; mov.b64 %d7, words; mad.wide.u32 %d7, %r4, 4, %d7; mad.wide.u32 %d9, %r1, 8, %d1;
ld.shared.b32 %r5, [%d7]; ld.shared.b32 %r6, [%d7+128];
st.global.v2.b32 [%d9], {%r5, %r6};
END:
barrier.cluster.arrive; barrier.cluster.wait;
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", None),
        ("@%p1 fence.mbarrier_init.release.cluster;", "", "no barrier since thread number 0 .* executed mbarrier.init"),
        ("@!%p2 bra WAIT;", "", "data race|never written"),
        ("[full], 64;", "[full], 32;", "deadlock, mbarrier"),
        ("arrive.release.cluster", "arrive.relaxed.cluster", "data race: no barrier since thread number"),
        ("barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;", "bar.sync 0;", "may not have started"),
        ("END:\nbarrier.cluster.arrive; barrier.cluster.wait;", "END:", None),
    ],
)
def test_threads_arrive_at_the_mbarrier_of_another_block(old: str, new: str, message: str | None) -> None:
    assert old in REMOTE
    shared = f".shared .align 16 .b8 words[256]; {FULL}"
    kernel = module(REMOTE.replace(old, new, 1), "out", 32, shared, cluster=2, check="relaxed.cluster" not in new)
    if message:
        with pytest.raises(Fault, match=message):
            launch(kernel, 256, grid=2)
        return
    other = np.arange(32) ^ 21
    np.testing.assert_array_equal(launch(kernel, 256, grid=2)[0].reshape(32, 2), np.stack([other * 5, other * 6], axis=1))


def test_waits_that_fail_leave_time_for_other_work() -> None:
    """Warp 1 polls; only after it has seen the wait fail does it release warp 0, which then arrives."""
    body = """
@%p1 mbarrier.init.shared.b64 [full], 32;
bar.sync 0;
setp.ge.u32 %p3, %r1, 32; @%p3 bra POLL;
bar.sync 1, 64;
mbarrier.arrive.shared.b64 _, [full];
ret;
POLL:
mov.b32 %r2, 0;
AGAIN:
add.u32 %r2, %r2, 1;
setp.eq.u32 %p4, %r2, 3;
@%p4 bar.arrive 1, 64;
mbarrier.test_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra AGAIN;
mad.wide.u32 %d9, %r1, 4, %d1; st.global.b32 [%d9+-128], %r2;
"""
    out = launch(module(body, "out", 64, FULL), 128)[0]
    assert (out >= 3).all() and np.ptp(out) == 0


RING = """
@!%p1 bra START;
mbarrier.init.shared.b64 [full], 1; mbarrier.init.shared.b64 [full+8], 1;
mbarrier.init.shared.b64 [empty], 2; mbarrier.init.shared.b64 [empty+8], 2;
fence.proxy.async;
START:
bar.sync 0;
mov.b64 %d3, full; mov.b64 %d4, empty; mov.b64 %d5, tile;
mov.b32 %r2, 0; mov.b32 %r10, 0;
setp.ge.u32 %p3, %r1, 64; @%p3 bra PRODUCER;
CONSUME:
and.b32 %r3, %r2, 1; shr.u32 %r4, %r2, 1; and.b32 %r4, %r4, 1;
mad.wide.u32 %d6, %r3, 8, %d3; mad.wide.u32 %d7, %r3, 8, %d4; mad.wide.u32 %d8, %r3, 256, %d5;
FILLED: mbarrier.try_wait.parity.shared.b64 %p2, [%d6], %r4; @!%p2 bra FILLED;
mad.wide.u32 %d8, %r1, 4, %d8;
ld.shared.b32 %r5, [%d8]; add.u32 %r10, %r10, %r5;
and.b32 %r6, %r1, 31; setp.eq.u32 %p4, %r6, 0;
bar.warp.sync -1;
@%p4 mbarrier.arrive.shared.b64 _, [%d7];
add.u32 %r2, %r2, 1; setp.lt.u32 %p5, %r2, 5; @%p5 bra CONSUME;
mad.wide.u32 %d9, %r1, 4, %d2; st.global.b32 [%d9], %r10;
ret;
PRODUCER:
setp.ne.u32 %p3, %r1, 64; @%p3 bra END;
PRODUCE:
and.b32 %r3, %r2, 1; shr.u32 %r4, %r2, 1; and.b32 %r4, %r4, 1; xor.b32 %r4, %r4, 1;
mad.wide.u32 %d6, %r3, 8, %d3; mad.wide.u32 %d7, %r3, 8, %d4; mad.wide.u32 %d8, %r3, 256, %d5;
EMPTIED: mbarrier.try_wait.parity.shared.b64 %p2, [%d7], %r4; @!%p2 bra EMPTIED;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%d6], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%d8], [%d1], 256, [%d6];
mbarrier.arrive.shared.b64 _, [%d6];
add.u64 %d1, %d1, 256;
add.u32 %r2, %r2, 1; setp.lt.u32 %p5, %r2, 5; @%p5 bra PRODUCE;
END:
"""
RING_SHARED = ".shared .align 128 .b8 tile[512]; .shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2];"


def test_a_ring_of_two_stages_passes_five_tiles() -> None:
    tiles = RNG.integers(0, 2**20, (5, 64)).astype("u4")
    out = launch(module(RING, "source, out", 96, RING_SHARED), tiles, 256)[1]
    np.testing.assert_array_equal(out, tiles.sum(axis=0))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@!%p2 bra FILLED;", "", "never written|bulk copy in flight"),
        ("[%d6], %r4; @!%p2 bra FILLED;", "[%d6], 0; @!%p2 bra FILLED;", "bulk copy in flight|deadlock|data race"),
        ("mbarrier.try_wait.parity.shared.b64 %p2, [%d7], %r4; @!%p2 bra EMPTIED;", "", "where 0 of 1 are pending|bulk"),
        ("xor.b32 %r4, %r4, 1;", "", "deadlock, mbarrier"),
        ("@%p4 mbarrier.arrive.shared.b64 _, [%d7];", "", "deadlock, mbarrier"),
        ("[empty+8], 2;", "[empty+8], 1;", "data race: no barrier since thread number 32 read|bulk|deadlock"),
        ("ld.shared.b32 %r5, [%d8]; add.u32 %r10, %r10, %r5;", "", None),
        ("@%p4 mbarrier.arrive", "@%p4 mbarrier.arrive.relaxed.cta", "data race: no barrier since"),
        ("add.u32 %r2, %r2, 1; setp.lt.u32 %p5, %r2, 5; @%p5 bra CONSUME;", "ld.shared.b32 %r5, [%d8];" * 2, "data race|exits"),
    ],
)
def test_a_mistake_with_a_ring_is_found(old: str, new: str, message: str | None) -> None:
    assert old in RING
    kernel = module(RING.replace(old, new, 1), "source, out", 96, RING_SHARED)
    if message is None:
        launch(kernel, np.ones((5, 64), "u4"), 256)
        return
    with pytest.raises(Fault, match=message):
        launch(kernel, np.ones((5, 64), "u4"), 256)


# wgmma


def layout(rows: int, k: int, size: int, span: int, along: bool) -> tuple[int, int, int]:
    """The leading and stride byte offset of a tile of rows x k elements of `size` bytes, and the bytes it takes."""
    if along:  # groups of 8 k follow each other, then the next span of rows
        return (128, 16 * k, rows * k * size) if span == 16 else (k * span, 8 * span, rows * k * size)
    if span == 16:
        return 128, 8 * k * size, rows * k * size
    return 16, 8 * span, max(rows * span, rows * k * size)


def image(matrix: Array, span: int, along: bool) -> Array:
    """A tile of rows x k elements in shared memory, element by element as the manual's canonical layouts say."""
    rows, k = matrix.shape
    size = matrix.dtype.itemsize
    leading, stride, nbytes = layout(rows, k, size, span, along)
    result = np.zeros(nbytes // size, matrix.dtype)
    for row in range(rows):
        for col in range(k):
            if along:
                down, over = (stride, leading) if span > 16 else (leading, stride)
                at = row * size % span + row * size // span * over + col % 8 * span + col // 8 * down
            else:
                at = row % 8 * span + row // 8 * stride + col * size // 16 * leading + col * size % 16
            at ^= (at >> 7 & (span // 16 - 1)) << 4
            result[at // size] = matrix[row, col]
    return result


def descriptor(name: str, register: str, leading: int, stride: int, span: int) -> str:
    """`register` becomes the descriptor of the tile at the shared variable `name`."""
    mode = {16: 0, 128: 1, 64: 2, 32: 3}[span]
    rest = leading >> 4 << 16 | stride >> 4 << 32 | mode << 62
    return f"mov.b64 {register}, {name}; shr.u64 {register}, {register}, 4; or.b64 {register}, {register}, {rest:#x};"


def product(
    n: int = 64,
    kind: str = "bf16",
    spans: tuple[int, int] = (128, 128),
    along: tuple[bool, bool] = (False, False),
    registers: bool = False,
    adds: bool = False,
    signs: tuple[int, int] = (1, 1),
) -> tuple[str, str, int]:
    """D = A B with k of a 128-byte row (or less): the body, the shared variables, and k."""
    size = 4 if kind == "tf32" else 2
    span = min(128 if along[place] or spans[place] == 16 else spans[place] for place in (0, 1))
    steps = max(span // 32, 1)
    step = 32 // size
    k = step * steps
    layouts = [layout(rows, k, size, spans[place], along[place]) for place, rows in enumerate((64, n))]
    shared = FULL + "".join(f".shared .align 1024 .b8 {name}[{each[2]}];" for name, each in zip("ab", layouts, strict=True))
    copies = "".join(
        f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{name}], [%d{place}], {each[2]}, [full];"
        for place, (name, each) in enumerate(zip("ab", layouts, strict=True), 1)
        if not (registers and name == "a")
    )
    nbytes = sum(each[2] for each in layouts[registers:])
    accumulators = ", ".join(f"%f{i}" for i in range(n // 2))
    initial = "".join(f"mov.f32 %f{i}, 0f3F800000;" for i in range(n // 2)) if adds else ""
    where, rows = "shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; shr.u32 %r4, %r3, 2; and.b32 %r5, %r3, 3;", ""
    where += "mad.lo.u32 %r6, %r2, 16, %r4;"
    if registers:
        rows = f"mul.lo.u32 %r7, %r6, {k * size}; mad.lo.u32 %r7, %r5, 4, %r7; cvt.u64.u32 %d7, %r7; add.u64 %d7, %d1, %d7;\n"
        for at in range(steps):
            offsets = [32 * at + 8 * k * size * (i % 2) + 16 * (i // 2) for i in range(4)]
            rows += "".join(f"ld.global.b32 %r{20 + 4 * at + i}, [%d7+{offset}];" for i, offset in enumerate(offsets))
    products = ""
    for at in range(steps):
        first = "{" + ", ".join(f"%r{20 + 4 * at + i}" for i in range(4)) + "}" if registers else "%d11"
        majors = "".join(f", {int(each)}" for each in along[registers:]) if kind != "tf32" else ""
        products += f"""wgmma.mma_async.sync.aligned.m64n{n}k{step}.f32.{kind}.{kind}
    {{{accumulators}}}, {first}, %d12, {"%p5" if at == 0 else "1"}, {signs[0]}, {signs[1]}{majors};
"""
        for place in (0, 1):
            leading, stride, _ = layouts[place]
            by = 32
            if along[place]:
                by = 2 * (leading if spans[place] == 16 else stride)
            elif spans[place] == 16:
                by = 2 * leading
            products += f"add.u64 %d{11 + place}, %d{11 + place}, {by >> 4};\n"
    stores = ""
    for i in range(0, n // 2, 2):
        stores += f"st.global.v2.f32 [%d8+{4 * (8 * (i // 4) + 8 * n * (i // 2 % 2))}], {{%f{i}, %f{i + 1}}};"
    body = f"""{START}
mbarrier.arrive.expect_tx.shared.b64 _, [full], {nbytes};
{copies}
{WAIT}
{where}
{rows}
{descriptor("a", "%d11", layouts[0][0], layouts[0][1], spans[0])}
{descriptor("b", "%d12", layouts[1][0], layouts[1][1], spans[1])}
setp.{"eq" if adds else "ne"}.u32 %p5, 0, 0;
{initial}
wgmma.fence.sync.aligned;
{products}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
mul.lo.u32 %r7, %r6, {4 * n}; mad.lo.u32 %r7, %r5, 8, %r7; cvt.u64.u32 %d8, %r7; add.u64 %d8, %d3, %d8;
{stores}
"""
    return body, shared, k


def operands(n: int, k: int, kind: str) -> tuple[Array, Array, Array]:
    """A (64 x k) and B (n x k) as bits, and their product."""
    bits, values = [], []
    for rows in (64, n):
        x = RNG.standard_normal((rows, k)).astype("f4")
        if kind == "bf16":
            bits.append(f32_to_bf16(x))
            values.append(bf16_to_f32(bits[-1]))
        elif kind == "f16":
            bits.append(x.astype("f2").view("u2"))
            values.append(bits[-1].view("f2").astype("f4"))
        else:
            bits.append(x.view("u4"))
            values.append((x.view("u4") & np.uint32(0xFFFFE000)).view("f4"))
    return bits[0], bits[1], values[0].astype("f8") @ values[1].astype("f8").T


PRODUCTS: list[dict[str, Any]] = [
    {},
    {"n": 8, "kind": "f16", "spans": (64, 64), "adds": True},
    {"n": 256, "spans": (32, 128), "signs": (-1, 1)},
    {"n": 24, "spans": (16, 16), "adds": True, "signs": (-1, -1)},
    {"n": 128, "along": (False, True)},
    {"n": 64, "along": (True, True), "kind": "f16"},
    {"n": 64, "along": (True, True), "spans": (64, 64)},
    {"n": 96, "along": (True, True), "spans": (32, 32)},
    {"n": 40, "along": (True, True), "spans": (16, 16)},
    {"n": 192, "registers": True, "along": (False, True), "adds": True},
    {"n": 16, "registers": True},
    {"n": 80, "kind": "tf32"},
    {"n": 32, "kind": "tf32", "registers": True, "spans": (128, 64)},
    {"n": 32, "kind": "tf32", "spans": (16, 32)},
]


def multiply(options: dict[str, Any], change: Callable[[str], str] = str) -> tuple[Array, Array]:
    """What the kernel gives, and what it should."""
    chosen: dict[str, Any] = {"n": 64, "kind": "bf16", "spans": (128, 128), "along": (False, False), **options}
    body, shared, k = product(**options)
    a, b, expected = operands(chosen["n"], k, chosen["kind"])
    first = a if options.get("registers") else image(a, chosen["spans"][0], chosen["along"][0])
    second = image(b, chosen["spans"][1], chosen["along"][1])
    kernel = module(change(body), "a_data, b_data, out", shared=shared)
    out = launch(kernel, first, second, 4 * expected.size)[2]
    return out.view("f4").reshape(expected.shape), expected * math.prod(options.get("signs", ())) + bool(options.get("adds"))


@pytest.mark.parametrize("options", PRODUCTS, ids=str)
def test_wgmma_multiplies_tiles_of_every_layout(options: dict[str, Any]) -> None:
    got, expected = multiply(options)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def replaced(old: str, new: str, count: int = 1) -> Callable[[str], str]:
    def change(body: str) -> str:
        assert old in body, body
        return body.replace(old, new, count)

    return change


@pytest.mark.parametrize(
    ("options", "old", "new", "message"),
    [
        ({}, "wgmma.fence.sync.aligned;", "", "no wgmma.fence before the first wgmma"),
        ({}, "wgmma.wait_group.sync.aligned 0;", "", "wgmma in flight: it owns a register that is used here"),
        ({}, "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "wgmma in flight"),
        ({}, "wgmma.commit_group.sync.aligned;", "", "wgmma in flight"),
        ({}, "wgmma.commit_group", "mul.f32 %f9, %f9, %f9; wgmma.commit_group", "wgmma in flight"),
        ({}, "wgmma.commit_group", "@%p1 mov.f32 %f9, 0f00000000; wgmma.commit_group", "wgmma in flight"),
        ({}, "wgmma.commit_group", "st.shared.b32 [a], 0; wgmma.commit_group", "may still be reading this shared memory"),
        ({}, "@!%p2 bra WAIT;", "", "bulk copy in flight"),
        ({}, "wgmma.fence", "@%p1 st.shared.b32 [b], 0; bar.sync 0; wgmma.fence", "no fence.proxy.async by thread number 0"),
        ({}, "wgmma.fence", "@%p1 st.shared.b32 [b], 0; fence.proxy.async; wgmma.fence", "data race: no barrier since"),
        ({}, "wgmma.fence", "@%p1 st.shared.b32 [b], 0; fence.proxy.async; bar.sync 0; wgmma.fence", None),
        ({}, "wgmma.fence", "setp.ne.u32 %p6, %r1, 9; @!%p6 bra E; wgmma.fence", "deadlock, divergent warp instruction"),
        ({}, "wgmma.fence", "setp.lt.u32 %p6, %r1, 96; @!%p6 bra E; wgmma.fence", "deadlock, divergent warp instruction"),
        ({}, "wgmma.fence", "setp.lt.u32 %p6, %r1, 96; @!%p6 ret; wgmma.fence", "a part of this warpgroup is absent"),
        ({}, "wgmma.fence", "cvt.u64.u32 %d9, %r1; add.u64 %d11, %d11, %d9; wgmma.fence", "a descriptor differs within"),
        ({}, "wgmma.fence", "setp.eq.u32 %p5, %r1, 9; wgmma.fence", "scale-d differs within"),
        ({}, "wgmma.fence", "setp.eq.u32 %p5, 0, 0; wgmma.fence", "never written: register %f0"),
        ({}, "wgmma.fence", "or.b64 %d12, %d12, 0x8000; wgmma.fence", "has bits that must be zero"),
        ({}, "wgmma.fence", "add.u64 %d12, %d12, 0x800; wgmma.fence", "out of bounds: 16 bytes at shared"),
        ({}, "wgmma.fence", "add.u64 %d12, %d12, 64; wgmma.fence", "out of bounds|never written"),
        ({"adds": True}, "wgmma.mma_async", "add.f32 %f9, %f9, %f9; wgmma.mma_async", "used otherwise"),
        ({"adds": True}, "wgmma.mma_async", "mov.f32 %f9, 0f3F800000; wgmma.mma_async", None),
        ({"registers": True}, "wgmma.mma_async", "add.u32 %r21, %r21, 0; wgmma.mma_async", "used otherwise"),
        ({"registers": True}, "wgmma.commit", "add.u32 %r50, %r21, 0; wgmma.commit", "wgmma in flight"),
        ({"registers": True}, "ld.global.b32 %r22", "ld.global.b32 %r52", "never written: register %r22"),
    ],
)
def test_a_mistake_with_wgmma_is_found(options: dict[str, Any], old: str, new: str, message: str | None) -> None:
    def change(body: str) -> str:
        return replaced(old, new)(body) + "E:"

    if message is None:
        multiply(options, change)
        return
    with pytest.raises(Fault, match=message):
        multiply(options, change)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%d11, 2;", "%d11, 4;"),  # a step along k
        ("0x4000004000010000", "0x4000002000010000"),  # the stride of 8 rows
        ("0x4000004000010000", "0x8000004000010000"),  # the swizzle
        (", 1, 1, 0, 0;", ", 1, -1, 0, 0;"),
        (", 1, 1, 0, 0;", ", 1, 1, 0, 1;"),
    ],
)
def test_a_wrong_tile_gives_wrong_products(old: str, new: str) -> None:
    try:
        got, expected = multiply({}, replaced(old, new))
    except Fault as fault:
        assert re.search("out of bounds|never written", fault.rule), fault
    else:
        assert np.abs(got - expected).max() > 1


ACCUMULATORS = ", ".join(f"%f{i}" for i in range(16))
STEP = "add.u64 %d25, %d25, 2; add.u64 %d26, %d26, 2;\n"
MMA = f"wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{{ACCUMULATORS}}}, %d25, %d26, %p5, 1, 1, 0, 0;\n"
BULK = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
GEMM = f"""
setp.eq.u32 %p1, %r1, 256;
@!%p1 bra START;
mbarrier.init.shared.b64 [full], 1; mbarrier.init.shared.b64 [full+8], 1;
mbarrier.init.shared.b64 [empty], 2; mbarrier.init.shared.b64 [empty+8], 2;
fence.mbarrier_init.release.cluster;
START:
bar.sync 0;
mov.b64 %d20, ring; mov.b64 %d21, full; mov.b64 %d22, empty;
mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r15, 0;
shr.u32 %r2, %r1, 7; and.b32 %r3, %r1, 127;
setp.ge.u32 %p3, %r1, 256; @%p3 bra PRODUCER;
CONSUME:
mad.wide.u32 %d23, %r10, 8, %d21;
FILLED: mbarrier.try_wait.parity.shared.b64 %p2, [%d23], %r11; @!%p2 bra FILLED;
mad.wide.u32 %d24, %r10, 20480, %d20; mad.wide.u32 %d25, %r2, 8192, %d24; add.u64 %d26, %d24, 16384;
shr.u64 %d25, %d25, 4; or.b64 %d25, %d25, 0x4000004000010000;
shr.u64 %d26, %d26, 4; or.b64 %d26, %d26, 0x4000004000010000;
setp.ne.u32 %p5, %r12, 0;
wgmma.fence.sync.aligned;
{MMA}setp.eq.u32 %p5, 0, 0;
{(STEP + MMA) * 3}wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 1;
xor.b32 %r13, %r10, 1; mad.wide.u32 %d27, %r13, 8, %d22;
setp.ne.u32 %p7, %r12, 0; setp.eq.and.u32 %p6, %r3, 64, %p7;
@%p6 mbarrier.arrive.shared.b64 _, [%d27];
add.u32 %r12, %r12, 1; xor.b32 %r10, %r10, 1; shr.u32 %r11, %r12, 1; and.b32 %r11, %r11, 1;
setp.lt.u32 %p5, %r12, 5; @%p5 bra CONSUME;
wgmma.wait_group.sync.aligned 0;
shr.u32 %r4, %r1, 5; and.b32 %r5, %r1, 31; shr.u32 %r6, %r5, 2; and.b32 %r7, %r5, 3;
mad.lo.u32 %r8, %r4, 16, %r6; mul.lo.u32 %r8, %r8, 128; mad.lo.u32 %r8, %r7, 8, %r8; cvt.u64.u32 %d8, %r8;
add.u64 %d8, %d8, %d3;
{"".join(f"st.global.v2.f32 [%d8+{32 * (i // 4) + 1024 * (i // 2 % 2)}], {{%f{i}, %f{i + 1}}};" for i in range(0, 16, 2))}
ret;
PRODUCER:
@!%p1 bra END;
PRODUCE:
mad.wide.u32 %d23, %r10, 8, %d21; mad.wide.u32 %d27, %r10, 8, %d22; mad.wide.u32 %d24, %r10, 20480, %d20;
xor.b32 %r13, %r11, 1;
EMPTIED: mbarrier.try_wait.parity.shared.b64 %p2, [%d27], %r13; @!%p2 bra EMPTIED;
mbarrier.arrive.expect_tx.shared.b64 _, [%d23], 20480;
{BULK} [%d24], [%d1, {{%r15, 0}}], [%d23];
{BULK} [%d24+16384], [%d2, {{%r15, 0}}], [%d23];
add.u32 %r15, %r15, 64;
add.u32 %r12, %r12, 1; xor.b32 %r10, %r10, 1; shr.u32 %r11, %r12, 1; and.b32 %r11, %r11, 1;
setp.lt.u32 %p5, %r12, 5; @%p5 bra PRODUCE;
END:
"""
GEMM_SHARED = ".shared .align 1024 .b8 ring[40960]; .shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2];"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", None),
        ("@!%p2 bra FILLED;", "", "never written|bulk copy in flight"),
        ("[%d23], %r11;", "[%d23], 0;", "bulk copy in flight|deadlock|data race"),
        ("@!%p2 bra EMPTIED;", "", "where 0 of 1 are pending|may still be reading|bulk copy in flight"),
        ("xor.b32 %r13, %r11, 1;", "mov.b32 %r13, %r11;", "deadlock, mbarrier"),
        ("[empty], 2;", "[empty], 1;", "may still be reading|data race|bulk copy in flight|deadlock"),
        ("20480;\n", "16384;\n", "bulk copy in flight"),
        ("wait_group.sync.aligned 1;", "wait_group.sync.aligned 2;", "may still be reading"),
        ("wgmma.wait_group.sync.aligned 0;", "", "wgmma in flight"),
        ("%r13, 8, %d22;\nsetp.ne.u32 %p7, %r12, 0;", "%r10, 8, %d22;\nsetp.eq.u32 %p7, 0, 0;", "may still be reading"),
        ("@%p6 mbarrier.arrive", "@%p1 mbarrier.arrive", "deadlock, mbarrier"),
        ("[%d24+16384], [%d2", "[%d24+12288], [%d2", "in flight"),
    ],
)
def test_two_warpgroups_multiply_what_a_producer_warp_fetches(old: str, new: str, message: str | None) -> None:
    a, b = (f32_to_bf16(RNG.standard_normal((rows, 320)).astype("f4")) for rows in (100, 32))
    kernel = module(replaced(old, new)(GEMM), "*a, *b, out", 288, GEMM_SHARED)
    arguments = Mapped(a, (64, 128), 128), Mapped(b, (64, 32), 128), 128 * 32 * 4
    if message:
        with pytest.raises(Fault, match=message):
            launch(kernel, *arguments)
        return
    out = launch(kernel, *arguments)[2].view("f4").reshape(128, 32)
    np.testing.assert_allclose(out[:100], bf16_to_f32(a) @ bf16_to_f32(b).T, rtol=1e-4, atol=1e-4)
    assert not out[100:].any()


def test_registers_are_given_back_in_eights() -> None:
    launch(module("setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.inc.sync.aligned.u32 232;", "out"), 4)
    with pytest.raises(Unsupported, match="not a multiple of 8"):
        module("setmaxnreg.dec.sync.aligned.u32 44;", "out", check=False).kernel("k")
