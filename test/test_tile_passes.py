"""Tile functions as they are after any prefix of the tile passes, run by the interpreter of tile ops.

Every pass keeps products and their order, so that results are equal to the bit; the first ones are compared with float64.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlir import ir

from tilec.dialects import core, primop
from tilec.dialects.index_expr import Symbol, linear, map_results
from tilec.frontend import nn
from tilec.frontend.config import ModelConfig, inverse_frequencies
from tilec.frontend.models import llama
from tilec.frontend.models.llama import Sequences
from tilec.frontend.tensor import Graph
from tilec.pipelines.passes import Pass, module_text, parse_pipeline, run_pipeline
from tilec.pipelines.pipeline import KERNEL, tile_pipeline, without
from tilec.pipelines.tile import tile_functions
from tilec.pipelines.tile_to_kernel import TileToKernel

from . import cases, reference
from .programs import Program, examples, programs
from .reference import Array
from .test_tensor_cores import EPILOGUES, check_product, normal, product, projection, recorded, rotary_of_wide_heads, seq
from .test_tf32 import product as product_in_tf32
from .tile import Kernel, Memory, run

TARGETS = ("sm_90a", "sm_80")
PASSES = tuple(itertools.takewhile(lambda p: not isinstance(p, TileToKernel), KERNEL))
LIT = Path(__file__).parent / "lit" / "passes"


def tiled(program: Program, target: str, workers: int = 0) -> ir.Module:
    """The program as tile functions; with `workers`, so many blocks walk over the programs of those that have rings."""
    module = program.graph.module
    with module.context, ir.Location.unknown():
        core.load_all()
        run_pipeline(module, tile_pipeline(target))
        symbols = len(primop.symbol_ranges(module.operation))
        for function, schedule in tile_functions(module.operation):
            if schedule.tensor and schedule.cluster == schedule.split == 1 and workers:
                function.attributes["tile.schedule"] = replace(schedule, persistent=workers).to_attribute(symbols)
    return module


def prefixes(module: ir.Module, program: Program, passes: Sequence[Pass]) -> Iterator[tuple[str, dict[str, Array]]]:
    """The results before the tile passes, and after each that changes something, with its name."""
    with module.context, ir.Location.unknown():
        yield "", run(module, program)
        text = module_text(module)
        for step in passes:
            run_pipeline(module, [step])
            before, text = text, module_text(module)
            if text != before:
                yield step.name, run(module, program)


def assert_same_bits(results: dict[str, Array], others: dict[str, Array], what: str) -> None:
    assert results.keys() == others.keys()
    for name, values in results.items():
        bits, other_bits = (np.ascontiguousarray(a).view(np.uint8) for a in (values, others[name]))
        np.testing.assert_array_equal(bits, other_bits, f"{name} {what}")


def same_in_all_prefixes(
    module: ir.Module, program: Program, passes: Sequence[Pass] = PASSES
) -> tuple[dict[str, Array], list[str]]:
    """The results, and which passes changed the program but not them; tile-split alone adds up in another order."""
    (_, first), *later = prefixes(module, program, passes)
    for name, results in later:
        if name == "tile-split":
            assert_close(first, results)
            first = results
        assert_same_bits(first, results, f"after {name}")
    return first, [name for name, _ in later]


def assert_close(results: dict[str, Array], others: dict[str, Array]) -> None:
    """Equal but for rounding."""
    assert results.keys() == others.keys()
    for name, values in results.items():
        if values.dtype.kind != "f":
            np.testing.assert_array_equal(values, others[name], name)
        else:
            np.testing.assert_allclose(values, others[name], rtol=2.0**-7, atol=2.0**-7 * np.nanmax(abs(values)), err_msg=name)


def ops(block: ir.Block, kind: type) -> Iterator[ir.OpView]:
    """All ops of a kind below a block."""
    for op in list(block.operations):
        for region in op.operation.regions:
            for inner in region.blocks:
                yield from ops(inner, kind)
        if isinstance(op, kind):
            yield op


# --- Programs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A program, and which passes must have something to do for each target."""

    record: Callable[[], Program]
    hopper: list[str]
    ampere: list[str]

    def passes(self, target: str) -> list[str]:
        return self.hopper if target == "sm_90a" else self.ampere


