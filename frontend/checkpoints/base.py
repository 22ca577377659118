"""One interface to every checkpoint format: canonical names in, arrays of the wanted type out.

Names are those of Hugging Face's Llama (`model.layers.0.self_attn.q_proj.weight`), whatever the file calls them; rows
are in Hugging Face's order, whatever the file's. The file stays mapped and nothing is converted before it is read.
"""

from __future__ import annotations

import hashlib
import mmap
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilec.errors import CheckpointError
from tilec.frontend.checkpoints.dequantise import NUMPY_TYPES, SAME_BYTES, Dtype, convert
from tilec.frontend.config import ModelConfig
from tilec.runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as it lies in a file: `raw` is its bytes (u8, a view of the map), `stored` the name of their format.

    `rotary_heads` is set where the rows of each of that many heads are interleaved for llama.cpp's rotary embedding:
    row 2i of a head is row i of the model, row 2i+1 is row i + head_dim/2.
    """

    stored: str
    shape: tuple[int, ...]
    raw: np.ndarray
    rotary_heads: int | None = None

    def ordered(self) -> np.ndarray:
        """The bytes with rows in the model's order, flat; copied only where they are interleaved."""
        if self.rotary_heads is None:
            return self.raw
        pairs = self.shape[0] // self.rotary_heads // 2
        rows = self.raw.reshape(self.rotary_heads, pairs, 2, -1)
        return rows.swapaxes(1, 2).reshape(-1)


class Checkpoint(ABC):
    """A model's weights, configuration and tokenizer, opened and verified but not yet read.

    Reading is safe from several threads.
    """

    path: Path
    config: ModelConfig
    chat_template: str | None

    def __init__(self, path: Path, config: ModelConfig, tensors: Mapping[str, StoredTensor]) -> None:
        self.path, self.config, self._tensors = path, config, dict(tensors)

    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the checkpoint carries. Raises CheckpointError where there is none."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the checkpoint does: a hash of sizes, modification times and headers, not of the weights."""

    def names(self) -> tuple[str, ...]:
        """Canonical names of all tensors, in the order of the file."""
        return tuple(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Row-major: a projection is (outputs, inputs)."""
        return self._stored(name).shape

    def stored_type(self, name: str) -> str:
        """The format in the file: 'F32', 'BF16', 'Q4_1', ..."""
        return self._stored(name).stored

    def read(self, name: str, dtype: Dtype, out: np.ndarray | None = None) -> np.ndarray:
        """The tensor as a C-contiguous array: np.float32, np.float16, or np.uint16 bit patterns for 'bf16'.

        Written to `out` where that is given (same shape and type, C-contiguous). Without it, a tensor that needs no
        conversion comes as a read-only view of the file. Raises UnsupportedError where a value overflows f16.
        """
        tensor = self._stored(name)
        if dtype not in NUMPY_TYPES:
            raise ValueError(f"need dtype f32, bf16 or f16, but got {dtype!r}")
        wanted = NUMPY_TYPES[dtype]
        raw = tensor.ordered()
        if out is None:
            if SAME_BYTES.get(tensor.stored) == dtype:
                view = raw.view(wanted).reshape(tensor.shape)
                return view if view.flags.aligned else view.copy()
            out = np.empty(tensor.shape, wanted)
        elif out.shape != tensor.shape or out.dtype != wanted or not out.flags.c_contiguous:
            raise ValueError(
                f"need a C-contiguous {np.dtype(wanted)} array of shape {tensor.shape} for {name!r}, "
                f"but got {out.dtype} of shape {out.shape}"
            )
        convert(name, tensor.stored, raw, dtype, out.reshape(-1))
        return out

    def _stored(self, name: str) -> StoredTensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise CheckpointError(f"{self.path}: there is no tensor {name!r}") from None


def map_file(path: Path) -> mmap.mmap:
    """The file's content, read-only. Raises CheckpointError where there is nothing to read."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise CheckpointError(f"{path}: the file is empty; fetch it again") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot read the file: {error.strerror}") from None


def fingerprint_of(files: list[Path], headers: list[bytes]) -> str:
    """Hex SHA-256 over names, sizes and times of `files`, and the bytes `headers`."""
    digest = hashlib.sha256()
    for path in files:
        facts = path.stat()
        digest.update(f"{path.name}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
    for header in headers:
        digest.update(len(header).to_bytes(8, "little") + header)
    return digest.hexdigest()
