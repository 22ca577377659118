"""Threads of a program combine what they hold: by shuffles inside a warp, through shared memory beyond, then over a cluster.

Threads are numbered by the schedule. Neighbours along an axis that share a warp are its near ones; one of them speaks for
all of them in shared memory, and one block for all its threads to the other blocks of the cluster. Every order is fixed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, scf, vector

from tilec.dialects import kernel, tile
from tilec.dialects.schedule import Schedule
from tilec.pipelines.fragments import FragmentLowering
from tilec.pipelines.layouts import Coordinates, all_of, combiner
from tilec.pipelines.passes import PassFailure
from tilec.runtime.artifact import ITEM_BYTES

WARP = 32


def in_space(number: int) -> ir.Attribute:
    """An address space, as memref types have it."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


@dataclass(frozen=True)
class Deal:
    """Who gets a result that only one thread along `axis` needs: runs of registers are dealt out one after the other.

    `registers` lists axes, slowest first, each with the length of a run and the number of runs along it.
    """

    axis: int
    registers: tuple[tuple[int, int, int], ...]

    def turn(self, at: Coordinates, players: int) -> int:
        """Which of some players a fragment is dealt to."""
        number = 0
        for axis, run, runs in self.registers:
            number = number * runs + at[axis] // run
        return number % players


