"""Many programs share the loop of a chain over a long cache, and another kernel adds up what they have.

    kernel(q, k, v) = epilogue(sums of the chain)
      ->   parts(q, k, v): maxima m_p and sums y_p of each program p;   kernel(m_p, y_p) = epilogue(sums of a chain over p)

A cluster of blocks adds up for itself, but has its place in one group of multiprocessors, and clusters leave some of these
idle. Over a long cache that costs more than a launch. A pair (m, y) is a monoid (see online_reductions.py), so the second
kernel is a chain as well, whose scores are the maxima of the programs:

    m = max_p m_p,   y = sum_p exp2(c (m_p - m)) y_p
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mlir import ir
from mlir.dialects import func

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, dim, identity, linear, make_map, map_results
from tilec.pipelines.cost.plan import cache_of, largest, queries_of_a_key, room_for
from tilec.pipelines.cost.rates import SHARED_CACHE
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.fuse import ONLINE
from tilec.pipelines.primop.online_reductions import Chain, match_power
from tilec.pipelines.primop.outline import body_of, callee_of, copy_op, described, extents_of, fresh_name, functions, outline
from tilec.pipelines.primop.structure import Structure, analyse, defining_op, excludes

FEWEST_PARTS = 16  # fewer programs than that make a cluster
FEWEST_ROWS = 256  # of a full cache that a part shall have


@dataclass(frozen=True)
class ShareChains(Pass):
    """Split kernels of one query over a cache of at least `longest` rows into as many parts as give `programs` programs."""

    name = "primop-share-chains"
    anchor = "builtin.module"
    programs: int = 396
    longest: int = SHARED_CACHE

    def run(self, op: ir.OpView) -> None:
        symbols = primop.symbol_ranges(op.operation)
        for kernel in functions(op, "primop.kernel"):
            if (chain := _chain_of(kernel)) is not None:
                structure = analyse(kernel, symbols)
                if (count := self._parts(structure, chain)) >= FEWEST_PARTS:
                    _share(op, structure, chain, count)

    def _parts(self, structure: Structure, chain: Chain) -> int:
        """How many programs shall share a loop: 1 where it is short, or where nobody knows the number of its rows."""
        rows, ops = extents_of(chain.maximum.result), list(body_of(structure.function).operations)
        sums = [o for o in ops if isinstance(o, primop.Sum) and ONLINE in o.operation.attributes]
        length = largest(structure, structure.stages[0][0].axes[0])
        if length < self.longest or not all(e.is_constant for e in rows) or _has_window(ops) or \
                any(str(primop.element_type(o.result)) != "f32" for o in (chain.maximum, *sums)):
            return 1
        each = prod(queries[0] for _, queries in queries_of_a_key(structure, cache_of(structure)))
        count = min(room_for(each, self.programs) * each // prod(e.constant for e in rows), length // FEWEST_ROWS) // 8 * 8
        # The second kernel's loop must not be as long as a head is wide: axes are told apart by their extents.
        return count - 8 if any(linear(count) in extents_of(o.result) for o in sums) else count


def _chain_of(kernel: ir.OpView) -> Chain | None:
    """The chain that a kernel's loop computes."""
    found = (match_power(o) for o in body_of(kernel).operations if ONLINE in o.operation.attributes)
    return next((chain for chain in found if chain is not None), None)


def _has_window(ops: Sequence[ir.OpView]) -> bool:
    """Whether a mask leaves out what comes first: then a loop is short, whatever the cache."""
    for op in ops:
        if isinstance(op, primop.Add) and op.bounds is not None:
            free = {Dim(d) for d, e in enumerate(primop.space_of(op)) if not e.is_constant}
            for operand, bound in zip(op.operands, op.bounds, strict=True):
                if excludes(operand) and any(e.coefficient(a) < 0 for e in map_results(bound) for a in free):
                    return True
    return False


