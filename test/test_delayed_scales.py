"""Norms whose factor is multiplied in after the products that read their rows, in the PTX interpreter, against float64.

A few elements make most of a norm here, in other places in each row, so that one which is left out is seen. What lies past the
length is NaN, and so is everything that no kernel has written.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilec.frontend import nn
from tilec.frontend.checkpoints import open_checkpoint
from tilec.frontend.models import llama
from tilec.frontend.tensor import Graph, Tensor
from tilec.model_compiler import compile_model
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import Artifact

from . import reference
from .models import write_llama
from .programs import Program
from .reference import Array
from .test_tensor_cores import matmul, normal, recorded, seq, simulate

DELAYED, EPS = "primop-delay-scales", 1e-5
Results = dict[str, tuple[Array, Array]]  # what an output is, and how far each of its elements may be from that


# --- Recorded, and the same in float64 -------------------------------------------------------------------------------


def stream(p: Program, width: int, depth: int = 72, name: str = "", residual: bool = True) -> Tensor:
    """Rows that a norm reads: a product, which a residual is added to."""
    with p.graph.scope(f"x{name}"):
        x = nn.linear(normal(p, f"a{name}", (seq(p), depth)), normal(p, f"w{name}", (width, depth), kind="weight"))
        if residual:
            peaks = np.random.default_rng(width).standard_normal((p.symbols["seq"], width)) ** 3
            x = p.input(f"r{name}", (seq(p), width), "f32", peaks) + x
        return x


def norm(p: Program, x: Tensor, name: str = "") -> Tensor:
    return nn.rms_norm(x, normal(p, f"g{name}", (x.shape[-1].constant,), "f32", "weight"), EPS, "bf16")


def projected(p: Program, x: Tensor, name: str, n: int = 64) -> Tensor:
    with p.graph.scope(name):
        return nn.linear(x, normal(p, name, (n, x.shape[-1].constant), kind="weight"))


def exact_stream(inputs: dict[str, Array], name: str = "") -> tuple[Array, Array]:
    """Sums of exact products in f32."""
    a, w, r = inputs[f"a{name}"], inputs[f"w{name}"], inputs.get(f"r{name}", 0.0)
    return a @ w.T + r, 2.0**-20 * (abs(a) @ abs(w).T + abs(r))


def exact_norm(inputs: dict[str, Array], x: Array, name: str = "") -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * inputs[f"g{name}"]


def silu(x: Array) -> Array:
    return x / (1.0 + np.exp(-x))


def product(x: Array, w: Array) -> tuple[Array, Array]:
    """Of rows that are rounded to bf16 first: each result may be off by that part of what it adds up."""
    return x @ w.T, 2.0**-7 * abs(x) @ abs(w).T


def check(results: dict[str, Array], wanted: Results) -> None:
    """The errors of what a result adds up are many, so that those of many results come to a small part of their row."""
    for name, (want, allowed) in wanted.items():
        got = results[name].astype(np.float64)
        assert got.shape == want.shape
        assert (abs(got - want) <= allowed).all(), f"{np.sum(~(abs(got - want) <= allowed))} elements of {name} are wrong"
        if want.shape[-1] < 16:
            continue
        rows = np.linalg.norm(got - want, axis=-1) / np.linalg.norm(want, axis=-1)
        assert (rows <= 2.0**-7).all(), f"{name} is off by {rows.max():.2g} of a row"


class Case:
    """A program over rows of some width, and what it must give."""

    def __init__(self, width: int, depth: int = 72) -> None:
        self.width, self.depth = width, depth

    def record(self, p: Program) -> None:
        raise NotImplementedError

    def wanted(self, i: dict[str, Array]) -> Results:
        raise NotImplementedError


class OneProduct(Case):
    residual, columns = True, 64
    names: tuple[str, ...] = ("v",)

    def record(self, p: Program) -> None:
        x = stream(p, self.width, self.depth, residual=self.residual)
        y = norm(p, x)
        if self.residual:
            p.output("x", x)
        for name in self.names:
            p.output(f"y{name}", projected(p, y, name, self.columns))

    def wanted(self, i: dict[str, Array]) -> Results:
        x, allowed = exact_stream(i)
        wanted = {f"y{name}": product(exact_norm(i, x), i[name]) for name in self.names}
        return {**wanted, "x": (x, allowed)} if self.residual else wanted


class TwoProducts(OneProduct):
    names = ("v", "u")


class NoResidual(OneProduct):
    """What the norm reads is no result of the program, but one of the kernel that makes it."""

    residual = False


class TwoLayers(Case):
    """In chunks of their own, so that each begins with the norm of what the one before ended with."""

    def record(self, p: Program) -> None:
        p.graph.graph_break("first")
        x = stream(p, self.width, self.depth)
        p.graph.graph_break("second")
        y = norm(p, x)
        with p.graph.scope("up"):
            up = (nn.silu(projected(p, y, "gate")) * projected(p, y, "up")).cast("bf16")
        x = x + projected(p, up, "down", self.width)
        p.graph.graph_break("third")
        p.output("x", x)
        p.output("y", projected(p, norm(p, x, "2"), "v"))

    def wanted(self, i: dict[str, Array]) -> Results:
        x, _ = exact_stream(i)
        y = exact_norm(i, x)
        more, allowed = product(silu(y @ i["gate"].T) * (y @ i["up"].T), i["down"])
        x = x + more
        return {"x": (x, 2 * allowed), "y": product(exact_norm(i, x, "2"), i["v"])}


def compiled(case: Case, capacity: int, used: int, target: str, left_out: tuple[str, ...] = ()) -> tuple[Program, Artifact]:
    program = recorded(case.record, capacity, used)
    return program, compile_module(program.graph.module, find_target(target), {}, leave_out=left_out)


def launched(artifact: Artifact, entry: str = "main") -> list[str]:
    return [name for name, _ in artifact.manifest.entries[entry].launches]


def checked(case: Case, capacity: int, used: int, target: str, left_out: tuple[str, ...] = ()) -> Artifact:
    """The artifact, whose results are those of float64."""
    program, artifact = compiled(case, capacity, used, target, left_out)
    wanted = case.wanted({n: a.astype(np.float64) for n, a in program.inputs.items()})
    check(simulate(program, artifact), wanted)
    return artifact


@pytest.mark.parametrize(
    ("kind", "width", "capacity", "used", "target", "launches", "norms"),
    [
        (OneProduct, 192, 200, 129, "sm_90a", 2, 1),  # each of four lanes adds up three numbers, one a turn
        (OneProduct, 1024, 128, 17, "sm_90a", 2, 1),
        (OneProduct, 768, 128, 17, "sm_100a", 2, 1),
        (TwoProducts, 320, 128, 17, "sm_90a", 2, 1),
        (TwoProducts, 192, 200, 129, "sm_100a", 2, 1),
        (NoResidual, 128, 200, 129, "sm_90a", 2, 1),
        (TwoLayers, 320, 200, 129, "sm_90a", 4, 2),
        (OneProduct, 1024, 8, 8, "sm_90a", 2, 1),  # few rows, whose warps share the depth and what the norm is the sum of
        (TwoProducts, 192, 8, 5, "sm_100a", 2, 1),
        (NoResidual, 128, 2, 1, "sm_90a", 2, 1),
        (TwoLayers, 320, 7, 3, "sm_90a", 4, 2),
    ],
)
def test_a_norm_has_no_kernel_of_its_own(
    kind: type[Case], width: int, capacity: int, used: int, target: str, launches: int, norms: int
) -> None:
    artifact, without = (checked(kind(width), capacity, used, target, left) for left in ((), (DELAYED,)))
    assert len(launched(artifact)) == launches and not any("rms_norm" in name for name in launched(artifact))
    assert len(launched(without)) == launches + norms and sum("rms_norm" in name for name in launched(without)) == norms


@pytest.mark.parametrize(("width", "capacity", "used"), [
    (768, 64, 17),  # four lanes add up three of twelve numbers each
    (4352, 64, 17),  # four lanes add up 68 numbers in 17 turns
    (768, 8, 3),  # warps share 48 numbers of each of a few rows
    (4352, 8, 8),  # and 272, one at a time
])
def test_all_sums_of_blocks_of_a_row_are_added_up(width: int, capacity: int, used: int) -> None:
    checked(OneProduct(width), capacity, used, "sm_90a", ("tile-split",))


@pytest.mark.parametrize(("width", "parts"), [(1024, 4), (2176, 2)])
def test_blocks_of_a_cluster_multiply_the_results_that_they_were_dealt(width: int, parts: int) -> None:
    """They share the depth of a product that reads a norm, and all of them need the factors of their rows."""
    artifact = checked(OneProduct(width), 64, 17, "sm_90a")
    assert f"({parts})" in artifact.manifest.kernels["main_main_v"].grid[0]


@pytest.mark.parametrize(("width", "depth", "parts"), [(128, 1152, 2), (128, 1024, 4), (320, 1024, 4)])
def test_blocks_of_a_cluster_that_share_the_depth_deal_out_whole_blocks_of_a_row(width: int, depth: int, parts: int) -> None:
    """A tile of one block of columns has two rows for each thread, and so nothing to deal to the third and the fourth part."""
    artifact = checked(OneProduct(width, depth), 128, 17, "sm_90a")
    assert launched(artifact) == ["main_main_x", "main_main_v"]
    assert f"({parts})" in artifact.manifest.kernels["main_main_x"].grid[0]


# --- Other products of such rows -------------------------------------------------------------------------------------


class FewColumns(OneProduct):
    """Too few for tensor cores."""

    columns = 3


class TwoFactors(Case):
    def record(self, p: Program) -> None:
        gate, up = (norm(p, stream(p, width, name=name), name) for name, width in (("1", self.width), ("2", self.width + 64)))
        with p.graph.scope("up"):
            p.output("y", nn.silu(projected(p, gate, "gate")) * projected(p, up, "up"))

    def wanted(self, i: dict[str, Array]) -> Results:
        (gate, gate_off), (up, up_off) = (
            product(exact_norm(i, exact_stream(i, n)[0], n), i[name]) for n, name in (("1", "gate"), ("2", "up")))
        return {"y": (silu(gate) * up, 1.1 * gate_off * (abs(up) + up_off) + abs(silu(gate)) * up_off)}


class TwoSums(OneProduct):
    """The factors of a row are made of two sums along it."""

    def record(self, p: Program) -> None:
        x = stream(p, self.width)
        size, spread = x.custom("math.absf").sum(-1, keepdim=True) + 1.0, (x * x).sum(-1, keepdim=True) + 1.0
        p.output("y", projected(p, (x * size.recip() * spread.sqrt()).cast("bf16"), "v"))

    def wanted(self, i: dict[str, Array]) -> Results:
        x, _ = exact_stream(i)
        size, spread = abs(x).sum(-1, keepdims=True) + 1.0, (x * x).sum(-1, keepdims=True) + 1.0
        return {"y": product(x / size * np.sqrt(spread), i["v"])}


class RotatedIntoACache(Case):
    def record(self, p: Program) -> None:
        y = norm(p, stream(p, self.width))
        cos, sin = (normal(p, name, (seq(p), 32), "f32") for name in ("cos", "sin"))
        cache = normal(p, "cache", (2, 160, 64), kind="state")
        with p.graph.scope("keys"):
            keys = nn.rotate(projected(p, y, "v", 128).reshape(seq(p), 2, 64), cos, sin).cast("bf16").permute(1, 0, 2)
            p.output("after", cache.scatter(1, p.graph.iota(seq(p)), keys), alias="cache")

    def wanted(self, i: dict[str, Array]) -> Results:
        cos, sin, after = i["cos"][:, None], i["sin"][:, None], i["cache"].copy()
        allowed = np.zeros_like(after)
        keys, off = (a.reshape(-1, 2, 2, 32) for a in product(exact_norm(i, exact_stream(i)[0]), i["v"]))
        for held, (a, b), sign in ((after, (keys[:, :, 0], keys[:, :, 1]), -1), (allowed, (off[:, :, 0], off[:, :, 1]), 1)):
            c, s = (cos, sin) if sign < 0 else (abs(cos), abs(sin))
            held[:, : len(keys)] = np.concatenate([a * c + sign * b * s, b * c + a * s], -1).swapaxes(0, 1)
        return {"after": (after, allowed + reference.unit(after, "bf16"))}


class RowsAsColumns(OneProduct):
    """The rows are those of the other operand: the factor would vary along the columns of the result."""

    def record(self, p: Program) -> None:
        y = norm(p, stream(p, self.width))
        with p.graph.scope("v"):
            p.output("y", matmul(normal(p, "v", (64, self.width), kind="weight"), y))

    def wanted(self, i: dict[str, Array]) -> Results:
        return {"y": tuple(a.T for a in product(exact_norm(i, exact_stream(i)[0]), i["v"]))}


class OfItself(OneProduct):
    """Both operands would have a factor, one along the rows of the result and one along its columns."""

    def record(self, p: Program) -> None:
        y = norm(p, stream(p, self.width))
        with p.graph.scope("v"):
            p.output("y", matmul(y, y))

    def wanted(self, i: dict[str, Array]) -> Results:
        y = exact_norm(i, exact_stream(i)[0])
        want, allowed = product(y, y)
        return {"y": (want, 2 * allowed)}


class ChunkBetween(OneProduct):
    """What the norm reads has been read by another chunk before."""

    def record(self, p: Program) -> None:
        p.graph.graph_break("first")
        x = stream(p, self.width)
        p.graph.graph_break("between")
        p.output("x", x * 2.0)
        p.graph.graph_break("last")
        p.output("yv", projected(p, norm(p, x), "v"))

    def wanted(self, i: dict[str, Array]) -> Results:
        wanted = super().wanted(i)
        return {**wanted, "x": (2 * wanted["x"][0], 2 * wanted["x"][1])}


@pytest.mark.parametrize(("kind", "width", "capacity", "used"), [
    (FewColumns, 192, 128, 17), (TwoFactors, 192, 128, 17), (TwoSums, 128, 128, 17), (RotatedIntoACache, 256, 128, 17),
    (RowsAsColumns, 320, 128, 17), (RowsAsColumns, 256, 128, 17), (OfItself, 128, 128, 17), (ChunkBetween, 128, 128, 17),
    (FewColumns, 192, 8, 5), (TwoFactors, 192, 4, 4), (TwoSums, 128, 8, 8), (RotatedIntoACache, 256, 8, 7),
    (OfItself, 128, 8, 1),
])
def test_what_reads_a_row_is_multiplied_by_its_factor(kind: type[Case], width: int, capacity: int, used: int) -> None:
    artifact = checked(kind(width), capacity, used, "sm_90a")
    left = (OfItself, RowsAsColumns, ChunkBetween)  # what the pass has no way to multiply in, or to move
    assert any("rms_norm" in name for name in launched(artifact)) == (kind in left)


# --- Models ----------------------------------------------------------------------------------------------------------


def test_a_layer_of_a_prompt_is_five_launches(tmp_path: Path) -> None:
    """And seven where its norms have kernels of their own; what makes the first row of all, no product, is not a layer's."""
    sizes = {"hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    config = open_checkpoint(write_llama(tmp_path, dtype="bf16", num_hidden_layers=2, **sizes)).config
    for left_out, launches in (((), 5), ((DELAYED,), 7)):
        graph = Graph({"seq": (1, 128), "past": (0, 127)})
        with graph.entry("prefill"):
            llama.record(graph, config, "bf16", llama.Sequences(graph.symbol("seq"), graph.symbol("past"), 128), "last")
        names = launched(compile_module(graph.module, find_target("sm_90a"), {}, leave_out=left_out), "prefill")
        layers = [name for name in names if name.startswith("prefill_layer")]
        assert len(layers) == 2 * launches and any("rms_norm" in name for name in layers) == bool(left_out)


def test_a_layer_of_a_step_of_several_sequences_is_five_launches(tmp_path: Path) -> None:
    sizes = {"hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    config = open_checkpoint(write_llama(tmp_path, dtype="bf16", num_hidden_layers=2, **sizes)).config
    artifact = compile_model(config, "sm_90a", "bf16", 64, batch=4, entries={"decode", "decode_batch"})
    for entry in ("decode", "decode_batch"):
        layers = [name for name in launched(artifact, entry) if name.startswith(f"{entry}_layer")]
        assert len(layers) == 10 and not any("rms_norm" in name for name in layers)