class ThreadReductions(FragmentLowering):
    """The part of a GPU's lowering in which threads need each other."""

    def __init__(self, schedule: Schedule, padded: bool) -> None:
        super().__init__(schedule)
        self.padded = padded  # the block has more threads than the schedule
        self.thread_number = kernel.ThreadId(result=ir.IndexType.get()).result
        self.coordinates: dict[int, ir.Value] = {}
        self.strides: dict[int, int] = {}
        self.deal: Deal | None = None
        self.exchanges = 0
        self.some_threads: int | None = None  # the first threads of the block, where only they come
        self.arrived = False  # others may still read this block's memory: it must wait before it leaves
        stride = 1
        self.split: list[int] = []  # axes whose warps are numbered after the neighbours of all axes
        self.warps: dict[int, ir.Value] = {}  # of those on the lanes of other axes, the number of this thread's
        spread = [i for i in schedule.thread_order if schedule.axes[i].threads > 1 and not schedule.axes[i].lanes_of]
        for i in spread:
            axis = schedule.axes[i]
            if axis.warps > 1 and i != spread[-1]:
                self.split.append(i)
                self.strides[i], stride = stride, stride * axis.neighbours
                self.coordinates[i] = self._digit(self.strides[i], axis.neighbours, True)
                continue
            threads, self.strides[i] = axis.threads // axis.cluster, stride
            self.coordinates[i] = self._digit(stride, threads, stride * threads < schedule.threads or padded)
            if axis.cluster > 1:
                self.coordinates[i] = arith.addi(self.coordinates[i], self._scaled(self._rank(), threads))
            stride *= threads
        for i in self.split:
            axis = schedule.axes[i]
            warp = self._digit(stride, axis.warps, stride * axis.warps < schedule.threads or padded)
            self.coordinates[i] = arith.addi(self.coordinates[i], self._scaled(warp, axis.neighbours))
            stride *= axis.warps
        names = [axis.name for axis in schedule.axes]
        self.shared_lanes = {i: names.index(a.lanes_of) for i, a in enumerate(schedule.axes) if a.lanes_of not in ("", "*")}
        for i, other in self.shared_lanes.items():
            if other in self.shared_lanes:  # wherever that one lies
                self.coordinates[i], self.strides[i] = self.coordinates[other], self.strides[other]
                if other in self.warps:
                    self.split.append(i)
                    self.warps[i] = self.warps[other]
                continue
            place, axis, theirs = self.coordinates[other], schedule.axes[i], schedule.axes[other].threads
            self.coordinates[i] = arith.remui(place, self._index(axis.neighbours)) if axis.neighbours < theirs else place
            self.strides[i] = self.strides[other]
            if axis.twin_of:
                self._lay_twin(i)
            elif axis.warps > 1:
                warps = axis.warps // axis.cluster
                self.split.append(i)
                self.warps[i] = self._digit(stride, warps, stride * warps < schedule.threads or padded)
                if axis.cluster > 1:
                    self.warps[i] = arith.addi(self.warps[i], self._scaled(self._rank(), warps))
                self.coordinates[i] = arith.addi(self.coordinates[i], self._scaled(self.warps[i], axis.neighbours))
                stride *= warps
        self.whole = {i for i, a in enumerate(schedule.axes) if a.lanes_of == "*"}  # on all threads
        for i in self.whole:
            self.coordinates[i], self.strides[i] = self._digit(1, schedule.threads, padded), 1

    def _lay_twin(self, i: int) -> None:
        """Deals a twin to the warps of its axis. Where a lane has its two columns along that axis in two registers, lane t has
        columns t and 4 + t, which a tensor core counts as 2t and 2t + 1. Of eight lanes along the depth, four have the columns
        2t of the tensor core and the others 2t + 1: both are column t."""
        axis, first = self.schedule.axes[i], self.schedule.twins[i]
        rows = self.coordinates[self.shared_lanes[i]]
        if i == self.schedule.depth_twin:
            half = self._scaled(arith.remui(rows, self._index(2)), 4)
            self.coordinates[i] = arith.addi(half, self.coordinates[self.shared_lanes[first]])
        elif axis.neighbours == 4:
            self.coordinates[i] = arith.divui(rows, self._index(2))
        elif axis.vector == self.schedule.axes[first].vector:
            half, odd = (f(self.coordinates[i], self._index(2)) for f in (arith.divui, arith.remui))
            self.coordinates[i] = arith.addi(half, self._scaled(odd, axis.neighbours // 2))
        if axis.warps > 1:
            self.coordinates[i] = arith.addi(self.coordinates[i], self._scaled(self.warps[first], axis.neighbours))

    def _digit(self, stride: int, base: int, bounded: bool) -> ir.Value:
        value = arith.divui(self.thread_number, self._index(stride)) if stride > 1 else self.thread_number
        return arith.remui(value, self._index(base)) if bounded else value

    def thread(self, axis: int) -> ir.Value | None:
        return self.coordinates.get(axis)

    # Who stands where ---------------------------------------------------------------------------------------------

    def _index(self, value: int) -> ir.Value:
        return self.constant(value, ir.IndexType.get())

    def _rank(self) -> ir.Value:
        return kernel.ClusterRank(result=ir.IndexType.get()).result

    def _is(self, value: ir.Value, number: int) -> ir.Value:
        return arith.cmpi(arith.CmpIPredicate.eq, value, self._index(number))

    def _local(self, axis: int) -> int:
        """Threads of one block along an axis."""
        return self.schedule.axes[axis].threads // self.schedule.axes[axis].cluster

    def _near(self, axis: int) -> int:
        """Neighbours along an axis that share a warp."""
        near = min(self._local(axis), max(WARP // self.strides[axis], 1))
        return min(near, self.schedule.axes[axis].neighbours) if axis in self.split else near

    def _place(self, axis: int) -> ir.Value:
        """This thread's coordinate along an axis inside its block."""
        if self.schedule.axes[axis].cluster == 1:
            return self.coordinates[axis]
        return arith.remui(self.coordinates[axis], self._index(self._local(axis)))

    def _far(self, axis: int) -> ir.Value:
        """The number of this thread's group of near ones."""
        return arith.divui(self._place(axis), self._index(self._near(axis)))

    def _is_near_first(self, axis: int) -> ir.Value:
        return self._is(arith.remui(self._place(axis), self._index(self._near(axis))), 0)

    def _alive(self) -> ir.Value:
        return arith.cmpi(arith.CmpIPredicate.ult, self.thread_number, self._index(self.schedule.threads))

    def owns(self, shape: Sequence[int]) -> ir.Value | None:
        """The first thread along every axis that a tile does not vary along, unless the fragments were dealt along it."""
        dealt = self.deal.axis if self.deal else None
        if any(shape[a] > 1 for a in self.whole):
            return self._alive() if self.padded else None
        lanes = [[a, *(i for i, other in self.shared_lanes.items() if other == a)] for a in self.coordinates
                 if a not in self.shared_lanes and a not in self.whole]
        conditions = [self._is(self.coordinates[axes[0]], 0) for axes in lanes
                      if all(shape[a] == 1 for a in axes) and dealt not in axes]
        for axes in lanes:  # of lanes that hold the same elements over and over, the first
            most = max((self.schedule.axes[a].neighbours for a in axes if shape[a] > 1), default=0)
            if 0 < most < (whole := self.schedule.axes[axes[0]].neighbours):
                lane = arith.remui(self.coordinates[axes[0]], self._index(whole))
                conditions.append(arith.cmpi(arith.CmpIPredicate.ult, lane, self._index(most)))
        conditions += [self._is(self._far(i), 0) for i in self.warps if shape[i] == 1 and i != dealt]
        return all_of(*conditions, *([self._alive()] if self.padded else []))

    def stores(self, at: Coordinates, shape: Sequence[int]) -> ir.Value | None:
        if self.deal is None or shape[self.deal.axis] > 1:
            return None
        axis, near = self.deal.axis, self._near(self.deal.axis)
        turn = self.deal.turn(at, self._local(axis) // near)
        apart = axis in self.shared_lanes  # whose lanes hold different elements
        conditions = [self._is(self._far(axis), turn) if apart else self._is(self._place(axis), near * turn)]
        if self.schedule.axes[axis].cluster > 1:
            conditions.append(self._is(self._rank(), self.deal.turn(at, self.schedule.axes[axis].cluster)))
        return all_of(*conditions)

    # Memory for exchanges -----------------------------------------------------------------------------------------

    def _at(self, offset: tuple[ir.Value, int]) -> ir.Value:
        base, constant = offset
        return arith.addi(base, self._index(constant)) if constant else base

    def _slots(self, axes: Sequence[int], groups: dict[int, int], apart: bool = False, equal: Collection[int] = ()) -> tuple[
            ir.Value, list[int], int]:
        """Slots for threads that combine along `axes`, of which `groups[a]` speakers do; along `equal` ones all have the same.

        (the slot of the first speaker that this thread combines with, the distances of the others from there, number of
        slots): speakers along an axis are neighbours, or `apart` by what the lanes of a warp have, which then are.
        """
        base, size, distances = self._index(0), 1, [0]
        elsewhere = {*self.shared_lanes, *self.whole, *equal}
        for axis in sorted(self.coordinates, key=lambda a: (a not in axes) != apart):
            if axis not in axes and (axis in elsewhere or self.whole & set(axes)):
                continue
            if axis in axes:
                distances = [d + size * i for i in range(groups[axis]) for d in distances]
                size *= groups[axis]
            else:
                base = arith.addi(base, self._scaled(self._place(axis), size))
                size *= self._local(axis)
        return base, distances, size

    def _barrier(self) -> None:
        kernel.Barrier(threads=self.some_threads)

    def _shared(self, count: int, element: ir.Type, over: str | None = None) -> ir.Value:
        self.exchanges += 1
        return kernel.Shared(symbol=f"exchange{self.exchanges - 1}", over=over,
                             result=ir.MemRefType.get([count], element, memory_space=in_space(3))).result

    def free_memory(self, size: int) -> str | None:
        """What the symbols of memory begin with that has `size` bytes and that nobody uses after the next barrier, if any."""
        return None

    # Plain reductions ---------------------------------------------------------------------------------------------

    def reduce_threads(self, values: dict[Coordinates, ir.Value], kind: tile.ReduceKind, axes: list[int], by_lanes: list[int],
                       dealt: Sequence[int]) -> dict[Coordinates, ir.Value]:
        if dealt:
            return self._dealt_to_cluster(values, kind, axes, dealt)
        if by_lanes:
            values = self.reduce_lanes(values, kind, by_lanes)
        scalars = [s for v in values.values() for s in self._scalars(v)]
        combine = combiner(kind, scalars[0].type)
        groups = {a: self._local(a) // self._near(a) for a in axes}
        if any(n > 1 for n in groups.values()):
            # Lanes that have been combined have the same, and so have those of a row that a warp has multiplied.
            alike = [a for a in axes if a in by_lanes or a not in self.shared_lanes]
            speaks = all_of(*(self._is_near_first(a) for a in alike if self._near(a) > 1))
            scalars = self._through_shared(scalars, combine, axes, groups, speaks, {self._first_of(a) for a in by_lanes})
        if any(self.schedule.axes[a].cluster > 1 for a in axes):
            scalars = self._through_cluster(scalars, combine, axes)
        return self._gathered(values, scalars)

    def reduce_lanes(self, values: dict[Coordinates, ir.Value], kind: tile.ReduceKind, axes: list[int]) -> dict[
            Coordinates, ir.Value]:
        lanes = [step for axis in axes for step in self._lanes_of(axis)]
        if not lanes:
            return values
        scalars = [kernel.WarpReduce(kind=kind, lanes=lanes, value=s, result=s.type).result
                   for v in values.values() for s in self._scalars(v)]
        return self._gathered(values, scalars)

    def _lanes_of(self, axis: int) -> list[int]:
        """The steps between near threads, in lanes."""
        near, stride = self._near(axis), self.strides[axis]
        if near & (near - 1) or stride & (stride - 1) or self._local(axis) % near:
            raise PassFailure(f"axis {self.schedule.axes[axis].name} is reduced over {self._local(axis)} threads at a stride "
                              f"of {stride}, which is no power of two inside a warp and whole warps beyond",
                              ir.Location.current)
        return [stride << i for i in range(near.bit_length() - 1)]

    def _first_of(self, axis: int) -> int:
        """The axis whose lanes an axis lies on."""
        return self._first_of(self.shared_lanes[axis]) if axis in self.shared_lanes else axis

    def _through_shared(self, values: list[ir.Value], combine: Callable[[ir.Value, ir.Value], ir.Value], axes: list[int],
                        groups: dict[int, int], speaks: ir.Value | None, equal: set[int]) -> list[ir.Value]:
        """Values of those that speak, combined: along `equal` axes all lanes have the same."""
        # Where the lanes of a warp have slots of their own, these shall lie in different banks.
        base, distances, size = self._slots(axes, groups, any(a in self.shared_lanes for a in axes), equal)
        own, step = base, distances[1] if len(distances) > 1 else 1
        for axis in (a for a in self.coordinates if a in axes):
            own = arith.addi(own, self._scaled(self._far(axis), step))
            step *= groups[axis]
        memory = self._shared(len(values) * size, values[0].type)
        with self._when(speaks, self._alive() if self.padded else None):
            for i, value in enumerate(values):
                kernel.StoreShared(value=value, buffer=memory, offset=self._at((own, i * size)))
        self._barrier()
        results = [functools.reduce(combine, [
            kernel.LoadShared(buffer=memory, offset=self._at((base, i * size + d)), result=value.type).result
            for d in distances]) for i, value in enumerate(values)]
        if self.depth:
            self._barrier()  # before the next turn of the loop writes again
        return results

    def _through_cluster(self, values: list[ir.Value], combine: Callable[[ir.Value, ir.Value], ir.Value],
                         axes: list[int]) -> list[ir.Value]:
        self._check_no_loop()
        base, _, size = self._slots(axes, dict.fromkeys(axes, 1))
        memory = self._shared(len(values) * size, values[0].type)
        speaks = all_of(*(self._is(self._place(a), 0) for a in axes))
        with self._when(speaks, self._alive() if self.padded else None):
            for i, value in enumerate(values):
                kernel.StoreShared(value=value, buffer=memory, offset=self._at((base, i * size)))
        ranks = [self._index(r) for r in range(self.schedule.cluster)]
        with self._reads_of_others() as found:
            found += [functools.reduce(combine, [
                kernel.LoadRemote(buffer=memory, offset=self._at((base, i * size)), rank=r, result=value.type).result
                for r in ranks]) for i, value in enumerate(values)]
        return found

    def _dealt_to_cluster(self, values: dict[Coordinates, ir.Value], kind: tile.ReduceKind, axes: list[int],
                          dealt: Sequence[int]) -> dict[Coordinates, ir.Value]:
        """Every block combines its share of what all blocks of the cluster hold, one thread along the axis each."""
        self._check_no_loop()
        if len(axes) != 1 or self._local(axes[0]) != 1 or (self.deal and self.deal.axis != axes[0]):
            raise PassFailure("results are dealt to blocks along one axis that threads do not share", ir.Location.current)
        axis, cluster = axes[0], self.schedule.cluster
        counts = {a: len({at[a] for at in values}) for a in dealt}
        runs = {a: 4 if n % 4 == 0 and self.schedule.axes[a].vector > 1 else 1 for a, n in counts.items()}
        self.deal = Deal(axis, tuple((a, runs[a], n // runs[a]) for a, n in counts.items() if n > runs[a]))
        combine, whole = combiner(kind, self._scalars(next(iter(values.values())))[0].type), dict(values)
        base, _, size = self._slots([axis], {axis: 1})
        turns: dict[int, list[Coordinates]] = {}
        for at in values:
            turns.setdefault(self.deal.turn(at, cluster), []).append(at)
        shares = {turn: self._in_fours([s for at in share for s in self._scalars(values[at])]) for turn, share in turns.items()}
        firsts = [self._scalars(share[0]) for share in shares.values()]
        width, element = max(len(first) for first in firsts), firsts[0][0].type
        step, room = size * width, size * width * max(len(share) for share in shares.values())
        count = room * (cluster - 1)
        over = self.free_memory(count * ITEM_BYTES[str(element)])
        memory, rank, base = self._shared(count, element, over), self._rank(), self._scaled(base, width)
        if over:
            self._barrier()
        for turn, share in shares.items():  # what others need, that of the next block first
            theirs = arith.cmpi(arith.CmpIPredicate.ne, rank, self._index(turn))
            with self._when(theirs, self._alive() if self.padded else None):
                place = arith.remui(arith.subi(self._index(turn + cluster - 1), rank), self._index(cluster))
                start = arith.addi(base, self._scaled(place, room))
                for i, part in enumerate(share):
                    kernel.StoreShared(value=part, buffer=memory, offset=self._at((start, i * step)))
        with self._reads_of_others() as found:
            for turn, share in shares.items():
                branch = scf.IfOp(self._is(rank, turn), [p.type for p in share], has_else=True)
                with ir.InsertionPoint(branch.else_block):
                    scf.YieldOp(share)
                with ir.InsertionPoint(branch.then_block), self._scope():
                    scf.YieldOp([functools.reduce(combine, [
                        part if r == turn else self._read_remote(
                            memory, self._at((base, (turn - r - 1) % cluster * room + i * step)), part.type, self._index(r))
                        for r in range(cluster)]) for i, part in enumerate(share)])
                scalars = [s for part in branch.results for s in self._scalars(part)]
                found += scalars
                whole |= self._gathered({at: values[at] for at in turns[turn]}, scalars)
        return whole

    def needs(self, at: Coordinates, shape: Sequence[int]) -> ir.Value | None:
        if self.deal is None or self.schedule.axes[self.deal.axis].cluster == 1 or \
                any(shape[a] != self.schedule.axes[a].tile for a, _, _ in self.deal.registers):
            return None
        return self._is(self._rank(), self.deal.turn(at, self.schedule.cluster))

    def _in_fours(self, scalars: list[ir.Value]) -> list[ir.Value]:
        """Scalars as vectors of four, or singly where that leaves a rest."""
        if len(scalars) % 4:
            return scalars
        kind = ir.VectorType.get([4], scalars[0].type)
        return [vector.from_elements(kind, scalars[i:i + 4]) for i in range(0, len(scalars), 4)]

    def _read_remote(self, buffer: ir.Value, at: ir.Value, kind: ir.Type, rank: ir.Value) -> ir.Value:
        """Another block's value, in fours or one by one."""
        if not isinstance(kind, ir.VectorType) or kind.shape[0] % 4 == 0:
            return kernel.LoadRemote(buffer=buffer, offset=at, rank=rank, result=kind).result
        return vector.from_elements(kind, [
            kernel.LoadRemote(buffer=buffer, offset=self._at((at, i)), rank=rank, result=kind.element_type).result
            for i in range(kind.shape[0])])

    def _check_no_loop(self) -> None:
        if self.depth:
            raise PassFailure("blocks of a cluster cannot combine in a loop", ir.Location.current)

    @contextlib.contextmanager
    def _reads_of_others(self) -> Iterator[list[ir.Value]]:
        """Inside, other blocks' shared memory may be read; scalars computed from all that was go into the list."""
        self.end_block()
        kernel.ClusterArrive()
        kernel.ClusterWait()
        found: list[ir.Value] = []
        yield found
        kernel.ClusterArrive(values=found)
        self.arrived = True

    def end_block(self) -> None:
        if self.arrived:
            kernel.ClusterWait()
        self.arrived = False

    def _scalars(self, value: ir.Value) -> list[ir.Value]:
        if not isinstance(value.type, ir.VectorType):
            return [value]
        return [vector.extract(value, [], [i]) for i in range(value.type.shape[0])]

    def _gathered(self, values: dict[Coordinates, ir.Value], scalars: list[ir.Value]) -> dict[Coordinates, ir.Value]:
        """Fragments like `values` from their elements, listed one after the other."""
        result, remaining = {}, iter(scalars)
        for at, v in values.items():
            count = ir.VectorType(v.type).shape[0] if isinstance(v.type, ir.VectorType) else 1
            parts = [next(remaining) for _ in range(count)]
            result[at] = vector.from_elements(v.type, parts) if count > 1 else parts[0]
        return result
