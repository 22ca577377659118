"""Products of f32 on Hopper: rings that TMA fills and multiply-adds of all threads empty, in the PTX interpreter.

Results are compared with float64, or with the reference where a product has an epilogue; what lies past the lengths in use
is NaN, and copies come as late as they may.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilec.frontend import nn
from tilec.frontend.tensor import Graph, Tensor
from tilec.pipelines import targets
from tilec.pipelines.cost import products
from tilec.pipelines.cost.multiply_adds import Tiling, tilings
from tilec.runtime.artifact import Artifact

from .programs import Program
from .ptx import Fault
from .test_sliding_windows import attended
from .test_tensor_cores import (
    EMPTY,
    FETCH,
    FULL,
    Edit,
    check_product,
    compiled,
    edited,
    matmul,
    normal,
    of_parity,
    product,
    projection,
    recorded,
    seq,
    simulate,
    text_of,
)

PRODUCT = "fma.rn.f32"


def is_staged(artifact: Artifact) -> bool:
    """Whether a kernel's operands come through rings; what is made of them then is multiply-adds."""
    text = text_of(artifact)
    assert "wgmma" not in text
    return FETCH in text


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tiling], None]:
    """Lets the cost model know one tiling only."""

    def force(tiling: Tiling) -> None:
        monkeypatch.setattr(products, "tilings", lambda together: [tiling])
        monkeypatch.setattr(products, "straight_cycles", lambda *sizes: float("inf"))

    return force


def check(program: Program, artifact: Artifact) -> None:
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


@pytest.mark.parametrize(
    ("capacity", "used", "n", "k"),
    [
        (64, 17, 40, 72),
        (64, 17, 32, 32),  # one step
        (128, 1, 40, 36),
        (9, 9, 129, 100),
        (200, 129, 72, 64),
        (999, 999, 33, 36),
        (64, 17, 999, 48),
        (64, 17, 34, 1000),
    ],
)
def test_a_product_of_ragged_sizes_is_that_of_float64(capacity: int, used: int, n: int, k: int) -> None:
    program = product(capacity, used, n, k, "f32")
    artifact = compiled(program)
    assert is_staged(artifact)
    check(program, artifact)


WHOLE = [t for t in tilings(1) if t.split == 1]


@pytest.mark.parametrize(
    ("tiling", "n"),
    [*((t, (256, 130)[i % 2]) for i, t in enumerate(WHOLE)), *((replace(t, split=4), 256) for t in WHOLE[::4])],
    ids=str,
)
def test_a_product_does_not_depend_on_its_tiles(forced: Callable[[Tiling], None], tiling: Tiling, n: int) -> None:
    """Whole tiles leave in vectors, what is cut element by element; blocks that split the depth deal out what they add."""
    forced(tiling)
    program = product(128, 100, n, 128 if tiling.split > 1 else 68, "f32")
    artifact = compiled(program)
    (kernel,) = artifact.manifest.kernels.values()
    assert [m.rows for m in kernel.tensor_maps] == [tiling.width, tiling.height]  # the weights first
    assert kernel.block == 128 * tiling.groups + 128
    check(program, artifact)


# --- What else a kernel computes -------------------------------------------------------------------------------------


def rows(p: Program, k: int = 68) -> Tensor:
    return normal(p, "x", (seq(p), k), "f32")


def residual(p: Program) -> None:
    p.output("y", normal(p, "r", (seq(p), 200), "f32") + projection(p, rows(p), n=200))


def activation(p: Program) -> None:
    y = nn.silu(projection(p, rows(p)) * 0.5 + normal(p, "b", (96,), "f32", "weight"))
    p.output("y", (y + normal(p, "r", (seq(p), 96), "f32")).cast("bf16"))


def gate_and_up(p: Program) -> None:
    x = rows(p)
    p.output("y", nn.silu(projection(p, x, "gate", 104)) * projection(p, x, "up", 104))


def three_products(p: Program) -> None:
    x = rows(p)
    a, b, c = (projection(p, x, name, 64) for name in "abc")
    p.output("y", a * b + c)


