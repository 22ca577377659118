"""`tilec-opt` reads MLIR, runs a pipeline of tilec's and upstream's passes, and prints MLIR, as `mlir-opt` does.

Input that fails prints its diagnostics and nothing else, so that no later tool takes half a module for a whole one.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlir import ir

from tilec.dialects import core
from tilec.errors import TilecError
from tilec.pipelines.diagnostics import Diagnostic
from tilec.pipelines.passes import (
    PASSES,
    REPRODUCER,
    Nested,
    PassFailure,
    PipelineError,
    import_all,
    parse_pipeline,
    run_pipeline,
)

SEPARATOR = re.compile(r"^// -----[ \t]*(?:\n|\Z)", re.MULTILINE)
EXPECTED = re.compile(r"//\s*expected-(error|warning|remark|note)(-re)?\s*@?([+-]\d+|above|below)?\s*\{\{(.*?)\}\}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns 0, or 1 after one line per error on stderr."""
    args = _parser().parse_args(argv)
    try:
        return _run(args)
    except OSError as error:
        print(f"tilec-opt: error: {error.filename}: {error.strerror}", file=sys.stderr)
    except (PipelineError, TilecError, UnicodeDecodeError) as error:
        print(f"tilec-opt: error: {error}", file=sys.stderr)
    except Exception as error:
        if args.traceback:
            raise
        during = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
        print(f"tilec-opt: internal error: {type(error).__name__}: {error}{during} (see --traceback)", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tilec-opt", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("input", nargs="?", default="-", help="a file, or - for the standard input")
    parser.add_argument("-o", dest="output", default="-", help="a file, or - for the standard output")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--pass-pipeline", metavar="TEXT", help="builtin.module(tilec-cse,func.func(canonicalize))")
    source.add_argument("--run-reproducer", action="store_true", help="take the pipeline from the input file")
    switches = {
        "--split-input-file": "treat the parts between lines `// -----` as inputs of their own",
        "--verify-diagnostics": "check the diagnostics against `// expected-error {{...}}` and print nothing else",
        "--print-ir-after-all": "print the IR after every pass to stderr",
        "--print-ir-after-change": "print the IR after every pass that changes it to stderr",
        "--diff-ir-after-change": "print what every pass changes to stderr, as a diff",
        "--timing": "print the seconds of every pass to stderr",
        "--list-passes": "print tilec's passes with their options and exit",
        "--allow-unregistered-dialect": "accept operations of unknown dialects",
        "--mlir-print-op-generic": "print the generic form",
        "--mlir-print-debuginfo": "print locations",
        "--traceback": "show Python's traceback of an internal error",
    }
    for name, meaning in switches.items():
        parser.add_argument(name, action="store_true", help=meaning)
    parser.add_argument(
        "--mlir-print-local-scope", action=argparse.BooleanOptionalAction, default=True, help="write maps where used"
    )
    return parser


def _run(args: argparse.Namespace) -> int:
    for failure in import_all("tilec.dialects") + import_all("tilec.pipelines"):
        print(f"tilec-opt: warning: {failure}", file=sys.stderr)
    if args.list_passes:
        print("\n".join(PASSES[name].describe() for name in sorted(PASSES)))
        return 0
    pipeline = parse_pipeline(args.pass_pipeline) if args.pass_pipeline else Nested("builtin.module", ())
    text = sys.stdin.read() if args.input == "-" else Path(args.input).read_text()
    if args.run_reproducer:
        pipeline = parse_pipeline(_pipeline_of(text))
    if pipeline.anchor != "builtin.module":
        raise PipelineError(f"need a pipeline on builtin.module(...), but got {pipeline.anchor}(...)")
    inputs = list(_split(text)) if args.split_input_file else [text]
    runs = [_Run(args, pipeline, part) for part in inputs]
    outputs = [run.output() for run in runs]
    if args.verify_diagnostics:
        unmet = [complaint for run in runs for complaint in run.unmet_expectations()]
        print("".join(f"{_input_name(args)}:{complaint}\n" for complaint in unmet), end="", file=sys.stderr)
        return 1 if unmet else 0
    for run in runs:
        for diagnostic in run.diagnostics:
            print(re.sub("^-:", f"{_input_name(args)}:", str(diagnostic), flags=re.MULTILINE), file=sys.stderr)
    if any(output is None for output in outputs):
        return 1
    result = "\n// -----\n".join(output or "" for output in outputs)
    if args.output == "-":
        print(result)
    else:
        Path(args.output).write_text(result + "\n")
    return 0


def _input_name(args: argparse.Namespace) -> str:
    return "<stdin>" if args.input == "-" else str(args.input)


def _pipeline_of(text: str) -> str:
    for line in text.splitlines():
        if line.startswith(REPRODUCER):
            return line.removeprefix(REPRODUCER)
    raise PipelineError(f"need a line '{REPRODUCER}builtin.module(...)' in a reproducer, but the input has none")


def _split(text: str) -> Iterator[str]:
    """The parts between separators, each moved down to its own line numbers by empty lines."""
    start = 0
    for separator in [*SEPARATOR.finditer(text), None]:
        end = separator.start() if separator else len(text)
        yield "\n" * text.count("\n", 0, start) + text[start:end]
        start = separator.end() if separator else end


@dataclass
class _Run:
    """One input through the pipeline: its diagnostics, and its output unless it fails."""

    args: argparse.Namespace
    pipeline: Nested
    text: str
    diagnostics: list[Diagnostic] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def output(self) -> str | None:
        with ir.Context() as context, ir.Location.unknown():
            context.allow_unregistered_dialects = self.args.allow_unregistered_dialect
            core.load_all(context)
            handler = context.attach_diagnostic_handler(self._keep)
            try:
                return self._transformed()
            except ir.MLIRError as error:
                self.diagnostics += map(Diagnostic.of, error.error_diagnostics)
            except PassFailure as failure:
                if not failure.diagnostics or not self.args.verify_diagnostics:
                    head = str(failure).splitlines()[0]
                    self.diagnostics.append(Diagnostic("error", ir.Location.unknown(), head))
                self.diagnostics += failure.diagnostics
            finally:
                handler.detach()
        return None

    def _keep(self, diagnostic: ir.Diagnostic) -> bool:
        self.diagnostics.append(Diagnostic.of(diagnostic))
        return True

    def _transformed(self) -> str | None:
        module = ir.Module.parse(self.text)
        if core.verify(module):
            return None
        args = self.args
        observed = args.print_ir_after_all or args.print_ir_after_change or args.diff_ir_after_change
        run_pipeline(
            module,
            self.pipeline.passes,
            observer=self._observe if observed else None,
            clock=self._time if args.timing else None,
        )
        for name, seconds in self.seconds.items():
            print(f"{seconds:10.4f} s  {name}", file=sys.stderr)
        return str(
            module.operation.get_asm(
                use_local_scope=args.mlir_print_local_scope,
                print_generic_op_form=args.mlir_print_op_generic,
                enable_debug_info=args.mlir_print_debuginfo,
                assume_verified=True,
            )
        ).rstrip()

    def _time(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _observe(self, name: str, before: str, after: str) -> None:
        if self.args.print_ir_after_all or (self.args.print_ir_after_change and before != after):
            print(f"// -----// IR after {name} //----- //\n{after}", file=sys.stderr)
        if self.args.diff_ir_after_change and before != after:
            lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", name, lineterm="")
            print("\n".join(lines), file=sys.stderr)

    def unmet_expectations(self) -> Iterator[str]:
        """One sentence per expected diagnostic that did not come and per one that came unexpected."""
        awaited = list(_expectations(self.text))
        for diagnostic in self.diagnostics:
            for part in (diagnostic, *diagnostic.notes):
                line = _line(part.location)
                match = next((e for e in awaited if e.matches(part.severity, line, part.message)), None)
                if match:
                    awaited.remove(match)
                elif part is diagnostic:
                    yield f"{line}: unexpected {part.severity}: {part.message}"
        for expectation in awaited:
            yield f"{expectation.line}: expected {expectation.severity} '{expectation.text}' was not produced"


@dataclass(frozen=True)
class _Expectation:
    severity: str
    line: int
    text: str
    is_pattern: bool

    def matches(self, severity: str, line: int, message: str) -> bool:
        found = re.search(self.text, message) is not None if self.is_pattern else self.text in message
        return found and severity == self.severity and line in (self.line, 0)


def _expectations(text: str) -> Iterator[_Expectation]:
    """`// expected-error@+1 {{...}}` means the line so far away; `above` and `below` skip lines that only expect."""
    lines = text.split("\n")
    plain = [number for number, line in enumerate(lines, 1) if not EXPECTED.search(line)]
    for number, line in enumerate(lines, 1):
        for severity, pattern, where, message in EXPECTED.findall(line):
            if where == "above":
                target = max((n for n in plain if n < number), default=number)
            elif where == "below":
                target = min((n for n in plain if n > number), default=number)
            else:
                target = number + int(where or 0)
            yield _Expectation(severity, target, message, bool(pattern))


def _line(location: ir.Location) -> int:
    """The line in the input that a location is about, 0 where it has none."""
    if location.is_a_file():
        return int(location.start_line)
    if location.is_a_name():
        return _line(location.child_loc)
    if location.is_a_callsite():
        return _line(location.callee)
    if location.is_a_fused():
        return next(filter(None, map(_line, location.locations)), 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
