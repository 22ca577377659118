"""The declarative dialect layer, on a dialect that exists for this file only."""

import enum
import inspect
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest
from mlir import ir

from tilec.dialects.codec import codec
from tilec.dialects.core import (
    Attr,
    Dialect,
    Operand,
    Pure,
    Result,
    VerifyError,
    infer,
    is_pure,
    load_all,
    op_class,
    verify,
)


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


class Demo(Dialect, name="layerdemo"):
    """Operations that show every kind of field."""


class Load(Demo.Operation, name="load", traits=[Pure]):
    """Reads a row."""

    source: Operand[ir.MemRefType | ir.RankedTensorType]
    result: Result[ir.VectorType]
    mode: Attr[Mode] = Mode.FAST
    cache: Attr[str] = None
    offsets: Sequence[Operand[ir.IndexType]] = ()

    def verify(self) -> None:
        if len(self.offsets) != 2:
            raise VerifyError(f"need 2 offsets, but got {len(self.offsets)}")


class Store(Demo.Operation, name="store"):
    value: Operand[Any]
    mask: Optional[Operand[ir.IntegerType]] = None  # noqa: UP045 - both spellings are to work
    others: Sequence[Operand[Any]] = ()


class Binary(Demo.Operation):
    lhs: Operand[Any]
    rhs: Operand[Any]
    result: Result[Any] = infer("lhs")


class Add(Binary, name="add", traits=[Pure]):
    pass


class Scale(Binary, name="scale"):
    factor: Attr[float] = 2.0


class Pair(Demo.Operation, name="pair"):
    value: Operand[Any] | None = None
    left: Result[Any] = infer(lambda fields: ir.TupleType.get_tuple([fields["kind"]] * fields["count"]))
    kind: Attr[ir.Type]
    count: Attr[int] = 2


class Everything(Demo.Operation, name="everything"):
    flag: Attr[bool] = True
    sizes: Attr[list[int]]
    maps: Attr[list[ir.AffineMap]]
    modes: Attr[list[Mode]]
    where: Attr[ir.IntegerSet]
    extra: Attr[ir.Attribute] = None
    where_else: Attr[ir.IntegerSet] = None
    table: Attr[dict] = None
    name_: Attr[str]


@pytest.fixture(autouse=True)
def context() -> Iterator[ir.Context]:
    with ir.Context() as context, ir.Location.unknown():
        load_all()
        yield context


def parse(body: str, arguments: str = "%a: i32, %m: memref<4xf32>, %i: index") -> tuple[ir.Module, list[Any]]:
    module = ir.Module.parse(f"func.func @f({arguments}) {{\n{body}\nreturn\n}}")
    return module, list(module.body.operations[0].regions[0].blocks[0].operations)[:-1]


class Body:
    """A function to build into: its arguments by position, its text, its errors."""

    def __init__(self, *types: str) -> None:
        arguments = ", ".join(f"%a{number}: {type_}" for number, type_ in enumerate(types))
        self.module = ir.Module.parse(f"func.func @f({arguments}) {{ return }}")
        self.block = self.module.body.operations[0].regions[0].blocks[0]
        self.arguments = list(self.block.arguments)
        self.here = ir.InsertionPoint.at_block_terminator(self.block)

    def errors(self) -> list[str]:
        return errors_of(self.module)


def errors_of(module: ir.Module) -> list[str]:
    messages: list[str] = []

    def keep(diagnostic: ir.Diagnostic) -> bool:
        messages.append(diagnostic.message)
        return True

    handler = module.context.attach_diagnostic_handler(keep)
    count = verify(module)
    handler.detach()
    assert count == len(messages)
    return messages


def test_the_builder_has_the_fields_as_its_signature() -> None:
    assert str(inspect.signature(Load)) == (
        "(source, result, mode=<Mode.FAST: 'fast'>, cache=None, offsets=(), *, loc=None, ip=None)"
    )


def test_wrong_builder_arguments_are_refused_as_python_does() -> None:
    body = Body("i32")
    value = body.arguments[0]
    with body.here:
        for call, message in [
            (lambda: Add(value), "missing a required argument: 'rhs'"),
            (lambda: Add(value, value, value), "too many positional arguments"),
            (lambda: Add(value, value, lhs=value), "multiple values for argument 'lhs'"),
            (lambda: Add(value, value, other=1), "unexpected keyword argument 'other'"),
        ]:
            with pytest.raises(TypeError, match=message):
                call()


