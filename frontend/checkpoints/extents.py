"""Where tensors lie in a file, and the rule of every format that no two may share a byte."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from tilec.errors import CheckpointError

MAX_NAME = 256  # bytes of a key or a tensor name; ggml itself has 64


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies. `shape` is row-major, `start` and `size` are bytes from the file's start."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    start: int
    size: int


def check_disjoint(path: Path, extents: list[tuple[int, int, str]]) -> None:
    """(start, end, name) of every tensor of one file: no two may share a byte."""
    extents = sorted(extents)
    for (_, end, name), (start, _, following) in itertools.pairwise(extents):
        if start < end:
            raise CheckpointError(f"{path}: the file is damaged: tensors {name!r} and {following!r} overlap")
