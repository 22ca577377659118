"""Two passes over memory become one where the second reduction sees the first only through a factor that can be mended.

Given m = max_j s_j and y = sum_j exp2(c (s_j - m)) v_j, the pair (m, y) of two halves combines as

    m = max(m1, m2),   y = y1 exp2(c (m1 - m)) + y2 exp2(c (m2 - m))

because exp2(c (s - m)) = exp2(c (s - m')) exp2(c (m' - m)) and the second factor does not depend on j (Milakov and
Gimelshein 2018; with v the rows of a matrix it is FlashAttention, Dao et al. 2022). So max and all sums that use the same
m can run in one loop that corrects what it carries. This pass finds such chains, moves factors that do not vary along the
summed dimension out of the sum (the division by the row's total), and marks the chain for `primop-fuse`, down to the
contraction that makes the s_j, whose tile then never reaches memory. `convert-primop-to-tile` writes the loop.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, Linear, dim, identity, linear, make_map, map_results, substitute
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.fuse import ONLINE, is_contraction
from tilec.pipelines.primop.outline import body_of, extents_of, functions, place_in_chunk
from tilec.pipelines.primop.reads import Point, Reads, operand_reads, union
from tilec.pipelines.primop.structure import capacity, defining_op, dependent_on, offset_of, operand_index

Symbols = dict[str, tuple[int, int]]
HEADS = range(32, 257, 16)  # widths that both products of many rows can have


@dataclass(frozen=True)
class Chain:
    """A maximum, the exponential that uses it, and the sums over the same dimension that use the exponential."""

    maximum: primop.Max
    clamped: ir.Value  # the maximum as the exponential sees it: never -inf
    power: primop.Exp2
    scale: ir.Value  # c, a constant
    floor: float  # the lowest value of `clamped`


@dataclass(frozen=True)
class OnlineReductions(Pass):
    """Prepare and mark chains of reductions that one loop can compute: attention over a cache.

    With `one`, of one query at a time, worth it where a cluster of blocks can share the loop; with `rows`, of many, where
    both products suit tensor cores.
    """

    name = "primop-online-reductions"
    anchor = "builtin.module"
    one: bool = True
    rows: bool = False

    def run(self, op: ir.OpView) -> None:
        symbols = primop.symbol_ranges(op.operation)
        for chunk in functions(op, "primop.chunk"):
            for found in [o for o in body_of(chunk).operations if isinstance(o, primop.Sum) and is_contraction(o)]:
                total = self._factored(found, symbols) or found
                chain = self._chain_below(total, symbols)
                links = _links(chain, total) if chain is not None else {}
                if chain is not None and _is_apart(chain, total, links):
                    for link in links:
                        link.operation.attributes[ONLINE] = ir.UnitAttr.get(link.operation.context)

    def _factored(self, total: primop.Sum, symbols: Symbols) -> primop.Sum | None:
        """Rewrites sum((p * r) * v), r constant along the sum, as sum(p * v) * r; returns the new sum.

        Between the products there may be a cast, which then rounds p alone.
        """
        product = defining_op(total.operand)
        if not isinstance(product, primop.Mul) or product.bounds is not None:
            return None
        for k in (0, 1):
            inner, cast = defining_op(product.operands[k]), None
            point = tuple(dim(d) for d in range(len(primop.space_of(product))))
            here = operand_index(product, k, point)
            if isinstance(inner, primop.Cast) and inner.bounds is None:
                inner, cast, here = defining_op(inner.operand), inner, operand_index(inner, 0, here)
            if not isinstance(inner, primop.Mul) or inner.bounds is not None:
                continue
            for j in (0, 1):
                index = operand_index(inner, j, here)
                if any(Dim(d) in e.atoms() for e in index for d in total.dims):
                    continue
                chain = match_power(defining_op(inner.operands[1 - j]))
                if chain is None or not self._suits(chain, total, k, symbols):
                    continue
                return _rewrite(total, product, inner, cast, k, j, index, operand_index(inner, 1 - j, here), len(symbols))
        return None

    def _chain_below(self, total: primop.Sum, symbols: Symbols) -> Chain | None:
        product = defining_op(total.operand)
        if not isinstance(product, primop.Mul):
            return None
        for k, operand in enumerate(product.operands):
            chain = match_power(below_cast(operand))
            if chain is not None and self._suits(chain, total, k, symbols):
                return chain
        return None

    def _suits(self, chain: Chain, total: primop.Sum, shares: int, symbols: Symbols) -> bool:
        """Whether one loop is better: rows of any length, made by a contraction, few of them (their number is known).

        One axis of the loop is the depth of the scores and the width of what they mix, so these must be equal. Many rows only
        by tensor cores, for which both products need 16-bit operands and heads of such a width; otherwise their scores are
        better made by a kernel of their own. Short rows of a known length need no loop. `shares` is the number of the
        product's operand that the exponential is. What is multiplied must lie along the head, for many rows in pieces of 16
        bytes.
        """
        space, dims = primop.space_of(chain.maximum), list(chain.maximum.dims)
        if len(dims) != 1 or space[dims[0]].is_constant:
            return False
        scores = _made_by_contraction(chain.maximum.operand)
        if scores is None:
            return False
        depth, product = [primop.space_of(scores)[d] for d in scores.dims], defining_op(total.operand)
        used = [{a for e in map_results(m) for a in e.atoms()} for m in product.maps]
        mixed = [n for d, n in enumerate(primop.space_of(product)) if Dim(d) in used[1 - shares] - used[shares]]
        if len(depth) != 1 or mixed != depth:
            return False
        made, many = defining_op(scores.operand), _share(scores)
        across = next(d for d, _ in enumerate(primop.space_of(product)) if Dim(d) in used[1 - shares] - used[shares])
        places = [(made, k, scores.dims[0]) for k in (0, 1)] + [(product, 1 - shares, across)]
        if not all(_is_contiguous(op, k, d, many, symbols) for op, k, d in places):
            return False
        if not many:
            return self.one
        narrow = all(str(primop.element_type(v)) in ("bf16", "f16")
                     for s in (scores, total) for v in defining_op(s.operand).operands)
        return self.rows and narrow and depth[0] in [linear(n) for n in HEADS]


def _is_contiguous(product: primop.Mul, operand: int, d: int, pieces: bool, symbols: Symbols) -> bool:
    """Whether an operand lies along a dimension: with `pieces`, whole and in pieces of 16 bytes of 16-bit elements.

    What is computed is then in memory as it is computed; a row at a time computes it in the loop.
    """
    value = product.operands[operand]
    if not pieces and defining_op(value) is not None:
        return True
    offset = offset_of(map_results(product.maps[operand]), capacity(extents_of(value), symbols))
    along = offset.coefficient(Dim(d)) == 1 and Dim(d) not in offset.nonlinear_atoms()
    if not pieces:
        return along
    rest = [c for atom, c in offset.terms if atom != Dim(d)]
    return along and product.bounds is None and not any(c % 8 for c in (*rest, offset.constant))


def match_power(op: ir.OpView | None) -> Chain | None:
    """`exp2((x - clamp(max x)) * c)`, as `primop-decompose-softmax` writes it."""
    if not isinstance(op, primop.Exp2):
        return None
    scaled = defining_op(op.operand)
    if not isinstance(scaled, primop.Mul):
        return None
    shifted, scale = defining_op(scaled.lhs), defining_op(scaled.rhs)
    if not isinstance(shifted, primop.Add) or not isinstance(scale, primop.Constant):
        return None
    negated = defining_op(shifted.rhs)
    if not isinstance(negated, primop.Mul) or not isinstance(defining_op(negated.rhs), primop.Constant):
        return None
    clamped = defining_op(negated.lhs)
    if not isinstance(clamped, primop.Custom) or clamped.kind != "arith.select":
        return None
    maximum, floor = defining_op(clamped.third), defining_op(clamped.second)
    if not isinstance(maximum, primop.Max) or maximum.operand != shifted.lhs or not isinstance(floor, primop.Constant):
        return None
    return Chain(maximum, clamped.result, op, scaled.rhs, ir.FloatAttr(floor.value).value)


def _rewrite(total: primop.Sum, product: primop.Mul, inner: primop.Mul, cast: primop.Cast | None, k: int, j: int,
             factor: tuple[Linear, ...], kept: tuple[Linear, ...], symbols: int) -> primop.Sum:
    rank = len(primop.space_of(product))
    result_dims = {Dim(d): dim(i) for i, d in enumerate(d for d in range(rank) if d not in list(total.dims))}
    extents = extents_of(total.result)
    with total.operation.location, ir.InsertionPoint(total):
        operands, maps = list(product.operands), list(product.maps)
        operands[k], maps[k] = inner.operands[1 - j], make_map(rank, symbols, kept)
        narrowed = []
        if cast is not None:
            source = primop.space_of(defining_op(operands[k]))
            whole = make_map(len(source), symbols, [dim(d) for d in range(len(source))])
            kind = ir.RankedTensorType.get(list(ir.RankedTensorType(operands[k].type).shape), primop.element_type(cast.result))
            narrowed = [primop.Cast(operand=operands[k], space=make_map(0, symbols, source), maps=[whole], result=kind)]
            operands[k] = narrowed[0].result
        fresh = primop.Mul(lhs=operands[0], rhs=operands[1], space=product.space, maps=maps, result=product.result.type)
        summed = primop.Sum(operand=fresh.result, space=total.space, maps=total.maps, dims=list(total.dims),
                            result=total.result.type)
        outer = [substitute(e, result_dims) for e in factor]
        whole = [dim(i) for i in range(len(extents))]
        scaled = primop.Mul(lhs=summed.result, rhs=inner.operands[j], space=make_map(0, symbols, extents),
                            maps=[make_map(len(extents), symbols, m) for m in (whole, outer)], result=total.result.type)
    for made in (*narrowed, fresh, summed, scaled):
        place_in_chunk(made, total)
    total.result.replace_all_uses_with(scaled.result)
    for dead in (total, product, *([cast] if cast is not None else []), inner):
        if not list(dead.result.uses):
            dead.operation.erase()
    return summed


def below_cast(value: ir.Value) -> ir.OpView | None:
    """The op that computes a value, or what it casts."""
    op = defining_op(value)
    return defining_op(op.operand) if isinstance(op, primop.Cast) else op


def _made_by_contraction(value: ir.Value) -> primop.Sum | None:
    """The one contraction whose elementwise epilogue a value is, read once; what fusion would cut off is no epilogue."""
    root = defining_op(value)
    if root is None:
        return None
    ways = {root: 1}
    reads = {root: Reads(frozenset([Point(identity(len(extents_of(value))))]))}
    found: list[primop.Sum] = []
    for op in reversed(list(root.operation.block.operations)):
        if op not in ways or isinstance(op, primop.Constant | primop.Iota):
            continue
        if isinstance(op, primop.Sum | primop.Max | primop.Gather | primop.Scatter):
            found += [op] * (ways[op] if is_contraction(op) else 2)
            continue
        if reads[op].too_many or reads[op].too_long:
            return None
        for k, operand in enumerate(op.operands):
            inner = defining_op(operand)
            if inner is not None:
                ways[inner] = min(ways.get(inner, 0) + ways[op], 2)
                reads[inner] = union([operand_reads(op, k, reads[op]), *([reads[inner]] if inner in reads else [])])
    return found[0] if len(found) == 1 else None


def _share(scores: primop.Sum) -> bool:
    """Whether many rows share what they are multiplied with: of the dimensions that have any length, the left operand varies
    along one and the right one along another. Where each row has its own, it is a row at a time."""
    product = defining_op(scores.operand)
    assert isinstance(product, primop.Mul), "a contraction sums products"
    point = operand_index(scores, 0, tuple(dim(d) for d in range(len(primop.space_of(scores)))))
    left, right = (set().union(*(e.atoms() for e in operand_index(product, k, point))) for k in (0, 1))
    free = {Dim(d) for d, e in enumerate(primop.space_of(scores)) if not e.is_constant}
    return bool(free & left - right) and bool(free & right - left)


def _links(chain: Chain, total: primop.Sum) -> dict[ir.OpView, None]:
    """The sum and everything between it and the contraction that makes the s_j, and the sums beside it."""
    product = defining_op(total.operand)
    assert product is not None
    links: dict[ir.OpView, None] = {product: None}
    pending: list[ir.OpView] = [total]
    pending += [use.owner for use in chain.power.result.uses if isinstance(use.owner, primop.Sum)]
    while pending:
        op = pending.pop()
        if op in links or isinstance(op, primop.Constant | primop.Iota):
            continue
        links[op] = None
        if isinstance(op, primop.Sum) and is_contraction(op) and op != total:
            continue  # the scores: what they multiply is read from memory
        below = list(op.operands)
        if op == total:
            below = [v for v in product.operands if (made := below_cast(v)) is not None and made == chain.power]
        pending += [inner for v in below if (inner := defining_op(v)) is not None and _is_between(inner, chain)]
    return links


def _is_apart(chain: Chain, total: primop.Sum, links: Collection[ir.OpView]) -> bool:
    """Whether only the chain reads what lies between the s_j and its sums: one loop keeps none of it."""
    scores = _made_by_contraction(chain.maximum.operand)
    assert scores is not None, "a chain begins with a contraction"
    late = dependent_on(total.operation.block.operations, [scores])
    sums = [op for op in links if isinstance(op, primop.Sum) and op != scores]
    return all(use.owner in links for op in links if op in late and op not in sums for use in op.result.uses)


def _is_between(op: ir.OpView, chain: Chain) -> bool:
    """Whether an op is computed from the s_j or is a step to them, and no read of the cache."""
    return not isinstance(op, primop.Gather | primop.Scatter | primop.Input)
