"""Programs are recorded by calling them; a view is metadata of a `Tensor` and only a computation becomes an op.

    graph = Graph(symbols={"seq": (1, 512)})
    with graph.entry("main"):
        x = graph.input("x", (graph.symbol("seq"), 64), "f32")
        w = graph.input("w", (32, 64), "f32", kind="weight")
        graph.output("y", x @ w.transpose(0, 1))
    print(graph.module)

A tensor is an SSA value and a view of it: for each logical dimension an extent, and for each dimension of the value an
index expression in the logical ones. Permuting, broadcasting, slicing, reshaping and padding rewrite those expressions.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mlir import ir
from mlir.dialects import func

from tilec.dialects import core, primop
from tilec.dialects.index_expr import (
    Dim,
    Linear,
    Ranges,
    Symbol,
    dim,
    floordiv,
    identity,
    linear,
    make_map,
    mod,
    range_of,
    substitute,
    symbol,
)
from tilec.errors import TilecError

Extent = Linear | int
LOG2_E = 1.4426950408889634
MOST_TERMS = 16  # of all indices and conditions of a view: reshapes of permuted reshapes can double them, so then it is copied
_HERE = str(Path(__file__).parent)


class ShapeError(TilecError):
    """Shapes or element types that do not fit an operation."""


def _text(shape: Sequence[Linear]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


class Graph:
    """One module under construction, its context, and its symbols.

    `symbols` maps a name to its inclusive range; an extent may be any sum and multiple of symbols and integers. `tf32` lets
    tensor cores read the f32 operands of matrix products as TF32.
    """

    def __init__(self, symbols: Mapping[str, tuple[int, int]] | None = None, tf32: bool = False) -> None:
        self.symbols = dict(sorted((symbols or {}).items()))
        self.context = ir.Context()
        core.load_all(self.context)
        self._chunk: tuple[str, int] | None = None
        self._chunks = 0
        self._scopes: list[str] = []
        self._constants: dict[tuple[str, float | int | bool], ir.Value] = {}
        with self.context, ir.Location.unknown():
            self.module = ir.Module.create()
            ranges = {n: ir.DenseI64ArrayAttr.get(list(r)) for n, r in self.symbols.items()}
            self.module.operation.attributes["primop.symbols"] = ir.DictAttr.get(ranges)
            if tf32:
                self.module.operation.attributes[primop.TF32] = ir.UnitAttr.get()
        self._insertion: ir.InsertionPoint | None = None

    def symbol(self, name: str) -> Linear:
        """The extent that `name` stands for."""
        if name not in self.symbols:
            raise ShapeError(f"no symbol '{name}' was declared; there are: {', '.join(self.symbols) or 'none'}")
        return symbol(list(self.symbols).index(name))

    @contextlib.contextmanager
    def entry(self, name: str) -> Iterator[None]:
        """Records one entry point, a function that the artifact will offer by this name."""
        with self.context, ir.Location.unknown():
            with ir.InsertionPoint(self.module.body):
                function = func.FuncOp(name, ([], []))
                function.attributes["primop.entry"] = ir.UnitAttr.get()
            block = function.add_entry_block()
            self._chunk, self._chunks, self._constants = None, 0, {}
            with ir.InsertionPoint(block):
                yield
                func.ReturnOp([])

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names what is recorded inside; kernels are called after it."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def graph_break(self, name: str) -> None:
        """Cuts here: what follows, up to the next cut, is one chunk called `name`; equal chunks compile once."""
        self._chunk = (name, self._chunks)
        self._chunks += 1
        self._constants = {}

    def input(self, name: str, shape: Sequence[Extent], dtype: str, kind: str = "argument") -> Tensor:
        """A value given from outside: kind 'argument', 'weight' (a checkpoint tensor) or 'state' (outlives the call)."""
        extents = tuple(linear(e) for e in shape)
        with self._location():
            op = primop.Input(label=name, kind=primop.InputKind(kind), shape=self._extents(extents),
                              result=self._type(extents, dtype))
        return Tensor(self, op.result, extents, identity(len(extents)), ())

    def output(self, name: str, tensor: Tensor, alias: str | None = None) -> None:
        """Names a result of the entry point; with `alias` it is written onto that state or symbol ('symbol:NAME')."""
        with self._location():
            primop.Output(tensor.contiguous().value, name, alias=alias)

    def constant(self, value: float | int | bool, dtype: str) -> Tensor:
        """A scalar."""
        key = (dtype, value)
        if key not in self._constants:
            element = self._element(dtype)
            attribute = (ir.FloatAttr.get(element, float(value)) if dtype in primop.FLOATS
                         else ir.IntegerAttr.get(element, int(value)))
            with self._location():
                op = self._mark(primop.Constant(value=attribute, result=ir.RankedTensorType.get([], element)))
            self._constants[key] = op.result
        return Tensor(self, self._constants[key], (), (), ())

    def iota(self, extent: Extent, dtype: str = "i32") -> Tensor:
        """0, 1, 2, ... as a vector."""
        extents = (linear(extent),)
        with self._location():
            op = self._mark(primop.Iota(space=self._extents(extents), result=self._type(extents, dtype)))
        return Tensor(self, op.result, extents, identity(1), ())

    def index(self, value: Linear, dtype: str = "i32") -> Tensor:
        """The value of an extent expression, such as the position of the first new token, as a scalar."""
        return self.iota(value + 1, dtype)[value]

    # How ops are made -------------------------------------------------------------------------------------------

    def _element(self, dtype: str) -> ir.Type:
        if dtype not in primop.FLOATS + primop.INTEGERS:
            raise ShapeError(f"element type must be one of {', '.join(primop.FLOATS + primop.INTEGERS)}, but is '{dtype}'")
        return ir.Type.parse(dtype, self.context)

    def _type(self, extents: Sequence[Linear], dtype: str) -> ir.Type:
        dynamic = ir.ShapedType.get_dynamic_size()
        return ir.RankedTensorType.get([e.constant if e.is_constant else dynamic for e in extents], self._element(dtype))

    def _extents(self, extents: Sequence[Linear]) -> ir.AffineMap:
        return make_map(0, len(self.symbols), extents)

    def _mark(self, op: ir.OpView) -> ir.OpView:
        if self._chunk:
            op.operation.attributes["primop.chunk"] = ir.StringAttr.get(self._chunk[0])
            op.operation.attributes["primop.chunk_index"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self._chunk[1])
        return op

    def _location(self) -> ir.Location:
        """The user's line, named after the scopes around it."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename in (__file__, _HERE + "/nn.py"):
            frame = frame.f_back
        place = ir.Location.file(frame.f_code.co_filename, frame.f_lineno, 0, context=self.context)
        return ir.Location.name(".".join(self._scopes), place, context=self.context) if self._scopes else place


