"""Attributes are read and written as plain Python values; this table says which MLIR attribute stores which type."""

import enum
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from mlir import ir
from mlir.dialects import irdl


@dataclass(frozen=True)
class Codec:
    """How values of one Python type are stored: the attribute class, both directions, and what IRDL checks."""

    base: str | None  # IRDL's name of the stored class, None where it has none
    stored: type[ir.Attribute]
    encode: Callable[[Any], ir.Attribute]
    decode: Callable[[Any], Any] = lambda attribute: attribute.value
    values: tuple[Any, ...] = ()  # all of them, where they are few
    item: "Codec | None" = None

    def constraint(self) -> ir.Value:
        """The IRDL constraint, emitted at the current insertion point."""
        if self.values:
            return irdl.any_of([irdl.is_(self.encode(value)) for value in self.values])
        return irdl.base(base_name=self.base) if self.base else irdl.any()

    def accepts(self, attribute: ir.Attribute) -> bool:
        """Whether `decode` can read the attribute."""
        if not isinstance(attribute, self.stored):
            return False
        return self.item is None or all(map(self.item.accepts, attribute))


def _encode_int(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _decode_dict(attribute: ir.Attribute) -> dict[str, ir.Attribute]:
    return {entry.name: entry.attr for entry in attribute}


def _decode_integer_set(attribute: ir.Attribute) -> ir.IntegerSet:
    """The bindings build an IntegerSetAttr but do not read one, so its constraints are parsed as a map's results."""
    space, constraints = str(attribute).removeprefix("affine_set<").removesuffix(">").split(" : ", 1)
    rows = [row for row in constraints[1:-1].split(", ") if row]
    equalities = ["==" in row for row in rows]
    sides = ", ".join(row.rsplit(" ", 2)[0] for row in rows)  # every row reads "expression >= 0" or "expression == 0"
    as_map = ir.AffineMapAttr(ir.Attribute.parse(f"affine_map<{space} -> ({sides})>", attribute.context)).value
    return ir.IntegerSet.get(as_map.n_dims, as_map.n_symbols, list(as_map.results), equalities, attribute.context)


CODECS: dict[Any, Codec] = {
    str: Codec("#builtin.string", ir.StringAttr, ir.StringAttr.get),
    bool: Codec("#builtin.integer", ir.BoolAttr, ir.BoolAttr.get, values=(False, True)),
    int: Codec("#builtin.integer", ir.IntegerAttr, _encode_int),
    float: Codec("#builtin.float", ir.FloatAttr, ir.FloatAttr.get_f64),
    dict: Codec("#builtin.dictionary", ir.DictAttr, ir.DictAttr.get, _decode_dict),
    ir.Type: Codec("#builtin.type", ir.TypeAttr, ir.TypeAttr.get),
    ir.AffineMap: Codec("#builtin.affine_map", ir.AffineMapAttr, ir.AffineMapAttr.get),
    ir.IntegerSet: Codec("#builtin.integer_set", ir.IntegerSetAttr, ir.IntegerSetAttr.get, _decode_integer_set),
    list[int]: Codec("#builtin.dense_array", ir.DenseI64ArrayAttr, ir.DenseI64ArrayAttr.get, list),
}


def codec(hint: Any) -> Codec:
    """The codec of a type as written in `Attr[...]`; raises TypeError for one that no attribute can hold."""
    if hint in CODECS:
        return CODECS[hint]
    if hint is Any:
        return codec(ir.Attribute)
    if get_origin(hint) is list:
        return _list_codec(codec(get_args(hint)[0]))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum_codec(hint)
    if isinstance(hint, type) and issubclass(hint, ir.Attribute):
        name = getattr(hint, "attr_name", None)
        return Codec(f"#{name}" if isinstance(name, str) else None, hint, hint, lambda attribute: attribute)
    known = ", ".join(map(hint_name, CODECS))
    raise TypeError(f"need {known}, an Enum, a list of these or an ir.Attribute class, but got Attr[{hint_name(hint)}]")


def _list_codec(item: Codec) -> Codec:
    def encode(values: Any) -> ir.Attribute:
        return ir.ArrayAttr.get([v if isinstance(v, ir.Attribute) else item.encode(v) for v in values])

    return Codec(
        "#builtin.array", ir.ArrayAttr, encode, lambda attribute: [item.decode(v) for v in attribute], item=item
    )


def _enum_codec(choices: type[enum.Enum]) -> Codec:
    """A member is stored as the string that is its value."""
    return Codec(
        "#builtin.string",
        ir.StringAttr,
        lambda value: ir.StringAttr.get(choices(value).value),
        lambda attribute: choices(attribute.value),
        values=tuple(choices),
    )


def hint_name(hint: Any) -> str:
    """A type hint as a reader would write it: `MemRefType or RankedTensorType`, `list[AffineMap]`."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(hint_name, get_args(hint)))
    if get_args(hint):
        return f"{get_origin(hint).__name__}[{', '.join(map(hint_name, get_args(hint)))}]"
    return str(getattr(hint, "__name__", hint))
