"""What a product by the tensor cores of warps costs in cycles of a multiprocessor, its operands copied to shared memory.

A warp's part of a tile is `rows` x `columns`. In each step of 16 along the depth it reads (rows + columns) / 16 times four
matrices of 512 bytes from shared memory, which serves 128 bytes a cycle, for rows / 16 * columns / 8 products. Of f32 read as
TF32 a step is 8 elements and takes as long, so that it counts as a depth of 16.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.pipelines.cost.rates import FETCHED_BYTES, FIXED_CYCLES, WARP_PRODUCTS

STEP = 16  # of one product along the depth
ALONE = 1.25  # what warps take longer of which each quarter of a multiprocessor has one: nothing hides their waits
MOST_SLOTS, FEWEST_SLOTS = 4, 2
MOST_SUMS = 128  # accumulators of a thread, beside which its operands have room
# Rows and columns of a warp's part, and how many parts a block's tile has along either.
PARTS = (
    (64, 64, 2, 4), (64, 32, 2, 4), (64, 32, 2, 2), (32, 32, 2, 4), (32, 32, 4, 2), (32, 32, 2, 2), (32, 32, 1, 4),
    (16, 32, 1, 4),
)  # fmt: skip
TALL_PARTS = ((32, 4), (32, 2), (16, 8), (16, 4))  # rows of a warp's part, and how many


@dataclass(frozen=True, order=True)
class WarpTiles:
    """How a product is cut: each warp's rows and columns of `together` products, warps along both."""

    rows: int
    columns: int
    down: int
    along: int
    together: int = 1

    @property
    def height(self) -> int:
        return self.rows * self.down

    @property
    def width(self) -> int:
        """Columns of one product."""
        return self.columns * self.along

    @property
    def warps(self) -> int:
        return self.down * self.along

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor shall hold: eight warps."""
        return max(1, 8 // self.warps)

    def slot_bytes(self, depth_bytes: int) -> int:
        """Shared memory for one tile of each operand."""
        return depth_bytes * (self.height + self.width * self.together)

    def slots(self, shared_bytes: int, depth_bytes: int) -> int:
        """Slots of a ring for which a multiprocessor's shared memory has room."""
        return min(MOST_SLOTS, (shared_bytes // self.resident - (2 << 10)) // self.slot_bytes(depth_bytes))

    def cycles(self, programs: int, depth: int, multiprocessors: int) -> float:
        """Cycles until all programs have walked the depth: waves, each at the rate of its slowest part."""
        columns = self.columns * self.together
        multiply = self.warps * self.rows * columns * STEP / WARP_PRODUCTS
        if self.warps * min(self.resident, -(-programs // multiprocessors)) < 8:
            multiply *= ALONE
        shared = self.warps * (self.rows + columns) / 16 * 4
        fetch = 2 * STEP * (self.height + self.width * self.together) / FETCHED_BYTES
        waves = -(-programs // multiprocessors)
        return waves * (-(-depth // STEP) * max(multiply, shared, fetch) + FIXED_CYCLES)

    def __str__(self) -> str:
        return f"{self.height} x {self.width * self.together} by {self.warps} warps"


def warp_tiles(together: int, width: int = 0) -> list[WarpTiles]:
    """The tiles worth a look: those whose sums fit the registers of a thread. With `width`, those of so many columns, of which
    each warp has all."""
    parts = [(rows, width, down, 1) for rows, down in TALL_PARTS] if width else PARTS
    found = [WarpTiles(*part, together) for part in parts]
    return [t for t in found if t.rows * t.columns * together <= 32 * MOST_SUMS]
