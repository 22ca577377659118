"""A pass is a frozen dataclass whose fields are its options, so command line, printed pipeline and `repr` agree.

The bindings cannot name a Python pass inside a pipeline text, so pipelines are tuples run here: our passes are called,
runs of upstream passes go to one PassManager. The text form is that of `mlir-opt`, with both kinds mixed:

    @dataclass(frozen=True)
    class Fuse(Pass):
        "Joins primops that share a kernel."
        name = "primop-fuse"
        max_ops: int = 32

        def run(self, op): ...

    pipeline = (Fuse(max_ops=8), Nested("func.func", (Cse(),)), Upstream("canonicalize"))
    pipeline_text(pipeline)     # builtin.module(primop-fuse{max-ops=8},func.func(tilec-cse),canonicalize)
    run_pipeline(module, pipeline)
"""

import dataclasses
import difflib
import importlib
import inspect
import pkgutil
import re
import shlex
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlir import ir
from mlir.passmanager import PassManager

from tilec.dialects import core
from tilec.pipelines.diagnostics import Diagnostic, collected_errors
from tilec.pipelines.options import Option, OptionError, value_text

MOST_DIAGNOSTICS = 8  # that a failure's text shows
ANY = "any"  # the anchor of a pass that runs on whichever operation it is placed in


class PassFailure(Exception):
    """A pass could not do its work, or left invalid IR. Raised by a pass with a message and the location it is about.

    `run_pipeline` fills in `pass_name` and `diagnostics` (everything MLIR and the verifiers reported).
    """

    def __init__(self, message: str, location: ir.Location | None = None) -> None:
        super().__init__(message)
        self.message, self.location = message, location
        self.pass_name = ""
        self.diagnostics: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        located = any(diagnostic.message == self.message for diagnostic in self.diagnostics)
        why = "failed" if located else self.message
        return "\n".join([f"pass '{self.pass_name}': {why}" if self.pass_name else why, *map(str, self.diagnostics)])


class PipelineError(ValueError):
    """A pipeline's text names something that does not exist, or is not well formed."""


# --- Passes ----------------------------------------------------------------------------------------------------------

PASSES: dict[str, type["Pass"]] = {}


@dataclass(frozen=True)
class Pass:
    """Base of our passes: a frozen dataclass with a name, the operation it runs on, and its summary as docstring."""

    name: ClassVar[str]
    anchor: ClassVar[str] = "builtin.module"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__ and PASSES.setdefault(cls.name, cls) is not cls:
            raise TypeError(f"need one class per pass, but '{cls.name}' is declared twice")

    def run(self, op: ir.Operation) -> None:
        """Changes the IR at and below `op`, an operation of the kind `anchor`; raises PassFailure where it cannot."""
        raise NotImplementedError(f"pass '{self.name}' has no run method")

    @classmethod
    def options(cls) -> dict[str, Option]:
        """The options by their command-line names."""
        hints = typing.get_type_hints(cls)
        found = [Option(f, hints[f.name]) for f in dataclasses.fields(cls)]
        plain = [n for n, hint in hints.items() if typing.get_origin(hint) is not ClassVar]
        if len(plain) != len(found):
            raise TypeError(f"need @dataclass(frozen=True) on {cls.__name__}, because it has the options {plain}")
        return {option.name: option for option in found}

    @classmethod
    def parse(cls, text: str) -> "Pass":
        """The pass with options as written between braces: `max-ops=8 sizes=1,2 fast`. Raises PipelineError."""
        options, values = cls.options(), {}
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise PipelineError(f"pass '{cls.name}': cannot read the options '{text}': {error}") from None
        for word in words:
            name, equals, value = word.partition("=")
            if name not in options:
                raise PipelineError(f"pass '{cls.name}' has no option '{name}'; {_it_has(options, 'options')}")
            try:
                values[options[name].field.name] = options[name].parse(value if equals else "true")
            except OptionError as error:
                raise PipelineError(f"pass '{cls.name}': {error}") from None
        missing = [option.name for option in options.values() if option.required and option.field.name not in values]
        if missing:
            raise PipelineError(f"pass '{cls.name}' needs a value for the option '{missing[0]}'")
        return cls(**values)

    @classmethod
    def describe(cls) -> str:
        """Name, summary and options, for `--list-passes`."""
        summary = (inspect.getdoc(cls) or "").splitlines()[0]
        return "\n".join([f"{cls.name}: {summary}", *(f"    {o.describe()}" for o in cls.options().values())])

    def __str__(self) -> str:
        """The text that `parse_pipeline` reads back: options at their default are left out."""
        values = [(option, getattr(self, option.field.name)) for option in self.options().values()]
        words = [f"{o.name}={value_text(v)}" for o, v in values if o.required or v != o.default]
        return f"{self.name}{{{' '.join(words)}}}" if words else self.name


def _it_has(names: Iterable[str], what: str) -> str:
    return f"its {what} are {', '.join(sorted(names))}" if names else f"it has no {what}"


