"""Attention over a sliding window against float64, on the CPU and in the PTX interpreter.

What no query may see is poisoned: with numbers that would show where three kernels compute the scores of the whole cache, with
NaN past the length, and with NaN before the windows where one loop begins behind that.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tilec.frontend import nn
from tilec.frontend.tensor import Graph, ShapeError
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import Artifact
from tilec.runtime.cpu import CpuProgram

from . import reference
from .gpu_simulator import SimulatedGpu

Array = reference.Array
RNG = np.random.default_rng(5)


@dataclass(frozen=True)
class Attention:
    """One compiled program: `queries` is the most of them, 1 for a program of exactly one; `capacity` that of the cache.

    A window of None is none; what is in `leave_out` are passes.
    """

    target: str
    dtype: str
    window: int | None
    queries: int
    capacity: int
    heads: int = 4
    kv_heads: int = 2
    width: int = 64
    leave_out: tuple[str, ...] = ()

    def artifact(self) -> Artifact:
        return compiled(self)

    def record(self) -> Graph:
        graph = Graph({"past": (0, self.capacity - 1), **({"seq": (1, self.queries)} if self.queries > 1 else {})})
        with graph.entry("main"):
            past, new = graph.symbol("past"), graph.symbol("seq") if self.queries > 1 else 1
            q = graph.input("q", (new, self.heads, self.width), self.dtype)
            shape = (self.kv_heads, self.capacity, self.width)
            keys, values = (graph.input(n, shape, self.dtype, kind="state")[:, : past + new] for n in ("keys", "values"))
            graph.output("y", nn.attention(q, keys, values, past, self.window))
        return graph

    @property
    def launches(self) -> int:
        return len(self.artifact().manifest.entries["main"].launches)

    def run(self, q: Array, keys: Array, values: Array, past: int) -> Array:
        held = {n: reference.to_memory(a, self.dtype) for n, a in (("q", q), ("keys", keys), ("values", values))}
        states, symbols = {n: held[n] for n in ("keys", "values")}, {"past": past, "seq": len(q)}
        if self.target.startswith("sm_"):
            return SimulatedGpu(self.artifact(), {}, states, apart=True).run("main", {"q": held["q"]}, symbols)["y"]
        program = CpuProgram(self.artifact(), [], 1)
        for name, state in states.items():
            program.state(name)[...] = state
        result = np.array(program.run("main", {"q": held["q"]}, symbols)["y"])
        program.close()
        return result

    def inputs(self, new: int) -> tuple[Array, Array, Array]:
        shapes = [(new, self.heads, self.width), *[(self.kv_heads, self.capacity, self.width)] * 2]
        q, keys, values = (reference.rounded(RNG.standard_normal(s), self.dtype) for s in shapes)
        return q, keys, values

    def check(self, past: int, new: int = 1) -> None:
        q, keys, values = self.inputs(new)
        window = self.window or past + new
        want, size = attended(q, keys, values, past, window)
        first = max(past - window + 1, 0)
        before = np.nan if self.launches == 1 else 1e4
        for memory in (keys, values):
            memory[:, :first], memory[:, past + new:] = before, np.nan
        error = abs(self.run(q, keys, values, past) - want)
        assert (error <= (2.0**-17 if self.dtype == "f32" else 2.0**-7) * size).all(), f"past={past}, new={new}"


@functools.cache
def compiled(attention: Attention) -> Artifact:
    return compile_module(attention.record().module, find_target(attention.target), {}, leave_out=attention.leave_out)


def attended(q: Array, keys: Array, values: Array, past: int, window: int) -> tuple[Array, Array]:
    """The result in float64, and what it would be if all values were positive."""
    new, heads, width = q.shape
    q, keys, values = (a.astype(np.float64) for a in (q, keys, values))
    keys, values = (a[:, : past + new].repeat(heads // len(a), axis=0) for a in (keys, values))
    scores = q.swapaxes(0, 1) @ keys.swapaxes(1, 2) * width**-0.5
    query, key = past + np.arange(new)[:, None], np.arange(past + new)
    scores[:, (key > query) | (key <= query - window)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ values).swapaxes(0, 1), (weights @ abs(values)).swapaxes(0, 1)


def lengths(window: int, capacity: int) -> list[int]:
    """Of the cache with the query: at the window's edges, at the end, and where nothing is a multiple of anything."""
    odd = [window + 37, 2 * window + 131, capacity - 11, capacity]
    return sorted({n for n in (1, window - 1, window, window + 1, *odd) if 1 <= n <= capacity})


