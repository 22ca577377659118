"""Products and attention as somebody may write them: operands that coincide, lie askew, are computed, reversed or masked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilec.frontend import nn
from tilec.frontend.tensor import Tensor

from .programs import Program
from .test_tensor_cores import compiled, normal, recorded, seq, simulate


def keys(p: Program, name: str, width: int = 64) -> Tensor:
    return normal(p, name, (2, seq(p), width))


def mixed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / 8) v of q (S, 2, 64) and k, v (2, S, 64)."""
    scores = q.permute(1, 0, 2).unsqueeze(2).mul(k.unsqueeze(1), "f32").sum(-1) * 0.125
    shares = scores.softmax(-1).cast("bf16").permute(1, 0, 2).unsqueeze(2)
    return shares.mul(v.permute(0, 2, 1).unsqueeze(0), "f32").sum(-1)


def queries(p: Program, width: int = 64) -> Tensor:
    return normal(p, "q", (seq(p), 2, width))


def rotated(p: Program) -> Tensor:
    angles = [normal(p, n, (seq(p), 32), "f32") for n in ("cos", "sin")]
    return nn.rotate(mixed(queries(p), keys(p, "k"), keys(p, "v")), *angles)


def both_ways(y: Tensor) -> Tensor:
    return y + y.flip(1)


ATTENTION: dict[str, tuple[Callable[[Program], Tensor], int]] = {  # and in how many kernels
    "keys that are the values": (lambda p: mixed(queries(p), k := keys(p, "k"), k), 1),
    "keys that begin between 16 bytes": (lambda p: mixed(queries(p), keys(p, "k", 68)[:, :, 4:], keys(p, "v")), 3),
    "values in rows of no 16 bytes": (lambda p: mixed(queries(p), keys(p, "k"), keys(p, "v", 68)[:, :, :64]), 3),
    "queries at odd places": (lambda p: mixed(queries(p, 80)[:, :, 5:69], keys(p, "k"), keys(p, "v")), 3),
    "values as (heads, width, keys)": (
        lambda p: mixed(queries(p), keys(p, "k"), normal(p, "v", (2, 64, seq(p))).permute(0, 2, 1)), 3),
    "keys as (heads, width, keys)": (
        lambda p: mixed(queries(p), normal(p, "k", (2, 64, seq(p))).permute(0, 2, 1), keys(p, "v")), 3),
    "values that are computed": (lambda p: mixed(queries(p), keys(p, "k"), both_ways(keys(p, "v"))), 2),
    "keys of which some do not exist": (
        lambda p: mixed(queries(p), keys(p, "k").where_index(seq(p) - 3), keys(p, "v")), 0),
    "a result that is rotated": (rotated, 2),
    "a result that is read both ways": (lambda p: both_ways(mixed(queries(p), keys(p, "k"), keys(p, "v"))), 2),
    "queries from the last to the first": (lambda p: mixed(queries(p).flip(0), keys(p, "k"), keys(p, "v")), 1),
    "keys from the last to the first": (lambda p: mixed(queries(p), keys(p, "k").flip(1), keys(p, "v")), 1),
}


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_any_form(name: str, target: str) -> None:
    form, kernels = ATTENTION[name]
    program = recorded(lambda p: p.output("y", form(p)), 100, 40)
    expected = program.expected()
    artifact = compiled(program, target)
    assert len(artifact.manifest.entries["main"].launches) == kernels or not kernels
    expected.check(simulate(program, artifact))


PRODUCTS: dict[str, Callable[[Program], Tensor]] = {
    "few rows that are read both ways": lambda p: (y := nn.linear(
        normal(p, "x", (4, 256)), normal(p, "w", (128, 256), "bf16", "weight"))) + y.flip(0),
    "rows from the last to the first": lambda p: nn.linear(
        normal(p, "x", (seq(p), 256)).flip(0), normal(p, "w", (128, 256), "bf16", "weight")),
}


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_any_form(name: str, target: str) -> None:
    program = recorded(lambda p: p.output("y", PRODUCTS[name](p)), 100, 40)
    expected = program.expected()
    expected.check(simulate(program, compiled(program, target)))
