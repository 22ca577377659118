"""The twenty primitive tensor operations; everything a model does is made of them, and shape movement is not an op.

Every op states its iteration space (`space`, a map from the module's symbols to extents) and reads each operand through
a view: an affine map from that space to the operand's dimensions. An absent dimension broadcasts, a permuted one
transposes, an offset slices, floordiv and mod reshape. Where a view runs past its operand, `bounds` holds one map per
operand whose results must all be non-negative for the element to exist; elsewhere the element reads as zero.

A matrix product is therefore two inputs, two ops and an output:

    %p = "primop.mul"(%a, %b) {space = () -> (m, n, k), maps = [(m, n, k) -> (m, k), (m, n, k) -> (n, k)], ...}
    %c = "primop.sum"(%p)     {space = () -> (m, n, k), maps = [identity], dims = [2]}

The symbols of all maps are the module's `primop.symbols`, in their sorted order. A module may allow TF32 by `primop.tf32`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar, Optional, TypeAlias

from mlir import ir

from tilec.dialects.core import Attr, Dialect, Operand, Pure, Result, VerifyError
from tilec.dialects.index_expr import Linear, map_results

Tensor: TypeAlias = ir.RankedTensorType

FLOATS = ("f32", "f16", "bf16")
INTEGERS = ("i64", "i32", "i1")
# Elementwise upstream ops that `custom` may name, with their numbers of operands: the escape hatch for what the
# primitives do not say.
CUSTOM_KINDS = {
    "arith.select": 3, "arith.minimumf": 2, "arith.divf": 2, "arith.divsi": 2, "math.tanh": 1, "math.erf": 1,
    "math.floor": 1, "math.ceil": 1, "math.round": 1, "math.absf": 1, "arith.xori": 2, "arith.shrui": 2, "arith.bitcast": 1,
}
# Those that work on bits: the pairs of operand and result that they take.
BITS = {
    "arith.xori": {(t, t) for t in INTEGERS}, "arith.shrui": {(t, t) for t in ("i64", "i32")},
    "arith.bitcast": {("f32", "i32"), ("i32", "f32")},
}


class InputKind(enum.Enum):
    """Where an entry point's value comes from: the caller, the checkpoint, or memory that outlives the call."""

    ARGUMENT = "argument"
    WEIGHT = "weight"
    STATE = "state"


TF32 = "primop.tf32"  # on a module: tensor cores may read the f32 operands of its matrix products as TF32, ten bits of mantissa


class Primop(Dialect, name="primop"):
    """Primitive tensor operations read through affine views."""

    @classmethod
    def verify_module(cls, module: ir.Operation) -> None:
        if TF32 in module.attributes and not isinstance(module.attributes[TF32], ir.UnitAttr):
            raise VerifyError(f"{TF32} must be a unit attribute, but is {module.attributes[TF32]}")


def symbol_ranges(module: ir.Operation) -> dict[str, tuple[int, int]]:
    """The module's symbols in the order of the maps' symbol positions, each with its inclusive range."""
    attributes = module.attributes
    if "primop.symbols" not in attributes:
        return {}
    named = ir.DictAttr(attributes["primop.symbols"])
    return {n.name: tuple(ir.DenseI64ArrayAttr(n.attr)) for n in named}


def allows_tf32(module: ir.Operation) -> bool:
    """Whether products of f32 in a module may be made in TF32; whoever recorded it said so, nothing else can."""
    return TF32 in module.attributes


