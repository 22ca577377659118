"""Products that may share a launch, and how many clusters run at once."""

from __future__ import annotations

import pytest

from tilec.dialects.index_expr import linear
from tilec.dialects.schedule import Axis, Schedule
from tilec.pipelines.cost.together import LAUNCH_CYCLES, Shape, fitting
from tilec.pipelines.targets import GPU_TARGETS

H200 = GPU_TARGETS["sm_90a"]


def shape(programs: int, wave: float, split: int = 1, threads: int = 256, resident: int = 0) -> Shape:
    waves = -(-programs // (H200.clusters(split) * max(resident, 1)))
    schedule = Schedule((Axis("m", linear(threads), threads, threads, grid=False), Axis("n", linear(programs))),
                        tensor=True, split=split, resident=resident)
    return Shape(schedule, wave * waves, programs, H200.clusters(split) * max(resident, 1))


@pytest.mark.parametrize(("blocks", "clusters"), [(1, 132), (2, 66), (4, 30), (8, 15), (16, 7)])
def test_clusters_are_those_that_the_driver_of_an_h200_counts(blocks: int, clusters: int) -> None:
    assert H200.clusters(blocks) == clusters


def test_products_that_fit_one_wave_together_are_one_launch() -> None:
    wide, narrow, split = shape(64, 30_000), shape(16, 30_000), shape(32, 12_000, split=4)
    assert fitting([[wide], [split, narrow], [split, narrow]]) == [s.schedule for s in (wide, narrow, narrow)]


def test_products_whose_blocks_differ_stay_apart() -> None:
    assert fitting([[shape(64, 30_000)], [shape(32, 12_000, split=4)]]) is None
    assert fitting([[shape(64, 30_000)], [shape(64, 30_000, threads=128)]]) is None


def test_a_wave_is_what_all_multiprocessors_hold_at_once() -> None:
    """Two blocks of each product fit a multiprocessor, so that all are one wave; one that needs more registers makes it two."""
    wide, narrow, crowded = shape(200, 15_000, resident=2), shape(64, 8_000, resident=2), shape(64, 7_000, resident=1)
    assert fitting([[wide], [crowded, narrow]]) == [wide.schedule, narrow.schedule]
    assert fitting([[wide], [crowded]]) is None


def test_a_wave_more_must_be_worth_the_launch_that_it_saves() -> None:
    large, small = shape(132, 30_000), shape(16, 4_000)
    split = shape(8, 3_000, split=2)
    assert fitting([[large], [split, small]]) is None
    cheap = shape(100, LAUNCH_CYCLES - 500)
    assert fitting([[cheap], [cheap]]) == [cheap.schedule] * 2


def test_work_that_differs_is_averaged_over_the_waves() -> None:
    """Two waves of which the second is mostly short programs cost less than two of long ones, but no less than a long one."""
    long, short = shape(120, 30_000), shape(120, 2_000)
    assert fitting([[long], [short]]) == [long.schedule, short.schedule]  # 2 x 16,000 cycles for 32,000 and a launch
