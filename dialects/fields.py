"""What the annotations in an operation's class mean: where a field lies in the operation, and what IRDL hears of it."""

import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin

from mlir import ir
from mlir.dialects import irdl

from tilec.dialects.codec import codec, hint_name

Variadicity = irdl.Variadicity
REQUIRED = inspect.Parameter.empty
RESERVED = {name for name in dir(ir.OpView) if name != "result"} | {"dialect", "fields", "traits", "loc", "ip"}


if TYPE_CHECKING:  # a class body says `= None` and `= ()` where the operation later has values: fields are Any
    from typing_extensions import TypeAliasType

    T = TypeVar("T")
    Operand = TypeAliasType("Operand", Any, type_params=(T,))
    Result = TypeAliasType("Result", Any, type_params=(T,))
    Attr = TypeAliasType("Attr", Any, type_params=(T,))
else:

    class _Marker:
        def __class_getitem__(cls, constraint: Any) -> types.GenericAlias:
            return types.GenericAlias(cls, constraint if isinstance(constraint, tuple) else (constraint,))

    class Operand(_Marker):
        """`Operand[T]`: a value whose type is T, a union of types, or Any."""

    class Result(_Marker):
        """`Result[T]`: as Operand; the builder takes its type unless the default is `infer(...)`."""

    class Attr(_Marker):
        """`Attr[T]`: an attribute read and written as T: int (i64), bool, float (f64), str, dict, an Enum, ir.Type,
        ir.AffineMap, ir.IntegerSet, a list of these, or any ir.Attribute class (then not converted)."""


def infer(rule: str | Callable[[dict[str, Any]], ir.Type]) -> Any:
    """A result's type as a rule: the name of the operand to copy it from, or a function of the builder's arguments.

    The function gets a dict of the operands and attributes by field name and returns the type (a list if variadic).
    """
    return Inferred((lambda fields: fields[rule].type) if isinstance(rule, str) else rule)


@dataclass(frozen=True)
class Inferred:
    rule: Callable[[dict[str, Any]], ir.Type]


def type_constraint(hint: Any) -> ir.Value:
    """IRDL knows one type by its name and aborts on a choice of them: `verify` checks unions and base classes."""
    return irdl.base(base_name=f"!{hint.type_name}") if _has_name(hint) else irdl.any()


def _has_name(hint: Any) -> bool:
    return isinstance(getattr(hint, "type_name", None), str)


class Field:
    """One annotated field of an operation: `kind` is Operand, Result or Attr, `hint` what stands in its brackets.

    Python's own names take a trailing underscore: a field `name_` or `from_` is `name` or `from` in the IR.
    """

    def __init__(self, name: str, annotation: Any, default: Any) -> None:
        self.name, self.ir_name = name, name.rstrip("_")
        self.default, self.variadicity = default, Variadicity.single
        if get_origin(annotation) in (Union, types.UnionType):
            (annotation,) = (option for option in get_args(annotation) if option is not type(None))
            self.variadicity = Variadicity.optional
        elif get_origin(annotation) is Sequence:
            (annotation,) = get_args(annotation)
            self.variadicity = Variadicity.variadic
        self.kind = get_origin(annotation) or annotation
        if self.kind not in (Operand, Result, Attr):
            raise TypeError(
                f"need Operand[...], Result[...] or Attr[...], but field '{name}' is {hint_name(annotation)}"
            )
        self.hint = get_args(annotation)[0] if get_args(annotation) else Any
        if get_origin(self.hint) is Sequence:
            raise TypeError(f"need Sequence[{self.kind.__name__}[...]], but field '{name}' is {hint_name(annotation)}")
        if name in RESERVED:
            raise TypeError(
                f"field '{name}' hides every operation's own '{name}': declare '{name}_', in the IR '{name}'"
            )
        self.codec = codec(self.hint if self.kind is Attr else ir.Attribute)
        if self.variadicity is Variadicity.optional and default is REQUIRED:
            self.default = None

    @property
    def may_be_absent(self) -> bool:
        return self.kind is Attr and self.default is None


def _value_of(operand: Any) -> ir.Value:
    return operand.result if isinstance(operand, (ir.OpView, ir.Operation)) else operand


def values_of(field: Field, argument: Any) -> list[Any]:
    """The operands, or the result types, that one builder argument stands for."""
    if field.variadicity is Variadicity.variadic:
        values = [_value_of(item) for item in argument]
        kinds = values if field.kind is Result else [value.type for value in values]
        if any(kind != kinds[0] for kind in kinds[1:]):
            raise TypeError(f"need one type for all of '{field.name}', but got {', '.join(map(str, kinds))}")
        return values
    if argument is None and field.variadicity is Variadicity.optional:
        return []
    return [_value_of(argument)]


class Group:
    """The operands or the results of an operation: where each field lies in the flat list.

    One optional or variadic field takes what the others leave; only a second one needs the segment sizes attribute.
    """

    def __init__(self, fields: Iterable[Field], what: str) -> None:
        self.fields, self.what = tuple(fields), what
        flexible = [f for f in self.fields if f.variadicity is not Variadicity.single]
        self.segments = f"{what[:-1]}SegmentSizes" if len(flexible) > 1 else None
        self.checked_in_python = [f for f in self.fields if f.hint is not Any and not _has_name(f.hint)]

    def sizes(self, operation: ir.Operation) -> list[int]:
        if self.segments:
            return list(ir.DenseI32ArrayAttr(operation.attributes[self.segments]))
        rest = len(getattr(operation, self.what)) - len(self.fields) + 1
        return [1 if f.variadicity is Variadicity.single else rest for f in self.fields]

    def accessor(self, index: int) -> property:
        field, what = self.fields[index], self.what
        if all(f.variadicity is Variadicity.single for f in self.fields[: index + 1]):
            return property(lambda op: getattr(op.operation, what)[index])

        def get(op: ir.OpView) -> Any:
            sizes = self.sizes(op.operation)
            start = sum(sizes[:index])
            values = list(getattr(op.operation, what)[start : start + sizes[index]])
            return values if field.variadicity is Variadicity.variadic else next(iter(values), None)

        return property(get)


def attribute_accessor(field: Field) -> property:
    def get(op: ir.OpView) -> Any:
        attributes = op.operation.attributes
        return field.codec.decode(attributes[field.ir_name]) if field.ir_name in attributes else field.default

    return property(get)
