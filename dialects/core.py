"""Dialects are declared as Python classes and carried by IRDL, so that no C++ is built; operations are leaves.

An operation is a class whose annotations are its operands, results and attributes:

    class Tile(Dialect, name="tile"):
        "Programs over tiles."

    class Load(Tile.Operation, name="load", traits=[Pure]):
        "Reads a tile of a global tensor; out of bounds elements are zero."
        source: Operand[ir.MemRefType]                   # one value of this type
        mask: Optional[Operand[ir.VectorType]] = None    # zero or one value
        kind: Attr[Kind] = Kind.PLAIN                    # an enum, stored as its string; written even when default
        cache: Attr[str] = None                          # a None default: the attribute may be absent
        result: Result[ir.VectorType]                    # its type is given to the builder ...
        offsets: Sequence[Operand[ir.IndexType]] = ()    # any number of values
        shadow: Result[Any] = infer("source")            # ... or follows from the other fields

        def verify(self) -> None:
            if len(self.offsets) != 2: raise VerifyError(f"need 2 offsets, but got {len(self.offsets)}")

    Load(source, result_type, offsets=[i, j], cache="L2")      # the signature follows from the fields

IRDL checks an operation's fields whenever MLIR verifies; the `verify` methods run in `verify(root)`, between passes.
IRDL has no traits and no effects, so `Pure` is known to our own passes only. It wants one type for all values of a
variadic field, whatever the field's constraint is. The surface follows `mlir.dialects.ext`.
"""

import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias, get_origin

from mlir import ir
from mlir.dialects import irdl
from mlir.dialects._ods_common import _cext

from tilec.dialects.codec import hint_name
from tilec.dialects.fields import (
    REQUIRED,
    Attr,
    Field,
    Group,
    Inferred,
    Operand,
    Result,
    Variadicity,
    attribute_accessor,
    type_constraint,
    values_of,
)
from tilec.dialects.fields import (
    infer as infer,
)


class VerifyError(Exception):
    """Raised by an operation's `verify`: the rule, then what was got."""


class Pure:
    """Trait: the operation has no effect besides its results, so it may be merged, moved and erased."""


class OpBase(ir.OpView):
    """Base of every operation, reached as `Dialect.Operation`; a subclass without `name=` only shares its fields."""

    dialect: ClassVar[type["Dialect"]]
    traits: ClassVar[tuple[type, ...]] = ()
    fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, name: str | None = None, traits: Iterable[type] = (), **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hints = typing.get_type_hints(cls, include_extras=True)
        own = [n for n in inspect.get_annotations(cls) if ClassVar not in (hints[n], get_origin(hints[n]))]
        cls.fields = {**cls.fields, **{n: Field(n, hints[n], cls.__dict__.get(n, REQUIRED)) for n in own}}
        cls.traits = (*cls.traits, *traits)
        if name is None:
            return
        cls.OPERATION_NAME, cls._ODS_REGIONS = f"{cls.dialect.name}.{name}", (0, True)
        fields = cls.fields.values()
        cls.operand_group = Group((f for f in fields if f.kind is Operand), "operands")
        cls.result_group = Group((f for f in fields if f.kind is Result), "results")
        cls.attribute_fields = tuple(f for f in fields if f.kind is Attr)
        segments = [g.segments for g in (cls.operand_group, cls.result_group) if g.segments]
        cls.attribute_names = (*(f.ir_name for f in cls.attribute_fields), *segments)
        for group in (cls.operand_group, cls.result_group):
            for index, field in enumerate(group.fields):
                setattr(cls, field.name, group.accessor(index))
        for field in cls.attribute_fields:
            setattr(cls, field.name, attribute_accessor(field))
        setattr(cls, "__init__", _builder(cls))  # noqa: B010 - a type checker reads the fields, not this
        if cls.OPERATION_NAME in cls.dialect.operations:
            raise TypeError(f"need one class per operation, but '{cls.OPERATION_NAME}' is declared twice")
        cls.dialect.operations[cls.OPERATION_NAME] = _CLASSES[cls.OPERATION_NAME] = cls
        _cext.register_operation(cls.dialect)(cls)

    def verify(self) -> None:
        """Raises VerifyError where the operation breaks a rule that its fields' constraints cannot say."""

    @classmethod
    def define(cls) -> None:
        """Emits the operation's IRDL, which requires what it names: attributes that may be absent stay outside."""
        operation = irdl.operation_(cls.OPERATION_NAME.split(".", 1)[1])
        with ir.InsertionPoint(operation.body):
            for emit, group in ((irdl.operands_, cls.operand_group), (irdl.results_, cls.result_group)):
                if group.fields:
                    constraints = [type_constraint(f.hint) for f in group.fields]
                    emit(constraints, [f.ir_name for f in group.fields], [f.variadicity for f in group.fields])
            required = [f for f in cls.attribute_fields if not f.may_be_absent]
            if required:
                names = ir.ArrayAttr.get([ir.StringAttr.get(f.ir_name) for f in required])
                irdl.attributes_([f.codec.constraint() for f in required], names)