def _share(module: ir.OpView, structure: Structure, chain: Chain, count: int) -> None:
    kernel = structure.function
    name, symbols = ir.StringAttr(kernel.attributes["sym_name"]).value, len(structure.symbols)
    block, location = body_of(kernel), kernel.operation.location
    end = list(block.operations)[-1]
    reductions = sorted((r.op for r in structure.stages[0]), key=lambda o: -len(extents_of(o.result)))
    after = _epilogue(block, end.operands[0], reductions)
    first = structure.views[reductions[0]]
    with location, ir.InsertionPoint(end):
        parts = {}
        for op in reductions:
            place = [e if e.is_constant else dim(first.index(e)) for e in structure.views[op]]
            kind = ir.RankedTensorType.get([count, *op.result.type.shape], primop.element_type(op.result))
            parts[op] = primop.Part(operand=op.result, count=count, map=make_map(len(first), symbols, place), result=kind)
        values = {**{a: a for a in block.arguments}, **_combined(block, chain, structure, parts)}
        for op in after:
            copy_op(op, values)
    ops = list(block.operations)
    whole = ops[ops.index(parts[reductions[-1]]) + 1:ops.index(end)]
    kernel.attributes["sym_name"] = ir.StringAttr.get(fresh_name(module, f"{name}_parts"))
    call = outline(module, name, whole, [values[end.operands[0]]], end, "primop.kernel", location)
    returned, arguments = [p.result for p in parts.values()], list(block.arguments)
    passed = [returned.index(v) if v in returned else len(returned) + arguments.index(v) for v in call.operands]
    with location, ir.InsertionPoint(end):
        func.ReturnOp(returned)
    for op in (end, call, *reversed(whole), *reversed(after)):
        if not any(len(list(r.uses)) for r in op.results):
            op.operation.erase()
    inputs = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).inputs
    kernel.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, [v.type for v in returned]))
    kernel.attributes["res_attrs"] = ir.ArrayAttr.get([described(v, symbols) for v in returned])
    _call_both(module, name, kernel, passed)


def _epilogue(block: ir.Block, returned: ir.Value, reductions: Sequence[ir.OpView]) -> list[ir.OpView]:
    """What is computed from a chain's reductions, in order, with the constants that it needs."""
    found, pending = set[ir.OpView](), [returned]
    while pending:
        op = defining_op(pending.pop())
        if op is not None and op not in reductions and op not in found:
            found.add(op)
            pending += op.operands
    return [op for op in block.operations if op in found]


def _combined(block: ir.Block, chain: Chain, structure: Structure,
              parts: dict[ir.OpView, primop.Part]) -> dict[ir.Value, ir.Value]:
    """Writes the chain over the programs; returns what each reduction is of all of them."""
    maximum, symbols, seen = chain.maximum, len(structure.symbols), parts[chain.maximum].result
    scaled = defining_op(chain.power.operand)
    negated = defining_op(scaled.lhs).rhs

    def views(of: ir.Value) -> tuple[ir.AffineMap, ir.AffineMap]:
        extents = extents_of(of)
        return make_map(0, symbols, extents), make_map(len(extents), symbols, identity(len(extents)))

    def emit(op: type, **fields: Any) -> ir.Value:
        made = op(**fields)
        made.operation.attributes[ONLINE] = ir.UnitAttr.get()
        return made.result

    space, each = views(seen)
    rank = each.n_dims
    rows, one = make_map(rank, symbols, identity(rank)[1:]), make_map(rank, symbols, ())
    values = {maximum.result: emit(primop.Max, operand=seen, space=space, maps=[each], dims=[0], result=maximum.result.type)}
    for op in (*_epilogue(block, negated, [maximum]), defining_op(chain.scale)):  # what is made of a maximum is as it was
        copy_op(op, values)
    distance = emit(primop.Add, lhs=seen, rhs=values[negated], space=space, maps=[each, rows], result=seen.type)
    times = emit(primop.Mul, lhs=distance, rhs=values[chain.scale], space=space, maps=[each, one], result=seen.type)
    power = emit(primop.Exp2, operand=times, space=space, maps=[each], result=seen.type)
    for op, part in parts.items():
        if op != maximum:
            own, whole = views(part.result)
            row = [e if e.is_constant else dim(1 + structure.views[op].index(e)) for e in structure.views[maximum]]
            product = emit(primop.Mul, lhs=power, rhs=part.result, space=own, result=part.result.type,
                           maps=[make_map(whole.n_dims, symbols, [dim(0), *row]), whole])
            values[op.result] = emit(primop.Sum, operand=product, space=own, maps=[whole], dims=[0], result=op.result.type)
    return values


def _call_both(module: ir.OpView, name: str, first: ir.OpView, passed: Sequence[int]) -> None:
    """Replaces calls of a kernel by calls of the one that makes parts and of the one that adds them up."""
    kind = ir.FunctionType(ir.TypeAttr(first.attributes["function_type"]).value)
    for chunk in functions(module, "primop.chunk"):
        for call in list(body_of(chunk).operations):
            if isinstance(call, func.CallOp) and callee_of(call) == name:
                with call.operation.location, ir.InsertionPoint(call):
                    parts = func.CallOp(kind.results, ir.StringAttr(first.attributes["sym_name"]).value, list(call.operands))
                    every = [*parts.results, *call.operands]
                    total = func.CallOp([r.type for r in call.results], name, [every[i] for i in passed])
                for old, new in zip(call.results, total.results, strict=True):
                    old.replace_all_uses_with(new)
                call.operation.erase()