def rotated(p: Program, width: int = 64) -> Tensor:
    heads = projection(p, rows(p), n=2 * width).reshape(seq(p), 2, width)
    cos, sin = (normal(p, name, (seq(p), width // 2), "f32") for name in ("cos", "sin"))
    return nn.rotate(heads, cos, sin)


def rotary(p: Program) -> None:
    p.output("y", rotated(p))


def rotary_of_wide_heads(p: Program) -> None:
    p.output("y", rotated(p, 128))


def into_a_cache(p: Program) -> None:
    new = projection(p, rows(p), n=128).reshape(seq(p), 2, 64).permute(1, 0, 2)
    cache = normal(p, "cache", (2, 160, 64), "f32", "state")
    p.output("after", cache.scatter(1, p.graph.iota(3 + seq(p))[3:], new), alias="cache")


def rotary_into_a_cache(p: Program) -> None:
    cache = normal(p, "cache", (2, 160, 64), "f32", "state")
    p.output("after", cache.scatter(1, p.graph.iota(seq(p)), rotated(p).permute(1, 0, 2)), alias="cache")


EPILOGUES = (residual, activation, gate_and_up, three_products, rotary, rotary_of_wide_heads, into_a_cache, rotary_into_a_cache)


@pytest.mark.parametrize("record", EPILOGUES, ids=lambda record: record.__name__)
def test_an_epilogue_is_computed_where_the_product_is(record: Callable[[Program], object]) -> None:
    program = recorded(record)
    expected = program.expected()
    artifact = compiled(program)
    assert is_staged(artifact)
    assert len(artifact.manifest.entries["main"].launches) == 1
    expected.check(simulate(program, artifact))


# --- Attention: two products with a softmax between them -------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "used", "past"),
    [
        (4, 2, 64, 41, 0),
        (2, 2, 128, 17, 40),
        (3, 1, 64, 129, 5),
        (3, 1, 32, 1, 99),
    ],
)
def test_attention_multiplies_what_comes_through_rings(heads: int, kv_heads: int, width: int, used: int, past: int) -> None:
    """Values lie as (k, n). How far probabilities and values reach is known when the kernel starts: NaN lies beyond."""
    program = Program(Graph({"past": (0, 100), "seq": (1, 160)}), symbols={"past": past, "seq": used})
    with program.graph.entry("main"):
        before, keys = program.graph.symbol("past"), (kv_heads, 260, width)
        q = normal(program, "q", (seq(program), heads, width), "f32")
        k, v = (normal(program, n, keys, "f32", "state") for n in ("keys", "values"))
        y = nn.attention(q, *(a[:, : before + seq(program)] for a in (k, v)), before)
        program.output("y", y)
    for name in ("keys", "values"):
        program.inputs[name][:, past + used :] = np.nan
    artifact = compiled(program)
    kernels = {n.rsplit("_", 1)[1]: artifact.files[k.file].decode() for n, k in artifact.manifest.kernels.items()}
    assert {n: FETCH in text for n, text in kernels.items()} == {"scores": True, "softmax": False, "values": True}
    want, size = attended(*(program.inputs[n] for n in ("q", "keys", "values")), past, window=past + used)
    assert (abs(simulate(program, artifact)["y"] - want) <= 2.0**-17 * size).all()


# --- What is chosen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "n", "k", "height", "width"),
    [(64, 64, 72, 32, 32), (256, 2048, 2048, 64, 128), (512, 2048, 2048, 128, 128), (4096, 4096, 64, 128, 128)],
)
def test_tiles_are_as_large_as_lets_all_multiprocessors_work(capacity: int, n: int, k: int, height: int, width: int) -> None:
    (kernel,) = compiled(product(capacity, 1, n, k, "f32")).manifest.kernels.values()
    assert [(m.rows, m.columns) for m in kernel.tensor_maps] == [(width, 32), (height, 32)]
    assert kernel.shared_bytes <= 227 << 10


@pytest.mark.parametrize(
    ("why", "capacity", "n", "k", "target"),
    [
        ("few rows", 8, 64, 128, "sm_90a"),
        ("few columns", 64, 7, 128, "sm_90a"),
        ("less than a tile along the depth", 64, 64, 24, "sm_90a"),
        ("rows at no multiple of 16 bytes", 64, 64, 50, "sm_90a"),
        ("another generation", 64, 64, 64, "sm_80"),
    ],
)
def test_a_product_that_does_not_suit_rings_is_made_straight_from_memory(
    why: str, capacity: int, n: int, k: int, target: str
) -> None:
    program = product(capacity, 7, n, k, "f32")
    artifact = compiled(program, target)
    assert not is_staged(artifact), why
    check(program, artifact)


def test_blocks_walk_over_more_programs_than_run_at_once(
    forced: Callable[[Tiling], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight blocks for 27 programs; in the next one of a block the rings go on where they were."""
    forced(Tiling(32, 32, 1))
    monkeypatch.setitem(targets.GPU_TARGETS, "sm_90a", replace(targets.GPU_TARGETS["sm_90a"], multiprocessors=4))
    program = product(288, 270, 72, 100, "f32")
    artifact = compiled(program)
    (kernel,) = artifact.manifest.kernels.values()
    assert kernel.grid == ["(8)", "1", "1"]
    check(program, artifact)


# --- The assembler's opinion -----------------------------------------------------------------------------------------


def attention_of_a_model(p: Program) -> None:
    q = normal(p, "q", (seq(p), 8, 64), "f32")
    k, v = (normal(p, n, (2, 1024, 64), "f32", "state")[:, : seq(p)] for n in ("keys", "values"))
    p.output("y", nn.attention(q, k, v, seq(p) - seq(p)))


def gate_and_up_of_a_model(p: Program) -> None:
    x = rows(p, 1024)
    p.output("y", nn.silu(projection(p, x, "gate", 1024)) * projection(p, x, "up", 1024))


ASSEMBLED: dict[str, Callable[[], Program]] = {
    "32 x 32": lambda: product(64, 1, 64, 136, "f32"),
    "128 x 64": lambda: product(512, 1, 2048, 2048, "f32"),
    "128 x 128": lambda: product(4096, 1, 4096, 4096, "f32"),
    "two products of 128 x 64": lambda: recorded(gate_and_up_of_a_model, 4096),
    "a split depth": lambda: product(128, 1, 1024, 2048, "f32"),
    "a rotation": lambda: recorded(rotary_of_wide_heads, 4096),
    "attention": lambda: recorded(attention_of_a_model, 1024),
}


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not on the path")
@pytest.mark.parametrize("name", ASSEMBLED)
def test_sums_and_operands_fit_the_registers(name: str, tmp_path: Path) -> None:
    artifact = compiled(ASSEMBLED[name]())
    assert is_staged(artifact)
    for file, code in artifact.files.items():
        (tmp_path / file).write_bytes(code)
        done = subprocess.run(
            ["ptxas", "-arch=sm_90a", "-v", file, "-o", "/dev/null"], cwd=tmp_path, capture_output=True, text=True
        )
        told = done.stdout + done.stderr
        assert done.returncode == 0 and "0 bytes spill stores, 0 bytes spill loads" in told, told
        assert not re.search("warning|ignored", told, re.IGNORECASE), told


# --- Planted mistakes ------------------------------------------------------------------------------------------------

MISTAKES: dict[str, Edit] = {  # a pattern, what stands in its place, and what is found: a fault, or wrong results
    "no wait for a full slot": (FULL, "", "bulk copy in flight"),
    "a wait for the phase before": (FULL, of_parity(1), "bulk copy in flight"),
    "no wait for every empty slot": (EMPTY, "", "mbarrier: 1 more arrive where 0 of 1 are pending"),
    "a wait that every turn passes": (EMPTY, of_parity(1), "mbarrier: 1 more arrive where 0 of 1 are pending"),
    "a slot is not released": (r"mbarrier\.arrive\.shared[^;]*;", "", "deadlock, mbarrier"),
    "a slot is released by more warps than there are": (r"(mbarrier\.init[^;]*, )%\w+;", r"\g<1>5;", "deadlock, mbarrier"),
    "another place in the row": (r"(xor\.b32\s+%\w+, %\w+, )4;", r"\g<1>8;", None),
    "a column that is not swizzled": (r"(ld\.shared\.v4\.b32[^;]*)\+144\]", r"\1+128]", None),
}


@pytest.fixture(scope="module")
def long_product() -> tuple[Program, Artifact]:
    """Thirteen turns of rings with six slots."""
    program = product(64, 17, 32, 400, "f32")
    return program, compiled(program)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(long_product: tuple[Program, Artifact], name: str) -> None:
    program, artifact = long_product
    pattern, new, message = MISTAKES[name]
    broken = edited(artifact, *artifact.files, pattern, new, 0 if "every" in name or message is None else 1)
    if message is None:
        with pytest.raises(AssertionError, match="elements are wrong"):
            check(program, broken)
    else:
        with pytest.raises(Fault, match=message):
            check(program, broken)


def test_probabilities_past_the_length_are_found_if_they_are_read() -> None:
    """Without the length in their tensor map."""

    def record(p: Program) -> None:
        values = normal(p, "values", (seq(p), 64), "f32")
        p.output("y", matmul(normal(p, "x", (50, seq(p)), "f32"), values.transpose(0, 1)))

    program = recorded(record, used=41)
    artifact = compiled(program)
    assert is_staged(artifact)
    x, values = program.inputs["x"], program.inputs["values"]
    check_product(simulate(program, artifact)["y"], x, values.T, "f32")
    ((name, kernel),) = artifact.manifest.kernels.items()
    maps = [replace(m, length="") for m in kernel.tensor_maps]
    assert maps != kernel.tensor_maps
    manifest = replace(artifact.manifest, kernels={name: replace(kernel, tensor_maps=maps)})
    with pytest.raises(AssertionError, match="elements are wrong"):
        check_product(simulate(program, replace(artifact, manifest=manifest))["y"], x, values.T, "f32")
