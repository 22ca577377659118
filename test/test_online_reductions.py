"""Attention as one derived loop: the same numbers as by three kernels, on the CPU, where no GPU is needed to see it."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.frontend import nn
from tilec.frontend.tensor import Graph
from tilec.pipelines import pipeline
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.cpu import CpuProgram

LENGTH = 64


def attend(past: int, heads: int, kv_heads: int, width: int) -> tuple[int, np.ndarray]:
    """(launches, result) of one query over past + 1 keys; the cache beyond them is poisoned."""
    graph = Graph({"past": (0, LENGTH - 1)})
    with graph.entry("main"):
        q = graph.input("q", (1, heads, width), "f32")
        keys, values = (graph.input(n, (kv_heads, LENGTH, width), "f32") for n in ("keys", "values"))
        total = graph.symbol("past") + 1
        graph.output("y", nn.attention(q, keys[:, :total], values[:, :total], graph.symbol("past")))
    artifact = compile_module(graph.module, find_target("cpu"), {})
    program = CpuProgram(artifact, [], 1)
    rng = np.random.default_rng(past)
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in (
        ("q", (1, heads, width)), ("keys", (kv_heads, LENGTH, width)), ("values", (kv_heads, LENGTH, width)))}
    given["keys"][:, past + 1:] = given["values"][:, past + 1:] = np.nan
    result = np.array(program.run("main", given, {"past": past})["y"])
    program.close()
    return len(artifact.manifest.entries["main"].launches), result


@pytest.mark.parametrize("past", [0, 1, 30, LENGTH - 1])
@pytest.mark.parametrize("shape", [(4, 2, 16), (9, 3, 32), (2, 2, 20), (8, 1, 64)], ids=str)
def test_one_loop_gives_what_three_kernels_give(monkeypatch: pytest.MonkeyPatch, past: int,
                                                shape: tuple[int, int, int]) -> None:
    launches, apart = attend(past, *shape)
    assert launches == 3
    monkeypatch.setattr(pipeline, "primop_pipeline", lambda target: pipeline.PRIMOP)
    launches, together = attend(past, *shape)
    assert launches == 1
    np.testing.assert_allclose(together, apart, rtol=1e-5, atol=1e-6)


def test_scores_of_minus_infinity_throughout_give_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that may see no key: softmax's rule for an empty row survives the rewrite."""
    monkeypatch.setattr(pipeline, "primop_pipeline", lambda target: pipeline.PRIMOP)
    graph = Graph({"n": (1, 24)})
    with graph.entry("main"):
        n = graph.symbol("n")
        q, keys, values = (graph.input(name, s, "f32") for name, s in (("q", (1, 16)), ("k", (n, 16)), ("v", (n, 16))))
        scores = q.unsqueeze(1).mul(keys).sum(-1) + graph.constant(-np.inf, "f32")
        graph.output("y", scores.softmax(-1).unsqueeze(1).mul(values.transpose(0, 1)).sum(-1))
    artifact = compile_module(graph.module, find_target("cpu"), {})
    assert len(artifact.manifest.entries["main"].launches) == 1
    program = CpuProgram(artifact, [], 1)
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("q", (1, 16)), ("k", (24, 16)), ("v", (24, 16)))}
    assert not program.run("main", given, {"n": 24})["y"].any()


@pytest.mark.parametrize("kept", ["scores", "shares"])
def test_what_is_a_result_as_well_is_made_apart(monkeypatch: pytest.MonkeyPatch, kept: str) -> None:
    """One loop would keep neither scores nor shares."""
    monkeypatch.setattr(pipeline, "primop_pipeline", lambda target: pipeline.PRIMOP)
    graph = Graph({"n": (1, 24)})
    with graph.entry("main"):
        n = graph.symbol("n")
        q, keys, values = (graph.input(name, s, "f32") for name, s in (("q", (1, 16)), ("k", (n, 16)), ("v", (n, 16))))
        scores = q @ keys.transpose(0, 1)
        shares = scores.softmax(-1)
        graph.output("y", shares @ values)
        graph.output("kept", scores if kept == "scores" else shares * 2.0)
    program = CpuProgram(compile_module(graph.module, find_target("cpu"), {}), [], 1)
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("q", (1, 16)), ("k", (24, 16)), ("v", (24, 16)))}
    results = program.run("main", given, {"n": 24})
    want = given["q"] @ given["k"].T
    powers = np.exp(want - want.max())
    np.testing.assert_allclose(results["y"], powers / powers.sum() @ given["v"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results["kept"], want if kept == "scores" else 2 * powers / powers.sum(), rtol=1e-4, atol=1e-5)
    program.close()
