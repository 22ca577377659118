"""Diagnostics are kept as plain values, so that a failure carries all of them to the user."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mlir import ir

UNKNOWN = "unknown location"
NOTE_LINES = 4


@dataclass(frozen=True)
class Diagnostic:
    """One error, warning, remark or note of MLIR or of a pass, kept after its context is done with it."""

    severity: str
    location: ir.Location
    message: str
    notes: tuple["Diagnostic", ...] = ()

    @classmethod
    def of(cls, info: Any) -> "Diagnostic":
        """From MLIR's Diagnostic or DiagnosticInfo."""
        return cls(info.severity.name.lower(), info.location, info.message, tuple(cls.of(note) for note in info.notes))

    def __str__(self) -> str:
        where, lines = location_text(self.location), self.message.splitlines()
        if self.severity == "note" and len(lines) > NOTE_LINES:  # MLIR appends the operation, which may be the module
            lines = [*lines[:NOTE_LINES], "..."]
        head = f"{self.severity}: " + "\n".join(lines)
        return "\n".join([head if where == UNKNOWN else f"{where}: {head}", *map(str, self.notes)])


def location_text(location: ir.Location) -> str:
    """A location as people write it: `model.py:41:3`, callers after callees."""
    if location.is_a_file():
        return f"{location.filename}:{location.start_line}:{location.start_col}"
    if location.is_a_callsite():
        return f"{location_text(location.callee)} called at {location_text(location.caller)}"
    if location.is_a_name():
        inner = location_text(location.child_loc)
        return location.name_str if inner == UNKNOWN else f"{inner} ({location.name_str})"
    if location.is_a_fused() and location.locations:
        return ", ".join(map(location_text, location.locations))
    return UNKNOWN


@contextmanager
def collected_errors(context: ir.Context) -> Iterator[list[Diagnostic]]:
    """Keeps the errors emitted meanwhile; warnings and remarks go on to whoever else listens."""
    errors: list[Diagnostic] = []

    def listen(diagnostic: ir.Diagnostic) -> bool:
        if diagnostic.severity is not ir.DiagnosticSeverity.ERROR:
            return False
        errors.append(Diagnostic.of(diagnostic))
        return True

    handler = context.attach_diagnostic_handler(listen)
    try:
        yield errors
    finally:
        handler.detach()
