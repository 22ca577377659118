"""PTX text to functions of statements with resolved operands.

Names are resolved here (scopes, register ranges such as `%r<9>`, labels inside braces), so that decoding never sees a
string it has to look up. Instructions stay undecoded: a module may hold kernels that cannot be run here, while nobody
launches them.
"""

from __future__ import annotations

import bisect
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from .faults import Unsupported
from .formats import TYPES


@dataclass(frozen=True)
class Register:
    scope: int
    name: str
    width: int  # 1 for a predicate


@dataclass(frozen=True)
class Immediate:
    """`bits` as written; `width` is 32 or 64 for 0f and 0d literals, 0 for integers."""

    bits: int
    width: int = 0


@dataclass(frozen=True)
class Variable:
    """A named piece of memory: `space` as declared, or `argument` for a parameter of an entry."""

    name: str
    space: str
    size: int
    align: int
    data: bytes = b""
    function: str = ""
    dynamic: bool = False


@dataclass(frozen=True)
class Name:
    """A special register, a function, or text that only some instruction we do not know can mean something by."""

    name: str


@dataclass(frozen=True)
class Target:
    index: int


@dataclass(frozen=True)
class Table:
    targets: tuple[int, ...]


@dataclass(frozen=True)
class Vector:
    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Address:
    """`[base + offset, rest]`; the rest are coordinates and the like."""

    base: Operand
    offset: int
    rest: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Not:
    operand: Operand


@dataclass(frozen=True)
class Pair:
    """`p|q`: two destinations."""

    first: Operand
    second: Operand


Operand = Register | Immediate | Variable | Name | Target | Table | Vector | Address | Not | Pair


@dataclass(frozen=True)
class Statement:
    opcode: str
    operands: tuple[Operand, ...]
    guard: Register | Not | None
    text: str
    line: int


@dataclass
class Function:
    name: str
    entry: bool
    parameters: list[Variable]
    returns: list[Variable]
    block: tuple[int, int, int] | None = None
    cluster: tuple[int, int, int] | None = None
    explicit_cluster: bool = False
    refused: list[str] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)


class Scope:
    """The names that one pair of braces declares."""

    count = 0

    def __init__(self, parent: Scope | None) -> None:
        Scope.count += 1
        self.id, self.parent = Scope.count, parent
        self.names: dict[str, Operand] = {}
        self.ranges: dict[str, tuple[int, int]] = {}
        self.tables: dict[str, tuple[Scope, list[str]]] = {}

    def find(self, name: str) -> Operand:
        scope: Scope | None = self
        stem, digits = re.fullmatch(r"(.*?)(\d*)", name).groups()  # type: ignore[union-attr]
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            if name in scope.tables:
                home, labels = scope.tables[name]
                found = [home.find(label) for label in labels]
                return Table(tuple(target.index for target in found if isinstance(target, Target)))
            if digits and stem in scope.ranges and int(digits) < scope.ranges[stem][0]:
                return Register(scope.id, name, scope.ranges[stem][1])
            scope = scope.parent
        return Name(name)


VARIABLE = re.compile(
    r"\.(?P<space>shared|local|global|const|param)\b\s*(?:\.align\s+(?P<align>\d+)\s*)?\.(?P<type>[a-z]\d+)\s+"
    r"(?:\.ptr\s*(?:\.\w+\s*)?(?:\.align\s+\d+\s+)?)?"
    r"(?P<name>[\w$%]+)\s*(?P<array>\[\s*(?P<count>\d*)\s*\])?\s*(?:=\s*(?P<init>.*))?",
    re.S,
)
HEADER = re.compile(
    r"(?:\.visible|\.weak|\.extern)?\s*\.(?P<kind>entry|func)\s*(?:\((?P<returns>[^)]*)\))?\s*(?P<name>[\w$]+)\s*"
    r"(?:\((?P<parameters>[^)]*)\))?(?P<directives>.*)",
    re.S,
)
DIRECTIVES = {"maxntid", "reqntid", "minnctapersm", "maxnreg", "noreturn", "reqnctapercluster", "explicitcluster"}
TOKEN = re.compile(r"\s*(?:(?P<open>\{)|(?P<close>\})|(?P<label>[\w$]+)\s*:(?!:)|(?P<statement>[^;]*);)")
NUMBER = re.compile(
    r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?|-?\d*\.\d*(?:[eE][+-]?\d+)?"
)


def literal(text: str) -> Immediate:
    if text[:2] in ("0f", "0F", "0d", "0D"):
        return Immediate(int(text[2:], 16), 32 if text[1] in "fF" else 64)
    if "." in text:
        return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), 64)
    digits = text.rstrip("U")
    octal = re.fullmatch(r"-?0\d+", digits)
    return Immediate(int(digits, 8 if octal else 0))


