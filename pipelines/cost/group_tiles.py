"""Tiles of products by groups of four warps, their operands through rings."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.pipelines.cost.rates import TILE_DEPTH


@dataclass(frozen=True, order=True)
class GroupTiles:
    """How a product by tensor cores is cut: the depth over `split` blocks, 64 rows for each of `groups` of warps, `width`
    columns of each of the matrices that are multiplied `together`."""

    split: int
    groups: int
    width: int
    together: int

    @property
    def height(self) -> int:
        return 64 * self.groups

    @property
    def slot(self) -> int:
        """Bytes of a turn's operands."""
        return 2 * TILE_DEPTH * (self.height + self.width * self.together)

    @property
    def moved(self) -> int:
        """Bytes of shared memory that a turn writes, zeros outside the operands as well, and that its groups read."""
        return self.slot + 2 * TILE_DEPTH * self.groups * (64 + self.width * self.together)

    def slots(self, shared: int) -> int:
        """Turns that fit so many bytes of shared memory. What is exchanged takes the place of three of them or fewer."""
        return shared // self.slot

    def __str__(self) -> str:
        return f"{self.height} x {self.width * self.together}" + (f" in {self.split} parts" if self.split > 1 else "")