def attention(queries: int, past: int, heads: int, kv_heads: int, width: int, dtype: str = "bf16",
              window: int | None = None) -> Program:
    """Causal attention over a cache, of one query or of a length `seq`, of a window of keys each."""
    program = Program(Graph({"past": (0, 700), "seq": (1, 160)}), symbols={"past": past, "seq": queries})
    with program.graph.entry("main"):
        before, count = program.graph.symbol("past"), seq(program) if queries > 1 else 1
        q = normal(program, "q", (count, heads, width), dtype)
        keys = (kv_heads, 860, width)
        k, v = (normal(program, n, keys, dtype, "state")[:, : before + count] for n in ("keys", "values"))
        program.output("y", nn.attention(q, k, v, before, window))
    for name in ("keys", "values"):
        program.inputs[name][:, past + queries :] = np.nan
    return program


def norm_and_row(p: Program) -> None:
    x = normal(p, "x", (1, 512), "f32")
    norm = nn.rms_norm(x, normal(p, "n", (512,), "f32", "weight"), 1e-5, "bf16")
    p.output("y", projection(p, norm, n=72))


def rotary_row_into_a_cache(p: Program) -> None:
    """What a step of decoding does with a key: rotated, and written where the cache ends."""
    heads = projection(p, normal(p, "x", (1, 136)), n=128).reshape(1, 2, 64)
    cos, sin = (normal(p, name, (1, 32), "f32") for name in ("cos", "sin"))
    cache = normal(p, "cache", (2, 160, 64), kind="state")
    new = nn.rotate(heads, cos, sin).cast("bf16").permute(1, 0, 2)
    p.output("after", cache.scatter(1, p.graph.iota(seq(p) + 1)[seq(p):], new), alias="cache")


def long_product(p: Program) -> None:
    """Blocks of a cluster share the depth."""
    p.output("y", normal(p, "r", (seq(p), 40), "f32") + projection(p, normal(p, "x", (seq(p), 1024)), n=40))


def largest_of_many(p: Program) -> None:
    p.output("y", nn.argmax(normal(p, "x", (40000,), "f32")).reshape(1))


CONFIG = ModelConfig(
    vocab_size=96, hidden_size=128, intermediate_size=192, layers=1, heads=4, kv_heads=2, head_dim=64, norm_eps=1e-5,
    rope_theta=1e4, max_context=160, tied_embeddings=True,
)


def model(count: int, sequences: Callable[[Graph], Sequences], config: ModelConfig = CONFIG) -> Program:
    """A small model in bf16 with random weights and a cache that is NaN where nothing has been written."""
    used = {"n": count, "past": 70}
    program, rng = Program(Graph({"n": (1, 64), "past": (0, 96)}), symbols=used), np.random.default_rng(0)
    with program.graph.entry("main"):
        llama.record(program.graph, config, "bf16", sequences(program.graph), "last")
    module = program.graph.module
    sizes = {Symbol(i): used[n] for i, n in enumerate(primop.symbol_ranges(module.operation))}
    body = module.body.operations[0].body.blocks[0]
    for op in ops(body, primop.Output):
        program.dtypes[op.label] = str(primop.element_type(op.value))
        if op.alias and op.alias.startswith("cache"):
            program.aliases[op.label] = op.alias
    for op in ops(body, primop.Input):
        shape = [int(reference.index(e, (), sizes)) for e in map_results(op.shape)]
        values = rng.standard_normal(shape) * (shape[-1] ** -0.5 if op.kind.value == "weight" and len(shape) > 1 else 1.0)
        if op.kind.value == "state":
            values[..., used["past"] :, :] = np.nan
        given = {"tokens": rng.integers(0, config.vocab_size, shape), "positions": np.array([70, 3, 41])}
        given["rotary.inverse_frequencies"] = inverse_frequencies(config)
        program.dtypes[op.label], program.kinds[op.label] = str(primop.element_type(op.result)), op.kind.value
        program.inputs[op.label] = reference.rounded(given.get(op.label, values), program.dtypes[op.label])
    return program