def commas(text: str) -> list[str]:
    """Split at the commas outside all brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "{[(") - (char in "}])")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def operand(text: str, scope: Scope) -> Operand:
    if text[0] in "{(":
        return Vector(tuple(operand(item, scope) for item in commas(text[1:-1])))
    if text[0] == "[":
        first, *rest = commas(text[1:-1])
        if match := re.fullmatch(r"([\w$%]+)\s*(?:\+\s*(-?\w+)|(-\d+))?", first):
            offset = int(match[2] or match[3] or "0", 0)
            return Address(operand(match[1], scope), offset, tuple(operand(item, scope) for item in rest))
    if text[0] == "!":
        return Not(operand(text[1:].strip(), scope))
    if "|" in text:
        first, second = text.split("|")
        return Pair(operand(first.strip(), scope), operand(second.strip(), scope))
    if NUMBER.fullmatch(text):
        return literal(text)
    return scope.find(text)


def variable(text: str, function: str = "", entry: bool = False) -> Variable:
    match = VARIABLE.fullmatch(text.strip())
    if not match:
        raise Unsupported(f"declaration `{text.strip()}`")
    kind = TYPES[match["type"]]
    values = [literal(item) for item in commas(match["init"].strip().strip("{}"))] if match["init"] else []
    data = b"".join((value.bits & ((1 << kind.width) - 1)).to_bytes(kind.width // 8, "little") for value in values)
    size = kind.width // 8 * (int(match["count"] or 0) if match["array"] else 1)
    if match["space"] in ("global", "const"):
        data = data.ljust(size, b"\0")  # PTX: what has no initial value starts as zero
    space = "argument" if entry else match["space"]
    dynamic = match["space"] == "shared" and match["array"] is not None and not match["count"]
    return Variable(match["name"], space, size, int(match["align"] or kind.width // 8), data, function, dynamic)


class Parser:
    """Splits a module into its top-level pieces. Comments and source locations become blanks, to keep line numbers."""

    def __init__(self, text: str) -> None:
        def blank(match: re.Match[str]) -> str:
            return "\n" * match[0].count("\n")

        text = re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.S)
        text = re.sub(r"^\s*\.(version|target|address_size|file|loc)\b[^\n]*", blank, text, flags=re.M)
        self.text = re.sub(r"\.section\s+\S+\s*\{.*?\}", blank, text, flags=re.S)
        self.newlines = [match.start() for match in re.finditer("\n", self.text)]
        self.scope = Scope(None)
        self.functions: dict[str, Function] = {}
        self.variables: list[Variable] = []
        at = 0
        while match := re.compile(r"\s*([^;{]*)([;{])", re.S).match(self.text, at):
            header = match[1].strip()
            if re.search(r"\.(entry|func)\b", header):
                at = self.function(header, match.end()) if match[2] == "{" else match.end()
                continue
            at = self.text.index(";", match.start()) + 1
            name = re.sub(r"^\s*(\.(visible|extern|weak|common)\s*)*", "", self.text[match.start() : at - 1])
            self.variables.append(variable(name))
            self.scope.names[self.variables[-1].name] = self.variables[-1]
        if self.text[at:].strip():
            raise Unsupported(f"module text `{self.text[at:].strip()[:60]}`")

    def tokens(self, at: int) -> Iterator[tuple[re.Match[str], int]]:
        while match := TOKEN.match(self.text, at):
            at = match.end()
            yield match, at
        raise Unsupported(f"text outside a statement: `{self.text[at:].strip()[:60]}`")

    def function(self, header: str, at: int) -> int:
        """Read one function whose body starts at `at`, after its opening brace. Returns where it ends."""
        match = HEADER.fullmatch(header)
        if not match:
            raise Unsupported(f"function header `{header}`")
        name, entry = match["name"], match["kind"] == "entry"
        parameters, returns = (
            [variable(item, name, entry) for item in commas(match[part] or "")] for part in ("parameters", "returns")
        )
        function = self.functions[name] = Function(name, entry, parameters, returns)
        for directive, values in re.findall(r"\.(\w+)((?:\s*\d+\s*,?)*)", match["directives"]):
            if directive not in DIRECTIVES:
                function.refused.append(directive)
            x, y, z = ([int(value) for value in re.findall(r"\d+", values)] + [1, 1, 1])[:3]
            if directive == "reqntid":
                function.block = (x, y, z)
            elif directive == "reqnctapercluster":
                function.cluster = (x, y, z)
            function.explicit_cluster |= directive == "explicitcluster"
        scope = Scope(self.scope)
        scope.names |= {each.name: each for each in function.parameters + function.returns}
        raw: list[tuple[str, Scope, int]] = []
        label = ""
        for token, end in self.tokens(at):
            if token["open"]:
                scope = Scope(scope)
            elif token["close"]:
                assert scope.parent is not None
                scope = scope.parent
                if scope is self.scope:
                    at = end
                    break
            elif token["label"]:
                label = token["label"]
                scope.names[label] = Target(len(raw))
            else:
                text = " ".join(token["statement"].split())
                if text.startswith(".branchtargets"):
                    scope.tables[label] = (scope, commas(text.removeprefix(".branchtargets")))
                    del scope.names[label]
                elif text.startswith("."):
                    self.declare(text, scope, function)
                elif text:
                    raw.append((text, scope, bisect.bisect(self.newlines, token.start("statement")) + 1))
        function.statements = [self.statement(*each) for each in raw]
        return at

    def declare(self, text: str, scope: Scope, function: Function) -> None:
        if text.startswith(".pragma"):
            return
        if match := re.fullmatch(r"\.reg\s*\.(\w+)\s+(.*)", text):
            width = TYPES[match[1]].width
            for name in commas(match[2]):
                if many := re.fullmatch(r"([\w$%]+)<(\d+)>", name):
                    scope.ranges[many[1]] = (int(many[2]), width)
                else:
                    scope.names[name] = Register(scope.id, name, width)
            return
        function.variables.append(variable(text, f"{function.name}.{scope.id}"))
        scope.names[function.variables[-1].name] = function.variables[-1]

    def statement(self, text: str, scope: Scope, line: int) -> Statement:
        match = re.fullmatch(r"(?:@\s*(!?\s*[\w$%]+)\s+)?([\w.:]+)\s*(.*)", text)
        if not match:
            raise Unsupported(f"statement `{text}` in line {line}")
        guard = operand(match[1], scope) if match[1] else None
        assert guard is None or isinstance(guard, Register | Not)
        return Statement(match[2], tuple(operand(item, scope) for item in commas(match[3])), guard, text, line)