ONE = {
    "sm_90a, less than a tile": Attention("sm_90a", "f32", 5, 1, 64, width=16),
    "sm_90a, itself alone": Attention("sm_90a", "f32", 1, 1, 64, width=16),
    "sm_90a, tiles of 2048 in f32": Attention("sm_90a", "f32", 2500, 1, 8192, width=16),
    "sm_90a, a window below a tile in a long cache": Attention("sm_90a", "f32", 300, 1, 4096, width=16),
    "sm_90a, tiles of 1024 in bf16": Attention("sm_90a", "bf16", 1100, 1, 3000),
    "sm_90a, a window of one tile": Attention("sm_90a", "bf16", 1024, 1, 2048),
    "sm_90a, one key head": Attention("sm_90a", "bf16", 40, 1, 200, 5, 1),
    "sm_90a, seven heads that share their keys": Attention("sm_90a", "bf16", 150, 1, 300, 105, 15),
    "sm_90a, five heads that share their keys in f32": Attention("sm_90a", "f32", 100, 1, 200, 75, 15, 16),
    "sm_90a, a tensor core a warp": Attention("sm_90a", "bf16", 150, 1, 400, 96, 32, 128),
    "sm_90a, a tensor core a warp for seven heads in f16": Attention("sm_90a", "f16", 40, 1, 200, 224, 32, 32),
    "sm_80": Attention("sm_80", "bf16", 40, 1, 160),
    "cpu": Attention("cpu", "f32", 17, 1, 160, width=16),
    "cpu in bf16": Attention("cpu", "bf16", 64, 1, 200),
}


@pytest.mark.parametrize("name", ONE)
def test_one_query_sees_its_window_and_nothing_else(name: str) -> None:
    attention = ONE[name]
    assert attention.launches == (1 if "sm_90a" in name else 3)
    if "tensor core" in name:
        assert all(b"mma.sync" in text for text in attention.artifact().files.values())
    for length in lengths(attention.window, attention.capacity):
        attention.check(length - 1)


@pytest.mark.parametrize(("heads", "kv_heads", "together"),
                         [(105, 15, 7), (75, 15, 5), (64, 16, 4), (96, 16, 3), (165, 15, 1)])
def test_heads_of_a_group_are_one_program_that_reads_each_key_once(heads: int, kv_heads: int, together: int) -> None:
    """All of a group where they are few or no smaller number divides them."""
    (kernel,) = Attention("sm_90a", "bf16", None, 1, 200, heads, kv_heads).artifact().manifest.kernels.values()
    assert kernel.grid[0].startswith(f"({heads // together}) * ")  # blocks of a cluster


@pytest.mark.parametrize(("new", "heads", "kv_heads", "programs"),
                         [(3, 35, 5, (5, 3)), (5, 30, 30, (30, 1)), (7, 2, 1, (2, 7))])
def test_a_fixed_number_of_queries_shares_keys_along_one_axis(
    new: int, heads: int, kv_heads: int, programs: tuple[int, int]
) -> None:
    """Heads of a group, or else queries one after the other, which see keys that differ."""
    graph, shape = Graph({"past": (0, 60 - new)}), (kv_heads, 60, 16)
    with graph.entry("main"):
        past, q = graph.symbol("past"), graph.input("q", (new, heads, 16), "f32")
        keys, values = (graph.input(n, shape, "f32", kind="state")[:, : past + new] for n in ("keys", "values"))
        graph.output("y", nn.attention(q, keys, values, past))
    artifact = compile_module(graph.module, find_target("sm_90a"), {})
    (kernel,) = artifact.manifest.kernels.values()
    assert kernel.grid[0].startswith(f"({programs[0]}) * ") and kernel.grid[1].strip("()") == str(programs[1])
    for past in (0, 37, 60 - new):
        q, keys, values = (RNG.standard_normal(s).astype(np.float32) for s in ((new, heads, 16), shape, shape))
        want, size = attended(q, keys, values, past, past + new)
        keys[:, past + new:], values[:, past + new:] = np.nan, np.nan
        gpu = SimulatedGpu(artifact, {}, {"keys": keys, "values": values}, apart=True)
        assert (abs(gpu.run("main", {"q": q}, {"past": past})["y"] - want) <= 2.0**-17 * size).all()


