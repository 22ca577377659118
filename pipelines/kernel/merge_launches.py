"""Neighbouring kernels that do not need each other become one launch: its blocks are dealt out among them.

A launch costs a few microseconds and its last blocks leave multiprocessors idle; three projections of the same input, or
the rotation of queries beside the cache writes of keys and values, fill each other's gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlir import ir
from mlir.dialects import affine, arith, func, gpu, scf

from tilec.dialects import kernel, primop
from tilec.dialects.index_expr import Linear, linear, make_map, map_results
from tilec.pipelines.launches import MOST_TOGETHER, bind, binding_of, independent_calls
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of, callee_of, fresh_name, functions, ops_in

GRID, BLOCK, ROLES, RESIDENT, CLUSTER = "kernel.grid", "kernel.block", "tile.arguments", "kernel.resident", "kernel.cluster"
MAPS, WIDE = "kernel.tensor_maps", "kernel.wide_indices"


@dataclass(frozen=True)
class MergeLaunches(Pass):
    """Merge independent kernels of a chunk that have the same block size into one launch."""

    name = "kernel-merge-launches"
    anchor = "builtin.module"
    most: int = MOST_TOGETHER

    def run(self, op: ir.OpView) -> None:
        modules = [o for o in op.regions[0].blocks[0].operations if isinstance(o, gpu.GPUModuleOp)]
        for module in modules:
            merger = _Merger(op, module)
            for chunk in functions(op, "primop.chunk"):
                merger.merge_chunk(chunk, self.most)
            merger.drop_unused()


class _Merger:
    def __init__(self, root: ir.OpView, module: gpu.GPUModuleOp) -> None:
        self.root, self.module = root, module
        self.symbols = list(primop.symbol_ranges(root.operation))
        self.merged: dict[tuple[str, ...], str] = {}

    def kernel(self, call: ir.OpView) -> Any:
        name = callee_of(call)
        table = ir.SymbolTable(self.module.operation)
        return table[name] if name in table else None  # noqa: SIM401 - a symbol table has no get

    def merge_chunk(self, chunk: ir.OpView, most: int) -> None:
        calls = [o for o in body_of(chunk).operations if isinstance(o, func.CallOp) and self.kernel(o) is not None]
        for group in independent_calls(calls, most, self._compatible):
            self._merge(chunk, group)

    def _compatible(self, group: list[ir.OpView], other: ir.OpView) -> bool:
        kernels = [self.kernel(c) for c in [*group, other]]
        if len({ir.IntegerAttr(k.attributes[BLOCK]).value for k in kernels}) > 1 or len({_cluster(k) for k in kernels}) > 1:
            return False
        if any(_blocks(k) is None for k in kernels):
            return False
        # What one writes in place no other may read.
        for call, k in zip([*group, other], kernels, strict=True):
            written = _in_place(call, k)
            if written is not None and any(written in c.operands for c in [*group, other] if c != call):
                return False
        return True

    def _merge(self, chunk: ir.OpView, calls: list[ir.OpView]) -> None:
        names = tuple(callee_of(c) for c in calls)
        if names not in self.merged:
            self.merged[names] = self._build(calls, names)
        # At the first call: later members need nothing that comes after it.
        with calls[0].operation.location, ir.InsertionPoint(calls[0]):
            call = func.CallOp([r.type for c in calls for r in c.results], self.merged[names],
                               [v for c in calls for v in c.operands])
        results = iter(call.results)
        for old in calls:
            for result in old.results:
                result.replace_all_uses_with(next(results))
        for old in calls:
            old.operation.erase()

    def _build(self, calls: list[ir.OpView], names: tuple[str, ...]) -> str:
        kernels = [self.kernel(c) for c in calls]
        name = fresh_name(self.root, "_and_".join([names[0], *(_short(n, names[0]) for n in names[1:])]))
        declared = [ir.SymbolTable(self.root.operation)[n] for n in names]
        with calls[0].operation.location:
            self._declare(name, calls, kernels, declared)
            with ir.InsertionPoint(self.module.regions[0].blocks[0]):
                types = [t.type for k in kernels for t in _buffers(k)]
                maps = [t.type for k in kernels for t in _maps(k)]
                table = body_of(kernels[0]).arguments[len(_buffers(kernels[0]))].type
                function = func.FuncOp(name, ([*types, table, *maps], []))
            if maps:
                function.attributes[MAPS] = _merged_maps(kernels)
            function.attributes[BLOCK] = kernels[0].attributes[BLOCK]
            if CLUSTER in kernels[0].attributes:  # each has whole clusters of blocks, so none lies across two kernels
                function.attributes[CLUSTER] = kernels[0].attributes[CLUSTER]
            residents = [ir.IntegerAttr(k.attributes[RESIDENT]).value for k in kernels if RESIDENT in k.attributes]
            if residents:
                function.attributes[RESIDENT] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), min(residents))
            if any(WIDE in k.attributes for k in kernels):
                function.attributes[WIDE] = ir.UnitAttr.get()
            function.attributes[ROLES] = ir.ArrayAttr.get([a for k in kernels for a in ir.ArrayAttr(k.attributes[ROLES])])
            counts = [_blocks(k) for k in kernels]
            total = sum(counts, linear(0))
            none = make_map(0, len(self.symbols), [])
            function.attributes[GRID] = ir.ArrayAttr.get([
                ir.AffineMapAttr.get(m) for m in (make_map(0, len(self.symbols), [total]), none, none)])
            block = function.add_entry_block()
            with ir.InsertionPoint(block):
                buffers, (table, *others) = list(block.arguments)[:len(types)], list(block.arguments)[len(types):]
                self._body(buffers, table, others, kernels, counts)
                func.ReturnOp([])
        return name

    def _declare(self, name: str, calls: list[ir.OpView], kernels: list[ir.OpView], declared: list[ir.OpView]) -> None:
        """The signature on tensors, and how kernel arguments relate to operands and results (see `launches.py`)."""
        binding: list[int] = []
        results: list[int] = []
        operands = 0
        for call, k, d in zip(calls, kernels, declared, strict=True):
            own, made = binding_of(d, k, len(call.operands))
            arguments, before = len(binding), len(results)
            binding += [operands + b if b >= 0 else b - before for b in own]
            results += [arguments + r for r in made]
            operands += len(call.operands)
        with ir.InsertionPoint(self.module):
            function = func.FuncOp(name, ([v.type for c in calls for v in c.operands],
                                          [r.type for c in calls for r in c.results]), visibility="private")
        for attribute in ("arg_attrs", "res_attrs"):
            described = [a for d in declared for a in ir.ArrayAttr(d.attributes[attribute])]
            function.attributes[attribute] = ir.ArrayAttr.get(described)
        bind(function, binding, results)

    def _body(self, buffers: list[ir.Value], table: ir.Value, maps: list[ir.Value], kernels: list[ir.OpView],
              counts: list[Linear]) -> None:
        block = kernel.BlockId(dimension=kernel.Dimension.X, result=ir.IndexType.get()).result
        values = [self._symbol(table, i) for i in range(len(self.symbols))] if any(not c.is_constant for c in counts) or \
            any(not f.is_constant for k in kernels for f in _factors(k)) else []
        own = []
        for k in kernels:
            own.append([*buffers[:len(_buffers(k))], table, *maps[:len(_maps(k))]])
            buffers, maps = buffers[len(_buffers(k)):], maps[len(_maps(k)):]
        self._sections(kernels, counts, own, block, linear(0), values, 0)

    def _sections(self, kernels: list[ir.OpView], counts: list[Linear], arguments: list[list[ir.Value]], block: ir.Value,
                  start: Linear, values: list[ir.Value], number: int) -> None:
        """The first kernel for the blocks up to its count, the others for the rest."""
        local = block if start == linear(0) else arith.subi(block, self._value(start, values))
        if len(kernels) == 1:
            self._inline(kernels[0], arguments[0], local, values, number)
            return
        end = start + counts[0]
        inside = arith.cmpi(arith.CmpIPredicate.ult, block, self._value(end, values))
        branch = scf.IfOp(inside, has_else=True)
        with ir.InsertionPoint(branch.then_block):
            self._inline(kernels[0], arguments[0], local, values, number)
            scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            self._sections(kernels[1:], counts[1:], arguments[1:], block, end, values, number + 1)
            scf.YieldOp([])

    def _symbol(self, table: ir.Value, i: int) -> ir.Value:
        at = arith.constant(ir.IndexType.get(), i)
        word = ir.IntegerType.get_signless(64)
        value = kernel.LoadGlobal(cache=kernel.Cache.PLAIN, buffer=table, offset=at, result=word).result
        return arith.index_cast(ir.IndexType.get(), value)

    def _value(self, expr: Linear, symbols: list[ir.Value]) -> ir.Value:
        if expr.is_constant:
            return arith.constant(ir.IndexType.get(), expr.constant)
        return affine.apply(make_map(0, len(self.symbols), [expr]), symbols)

    def _inline(self, source: ir.OpView, own: list[ir.Value], local: ir.Value, symbols: list[ir.Value], number: int) -> None:
        """Moves a copy of a kernel's body to the insertion point, with its block coordinates taken from `local`."""
        copy = source.operation.clone()
        body = copy.regions[0].blocks[0]
        for old, new in zip(body.arguments, own, strict=True):
            old.replace_all_uses_with(new)
        sizes = [self._product(factors, symbols) for factors in _grid(source)]
        coordinates: dict[kernel.Dimension, ir.Value] = {}
        rest = local
        for dimension, size in zip(list(kernel.Dimension), sizes, strict=True):
            last = all(s is None for s in sizes[list(kernel.Dimension).index(dimension) + 1:])
            if size is None:
                coordinates[dimension] = arith.constant(ir.IndexType.get(), 0)
            elif last:
                coordinates[dimension] = rest
            else:
                coordinates[dimension] = arith.remui(rest, size)
                rest = arith.divui(rest, size)
        point = ir.InsertionPoint.current
        for op in list(body.operations)[:-1]:
            op.operation.detach_from_parent()
            point.insert(op)
        _rewrite(copy, coordinates, number, point.block)
        copy.erase()

    def _product(self, factors: tuple[Linear, ...], symbols: list[ir.Value]) -> ir.Value | None:
        live = [f for f in factors if f != linear(1)]
        result = None
        for f in live:
            value = self._value(f, symbols)
            result = value if result is None else arith.muli(result, value)
        return result

    def drop_unused(self) -> None:
        """Removes kernels that no call names any more, and their declarations."""
        used = {callee_of(call) for call in ops_in(self.root, func.CallOp)}
        for function in list(self.module.regions[0].blocks[0].operations):
            if function.operation.name == "func.func" and ir.StringAttr(function.attributes["sym_name"]).value not in used:
                function.operation.erase()


