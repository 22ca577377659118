"""Warp-wide matrix instructions: mma.sync, ldmatrix, stmatrix.

Fragments follow the PTX manual: lane = 4 * group + member; accumulator register i of m16n8 is at row group + 8 * (i //
2) and column 2 * member + i % 2; A and B hold `per` neighbouring elements along k in each 32-bit register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Key, Run, instruction
from ..faults import Unsupported
from ..formats import TYPES, Array, bf16_to_f32, join, split
from ..lanes import Lanes
from ..spaces import Access

if TYPE_CHECKING:
    from ..machine import Batch

GROUP, MEMBER = np.arange(32) // 4, np.arange(32) % 4
B32, F32 = TYPES["b32"], TYPES["f32"]


def elements(bits: Array, kind: str) -> Array:
    """(n, 32) registers to (n, 32, per register) float64 values; tf32 ignores the low 13 bits, as the hardware does."""
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)[..., None].astype(np.float64)
    halves = split(bits, 2)
    return (bf16_to_f32(halves) if kind == "bf16" else halves.view(np.float16)).astype(np.float64)


@instruction("mma.sync")
def mma(at: Decoder) -> Run:
    at.need("aligned")
    shape = at.need("m16n8k16", "m16n8k8", "m16n8k4")
    at.need("row"), at.need("col")
    k = int(shape[6:])
    tf32 = at.modifiers.count("tf32") == 2
    kind = "tf32" if tf32 else "bf16" if at.modifiers.count("bf16") == 2 else "f16"
    types, at.modifiers = at.modifiers, []
    if types != ["f32", kind, kind, "f32"] or k not in ((4, 8) if tf32 else (8, 16)):
        raise Unsupported(f"the types {' '.join(types)} at {shape}")
    at.expect(4)
    per = 1 if tf32 else 2
    steps = k // (4 * per)  # registers of B, and of half of A
    writes = [at.writer(each, F32) for each in at.vector(0, 4)]
    first = [at.reader(each, B32) for each in at.vector(1, 2 * steps)]
    second = [at.reader(each, B32) for each in at.vector(2, steps)]
    third = [at.reader(each, F32) for each in at.vector(3, 4)]
    along = MEMBER[:, None] * per + np.arange(per)  # (32, per): the k of each element in step 0

    def run(batch: Batch, lanes: Lanes) -> list[tuple[Key, Lanes]] | None:
        group = batch.rendezvous(lanes, None)
        if group.count:
            a, b = np.zeros((batch.size // 32, 16, k)), np.zeros((batch.size // 32, 8, k))
            for place, read in enumerate(first):
                values = elements(read(batch, group).reshape(-1, 32), kind)
                a[:, GROUP[:, None] + 8 * (place % 2), along + 4 * per * (place // 2)] = values
            for place, read in enumerate(second):
                b[:, GROUP[:, None], along + 4 * per * place] = elements(read(batch, group).reshape(-1, 32), kind)
            result = np.matmul(a, b.transpose(0, 2, 1))
            columns = np.zeros((4, batch.size), np.float32)
            for place, addend in enumerate(third):
                part = result[:, GROUP + 8 * (place // 2), 2 * MEMBER + place % 2].reshape(-1)
                columns[place] = part + addend(batch, group)
            for write, column in zip(writes, columns, strict=True):
                write(batch, group, column)
        return batch.proceed(lanes, group)

    return run


@instruction("ldmatrix.sync", "stmatrix.sync")
def matrix(at: Decoder) -> Run:
    """Lane 8i + r points to row r of matrix i; lane 4g + m holds elements 2m and 2m + 1 of row g (.trans: column g)."""
    at.need("aligned"), at.need("m8n8")
    count, transposed, load = int(at.need("x1", "x2", "x4")[1:]), bool(at.take("trans")), at.mnemonic[0] == "l"
    at.need("shared", "shared::cta"), at.need("b16")
    at.expect(2)
    registers, address = at.vector(0 if load else 1, count), at.address(1 if load else 0)
    writes = [at.writer(each, B32) for each in registers] if load else []
    reads = [] if load else [at.reader(each, B32) for each in registers]
    at.program.touches("shared", 16)

    def run(batch: Batch, lanes: Lanes) -> list[tuple[Key, Lanes]] | None:
        group = batch.rendezvous(lanes, None)
        if group.count:
            pointing = batch.sets.of(group.mask & (batch.lane < 8 * count))
            to, how, shared = address(batch, pointing), Access(16), batch.shared
            warps = np.flatnonzero(group.ballot)
            if load:
                load_matrices(batch, group, warps, shared.load(pointing, to, how, np.dtype(np.uint16)))
            else:
                shared.store(pointing, to, how, stored(batch, group, warps))
        return batch.proceed(lanes, group)

    def load_matrices(batch: Batch, group: Lanes, warps: Array, rows: Array) -> None:
        tiles = rows.reshape(len(warps), count, 8, 8)
        tiles = tiles.transpose(0, 1, 3, 2) if transposed else tiles
        words = join(tiles.reshape(len(warps), count, 32, 2), B32.storage)
        for place, write in enumerate(writes):
            write(batch, group, batch.spread(group, words[:, place].reshape(-1)))

    def stored(batch: Batch, group: Lanes, warps: Array) -> Array:
        words = np.stack([read(batch, group).reshape(-1, 32)[warps] for read in reads], axis=1)
        tiles = split(words, 2).reshape(len(warps), count, 8, 8)
        return (tiles.transpose(0, 1, 3, 2) if transposed else tiles).reshape(-1, 8)

    return run
