"""Products of 16-bit operands on Hopper: rings that TMA fills and wgmma empties, in the PTX interpreter.

Results are compared with float64, or with the reference where a product has an epilogue; what lies past the lengths in use
is NaN. Planted mistakes show that the interpreter would find ours.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.dialects.index_expr import Linear, dim, floordiv
from tilec.frontend import nn
from tilec.frontend.tensor import Graph, Tensor
from tilec.pipelines import targets
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.cost.rates import FEW_ROWS
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import Artifact

from . import reference
from .gpu_simulator import SimulatedGpu
from .programs import Program, examples
from .ptx import Fault

Array = reference.Array
PRODUCT, FETCH = "wgmma.mma_async", "cp.async.bulk.tensor"


def recorded(record: Callable[[Program], object], capacity: int = 128, used: int = 40) -> Program:
    """A program over a length `seq`, of which only a part is used."""
    program = Program(Graph({"seq": (1, capacity)}), symbols={"seq": used})
    with program.graph.entry("main"):
        record(program)
    return program


def normal(p: Program, name: str, shape: Sequence[Linear | int], dtype: str = "bf16", kind: str = "argument") -> Tensor:
    """An input with normally distributed values; weights keep what they are multiplied with at its size."""
    sizes = [e if isinstance(e, int) else p.symbols["seq"] for e in shape]
    scale = sizes[-1] ** -0.5 if kind == "weight" and len(sizes) > 1 else 1.0
    values = np.random.default_rng(len(p.inputs)).standard_normal(sizes) * scale
    return p.input(name, shape, dtype, values, kind)


def seq(p: Program) -> Linear:
    return p.graph.symbol("seq")


def compiled(program: Program, target: str = "sm_90a") -> Artifact:
    return compile_module(program.graph.module, find_target(target), {})


def simulate(program: Program, artifact: Artifact, apart: bool = True) -> dict[str, Array]:
    """Results, and the states that they replace."""
    held = {n: reference.to_memory(a, program.dtypes[n]) for n, a in program.inputs.items()}
    manifest = artifact.manifest
    gpu = SimulatedGpu(artifact, {n: held[n] for n in manifest.weights}, {n: held[n] for n in manifest.states}, apart)
    results = gpu.run("main", {n: held[n] for n, kind in program.kinds.items() if kind == "argument"}, program.symbols)
    results |= {name: gpu.state(state) for name, state in program.aliases.items()}
    return {n: reference.from_memory(a, program.dtypes[n]) for n, a in results.items()}


def text_of(artifact: Artifact) -> str:
    return "\n".join(code.decode() for code in artifact.files.values())


def uses_wgmma(artifact: Artifact) -> bool:
    text = text_of(artifact)
    assert (PRODUCT in text) == (FETCH in text) == any(k.tensor_maps for k in artifact.manifest.kernels.values())
    return PRODUCT in text


def check_product(got: Array, x: Array, w: Array, dtype: str) -> None:
    """A sum of exact products, in float32 in any order, rounded once: one product too few or too many is far outside."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    want, size = x @ w.swapaxes(-1, -2), abs(x) @ abs(w).swapaxes(-1, -2)
    assert got.shape == want.shape
    allowed = 2.0**-20 * size + (reference.unit(want, dtype) if dtype != "f32" else 0.0)
    error = abs(got.astype(np.float64) - want)
    assert (error <= allowed).all(), f"{np.sum(~(error <= allowed))} of {want.size} elements are wrong"


# --- y = x W^T -------------------------------------------------------------------------------------------------------


def product(capacity: int, used: int, n: int, k: int, dtype: str = "bf16", result: str = "f32") -> Program:
    def record(p: Program) -> None:
        y = nn.linear(normal(p, "x", (seq(p), k), dtype), normal(p, "w", (n, k), dtype, "weight"))
        p.output("y", y.cast(result))

    return recorded(record, capacity, used)


@pytest.mark.parametrize(
    ("capacity", "used", "n", "k", "dtype", "result"),
    [
        (64, 17, 40, 72, "bf16", "f32"),
        (64, 17, 128, 64, "bf16", "f32"),  # one step
        (64, 64, 32, 128, "f16", "f32"),
        (9, 9, 129, 96, "bf16", "bf16"),
        (128, 40, 129, 200, "f16", "f16"),
        (200, 129, 200, 104, "bf16", "bf16"),
        (256, 200, 64, 1000, "bf16", "f32"),
        (999, 999, 40, 72, "f16", "bf16"),
        (64, 17, 999, 136, "bf16", "f32"),
        (128, 1, 40, 4096, "bf16", "f32"),
        (4096, 150, 512, 264, "bf16", "f32"),  # tiles of 128 x 128
        (16384, 129, 520, 136, "bf16", "bf16"),  # of 128 x 256
        (2048, 150, 192, 264, "bf16", "bf16"),  # of 64 x 48
        (8192, 129, 224, 264, "f16", "bf16"),  # of 128 x 112
        (8192, 129, 448, 136, "bf16", "bf16"),  # of 128 x 224, by blocks that walk
    ],
)
def test_a_product_of_ragged_sizes_is_that_of_float64(
    capacity: int, used: int, n: int, k: int, dtype: str, result: str
) -> None:
    program = product(capacity, used, n, k, dtype, result)
    artifact = compiled(program)
    assert uses_wgmma(artifact)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], result)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(
    ("capacity", "used", "n", "k", "parts"),
    [(8, 5, 129, 328, False), (8, 8, 40, 256, True), (3, 2, 264, 1024, True), (8, 7, 4096, 512, True),
     (8, 1, 20000, 64, False)],
)
def test_products_of_few_rows_read_the_matrix_where_it_is(
    capacity: int, used: int, n: int, k: int, parts: bool, target: str
) -> None:
    """Where there are few columns, the warps of a block share the depth."""
    program = product(capacity, used, n, k)
    artifact = compiled(program, target)
    (kernel,) = artifact.manifest.kernels.values()
    assert (kernel.block > 32) == parts and not uses_wgmma(artifact) and "mma.sync" in text_of(artifact)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


