"""Passes, pipelines and their text, on a dialect and passes that exist for this file only."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from mlir import ir

from tilec.dialects.core import Dialect, Operand, VerifyError, load_all
from tilec.pipelines.diagnostics import Diagnostic, location_text
from tilec.pipelines.passes import (
    ANY,
    PASSES,
    Nested,
    Pass,
    PassFailure,
    PipelineError,
    Upstream,
    import_all,
    parse_pipeline,
    pipeline_text,
    reproducer,
    run_pipeline,
)


class Demo(Dialect, name="passdemo"):
    """One operation that its verifier never accepts."""


class Wrong(Demo.Operation, name="wrong"):
    value: Operand[Any]

    def verify(self) -> None:
        raise VerifyError("is never right")


@dataclass(frozen=True)
class Tag(Pass):
    """Puts a string on an operation."""

    name = "demo-tag"
    text: str = "tagged"
    max_ops: int = 32
    sizes: list[int] = field(default_factory=list)
    fast: bool = False
    factor: float = 1.0
    depth: int | None = None

    def run(self, op: ir.Operation) -> None:
        op.attributes["demo.tag"] = ir.StringAttr.get(self.text)


class TagFunctions(Pass):
    """Counts how often it ran on each function."""

    name = "demo-tag-functions"
    anchor = "func.func"

    def run(self, op: ir.Operation) -> None:
        before = ir.IntegerAttr(op.attributes["runs"]).value if "runs" in op.attributes else 0
        op.attributes["runs"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), before + 1)


class Names(Pass):
    """Keeps the names of the operations it ran on."""

    name = "demo-names"
    anchor = ANY
    seen: ClassVar[list[str]] = []

    def run(self, op: ir.Operation) -> None:
        self.seen.append(op.name)


@dataclass(frozen=True)
class Required(Pass):
    """Has an option without a default."""

    name = "demo-required"
    target: str

    def run(self, op: ir.Operation) -> None:
        pass


class Refuse(Pass):
    """Cannot do its work."""

    name = "demo-refuse"
    anchor = "func.func"

    def run(self, op: ir.Operation) -> None:
        raise PassFailure("need two functions, but got one", op.location)


class BreakRule(Pass):
    """Leaves an operation that breaks a rule of our dialect."""

    name = "demo-break-rule"
    anchor = "func.func"

    def run(self, op: ir.Operation) -> None:
        block = op.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block), ir.Location.file("model.py", 41, 3):
            Wrong(block.arguments[0])


class BreakType(Pass):
    """Leaves a function whose type is not that of its body."""

    name = "demo-break-type"
    anchor = "func.func"

    def run(self, op: ir.Operation) -> None:
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([], []))


class Bug(Pass):
    """Has a bug."""

    name = "demo-bug"

    def run(self, op: ir.Operation) -> None:
        raise KeyError("x")


TWO_FUNCTIONS = """
func.func @f(%a: i32) {
  %0 = arith.constant 1 : i32
  return
}
func.func @g(%a: i32) {
  return
}
"""


@pytest.fixture
def module() -> Iterator[ir.Module]:
    with ir.Context(), ir.Location.unknown():
        load_all()
        yield ir.Module.parse(TWO_FUNCTIONS)


# --- Text ------------------------------------------------------------------------------------------------------------


def test_a_pipeline_of_both_kinds_reads_back_as_it_prints() -> None:
    text = (
        "builtin.module(demo-tag{text='a b' max-ops=8 sizes=1,2 fast=true factor=0.5 depth=3},"
        "func.func(demo-tag-functions,cse),canonicalize{max-iterations=3 top-down=false})"
    )
    tree = parse_pipeline(text)
    assert tree == Nested(
        "builtin.module",
        (
            Tag(text="a b", max_ops=8, sizes=[1, 2], fast=True, factor=0.5, depth=3),
            Nested("func.func", (TagFunctions(), Upstream("cse"))),
            Upstream("canonicalize{max-iterations=3 top-down=false}"),
        ),
    )
    assert str(tree) == text == pipeline_text(tree.passes)


def test_blanks_flags_and_line_breaks_are_accepted() -> None:
    tree = parse_pipeline("builtin.module( demo-tag{fast} ,\n  func.func( cse , canonicalize ) , symbol-dce )")
    assert str(tree) == "builtin.module(demo-tag{fast=true},func.func(cse,canonicalize),symbol-dce)"


def test_options_at_their_default_are_not_printed() -> None:
    assert str(Tag()) == "demo-tag" and str(Tag(max_ops=1)) == "demo-tag{max-ops=1}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "builtin.module(demo-tga)",
            "no pass is named 'demo-tga'; did you mean 'demo-tag'? tilec's passes are ",
        ),
        (
            "builtin.module(demo-tag{depht=1})",
            "pass 'demo-tag' has no option 'depht'; its options are depth, factor",
        ),
        ("builtin.module(demo-names{depth=1})", "pass 'demo-names' has no option 'depth'; it has no options"),
        ("builtin.module(demo-tag{max-ops=many})", "pass 'demo-tag': option 'max-ops' needs int, but got 'many'"),
        ("builtin.module(demo-tag{fast=maybe})", "pass 'demo-tag': option 'fast' needs bool, but got 'maybe'"),
        ("builtin.module(demo-tag{sizes=1,x})", "pass 'demo-tag': option 'sizes' needs list[int], but got '1,x'"),
        ("builtin.module(demo-required)", "pass 'demo-required' needs a value for the option 'target'"),
        ("builtin.module(demo-tag{text='open})", "pass 'demo-tag': cannot read the options 'text='open': No closing"),
        (
            "builtin.module(gpu.module(demo-refuse))",
            "pass 'demo-refuse' runs on func.func, but is placed in gpu.module",
        ),
        ("builtin.module(canonicalize{colour=red})", "upstream refuses 'canonicalize{colour=red}'"),
        ("builtin.module(cse", "need ')' at character 19 of the pipeline, but got 'its end'"),
        ("builtin.module(cse{a)", "need '}' at character 22 of the pipeline, but got 'its end'"),
        ("builtin.module(,cse)", "need the name of a pass at character 16 of the pipeline, but got ',cse)'"),
        ("builtin.module(cse))", "need the end of the pipeline at character 20 of the pipeline, but got ')'"),
        ("cse,canonicalize", "need one anchor around the passes, as in builtin.module(canonicalize)"),
    ],
)
def test_a_wrong_pipeline_is_refused_with_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(PipelineError) as refusal:
        parse_pipeline(text)
    assert str(refusal.value).startswith(sentence) and "\n" not in str(refusal.value)


def test_a_name_belongs_to_one_pass() -> None:
    with pytest.raises(TypeError, match="need one class per pass, but 'demo-tag' is declared twice"):
        type("Again", (Pass,), {"name": "demo-tag"})
    assert PASSES["demo-tag"] is Tag


def test_options_without_the_dataclass_decorator_are_refused() -> None:
    forgetful: Any = type(
        "Forgetful", (Pass,), {"name": "demo-forgetful", "__annotations__": {"depth": int}, "depth": 1}
    )
    del PASSES["demo-forgetful"]
    with pytest.raises(TypeError, match=r"need @dataclass\(frozen=True\) on Forgetful"):
        forgetful.options()


def test_the_description_names_every_option() -> None:
    assert Tag.describe().splitlines()[:3] == [
        "demo-tag: Puts a string on an operation.",
        "    text (str, default tagged)",
        "    max-ops (int, default 32)",
    ]
    assert "    target (str, required)" in Required.describe()


def test_every_module_of_the_package_can_be_imported() -> None:
    assert import_all() == []
    assert {"tilec-cse", "tilec-dce"} <= PASSES.keys()


# --- Running ---------------------------------------------------------------------------------------------------------


def test_a_pass_runs_on_every_operation_of_its_anchor(module: ir.Module) -> None:
    run_pipeline(module, (TagFunctions(), Nested("func.func", (TagFunctions(), Upstream("canonicalize")))))
    assert str(module).count("runs = 2") == 2
    assert "arith.constant" not in str(module)


def test_a_pass_on_any_operation_runs_where_it_is_placed(module: ir.Module) -> None:
    Names.seen.clear()
    run_pipeline(module, (Names(), Nested("func.func", (Names(),))))
    assert Names.seen == ["builtin.module", "func.func", "func.func"]


def test_an_observer_sees_every_pass_with_the_text_around_it(module: ir.Module) -> None:
    seen: list[tuple[str, bool]] = []
    last = ""

    def observe(name: str, before: str, after: str) -> None:
        nonlocal last
        assert not last or before == last
        seen.append((name, before != after))
        last = after

    run_pipeline(module, (Tag(text="x"), Upstream("canonicalize"), Upstream("cse")), observer=observe)
    assert seen == [("demo-tag{text=x}", True), ("canonicalize", True), ("cse", False)]


def test_the_clock_gets_the_seconds_of_every_pass(module: ir.Module) -> None:
    seconds: dict[str, float] = {}
    run_pipeline(module, (Tag(), Upstream("canonicalize"), Upstream("cse")), clock=seconds.__setitem__)
    assert list(seconds) == ["demo-tag", "canonicalize", "cse"] and min(seconds.values()) > 0


def test_a_failing_pass_is_named_with_its_message_and_place(module: ir.Module) -> None:
    with pytest.raises(PassFailure) as failure:
        run_pipeline(module, (Tag(), Refuse()))
    assert failure.value.pass_name == "demo-refuse"
    assert str(failure.value) == "pass 'demo-refuse': failed\n-:2:1: error: need two functions, but got one"


def test_a_broken_rule_of_a_dialect_is_reported_after_the_pass(module: ir.Module) -> None:
    with pytest.raises(PassFailure) as failure:
        run_pipeline(module, (BreakRule(), Tag()))
    lines = str(failure.value).splitlines()
    assert lines[0] == "pass 'demo-break-rule': the IR it left is invalid"
    assert lines[1:] == ["model.py:41:3: error: 'passdemo.wrong' op is never right"] * 2
    assert "demo.tag" not in module.operation.attributes


def test_broken_ir_is_reported_after_the_pass(module: ir.Module) -> None:
    with pytest.raises(PassFailure, match="pass 'demo-break-type'") as failure:
        run_pipeline(module, (BreakType(),))
    assert "entry block must have 0 arguments" in str(failure.value)


def test_what_is_verified_at_the_end_says_which_passes_it_may_have_been(module: ir.Module) -> None:
    with pytest.raises(PassFailure) as failure:
        run_pipeline(module, (BreakRule(), Tag()), each=False)
    assert str(failure.value).splitlines()[0] == \
        "pass 'demo-tag': the IR that it and those from 'demo-break-rule' on left is invalid"


def test_verification_can_be_left_out(module: ir.Module) -> None:
    run_pipeline(module, (BreakRule(),), verify=False)
    assert "passdemo.wrong" in str(module)


def test_a_failing_upstream_pass_gives_its_diagnostics() -> None:
    with ir.Context(), ir.Location.unknown():
        load_all()
        module = ir.Module.parse(
            'func.func @f(%a: tensor<4xf32>) {\n"passdemo.wrong"(%a) : (tensor<4xf32>) -> ()\nreturn\n}'
        )
        with pytest.raises(PassFailure) as failure:
            run_pipeline(module, (Upstream("cse"), Upstream("one-shot-bufferize")))
    assert failure.value.pass_name == "cse,one-shot-bufferize"
    assert "-:2:1: error: op was not bufferized" in str(failure.value)


def test_long_notes_are_cut() -> None:
    with ir.Context():
        note = Diagnostic("note", ir.Location.unknown(), "a\nb\nc\nd\ne\nf")
        assert str(note) == "note: a\nb\nc\nd\n..."


def test_an_unknown_upstream_pass_is_one_sentence(module: ir.Module) -> None:
    with pytest.raises(PipelineError, match="upstream refuses 'no-such-pass'"):
        run_pipeline(module, (Upstream("no-such-pass"),))


def test_a_bug_in_a_pass_keeps_its_exception_and_names_the_pass(module: ir.Module) -> None:
    with pytest.raises(KeyError) as error:
        run_pipeline(module, (Bug(),))
    assert error.value.__notes__ == ["while the pass 'demo-bug' ran"]


def test_locations_are_written_as_people_read_them() -> None:
    with ir.Context():
        here, there = ir.Location.file("model.py", 41, 3), ir.Location.file("main.py", 7, 1)
        assert location_text(here) == "model.py:41:3"
        assert location_text(ir.Location.callsite(here, [there])) == "model.py:41:3 called at main.py:7:1"
        assert location_text(ir.Location.name("attention", here)) == "model.py:41:3 (attention)"
        assert location_text(ir.Location.name("attention")) == "attention"
        assert location_text(ir.Location.fused([here, there])) == "model.py:41:3, main.py:7:1"
        assert location_text(ir.Location.unknown()) == "unknown location"


def test_a_reproducer_is_a_file_that_tilec_opt_runs(module: ir.Module, tmp_path: Path) -> None:
    passes = parse_pipeline("builtin.module(func.func(tilec-dce),canonicalize)").passes
    file = tmp_path / "failure.mlir"
    file.write_text(reproducer(str(module), pipeline_text(passes)))
    command = [sys.executable, "-m", "tilec.tools.opt", "--run-reproducer", str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    run_pipeline(module, passes)
    assert printed.split() == str(module).split()