def _buffers(k: ir.OpView) -> list[ir.Value]:
    return list(body_of(k).arguments)[:len(ir.ArrayAttr(k.attributes[ROLES]))]


def _maps(k: ir.OpView) -> list[ir.Value]:
    return list(body_of(k).arguments)[len(_buffers(k)) + 1:]


def _merged_maps(kernels: list[ir.OpView]) -> ir.Attribute:
    """All tensor maps, the numbers of their buffers moved to where these are now."""
    merged, before = [], 0
    for k in kernels:
        for described in ir.ArrayAttr(k.attributes[MAPS]) if MAPS in k.attributes else []:
            fields = {n.name: n.attr for n in ir.DictAttr(described)}
            number = ir.IntegerAttr(fields["argument"])
            merged.append(ir.DictAttr.get({**fields, "argument": ir.IntegerAttr.get(number.type, number.value + before)}))
        before += len(_buffers(k))
    return ir.ArrayAttr.get(merged)


def _rewrite(copy: ir.Operation, coordinates: dict, number: int, block: ir.Block) -> None:
    """Replaces the block coordinates in what was just moved, and gives its shared memory names of its own."""
    moved = [o for outer in block.operations for o in ops_in(outer, kernel.BlockId, kernel.Shared)]
    for op in moved:
        if isinstance(op, kernel.BlockId):
            op.result.replace_all_uses_with(coordinates[op.dimension])
            op.operation.erase()
        elif not op.symbol.startswith("part"):
            op.operation.attributes["symbol"] = ir.StringAttr.get(f"part{number}_{op.symbol}")
            if op.over:
                op.operation.attributes["over"] = ir.StringAttr.get(f"part{number}_{op.over}")