@pytest.mark.parametrize("k", [8, 40, 56])
def test_a_reduction_that_is_shorter_than_a_tile_ends_where_rows_do(k: int) -> None:
    program = product(64, 17, 64, k)
    check_product(simulate(program, compiled(program))["y"], program.inputs["x"], program.inputs["w"], "f32")


@pytest.mark.parametrize(
    ("capacity", "n", "height", "width"), [(64, 64, 64, 32), (4096, 512, 128, 128), (16384, 520, 128, 256)]
)
def test_the_size_of_a_tile_follows_that_of_the_product(capacity: int, n: int, height: int, width: int) -> None:
    (kernel,) = compiled(product(capacity, 1, n, 136)).manifest.kernels.values()
    assert [(m.rows, m.columns) for m in kernel.tensor_maps] == [(width, 64), (height, 64)]  # the weights first
    assert kernel.block == 2 * height + 128
    assert 48 << 10 < kernel.shared_bytes <= 227 << 10


def test_the_lengths_in_use_decide_and_not_the_capacity() -> None:
    """One program, three lengths."""
    program = product(200, 200, 96, 136)
    artifact = compiled(program)
    x, w = program.inputs["x"], program.inputs["w"]
    for used in (1, 64, 129):
        program.symbols["seq"], program.inputs["x"] = used, x[:used]
        check_product(simulate(program, artifact)["y"], x[:used], w, "f32")


def test_the_same_input_gives_the_same_bits() -> None:
    first, second = (product(128, 100, 72, 520) for _ in range(2))
    one, other = compiled(first), compiled(second)
    assert one.files == other.files
    np.testing.assert_array_equal(simulate(first, one)["y"], simulate(first, one, apart=False)["y"])


def test_blocks_walk_over_more_programs_than_there_are_multiprocessors() -> None:
    """162 programs for 132 blocks; in the second one of a block the rings go on where they were."""
    program = product(4096, 2177, 2104, 136, "bf16", "bf16")
    artifact = compiled(program)
    (kernel,) = artifact.manifest.kernels.values()
    assert kernel.grid == ["(132)", "1", "1"]
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "bf16")


@pytest.mark.parametrize(("n", "result", "wide"), [(96, "bf16", True), (96, "f16", True), (100, "bf16", False)])
def test_results_of_16_bits_leave_in_16_bytes_where_rows_are_aligned(n: int, result: str, wide: bool) -> None:
    program = product(128, 70, n, 136, "bf16", result)
    artifact = compiled(program)
    assert ("st.global.v4.b32" in text_of(artifact)) == wide
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], result)


# --- What else a kernel computes -------------------------------------------------------------------------------------


DEPTH = 136


def rows(p: Program, depth: int | None = None) -> Tensor:
    return normal(p, "x", (seq(p), depth or DEPTH))


def projection(p: Program, x: Tensor, name: str = "w", n: int = 96) -> Tensor:
    return nn.linear(x, normal(p, name, (n, x.shape[-1].constant), x.dtype, "weight"))


def bias(p: Program) -> None:
    p.output("y", projection(p, rows(p)) + normal(p, "b", (96,), "f32", "weight"))


def residual(p: Program) -> None:
    p.output("y", normal(p, "r", (seq(p), 200), "f32") + projection(p, rows(p), n=200))


def scaled_and_rounded(p: Program) -> None:
    p.output("y", (projection(p, rows(p)) * 0.125).cast("bf16"))


def activation(p: Program) -> None:
    y = nn.silu(projection(p, rows(p)) * 0.5 + normal(p, "b", (96,), "f32", "weight"))
    p.output("y", (y + normal(p, "r", (seq(p), 96), "f32")).cast("f16"))


def gate_and_up(p: Program) -> None:
    x = rows(p)
    p.output("y", (nn.silu(projection(p, x, "gate", 104)) * projection(p, x, "up", 104)).cast("bf16"))


def three_products(p: Program) -> None:
    x = rows(p)
    a, b, c = (projection(p, x, name, 64) for name in "abc")
    p.output("y", a * b + c)


