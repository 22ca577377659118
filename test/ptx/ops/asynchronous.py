"""cp.async, whose copies land late, and the handshake between kernels.

A copy reads global memory and writes shared memory at the wait of the thread that issued it. Until then its bytes in shared
memory may not be touched and those in global memory not be written, by nobody: so when it happens cannot be seen. A thread
that exits must have waited for all that it copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Run, instruction
from ..faults import Fault, Unsupported
from ..formats import TYPES, Array
from ..lanes import Actors, Lanes
from ..spaces import Access

if TYPE_CHECKING:
    from ..machine import Batch

SIZES = {"ca": (4, 8, 16), "cg": (16,)}


@dataclass
class Copy:
    """One cp.async of many lanes, an array entry for each. `group`: how many commits of the lane came before."""

    nbytes: int
    lane: Array
    target: Array
    source: Array
    valid: Array
    group: Array

    def only(self, some: Array) -> Copy:
        parts = (self.lane, self.target, self.source, self.valid, self.group)
        return Copy(self.nbytes, *(part[some] for part in parts))

    def reads(self, at: Array, nbytes: int) -> Array:
        """For each of the addresses, whether one of the next `nbytes` bytes there is a byte that this has yet to read."""
        start, end = self.source[self.valid > 0], (self.source + self.valid)[self.valid > 0]
        if not len(start) or at.max() + nbytes <= start.min() or end.max() <= at.min():
            return np.zeros(len(at), bool)
        octet = np.arange(self.nbytes)
        mine = (start[:, None] + octet)[octet < (end - start)[:, None]]
        return np.isin(at[:, None] + np.arange(nbytes), mine).any(axis=1)


class Copies:
    """All cp.async still in flight. They read and write only at the wait of the thread that issued them."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.committed = np.zeros(batch.size, np.int64)
        self.flying: list[Copy] = []
        batch.globals.on_write.append(self.protect)
        batch.on_exit.append(self.leave)

    def land(self, batch: Batch, lanes: Lanes, before: Array) -> None:
        """Complete what the lanes issued in groups before `before` (one entry for each lane of the batch)."""
        flying = []
        for copy in self.flying:
            done = lanes.mask[copy.lane] & (copy.group < before[copy.lane])
            if done.any():
                landing = copy.only(done)
                at = np.where(landing.valid > 0, batch.globals.origin[landing.lane] + landing.source, 0)
                rows = batch.globals.data.reshape(-1, copy.nbytes)[at // copy.nbytes]
                rows[np.arange(copy.nbytes) >= landing.valid[:, None]] = 0
                batch.shared.land(landing.lane, landing.target, rows)
            if not done.all():
                flying.append(copy.only(~done))
        self.flying = flying

    def protect(self, lanes: Actors, at: Array, nbytes: int) -> None:
        """Somebody is about to write global memory."""
        for copy in self.flying:
            if (early := copy.reads(at, nbytes)).any():
                text = "cp.async in flight: it may not have read this global memory yet, which is written here"
                raise Fault(text, int(lanes.numbers[early.argmax()]))

    def leave(self) -> None:
        """Threads have exited."""
        for copy in self.flying:
            if (lost := self.batch.exited[copy.lane]).any():
                text = "cp.async in flight: this thread exits and has not waited for what it copies"
                raise Fault(text, int(copy.lane[lost.argmax()]))


@instruction("cp.async")
def cp_async(at: Decoder) -> Run:
    cached = at.need("ca", "cg")
    at.need("shared", "shared::cta"), at.need("global")
    at.take("L2::64B", "L2::128B", "L2::256B")
    count = at.expect(3, 4)
    target, source, nbytes = at.address(0), at.address(1), at.constant(2)
    valid = at.reader(3, TYPES["u32"]) if count == 4 else None
    if nbytes not in SIZES[cached]:
        raise Unsupported(f"a copy of {nbytes} bytes with .{cached}")
    at.program.touches("shared", nbytes)
    at.program.touches("global", 4)

    def run(batch: Batch, lanes: Lanes) -> None:
        copies, how = batch.state(Copies), Access(nbytes)
        to, origin = target(batch, lanes), source(batch, lanes)
        sizes = np.broadcast_to(valid(batch, lanes) if valid else np.uint32(nbytes), (batch.size,))
        if (beyond := (sizes > nbytes) & lanes.mask).any():
            raise Fault(f"cp.async of {nbytes} bytes from more than that", int(beyond.argmax()))
        size = sizes[lanes.index].astype(np.int64)
        for each in np.unique(size[size > 0]):
            some, start = batch.only(lanes, size == each), origin[size == each]
            where = batch.globals.locate(some, start, int(each), nbytes)
            batch.globals.reading(some, start, where, Access(-(-int(each) // 4) * 4))
        batch.shared.take_off(lanes, to, how)
        copies.flying.append(Copy(nbytes, lanes.numbers, to, origin, size, copies.committed[lanes.index].copy()))

    return run


@instruction("cp.async.commit_group")
def commit(at: Decoder) -> Run:
    at.expect(0)

    def run(batch: Batch, lanes: Lanes) -> None:
        batch.state(Copies).committed[lanes.index] += 1

    return run


@instruction("cp.async.wait_group")
def wait(at: Decoder) -> Run:
    pending = at.constant(at.expect(1) - 1)

    def run(batch: Batch, lanes: Lanes) -> None:
        copies = batch.state(Copies)
        copies.land(batch, lanes, copies.committed - pending)

    return run


@instruction("cp.async.wait_all")
def wait_all(at: Decoder) -> Run:
    at.expect(0)

    def run(batch: Batch, lanes: Lanes) -> None:
        copies = batch.state(Copies)
        copies.committed[lanes.index] += 1
        copies.land(batch, lanes, copies.committed)

    return run


@instruction("griddepcontrol")
def dependency(at: Decoder) -> Run:
    action = at.need("wait", "launch_dependents")
    at.expect(0)

    def run(batch: Batch, lanes: Lanes) -> None:
        if action == "wait":
            batch.globals.waited[lanes.index] = True
        else:
            batch.launch.launched_dependents = True

    return run
