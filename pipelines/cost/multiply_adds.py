"""What a product by multiply-adds costs in cycles of a multiprocessor, for operands in shared memory and straight from memory.

A multiprocessor starts four instructions a cycle, one for each quarter of its warps, and serves one access of 128 bytes to
shared memory. Of four steps along the depth a thread with r rows and c columns makes 4 r c multiply-adds and r + c reads;
see `shared_products.py` for why a read of a warp is two accesses. A read keeps the others waiting for READ_ISSUE instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.pipelines.cost.rates import FETCHED_BYTES, FIXED_CYCLES, exchange_cycles

ROWS_OF_THREADS, COLUMNS_OF_THREADS = 16, 8  # of a group of four warps, side by side along the columns
DEPTH = 32  # f32 of one tile along the reduced axis: 128 bytes, the span of a swizzle
PIECES = DEPTH // 4  # reads of one row
READ_ISSUE = 3  # measured: tiles of 64 rows take 1.08 times as long as those of 128 for the same product
MOST_SUMS = 64  # accumulators of a thread: the most that leave room for operands
ALONE = 1.25  # what a warp takes longer that has a quarter of a multiprocessor to itself, because nothing hides its waits
STRAIGHT_CYCLES = 4608  # 64 x 64 x DEPTH straight from memory: a warp's read along the depth is 16 accesses
STRAIGHT_TILE, STRAIGHT_FIXED = 64, 1000


@dataclass(frozen=True, order=True)
class Tiling:
    """A block's tile, `height` rows and `width` columns of each of `together` products, the groups of four warps that make
    it, and the blocks that split the depth."""

    height: int
    width: int
    groups: int
    together: int = 1
    split: int = 1

    @property
    def rows(self) -> int:
        """Rows of one thread."""
        return self.height // ROWS_OF_THREADS

    @property
    def columns(self) -> int:
        """Columns of one thread, of all products."""
        return self.width * self.together // (COLUMNS_OF_THREADS * self.groups)

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor shall hold: eight warps that multiply."""
        return 2 // self.groups

    @property
    def slot_bytes(self) -> int:
        """Shared memory for one tile of each operand."""
        return 4 * DEPTH * (self.height + self.width * self.together)

    def stages(self, shared_bytes: int) -> int:
        """Slots of a ring for which a multiprocessor's shared memory has room. What is exchanged takes the place of three of
        them or fewer."""
        return (shared_bytes // self.resident - (8 << 10)) // self.slot_bytes

    def cycles(self, programs: int, steps: int, at_once: int) -> float:
        """Cycles until all programs, of which so many run at once, have walked `steps` tiles along the depth: waves, each at
        the rate of its slowest part."""
        turns = -(-steps // self.split)
        alone = ALONE if self.groups == 1 and programs <= at_once else 1.0
        reads = self.rows + self.columns
        issue = self.groups * PIECES * (4 * self.rows * self.columns + READ_ISSUE * reads) * alone
        shared = 2 * 4 * self.groups * PIECES * reads
        fetch = self.slot_bytes / FETCHED_BYTES
        waves = -(-programs // at_once)
        exchange = exchange_cycles(self.height * self.width * self.together, self.split)
        return waves * (turns * max(issue, shared, fetch) + FIXED_CYCLES + exchange)

    def __str__(self) -> str:
        parts = f" in {self.split} parts" if self.split > 1 else ""
        return f"{self.height} x {self.width * self.together} by {128 * self.groups} threads{parts}"


def tilings(together: int) -> list[Tiling]:
    """The tilings worth a look: every thread has enough to do, and registers for it."""
    found = [Tiling(height, width, groups, together, split)
             for groups in (2, 1) for height in (128, 64, 32) for width in (128, 64, 32) for split in (1, 2, 4)]
    return [t for t in found if t.rows * t.columns <= MOST_SUMS and t.columns >= 2 * together]


def straight_cycles(blocks: int, steps: int, together: int, multiprocessors: int) -> float:
    """Cycles of the same products where every thread reads its operands from memory, in tiles of STRAIGHT_TILE squared."""
    return -(-blocks // multiprocessors) * (steps * together * STRAIGHT_CYCLES + STRAIGHT_FIXED)