def _builder(cls: type[OpBase]) -> Callable[..., None]:
    """The `__init__` of an operation: fields in order, those with defaults after the others, then `loc` and `ip`."""
    fields = list(cls.fields.values())
    inferred = [f for f in fields if isinstance(f.default, Inferred)]
    required = [f for f in fields if f.default is REQUIRED]
    optional = [f for f in fields if f.default is not REQUIRED and f not in inferred]
    positional = [f.name for f in required + optional]
    keyword_only = [f.name for f in inferred] + ["loc", "ip"]
    known, needed = {*positional, *keyword_only}, {f.name for f in required}
    defaults = {f.name: f.default for f in optional}
    operands, results, attributes = cls.operand_group, cls.result_group, cls.attribute_fields

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        given = dict(zip(positional, args, strict=False)) | kwargs
        if len(args) > len(positional) or len(given) != len(args) + len(kwargs) or not known >= given.keys() >= needed:
            signature.bind(None, *args, **kwargs)  # raises Python's own TypeError
        return {**defaults, **given}

    def __init__(self: OpBase, *args: Any, **kwargs: Any) -> None:
        values = bind(args, kwargs)
        loc, ip = values.pop("loc", None), values.pop("ip", None)
        flat_operands: list[ir.Value] = []
        encoded: dict[str, ir.Attribute] = {}
        sizes = []
        for field in operands.fields:
            segment = values_of(field, values[field.name])
            sizes.append(len(segment))
            flat_operands += segment
            values[field.name] = segment if field.variadicity is Variadicity.variadic else next(iter(segment), None)
        if operands.segments:
            encoded[operands.segments] = ir.DenseI32ArrayAttr.get(sizes)
        for field in attributes:
            value = values[field.name]
            if value is not None:
                encoded[field.ir_name] = value if isinstance(value, ir.Attribute) else field.codec.encode(value)
        for field in inferred:
            if values.get(field.name) is None:
                values[field.name] = field.default.rule(values)
        types_by_field = [values_of(f, values[f.name]) for f in results.fields]
        if results.segments:
            encoded[results.segments] = ir.DenseI32ArrayAttr.get([len(t) for t in types_by_field])
        ir.OpView.__init__(
            self, cls.OPERATION_NAME, cls._ODS_REGIONS, None, None, attributes=encoded,
            results=[t for segment in types_by_field for t in segment], operands=flat_operands, loc=loc, ip=ip,
        )  # fmt: skip

    kinds = inspect.Parameter
    signature = inspect.Signature([
        kinds("self", kinds.POSITIONAL_OR_KEYWORD),
        *(kinds(n, kinds.POSITIONAL_OR_KEYWORD, default=defaults.get(n, REQUIRED)) for n in positional),
        *(kinds(n, kinds.KEYWORD_ONLY, default=None) for n in keyword_only),
    ])  # fmt: skip
    setattr(__init__, "__signature__", signature)  # noqa: B010 - unknown to type checkers, read by help()
    return __init__


# --- Dialects --------------------------------------------------------------------------------------------------------

# The parser looks for our classes only after it has imported `<prefix>.<dialect>`; empty modules satisfy it.
_PARSER_MODULES = "_tilec_dialect_modules"