class Tensor:
    """A value of a `Graph` seen through a view.

    `shape` holds extents (`Linear`; integers compare equal after `linear`), `dtype` is 'f32', 'bf16', 'f16', 'i64',
    'i32' or 'i1'. Elementwise operations broadcast as NumPy does. Errors are `ShapeError`.
    """

    def __init__(self, graph: Graph, value: ir.Value, shape: tuple[Linear, ...], view: tuple[Linear, ...],
                 bound: tuple[Linear, ...]) -> None:
        self.graph, self.value, self.shape, self.view, self.bound = graph, value, shape, view, bound

    @functools.cached_property
    def dtype(self) -> str:
        return str(primop.element_type(self.value))

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({_text(self.shape)}, {self.dtype})"

    # Views ------------------------------------------------------------------------------------------------------

    def _viewed(self, shape: Sequence[Extent], mapping: Sequence[Linear], bound: Sequence[Linear] = ()) -> Tensor:
        """A view with this shape where old dimension i is `mapping[i]`."""
        extents = tuple(linear(e) for e in shape)
        symbols = tuple(self.graph.symbols.values())
        view, undecided = _composed(extents, tuple(mapping), tuple(bound), self.view, self.bound, symbols)
        if sum(e.count_terms() for e in (*view, *undecided)) > MOST_TERMS and not self._is_whole():
            return self.contiguous()._viewed(shape, mapping, bound)
        return Tensor(self.graph, self.value, extents, view, undecided)

    def permute(self, *order: int) -> Tensor:
        """Dimension i of the result is dimension `order[i]`."""
        order = tuple(d % self.rank for d in order)
        if sorted(order) != list(range(self.rank)):
            raise ShapeError(f"permute needs each of the {self.rank} dimensions once, but got {order}")
        mapping = [dim(order.index(i)) for i in range(self.rank)]
        return self._viewed([self.shape[d] for d in order], mapping)

    def transpose(self, a: int, b: int) -> Tensor:
        """Swaps two dimensions."""
        order = list(range(self.rank))
        order[a % self.rank], order[b % self.rank] = order[b % self.rank], order[a % self.rank]
        return self.permute(*order)

    def flip(self, dimension: int) -> Tensor:
        """The elements along one dimension in reverse order; a view."""
        mapping = [dim(d) for d in range(self.rank)]
        mapping[dimension] = self.shape[dimension] - 1 - mapping[dimension]
        return self._viewed(self.shape, mapping)

    def unsqueeze(self, position: int) -> Tensor:
        """Inserts a dimension of extent 1 before `position` (negative: after, from the end)."""
        position = position % (self.rank + 1)
        shape = (*self.shape[:position], linear(1), *self.shape[position:])
        return self._viewed(shape, [dim(i + (i >= position)) for i in range(self.rank)])

    def squeeze(self, position: int) -> Tensor:
        """Removes a dimension of extent 1."""
        position = position % self.rank
        if self.shape[position] != linear(1):
            raise ShapeError(f"squeeze needs extent 1, but dimension {position} of {_text(self.shape)} has another")
        mapping = [Linear() if i == position else dim(i - (i > position)) for i in range(self.rank)]
        return self._viewed(self.shape[:position] + self.shape[position + 1:], mapping)

    def expand(self, *shape: Extent) -> Tensor:
        """Broadcasts as NumPy does: new leading dimensions, and stretched dimensions of extent 1."""
        extents = tuple(linear(e) for e in shape)
        if extents == self.shape:
            return self
        lead = len(extents) - self.rank
        if lead < 0:
            raise ShapeError(f"cannot broadcast {_text(self.shape)} to the lower rank of {_text(extents)}")
        mapping = []
        for i, old in enumerate(self.shape):
            new = extents[lead + i]
            if old != new and old != linear(1):
                raise ShapeError(f"cannot broadcast {_text(self.shape)} to {_text(extents)}: {old} is neither {new} nor 1")
            mapping.append(dim(lead + i) if old == new else Linear())
        return self._viewed(extents, mapping)

    def reshape(self, *shape: Extent) -> Tensor:
        """The same elements in row-major order; one extent may be -1. Symbolic extents must stay whole."""
        extents = [linear(e) for e in shape]
        mapping = _reshape_mapping(self.shape, extents)
        return self._viewed(extents, mapping)

    def pad(self, dimension: int, before: int, after: int) -> Tensor:
        """Zeros before and after, along one dimension."""
        dimension = dimension % self.rank
        shape = list(self.shape)
        inner = dim(dimension) - before
        bound = [inner, shape[dimension] - 1 - inner]
        shape[dimension] = shape[dimension] + before + after
        mapping = [inner if i == dimension else dim(i) for i in range(self.rank)]
        return self._viewed(shape, mapping, bound)

    def where_index(self, *conditions: Linear) -> Tensor:
        """Keeps elements whose conditions (expressions of `dim(i)` and symbols) are all non-negative; others read as 0."""
        return self._viewed(self.shape, identity(self.rank), conditions)

    def __getitem__(self, keys: object) -> Tensor:
        """Integers (or index expressions), slices with non-negative bounds and positive steps, and `...`."""
        items = list(keys) if isinstance(keys, tuple) else [keys]
        if Ellipsis in items:
            at = items.index(Ellipsis)
            items[at:at + 1] = [slice(None)] * (self.rank - len(items) + 1)
        items += [slice(None)] * (self.rank - len(items))
        if len(items) != self.rank:
            raise ShapeError(f"{len(items)} indices for the {self.rank} dimensions of {_text(self.shape)}")
        shape: list[Linear] = []
        mapping: list[Linear] = []
        for extent, item in zip(self.shape, items, strict=True):
            if isinstance(item, slice):
                start = linear(0 if item.start is None else item.start)
                stop = extent if item.stop is None else linear(item.stop)
                if start.is_constant and start.constant < 0:
                    start = extent + start
                if stop.is_constant and stop.constant < 0:
                    stop = extent + stop
                step = item.step or 1
                mapping.append(start + dim(len(shape)) * step)
                length = stop - start
                shape.append(length if step == 1 else floordiv(length + (step - 1), step))
            else:
                index = linear(item)  # type: ignore[arg-type]
                mapping.append(extent + index if index.is_constant and index.constant < 0 else index)
        return self._viewed(shape, mapping)

    # Computations -----------------------------------------------------------------------------------------------

    def _is_whole(self) -> bool:
        declared = self.value.owner
        same = isinstance(declared, ir.Operation | ir.OpView) and self.view == identity(self.rank) and not self.bound
        return same and ir.RankedTensorType(self.value.type).rank == self.rank and self._extents_of_value() == self.shape

    def _extents_of_value(self) -> tuple[Linear, ...]:
        owner = self.value.owner.opview if hasattr(self.value.owner, "opview") else self.value.owner
        if isinstance(owner, primop.Input):
            return primop.map_results(owner.shape)
        if isinstance(owner, primop.Constant):
            return ()
        if isinstance(owner, primop.Scatter):
            return tuple(linear(s) for s in ir.RankedTensorType(self.value.type).shape)
        space = primop.space_of(owner)
        dims = list(owner.dims) if isinstance(owner, primop.Sum | primop.Max) else []
        return tuple(e for i, e in enumerate(space) if i not in dims)

    def contiguous(self) -> Tensor:
        """This tensor itself where its view is the identity, otherwise a copy."""
        return self if self._is_whole() else self.cast(self.dtype, copy=True)

    def _operands(self, shape: Sequence[Linear], *tensors: Tensor) -> dict:
        rank, symbols = len(shape), len(self.graph.symbols)
        read = [t.expand(*shape) for t in tensors]
        bounds = [make_map(rank, symbols, t.bound) for t in read] if any(t.bound for t in read) else None
        return {"space": self.graph._extents(shape), "bounds": bounds,
                "maps": [make_map(rank, symbols, t.view) for t in read]}

    def _made(self, op: ir.OpView, shape: Sequence[Linear]) -> Tensor:
        self.graph._mark(op)
        return Tensor(self.graph, op.result, tuple(shape), identity(len(shape)), ())

    def _unary(self, kind: type, dtype: str | None = None) -> Tensor:
        with self.graph._location():
            op = kind(operand=self.value, **self._operands(self.shape, self),
                      result=self.graph._type(self.shape, dtype or self.dtype))
        return self._made(op, self.shape)

    def _other(self, other: Tensor | float | int) -> Tensor:
        return other if isinstance(other, Tensor) else self.graph.constant(other, self.dtype)

    def _binary(self, kind: type, other: Tensor | float | int, dtype: str | None = None) -> Tensor:
        right = self._other(other)
        if right.dtype != self.dtype:
            raise ShapeError(f"{kind.__name__.lower()} needs one element type, but got {self.dtype} and {right.dtype}; "
                             "use .cast()")
        shape = broadcast_shapes(self.shape, right.shape)
        with self.graph._location():
            op = kind(lhs=self.value, rhs=right.value, **self._operands(shape, self, right),
                      result=self.graph._type(shape, dtype or self.dtype))
        return self._made(op, shape)

    def cast(self, dtype: str, copy: bool = False) -> Tensor:
        """The same values in another element type."""
        return self if dtype == self.dtype and not copy else self._unary(primop.Cast, dtype)

    def exp2(self) -> Tensor:
        return self._unary(primop.Exp2)

    def log2(self) -> Tensor:
        return self._unary(primop.Log2)

    def sin(self) -> Tensor:
        return self._unary(primop.Sin)

    def recip(self) -> Tensor:
        return self._unary(primop.Recip)

    def sqrt(self) -> Tensor:
        return self._unary(primop.Sqrt)

    def add(self, other: Tensor | float, dtype: str | None = None) -> Tensor:
        return self._binary(primop.Add, other, dtype)

    def mul(self, other: Tensor | float, dtype: str | None = None) -> Tensor:
        """The product; with dtype='f32' the exact product of 16-bit operands."""
        return self._binary(primop.Mul, other, dtype)

    def __add__(self, other: Tensor | float) -> Tensor:
        return self.add(other)

    __radd__ = __add__

    def __mul__(self, other: Tensor | float) -> Tensor:
        return self.mul(other)

    __rmul__ = __mul__

    def __neg__(self) -> Tensor:
        return self * -1

    def __sub__(self, other: Tensor | float) -> Tensor:
        return self + (-other)

    def __rsub__(self, other: float) -> Tensor:
        return -self + other

    def __truediv__(self, other: Tensor | float) -> Tensor:
        return self * (other.recip() if isinstance(other, Tensor) else 1.0 / other)

    def __mod__(self, other: Tensor | float) -> Tensor:
        return self._binary(primop.Mod, other)

    def __lt__(self, other: Tensor | float) -> Tensor:
        return self._binary(primop.LessThan, other, "i1")

    def __gt__(self, other: Tensor | float) -> Tensor:
        return self._other(other).expand(*self.shape) < self

    def __matmul__(self, other: Tensor) -> Tensor:
        """Matrix product over the last dimension of self and the last but one of other; f32 for 16-bit operands.

        Leading dimensions broadcast.
        """
        if self.rank < 2 or other.rank < 2 or self.shape[-1] != other.shape[-2]:
            raise ShapeError(f"cannot multiply matrices of shapes {_text(self.shape)} and {_text(other.shape)}")
        dtype = "f32" if self.dtype in ("bf16", "f16") else self.dtype
        return self.unsqueeze(-2).mul(other.transpose(-1, -2).unsqueeze(other.rank - 2), dtype).sum(-1)

    def _reduced(self, axes: Sequence[int]) -> list[int]:
        dims = sorted({a % self.rank for a in axes}) if self.rank else []
        if not dims:
            raise ShapeError(f"a reduction needs at least one dimension of {_text(self.shape)}")
        return dims

    def _reduction(self, kind: type, axes: Sequence[int], keepdim: bool, dtype: str | None) -> Tensor:
        dims = self._reduced(axes)
        shape = [e for i, e in enumerate(self.shape) if i not in dims]
        with self.graph._location():
            op = kind(operand=self.value, **self._operands(self.shape, self), dims=dims,
                      result=self.graph._type(shape, dtype or self.dtype))
        result = self._made(op, shape)
        for d in dims if keepdim else ():
            result = result.unsqueeze(d)
        return result

    def sum(self, *axes: int, keepdim: bool = False, dtype: str | None = None) -> Tensor:
        """Sum over the given dimensions; floats accumulate in f32."""
        return self._reduction(primop.Sum, axes, keepdim, dtype)

    def max(self, *axes: int, keepdim: bool = False) -> Tensor:
        """Maximum over the given dimensions."""
        return self._reduction(primop.Max, axes, keepdim, None)

    def softmax(self, axis: int = -1) -> Tensor:
        """Softmax over one dimension."""
        with self.graph._location():
            op = primop.Softmax(operand=self.value, **self._operands(self.shape, self), dim=axis % self.rank,
                                result=self.graph._type(self.shape, self.dtype))
        return self._made(op, self.shape)

    def custom(self, kind: str, *others: Tensor, dtype: str | None = None) -> Tensor:
        """An elementwise op of upstream's arith or math dialect, by name."""
        shape = self.shape
        for other in others:
            shape = broadcast_shapes(shape, other.shape)
        with self.graph._location():
            op = primop.Custom(kind=kind, **self._operands(shape, self, *others),
                               result=self.graph._type(shape, dtype or self.dtype),
                               **{n: t.value for n, t in zip(("first", "second", "third"), (self, *others), strict=False)})
        return self._made(op, shape)

    def where(self, yes: Tensor, no: Tensor) -> Tensor:
        """`yes` where this i1 tensor is true, otherwise `no`."""
        return self.custom("arith.select", yes, no, dtype=yes.dtype)

    def take(self, index: Tensor) -> Tensor:
        """Rows of this tensor by an integer tensor: shape `index.shape + self.shape[1:]`."""
        lead, shape = index.rank, (*index.shape, *self.shape[1:])
        rank, symbols = len(shape), len(self.graph.symbols)
        rows = [dim(rank), *(dim(lead + i) for i in range(self.rank - 1))]
        data = [substitute(e, {Dim(i): r for i, r in enumerate(rows)}) for e in self.view]
        if self.bound or not self.shape[0].is_constant:
            raise ShapeError("take needs a table without padding and with a constant number of rows")
        read = index._viewed(shape, [dim(i) for i in range(lead)])
        with self.graph._location():
            op = primop.Gather(
                data=self.value, index=index.value, space=self.graph._extents(shape), extent=self.shape[0].constant,
                maps=[make_map(rank + 1, symbols, data), make_map(rank, symbols, read.view)],
                bounds=[make_map(rank, symbols, ()), make_map(rank, symbols, read.bound)] if read.bound else None,
                result=self.graph._type(shape, self.dtype))
        return self._made(op, shape)

    def scatter(self, axis: int, index: Tensor, source: Tensor, start: Sequence[Extent] = ()) -> Tensor:
        """This tensor with elements of `source` written where `index` says along `axis`, and at their own place otherwise.

        `index` is a vector, one for each slice of `source` along `axis`, or has the rank of `source` and broadcasts to it.
        `start` is where `source` begins in this tensor along the other dimensions, 0 unless said.
        """
        axis = axis % self.rank
        rank, symbols = source.rank, len(self.graph.symbols)
        if not self._is_whole() or not self.shape[axis].is_constant or rank != self.rank or index.rank not in (1, rank):
            raise ShapeError(f"scatter needs a whole destination, indices of rank 1 or that of a source of rank {self.rank}, "
                             f"but got {self}, {index} and {source}")
        first = [linear(e) for e in start] or [Linear()] * rank
        dest = [dim(rank) if i == axis else dim(i) + first[i] for i in range(rank)]
        read = index._viewed(source.shape, [dim(axis)]) if index.rank == 1 else index.expand(*source.shape)
        bounds = None
        if read.bound or source.bound:
            bounds = [make_map(rank, symbols, b) for b in ((), read.bound, source.bound)]
        with self.graph._location():
            op = primop.Scatter(
                dest=self.value, index=index.value, source=source.value, space=self.graph._extents(source.shape), bounds=bounds,
                maps=[make_map(rank + 1, symbols, dest), make_map(rank, symbols, read.view),
                      make_map(rank, symbols, source.view)],
                extent=self.shape[axis].constant, result=self.value.type)
        return self._made(op, self.shape)


