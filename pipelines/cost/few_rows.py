"""Tiles of products of few rows, by the tensor core of each warp, which reads the matrix where it is."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.pipelines.cost.rates import (
    EXCHANGE_CYCLES,
    FETCHED_BYTES,
    FEW_ROWS,
    FIXED_CYCLES,
    LOADS_IN_FLIGHT,
    READ_BYTES,
    REGISTERS,
    WARP,
)

MOST_REGISTERS = 256  # of one thread
OTHER_REGISTERS = 32  # of one that reads operands for a tensor core itself, beside these and its sums
TURN_CYCLES = 2000  # until memory has answered the loads of a turn, while those of the next are under way
NEARLY = 1.1  # times the least: what may come first if it is preferred
SHORT_RUNS = 0.94  # of the rate of memory where it is read in runs of 64 bytes
BEGIN_CYCLES = 800  # until a block's first turn has come and its last sums are stored


@dataclass(frozen=True, order=True)
class FewRows:
    """How a product of few rows is cut: `width` columns of each of the matrices that are multiplied `together`, a depth of
    `depth` shared by `parts` warps, of which a lane reads `run` elements at once; some columns may be read `mirrored`."""

    width: int
    parts: int
    together: int
    run: int
    depth: int
    mirrored: bool = False

    @property
    def preference(self) -> tuple[int, bool, int, int]:
        """What comes first of tiles that take nearly as long: those that read the rows less often, then those that read the
        matrix in longer runs, then those of more warps."""
        return -min(self.width * self.together, 16), not self.paired, -self.parts, self.width

    @property
    def deep(self) -> int:
        """Loads of a lane along the depth in a turn."""
        return max(1, min(LOADS_IN_FLIGHT * 8 // (self.width * self.together), self.depth // (4 * self.run * self.parts)))

    @property
    def paired(self) -> bool:
        """Whether eight lanes read a column in runs of 128 bytes, which are two steps of the depth."""
        return self.deep % 2 == 0

    @property
    def loads(self) -> int:
        """Loads of a lane from the matrices in a turn."""
        return self.deep * self.width * self.together // 8

    @property
    def registers(self) -> int:
        """Of a thread: a turn's operands while the next's are on their way, and the sums."""
        needed = 8 * (self.loads + self.deep) + self.width * self.together // 2 + OTHER_REGISTERS
        needed += (self.together - 1 + self.mirrored) * OTHER_REGISTERS // 4  # what results are put together with
        needed += OTHER_REGISTERS // 4 * ((self.run == 4) + (self.width * self.together > 16))  # more products, more rows
        return -(-needed // 8) * 8

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor shall hold."""
        warps = REGISTERS // (min(self.registers, MOST_REGISTERS) * WARP) // 4 * 4  # as many on each of four schedulers
        return max(warps // self.parts, 1)

    def cycles(self, programs: int, item: int, multiprocessors: int) -> float:
        """The time of reading the matrix, of elements of `item` bytes, with what all warps have in flight at once, and of
        reading the rows, which each program does, from the second-level cache. The programs of the last round are fewer."""
        matrix, rows = (n * self.depth * item for n in (self.width * self.together, FEW_ROWS))  # bytes of a program
        turn = WARP * 16 * self.loads * self.parts * min(self.width * self.together / 8, 2)  # 8 columns are less than the rows
        at_once = multiprocessors * self.resident
        full, rest = divmod(programs, at_once)
        time = FIXED_CYCLES + (EXCHANGE_CYCLES / 8 if self.parts > 1 else 0)
        time -= BEGIN_CYCLES / self.resident  # of the first round, which is part of FIXED_CYCLES
        for count, rounds in ((at_once, full), (rest, 1)):
            if count:
                rate = min(multiprocessors * READ_BYTES, count * turn / TURN_CYCLES) * (1 if self.paired else SHORT_RUNS)
                fetched = (matrix + rows) * -(-count // multiprocessors) / FETCHED_BYTES
                time += rounds * (max(count * matrix / rate, fetched) + BEGIN_CYCLES / self.resident)
        return time

    def __str__(self) -> str:
        return f"16 x {self.width * self.together}" + (f" by {self.parts} warps" if self.parts > 1 else "")