class Dialect(ir.Dialect):
    """Base of a dialect: `class Tile(Dialect, name="tile")` gives `Tile.Operation` to derive operations from."""

    known: ClassVar[dict[str, type["Dialect"]]] = {}
    name: ClassVar[str]
    operations: ClassVar[dict[str, type[OpBase]]]
    Operation: TypeAlias = OpBase

    def __init_subclass__(cls, name: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name in Dialect.known:
            raise TypeError(f"need one class per dialect, but '{name}' is declared twice")
        cls.name = cls.DIALECT_NAMESPACE = name
        cls.operations = {}
        setattr(cls, "Operation", type("Operation", (OpBase,), {"dialect": cls}))  # noqa: B010 - as above
        Dialect.known[name] = cls
        if _PARSER_MODULES not in sys.modules:
            package = sys.modules[_PARSER_MODULES] = types.ModuleType(_PARSER_MODULES)
            package.__path__ = []
            _cext.globals.append_dialect_search_prefix(_PARSER_MODULES)
        sys.modules[f"{_PARSER_MODULES}.{name}"] = types.ModuleType(f"{_PARSER_MODULES}.{name}")
        _cext.register_dialect(cls)

    @classmethod
    def load(cls, context: ir.Context | None = None) -> None:
        """Makes the dialect known to the context; does nothing if it is (MLIR aborts the process on a second load)."""
        context = context or ir.Context.current
        try:
            context.get_dialect_descriptor(cls.name)
            return
        except ValueError:
            pass
        with context, ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body), ir.InsertionPoint(irdl.dialect(cls.name).body):
                for operation in cls.operations.values():
                    operation.define()
            irdl.load_dialects(module)

    @classmethod
    def verify_module(cls, module: ir.Operation) -> None:
        """What the dialect asks of its attributes on a module; raises VerifyError."""

    @classmethod
    def markdown(cls) -> str:
        """The reference of the dialect's operations, from their docstrings and fields."""
        lines = [f"# Dialect `{cls.name}`", "", inspect.getdoc(cls) or ""]
        for name, operation in sorted(cls.operations.items()):
            lines += ["", f"## `{name}`", "", inspect.cleandoc(operation.__doc__ or "")]
            if operation.traits:
                lines += ["", "Traits: " + ", ".join(trait.__name__ for trait in operation.traits)]
            lines += ["", "| field | kind | type | default |", "|---|---|---|---|"]
            for f in operation.fields.values():
                many = "" if f.variadicity is Variadicity.single else f"{f.variadicity.name} "
                default = "" if f.default is REQUIRED else "inferred" if isinstance(f.default, Inferred) else f.default
                lines.append(f"| {f.ir_name} | {many}{f.kind.__name__.lower()} | {hint_name(f.hint)} | {default} |")
        return "\n".join(lines) + "\n"


def load_all(context: ir.Context | None = None) -> None:
    """Loads every declared dialect into the context."""
    for dialect in Dialect.known.values():
        dialect.load(context)


_CLASSES: dict[str, type[OpBase]] = {}  # every declared operation, by its name


def op_class(name: str) -> type[OpBase] | None:
    """The class declared for an operation name such as "tile.load"."""
    return _CLASSES.get(name)


def is_pure(op: ir.OpView | ir.Operation) -> bool:
    """Whether the operation is one of ours and declared `Pure`."""
    declared = op_class(op.operation.name)
    return declared is not None and Pure in declared.traits


def _check(op: OpBase) -> None:
    """What IRDL cannot check of the fields, then the operation's own rules."""
    for group in (op.operand_group, op.result_group):
        for field in group.checked_in_python:
            found = getattr(op, field.name)
            for value in found if isinstance(found, list) else [] if found is None else [found]:
                if not isinstance(value.type, field.hint):
                    raise VerifyError(f"need '{field.ir_name}' to be {hint_name(field.hint)}, but got {value.type}")
    attributes = op.operation.attributes
    for field in op.attribute_fields:
        if field.ir_name in attributes and not field.codec.accepts(attributes[field.ir_name]):
            got = attributes[field.ir_name]
            raise VerifyError(f"need attribute '{field.ir_name}' to be {hint_name(field.hint)}, but got {got}")
    op.verify()


def _fields_and_types(operation: ir.Operation, declared: type[OpBase]) -> tuple[object, ...]:
    attributes, operands = operation.attributes, operation.operands
    stored = [(name, attributes[name]) for name in declared.attribute_names if name in attributes]
    return (declared, *stored, len(operands), *(v.type for v in operands), *(r.type for r in operation.results))


def verify(root: ir.OpView | ir.Operation | ir.Module, right: set[tuple[object, ...]] | None = None) -> int:
    """Runs the `verify` methods at and below root, emits one located error per failure and returns their number.

    They know nothing but fields and types, so of operations that are equal in these, as in equal layers, one is looked at;
    `right`, if given, has what was looked at before, in the same context, and gets the rest.
    """
    failures = 0
    right = set() if right is None else right

    def visit(operation: ir.Operation) -> ir.WalkResult:
        nonlocal failures
        name = operation.name
        declared = op_class(name)
        try:
            if declared and (key := _fields_and_types(operation, declared)) not in right:
                _check(operation.opview)
                right.add(key)
            elif name == "builtin.module":
                for dialect in Dialect.known.values():
                    dialect.verify_module(operation)
        except VerifyError as error:
            operation.location.emit_error(f"'{name}' op {error}")
            failures += 1
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return failures