def test_parsed_operations_are_of_their_python_class() -> None:
    _, (load, add) = parse("""
        %0 = "layerdemo.load"(%m, %i) {mode = "exact"} : (memref<4xf32>, index) -> vector<4xf32>
        %1 = "layerdemo.add"(%a, %a) : (i32, i32) -> i32""")
    assert isinstance(load, Load) and isinstance(add, Add)
    assert load.mode is Mode.EXACT and load.cache is None
    assert load.offsets == [load.operands[1]]
    assert str(load.result.type) == "vector<4xf32>"


def test_one_variadic_group_prints_no_segment_sizes_and_reads_back() -> None:
    body = Body("memref<4xf32>", "index")
    source, index = body.arguments
    with body.here:
        load = Load(source, ir.VectorType.get([4], ir.F32Type.get()), offsets=[index, index], cache="L2")
    assert "egmentSizes" not in str(body.module)
    assert load.offsets == [index, index] and load.cache == "L2"
    again = ir.Module.parse(str(body.module))
    assert again.operation.verify() and str(again) == str(body.module)


def test_several_flexible_groups_are_told_apart_by_segment_sizes() -> None:
    body = Body("f32", "i1")
    value, mask = body.arguments
    with body.here:
        masked, plain = Store(value, mask), Store(value, others=[mask, mask])
    assert masked.mask == mask and masked.others == []
    assert plain.mask is None and plain.others == [mask, mask]
    assert body.module.operation.verify()


def test_the_values_of_a_variadic_field_have_one_type() -> None:
    body = Body("f32", "i1")
    value, mask = body.arguments
    with body.here, pytest.raises(TypeError, match="need one type for all of 'others', but got f32, i1"):
        Store(value, others=[value, mask])


def test_an_optional_operand_alone_is_there_or_not() -> None:
    body = Body("i32")
    with body.here:
        with_value, without = Pair(ir.F32Type.get(), body.arguments[0]), Pair(ir.F32Type.get())
    assert with_value.value == body.arguments[0] and without.value is None
    assert "egmentSizes" not in str(body.module)


def test_an_operation_stands_for_its_result() -> None:
    body = Body("i32")
    with body.here:
        first = Add(*body.arguments, *body.arguments)
        second = Add(first, first)
    assert second.lhs == first.result


def test_result_types_follow_from_an_operand_or_a_rule() -> None:
    body = Body("i32")
    with body.here:
        assert str(Add(*body.arguments, *body.arguments).result.type) == "i32"
        assert str(Pair(ir.F32Type.get(), count=3).left.type) == "tuple<f32, f32, f32>"
        given = Add(*body.arguments, *body.arguments, result=ir.F32Type.get())
    assert str(given.result.type) == "f32"


def test_shared_fields_come_from_a_base_without_a_name() -> None:
    assert list(Scale.fields) == ["lhs", "rhs", "result", "factor"]


def test_every_attribute_type_reads_as_it_was_written() -> None:
    d0, d1, s0 = ir.AffineExpr.get_dim(0), ir.AffineExpr.get_dim(1), ir.AffineExpr.get_symbol(0)
    map_ = ir.AffineMap.get(2, 1, [d0 + s0, d1])
    condition = ir.IntegerSet.get(2, 1, [d0 - d1 + s0 * 8, ir.AffineExpr.get_mod(d0, 4) - 1], [False, True])
    body = Body()
    with body.here:
        op = Everything(
            [1, 2], [map_], [Mode.FAST, Mode.EXACT], condition, "row", flag=False, table={"a": ir.UnitAttr.get()}
        )
    assert (op.flag, op.sizes, op.maps, op.modes) == (False, [1, 2], [map_], [Mode.FAST, Mode.EXACT])
    assert op.where == condition and op.name_ == "row" and op.table == {"a": ir.UnitAttr.get()}
    assert op.extra is None and op.where_else is None
    assert body.module.operation.verify() and body.errors() == []
    assert 'name = "row"' in str(op) and op.operation.name == "layerdemo.everything"


@pytest.mark.parametrize("constraints", [[], ["d0"], ["d0 == 0"], ["-d0 + s0", "d0 floordiv 8 - s0 mod 2"]])
def test_an_integer_set_survives_its_attribute(constraints: list[str]) -> None:
    rows = ", ".join(row if "==" in row else f"{row} >= 0" for row in constraints) or "1 == 0"
    attribute = ir.Attribute.parse(f"affine_set<(d0)[s0] : ({rows})>")
    assert codec(ir.IntegerSet).encode(codec(ir.IntegerSet).decode(attribute)) == attribute


