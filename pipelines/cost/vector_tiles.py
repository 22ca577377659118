"""Tiles of products of a matrix with one vector: which rows a block reads, and on which of its threads they lie."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.pipelines.cost.rates import GPU_THREADS, LOADS_IN_FLIGHT, REGISTERS, THREADS, WARP

LONGEST_ROW = 640  # threads that may share a row
OTHER_REGISTERS = 32  # of a thread, beside what its loads fill
MOST_TILES = 8  # that are considered


@dataclass(frozen=True)
class VectorTiles:
    """A block of `block` threads, of which a multiprocessor shall hold `resident`: `threads` along a row, which read `each`
    rows with `loads` of 16 bytes in every one. By `cores` the tensor core of each warp multiplies: a row is on some lanes of
    all warps."""

    loads: int
    threads: int
    each: int
    block: int
    resident: int
    cores: bool = False

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.each * max(1, self.block // self.threads)

    def on_cores(self, most: int) -> VectorTiles | None:
        """A block that reads the same rows, a power of two, for its tensor cores, up to `most` of them at once with each warp.
        None where it has only one, or they do not fill the lanes."""
        rows, warps = self.rows, self.block // WARP
        lanes = WARP // min(rows, most)
        loads, rest = divmod(self.loads * self.threads, lanes * warps)
        if rows == 1 or self.block % WARP or rest:
            return None
        return replace(self, loads=loads, threads=lanes * warps, each=max(rows // most, 1), cores=True)

    def __str__(self) -> str:
        way = ", a tensor core a warp" if self.cores else ""
        return f"{self.loads} loads by {self.threads} threads, {self.rows} rows a block{way}"


def vector_tiles(rows: int, steps: int, together: int, wanted: int = 0) -> list[VectorTiles]:
    """How rows of a matrix may be read, best first. `steps` is the number of loads in a row, 0 if it is not known; `together`
    the number of matrices that are read in one loop; `wanted` how many loads a thread shall have in flight.

    A row is read without a loop, so that all its loads are in flight at once; four of each thread are enough to hide the
    latency of memory, and with few registers each, many threads fit.
    """
    wanted = wanted or LOADS_IN_FLIGHT
    if not steps:
        return [VectorTiles(LOADS_IN_FLIGHT, WARP, 1, GPU_THREADS, 2)]
    tiles = []
    for loads in range(1, 4 * LOADS_IN_FLIGHT + 1):
        threads = -(-steps // loads)
        threads = -(-threads // WARP) * WARP if threads > WARP else 1 << (threads - 1).bit_length()
        block = max(GPU_THREADS // threads, 1) * threads
        for each in (1, 2, 4, 8):
            if threads <= LONGEST_ROW:
                made = loads * each * together
                idle, uneven = loads * threads - steps, rows % (each * (block // threads)) != 0
                order = (made < wanted, 20 * idle > steps, uneven, made, loads > LOADS_IN_FLIGHT, idle, -loads)
                needed = 4 * made + 4 * loads + OTHER_REGISTERS
                resident = max(1, min(THREADS // block, REGISTERS // (block * -(-needed // 8) * 8)))
                tiles.append((order, threads, each, VectorTiles(loads, threads, each, block, resident)))
    if not tiles:  # too long for the threads of a block: a loop
        return [VectorTiles(LOADS_IN_FLIGHT, GPU_THREADS, 1, GPU_THREADS, 2)]
    return [t for *_, t in sorted(tiles, key=lambda tile: tile[:3])[:MOST_TILES]]
