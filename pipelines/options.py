"""A pass's fields seen as command-line options: kebab-case names, values parsed by the field's type."""

import dataclasses
import enum
import shlex
import types
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from tilec.dialects.codec import hint_name


class OptionError(ValueError):
    """A value that an option does not take."""


@dataclass(frozen=True)
class Option:
    """One option: `max_ops: int = 32` is written `max-ops=8`; a flag alone is true, lists are joined by commas."""

    field: dataclasses.Field[Any]
    hint: Any

    @property
    def name(self) -> str:
        return self.field.name.replace("_", "-")

    @property
    def default(self) -> Any:
        factory = self.field.default_factory
        return self.field.default if factory is dataclasses.MISSING else factory()

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    def parse(self, text: str) -> Any:
        """The value written as `text`; raises OptionError."""
        try:
            return _parse(self.hint, text)
        except (ValueError, KeyError):
            raise OptionError(f"option '{self.name}' needs {hint_name(self.hint)}, but got '{text}'") from None

    def describe(self) -> str:
        default = "required" if self.required else f"default {value_text(self.default) or 'empty'}"
        return f"{self.name} ({hint_name(self.hint)}, {default})"


def _parse(hint: Any, text: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (list, tuple):
        return origin(_parse(arguments[0], item) for item in text.split(",") if item)
    if origin in (Union, types.UnionType):  # an optional value: absent means None
        return _parse(next(option for option in arguments if option is not type(None)), text)
    if hint is bool:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    return hint(text)


def value_text(value: Any) -> str:
    """A value as `Option.parse` reads it back, quoted where it holds spaces."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(value_text, value))
    if isinstance(value, enum.Enum):
        return value_text(value.value)
    return shlex.quote(value) if isinstance(value, str) else str(value)
