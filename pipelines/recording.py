"""What `tilec tune` measured: for each kernel of one device, by a hash of its text, the schedule that was the fastest.

A recorded choice is honoured or refused; nothing falls back to the cost model's choice without a word. Reading one loads no
compiler, because the key of the cache of compiled programs depends on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tilec.errors import TilecError

SCHEMA = 1


class RecordingError(TilecError):
    """A recording that cannot be read, is for something else, or holds a choice that no longer fits."""


@dataclass(frozen=True)
class Measured:
    """A candidate: its schedule as the text of its attribute, its shape in words, and microseconds, or why there are none."""

    schedule: str
    shape: str
    us: float | None = None
    failed: str = ""


@dataclass(frozen=True)
class Choice:
    """The fastest schedule of a kernel with its microseconds, and all that were measured, the default first."""

    kernel: str
    schedule: str
    us: float
    candidates: tuple[Measured, ...]


@dataclass(frozen=True)
class Recording:
    """Choices by kernel for one device and target."""

    device: str
    target: str
    versions: Mapping[str, str]
    date: str
    choices: Mapping[str, Choice] = field(default_factory=dict)
    path: str = ""

    @property
    def remedy(self) -> str:
        return "run `tilec tune` again, or delete the file"

    @property
    def digest(self) -> str:
        """A hash of what decides how programs are compiled."""
        chosen = {key: choice.schedule for key, choice in self.choices.items()}
        return hashlib.sha256(json.dumps([self.target, chosen], sort_keys=True).encode()).hexdigest()

    @staticmethod
    def load(path: Path) -> Recording:
        """Reads a file that `save` wrote; RecordingError for anything else."""
        try:
            data = json.loads(path.read_text())
            if data.pop("schema") != SCHEMA:
                raise ValueError
            choices = {
                key: Choice(str(c["kernel"]), str(c["schedule"]), float(c["us"]), tuple(Measured(**m) for m in c["candidates"]))
                for key, c in data.pop("choices").items()}
            about = {n: data.pop(n) for n in ("device", "target", "versions", "date")}
            return Recording(**about, choices=choices, path=str(path))
        except OSError as error:
            raise RecordingError(f"{path}: {error.strerror or error}; a recording is what `tilec tune` writes") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RecordingError(f"{path} is not a recording that this version of `tilec tune` wrote; make it anew") from None

    def check_target(self, target: str) -> None:
        """RecordingError unless it was made for `target`."""
        if self.target != target:
            raise RecordingError(f"{self.path} was recorded for {self.target} ({self.device}), but {target} is compiled for")

    def save(self, path: Path) -> None:
        """Writes the file, whole or not at all."""
        data = {"schema": SCHEMA, **asdict(self)}
        del data["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".tuned-", delete=False) as part:
            json.dump(data, part, indent=1)
        os.replace(part.name, path)


def kernel_key(text: str, symbols: Mapping[str, tuple[int, int]], tf32: bool = False) -> str:
    """A hash of a kernel's text, in which its name and those of the symbols, of which only the ranges matter, do not count.

    Where its module allows `tf32` a kernel has other schedules, so it is another one.
    """
    text, used = _without_lists(re.sub(r'@([\w.$-]+|"[^"]*")', "@", text, count=1)), symbols_used(text, symbols)
    for place, name in enumerate(used):
        text = re.sub(rf"\bs{list(symbols).index(name)}\b", f"symbol{place}", text)
    key = [text, [symbols[n] for n in used], *(["tf32"] if tf32 else [])]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]


def symbols_used(text: str, symbols: Mapping[str, tuple[int, int]]) -> list[str]:
    """The symbols that a kernel's extents and views depend on, in the order in which its text does."""
    return [list(symbols)[int(n)] for n in dict.fromkeys(re.findall(r"\bs(\d+)\b", _without_lists(text)))]


def _without_lists(text: str) -> str:
    """A kernel's text less the lists of the symbols that its maps take, which are all that the module has."""
    return re.sub(r"\[s\d+(?:, s\d+)*\]", "", text)