@functools.lru_cache(maxsize=1 << 14)
def _composed(extents: tuple[Linear, ...], mapping: tuple[Linear, ...], bound: tuple[Linear, ...], view: tuple[Linear, ...],
              kept: tuple[Linear, ...], symbols: tuple[tuple[int, int], ...]) -> tuple[tuple[Linear, ...], tuple[Linear, ...]]:
    """(view, conditions that are not always true) of a tensor with these extents whose old dimension i is `mapping[i]`.

    Equal layers ask for the same views.
    """
    known: Ranges = {Symbol(i): r for i, r in enumerate(symbols)}
    ranges = dict(known)
    for i, extent in enumerate(extents):
        bounds = range_of(extent, known)
        if bounds:
            ranges[Dim(i)] = (0, bounds[1] - 1)
    replaced = {Dim(i): e for i, e in enumerate(mapping)}
    undecided = []
    for e in (*(substitute(e, replaced, ranges) for e in kept), *bound):
        bounds = range_of(e, ranges)
        if not bounds or bounds[0] < 0:
            undecided.append(e)
    return tuple(substitute(e, replaced, ranges) for e in view), tuple(undecided)


def broadcast_shapes(a: Sequence[Linear], b: Sequence[Linear]) -> tuple[Linear, ...]:
    """NumPy's rule; raises `ShapeError`."""
    rank = max(len(a), len(b))
    one = linear(1)
    left = (one,) * (rank - len(a)) + tuple(a)
    right = (one,) * (rank - len(b)) + tuple(b)
    if any(x != y and one not in (x, y) for x, y in zip(left, right, strict=True)):
        raise ShapeError(f"shapes {_text(a)} and {_text(b)} do not broadcast together")
    return tuple(y if x == one else x for x, y in zip(left, right, strict=True))


