"""An artifact is a folder: `manifest.json`, which says everything, and `kernels/`, which holds code. Loading runs nothing.

The manifest lists what a run needs in plain terms: the symbols with their ranges, the weights with their layouts, the
states, the kernels with their launch shapes, and for every entry point its buffers and the order of its launches.
Expressions of symbols are texts, see `expressions.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilec.errors import TilecError

SCHEMA = 3
ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i1": 1}
TF32 = "tf32"  # asked for as a type of weights and cache: f32 in memory, of which tensor cores read the upper 19 bits


def in_memory(dtype: str) -> str:
    """The element type that weights and cache have in memory where `dtype` was asked for."""
    return "f32" if dtype == TF32 else dtype


class ArtifactError(TilecError):
    """An artifact that is missing, damaged or made by another version."""


@dataclass(frozen=True)
class Weight:
    """A checkpoint tensor: its shape as stored there, and the layout in which kernels read it.

    `sizes` and `layout` describe a packed tensor: entry i of `layout` is the index along packed dimension i as an
    expression of the tensor's own indices `d0`, `d1`, ...; None for a tensor that is used as it is.
    """

    dtype: str
    shape: list[int]
    sizes: list[int] | None = None
    layout: list[str] | None = None


@dataclass(frozen=True)
class State:
    """Memory that outlives a call, zero at first."""

    dtype: str
    shape: list[int]


@dataclass(frozen=True)
class TensorMap:
    """How a kernel copies tiles of its buffer argument number `argument`: boxes of `rows` x `columns` elements, swizzled by
    128 bytes, out of planes of rows of `width` elements. A plane begins every `plane_rows` rows; its rows from `height` on,
    an expression of the symbols, read as zero, and so do elements of a row from `length` on, unless that is empty, and what
    lies outside the buffer."""

    argument: int
    dtype: str
    width: int
    height: str
    plane_rows: int
    planes: int
    columns: int
    rows: int
    length: str = ""


@dataclass(frozen=True)
class Kernel:
    """A kernel's code file, and on a GPU its launch shape: `grid` is (x, y, z) as expressions, `block` threads.

    A `dependent` kernel may start before its predecessor has ended. Its arguments are the buffers, the table of symbols
    and the tensor maps.
    """

    file: str
    grid: list[str] = field(default_factory=list)
    block: int = 1
    shared_bytes: int = 0
    dependent: bool = False
    tensor_maps: list[TensorMap] = field(default_factory=list)


@dataclass(frozen=True)
class Buffer:
    """Memory that an entry point uses. `kind` is weight, state, argument, result or temporary.

    `sizes` are the dimensions of the memory; `shape` those in use, as expressions of the symbols. Temporaries lie in the
    arena at byte `offset`.
    """

    kind: str
    label: str
    dtype: str
    sizes: list[int]
    shape: list[str]
    offset: int = 0

    @property
    def bytes(self) -> int:
        total = ITEM_BYTES[self.dtype]
        for size in self.sizes:
            total *= size
        return total


@dataclass(frozen=True)
class Entry:
    """An entry point: buffers, launches as (kernel, buffer numbers), and where results are fed back to.

    `results` maps a result's name to its buffer. `feedback` maps a result's name to `symbol:NAME` or an argument's name
    that it replaces for the next call.
    """

    buffers: list[Buffer]
    launches: list[tuple[str, list[int]]]
    results: dict[str, int]
    feedback: dict[str, str]
    arena_bytes: int


@dataclass(frozen=True)
class Manifest:
    """See the module docstring."""

    target: str
    kind: str
    symbols: dict[str, tuple[int, int]]
    weights: dict[str, Weight]
    states: dict[str, State]
    kernels: dict[str, Kernel]
    entries: dict[str, Entry]
    model: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA


@dataclass(frozen=True)
class Artifact:
    """A manifest and its code files by name."""

    manifest: Manifest
    files: Mapping[str, bytes]

    def save(self, folder: Path) -> None:
        """Writes the folder; it appears whole or not at all. An existing artifact is replaced."""
        folder = Path(folder)
        if folder.exists() and not (folder / "manifest.json").exists() and any(folder.iterdir()):
            raise ArtifactError(f"{folder} holds other files; name a new folder for the artifact")
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            hashes = {}
            (work / "kernels").mkdir()
            for name, data in self.files.items():
                (work / "kernels" / name).write_bytes(data)
                hashes[name] = hashlib.sha256(data).hexdigest()
            text = json.dumps({**asdict(self.manifest), "sha256": hashes}, indent=1)
            (work / "manifest.json").write_text(text + "\n")
            os.chmod(work, 0o755)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(work, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    @staticmethod
    def load(folder: Path) -> Artifact:
        """Reads a folder and checks its code against the manifest's hashes."""
        folder = Path(folder)
        path = folder / "manifest.json"
        if not path.exists():
            raise ArtifactError(f"{folder} is not an artifact: it has no manifest.json; make one with `tilec compile`")
        try:
            data = json.loads(path.read_text())
            if data.get("schema") != SCHEMA:
                raise ArtifactError(f"{folder} has schema {data.get('schema')}, this version reads {SCHEMA}; compile it again")
            manifest = _manifest(data)
            hashes = dict(data["sha256"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(f"{path} is damaged ({error}); compile it again") from None
        files = {}
        for name, digest in hashes.items():
            code = folder / "kernels" / Path(name).name
            content = code.read_bytes() if code.exists() else b""
            if hashlib.sha256(content).hexdigest() != digest:
                raise ArtifactError(f"{code} is missing or was changed; compile the artifact again")
            files[name] = content
        return Artifact(manifest, files)


def _manifest(data: dict[str, Any]) -> Manifest:
    entries = {}
    for name, e in data["entries"].items():
        entries[name] = Entry([Buffer(**b) for b in e["buffers"]], [(k, list(b)) for k, b in e["launches"]],
                              dict(e["results"]), dict(e["feedback"]), int(e["arena_bytes"]))
    return Manifest(
        target=data["target"], kind=data["kind"],
        symbols={n: (int(r[0]), int(r[1])) for n, r in data["symbols"].items()},
        weights={n: Weight(**w) for n, w in data["weights"].items()},
        states={n: State(**s) for n, s in data["states"].items()},
        kernels={n: Kernel(**{**k, "tensor_maps": [TensorMap(**m) for m in k["tensor_maps"]]})
                 for n, k in data["kernels"].items()},
        entries=entries, model=dict(data["model"]))
