"""The special registers that mean the same on every run; clocks and SM numbers are left out on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .formats import Array

if TYPE_CHECKING:
    from .machine import Batch


def _extent(batch: Batch, sizes: str, axis: int) -> Array:
    return np.asarray(getattr(batch.launch, sizes)[axis])


def _coordinates(name: str, sizes: str) -> dict[str, Callable[[Batch], Array]]:
    """%tid.x and the like: the three coordinates of a linear number."""

    def coordinate(axis: int) -> Callable[[Batch], Array]:
        def read(batch: Batch) -> Array:
            linear = batch.thread if name == "%tid" else batch.linear_block
            size = getattr(batch.launch, sizes)
            return batch.special(f"{name}{axis}", lambda: linear // math.prod(size[:axis]) % size[axis])

        return read

    extent = "%n" + name[1:]
    result = {f"{name}.{letter}": coordinate(axis) for axis, letter in enumerate("xyz")}
    for axis, letter in enumerate("xyz"):
        result[f"{extent}.{letter}"] = partial(_extent, sizes=sizes, axis=axis)
    return result


def _cluster(axis: int) -> dict[str, Callable[[Batch], Array]]:
    """Where a block is in its cluster and the cluster in the grid."""
    letter = "xyz"[axis]

    def block(batch: Batch) -> Array:
        return batch.linear_block // math.prod(batch.launch.grid[:axis]) % batch.launch.grid[axis]

    def clusters(batch: Batch) -> Array:
        return np.asarray(batch.launch.grid[axis] // batch.launch.cluster[axis])

    return {
        f"%cluster_ctaid.{letter}": lambda batch: block(batch) % batch.launch.cluster[axis],
        f"%clusterid.{letter}": lambda batch: block(batch) // batch.launch.cluster[axis],
        f"%cluster_nctaid.{letter}": partial(_extent, sizes="cluster", axis=axis),
        f"%nclusterid.{letter}": clusters,
    }


SPECIAL: dict[str, Callable[[Batch], Array]] = {
    **_coordinates("%tid", "block"),
    **_coordinates("%ctaid", "grid"),
    **_cluster(0),
    **_cluster(1),
    **_cluster(2),
    "%cluster_ctarank": lambda batch: batch.turn % batch.order.cluster,
    "%cluster_nctarank": lambda batch: np.asarray(batch.order.cluster),
    "%laneid": lambda batch: batch.lane,
    "%warpid": lambda batch: batch.thread // 32,
    "%nwarpid": lambda batch: np.asarray(batch.launch.threads // 32),
    "%lanemask_eq": lambda batch: 1 << batch.lane,
    "%lanemask_lt": lambda batch: (1 << batch.lane) - 1,
    "%lanemask_le": lambda batch: (2 << batch.lane) - 1,
    "%lanemask_gt": lambda batch: 0xFFFFFFFF ^ ((2 << batch.lane) - 1),
    "%lanemask_ge": lambda batch: 0xFFFFFFFF ^ ((1 << batch.lane) - 1),
}