def test_any_attribute_object_may_stand_for_a_value() -> None:
    body = Body("i32")
    with body.here:
        assert Scale(*body.arguments, *body.arguments, factor=ir.Attribute.parse("0.5 : f64")).factor == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"layerdemo.add"(%a) : (i32) -> i32', "expects exactly 2 operands"),
        ('"layerdemo.load"(%m) {mode = "slow"} : (memref<4xf32>) -> vector<4xf32>', "does not satisfy"),
        ('"layerdemo.load"(%m) : (memref<4xf32>) -> vector<4xf32>', '"mode" is expected but not provided'),
        ('"layerdemo.load"(%m) {mode = "fast"} : (memref<4xf32>) -> i32', "expected base type"),
        ('"layerdemo.pair"() {kind = f32, count = 1.0} : () -> i32', "expected base attribute"),
    ],
)
def test_mlir_refuses_what_breaks_a_field(text: str, message: str) -> None:
    with pytest.raises(ir.MLIRError, match=message):
        parse(f"%0 = {text}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"layerdemo.load"(%m) {mode = "fast"} : (memref<4xf32>) -> vector<4xf32>', "need 2 offsets, but got 0"),
        (
            '"layerdemo.load"(%a, %i, %i) {mode = "fast"} : (i32, index, index) -> vector<4xf32>',
            "need 'source' to be MemRefType or RankedTensorType, but got i32",
        ),
        (
            '"layerdemo.load"(%m) {mode = "fast", cache = 1 : i64} : (memref<4xf32>) -> vector<4xf32>',
            "need attribute 'cache' to be str, but got 1 : i64",
        ),
    ],
)
def test_verify_reports_what_irdl_cannot_check(text: str, message: str) -> None:
    module, _ = parse(f"%0 = {text}")
    assert errors_of(module) == [f"'layerdemo.load' op {message}"]


def test_pure_is_known_by_the_operation() -> None:
    _, (add, store) = parse("""
        %1 = "layerdemo.add"(%a, %a) : (i32, i32) -> i32
        "layerdemo.store"(%a) {operandSegmentSizes = array<i32: 1, 0, 0>} : (i32) -> ()""")
    assert is_pure(add) and not is_pure(store)
    assert op_class("layerdemo.add") is Add and op_class("arith.addi") is None


def test_loading_twice_in_a_context_does_nothing(context: ir.Context) -> None:
    Demo.load(context)
    Demo.load()


def test_the_reference_lists_operations_and_fields() -> None:
    text = Demo.markdown()
    assert "## `layerdemo.load`\n\nReads a row.\n\nTraits: Pure\n" in text
    assert "| source | operand | MemRefType or RankedTensorType |  |" in text
    assert "| offsets | variadic operand | IndexType | () |" in text
    assert "| result | result | Any | inferred |" in text


def test_wrong_declarations_are_refused_where_they_stand() -> None:
    for fields, message in [
        ({"name": Attr[str]}, "field 'name' hides every operation's own 'name': declare 'name_'"),
        ({"values": Operand[Sequence[ir.IndexType]]}, r"need Sequence\[Operand\[...\]\]"),
        ({"value": int}, r"need Operand\[...\], Result\[...\] or Attr\[...\], but field 'value' is int"),
        ({"value": Attr[set]}, r"but got Attr\[set\]"),
    ]:
        with pytest.raises(TypeError, match=message):
            type("Wrong", (Demo.Operation,), {"__annotations__": fields}, name="wrong")
    with pytest.raises(TypeError, match=r"'layerdemo\.add' is declared twice"):
        type("Again", (Demo.Operation,), {}, name="add")
    with pytest.raises(TypeError, match="'layerdemo' is declared twice"):
        type("Again", (Dialect,), {}, name="layerdemo")


def test_bytecode_brings_operations_into_another_process() -> None:
    body = Body("i32")
    with body.here:
        Add(*body.arguments, *body.arguments)
    code = (
        "import sys, mlir.ir as ir\n"
        "from test_dialect_layer import Add, load_all\n"
        "with ir.Context():\n"
        "    load_all()\n"
        "    module = ir.Module.parse(sys.stdin.buffer.read())\n"
        "    print(isinstance(module.body.operations[0].regions[0].blocks[0].operations[0], Add))\n"
    )
    bytecode = body.module.operation.get_asm(binary=True)
    answer = subprocess.run(
        [sys.executable, "-c", code], input=bytecode, capture_output=True, check=True, cwd=Path(__file__).parent
    )
    assert answer.stdout == b"True\n"