MANY = {
    "sm_90a": (Attention("sm_90a", "bf16", 100, 200, 420, 2, 1), [(0, 1), (0, 99), (0, 100), (3, 130), (219, 200)]),
    "sm_90a, itself alone": (Attention("sm_90a", "bf16", 1, 160, 300, 2, 1), [(0, 1), (0, 130), (57, 140)]),
    "sm_90a, two tiles": (Attention("sm_90a", "bf16", 256, 140, 700, 2, 2, 128), [(0, 140), (116, 139), (511, 129)]),
    "sm_90a, more than three tiles": (Attention("sm_90a", "bf16", 391, 130, 700, 1, 1), [(0, 130), (261, 130), (555, 129)]),
    "sm_90a, heads of 256": (Attention("sm_90a", "bf16", 70, 130, 320, 1, 1, 256), [(0, 130), (41, 69), (170, 130)]),
    "sm_90a, heads of 96": (Attention("sm_90a", "bf16", 100, 200, 420, 2, 1, 96), [(0, 1), (0, 17), (3, 129), (219, 200)]),
    "sm_90a, heads of 80": (Attention("sm_90a", "bf16", 256, 140, 700, 2, 2, 80), [(116, 139), (511, 129)]),
    "sm_90a, heads of 160": (Attention("sm_90a", "bf16", 70, 130, 320, 1, 1, 160), [(41, 69), (170, 130)]),
    "sm_90a, three kernels": (Attention("sm_90a", "f32", 21, 40, 90, width=16), [(0, 20), (0, 22), (31, 40)]),
    "sm_80": (Attention("sm_80", "bf16", 21, 40, 90), [(0, 1), (0, 20), (0, 22), (31, 40)]),
    "sm_80, more than three tiles": (Attention("sm_80", "bf16", 200, 130, 400, 1, 1), [(0, 130), (261, 130)]),
    "sm_80, three kernels": (Attention("sm_80", "f32", 21, 40, 90, width=16), [(0, 20), (31, 40)]),
    "cpu": (Attention("cpu", "f32", 21, 100, 190, width=16), [(0, 1), (0, 20), (0, 21), (0, 22), (31, 40), (87, 100)]),
    "cpu in bf16": (Attention("cpu", "bf16", 64, 100, 190), [(0, 65), (31, 77)]),
}


@pytest.mark.parametrize("name", MANY)
def test_each_of_many_queries_sees_its_own_window(name: str) -> None:
    attention, calls = MANY[name]
    assert (attention.launches == 1) == (attention.target != "cpu" and attention.dtype == "bf16")
    for past, new in calls:
        attention.check(past, new)


def test_tiles_of_keys_before_all_windows_of_a_program_are_not_read() -> None:
    """NaN before the window of query 128, with which the second program begins, reaches the first program only."""
    attention = Attention("sm_90a", "bf16", 100, 200, 420, 2, 1)
    past, new = 150, 190
    q, keys, values = attention.inputs(new)
    want, size = attended(q, keys, values, past, attention.window)
    for memory in (keys, values):
        memory[:, : past + 128 - attention.window + 1], memory[:, past + new:] = np.nan, np.nan
    got = attention.run(q, keys, values, past)
    assert np.isnan(got[:128]).all()
    assert (abs(got[128:] - want[128:]) <= 2.0**-7 * size[128:]).all()


ptxas = shutil.which("ptxas")


@pytest.mark.skipif(ptxas is None, reason="ptxas is not on the path")
@pytest.mark.parametrize("width", [64, 96, 112, 160])
def test_three_loops_leave_accumulators_in_registers_and_products_in_flight(width: int, tmp_path: Path) -> None:
    for file, code in Attention("sm_90a", "bf16", 512, 256, 4096, width=width).artifact().files.items():
        (tmp_path / file).write_bytes(code)
        command = [ptxas, "-arch=sm_90a", "-v", file, "-o", "/dev/null"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        told = done.stdout + done.stderr
        assert done.returncode == 0 and "0 bytes spill stores, 0 bytes spill loads" in told, told
        assert not re.search("serializ|warning|ignored", told, re.IGNORECASE), told


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_a_window_as_long_as_the_cache_changes_nothing(target: str) -> None:
    wide, long = (Attention(target, "f32", window, 1, 96, width=16) for window in (96, 5000))
    q, keys, values = wide.inputs(1)
    np.testing.assert_array_equal(wide.run(q, keys, values, 95), long.run(q, keys, values, 95))


@pytest.mark.parametrize(("past", "window"), [(None, 4), (0, 0), (0, -3)])
def test_a_window_without_causal_attention_or_without_keys_is_refused(past: int | None, window: int) -> None:
    graph = Graph({"past": (0, 7)})
    with graph.entry("main"):
        q, keys, values = (graph.input(n, (2, 2, 16), "f32") for n in ("q", "k", "v"))
        with pytest.raises(ShapeError, match="a window needs causal attention and at least one key"):
            nn.attention(q, keys, values, None if past is None else graph.symbol("past"), window)
