"""Weights are laid out once, at load, by the recipe in the manifest: the checkpoint keeps the only copy on disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tilec.runtime.artifact import ArtifactError, Manifest, Weight
from tilec.runtime.memory import aligned

NUMPY: dict[str, np.dtype] = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(np.uint16),
         "i64": np.dtype(np.int64), "i32": np.dtype(np.int32), "i1": np.dtype(np.bool_)}

_ROWS = re.compile(r"\(\(d0\) // (\d+)\)")
_PAIRS = re.compile(r"\(\(d1\) // (\d+)\)")


def pack(tensor: np.ndarray, weight: Weight) -> np.ndarray:
    """A tensor in the layout that kernels read; missing rows of the last panel are zero. bf16 is held as uint16 bits."""
    if list(tensor.shape) != weight.shape:
        raise ArtifactError(f"a weight must have shape {weight.shape}, but has {list(tensor.shape)}")
    if weight.layout is None or weight.sizes is None:
        copy = aligned(tensor.dtype, weight.shape)
        copy[...] = tensor
        return copy
    lanes, pair = _interleaving(weight)
    rows, columns = tensor.shape
    panels = weight.sizes[0]
    packed = aligned(tensor.dtype, weight.sizes, zero=bool(rows % lanes))
    if pair > 1 and tensor.dtype.itemsize == 2:  # two columns move as one word
        words = tensor.view(np.uint32).reshape(rows, columns // 2)
        target = packed.view(np.uint32).reshape(panels, columns // 2, lanes)
    else:
        words, target = tensor, packed.reshape(panels, columns, lanes)
    whole = rows // lanes
    target[:whole] = words[:whole * lanes].reshape(whole, lanes, words.shape[1]).transpose(0, 2, 1)
    if rows % lanes:
        target[whole, :, :rows % lanes] = words[whole * lanes:].T
    return packed


def _interleaving(weight: Weight) -> tuple[int, int]:
    """(rows, columns) that a layout interleaves; any other layout is refused."""
    layout = weight.layout or []
    rows = _ROWS.fullmatch(layout[0]) if layout else None
    pairs = _PAIRS.fullmatch(layout[1]) if len(layout) == 4 else None
    lanes, pair = int(rows.group(1)) if rows else 0, int(pairs.group(1)) if pairs else 1
    expected = [f"((d0) // {lanes})", f"((d1) // {pair})" if pair > 1 else "d1", f"((d0) % {lanes})"]
    expected += [f"((d1) % {pair})"] if pair > 1 else []
    if not rows or layout != expected:
        raise ArtifactError(f"the artifact asks for the weight layout {layout}, which this version cannot make; "
                            "compile it again")
    return lanes, pair


def load_weights(manifest: Manifest, read: Callable[[str, str], np.ndarray], threads: int) -> Iterator[tuple[str, np.ndarray]]:
    """All weights of an artifact, a few at a time; `read(name, dtype)` gives a checkpoint tensor."""
    def one(item: tuple[str, Weight]) -> tuple[str, np.ndarray]:
        name, weight = item
        return name, pack(read(name, weight.dtype), weight)

    with ThreadPoolExecutor(max(threads, 1)) as pool:
        yield from pool.map(one, manifest.weights.items())