@dataclass(frozen=True)
class Upstream:
    """A pass of MLIR, or a nest of them, as mlir-opt writes it: `canonicalize`, `func.func(cse,canonicalize)`."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Nested:
    """Passes that run on every operation named `anchor` directly inside the current one."""

    anchor: str
    passes: tuple["Entry", ...]

    def __str__(self) -> str:
        return f"{self.anchor}({','.join(map(str, self.passes))})"


Entry = Pass | Upstream | Nested


def import_all(package: str = "tilec.pipelines") -> list[str]:
    """Imports every module of the package, which registers its passes; returns a sentence for each that fails."""
    failures: list[str] = []

    def attempt(name: str) -> None:
        try:
            importlib.import_module(name)
        except Exception as error:
            failures.append(f"cannot import {name}: {type(error).__name__}: {error}")

    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.", onerror=attempt):
        attempt(module.name)
    return failures


# --- Text ------------------------------------------------------------------------------------------------------------


def pipeline_text(passes: Sequence[Entry], anchor: str = "builtin.module") -> str:
    """The pipeline as a text for `parse_pipeline` and `tilec-opt --pass-pipeline`."""
    return str(Nested(anchor, tuple(passes)))


def parse_pipeline(text: str) -> Nested:
    """Reads `builtin.module(primop-fuse{max-ops=8},func.func(tilec-cse),canonicalize)`.

    Every name and option is checked, so nothing of a wrong pipeline runs. Raises PipelineError.
    """
    reader = _Reader("".join(text.splitlines()))
    entries = reader.entries(ANY)
    if reader.position != len(reader.text):
        reader.fail("the end of the pipeline")
    if len(entries) != 1 or not isinstance(entries[0], Nested):
        raise PipelineError(f"need one anchor around the passes, as in builtin.module(canonicalize), but got '{text}'")
    return entries[0]


class _Reader:
    """Recursive descent: entries = entry {"," entry}; entry = name ["{" options "}"] | name "(" [entries] ")"."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def fail(self, wanted: str) -> typing.NoReturn:
        got = self.text[self.position : self.position + 20] or "its end"
        raise PipelineError(f"need {wanted} at character {self.position + 1} of the pipeline, but got '{got}'")

    def blanks(self) -> None:
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1

    def take(self, symbol: str) -> bool:
        found = self.text.startswith(symbol, self.position)
        self.position += len(symbol) * found
        return found

    def entries(self, anchor: str) -> tuple[Entry, ...]:
        found = [self.entry(anchor)]
        while self.take(","):
            found.append(self.entry(anchor))
        return tuple(found)

    def entry(self, anchor: str) -> Entry:
        self.blanks()
        match = re.compile(r"[\w.\-]+").match(self.text, self.position)
        if not match:
            self.fail("the name of a pass")
        self.position, name = match.end(), match[0]
        self.blanks()
        if self.take("("):
            inner = () if self.take(")") else self.entries(name)
            if inner and not self.take(")"):
                self.fail("')'")
            self.blanks()
            return Nested(name, inner)
        return _resolve(name, self.braces(), anchor)

    def braces(self) -> str:
        """The text between balanced braces, empty if there are none."""
        if not self.take("{"):
            return ""
        start, depth = self.position, 1
        while depth:
            if self.position == len(self.text):
                self.fail("'}'")
            depth += {"{": 1, "}": -1}.get(self.text[self.position], 0)
            self.position += 1
        inside = self.text[start : self.position - 1]
        self.blanks()
        return inside