def element_type(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type


def space_of(op: ir.OpView) -> tuple[Linear, ...]:
    """Extents of an op's iteration space, as expressions of the module's symbols."""
    return map_results(op.space)


def _check_shape(result: ir.Value, extents: Sequence[Linear]) -> None:
    shape, dynamic = ir.RankedTensorType(result.type).shape, ir.ShapedType.get_dynamic_size()
    if len(shape) != len(extents):
        raise VerifyError(f"result must have rank {len(extents)}, but has {len(shape)}")
    for d, (size, extent) in enumerate(zip(shape, extents, strict=True)):
        if size != (extent.constant if extent.is_constant else dynamic):
            needed = extent if extent.is_constant else f"dynamic, because its extent is {extent}"
            raise VerifyError(f"result dimension {d} must be {needed}, but is {'dynamic' if size == dynamic else size}")


class _View(Primop.Operation):
    """What all computing ops share: a space, one view per operand, optional bounds."""

    space: Attr[ir.AffineMap]
    maps: Attr[list[ir.AffineMap]]
    bounds: Attr[list[ir.AffineMap]] = None

    def _check_views(self, operands: Sequence[ir.Value], extra_dims: Sequence[int] = ()) -> None:
        rank, symbols = len(self.space.results), self.space.n_symbols
        if self.space.n_dims:
            raise VerifyError(f"space must take symbols only, but takes {self.space.n_dims} dimensions")
        if len(self.maps) != len(operands):
            raise VerifyError(f"needs one map per operand, {len(operands)}, but got {len(self.maps)}")
        for i, (operand, view) in enumerate(zip(operands, self.maps, strict=True)):
            wanted = rank + (extra_dims[i] if extra_dims else 0)
            if view.n_dims != wanted:
                what = "the rank of space" if wanted == rank else "the rank of space and one for the index"
                raise VerifyError(f"map {i} must take {wanted} dimensions ({what}), but takes {view.n_dims}")
            operand_rank = ir.RankedTensorType(operand.type).rank
            if len(view.results) != operand_rank:
                raise VerifyError(f"map {i} must give {operand_rank} indices (the rank of its operand), "
                                  f"but gives {len(view.results)}")
            if view.n_symbols != symbols:
                raise VerifyError(f"map {i} must take {symbols} symbols (as space does), but takes {view.n_symbols}")
        if self.bounds is None:
            return
        if len(self.bounds) != len(operands):
            raise VerifyError(f"needs one bounds map per operand, {len(operands)}, but got {len(self.bounds)}")
        for i, bound in enumerate(self.bounds):
            if (bound.n_dims, bound.n_symbols) != (rank, symbols):
                raise VerifyError(f"bounds map {i} must take {rank} dimensions and {symbols} symbols, "
                                  f"but takes {bound.n_dims} and {bound.n_symbols}")

    def _check_result(self, dims: Sequence[int]) -> None:
        _check_shape(self.result, [space_of(self)[d] for d in dims])

    def _check_element(self, value: ir.Value, allowed: Sequence[str], what: str) -> None:
        if str(element_type(value)) not in allowed:
            raise VerifyError(f"{what} must be one of {', '.join(allowed)}, but is {element_type(value)}")

    def _check_same_element(self, operand: ir.Value) -> None:
        if element_type(self.result) != element_type(operand):
            raise VerifyError(f"result must keep the element type {element_type(operand)}, "
                              f"but is {element_type(self.result)}")


class Input(Primop.Operation, name="input"):
    """A value that an entry point is given. `label` is the argument's, the checkpoint tensor's or the state's name.

    `shape` maps the symbols to the extents. `pack`, set by the layout pass, is the map from the tensor's own indices to
    the indices of the memory layout that the kernels read.
    """

    label: Attr[str]
    kind: Attr[InputKind]
    shape: Attr[ir.AffineMap]
    pack: Attr[ir.AffineMap] = None
    result: Result[Tensor]

    def verify(self) -> None:
        if self.pack is None:
            _check_shape(self.result, map_results(self.shape))


class Output(Primop.Operation, name="output"):
    """A named result of an entry point. With `alias` it is written onto that input (`state` or `symbol:NAME`)."""

    value: Operand[Tensor]
    label: Attr[str]
    alias: Attr[str] = None


class Constant(Primop.Operation, name="constant", traits=[Pure]):
    """A rank-0 tensor holding `value`; shapes come from the views that read it."""

    value: Attr[ir.Attribute]
    result: Result[Tensor]

    def verify(self) -> None:
        if ir.RankedTensorType(self.result.type).rank != 0:
            raise VerifyError("result must have rank 0: broadcast it through the view that reads it")
        element = element_type(self.result)
        if getattr(self.value, "type", None) != element:
            raise VerifyError(f"value must be a number of the result's element type {element}, but is {self.value}")


class Iota(Primop.Operation, name="iota", traits=[Pure]):
    """A rank-1 tensor whose element i is i; any affine index follows from the view that reads it."""

    space: Attr[ir.AffineMap]
    result: Result[Tensor]

    def verify(self) -> None:
        if len(self.space.results) != 1:
            raise VerifyError(f"space must have one extent, but has {len(self.space.results)}")
        _check_shape(self.result, space_of(self))


class _Unary(_View):
    FLOAT_ONLY: ClassVar[bool] = True
    operand: Operand[Tensor]
    result: Result[Tensor]

    def verify(self) -> None:
        self._check_views([self.operand])
        self._check_result(range(len(self.space.results)))
        if self.FLOAT_ONLY:
            self._check_element(self.operand, FLOATS, "operand")
            self._check_same_element(self.operand)


class Cast(_Unary, name="cast", traits=[Pure]):
    """Element type conversion: floats round to nearest even, float to integer truncates, anything to i1 tests non-zero."""

    FLOAT_ONLY: ClassVar[bool] = False


class Exp2(_Unary, name="exp2", traits=[Pure]):
    """Two to the power of the operand."""


class Log2(_Unary, name="log2", traits=[Pure]):
    """Base-2 logarithm."""


class Sin(_Unary, name="sin", traits=[Pure]):
    """Sine of an angle in radians, accurate for large angles as well."""


class Recip(_Unary, name="recip", traits=[Pure]):
    """One divided by the operand."""


class Sqrt(_Unary, name="sqrt", traits=[Pure]):
    """Square root."""


class _Binary(_View):
    """Computes in the result's element type, to which both operands are widened first: bf16 times bf16 is exact in f32."""

    lhs: Operand[Tensor]
    rhs: Operand[Tensor]
    result: Result[Tensor]

    def verify(self) -> None:
        self._check_views([self.lhs, self.rhs])
        self._check_result(range(len(self.space.results)))
        left, right = element_type(self.lhs), element_type(self.rhs)
        if left != right:
            raise VerifyError(f"operands must have one element type, but have {left} and {right}")
        out = str(element_type(self.result))
        if out != str(left) and not (str(left) in ("bf16", "f16") and out == "f32"):
            raise VerifyError(f"result must be {left} or wider, but is {out}")


class Add(_Binary, name="add", traits=[Pure]):
    """Sum of two operands; logical or for i1."""


class Mul(_Binary, name="mul", traits=[Pure]):
    """Product of two operands; logical and for i1."""


class Mod(_Binary, name="mod", traits=[Pure]):
    """Remainder with the sign of the dividend (C's fmod and %); integer division by zero is undefined."""

    def verify(self) -> None:
        super().verify()
        self._check_element(self.result, (*FLOATS, "i64", "i32"), "result")


class LessThan(_View, name="less_than", traits=[Pure]):
    """i1: whether lhs < rhs (signed, ordered: false where either is NaN)."""

    lhs: Operand[Tensor]
    rhs: Operand[Tensor]
    result: Result[Tensor]

    def verify(self) -> None:
        self._check_views([self.lhs, self.rhs])
        self._check_result(range(len(self.space.results)))
        if element_type(self.lhs) != element_type(self.rhs):
            raise VerifyError(f"operands must have one element type, but have {element_type(self.lhs)} "
                              f"and {element_type(self.rhs)}")
        self._check_element(self.result, ("i1",), "result")


class _Reduction(_View):
    operand: Operand[Tensor]
    dims: Attr[list[int]]
    result: Result[Tensor]

    def verify(self) -> None:
        self._check_views([self.operand])
        rank = len(self.space.results)
        dims = list(self.dims)
        if not dims or sorted(set(dims)) != dims or dims[-1] >= rank or dims[0] < 0:
            raise VerifyError(f"dims must be a non-empty ascending list below {rank}, but is {dims}")
        self._check_result([d for d in range(rank) if d not in dims])
        self._check_element(self.operand, (*FLOATS, "i64", "i32"), "operand")


class Sum(_Reduction, name="sum", traits=[Pure]):
    """Sum over `dims`: floats accumulate in f32 and are rounded once to the result's type. An empty sum is zero."""


class Max(_Reduction, name="max", traits=[Pure]):
    """Maximum over `dims`, NaN if any element is NaN. An empty maximum is -inf (the lowest integer)."""


class Part(Primop.Operation, name="part", traits=[Pure]):
    """What each of `count` programs that share the loop of a kernel has of a reduction, along a new first dimension.

    A sum is relative to the maximum that the same program has seen. `map` says where the reduction has what belongs to an
    element of the kernel's first part.
    """

    operand: Operand[Tensor]
    count: Attr[int]
    map: Attr[ir.AffineMap]
    result: Result[Tensor]

    def verify(self) -> None:
        operand, result = ir.RankedTensorType(self.operand.type), ir.RankedTensorType(self.result.type)
        if self.count < 1 or (list(result.shape), result.element_type) != ([self.count, *operand.shape], operand.element_type):
            raise VerifyError(f"result must be {self.count} parts of {operand}, but is {result}")
        if len(self.map.results) != operand.rank:
            raise VerifyError(f"map must give {operand.rank} indices (the rank of its operand), "
                              f"but gives {len(self.map.results)}")


class Softmax(_View, name="softmax", traits=[Pure]):
    """exp(x - max) / sum over one dimension, natural base; a row that is -inf throughout gives zeros.

    Kept whole so that rules can cross it; `primop-decompose-softmax` writes it as max, exp2, sum and recip.
    """

    operand: Operand[Tensor]
    dim: Attr[int]
    result: Result[Tensor]

    def verify(self) -> None:
        self._check_views([self.operand])
        self._check_result(range(len(self.space.results)))
        self._check_element(self.operand, FLOATS, "operand")
        self._check_same_element(self.operand)
        if not 0 <= self.dim < len(self.space.results):
            raise VerifyError(f"dim must be below {len(self.space.results)}, but is {self.dim}")


class Gather(_View, name="gather", traits=[Pure]):
    """Reads `data` where `index` says. The map of `data` takes one more dimension, last: the gathered index.

    Rows of an embedding: `maps = [(s, h, i) -> (i, h), (s, h) -> (s)]`. Indices outside the dimension are clamped to it.
    """

    data: Operand[Tensor]
    index: Operand[Tensor]
    extent: Attr[int]
    result: Result[Tensor]

    def verify(self) -> None:
        self._check_views([self.data, self.index], (1, 0))
        self._check_result(range(len(self.space.results)))
        self._check_element(self.index, ("i64", "i32"), "index")
        self._check_same_element(self.data)


class Scatter(_View, name="scatter", traits=[Pure]):
    """`dest` with `source` written where `index` says; the space is the source's. Repeated indices keep one of the writes.

    The map of `dest` takes one more dimension, last: the index. Indices outside the dimension are dropped. `inplace` is
    set by the pass that proves that nobody reads the old `dest` afterwards.
    """

    dest: Operand[Tensor]
    index: Operand[Tensor]
    source: Operand[Tensor]
    extent: Attr[int]
    inplace: Attr[bool] = None
    result: Result[Tensor]

    def verify(self) -> None:
        self._check_views([self.dest, self.index, self.source], (1, 0, 0))
        self._check_element(self.index, ("i64", "i32"), "index")
        if self.result.type != self.dest.type:
            raise VerifyError(f"result must have the type of dest, {self.dest.type}, but has {self.result.type}")
        if element_type(self.source) != element_type(self.dest):
            raise VerifyError(f"source must have the element type of dest, {element_type(self.dest)}, "
                              f"but has {element_type(self.source)}")


class Custom(_View, name="custom", traits=[Pure]):
    """An elementwise op of upstream's `arith` or `math`, named by `kind`: what the primitives have no word for.

    `arith.shrui` moves zeros in from the high end; what a shift by the width or more gives is undefined.
    """

    kind: Attr[str]
    result: Result[Tensor]
    first: Operand[Tensor]
    second: Optional[Operand[Tensor]] = None  # noqa: UP045 - a marker, not a type
    third: Optional[Operand[Tensor]] = None  # noqa: UP045

    def verify(self) -> None:
        if self.kind not in CUSTOM_KINDS:
            raise VerifyError(f"kind must be one of {', '.join(CUSTOM_KINDS)}, but is {self.kind}")
        operands = list(self.operation.operands)
        if len(operands) != CUSTOM_KINDS[self.kind]:
            raise VerifyError(f"{self.kind} needs {CUSTOM_KINDS[self.kind]} operands, but got {len(operands)}")
        pairs = {(str(element_type(v)), str(element_type(self.result))) for v in operands}
        if not pairs <= BITS.get(self.kind, pairs):
            raise VerifyError(f"{self.kind} cannot make {element_type(self.result)} of {element_type(self.first)}")
        self._check_views(operands)
        self._check_result(range(len(self.space.results)))