AHEAD, RINGS = ["tile-prefetch"], ["tile-stage", "tile-persist", "tile-specialise"]
COPIED = ["tile-stage", "tile-persist", "tile-software-pipeline"]
DELAYED = [*RINGS[:-1], "tile-delay-products", RINGS[-1]]
STAGED = ["tile-stage", "tile-specialise"]
PARTS = ["tile-split", "tile-stage", "tile-specialise"]
OF_MODELS = {  # the others have nothing to stage or to read ahead
    "layers with a residual": (STAGED, ["tile-stage"]),
    "attention heads=9 kv_heads=3 dtype=bf16": (["tile-stage"], ["tile-stage"]),
    "attention with new keys dtype=bf16": (["tile-stage"], ["tile-stage"]),
}
CASES = {
    "a product": Case(lambda: product(128, 40, 129, 200), RINGS, COPIED),
    "a product of one step": Case(lambda: product(64, 17, 128, 64), STAGED, ["tile-stage"]),
    "a product in tf32": Case(lambda: product_in_tf32(128, 40, 129, 200), RINGS, COPIED),
    "a product of few rows": Case(lambda: product(8, 5, 40, 136), AHEAD, AHEAD),
    "a product of few rows whose depth warps share": Case(lambda: product(8, 5, 40, 2304), AHEAD, AHEAD),
    "a product of a cluster": Case(lambda: product(128, 40, 65, 1024), PARTS, COPIED),
    "a product of a cluster and more": Case(lambda: recorded(long_product), PARTS, AHEAD),
    "a product shorter than a tile": Case(lambda: product(64, 17, 40, 72, "f16", "f16"), RINGS, AHEAD),
    **{e.__name__.replace("_", " "): Case(lambda e=e: recorded(e), RINGS, COPIED) for e in EPILOGUES},
    "rotary of wide heads": Case(lambda: recorded(rotary_of_wide_heads), RINGS, COPIED),
    "a norm and a row": Case(lambda: recorded(norm_and_row), [], []),
    "a row into a cache": Case(lambda: recorded(rotary_row_into_a_cache), [], []),
    "decode": Case(lambda: attention(1, 300, 9, 3, 64), AHEAD, []),
    "decode in f32": Case(lambda: attention(1, 37, 4, 1, 32, "f32"), AHEAD, []),
    "decode over a window": Case(lambda: attention(1, 400, 4, 2, 128, window=100), AHEAD, []),
    "decode at the start of a window": Case(lambda: attention(1, 50, 4, 2, 128, window=100), AHEAD, []),
    "decode by tensor cores": Case(lambda: attention(1, 300, 96, 32, 64), [], []),
    "decode by tensor cores over a window": Case(lambda: attention(1, 500, 64, 32, 32, "f16", window=300), [], []),
    "the largest of many": Case(lambda: recorded(largest_of_many), [], []),
    "a prompt of a model": Case(lambda: model(33, lambda g: Sequences(g.symbol("n"), g.symbol("past"), 160)), DELAYED, COPIED),
    "a prompt of a model with heads of 96": Case(
        lambda: model(33, lambda g: Sequences(g.symbol("n"), g.symbol("past"), 160), replace(CONFIG, head_dim=96)),
        [*DELAYED[:-1], "tile-take-turns", DELAYED[-1]], COPIED),
    "a token of a model": Case(lambda: model(1, lambda g: Sequences(linear(1), g.symbol("past"), 160)), AHEAD, []),
    "tokens of three sequences": Case(
        lambda: model(3, lambda g: Sequences(g.symbol("n"), g.symbol("past"), 160, 3, together=True)),
        RINGS, COPIED),
    **{name: Case(lambda name=name: cases.record(name), *OF_MODELS.get(name, ([], []))) for name in cases.SHAPES_OF_MODELS},
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_reference_and_no_pass_changes_a_bit(name: str, target: str) -> None:
    case = CASES[name]
    program = case.record()
    expected = program.expected()
    results, changed = same_in_all_prefixes(tiled(program, target, workers=2), program)
    assert changed == case.passes(target)
    expected.check(results)


@pytest.mark.parametrize(("queries", "past", "heads", "kv_heads", "width", "window"), [
    (130, 5, 6, 2, 64, None), (17, 40, 2, 2, 128, None), (130, 333, 2, 1, 64, 75), (150, 400, 1, 1, 128, 390),
    (129, 7, 4, 2, 96, None), (17, 90, 2, 2, 96, 50), (40, 9, 2, 1, 80, None), (130, 70, 1, 1, 208, 99)])
def test_attention_of_many_queries_is_that_of_float64(queries: int, past: int, heads: int, kv_heads: int, width: int,
                                                      window: int | None) -> None:
    """Probabilities are rounded to the type of the values, so each result may be off by that part of what it adds up."""
    program = attention(queries, past, heads, kv_heads, width, window=window)
    results, changed = same_in_all_prefixes(tiled(program, "sm_90a"), program)
    turns = [] if width <= 64 else ["tile-take-turns"]  # of one group of warps there are none
    assert changed == ["tile-stage", "tile-delay-products", *turns, "tile-specialise"]
    q, keys, values = (program.inputs[n].astype(np.float64) for n in ("q", "keys", "values"))
    keys, values = (a[:, : past + queries].repeat(heads // kv_heads, axis=0) for a in (keys, values))
    scores = q.swapaxes(0, 1) @ keys.swapaxes(1, 2) * width**-0.5
    query, key = np.arange(queries)[:, None] + past, np.arange(past + queries)
    scores[:, (query < key) | (query - key >= (window or len(key)))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    want, size = (weights @ values).swapaxes(0, 1), (weights @ abs(values)).swapaxes(0, 1)
    assert (abs(results["y"] - want) <= 2.0**-7 * size).all()


@pytest.mark.parametrize("workers", [1, 7])
def test_workers_walk_over_more_than_a_group_of_programs(workers: int) -> None:
    """Eighteen tiles of rows by three of columns, in groups of sixteen and two."""
    program = product(1200, 1100, 72, 72)
    results, changed = same_in_all_prefixes(tiled(program, "sm_90a", workers), program)
    assert changed == RINGS
    check_product(results["y"], program.inputs["x"], program.inputs["w"], "f32")


@pytest.mark.parametrize("name", ["a product", "gate and up"])
@pytest.mark.parametrize("left_out", [["tile-persist"], ["tile-specialise"], ["tile-persist", "tile-specialise"]], ids=str)
def test_optional_passes_may_be_left_out(name: str, left_out: list[str]) -> None:
    program = CASES[name].record()
    _, changed = same_in_all_prefixes(tiled(program, "sm_90a", workers=2), program, without(PASSES, left_out))
    assert changed == [n for n in RINGS if n not in left_out]


@pytest.mark.parametrize("target", TARGETS)
@examples(15)
@given(program=programs(steps=10, elements=600, products=3000))
def test_a_random_program_is_that_of_the_reference(target: str, program: Program) -> None:
    expected = program.expected()
    results, _ = same_in_all_prefixes(tiled(program, target), program)
    expected.check(results)


@pytest.mark.parametrize("target", TARGETS)
@examples(10)
@given(data=st.data())
def test_random_products_are_those_of_float64(target: str, data: st.DataObject) -> None:
    capacity = data.draw(st.integers(2, 300), "capacity")
    used, workers = data.draw(st.integers(1, capacity), "used"), data.draw(st.integers(0, 5), "workers")
    n, k = data.draw(st.integers(32, 300), "n"), 8 * data.draw(st.integers(1, 60), "k / 8")
    dtype, result = data.draw(st.sampled_from(["bf16", "f16"])), data.draw(st.sampled_from(["f32", "bf16", "f16"]))
    program = product(capacity, used, n, k, dtype, result)
    results, _ = same_in_all_prefixes(tiled(program, target, workers), program)
    check_product(results["y"], program.inputs["x"], program.inputs["w"], result)


# --- The programs of the lit tests -----------------------------------------------------------------------------------


def launched(module: ir.Module, symbols: dict[str, int]) -> dict[str, Array]:
    """What the buffers of each tile function hold when it has run on random numbers."""
    results = {}
    for function, _ in tile_functions(module.operation):
        rng = np.random.default_rng(0)
        buffers = []
        for value in function.regions[0].blocks[0].arguments:
            dtype = str(value.type.element_type)
            buffers.append(Memory(reference.rounded(rng.standard_normal(value.type.shape), dtype)))
        Kernel(function).launch(buffers, symbols)
        name = ir.StringAttr(function.attributes["sym_name"]).value
        results |= {f"{name} {i}": b.values for i, b in enumerate(buffers)}
    return results


@pytest.mark.parametrize("file", sorted(p.name for p in LIT.glob("tile-*.mlir") if "invalid" not in p.name))
@pytest.mark.parametrize("length", [1, 50, 64])
def test_the_programs_of_a_lit_test_compute_the_same_after_its_passes(file: str, length: int) -> None:
    text = (LIT / file).read_text()
    with ir.Context(), ir.Location.unknown():
        core.load_all()
        module = ir.Module.parse(text)
        before = launched(module, {"n": length})
        passes = re.search(r"--pass-pipeline='(.*)'", text)
        assert passes
        run_pipeline(module, parse_pipeline(passes[1]).passes)
        after = launched(module, {"n": length})
        if "tile-split" in passes[1]:
            assert_close(before, after)
        else:
            assert_same_bits(before, after, f"after {passes[1]}")
