"""Stored weights become f32, bf16 or f16 in cache-sized pieces of whole-array NumPy, one pass over the output.

A piece of 64 Ki elements keeps the bytes, the f32 values and the rounded result in a core's second-level cache: the
134 M parameters of a 4-bit SmolLM2-135M take 0.2 s to bf16 on one core, where the `gguf` package takes 1.1 s to f32.
The block formats are ggml's (ggml-common.h): a block is 32 elements of one row, with an f16 scale d and, for Q4_1, an
f16 minimum m; byte j of the quants holds elements j (low nibble) and j + 16 (high nibble).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from tilec.errors import UnsupportedError

Dtype = Literal["f32", "bf16", "f16"]

# What an element becomes in NumPy; bf16 has no type there and is kept as its bit pattern.
NUMPY_TYPES: dict[str, type[np.generic]] = {"f32": np.float32, "bf16": np.uint16, "f16": np.float16}

# Stored types whose bytes already are a dtype.
SAME_BYTES: dict[str, str] = {"F32": "f32", "BF16": "bf16", "F16": "f16"}

PIECE = 64 * 1024

# Stored type: elements and bytes of one block. GGUF and safetensors share the names of the unquantised ones.
BLOCKS: dict[str, tuple[int, int]] = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q8_0": (32, 34),
}


def convert(name: str, stored: str, raw: np.ndarray, dtype: Dtype, out: np.ndarray) -> None:
    """Write the tensor `name`, bytes `raw` (u8, flat) in format `stored`, to `out` (flat, NUMPY_TYPES[dtype]).

    Rounds to nearest, ties to even; NaN stays NaN. Raises UnsupportedError where a finite value overflows f16.
    """
    if SAME_BYTES.get(stored) == dtype:
        out[...] = raw.view(NUMPY_TYPES[dtype])
        return
    elements, size = BLOCKS[stored]
    decode = _DECODERS[stored]
    blocks = raw.reshape(-1, size)
    step = PIECE // elements
    values = np.empty((min(step, len(blocks)), elements), np.float32)
    scratch = np.empty(values.size, np.uint32)
    for first in range(0, len(blocks), step):
        piece = blocks[first : first + step]
        target = out[first * elements : (first + len(piece)) * elements]
        if dtype == "f32":
            decode(piece, target.reshape(-1, elements))
            continue
        decoded = values[: len(piece)]
        decode(piece, decoded)
        if dtype == "bf16":
            round_to_bf16(decoded.reshape(-1), target, scratch[: target.size])
        else:
            _narrow_to_f16(name, decoded.reshape(-1), target)


def round_to_bf16(values: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    """f32 to bf16 bit patterns, nearest even; all three are flat and of one size, `scratch` is u32.

    Adding 0x7fff and the lowest kept bit carries into the kept half exactly when the value is past the middle, or on
    it and odd. A NaN may carry into the sign, so it is put back as a quiet one.
    """
    nan = np.isnan(values)
    bits = values.view(np.uint32)
    np.right_shift(bits, 16, out=scratch)
    np.bitwise_and(scratch, 1, out=scratch)
    np.add(scratch, 0x7FFF, out=scratch)
    np.add(bits, scratch, out=scratch)
    np.right_shift(scratch, 16, out=scratch)
    np.copyto(out, scratch, casting="unsafe")
    if nan.any():
        out[nan] = (bits[nan] >> 16).astype(np.uint16) | 0x7FC0


def _narrow_to_f16(name: str, values: np.ndarray, out: np.ndarray) -> None:
    with np.errstate(over="raise"):
        try:
            np.copyto(out, values, casting="same_kind")
        except FloatingPointError:
            largest = np.abs(values[np.isfinite(values)]).max()
            raise UnsupportedError(
                f"tensor {name!r} holds {largest:g}, beyond the 65504 that f16 reaches; use dtype bf16 or f32"
            ) from None


def _halves(blocks: np.ndarray, count: int) -> np.ndarray:
    """The first `count` f16 numbers of each block, f32[blocks, count]."""
    return np.ascontiguousarray(blocks[:, : 2 * count]).view(np.float16).astype(np.float32)


def _nibbles(packed: np.ndarray, values: np.ndarray) -> None:
    quants = np.empty(values.shape, np.uint8)
    np.bitwise_and(packed, 15, out=quants[:, :16])
    np.right_shift(packed, 4, out=quants[:, 16:])
    np.copyto(values, quants)


def _decode_q4_0(blocks: np.ndarray, values: np.ndarray) -> None:
    _nibbles(blocks[:, 2:], values)
    values -= 8
    values *= _halves(blocks, 1)


def _decode_q4_1(blocks: np.ndarray, values: np.ndarray) -> None:
    scales = _halves(blocks, 2)
    _nibbles(blocks[:, 4:], values)
    values *= scales[:, :1]
    values += scales[:, 1:]


def _decode_q8_0(blocks: np.ndarray, values: np.ndarray) -> None:
    np.copyto(values, blocks[:, 2:].view(np.int8))
    values *= _halves(blocks, 1)


def _decode_f32(blocks: np.ndarray, values: np.ndarray) -> None:
    np.copyto(values, blocks.view(np.float32))


def _decode_f16(blocks: np.ndarray, values: np.ndarray) -> None:
    np.copyto(values, blocks.view(np.float16))


def _decode_bf16(blocks: np.ndarray, values: np.ndarray) -> None:
    np.left_shift(blocks.view(np.uint16), 16, out=values.view(np.uint32), dtype=np.uint32)


_DECODERS: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "F32": _decode_f32,
    "F16": _decode_f16,
    "BF16": _decode_bf16,
    "Q4_0": _decode_q4_0,
    "Q4_1": _decode_q4_1,
    "Q8_0": _decode_q8_0,
}
