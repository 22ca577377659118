"""Clusters of blocks: addresses in the shared memory of another block, and the barrier of all threads of a cluster.

The barrier comes in two halves. A phase ends when every thread of the cluster that has not exited has arrived; then those
who arrived may wait, and must before they arrive again. Without a qualifier arrive is a release and wait an acquire; what a
relaxed arrive tells is what came before a fence.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Key, Run, instruction
from ..faults import Fault, Unsupported
from ..formats import TYPES, Array
from ..lanes import Lanes
from ..memory import SHARED_WINDOW
from ..spaces import RANK

if TYPE_CHECKING:
    from ..machine import Batch

AWAY, ARRIVED, FREE = 0, 1, 2  # a thread has yet to arrive, waits for the others, may go on


class ClusterBarrier:
    """The stage of each lane, and what those who wait in each cluster will be ordered after."""

    def __init__(self, batch: Batch) -> None:
        order = batch.order
        self.batch = batch
        self.size = order.threads * order.cluster
        self.stage = np.full(batch.size, AWAY)
        self.parked = np.zeros(batch.size, bool)  # at a wait, with the rest of the warp
        self.told = np.zeros_like(order.known)  # by each warp in the phase that goes on
        self.relaxed = np.zeros(len(order.known), bool)
        self.fenced = np.zeros_like(order.known)  # what a relaxed arrival tells: all before the last fence that releases
        self.heard = np.zeros((batch.size // self.size, order.known.shape[1]), np.int64)  # by each cluster, in the last phase
        self.waited = np.zeros(batch.size, bool)
        batch.on_exit.append(self.settle)

    def arrive(self, lanes: Lanes, release: bool) -> None:
        if (again := (self.stage != AWAY) & lanes.mask).any():
            raise Fault("barrier.cluster.arrive twice, without a wait in between", int(again.argmax()))
        self.stage[lanes.index] = ARRIVED
        warps = np.unique(self.batch.order.warp[lanes.index])
        if release:
            self.told[warps] = self.batch.order.publish(warps)
            self.waited[lanes.index] = self.batch.globals.waited[lanes.index]
        else:
            self.relaxed[warps] = True

    def fence(self, lanes: Lanes) -> None:
        """What these warps did so far is told by their arrivals from now on."""
        warps = np.unique(self.batch.order.warp[lanes.index])
        self.fenced[warps] = self.batch.order.publish(warps)

    def settle(self) -> bool:
        """End the phase where all have arrived, and let go who waits for that. Whether anybody was let go."""
        arrived = self.stage == ARRIVED
        there = (arrived | self.batch.exited).reshape(-1, self.size).all(axis=1)
        done = there & arrived.reshape(-1, self.size).any(axis=1)
        if not done.any():
            return False
        told = np.where(self.relaxed[:, None], self.fenced, self.told)
        self.heard[done] = told.reshape(len(done), -1, self.told.shape[1]).max(axis=1)[done]
        lanes, warps = np.repeat(done, self.size), np.repeat(done, self.size // 32)
        self.told[warps], self.relaxed[warps] = 0, False
        together = self.waited.reshape(-1, self.size).any(axis=1).repeat(self.size)
        self.waited = np.where(lanes, together, self.waited)
        self.stage[lanes & arrived] = FREE
        free = self.parked & lanes
        for key, parked in list(self.batch.parked.items()):
            leaving = self.batch.sets.of(parked.mask & free)
            if leaving.count:
                self.batch.unpark(key, leaving)
                self.go(leaving)
                self.batch.schedule(self.batch.after(key), leaving)
        return bool(free.any())

    def go(self, lanes: Lanes) -> None:
        batch, mine = self.batch, lanes.index
        warps = np.unique(batch.order.warp[mine])
        batch.order.acquire(warps, self.heard[warps * 32 // self.size])
        batch.order.raise_floor(lanes)
        batch.globals.waited[mine] |= self.waited[mine]
        batch.cluster_shared.met[mine] = True
        self.stage[mine], self.waited[mine], self.parked[mine] = AWAY, False, False

    def gather(self, lanes: Lanes) -> Lanes:
        """For .aligned: those of the lanes, and of the ones parked here for that, whose warps are complete. Parks the rest."""
        batch = self.batch
        there = batch.parked.get(batch.key)
        before = np.zeros(batch.size, bool) if there is None else there.mask & ~self.parked
        here = lanes.mask | before
        present = here.reshape(-1, 32).any(axis=1)
        padding = batch.thread >= math.prod(batch.launch.block)
        if (gone := batch.exited & ~padding & np.repeat(present, 32)).any():
            raise Fault("divergent barrier: .aligned, but this lane of the warp has exited", int(gone.argmax()))
        complete = np.repeat(present & (here | padding).reshape(-1, 32).all(axis=1), 32)
        if (arriving := before & complete).any():
            batch.unpark(batch.key, batch.sets.of(arriving))
        if (rest := lanes.mask & ~complete).any():
            batch.park(batch.sets.of(rest))
        return batch.sets.of(here & complete)


@instruction("barrier.cluster.arrive")
def arrive(at: Decoder) -> Run:
    release, aligned = at.take("release", "relaxed") != "relaxed", at.take("aligned")
    at.expect(0)

    def run(batch: Batch, lanes: Lanes) -> list[tuple[Key, Lanes]] | None:
        state = batch.state(ClusterBarrier)
        group = state.gather(lanes) if aligned else lanes
        if not group.count:
            return []
        state.arrive(group, release)
        return [(batch.after(batch.key), group)] if state.settle() or group is not lanes else None

    return run


@instruction("fence.release.sync_restrict::shared::cta")
def fence(at: Decoder) -> Run:
    """A release to the cluster of what was done in shared memory."""
    at.need("cluster")
    at.expect(0)
    return lambda batch, lanes: batch.state(ClusterBarrier).fence(lanes)


@instruction("barrier.cluster.wait")
def wait(at: Decoder) -> Run:
    at.take("acquire")
    aligned = at.take("aligned")
    at.expect(0)

    def run(batch: Batch, lanes: Lanes) -> list[tuple[Key, Lanes]] | None:
        state = batch.state(ClusterBarrier)
        group = state.gather(lanes) if aligned else lanes
        if (early := (state.stage == AWAY) & group.mask).any():
            raise Fault("barrier.cluster.wait without an arrive before it", int(early.argmax()))
        free = batch.sets.of(group.mask & (state.stage == FREE))
        waiting = batch.sets.of(group.mask & ~free.mask)
        if waiting.count:
            state.parked |= waiting.mask
            batch.park(waiting)
        if free.count:
            state.go(free)
        if free is lanes:
            return None
        return [(batch.after(batch.key), free)] if free.count else []

    return run


@instruction("mapa")
def mapa(at: Decoder) -> Run:
    """The address that a place in the own shared memory has in the block of some rank, as everybody in the cluster sees it."""
    generic, kind = not at.take("shared::cluster"), at.type()
    at.expect(3)
    if kind.name not in ("u32", "u64") or (generic and kind.width != 64):
        raise Unsupported(f"an address of {kind.name}")
    write, place, block = at.writer(0, kind), at.reader(1, kind), at.reader(2, TYPES["u32"])

    def run(batch: Batch, lanes: Lanes) -> None:
        shape, window = (batch.size,), SHARED_WINDOW if generic else 0
        own = np.broadcast_to(place(batch, lanes), shape).astype(np.int64) - window
        rank: Array = np.broadcast_to(block(batch, lanes), shape).astype(np.int64)
        if (beyond := (rank >= batch.order.cluster) & lanes.mask).any():
            bad = int(beyond.argmax())
            raise Fault(f"mapa: no block of rank {rank[bad]} in a cluster of {batch.order.cluster}", bad)
        if (foreign := ((own < 0) | (own >> RANK != 0)) & lanes.mask).any():
            bad = int(foreign.argmax())
            raise Fault(f"mapa of {own[bad] + window:#x}, which is no address in this block's shared memory", bad)
        write(batch, lanes, (own + (rank + 1 << RANK) + window).astype(kind.view))

    return run
