"""Products of a matrix with one vector by each warp's tensor core, in the PTX interpreter, against float64 and the reference.

Memory that no kernel has written is NaN, and so is what lies beside the operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.frontend import nn
from tilec.frontend.tensor import Graph, Tensor
from tilec.pipelines.cost import gpu
from tilec.pipelines.cost.vector_tiles import VectorTiles
from tilec.runtime.artifact import Artifact

from .programs import Program, examples
from .test_tensor_cores import check_product, compiled, normal, projection, simulate, text_of

MMA = r"\smma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(bf16|f16)\.\1\.f32 "


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, VectorTiles | None], None]:
    """Lets the cost model read so many rows at once with each warp, and know one block only."""

    def force(rows: int, tiles: VectorTiles | None = None) -> None:
        monkeypatch.setattr(gpu, "CORE_ROWS", rows)
        if tiles:
            monkeypatch.setattr(gpu, "vector_tiles", lambda *sizes: [tiles])

    return force


def recorded(record: Callable[[Program], object]) -> Program:
    program = Program(Graph({}), symbols={})
    with program.graph.entry("main"):
        record(program)
    return program


def product(n: int, k: int, dtype: str = "bf16", matrix_first: bool = False) -> Program:
    def record(p: Program) -> None:
        x, w = normal(p, "x", (1, k), dtype), normal(p, "w", (n, k), dtype, "weight")
        p.output("y", w.mul(x, "f32").sum(-1).reshape(1, n) if matrix_first else nn.linear(x, w))

    return recorded(record)


def check(program: Program, artifact: Artifact) -> None:
    assert re.search(MMA, text_of(artifact))
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(("rows", "dtype", "matrix_first"), [(4, "bf16", False), (4, "f16", True), (2, "bf16", True)])
def test_a_product_is_that_of_float64_on_any_number_of_lanes(
    forced: Callable[..., None], target: str, rows: int, dtype: str, matrix_first: bool
) -> None:
    """Blocks of 8 rows by two warps, whose lanes have 4 or 2 of them at once; the last block is not full."""
    forced(rows, VectorTiles(4, 8, 1, 64, 1))
    program = product(21, 256, dtype, matrix_first)
    artifact = compiled(program, target)
    assert len(re.findall(MMA, text_of(artifact))) % 4 == 0
    check(program, artifact)


@pytest.mark.parametrize(("n", "k", "tiles"), [
    (8, 200, VectorTiles(4, 8, 1, 64, 1)),  # a depth that ends inside a load of all lanes
    (5, 8, VectorTiles(1, 8, 1, 32, 1)),  # less than one
    (33, 264, VectorTiles(2, 32, 4, 128, 1)),  # several rows of each lane
    (16, 128, VectorTiles(16, 1, 1, 32, 1)),  # 32 rows by one warp
    (1, 512, VectorTiles(1, 64, 2, 64, 1)),  # one row alone, of two in a block
])
def test_a_product_of_ragged_sizes_is_that_of_float64(forced: Callable[..., None], n: int, k: int, tiles: VectorTiles) -> None:
    forced(4, tiles)
    program = product(n, k)
    if n == 1:  # then neither operand is a matrix
        assert not re.search(MMA, text_of(compiled(program)))
        return
    check(program, compiled(program))


@examples(10)
@given(st.data())
def test_random_products_are_those_of_float64(data: st.DataObject) -> None:
    """As the cost model would have them: by tensor cores where the depth is a multiple of 512."""
    n, k = data.draw(st.integers(2, 70), "n"), 8 * data.draw(st.integers(1, 90) | st.just(64), "k / 8")
    dtype = data.draw(st.sampled_from(["bf16", "f16"]), "dtype")
    target = data.draw(st.sampled_from(["sm_90a", "sm_80"]), "target")
    program = product(n, k, dtype, data.draw(st.booleans(), "the matrix first"))
    artifact = compiled(program, target)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


# --- What else a kernel computes -------------------------------------------------------------------------------------


def vector(p: Program, k: int = 256) -> Tensor:
    return normal(p, "x", (1, k))


def residual(p: Program) -> None:
    p.output("y", normal(p, "r", (1, 96), "f32") + projection(p, vector(p)))


def gate_and_up(p: Program) -> None:
    x = vector(p)
    p.output("y", (nn.silu(projection(p, x, "gate", 104)) * projection(p, x, "up", 104)).cast("bf16"))


def rotary(p: Program) -> None:
    heads = projection(p, vector(p), n=128).reshape(1, 2, 64)
    p.output("y", nn.rotate(heads, *(normal(p, name, (1, 32), "f32") for name in ("cos", "sin"))))


def norm(p: Program) -> None:
    """It is made by all threads of a block, in shared memory."""
    x = nn.rms_norm(normal(p, "x", (1, 256), "f32"), normal(p, "g", (256,), "f32", "weight"), 1e-5, "bf16")
    p.output("y", projection(p, x))


@pytest.mark.parametrize("rows", [4, 2])
@pytest.mark.parametrize("record", [residual, gate_and_up, rotary, norm], ids=lambda record: record.__name__)
def test_an_epilogue_is_computed_where_the_product_is(
    forced: Callable[..., None], record: Callable[[Program], object], rows: int
) -> None:
    forced(rows, VectorTiles(4, 8, 1, 64, 1))
    program = recorded(record)
    expected = program.expected()
    artifact = compiled(program)
    assert len(artifact.manifest.entries["main"].launches) == 1 and re.search(MMA, text_of(artifact))
    expected.check(simulate(program, artifact))


def test_other_vectors_are_multiplied_by_threads(forced: Callable[..., None]) -> None:
    """Of f32, blocks of one long row, and what cannot be read in 16 bytes."""
    for program in (product(32, 64, "f32"), product(4, 8192), product(8, 124)):
        if program.inputs["x"].shape[1] == 124:
            forced(4, VectorTiles(4, 8, 1, 64, 1))
        artifact = compiled(program)
        assert not re.search(MMA, text_of(artifact))
        check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


def test_equal_inputs_give_equal_bits() -> None:
    program = product(40, 512)
    artifact = compiled(program)
    assert re.search(MMA, text_of(artifact))
    first, again = (simulate(program, artifact)["y"] for _ in range(2))
    assert np.array_equal(first.view(np.uint32), again.view(np.uint32))
