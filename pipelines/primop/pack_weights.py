"""Weights are laid out for the kernels that read them: the layout is a map, recorded where the weight enters.

On a CPU the rows of a matrix are interleaved by the SIMD width, so that one load fills a register with one column of many
rows, and bf16 columns are paired for the pair product: (n, k) -> (n floordiv L, k floordiv 2, n mod L, k mod 2). Every
reader's view is composed with that map; the loader applies it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, Linear, dim, floordiv, linear, make_map, map_results, mod, substitute
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.fuse import is_contraction
from tilec.pipelines.primop.outline import SHAPE, body_of, callee_of, describe, functions, kind_of
from tilec.pipelines.primop.structure import defining_op
from tilec.pipelines.targets import CpuTarget, find_target


@dataclass
class _Class:
    """Values that are one weight seen from different functions: they change layout together or not at all."""

    members: list[ir.Value] = field(default_factory=list)
    multiplied: bool = False


@dataclass(frozen=True)
class PackWeights(Pass):
    """Interleave the rows of weight matrices by the SIMD width of a CPU target (16-bit columns in pairs)."""

    name = "primop-pack-weights"
    anchor = "builtin.module"
    target: str = "cpu"

    def run(self, op: ir.OpView) -> None:
        target = find_target(self.target)
        if not isinstance(target, CpuTarget):
            return
        classes = _weight_classes(op)
        symbols = len(primop.symbol_ranges(op.operation))
        for weights in classes:
            kind = ir.RankedTensorType(weights.members[0].type)
            same = all(v.type == kind for v in weights.members)
            if not (weights.multiplied and same and kind.rank == 2):
                continue
            pair = 2 if str(kind.element_type) == "bf16" and kind.shape[1] % 2 == 0 else 1
            _repack(weights.members, _layout(target.lanes, pair), target.lanes, pair, symbols)
        for function in [*functions(op, "primop.chunk"), *functions(op, "primop.kernel")]:
            _refresh_type(function)


def _layout(lanes: int, pair: int) -> list[Linear]:
    n, k = dim(0), dim(1)
    packed = [floordiv(n, lanes), floordiv(k, pair), mod(n, lanes)]
    return [*packed, mod(k, pair)] if pair > 1 else packed


def _weight_classes(module: ir.OpView) -> list[_Class]:
    """Groups the entry inputs, chunk arguments and kernel arguments that name the same weights."""
    table = ir.SymbolTable(module.operation)
    found: dict[ir.Value, _Class] = {}

    def join(a: ir.Value, b: ir.Value) -> None:
        first, second = found.setdefault(a, _Class([a])), found.setdefault(b, _Class([b]))
        if first is not second:
            first.members += second.members
            for member in second.members:
                found[member] = first

    for marker in ("primop.entry", "primop.chunk"):
        for function in functions(module, marker):
            for call in body_of(function).operations:
                if call.operation.name == "func.call":
                    callee = table[callee_of(call)]
                    for passed, argument in zip(call.operands, body_of(callee).arguments, strict=True):
                        if kind_of(passed) == "weight":
                            join(passed, argument)
    # The same checkpoint tensor may enter through several entry points.
    by_label: dict[str, ir.Value] = {}
    for function in functions(module, "primop.entry"):
        for op in body_of(function).operations:
            if isinstance(op, primop.Input) and op.kind is primop.InputKind.WEIGHT:
                join(by_label.setdefault(op.label, op.result), op.result)
    for function in functions(module, "primop.kernel"):
        for argument in body_of(function).arguments:
            if argument in found and _is_multiplied(argument):
                found[argument].multiplied = True
    return list({id(c): c for c in found.values()}.values())


def _is_multiplied(argument: ir.Value) -> bool:
    """Whether a kernel reads the argument as (n, k) of a product that it sums over k."""
    for use in argument.uses:
        product = use.owner
        if isinstance(product, primop.Mul) and ir.RankedTensorType(argument.type).rank == 2:
            read = map_results(product.maps[use.operand_number])
            for reader in product.result.uses:
                if is_contraction(reader.owner) and read[1] == dim(list(reader.owner.dims)[-1]) and read[0] != read[1]:
                    return True
    return False


def _repack(values: list[ir.Value], layout: list[Linear], lanes: int, pair: int, symbols: int) -> None:
    rows, columns = ir.RankedTensorType(values[0].type).shape
    sizes = [-(-rows // lanes), columns // pair, lanes, *([pair] if pair > 1 else [])]
    packed = ir.RankedTensorType.get(sizes, ir.RankedTensorType(values[0].type).element_type)
    shape = ir.AffineMapAttr.get(make_map(0, symbols, [linear(s) for s in sizes]))
    for value in values:
        for op, operand in list(_readers(value)):
            maps = list(op.maps)
            old = maps[operand]
            index = {Dim(i): e for i, e in enumerate(map_results(old))}
            maps[operand] = make_map(old.n_dims, symbols, [substitute(e, index) for e in layout])
            op.attributes["maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
        value.set_type(packed)
        op = defining_op(value)
        if isinstance(op, primop.Input):
            op.attributes["pack"] = ir.AffineMapAttr.get(make_map(2, 0, layout))
        else:
            describe(value, SHAPE, shape)


def _readers(value: ir.Value) -> Iterator[tuple[ir.OpView, int]]:
    for use in value.uses:
        if use.owner.operation.name.startswith("primop."):
            yield use.owner, use.operand_number


def _refresh_type(function: ir.OpView) -> None:
    """Makes a function's type agree with its block's arguments."""
    results = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
    arguments = [a.type for a in body_of(function).arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(arguments, results))
