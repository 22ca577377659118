"""A safetensors header is a claim about the file; every extent is compared with the bytes that are there.

The format: eight bytes of header length (little endian), a JSON object from names to dtype, shape and
[begin, end) offsets into what follows, then the data.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any

from tilec.errors import CheckpointError, UnsupportedError, shown
from tilec.frontend.checkpoints.extents import MAX_NAME, TensorInfo, check_disjoint

MAX_HEADER = 100_000_000  # bytes, as the reference implementation has it
MAX_DIMENSIONS = 8

# The format's names, all of which are also names of `dequantise.BLOCKS`, and the bytes of an element.
SUPPORTED = {"F32": 4, "BF16": 2, "F16": 2}


@dataclass(frozen=True)
class SafetensorsHeader:
    tensors: dict[str, TensorInfo]
    data_start: int


def read_header(path: Path, data: mmap | bytes) -> SafetensorsHeader:
    """Parse and verify. Raises CheckpointError naming the tensor, UnsupportedError for a dtype tilec does not read."""
    size = len(data)
    if size < 8:
        raise CheckpointError(f"{path}: the file has {size} bytes, too few for safetensors; fetch it again")
    length = int.from_bytes(data[:8], "little")
    if length > min(size - 8, MAX_HEADER):
        raise CheckpointError(
            f"{path}: the file is not safetensors or is truncated: it claims a header of {length} bytes, "
            f"but {size - 8} follow"
        )
    header = _parsed(path, bytes(data[8 : 8 + length]))
    data_start = 8 + length
    tensors: dict[str, TensorInfo] = {}
    for name, entry in header.items():
        if len(name) > MAX_NAME:
            raise CheckpointError(f"{path}: a tensor name has {len(name)} characters; it can have at most {MAX_NAME}")
        if name != "__metadata__":
            tensors[name] = _checked(path, name, entry, data_start, size)
    check_disjoint(path, [(info.start, info.start + info.size, info.name) for info in tensors.values()])
    return SafetensorsHeader(tensors, data_start)


def _parsed(path: Path, raw: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise CheckpointError(f"{path}: the header has {shown(key)} twice")
            result[key] = value
        return result

    try:
        header = json.loads(raw, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the file is not safetensors: its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the file is not safetensors: its header is not a JSON object")
    return header


def _checked(path: Path, name: str, entry: Any, data_start: int, size: int) -> TensorInfo:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path}: the entry of tensor {name!r} needs dtype, shape and data_offsets") from None
    if not isinstance(dtype, str):
        raise CheckpointError(f"{path}: need a name as dtype of tensor {name!r}, but got {shown(dtype)}")
    if dtype not in SUPPORTED:
        raise UnsupportedError(
            f"{path}: tensor {name!r} has dtype {shown(dtype)}, which is not supported; "
            f"supported are {', '.join(SUPPORTED)}"
        )
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(_is_extent(size) for size in shape):
        raise CheckpointError(f"{path}: need positive extents as shape of tensor {name!r}, but got {shown(shape)}")
    if type(begin) is not int or type(end) is not int or not 0 <= begin <= end < 1 << 63:
        raise CheckpointError(f"{path}: need rising data_offsets of tensor {name!r}, but got {shown([begin, end])}")
    if data_start + end > size:
        raise CheckpointError(
            f"{path}: the file is truncated or damaged: tensor {name!r} would end at byte {data_start + end}, "
            f"but the file has {size}; fetch it again"
        )
    claimed = math.prod(shape) * SUPPORTED[dtype]
    if claimed != end - begin:
        raise CheckpointError(
            f"{path}: tensor {name!r} of shape {shown(shape)} ({dtype}) needs {claimed} bytes, "
            f"but its offsets span {end - begin}"
        )
    return TensorInfo(name, dtype, tuple(shape), data_start + begin, end - begin)


def _is_extent(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 63