def rotated(p: Program, width: int = 64) -> Tensor:
    heads = projection(p, rows(p), n=2 * width).reshape(seq(p), 2, width)
    cos, sin = (normal(p, name, (seq(p), width // 2), "f32") for name in ("cos", "sin"))
    return nn.rotate(heads, cos, sin).cast("bf16")


def rotary(p: Program) -> None:
    p.output("y", rotated(p))


def rotary_of_wide_heads(p: Program) -> None:
    p.output("y", rotated(p, 128))


def rotary_of_heads_of_96(p: Program) -> None:
    p.output("y", rotated(p, 96))


def rotary_in_shares(p: Program) -> None:
    """A thread has 128 sums and reads as many factors: the rows are finished in two parts."""
    p.output("y", rotated(p, 256))


def into_a_cache(p: Program) -> None:
    new = projection(p, rows(p), n=128).cast("bf16").reshape(seq(p), 2, 64).permute(1, 0, 2)
    cache = normal(p, "cache", (2, 160, 64), kind="state")
    p.output("after", cache.scatter(1, p.graph.iota(3 + seq(p))[3:], new), alias="cache")


def rotary_into_a_cache(p: Program) -> None:
    cache = normal(p, "cache", (2, 160, 64), kind="state")
    p.output("after", cache.scatter(1, p.graph.iota(seq(p)), rotated(p).permute(1, 0, 2)), alias="cache")


EPILOGUES = (bias, residual, scaled_and_rounded, activation, gate_and_up, three_products, rotary, rotary_of_wide_heads)
EPILOGUES += (rotary_in_shares, rotary_of_heads_of_96, into_a_cache, rotary_into_a_cache)


@pytest.mark.parametrize("record", EPILOGUES, ids=lambda record: record.__name__)
def test_an_epilogue_is_computed_where_the_product_is(record: Callable[[Program], object]) -> None:
    program = recorded(record)
    expected = program.expected()
    artifact = compiled(program)
    assert uses_wgmma(artifact)
    assert len(artifact.manifest.entries["main"].launches) == 1
    expected.check(simulate(program, artifact))


def plain(p: Program) -> None:
    p.output("y", projection(p, rows(p), n=129))


@pytest.mark.parametrize("record", [plain, *EPILOGUES], ids=lambda record: record.__name__)
def test_blocks_of_a_cluster_share_the_depth_of_a_product(
    record: Callable[[Program], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each adds up a part of the results, and only these are stored."""
    monkeypatch.setattr(sys.modules[__name__], "DEPTH", 1024)
    program = recorded(record)
    expected = program.expected()
    artifact = compiled(program)
    ((kernel, _),) = artifact.manifest.entries["main"].launches
    assert ".reqnctapercluster" in text_of(artifact) and "(4)" in artifact.manifest.kernels[kernel].grid[0]
    expected.check(simulate(program, artifact))
    assert "ld.shared::cluster.v4" in text_of(artifact)


def test_what_blocks_exchange_lies_over_rings_that_all_groups_have_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of warps multiply 64 rows each: without the barrier one writes where the other still reads."""
    monkeypatch.setitem(targets.GPU_TARGETS, "sm_90a", replace(targets.GPU_TARGETS["sm_90a"], multiprocessors=8))
    program = product(128, 100, 256, 4096)
    artifact = compiled(program)
    (kernel,) = artifact.manifest.kernels.values()
    slot = sum(t.rows * t.columns * 2 for t in kernel.tensor_maps)
    assert kernel.shared_bytes - 8 * slot < 1024  # nothing but rings of eight slots and their barriers
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")
    text, barrier = text_of(artifact), "\tbar.sync \t1, 256;\n"
    assert text.count(barrier) == 1
    broken = replace(artifact, files={kernel.file: text.replace(barrier, "").encode()})
    with pytest.raises(Fault, match="no barrier since wgmma of warpgroup"):
        simulate(program, broken)


def test_products_that_share_their_depth_are_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(p: Program) -> None:
        x = rows(p)
        for name, n in (("q", 128), ("k", 64), ("v", 128)):
            p.output(name, projection(p, x, f"w{name}", n))

    monkeypatch.setattr(sys.modules[__name__], "DEPTH", 1024)
    program = recorded(record)
    artifact = compiled(program)
    assert len(artifact.manifest.entries["main"].launches) == 1
    results = simulate(program, artifact)
    for name in "qkv":
        check_product(results[name], program.inputs["x"], program.inputs[f"w{name}"], "f32")


def test_products_beside_each_other_have_equal_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, what has few columns would split its depth among more blocks than what has many."""

    def record(p: Program, names: str = "qkv") -> None:
        x = rows(p)
        for name, n in (("q", 4096), ("k", 512), ("v", 512)):
            if name in names:
                p.output(name, projection(p, x, f"w{name}", n))

    monkeypatch.setattr(sys.modules[__name__], "DEPTH", 1024)
    alone = [compiled(recorded(lambda p, name=name: record(p, name), 256)) for name in "qk"]
    assert len({kernel.block for artifact in alone for kernel in artifact.manifest.kernels.values()}) == 2
    artifact = compiled(recorded(record, 256))
    assert len(artifact.manifest.entries["main"].launches) == 1
    left_out = recorded(record, 256)
    artifact = compile_module(left_out.graph.module, find_target("sm_90a"), {}, leave_out=("kernel-merge-launches",))
    assert len({(k.block, ".reqnctapercluster" in artifact.files[k.file].decode())
                for k in artifact.manifest.kernels.values()}) == 1


def test_independent_products_are_one_launch() -> None:
    """Their tensor maps and their parts of shared memory stay apart."""

    def record(p: Program) -> None:
        x = rows(p)
        for name, n in (("q", 96), ("k", 40), ("v", 72)):
            p.output(name, projection(p, x, f"w{name}", n))

    program = recorded(record)
    artifact = compiled(program)
    ((kernel, _),) = artifact.manifest.entries["main"].launches
    assert len(artifact.manifest.kernels[kernel].tensor_maps) == 6
    results = simulate(program, artifact)
    for name in "qkv":
        check_product(results[name], program.inputs["x"], program.inputs[f"w{name}"], "f32")


def test_a_product_of_a_product_waits_for_it() -> None:
    """The interpreter lets the first kernel's writes be under way until the second one waits."""

    def record(p: Program) -> None:
        hidden = projection(p, rows(p)).cast("bf16")
        p.output("hidden", hidden)
        p.output("y", projection(p, hidden, "w2", 72))

    program = recorded(record)
    artifact = compiled(program)
    assert len(artifact.manifest.entries["main"].launches) == 2 and all(k.dependent for k in artifact.manifest.kernels.values())
    results = simulate(program, artifact)
    check_product(results["hidden"], program.inputs["x"], program.inputs["w"], "bf16")
    check_product(results["y"], results["hidden"], program.inputs["w2"], "f32")


# --- Views of operands -----------------------------------------------------------------------------------------------


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """(..., M, K) times (..., N, K) transposed, f32."""
    return a.unsqueeze(-2).mul(b.unsqueeze(-3), "f32").sum(-1)


def scores(p: Program, width: int, heads: int = 4, kv_heads: int = 2) -> Tensor:
    """Queries (S, heads, D) against keys (kv_heads, T, D): a group of heads reads the same keys, of a longer cache."""
    q, keys = normal(p, "q", (seq(p), heads, width)), normal(p, "keys", (kv_heads, 96, width), kind="state")
    keys = keys[:, : seq(p)]
    group = heads // kv_heads
    return matmul(q.permute(1, 0, 2), keys._viewed((heads, *keys.shape[1:]), [floordiv(dim(0), group), dim(1), dim(2)]))


@pytest.mark.parametrize("width", [72, 128])
def test_scores_of_grouped_heads_read_their_own_keys(width: int) -> None:
    program = recorded(lambda p: p.output("y", scores(p, width)), capacity=96, used=41)
    artifact = compiled(program)
    assert uses_wgmma(artifact) == (width == 128)  # 72 columns of a query are followed by the next head's
    keys = program.inputs["keys"][:, :41].repeat(2, axis=0)
    check_product(simulate(program, artifact)["y"], program.inputs["q"].swapaxes(0, 1), keys, "f32")


def test_scaled_and_masked_scores_are_one_kernel() -> None:
    def record(p: Program) -> None:
        late = p.graph.constant(-np.inf, "f32").expand(4, seq(p), seq(p)).where_index(dim(2) - dim(1) - 1)
        p.output("y", scores(p, 128) * 0.0625 + late)

    program = recorded(record, capacity=96, used=41)
    expected = program.expected()
    artifact = compiled(program)
    assert uses_wgmma(artifact) and len(artifact.manifest.kernels) == 1
    expected.check(simulate(program, artifact))


def test_a_batch_is_a_product_for_every_member() -> None:
    program = recorded(
        lambda p: p.output("y", matmul(normal(p, "x", (3, 50, 136)), normal(p, "w", (3, 40, 136), kind="weight")))
    )
    artifact = compiled(program)
    assert uses_wgmma(artifact)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


VIEWS: dict[str, Callable[[Array], Array]] = {
    "rows from the third": lambda a: a[3:],
    "columns from the eighth": lambda a: a[:, 8:],
    "columns in the middle": lambda a: a[:, 64:192],
    "one of two halves of a row": lambda a: a.reshape(a.shape[0], 2, 128)[:, 1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_operands_are_read_through_views(name: str) -> None:
    """The same view of both, which is read in the tensor and in the array."""
    view = VIEWS[name]
    program = recorded(
        lambda p: p.output("y", matmul(*(view(normal(p, n, (h, 256), kind="weight")) for n, h in (("x", 100), ("w", 50)))))
    )
    artifact = compiled(program)
    assert uses_wgmma(artifact)
    check_product(simulate(program, artifact)["y"], view(program.inputs["x"]), view(program.inputs["w"]), "f32")


def test_a_matrix_times_itself_is_fetched_twice() -> None:
    program = recorded(lambda p: p.output("y", matmul(*[rows(p)] * 2)))
    artifact = compiled(program)
    assert uses_wgmma(artifact)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["x"], "f32")




def test_a_part_of_longer_rows_is_not_read_past_its_end() -> None:
    program = recorded(lambda p: p.output("y", matmul(*(normal(p, n, (50, 256), kind="weight")[:, :200] for n in "xw"))))
    artifact = compiled(program)
    check_product(simulate(program, artifact)["y"], *(program.inputs[n][:, :200] for n in "xw"), "f32")


def test_nan_beside_a_part_of_a_row_is_not_read() -> None:
    """Not even times the zeros past the end of the other operand."""
    program = recorded(lambda p: p.output("y", projection(p, normal(p, "x", (50, 256))[:, :200])))
    program.inputs["x"][:, 200:] = np.nan
    artifact = compiled(program)
    check_product(simulate(program, artifact)["y"], program.inputs["x"][:, :200], program.inputs["w"], "f32")


def test_heads_that_are_no_multiple_of_a_tile_are_read_one_at_a_time() -> None:
    """Heads side by side in a row of memory, for both operands."""
    program = recorded(lambda p: p.output("y", matmul(*(normal(p, n, (seq(p), 4, 72)).permute(1, 0, 2) for n in "xw"))))
    artifact = compiled(program)
    check_product(simulate(program, artifact)["y"], *(program.inputs[n].swapaxes(0, 1) for n in "xw"), "f32")


def test_a_reduced_length_ends_where_it_is_used() -> None:
    """Such as values weighted by probabilities: past the length both are NaN."""
    program = recorded(lambda p: p.output("y", matmul(*(normal(p, n, (50, seq(p))) for n in "xw"))), used=72)
    artifact = compiled(program)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


# --- Attention of many queries ---------------------------------------------------------------------------------------


def attention(
    heads: int, kv_heads: int, width: int, used: int, past: int | None, dtype: str, result: str, capacity: int = 160
) -> Program:
    """Causal attention over a cache; without `past`, of all queries to all keys, which are as many."""
    program = Program(Graph({"past": (0, 100), "seq": (1, capacity)}), symbols={"seq": used, "past": past or 0})
    with program.graph.entry("main"):
        q, before = normal(program, "q", (seq(program), heads, width), dtype), program.graph.symbol("past")
        if past is None:
            k, v = (normal(program, n, (seq(program), kv_heads, width), dtype).permute(1, 0, 2) for n in ("keys", "values"))
        else:
            keys = (kv_heads, 260, width)
            k, v = (normal(program, n, keys, dtype, "state")[:, : before + seq(program)] for n in ("keys", "values"))
        program.output("y", nn.attention(q, k, v, None if past is None else before).cast(result))
    return program


@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "used", "past", "dtype", "result"),
    [
        (4, 2, 64, 41, 0, "bf16", "f32"),
        (2, 2, 128, 17, 40, "bf16", "f32"),
        (6, 2, 64, 130, 5, "bf16", "f32"),
        (3, 1, 64, 20, 5, "bf16", "f32"),
        (3, 1, 96, 1, 0, "bf16", "f32"),  # half a swizzle
        (4, 2, 96, 17, 40, "bf16", "bf16"),
        (2, 2, 96, 129, 100, "f16", "f16"),
        (4, 2, 96, 129, None, "bf16", "bf16"),  # keys of all heads lie side by side
        (1, 1, 96, 40, 9, "bf16", "f32"),
        (4, 2, 32, 65, 70, "bf16", "bf16"),
        (2, 1, 48, 20, None, "f16", "f32"),
        (2, 2, 80, 130, 3, "bf16", "bf16"),
        (2, 1, 112, 17, None, "bf16", "f16"),
        (2, 1, 144, 70, 60, "bf16", "bf16"),
        (2, 1, 160, 129, 0, "bf16", "f32"),
        (1, 1, 240, 33, 99, "bf16", "bf16"),
    ],
)
def test_attention_of_many_queries_is_one_kernel(
    heads: int, kv_heads: int, width: int, used: int, past: int | None, dtype: str, result: str
) -> None:
    program = attention(heads, kv_heads, width, used, past, dtype, result)
    artifact = compiled(program)
    assert uses_wgmma(artifact) and len(artifact.manifest.entries["main"].launches) == 1
    check_attention(program, artifact, result, past)


def test_three_groups_of_warps_take_turns_where_queries_are_many() -> None:
    program = attention(2, 1, 64, 400, None, "bf16", "f32", capacity=8192)
    artifact = compiled(program)
    (code,) = artifact.files.values()
    assert ".reqntid 512" in code.decode() and "bar.arrive" in code.decode()
    check_attention(program, artifact, "f32", None)


@pytest.mark.parametrize(
    "leave_out",
    [
        ("tile-delay-products",),
        ("tile-take-turns",),
        ("tile-specialise",),
        ("tile-delay-products", "tile-specialise"),
        ("kernel-count-turns",),
        ("kernel-peek-barriers",),
        ("nvvm-narrow-indices",),
    ],
)
@pytest.mark.parametrize(("heads", "kv_heads", "width", "used", "past"), [(3, 1, 64, 130, 5), (2, 2, 128, 150, None)])
def test_attention_without_roles_or_delay_computes_the_same(
    heads: int, kv_heads: int, width: int, used: int, past: int | None, leave_out: tuple[str, ...]
) -> None:
    results = []
    for left_out in ((), leave_out):
        program = attention(heads, kv_heads, width, used, past, "bf16", "bf16")
        artifact = compile_module(program.graph.module, find_target("sm_90a"), {}, leave_out=left_out)
        check_attention(program, artifact, "bf16", past)
        results.append(simulate(program, artifact)["y"])
    assert np.array_equal(*results)


@pytest.mark.parametrize("leave_out", [(), ("tile-delay-products",), ("tile-specialise",), ("tile-persist",)])
@pytest.mark.parametrize(("width", "used"), [(128, 400), (128, 17), (96, 257)])
def test_blocks_walk_over_the_programs_of_attention(
    width: int, used: int, leave_out: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 programs, of whole tiles of keys and a last one, for three blocks: rings go on where they were, and queries come in
    one of two slots."""
    monkeypatch.setitem(targets.GPU_TARGETS, "sm_90a", replace(targets.GPU_TARGETS["sm_90a"], multiprocessors=3))
    program = attention(4, 2, width, used, None, "bf16", "bf16", capacity=400)
    artifact = compile_module(program.graph.module, find_target("sm_90a"), {}, leave_out=leave_out)
    (kernel,) = artifact.manifest.kernels.values()
    assert (kernel.grid == ["(3)", "1", "1"]) == (leave_out != ("tile-persist",))
    check_attention(program, artifact, "bf16", None)


def check_attention(program: Program, artifact: Artifact, result: str, past: int | None) -> None:
    """Probabilities are rounded to the type of the values, so each result may be off by that part of what it adds up."""
    q, keys, values = (program.inputs[n].astype(np.float64) for n in ("q", "keys", "values"))
    if past is None:
        keys, values = keys.swapaxes(0, 1), values.swapaxes(0, 1)
    used, heads, width = program.symbols["seq"], *q.shape[1:]
    total = (past or 0) + used
    keys, values = (a[:, :total].repeat(heads // len(keys), axis=0) for a in (keys, values))
    scores = q[:used].swapaxes(0, 1) @ keys.swapaxes(1, 2) * width**-0.5
    if past is not None:
        scores[:, np.arange(used)[:, None] + past < np.arange(total)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    want, size = (weights @ values).swapaxes(0, 1), (weights @ abs(values)).swapaxes(0, 1)
    allowed = 2.0**-7 * size + (reference.unit(want, result) if result != "f32" else 0.0)
    assert (abs(simulate(program, artifact)["y"] - want) <= allowed).all()


@pytest.mark.parametrize(("width", "values"), [(40, 40), (24, 24), (288, 288), (64, 96), (96, 64)])
def test_heads_that_tensor_cores_cannot_take_are_attended_to_by_three_kernels(width: int, values: int) -> None:
    program = Program(Graph({"seq": (1, 40)}), symbols={"seq": 21})
    with program.graph.entry("main"):
        q, k, v = (normal(program, n, (seq(program), 2, d)) for n, d in (("q", width), ("k", width), ("v", values)))
        program.output("y", nn.attention(q, k.permute(1, 0, 2), v.permute(1, 0, 2), None))
    expected, artifact = program.expected(), compiled(program)
    assert len(artifact.manifest.entries["main"].launches) == 3
    expected.check(simulate(program, artifact))


# --- What wgmma cannot do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "capacity", "n", "k", "dtype", "target"),
    [
        ("rows at no multiple of 16 bytes", 64, 64, 100, "bf16", "sm_90a"),
        ("few columns", 64, 24, 128, "bf16", "sm_90a"),
        ("another generation", 64, 64, 128, "bf16", "sm_80"),
        ("a later generation", 64, 64, 128, "bf16", "sm_100a"),
    ],
)
def test_a_product_that_wgmma_cannot_make_is_made_without(
    why: str, capacity: int, n: int, k: int, dtype: str, target: str
) -> None:
    program = product(capacity, 7, n, k, dtype)
    artifact = compiled(program, target)
    assert not uses_wgmma(artifact), why
    if target != "sm_100a":
        check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


@pytest.mark.parametrize("result", ["f32", "bf16"])
def test_pairs_of_an_odd_row_are_stored_one_by_one(result: str) -> None:
    """A whole tile of an odd number of columns: every other row begins between the places where a pair may."""
    program = product(64, 64, 33, 64, result=result)
    artifact = compiled(program, "sm_80")
    assert "mma.sync" in text_of(artifact)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], result)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_operands_that_are_computed_are_made_before(target: str) -> None:
    """Each program would compute them again, and its lanes would hold them where no tensor core wants them."""
    program = recorded(lambda p: p.output("y", nn.linear(nn.silu(rows(p).cast("f32")).cast("bf16"),
                                                         normal(p, "w", (64, 136), kind="weight") * 2.0)))
    expected = program.expected()
    artifact = compiled(program, target)
    assert (PRODUCT if target == "sm_90a" else "mma.sync") in text_of(artifact)
    assert len(artifact.manifest.entries["main"].launches) in (2, 3)  # the operands may share a launch
    expected.check(simulate(program, artifact))


def test_a_view_that_starts_between_16_bytes_is_read_without_wgmma() -> None:
    program = recorded(lambda p: p.output("y", projection(p, normal(p, "x", (seq(p), 256))[:, 4:132])))
    artifact = compiled(program)
    assert not uses_wgmma(artifact)
    check_product(simulate(program, artifact)["y"], program.inputs["x"][:, 4:132], program.inputs["w"], "f32")


def test_rows_at_no_one_distance_are_read_without_wgmma() -> None:
    """Tiles of several axes need them side by side in memory as they are in the result."""

    def record(p: Program) -> None:
        matrix = normal(p, "w", (6, 16, DEPTH), kind="weight")[:, :8]
        p.output("y", rows(p).unsqueeze(1).unsqueeze(1).mul(matrix.unsqueeze(0), "f32").sum(-1))

    program = recorded(record)
    expected, artifact = program.expected(), compiled(program)
    assert not uses_wgmma(artifact)
    expected.check(simulate(program, artifact))


# --- Random shapes ---------------------------------------------------------------------------------------------------


@examples(10)
@given(st.data())
def test_random_products_are_those_of_float64(data: st.DataObject) -> None:
    capacity = data.draw(st.integers(2, 300), "capacity")
    used = data.draw(st.integers(1, capacity), "used")
    n, k = data.draw(st.integers(32, 300), "n"), 8 * data.draw(st.integers(9, 90), "k / 8")
    dtype, result = data.draw(st.sampled_from(["bf16", "f16"])), data.draw(st.sampled_from(["f32", "bf16", "f16"]))
    program = product(capacity, used, n, k, dtype, result)
    artifact = compiled(program)
    assert uses_wgmma(artifact) == (capacity > FEW_ROWS)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], result)


# --- The assembler's opinion -----------------------------------------------------------------------------------------

ptxas = shutil.which("ptxas")
ASSEMBLED: dict[str, Callable[[], Program]] = {
    "64 x 32": lambda: product(64, 1, 64, 136),
    "128 x 128, a long loop": lambda: product(4096, 1, 512, 4096),
    "128 x 256, f32": lambda: product(16384, 1, 520, 4096),
    "128 x 256, bf16": lambda: product(16384, 1, 512, 4096, "bf16", "bf16"),
    "two products of 128 x 128": lambda: recorded(gate_and_up_of_a_model, 16384),
    "a rotation": lambda: recorded(rotary_of_wide_heads, 4096),
    "a rotation of heads of 96": lambda: recorded(rotary_of_heads_of_96, 4096),
    "a residual": lambda: recorded(residual, 4096),
    "scores": lambda: recorded(lambda p: p.output("y", scores(p, 128)), 96),
    **{f"attention with heads of {n}": lambda n=n: attention(4, 2, n, 1, 0, "bf16", "bf16") for n in range(32, 257, 16)},
}


def gate_and_up_of_a_model(p: Program) -> None:
    x = rows(p, 1024)
    p.output("y", (nn.silu(projection(p, x, "gate", 1024)) * projection(p, x, "up", 1024)).cast("bf16"))


@pytest.mark.skipif(ptxas is None, reason="ptxas is not on the path")
@pytest.mark.parametrize("name", ASSEMBLED)
def test_accumulators_stay_in_registers_and_products_in_flight(name: str, tmp_path: Path) -> None:
    artifact = compiled(ASSEMBLED[name]())
    assert all(kernel.shared_bytes <= 227 << 10 for kernel in artifact.manifest.kernels.values())
    for file, code in artifact.files.items():
        (tmp_path / file).write_bytes(code)
        done = subprocess.run(
            [ptxas, "-arch=sm_90a", "-v", file, "-o", "/dev/null"], cwd=tmp_path, capture_output=True, text=True
        )
        told = done.stdout + done.stderr
        assert done.returncode == 0, told
        assert PRODUCT in code.decode() and "0 bytes spill stores, 0 bytes spill loads" in told, told
        assert not re.search("serializ|warning|ignored", told, re.IGNORECASE), told


# --- Planted mistakes ------------------------------------------------------------------------------------------------

WAIT = r"\{\s*\.reg \.pred\s+P1;[^}]*?try_wait[^}]*\}"  # as upstream writes it, in a scope of its own
EMPTY, FULL = rf"{WAIT}(?=[^{{}}]*expect_tx)", rf"{WAIT}(?![^{{}}]*expect_tx)"  # who waits for an empty slot then fills it
DESCRIPTOR = r"(or\.b64\s+%\w+, %\w+, )(46116862933053603\d\d)"  # without the address


def of_parity(number: int) -> Callable[[re.Match[str]], str]:
    return lambda wait: re.sub(r"(P1, \[%\w+\]), %\w+", rf"\1, {number}", wait.group())


def plus(number: int) -> Callable[[re.Match[str]], str]:
    return lambda found: f"{found[1]}{int(found[2]) + number}"


Edit = tuple[str, str | Callable[[re.Match[str]], str], str | None]
MISTAKES: dict[str, Edit] = {  # a pattern, what stands in its place, and what is found: a fault, or wrong results
    "no wait for a full slot": (FULL, "", "bulk copy in flight"),
    "a wait for the phase before": (FULL, of_parity(1), "bulk copy in flight"),
    "no wait for an empty slot": (EMPTY, "", "mbarrier: 1 more arrive where 0 of 1 are pending"),
    "a wait that the first turn does not pass": (EMPTY, of_parity(0), "deadlock, mbarrier"),
    "a wait that every turn passes": (EMPTY, of_parity(1), "mbarrier: 1 more arrive where 0 of 1 are pending"),
    "a slot is not released": (r"mbarrier\.arrive\.shared[^;]*;", "", "deadlock, mbarrier"),
    "a slot is released by two groups": (r"(mbarrier\.init[^;]*, )%\w+;", r"\g<1>2;", "deadlock, mbarrier"),
    "too few bytes": (r"(expect_tx[^;]*, )%\w+;", r"\g<1>8176;", "deadlock, mbarrier"),
    "too many bytes": (r"(expect_tx[^;]*, )%\w+;", r"\g<1>8208;", "deadlock, mbarrier"),
    "a barrier that nobody made": (r"mbarrier\.init[^;]*;", "", "mbarrier.init has not been executed"),
    "barriers that the copies do not see": (r"fence\.mbarrier_init[^;]*;", "", "no fence.mbarrier_init"),
    "barriers that other threads do not see": (r"bar\.sync[^;]*;", "", "no barrier since thread number 0 executed"),
    "slots released too early": (r"(wgmma\.wait_group\S+\s+)1;", r"\g<1>2;", "wgmma .* may still be reading this shared"),
    "results read too early": (r"(wgmma\.wait_group\S+\s+)0;", r"\g<1>1;", "wgmma in flight: it owns a register"),
    "no wait before a release": (r"wgmma\.wait_group\S+\s+1;", "", "wgmma .* may still be reading this shared memory"),
    "no wait before the end": (r"wgmma\.wait_group\S+\s+0;", "", "wgmma in flight: it owns a register"),
    "no fence before products": (r"wgmma\.fence[^;]*;", "", "no wgmma.fence before the first wgmma"),
    "products that are not committed": (r"wgmma\.commit[^;]*;", "", "may still be reading"),
    "another step along the depth": (r"(add\.s64 right, %\w+, )(2);", lambda found: found[1] + "4;", None),
    "another distance of rows": (DESCRIPTOR, plus(-32 << 32), None),
    "no swizzle": (DESCRIPTOR, plus(-1 << 62), None),
    "rows for columns": (r"(bulk\.tensor[^{]*\{)(%\w+), (%\w+)", r"\1\3, \2", None),
}
TESTED = r"mbarrier\.test_wait\.parity\S+\s+(%p\d+), [^;]*;"
EVERYWHERE = ("another distance of rows", "no swizzle", "a wait that the first turn does not pass")
EVERYWHERE += ("barriers that the copies do not see", "a wait that every turn passes")


@pytest.fixture(scope="module")
def long_product() -> tuple[Program, Artifact]:
    """Sixteen turns of rings with six slots."""
    program = product(64, 17, 64, 1000)
    return program, compiled(program)


def edited(artifact: Artifact, kernel: str, pattern: str, new: str | Callable[[re.Match[str]], str], count: int) -> Artifact:
    text, found = re.subn(pattern, new, artifact.files[kernel].decode(), count=count)
    assert found
    return replace(artifact, files={**artifact.files, kernel: text.encode()})


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(long_product: tuple[Program, Artifact], name: str) -> None:
    program, artifact = long_product
    pattern, new, message = MISTAKES[name]
    broken = edited(artifact, *artifact.files, pattern, new, 0 if name in EVERYWHERE else 1)
    if message is None:
        got = simulate(program, broken)["y"]
        with pytest.raises(AssertionError, match="elements are wrong"):
            check_product(got, program.inputs["x"], program.inputs["w"], "f32")
    else:
        with pytest.raises(Fault, match=message):
            simulate(program, broken)


@pytest.mark.parametrize("width", [64, 128])
def test_a_slot_that_is_taken_for_full_is_found(width: int) -> None:
    """As if what a turn asks for, for the next one, had always come."""
    program = attention(1, 1, width, 600, None, "bf16", "f32", capacity=600)
    artifact = compiled(program)
    broken = edited(artifact, *artifact.files, TESTED, r"setp.eq.u32 \1, 0, 0;", 0)
    with pytest.raises(Fault, match="bulk copy in flight"):
        simulate(program, broken)


def test_a_fetch_that_does_not_wait_for_the_kernel_before_is_found() -> None:
    program = recorded(lambda p: p.output("y", projection(p, projection(p, rows(p)).cast("bf16"), "w2", 72)))
    artifact = compiled(program)
    (_, _), (last, _) = artifact.manifest.entries["main"].launches
    broken = edited(artifact, artifact.manifest.kernels[last].file, r"griddepcontrol\.wait;", "", 0)
    with pytest.raises(Fault, match=r"griddepcontrol\.wait"):
        simulate(program, broken)


@pytest.mark.parametrize(("queries", "target", "launches"), [
    (1, "sm_90a", 1), (0, "sm_90a", 1), (1, "sm_80", 3), (0, "sm_80", 1)])
def test_attention_with_a_mask_in_memory(queries: int, target: str, launches: int) -> None:
    """A mask varies along the keys, and not along the head. No `queries`: any number."""
    program = Program(Graph({"new": (1, 70), "keys": (1, 130)}), symbols={"new": 45, "keys": 101})
    with program.graph.entry("main"):
        new, keys, rng = queries or program.graph.symbol("new"), program.graph.symbol("keys"), np.random.default_rng(0)
        shapes = {"q": (new, 2, 64), "k": (2, keys, 64), "v": (2, keys, 64), "mask": (new, keys)}
        used = {"q": (queries or 45, 2, 64), "k": (2, 101, 64), "v": (2, 101, 64), "mask": (queries or 45, 101)}
        q, k, v, mask = (program.input(n, shapes[n], "f32" if n == "mask" else "bf16", rng.standard_normal(used[n]))
                         for n in shapes)
        scores = q.permute(1, 0, 2).unsqueeze(2).mul(k.unsqueeze(1), "f32").sum(-1) * 0.125 + mask.unsqueeze(0)
        shares = scores.softmax(-1).cast("bf16").permute(1, 0, 2).unsqueeze(2)
        program.output("y", shares.mul(v.permute(0, 2, 1).unsqueeze(0), "f32").sum(-1))
    artifact = compiled(program, target)
    assert len(artifact.manifest.entries["main"].launches) == launches
    got = simulate(program, artifact)["y"]
    x = {n: program.inputs[n].astype(np.float64) for n in shapes}
    scores64 = np.einsum("shd,htd->hst", x["q"], x["k"]) * 0.125 + x["mask"]
    weights = np.exp(scores64 - scores64.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    size = np.einsum("hst,htd->shd", weights, abs(x["v"]))
    assert (abs(got - np.einsum("hst,htd->shd", weights, x["v"])) <= 2.0**-7 * size).all()
