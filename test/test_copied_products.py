"""Products and attention where all threads copy their operands: every GPU but Hopper, in the PTX interpreter.

cp.async lands as late as its waits allow, and past the lengths in use all is NaN. Planted mistakes show what would be found.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilec.frontend import nn
from tilec.frontend.tensor import Graph, Tensor
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import Artifact

from .programs import Program, examples
from .ptx import Fault
from .test_sliding_windows import attended
from .test_tensor_cores import (
    EPILOGUES,
    check_product,
    compiled,
    edited,
    gate_and_up_of_a_model,
    normal,
    product,
    projection,
    recorded,
    rows,
    seq,
    simulate,
    text_of,
)

COPY, READ, PRODUCT = "cp.async.cg.shared.global", "ldmatrix.sync", "mma.sync"
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_100a", "sm_120a")


def is_copied(artifact: Artifact) -> bool:
    text = text_of(artifact)
    assert (COPY in text) == ("cp.async.commit_group" in text) == ("cp.async.wait_group" in text)
    return COPY in text and (READ in text) == (PRODUCT in text)


@pytest.mark.parametrize(
    ("capacity", "used", "n", "k", "dtype", "result"),
    [
        (64, 17, 64, 128, "bf16", "f32"),
        (64, 64, 64, 64, "f16", "f16"),  # one step
        (128, 40, 129, 200, "f16", "f16"),
        (200, 129, 200, 104, "bf16", "bf16"),
        (256, 200, 64, 1000, "bf16", "f32"),
        (64, 1, 999, 136, "bf16", "f32"),
        (4096, 150, 512, 264, "bf16", "f32"),
        (16384, 129, 520, 136, "bf16", "bf16"),  # tiles of 128 x 256
        (256, 200, 128, 128, "f32", "f32"),
        (999, 999, 40, 72, "f32", "f32"),
        (2048, 129, 520, 136, "f32", "f32"),
    ],
)
def test_a_product_of_ragged_sizes_is_that_of_float64(
    capacity: int, used: int, n: int, k: int, dtype: str, result: str
) -> None:
    program = product(capacity, used, n, k, dtype, result)
    artifact = compiled(program, "sm_80")
    assert is_copied(artifact)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], result)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_every_generation_copies(target: str, dtype: str) -> None:
    program = product(128, 100, 136, 328, dtype)
    artifact = compiled(program, target)
    assert is_copied(artifact)
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


def product_of(p: Program, x: Tensor, w: Tensor) -> None:
    """x (..., M, K) and w (..., K, N)"""
    p.output("y", x.unsqueeze(-2).mul(w.transpose(-2, -1).unsqueeze(-3), "f32").sum(-1))


LAYOUTS: dict[str, Callable[[Program, str], None]] = {  # what lies as it comes in neither operand or in one
    "weights as (k, n)": lambda p, t: product_of(p, normal(p, "x", (seq(p), 200), t), normal(p, "w", (200, 136), t, "weight")),
    "rows as (k, m)": lambda p, t: product_of(
        p, normal(p, "x", (200, seq(p)), t).transpose(0, 1), normal(p, "w", (200, 136), t, "weight")),
    "several": lambda p, t: product_of(p, normal(p, "x", (3, seq(p), 136), t), normal(p, "w", (3, 136, 72), t, "weight")),
    "a depth of any length": lambda p, t: product_of(p, normal(p, "x", (seq(p), seq(p)), t), normal(p, "w", (seq(p), 72), t)),
    "a part of each row": lambda p, t: product_of(
        p, normal(p, "x", (seq(p), 264), t)[:, 16:216], normal(p, "w", (200, 136), t, "weight")),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(("dtype", "target"), [("bf16", "sm_80"), ("f16", "sm_90a"), ("f32", "sm_89"), ("f32", "sm_90a")])
def test_operands_lie_in_any_order(name: str, dtype: str, target: str) -> None:
    """Also on Hopper, whose own products want an order, are they copied."""
    program = recorded(lambda p: LAYOUTS[name](p, dtype), 100, 77)
    expected = program.expected()
    artifact = compiled(program, target)
    assert (COPY in text_of(artifact) or "bulk.tensor" in text_of(artifact)) == (dtype != "f32" or "(k, m)" not in name)
    expected.check(simulate(program, artifact))


@pytest.mark.parametrize("record", EPILOGUES, ids=lambda record: record.__name__)
def test_epilogues_work_on_what_a_warp_holds(record: Callable[[Program], object]) -> None:
    program = recorded(record)
    expected = program.expected()
    artifact = compiled(program, "sm_80")
    assert is_copied(artifact)
    expected.check(simulate(program, artifact))


@examples(8)
@given(st.data())
def test_random_products_are_those_of_float64(data: st.DataObject) -> None:
    capacity = data.draw(st.integers(9, 300), "capacity")
    used = data.draw(st.integers(1, capacity), "used")
    n, k = data.draw(st.integers(64, 300), "n"), 8 * data.draw(st.integers(9, 90), "k / 8")
    dtype = data.draw(st.sampled_from(["bf16", "f16", "f32"]))
    program = product(capacity, used, n, k, dtype, dtype)
    artifact = compiled(program, data.draw(st.sampled_from(TARGETS), "target"))
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], dtype)


def test_results_do_not_depend_on_how_far_fetches_run_ahead() -> None:
    program = product(64, 33, 72, 520)
    ahead = compiled(program, "sm_80")
    again = product(64, 33, 72, 520)
    late = compile_module(again.graph.module, find_target("sm_80"), {}, leave_out=["tile-software-pipeline"])
    assert "cp.async.wait_group \t0" in text_of(late) and ahead.files != late.files
    np.testing.assert_array_equal(simulate(program, ahead)["y"], simulate(again, late)["y"])


# --- Attention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "used", "past", "target"),
    [
        (6, 2, 64, 130, 5, "sm_80"),
        (2, 1, 64, 1, 0, "sm_80"),
        (2, 2, 128, 129, 33, "sm_80"),
        (2, 1, 128, 160, 100, "sm_86"),
        (2, 1, 256, 70, 3, "sm_89"),
        (1, 1, 192, 40, 0, "sm_100a"),
        (2, 1, 64, 17, 90, "sm_120a"),
        (4, 2, 96, 129, 40, "sm_80"),
        (2, 1, 96, 160, 100, "sm_80"),  # to the end of the memory
        (3, 1, 96, 1, 0, "sm_86"),
        (2, 1, 32, 70, 3, "sm_80"),
        (2, 2, 80, 130, 100, "sm_89"),
        (1, 1, 160, 40, 9, "sm_120a"),
        (1, 1, 240, 17, 50, "sm_80"),
    ],
)
def test_attention_of_many_queries_is_one_kernel(
    heads: int, kv_heads: int, width: int, used: int, past: int, target: str
) -> None:
    """Probabilities are rounded to the type of the values, so each result may be off by that part of what it adds up."""
    program = Program(Graph({"past": (0, 100), "seq": (1, 160)}), symbols={"past": past, "seq": used})
    with program.graph.entry("main"):
        before, keys = program.graph.symbol("past"), (kv_heads, 260, width)
        q = normal(program, "q", (seq(program), heads, width))
        k, v = (normal(program, n, keys, kind="state")[:, : before + seq(program)] for n in ("keys", "values"))
        program.output("y", nn.attention(q, k, v, before))
    for name in ("keys", "values"):
        program.inputs[name][:, past + used:] = np.nan
    artifact = compiled(program, target)
    assert is_copied(artifact) and PRODUCT in text_of(artifact)
    assert len(artifact.manifest.entries["main"].launches) == 1
    want, size = attended(*(program.inputs[n] for n in ("q", "keys", "values")), past, window=past + used)
    assert (abs(simulate(program, artifact)["y"] - want) <= 2.0**-7 * size).all()


# --- What cannot be copied -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "capacity", "n", "k"),
    [("rows at no multiple of 16 bytes", 64, 64, 100), ("few rows", 8, 64, 128), ("few columns", 64, 24, 128)],
)
def test_what_does_not_fit_16_bytes_or_a_tile_is_multiplied_without(why: str, capacity: int, n: int, k: int) -> None:
    program = product(capacity, 7, n, k)
    artifact = compiled(program, "sm_80")
    assert COPY not in text_of(artifact), why
    check_product(simulate(program, artifact)["y"], program.inputs["x"], program.inputs["w"], "f32")


# --- The assembler's opinion -----------------------------------------------------------------------------------------

ptxas = shutil.which("ptxas")
ASSEMBLED: dict[str, Callable[[], Program]] = {
    "64 x 32": lambda: product(64, 1, 64, 136),
    "a long loop": lambda: product(4096, 1, 4096, 4096, "bf16", "bf16"),
    "f32": lambda: product(4096, 1, 4096, 4096, "f32", "f32"),
    "two products": lambda: recorded(gate_and_up_of_a_model, 16384),
    "a residual": lambda: recorded(lambda p: p.output(
        "y", normal(p, "r", (seq(p), 200), "f32") + projection(p, rows(p), n=200)), 4096),
}


@pytest.mark.skipif(ptxas is None, reason="ptxas is not on the path")
@pytest.mark.parametrize("name", ASSEMBLED)
@pytest.mark.parametrize("target", ["sm_80", "sm_120a"])
def test_sums_stay_in_registers(name: str, target: str, tmp_path: Path) -> None:
    for file, code in compiled(ASSEMBLED[name](), target).files.items():
        (tmp_path / file).write_bytes(code)
        done = subprocess.run([ptxas, f"-arch={target}", "-v", file, "-o", "/dev/null"], cwd=tmp_path, capture_output=True,
                              text=True)  # fmt: skip
        told = done.stdout + done.stderr
        assert done.returncode == 0 and "0 bytes spill stores, 0 bytes spill loads" in told, told


# --- Planted mistakes ------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[str, str, str | None, int]] = {  # a pattern, what stands there instead, what is found, how often
    "no wait": (r"cp\.async\.wait_group[^;]*;", "", "cp.async in flight", 1),
    "a wait for one group too few": (r"(cp\.async\.wait_group\s+)2;", r"\g<1>3;", "cp.async in flight", 0),
    "no barrier after a wait": (r"bar\.sync[^;]*;", "", "race|no barrier", 0),
    "copies that are not committed": (r"cp\.async\.commit_group;", "", "cp.async in flight", 0),
    "what does not exist is copied": (r"(cp\.async\.cg[^;]*, 16), %r\d+;", r"\1;", "out of bounds", 0),
    "another place in the row": (r"xor\.b32(\s+%r\d+, %r\d+), 32;", r"xor.b32\1, 48;", None, 0),
    "columns for rows": (r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared", "ldmatrix.sync.aligned.m8n8.x4.trans.shared", None, 1),
}


@pytest.fixture(scope="module")
def long_product() -> tuple[Program, Artifact]:
    """Sixteen turns of rings with four slots."""
    program = product(64, 17, 64, 1000)
    return program, compiled(program, "sm_80")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(long_product: tuple[Program, Artifact], name: str) -> None:
    program, artifact = long_product
    pattern, new, message, count = MISTAKES[name]
    broken = edited(artifact, *artifact.files, pattern, new, count)
    if message is None:
        got = simulate(program, broken)["y"]
        with pytest.raises(AssertionError, match="elements are wrong"):
            check_product(got, program.inputs["x"], program.inputs["w"], "f32")
    else:
        with pytest.raises(Fault, match=message):
            simulate(program, broken)


def test_three_turns_are_fetched_before_the_loop(long_product: tuple[Program, Artifact]) -> None:
    text = text_of(long_product[1])
    assert len(re.findall(r"cp\.async\.commit_group", text)) == 4  # and one in each turn


def test_a_copy_that_does_not_wait_for_the_kernel_before_is_found() -> None:
    """Since Hopper a kernel starts before the one before it has ended."""
    program = recorded(lambda p: p.output("y", projection(p, projection(p, rows(p)).cast("bf16"), "w2", 72)))
    expected = program.expected()
    artifact = compiled(program, "sm_120a")
    (_, _), (last, _) = artifact.manifest.entries["main"].launches
    expected.check(simulate(program, artifact))
    broken = edited(artifact, artifact.manifest.kernels[last].file, r"griddepcontrol\.wait;", "", 0)
    with pytest.raises(Fault, match=r"griddepcontrol\.wait"):
        simulate(program, broken)
