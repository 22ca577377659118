"""The compiler's kernels whose blocks work in clusters, in the PTX interpreter: attention at decode, the choice of a token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilec.frontend.config import ModelConfig
from tilec.model_compiler import compile_model
from tilec.runtime import expressions

from .ptx import Fault, Memory, bf16_to_f32, f32_to_bf16, parse

RNG = np.random.default_rng(7)
Array = Any


def attention(
    dtype: str, context: int, head_dim: int, heads: int = 4, leave_out: tuple[str, ...] = ()
) -> tuple[str, str, int]:
    """The text and name of the compiler's attention at decode, and its blocks: a cluster for some query heads each."""
    config = ModelConfig(96, 64, 96, 2, heads, 2, head_dim, 1e-5, 1e4, context, True)
    artifact = compile_model(config, "sm_90a", dtype, context, leave_out=leave_out, entries=("decode",))
    (name,) = [each for each in artifact.manifest.kernels if each.startswith("decode_layer_attention")]
    return artifact.files[f"{name}.ptx"].decode(), name, expressions.evaluate(artifact.manifest.kernels[name].grid[0], {})


def attend(
    text: str, name: str, grid: int, dtype: str, context: int, head_dim: int, length: int, heads: int = 4
) -> tuple[Array, Array]:
    """What the kernel gives for a cache that is NaN beyond `length`, and what it should give."""
    encode = f32_to_bf16 if dtype == "bf16" else lambda x: x
    decode = bf16_to_f32 if dtype == "bf16" else lambda x: x
    query, keys, values = (
        encode(RNG.standard_normal((2, rows, head_dim)).astype("f4") * 2) for rows in (heads // 2, context, context)
    )
    keys[:, length:], values[:, length:] = (0xFFFF, 0xFFFF) if dtype == "bf16" else (np.nan, np.nan)
    memory = Memory()
    pointers = [memory.alloc(each) for each in (query, keys, values, query.nbytes, np.full(3, length - 1))]
    kernel = parse(text).kernel(name)
    row = query.itemsize * head_dim  # of this step: the kernel before may still be writing it, but not the rows before it
    new = [(p + (head * context + length - 1) * row, row) for p in pointers[1:3] for head in range(2)]
    report = kernel.launch(grid=grid, args=pointers, memory=memory, pending=[pointers[0], *new, pointers[3]])
    assert report.waited and report.launched_dependents
    query, keys, values = (decode(each).astype("f8") for each in (query, keys[:, :length], values[:, :length]))
    scores = np.einsum("hqd,htd->hqt", query, keys) / math.sqrt(head_dim)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hqt,htd->hqd", weights / weights.sum(-1, keepdims=True), values)
    return memory.read(pointers[3], (2, heads // 2, head_dim), "bf16" if dtype == "bf16" else "f4"), expected


@pytest.mark.parametrize(
    ("dtype", "context", "head_dim", "heads", "cluster", "lengths"),
    [
        ("f32", 64, 16, 4, 8, [1, 2, 33, 63, 64]),
        ("f32", 8192, 16, 4, 16, [1, 33, 63, 128, 129, 1000, 4095, 4096, 4097, 8192]),
        ("bf16", 2048, 64, 2, 8, [1, 33, 127, 512, 513, 1023, 1024, 1025, 2048]),
        # By tensor cores: queries that share their keys.
        ("bf16", 2048, 32, 8, 2, [1, 2, 16, 17, 512, 513, 2048]),
        ("bf16", 2048, 64, 4, 4, [1, 33, 63, 127, 512, 513, 1023, 1024, 1025, 2048]),
        ("bf16", 1024, 128, 8, 8, [1, 15, 16, 17, 511, 512, 513, 1024]),
    ],
)
def test_attention_over_a_cluster_is_that_of_numpy(
    dtype: str, context: int, head_dim: int, heads: int, cluster: int, lengths: list[int]
) -> None:
    text, name, grid = attention(dtype, context, head_dim, heads)
    assert f".reqnctapercluster {cluster}" in text and "ld.shared::cluster" in text
    assert ("mma.sync" in text) == (dtype == "bf16" and heads > 2)
    for length in lengths:
        got, expected = attend(text, name, grid, dtype, context, head_dim, length, heads)
        tolerance = 1e-2 if dtype == "bf16" else 2e-5
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=f"length {length}")


@pytest.mark.parametrize(("heads", "loads"), [(2, 8), (4, 24)])
def test_keys_that_were_there_before_are_read_before_the_wait(heads: int, loads: int) -> None:
    """As many as two turns take, the one of what is left and the first whole one, none of them where the cache is empty.

    The new one is read after the wait, into the same registers.
    """
    early, late = (attention("bf16", 2048, 64, heads, leave_out=left) for left in ((), ("primop-held-rows",)))
    before, after = (text.split("griddepcontrol.wait")[0].count("ld.global.v") for text, *_ in (early, late))
    assert before == 2 * loads and after == 0  # of four keys and values of a thread, or of a warp's 32 in 16 and 8 bytes
    assert early[0].split("griddepcontrol.wait")[1].count("ld.relaxed.gpu.global.v") == loads
    for length in (1, 2, 512, 513, 1700):
        got, expected = attend(*early, "bf16", 2048, 64, length, heads)
        np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-2, err_msg=f"length {length}")


def test_every_cluster_barrier_of_the_compilers_attention_is_needed() -> None:
    text, name, grid = attention("f32", 64, 16)
    fence = "\tfence.release.sync_restrict::shared::cta.cluster;\n"
    arrive, wait = (f"\tbarrier.cluster.{half}.aligned;\n" for half in ("arrive.relaxed", "wait"))
    assert text.count(fence) == text.count(arrive) == text.count(wait) == 2  # before others' memory is read, and at the end
    for number in (0, 1):
        for removed in ((fence,), (arrive, wait)):
            left = text
            for line in removed:
                parts = left.split(line)
                left = line.join(parts[: number + 1]) + line.join(parts[number + 1 :])
            with pytest.raises(Fault, match=r"data race|never written|has exited|this block exits|may not have started"):
                attend(left, name, grid, "f32", 64, 16, 33)


def test_the_choice_of_a_token_by_a_cluster_is_the_first_of_the_largest() -> None:
    count = 128256
    config = ModelConfig(count, 64, 96, 1, 4, 2, 16, 1e-5, 1e4, 64, True)
    text = compile_model(config, "sm_90a", "bf16", 64, entries=("decode",)).files["decode_head_argmax.ptx"].decode()
    assert ".reqnctapercluster 8" in text
    kernel = parse(text).kernel("decode_head_argmax")
    for largest in ([count - 1], [0], [5, 4], [count // 3, count // 2], list(range(count))):
        logits = RNG.uniform(-9, 0, count).astype("f4")
        logits[largest] = 1
        memory = Memory()
        pointers = [memory.alloc(each) for each in (logits, 4, 64)]
        kernel.launch(grid=8, args=pointers, memory=memory, pending=pointers)
        assert memory.read(pointers[1], 1, "i4") == [min(largest)]
