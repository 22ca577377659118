"""A chat template is a program from a stranger; here it runs in Jinja's sandbox, with bounded work and bounded memory.

Jinja's sandbox keeps a template from Python's internals, but not from running for ever or filling the memory. So a
rendering has a budget of steps (every iteration, call, filter, test and comparison is one), of room (every character
that it makes, and sixteen for a list element) and, for slow machines, of time. What could make much from little in one
operation (`*`, `replace`, `join`, `split`, `indent`, `tojson`) pays before it runs; what is in no list below (`**` of
large numbers, `%` on text, `format`, `center`) is refused by name. Lists are measured as if written out in full,
because a list of twice the same list, forty times over, is small in memory and endless in print.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import CodeType
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, Undefined, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_TEMPLATE = 128 * 1024  # characters of source
MAX_STEPS = 200_000
STEPS_PER_MESSAGE = 2_000
MAX_ROOM = 128 * 1024 * 1024  # characters
ELEMENT = 16  # what an element of a list costs in characters
MAX_SECONDS = 3.0
MAX_DEPTH = 100

_TEXT_METHODS = frozenset((
    "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "startswith", "endswith", "lower", "upper", "title",
    "capitalize", "casefold", "swapcase", "find", "rfind", "index", "rindex", "count", "partition", "rpartition",
    "removeprefix", "removesuffix", "replace", "join", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
    "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper",
))  # fmt: skip
_CONTAINER_METHODS = frozenset(("get", "items", "keys", "values", "copy", "index", "count"))
_FILTERS = (
    "abs", "attr", "batch", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float",
    "groupby", "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject",
    "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "slice", "sort", "string", "sum",
    "title", "tojson", "trim", "truncate", "unique", "upper", "wordcount",
)  # fmt: skip


class BudgetError(TemplateError):
    """The template does more than a chat template can need."""


class ChatSandbox(ImmutableSandboxedEnvironment):
    """Renders one untrusted template once: the object carries the budget."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, steps: int = MAX_STEPS, room: int = MAX_ROOM, seconds: float = MAX_SECONDS) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag])
        self.steps, self.room, self.seconds = steps, room, seconds
        self.deadline = time.monotonic() + seconds
        self.concat = self.joined  # type: ignore[method-assign]  # Jinja ends every macro and captured block with this
        filters: dict[str, Callable[..., Any]] = {**self.filters, "tojson": _tojson, "join": self._join}
        self.filters = {name: self._guarded(name, filters[name]) for name in _FILTERS}
        tests: dict[str, Any] = dict(self.tests)
        self.tests = {name: self._guarded(name, test) for name, test in tests.items()}
        self.globals = {name: self.globals[name] for name in ("range", "dict", "namespace")}
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def run(self, source: str, variables: dict[str, Any]) -> str:
        """The rendered text. Raises TemplateError, and what Python raises for a template that makes no sense."""
        template = Template.from_code(self, _compiled(source), self.make_globals(None))
        return self.joined(template.generate(**variables))

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise BudgetError("it loops or calls too often for a chat template")
        if time.monotonic() > self.deadline:
            raise BudgetError(f"it runs for more than {self.seconds:g} s")

    def spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise BudgetError("it makes more text and lists than a chat template can need")

    # What `_Guard` puts into the compiled template.

    def stepped(self, value: Any) -> Any:
        """The left side of every comparison."""
        self.step()
        return value

    def counted(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """What every `for` iterates over."""
        for value in iterable:
            self.step()
            yield value

    def joined(self, parts: Iterable[Any]) -> str:
        """The parts as one text: every `~`, macro, captured block and, at last, the result."""
        self.step()
        texts: list[str] = []
        for part in parts:
            texts.append(str(part))
            self.spend(len(texts[-1]))
        return "".join(texts)

    def measured(self, value: Any) -> Any:
        """Every list, tuple and dict literal, and what is stored in a namespace. No namespace may be inside."""
        self.step()
        self.spend(_written_size(value, self.room, namespaces=False)[0])
        return value

    # What Jinja calls for operators, attributes and calls in a sandbox.

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.step()
        if isinstance(left, Undefined) or isinstance(right, Undefined):
            return super().call_binop(context, operator, left, right)  # which says what is undefined
        numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
        if operator == "+":
            return left + right if numbers else self.measured(left + right)
        if operator == "*" and isinstance(left, str) and isinstance(right, int):
            self.spend(len(left) * max(right, 0))
            return left * right
        if not numbers:
            raise SecurityError(f"{operator!r} of {type(left).__name__} and {type(right).__name__} is not allowed")
        if max(abs(left), abs(right)) > 1 << 53 or (operator == "**" and abs(right) > 64):
            raise SecurityError(f"{operator!r} of numbers this large is not allowed")
        return super().call_binop(context, operator, left, right)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"access to the attribute {attribute!r} of a {type(obj).__name__} is not allowed")

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.step()
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        stated = {
            key: value for key, value in kwargs.items() if key not in ("_loop_vars", "_block_vars")
        }  # Jinja's own
        if isinstance(owner, (str, list, tuple, dict)):
            return self._call_method(owner, name, function, args, stated)
        if isinstance(function, Macro):
            # Its arguments reach it as one list as well, in which lists of lists can be built up.
            _written_size([*args, *stated.values()], self.room, namespaces=True)
        elif isinstance(function, (Undefined, BlockReference, LoopContext)) or isinstance(
            owner, (LoopContext, ChatSandbox)
        ):
            pass
        elif not any(function is known for known in self.globals.values()):
            raise SecurityError(f"a call of {name or type(function).__name__!r} is not allowed")
        result = super().call(context, function, *args, **kwargs)
        if type(result) is dict:
            self.measured(result)
        elif type(result) is Namespace:
            self.measured(object.__getattribute__(result, "_Namespace__attrs"))
        return result

    def _call_method(self, owner: Any, name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        allowed = _TEXT_METHODS if isinstance(owner, str) else _CONTAINER_METHODS
        if name not in allowed:
            raise SecurityError(f"the method {name!r} of a {type(owner).__name__} is not allowed")
        if name == "join" and len(args) == 1:
            return self._join(args[0], owner)
        if name == "replace":
            self._pay_for_replace(owner, args, kwargs)
        elif name in ("split", "rsplit", "splitlines"):
            separator = args[0] if args else kwargs.get("sep")
            pieces = owner.count(separator) if isinstance(separator, str) and separator else len(owner) // 2
            self.spend(pieces * ELEMENT)
        result = method(*args, **kwargs)
        if isinstance(result, str):
            self.spend(len(result))
        elif isinstance(result, dict):
            self.measured(result)
        return result

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that pays: before it runs where it can make much from little, else after."""
        skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)  # keeps the mark by which Jinja passes its context first
        def guarded(*given: Any, **kwargs: Any) -> Any:
            self.step()
            value, args = given[skipped], given[skipped + 1 :]
            if name == "replace":
                self._pay_for_replace(str(value), args, kwargs)
            elif name == "indent":
                width = args[0] if args else kwargs.get("width", 4)
                self.spend((str(value).count("\n") + 1) * (len(width) if isinstance(width, str) else max(width, 0)))
            elif name == "tojson":
                indent = args[1] if len(args) > 1 else kwargs.get("indent")
                size, depth = _written_size(value, self.room, namespaces=False)
                self.spend(size * (1 + depth * (len(indent) if isinstance(indent, str) else indent or 0)))
            elif name == "list" and isinstance(value, str):
                self.spend(len(value) * ELEMENT)
            elif name in ("batch", "slice", "round", "truncate"):
                sizes = (abs(size) for size in (*args, *kwargs.values()) if isinstance(size, int))
                self.spend(max(sizes, default=0) * ELEMENT)
            elif name == "sum" and (len(args) > 1 or "start" in kwargs):
                raise SecurityError("a sum with a start of its own is not allowed")
            result = function(*given, **kwargs)
            if isinstance(result, list):
                return self.measured(result)
            if isinstance(result, str):
                self.spend(len(result))
            return result

        return guarded

    def _join(self, value: Any, d: str = "", attribute: str | int | None = None) -> str:
        """The filter and the method: `d` between the items of `value`."""
        items = value if attribute is None else map(make_attrgetter(self, attribute), value)
        parts: Iterator[Any] = (part for item in items for part in (d, item))
        next(parts, None)
        return self.joined(parts)

    def _pay_for_replace(self, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        old, new, *_ = (*args, *kwargs.values(), "", "")
        found = text.count(str(old)) if old else len(text) + 1
        self.spend(found * len(str(new)))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Guard(self).visit(super()._parse(source, name, filename))
        return tree


class GenerationTag(Extension):
    """`{% generation %}`, which marks the model's own words for training, and changes nothing in a prompt."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Guard(NodeTransformer):
    """Routes loops, comparisons, literals and `~` through the sandbox, before Jinja makes Python of them."""

    def __init__(self, sandbox: ChatSandbox) -> None:
        self.sandbox = sandbox

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = self._through("counted", node.iter)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = self._through("stepped", node.expr)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._through("joined", nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._literal(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._literal(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self._literal(node) if node.ctx == "load" else node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.target, nodes.NSRef) or node.target.find(nodes.NSRef):
            node.node = self._through("measured", node.node)
        return node

    def _literal(self, node: nodes.Expr) -> nodes.Node:
        try:
            node.as_const(nodes.EvalContext(self.sandbox))
        except nodes.Impossible:
            self.generic_visit(node)
            return self._through("measured", node)
        return node  # as long as its source

    def _through(self, method: str, node: nodes.Node) -> nodes.Expr:
        call = nodes.Call(nodes.EnvironmentAttribute(method), [node], [], None, None, lineno=node.lineno)
        call.set_environment(self.sandbox)
        return call


@functools.lru_cache(maxsize=16)
def _compiled(source: str) -> CodeType:
    """Independent of the sandbox that compiled it: the code asks for its environment when it runs."""
    if len(source) > MAX_TEMPLATE:
        raise BudgetError(f"it has {len(source)} characters; at most {MAX_TEMPLATE} are read")
    return ChatSandbox().compile(source)


def _written_size(value: Any, limit: int, namespaces: bool, depth: int = 0) -> tuple[int, int]:
    """(size in characters, depth) of `value`, everything inside counted as often as it would be printed.

    Stops with an error as soon as `limit` is passed.
    """
    if depth > MAX_DEPTH:
        raise BudgetError("it nests values too deep")
    if isinstance(value, str):
        return len(value) + ELEMENT, depth
    inside: Iterable[Any] = ()
    if isinstance(value, (list, tuple)):
        inside = value
    elif isinstance(value, dict):
        inside = (part for pair in value.items() for part in pair)
    elif isinstance(value, Namespace):
        if not namespaces:
            raise SecurityError("a namespace inside another value is not allowed")
        inside = object.__getattribute__(value, "_Namespace__attrs").values()
    size, deepest = ELEMENT, depth
    for part in inside:
        inner, reached = _written_size(part, limit - size, namespaces, depth + 1)
        size, deepest = size + inner, max(deepest, reached)
        if size > limit:
            raise BudgetError("it makes more text and lists than a chat template can need")
    return size, deepest


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON. Jinja's own escapes for HTML, which no model was trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > 200:
        raise SecurityError("a time format this long is not allowed")
    return datetime.now().strftime(form)
