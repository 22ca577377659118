"""A factor of whole rows, such as a norm's, is multiplied in after the products that read the rows.

    sum_k (r x_k w_k) v_nk   =   r sum_k (x_k w_k) v_nk,   r = f(sum_j g(x_j)) = f(sum_b sum_{j in block b} g(x_j))

A row that is divided by its norm waits for all of itself, so the products that read it need a kernel of their own before
them. The row without its factor does not, nor do the sums of `block` neighbours that the factor is made of: both are marked,
moved to the chunk that makes x, and become further results of the kernel that does (see `primop-fuse`). What is left is one
number a row. Rounding to bf16 is relative, so to round before the factor is as exact as to round after it; f16, whose range
a row without its factor may leave, stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import (
    Dim,
    Linear,
    Ranges,
    Symbol,
    dim,
    identity,
    linear,
    make_map,
    map_results,
    range_of,
    substitute,
)
from tilec.pipelines.cost.rates import FEW_ROWS
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.fuse import BESIDE, FACTOR, FREE, REDUCTIONS, is_contraction, is_pointwise_use
from tilec.pipelines.primop.outline import MARKS, body_of, chunk_number, extents_of, functions, place_in_chunk
from tilec.pipelines.primop.structure import defining_op, operand_index

Factor = tuple[ir.Value, tuple[Linear, ...]]  # a value and where a row reads it


@dataclass(frozen=True)
class _Row:
    """A rounded product of factors, of which `scales` are the same for all of a row and come out of `sums` along it."""

    op: primop.Cast
    factors: tuple[Factor, ...]
    scales: tuple[Factor, ...]
    between: tuple[ir.OpView, ...]  # that make scales of sums
    sums: tuple[primop.Sum, ...]
    readers: tuple[primop.Sum, ...]  # the products
    block: int  # neighbours that the kernel before sums

    @property
    def makers(self) -> list[ir.OpView]:
        """What computes all that the row and its sums are made of element by element."""
        return [op for v in (*(v for v, _ in self.factors), *(s.operand for s in self.sums)) for op in _makers(v)]


@dataclass(frozen=True)
class DelayScales(Pass):
    """Multiply products of matrices by what scales their rows, instead of the rows, which the kernel before then makes."""

    name = "primop-delay-scales"
    anchor = "builtin.module"
    block: int = 64
    few: int = 16  # the same where there are few rows, whose kernels take as few columns

    def run(self, op: ir.OpView) -> None:
        ranges: Ranges = {Symbol(i): r for i, r in enumerate(primop.symbol_ranges(op.operation).values())}
        for entry in functions(op, "primop.entry"):
            ops = list(body_of(entry).operations)
            rows = [r for o in ops if isinstance(o, primop.Cast) and (r := self._row(o, ranges)) is not None]
            chunks = sorted({chunk_number(o) for o in ops}) if rows else []
            gain = {r.op: _is_of_product(r) for r in rows}
            alike = {_label(op) for op, gains in gain.items() if gains} - {None}  # chunks that are equal stay equal
            for op_of_row in (o for o, gains in gain.items() if gains or _label(o) in alike):
                row = self._row(op_of_row, ranges)  # as those before it have left it
                home = max(row.makers, key=chunk_number, default=None) if row is not None else None
                if row is not None and home is not None and \
                        chunks.index(chunk_number(row.op)) <= chunks.index(chunk_number(home)) + 1:
                    self._rewrite(row, home)

    def _row(self, op: primop.Cast, ranges: Ranges) -> _Row | None:
        """The row that an op rounds, if only products read it and a factor of all of it can be told apart."""
        space = primop.space_of(op)
        if (str(primop.element_type(op.operand)), str(primop.element_type(op.result))) != ("f32", "bf16") or \
                len(space) < 2 or not space[-1].is_constant:
            return None
        bounds = [range_of(e, ranges) for e in space[:-1]]
        rows = prod(b[1] if b is not None else FEW_ROWS + 1 for b in bounds)
        block = self.few if rows <= FEW_ROWS else self.block
        if rows == 1 or space[-1].constant % block or space[-1].constant == block:
            return None
        readers = [_reader(use.owner.opview, use.operand_number) for use in op.result.uses]
        if not readers or any(r is None for r in readers) or not _is_whole(op, 0):
            return None
        along, depth = [], Dim(len(space) - 1)
        for factor in _factors(op.operand, identity(len(space))):
            along.append((any(depth in e.atoms() for e in factor[1]) or isinstance(defining_op(factor[0]), FREE), factor))
        factors, scales = ([f for varies, f in along if varies == wanted] for wanted in (True, False))
        below = _down_to_sums([value for value, _ in scales], space[-1])
        sums = tuple(o for o in below if isinstance(o, primop.Sum))
        if not sums or not factors:
            return None
        return _Row(op, tuple(factors), tuple(scales), tuple(o for o in below if o not in sums), sums,
                    tuple(r for r in readers if r is not None), block)

    def _rewrite(self, row: _Row, home: ir.OpView) -> None:
        for total in row.sums:
            with row.op.operation.location, ir.InsertionPoint(total):
                _cut(total, home, row.block)
        for op in (o for value, _ in row.factors for o in _elementwise_below(value)):
            _placed(op, home)
        symbols, space = row.op.space.n_symbols, primop.space_of(row.op)
        whole = make_map(len(space), symbols, identity(len(space)))
        with row.op.operation.location, ir.InsertionPoint(row.op):
            (value, at), *others = row.factors
            view = make_map(len(space), symbols, at)
            for factor, place in others:
                product = primop.Mul(lhs=value, rhs=factor, space=row.op.space, result=row.op.operand.type,
                                     maps=[view, make_map(len(space), symbols, place)])
                value, view = _placed(product, home).result, whole
            rounded = primop.Cast(operand=value, space=row.op.space, maps=[view], result=row.op.result.type)
        _placed(rounded, home).operation.attributes[BESIDE] = ir.UnitAttr.get(rounded.operation.context)
        row.op.result.replace_all_uses_with(rounded.result)
        for op in row.between:
            op.operation.attributes[FACTOR] = ir.UnitAttr.get(op.operation.context)
        for reader in row.readers:
            _scale(reader, row.scales)


def _cut(total: primop.Sum, home: ir.OpView, block: int) -> None:
    """Writes a sum along rows as one of blocks, which are made where the rows are, and one of these."""
    space, symbols = primop.space_of(total), total.space.n_symbols
    for op in _elementwise_below(total.operand):
        _placed(op, home)
    rank = len(space)
    blocks = [*space[:-1], linear(space[-1].constant // block), linear(block)]
    inside = (*identity(rank - 1), dim(rank - 1) * block + dim(rank))
    shape = [e.constant if e.is_constant else ir.ShapedType.get_dynamic_size() for e in blocks[:-1]]
    parts = primop.Sum(operand=total.operand, space=make_map(0, symbols, blocks), dims=[rank],
                       maps=[make_map(rank + 1, symbols, operand_index(total, 0, inside))],
                       result=ir.RankedTensorType.get(shape, primop.element_type(total.result)))
    _placed(parts, home).operation.attributes[BESIDE] = ir.UnitAttr.get()
    every = make_map(rank, symbols, identity(rank))
    result = _placed(primop.Sum(operand=parts.result, space=make_map(0, symbols, blocks[:-1]), dims=[rank - 1],
                                maps=[every], result=total.result.type), total).result
    result.owner.attributes[FACTOR] = ir.UnitAttr.get()
    total.result.replace_all_uses_with(result)
    total.operation.erase()


def _is_whole(op: ir.OpView, operand: int) -> bool:
    """Whether an op reads an operand as it is."""
    return op.bounds is None and map_results(op.maps[operand]) == identity(len(primop.space_of(op))) and \
        extents_of(op.operands[operand]) == primop.space_of(op)


def _reader(op: ir.OpView, operand: int) -> primop.Sum | None:
    """The sum of a matrix product that reads its rows along its depth, on the left, where lanes share a row of the result."""
    if not isinstance(op, primop.Mul) or operand or op.bounds is not None or str(primop.element_type(op.result)) != "f32":
        return None
    sums = [use.owner.opview for use in op.result.uses]
    if len(sums) != 1 or not isinstance(sums[0], primop.Sum) or not is_contraction(sums[0]) or not _is_whole(sums[0], 0) or \
            str(primop.element_type(sums[0].result)) != "f32":
        return None
    depth = [Dim(d) for d in sums[0].dims]
    *rows, last = map_results(op.maps[operand])
    alone = len(depth) == 1 and last == dim(depth[0].position) and not any(depth[0] in e.atoms() for e in rows)
    return sums[0] if alone and primop.space_of(op)[depth[0].position] == extents_of(op.operands[operand])[-1] else None


def _factors(value: ir.Value, at: tuple[Linear, ...]) -> list[Factor]:
    """What a value is the product of, as far as it is one that nobody else reads."""
    op = defining_op(value)
    if isinstance(op, primop.Mul) and op.bounds is None and len(list(op.result.uses)) == 1 and \
            primop.element_type(op.lhs) == primop.element_type(op.result):
        return [f for k, operand in enumerate(op.operands) for f in _factors(operand, operand_index(op, k, at))]
    return [(value, at)]


def _down_to_sums(values: Sequence[ir.Value], length: Linear) -> list[ir.OpView]:
    """The ops that make some values of sums along whole rows, and these; empty where anything else is needed."""
    found: dict[ir.OpView, None] = {}
    pending = list(values)
    while pending:
        op = defining_op(pending.pop())
        if op is None:
            return []
        if isinstance(op, FREE) or op in found:
            continue
        if isinstance(op, primop.Sum) and list(op.dims) == [len(primop.space_of(op)) - 1] and op.bounds is None and \
                primop.space_of(op)[-1] == length and not is_contraction(op) and str(primop.element_type(op.result)) == "f32":
            found[op] = None
        elif isinstance(op, (*REDUCTIONS, primop.Input, primop.Gather, primop.Scatter, primop.Softmax)):
            return []
        else:
            found[op] = None
            pending += op.operands
    return list(found)


def _is_of_product(row: _Row) -> bool:
    """Whether a product's epilogue makes all that a row and its sums are made of, so that its kernel can make these, too."""
    made = set(row.makers)
    x = made.pop() if len(made) == 1 else None
    if x is None or extents_of(x.operation.results[0]) != primop.space_of(row.op):
        return False
    found, pending = False, [(x, True)]
    while pending:
        op, pointwise = pending.pop()
        if isinstance(op, REDUCTIONS):
            if not is_contraction(op) or not pointwise:
                return False
            found = True
            continue
        for k, operand in enumerate(op.operands):
            below = defining_op(operand)
            alone = below is not None and len({use.owner for r in below.operation.results for use in r.uses}) == 1
            if alone and not isinstance(below, (*FREE, primop.Input)):
                pending.append((below, pointwise and is_pointwise_use(op, k)))
    return found