def _resolve(name: str, options: str, anchor: str) -> Entry:
    if name in PASSES:
        found = PASSES[name]
        if anchor not in (ANY, found.anchor, "builtin.module") and found.anchor != ANY:
            raise PipelineError(f"pass '{name}' runs on {found.anchor}, but is placed in {anchor}(...)")
        return found.parse(options)
    text = f"{name}{{{options}}}" if options else name
    with ir.Context():
        try:
            PassManager.parse(f"{anchor}({text})")
        except (ValueError, ir.MLIRError) as error:
            if "does not refer to a registered pass" not in str(error):
                raise PipelineError(f"upstream refuses '{text}': {' '.join(str(error).split())}") from None
            close = difflib.get_close_matches(name, PASSES, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            known = f"tilec's passes are {', '.join(sorted(PASSES))}" if PASSES else "tilec has none registered"
            raise PipelineError(f"no pass is named '{name}'; {hint}{known}, besides those of mlir-opt") from None
    return Upstream(text)


def reproducer(module_text: str, passes: str) -> str:
    """The text of a file on which `tilec-opt --run-reproducer` repeats a run of the pipeline on the module."""
    return f"// Run with: tilec-opt --run-reproducer <this file>\n{REPRODUCER}{passes}\n\n{module_text}"


REPRODUCER = "// pipeline: "

# --- Running ---------------------------------------------------------------------------------------------------------


# Called after every pass with its name and the whole module's text before and after; without one nothing is printed.
Observer = Callable[[str, str, str], None]


def run_pipeline(
    module: ir.Module | ir.Operation | ir.OpView,
    passes: Sequence[Entry],
    *,
    observer: Observer | None = None,
    verify: bool = True,
    each: bool = True,
    clock: Callable[[str, float], None] | None = None,
) -> None:
    """Runs the passes on the module, in place. `clock` gets the seconds of each pass.

    Upstream verifies its own passes; after each of ours MLIR's verifiers and the dialects' run, or without `each` after the
    last alone, unless `verify` is off. Raises PassFailure with the failing pass and all diagnostics; the module is then in an
    undefined state.
    """
    run = _Run(module.operation, observer, verify, each, clock)
    run.entries(module.operation, passes)
    run.verify_rest()


@dataclass
class _Run:
    root: ir.Operation
    observer: Observer | None
    verify: bool
    each: bool
    clock: Callable[[str, float], None] | None
    text: str = field(default="", init=False)
    right: set[tuple[object, ...]] = field(default_factory=set, init=False)  # what has been verified
    unverified: list[str] = field(default_factory=list, init=False)  # passes of ours that have run since

    def __post_init__(self) -> None:
        if self.observer:
            self.text = module_text(self.root)

    def entries(self, op: ir.Operation, passes: Sequence[Entry]) -> None:
        one_by_one = self.observer is not None or self.clock is not None
        for entry in _group_upstream(passes, one_by_one):
            if isinstance(entry, Upstream):
                self.step(entry.text, self.upstream, op, entry.text)
            elif isinstance(entry, Pass):
                self.step(str(entry), self.ours, op, entry)
            else:
                for inner in _children(op, entry.anchor):
                    self.entries(inner, entry.passes)

    def upstream(self, op: ir.Operation, text: str) -> None:
        try:
            manager = PassManager.parse(f"{op.name}({text})", op.context)
        except ValueError as error:
            raise PipelineError(f"upstream refuses '{text}': {' '.join(str(error).split())}") from None
        manager.enable_verifier(self.verify)
        manager.run(op)

    def ours(self, op: ir.Operation, entry: Pass) -> None:
        with op.context, ir.Location.unknown():
            for target in [op] if entry.anchor in (ANY, op.name) else list(_below(op, entry.anchor)):
                entry.run(target)
        self.unverified.append(str(entry))
        if self.each:
            self.check()

    def check(self) -> None:
        passes, self.unverified = self.unverified, []
        if self.verify and self.root.verify() and core.verify(self.root, self.right):
            raise PassFailure("the IR it left is invalid" if len(passes) == 1 else
                              f"the IR that it and those from '{passes[0]}' on left is invalid")

    def verify_rest(self) -> None:
        if self.unverified:
            self.step(self.unverified[-1], self.check)

    def step(self, name: str, run: Callable[..., None], *args: Any) -> None:
        start = time.perf_counter()
        with collected_errors(self.root.context) as errors:
            try:
                run(*args)
            except PassFailure as failure:
                own = [] if failure.location is None else [Diagnostic("error", failure.location, failure.message)]
                failure.pass_name, failure.diagnostics = name, (*errors, *own)
                raise
            except ir.MLIRError as error:
                refusal = PassFailure(error.message)
                refusal.pass_name = name
                refusal.diagnostics = (*errors, *map(Diagnostic.of, error.error_diagnostics))
                raise refusal from error
            except Exception as error:
                error.add_note(f"while the pass '{name}' ran")
                raise
        if self.clock:
            self.clock(name, time.perf_counter() - start)
        if self.observer:
            before, self.text = self.text, module_text(self.root)
            self.observer(name, before, self.text)


def module_text(op: ir.Module | ir.Operation | ir.OpView) -> str:
    """The IR with maps written where they are used, so that one change does not renumber the aliases of the others."""
    return str(op.operation.get_asm(use_local_scope=True, assume_verified=True))


def _is_upstream(entry: Entry) -> bool:
    return isinstance(entry, Upstream) or (isinstance(entry, Nested) and all(map(_is_upstream, entry.passes)))


def _group_upstream(passes: Sequence[Entry], one_by_one: bool) -> Iterator[Entry]:
    """Joins maximal runs of upstream passes into one entry each, unless every pass is to be seen alone."""
    run: list[str] = []
    for entry in passes:
        if _is_upstream(entry) and not one_by_one:
            run.append(str(entry))
            continue
        if run:
            yield Upstream(",".join(run))
            run = []
        yield Upstream(str(entry)) if _is_upstream(entry) else entry
    if run:
        yield Upstream(",".join(run))


def _children(op: ir.Operation, name: str) -> list[ir.Operation]:
    inner = (child.operation for region in op.regions for block in region.blocks for child in block.operations)
    return [child for child in inner if child.name == name]


def _below(op: ir.Operation, name: str) -> Iterator[ir.Operation]:
    """The outermost operations of that name inside `op`."""
    for region in op.regions:
        for block in region.blocks:
            for child in block.operations:
                if child.operation.name == name:
                    yield child.operation
                else:
                    yield from _below(child.operation, name)
