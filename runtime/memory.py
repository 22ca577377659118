"""Memory for kernels: vectors are fastest when they do not straddle cache lines."""

from __future__ import annotations

import numpy as np

ALIGNMENT = 64  # bytes


def aligned(dtype: np.dtype, shape: list[int], zero: bool = False) -> np.ndarray:
    """An array at a multiple of 64 bytes; zeroed memory is only touched when used."""
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.zeros(count + ALIGNMENT, np.uint8) if zero else np.empty(count + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start:start + count].view(dtype).reshape(shape)