def _makers(value: ir.Value) -> list[ir.OpView]:
    """What computes the rows that a value is made of element by element: the first ops below it that others read as well."""
    below = _elementwise_below(value)
    ops = [defining_op(v) for v in ([v for op in below for v in op.operands] or [value])]
    return [op for op in ops if op is not None and op not in below and not isinstance(op, (*FREE, primop.Input))]


def _elementwise_below(value: ir.Value) -> list[ir.OpView]:
    """The ops that compute a value element by element and for nobody else."""
    found, pending = [], [value]
    while pending:
        op = defining_op(pending.pop())
        users = {use.owner for result in op.operation.results for use in result.uses} if op is not None else set()
        if isinstance(op, primop.Mul | primop.Add | primop.Cast) and len(users) == 1 and op not in found:
            found.append(op)
            pending += op.operands
    return found


def _scale(reader: primop.Sum, scales: Sequence[Factor]) -> None:
    """Multiplies a product by the factors of its rows."""
    product, kept = defining_op(reader.operand), [d for d in range(len(primop.space_of(reader))) if d not in list(reader.dims)]
    view = map_results(product.maps[0])
    inside = {Dim(d): dim(kept.index(d)) for d in kept}
    row = {Dim(d): substitute(e, inside) for d, e in enumerate(view[:-1])}
    symbols, rank = reader.space.n_symbols, len(kept)
    space = make_map(0, symbols, extents_of(reader.result))
    users = [(use.owner, use.operand_number) for use in reader.result.uses]
    value = reader.result
    with reader.operation.location, ir.InsertionPoint.after(reader.operation):
        for scale, at in scales:
            place = make_map(rank, symbols, [substitute(e, row) for e in at])
            product = primop.Mul(lhs=value, rhs=scale, space=space, result=reader.result.type,
                                 maps=[make_map(rank, symbols, identity(rank)), place])
            value = _placed(product, reader).result
    for user, number in users:
        user.operands[number] = value


def _label(op: ir.OpView) -> str | None:
    """The name of the graph break that an op's chunk begins with."""
    return ir.StringAttr(op.operation.attributes[MARKS[0]]).value if MARKS[0] in op.operation.attributes else None


def _placed(op: ir.OpView, home: ir.OpView) -> ir.OpView:
    """An op, made part of the chunk that another belongs to."""
    place_in_chunk(op, home)
    return op