def _reshape_mapping(old: Sequence[Linear], new: list[Linear]) -> list[Linear]:
    """Old indices as expressions of the new ones, group by group of equal element counts; completes one -1 in `new`."""
    if linear(-1) in new:
        rest = list(old)
        for e in new:
            if e != linear(-1) and not e.is_constant:
                rest.remove(e)
        known = math.prod(e.constant for e in new if e.is_constant and e != linear(-1))
        at = new.index(linear(-1))
        symbolic = [e for e in rest if not e.is_constant]
        total = math.prod(e.constant for e in rest if e.is_constant)
        if len(symbolic) > 1 or (known and total % known):
            raise ShapeError(f"cannot infer -1 when reshaping {_text(old)} to {_text(new)}")
        new[at] = (symbolic[0] if symbolic else linear(1)) * (total // max(known, 1))
    failure = ShapeError(f"cannot reshape {_text(old)} to {_text(new)}: the element counts differ or a symbolic extent "
                         "would be split")
    mapping: list[Linear] = []
    i = j = 0
    while i < len(old) or j < len(new):
        # The smallest groups old[i:i2], new[j:j2] with one element count.
        if i < len(old) and j < len(new) and old[i] == new[j]:
            mapping.append(dim(j))
            i, j = i + 1, j + 1
            continue
        i2, j2 = i, j
        left, right = linear(1), linear(1)
        while left != right or (i2 == i and j2 == j):
            grow_left = (left.is_constant and right.is_constant and left.constant < right.constant) or j2 == len(new)
            try:
                if grow_left and i2 < len(old):
                    left, i2 = left * old[i2], i2 + 1
                elif j2 < len(new):
                    right, j2 = right * new[j2], j2 + 1
                else:
                    raise failure
            except ValueError:
                raise failure from None
        flat = Linear()
        for d in range(j, j2):
            flat = flat * new[d] + dim(d) if new[d].is_constant or flat == Linear() else flat + dim(d)
        tail = [e.constant if e.is_constant else None for e in old[i:i2]]
        for d in range(len(tail)):
            below = tail[d + 1:]
            if None in below:
                raise failure
            index = floordiv(flat, math.prod(b for b in below if b))
            mapping.append(index if d == 0 else mod(index, tail[d]))  # type: ignore[arg-type]
        i, j = i2, j2
    return mapping
