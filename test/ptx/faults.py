"""What a launch can report: the kernel is wrong, or the interpreter does not know the instruction. It never guesses."""

from __future__ import annotations


class Fault(Exception):
    """The kernel broke a rule. Raised with the rule and the offending lane, completed by the machine with the place.

    Attributes: `kernel`, `instruction` (its text), `line` (in the PTX), `block` and `thread` (x, y, z), `rule` (the
    message).
    """

    def __init__(self, rule: str, lane: int | None = None) -> None:
        super().__init__(rule)
        self.rule, self.lane = rule, lane
        self.kernel = self.instruction = ""
        self.line = 0
        self.block: tuple[int, ...] = ()
        self.thread: tuple[int, ...] = ()

    def place(self, kernel: str, text: str, line: int, block: tuple[int, ...], thread: tuple[int, ...]) -> None:
        self.kernel, self.instruction, self.line, self.block, self.thread = kernel, text, line, block, thread

    def __str__(self) -> str:
        where = f" ({self.kernel}, line {self.line}, `{self.instruction}`, block {self.block}, thread {self.thread})"
        return self.rule + (where if self.kernel else "")


class Unsupported(NotImplementedError):
    """The PTX holds something that the interpreter does not model."""