def _short(name: str, first: str) -> str:
    """A kernel's name without what it shares with the first one's chunk."""
    parts, prefix = name.split("_"), first.split("_")
    while parts and prefix and parts[0] == prefix[0]:
        parts, prefix = parts[1:], prefix[1:]
    return "_".join(parts) or name.split("_")[-1]


def _grid(k: ir.OpView) -> list[tuple[Linear, ...]]:
    return [map_results(ir.AffineMapAttr(m).value) for m in ir.ArrayAttr(k.attributes[GRID])]


def _factors(k: ir.OpView) -> list[Linear]:
    return [f for factors in _grid(k) for f in factors]


def _blocks(k: ir.OpView) -> Any:
    """The number of blocks, where it is no product of two unknowns."""
    total = linear(1)
    for factor in _factors(k):
        if not factor.is_constant and not total.is_constant:
            return None
        total = total * factor
    return total


def _cluster(k: ir.OpView) -> int:
    return ir.IntegerAttr(k.attributes[CLUSTER]).value if CLUSTER in k.attributes else 1


def _in_place(call: ir.OpView, k: ir.OpView) -> ir.Value | None:
    roles = [ir.StringAttr(a).value for a in ir.ArrayAttr(k.attributes[ROLES])]
    return call.operands[roles.index("write")] if len(roles) == len(call.operands) else None
