"""Tiles of products of few rows, by the tensor core of each warp, which reads the matrix where it is."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.pipelines.cost.rates import LOADS_IN_FLIGHT, REGISTERS, WARP

MOST_REGISTERS = 256  # of one thread
OTHER_REGISTERS = 64  # of one that reads operands for a tensor core itself, beside these and its sums


@dataclass(frozen=True, order=True)
class FewRows:
    """How a product of few rows is cut: `width` columns of each of the matrices that are multiplied `together`, a depth of
    `depth` shared by `parts` warps, of which a lane reads `run` elements at once."""

    width: int
    parts: int
    together: int
    run: int
    depth: int

    @property
    def preference(self) -> tuple[int, int]:
        """What comes first of tiles that take as long: those that read the rows less often, then those of fewer warps."""
        return -min(self.width * self.together, 16), self.parts

    @property
    def deep(self) -> int:
        """Loads of a lane along the depth in a turn."""
        return max(1, min(LOADS_IN_FLIGHT * 8 // (self.width * self.together), self.depth // (4 * self.run * self.parts)))

    @property
    def loads(self) -> int:
        """Loads of a lane from the matrices in a turn."""
        return self.deep * self.width * self.together // 8

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor shall hold: a turn's operands are in registers while the next's are on their way."""
        needed = 8 * (self.loads + self.deep) + self.width * self.together // 2 + OTHER_REGISTERS
        needed += (self.together - 1) * OTHER_REGISTERS // 4  # what their results are put together with
        needed += OTHER_REGISTERS // 4 if self.run == 4 else 0  # f32 takes twice as many products
        warps = REGISTERS // (min(-(-needed // 8) * 8, MOST_REGISTERS) * WARP) // 4 * 4  # as many on each of four schedulers
        return max(warps // self.parts, 1)

    def __str__(self) -> str:
        return f"16 x {self.width * self.together}" + (f" by {self.parts} warps" if self.parts > 1 else "")
