"""Schedules for a GPU: neighbouring threads along the contiguous axis, tensor cores where the operands suit them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tilec.dialects.index_expr import Dim, linear
from tilec.dialects.schedule import Schedule
from tilec.pipelines.cost.plan import cache_of, contraction_operands, largest, queries_of_a_key, roles_of, room_for
from tilec.pipelines.cost.products import MOST_STAGES, Products, bytes_of, multiplied_types, width_of
from tilec.pipelines.cost.rates import (
    FEW_ROWS,
    FIXED_CYCLES,
    GPU_THREADS,
    LOADS_IN_FLIGHT,
    LONG_CACHE,
    QUERIES,
    READ_BYTES,
    READ_CYCLES,
    REGISTERS,
    TILE_DEPTH,
    WARP,
)
from tilec.pipelines.cost.vector_tiles import VectorTiles, vector_tiles
from tilec.pipelines.cost.warp_tiles import FEWEST_SLOTS, MOST_SLOTS
from tilec.pipelines.primop.fuse import is_contraction
from tilec.pipelines.primop.held_rows import held_rows
from tilec.pipelines.primop.outline import body_of
from tilec.pipelines.primop.structure import Access, Reduction, excludes

MOST_THREADS = 1024  # of one block
CLUSTER = 8  # blocks: the portable limit
ONE_BLOCK = 1 << 15  # elements that one block may walk alone
KEYS_IN_FLIGHT = 4  # keys, and values, that one thread reads before it uses them, where it holds few queries
ONLINE_THREADS = (128, 256)  # of a block that shares a cache: what they must combine in the end costs more than what is read
ONLINE_BLOCKS = 3 * 128  # such threads that a multiprocessor has registers for
SHARING_BLOCKS = ONLINE_BLOCKS // ONLINE_THREADS[0]  # of a multiprocessor where all of them share a cache
MANY_QUERIES = 8192  # from which groups of warps that read keys together gain more than blocks that take turns
KEYS_OF_A_TILE = 128  # that one turn of attention by tensor cores takes
CORE_WIDTH = 128  # elements of a head of which a warp's tensor core takes 16 keys and values a turn, and the widest
CORE_WARPS, CORE_BLOCKS = 8, 2  # that share a cache so: fewer read it slower, and more combine what they have in the end
SHORT_CACHE, SHORT_WARPS = 512, 4  # keys of a turn, and warps of a block, where one sequence leaves most multiprocessors idle
ROW_LOADS = 16  # 16-byte loads of one thread where a program makes a row first, which must pay for more of the matrix
ELEMENTS_OF_A_TURN = 16  # of a long row that a thread takes between mending what it carries
ELEMENTS_OF_A_ROW = 32  # of a short row that a thread keeps
OPERAND_REGISTERS = 40  # of a thread that multiplies straight from memory, for both operands
WALK_REGISTERS = 48  # of one that walks along a row, beside what it reads and adds up in a turn
CORE_ROWS, CORE_ROWS_OF_MANY = 4, 2  # that a warp reads at once for its tensor core; in longer runs where blocks are many
MANY_ROUNDS = 8  # of blocks, from which on it counts more what memory gives than what threads do


class GpuPlan(Products):
    """Neighbouring threads along the contiguous axis, 16 bytes each where the operands allow it."""

    def elementwise(self) -> Schedule:
        s = self.structure
        axis = self.streamed_axis()
        if axis is None:
            axis = max(range(len(s.extents)), key=lambda a: largest(s, a))
        if largest(s, axis) == 1:
            return self.schedule()
        vector = self._vector(axis, s.accesses)
        walked = axis not in s.grid or any(axis in r.axes for stage in s.stages for r in stage)
        # So few programs that each may have the multiprocessors of a cluster, and a block of all threads.
        alone = walked and CLUSTER * prod(largest(s, a) for a in s.grid) <= self.target.multiprocessors
        threads = WARP
        while walked and s.extents[axis].is_constant and threads > 1 and threads * vector >= 2 * s.extents[axis].constant:
            threads //= 2
        while threads < (MOST_THREADS if alone else GPU_THREADS) and threads * vector < largest(s, axis):
            threads *= 2
        resident = 0
        other = WALK_REGISTERS + 2 * sum(largest(s, a) > 1 for a in s.grid)  # and where its row begins
        while walked and threads > GPU_THREADS and vector * self._words(axis) + other > REGISTERS // threads:
            threads, resident = threads // 2, 1  # each then has room for what it reads and adds up, and may use it
        if alone and self.target.hopper and largest(s, axis) >= ONE_BLOCK:
            # A long row, such as the choice of a token: all blocks of a cluster read it.
            self.set(axis, self._registers_of_a_turn(axis, CLUSTER * threads, vector), CLUSTER * threads, vector)
            self.cluster[axis] = CLUSTER
            return self.schedule(resident=resident)
        self.set(axis, self._registers_of_a_turn(axis, threads, vector), threads, vector)
        others = [a for a in s.grid if a != axis and largest(s, a) > 1]
        if others and threads < GPU_THREADS and (not walked or threads < WARP):  # short rows: several of them a block
            rows = 1
            while rows * threads < GPU_THREADS and rows < largest(s, others[-1]):
                rows *= 2
            self.set(others[-1], 1, rows)
        return self.schedule(resident=resident)

    def _words(self, axis: int) -> int:
        """Registers for each element along an axis that a loop reads and adds up."""
        s = self.structure
        reads = {a.buffer: bytes_of(a) for a in s.accesses if not a.store and Dim(axis) in a.offset.atoms()}
        sums = max((sum(width_of(r.op.result) for r in stage if axis in r.axes) for stage in s.stages), default=0)
        return sum(-(-n // 4) for n in reads.values()) + -(-sums // 4)

    def _registers_of_a_turn(self, axis: int, threads: int, vector: int) -> int:
        """Vectors that a thread takes along an axis: one, but where sums are mended the whole row, or what is worth it, and
        where a row is read again, such as one that is divided by its norm, all of a short one: then it is read once."""
        s, turns = self.structure, -(-largest(self.structure, axis) // (threads * vector))
        kept = ELEMENTS_OF_A_ROW if threads < MOST_THREADS else ELEMENTS_OF_A_ROW // 2  # a thread then has 64 registers
        if not s.mended and turns * vector <= kept and s.extents[axis].is_constant:
            passes = [any(axis in r.axes for r in stage) for stage in s.stages]
            return turns if sum(passes) + any(a.store and Dim(axis) in a.offset.atoms() for a in s.accesses) > 1 else 1
        most = ELEMENTS_OF_A_TURN // vector if s.mended else 1
        crowded = turns > most and threads >= MOST_THREADS  # a thread has 64 registers
        return max(most // 2, 1) if crowded else min(turns, most)

    def contraction(self, reduction: Reduction) -> Schedule:
        s = self.structure
        roles = roles_of(s, reduction)
        left, right = contraction_operands(s, reduction)
        k = roles.reduced[-1]
        both = [*left, *right]
        along_k = self.contiguous(both, (k, 2))
        rows, columns = [a for a in roles.left if largest(s, a) > 1], [a for a in roles.right if largest(s, a) > 1]
        if not rows or not columns:
            free = (columns or rows)[-1:]
            if along_k:
                return self._matrix_vector(k, free, both)
            if free and self.contiguous(right if columns else left, (free[0], 2)):
                return self._vector_matrix(k, free[0], right if columns else left)
        for axis, _, vector in self._terms_of_factors():
            self.set(axis, 1, 1, vector)
        few = bool(rows) and largest(s, rows[0]) <= FEW_ROWS
        ways = (self._warps, self._tensor, self._copied, self._staged) if few else \
            (self._tensor, self._copied, self._warps, self._staged)
        for way in ways:
            schedule = way(roles, k)
            if schedule is not None:
                return schedule
        # Outer products: a 16 by 16 block of threads, each with a small square of the result.
        n = columns[-1] if columns else None
        m = rows[-1] if rows else None
        if n is not None:
            columns_each = 1 if m is None else 4 if largest(s, n) >= 64 else 2
            self.set(n, columns_each, 128 if m is None else 16)
        if m is not None:
            self.set(m, 4 if n is not None else 1, 16 if n is not None else 128)
        held = sum(prod(self.tile[a] // self.threads[a] for a in axes) for axes in (roles.left, roles.right))
        vector = self._vector(k, both) if along_k else 1
        while vector > 1 and held * vector * max(map(bytes_of, both), default=4) > 4 * OPERAND_REGISTERS:
            vector //= 2
        self.set(k, 1, 1, vector)
        if n is None and m is None:
            self.set(k, 1, 32, 1)
            return self.schedule()
        return self.schedule(dot=True)

    def _matrix_vector(self, k: int, free: list[int], operands: Sequence[Access]) -> Schedule:
        """Rows of a matrix by groups of threads along k, several rows each, with all loads of a thread in flight at once."""
        s = self.structure
        matrix = [a for a in operands if {Dim(f) for f in free} & a.offset.atoms()] or operands
        vector = min(self._vector(k, operands), 16 // max(map(bytes_of, matrix)))
        together = len([r for r in s.stages[-1] if r.contraction])
        rows = largest(s, free[0]) if free else 1
        steps = -(-largest(s, k) // vector)
        known = s.extents[k].is_constant
        held = prod(self.tile[a] for a in s.mirrored)  # rows that a thread has anyway
        others = prod(largest(s, a) for a in s.grid if a not in free and a not in s.mirrored)
        suits = known and bool(free) and vector * max(map(bytes_of, operands)) == 16 and \
            {self._multiplied_bytes([r]) for r in s.stages[-1] if r.contraction} == {2}
        options: dict[VectorTiles, tuple[float, str, VectorTiles]] = {}
        for t in vector_tiles(rows, steps if known else 0, together * held, ROW_LOADS if s.staged else 0):
            blocks = others * -(-rows // t.rows)
            cycles = self._reading_cycles(blocks, t.loads * t.each * together * held * t.block, t.resident)
            many = blocks >= MANY_ROUNDS * t.resident * self.target.multiprocessors
            tiles = (t.on_cores(CORE_ROWS_OF_MANY if many else CORE_ROWS) if suits else None) or t
            options[tiles] = cycles, str(tiles), tiles
        tiles = self.pick([*options.values()])
        threads = tiles.threads
        while not known and threads > 1 and threads * vector > largest(s, k):
            threads //= 2
        self.set(k, tiles.loads, threads, vector)
        if free:
            self.set(free[0], tiles.each, max(1, tiles.block // threads))
        schedule = self.schedule(dot=True, resident=tiles.resident, cores=tiles.cores)
        return schedule.with_axis(k, warps=tiles.block // WARP) if tiles.cores else schedule

    def _reading_cycles(self, blocks: int, loads: int, resident: int) -> float:
        """Cycles in which blocks make that many 16-byte loads each, at the rate of memory or of what is in flight at once."""
        rate = min(READ_BYTES, 16 * loads * resident / READ_CYCLES)
        return READ_CYCLES + -(-blocks // self.target.multiprocessors) * 16 * loads / rate

    def online(self) -> Schedule:
        """Attention over a cache, one query: lanes along the head, threads of a whole cluster along the cache.

        Queries that read the same keys are one tile, so that a key is loaded once for all of them.
        """
        s = self.structure
        t, cache, inner = s.stages[0][0].axes[0], cache_of(s), {Dim(a) for a in s.inner}
        d = next((a for a in s.inner if self.contiguous(cache, (a, 2))), None)
        shared = {atom for a in cache for atom in a.offset.atoms()}
        rows = [a for a in s.grid if s.extents[a] != linear(1) and Dim(a) not in shared]
        rows = [a for a in rows if not s.extents[a].is_constant]  # heads that share all keys are not them
        if d is not None and len(rows) == 1:
            read = [a for a in s.accesses if inner & a.offset.atoms() and not a.store]
            forward = all(c > 0 for a in read for _, c in a.offset.terms)  # as TMA steps
            return self._online_tensor(rows[0], t, d) if self.target.wgmma and forward else self._online_copied(rows[0], t, d)
        if d is None or not s.extents[d].is_constant:
            return self.schedule(dot=True)
        return self._online_rows(t, d, cache)

    def _online_rows(self, t: int, d: int, cache: Sequence[Access]) -> Schedule:
        """One query: a group of lanes for each key, several of them at once, clusters of blocks along the cache."""
        s, vector = self.structure, self._vector(d, cache)
        steps = s.extents[d].constant // vector
        if s.extents[t].is_constant or s.part >= 0:
            return self._online_parts(t, d, steps, vector, cache)
        lanes, long = next(n for n in (32, 16, 8, 4, 2, 1) if steps % n == 0), largest(s, t) >= LONG_CACHE
        lanes = lanes // 2 if long and lanes > 4 else lanes  # fewer shuffles a key, for more to combine in the end
        self.set(d, steps // lanes, lanes, vector)
        for h, queries in queries_of_a_key(s, cache):
            blocks = CLUSTER * prod(largest(s, a) for a in s.grid)
            self.set(h, next((n for n in queries if not self._leaves_idle(blocks / n)), 1))
        programs, (keys, room) = prod(-(-largest(s, h) // self.tile[h]) for h in s.grid), self._keys_and_room()
        most = self.target.most_clustered if long else min(self.target.most_clustered, CLUSTER)
        clusters = [c for c in (16, CLUSTER, 4, 2, 1) if c <= most]
        options = []
        for c in clusters:
            for threads in ONLINE_THREADS:
                turn = 2 * keys * self.tile[d] // lanes // vector * threads  # 16-byte loads of a block
                turns = -(-largest(s, t) // (keys * c * threads // lanes))
                cycles = self._reading_cycles(programs * c, turn * turns, 1) + FIXED_CYCLES
                options.append((cycles, f"clusters of {c}, {threads} threads", (c, threads)))
        fitting = [o for o in options if programs <= self.target.clusters(o[2][0]) * (room // o[2][1])] or options[-1:]
        # As many threads as run at once, in the smallest clusters that still give nearly every multiprocessor a block.
        alike = [o for o in fitting if prod(o[2]) == prod(fitting[0][2])]
        filled = next((o for o in reversed(alike) if not self._leaves_idle(programs * o[2][0])), fitting[0])
        ordered = [filled, *(o for o in options if o != filled)]
        rows = self._rows_of_cores(d, cache)
        if rows is not None and (shape := self._core_shape(largest(s, d), rows[1], long)) is not None:
            label = f"clusters of {shape[0]}, {shape[1]} warps with a tensor core each"
            ordered.insert(0, (filled[0], label, (shape[0], -shape[1])))  # no threads: warps
        cluster, threads = self.pick(ordered)
        if rows is not None and threads < 0:
            return self._online_cores(t, d, *rows, cluster, -threads)
        self.set(t, keys, cluster * threads // lanes)
        self.cluster[t] = cluster
        return self.schedule(dot=True, ahead=True, resident=room // threads)

    def _rows_of_cores(self, d: int, cache: Sequence[Access]) -> tuple[int, int] | None:
        """The axis of queries that read the same keys, and how many of them are the rows of a warp's tensor core: None where
        operands are no 16-bit elements or registers have no room for a head."""
        s, width = self.structure, largest(self.structure, d)
        sizes = [(h, queries[0]) for h, queries in queries_of_a_key(s, cache, FEW_ROWS)]
        sums = [*s.nested, *(r.op for r in s.stages[0] if r.contraction)]
        if s.inner != [d] or width % 32 or width > CORE_WIDTH or self._vector(d, cache) < 8:
            return None
        if len(sizes) != 1 or sizes[0][1] == 1 or not all(map(is_contraction, sums)) or \
                multiplied_types(sums) not in ({"bf16"}, {"f16"}):
            return None
        return sizes[0]

    def _core_shape(self, width: int, queries: int, long: bool) -> tuple[int, int] | None:
        """Blocks of a cluster and warps of a block that share a cache by their tensor cores. A few blocks where programs give
        nearly every second multiprocessor one; otherwise, if the cache is not long, so many that what a short one holds is one
        turn, which is read before the kernel before ends: where no kernel writes it."""
        programs = prod(largest(self.structure, a) for a in self.structure.grid) // queries
        blocks = min(CORE_BLOCKS, self.target.most_clustered)
        if not self._leaves_idle(2 * blocks * programs):
            return blocks, CORE_WARPS
        blocks = SHORT_CACHE // (SHORT_WARPS * _core_keys(width))
        fits = held_rows(self.structure.function) and not long and blocks <= min(self.target.most_clustered, CLUSTER)
        return (blocks, SHORT_WARPS) if fits else None

    def _online_cores(self, t: int, d: int, h: int, queries: int, blocks: int, warps: int) -> Schedule:
        """The same by each warp's tensor core, straight from memory: its rows are queries that read the same keys, its columns
        keys, and then the head. Keys have a second layout over its eight lanes of columns, and so have values' heads."""
        width = largest(self.structure, d)
        self.set(h, 1, queries)
        self.set(d, width // 32, 4, 8)
        self.set(t, _core_keys(width) // 4, 4 * warps * blocks)
        self.cluster[t] = blocks
        schedule = self.schedule(dot=True, resident=1, ahead=warps == SHORT_WARPS)  # more warps have no registers for it
        schedule = schedule.with_axis(t, lanes_of=schedule.axes[d].name, warps=warps * blocks)
        values = schedule.axes[d].twin(threads=8, vector=4)
        keys = schedule.axes[t].twin(threads=2 * self.threads[t], lanes_of=values.name)
        schedule = schedule.with_axis(h, lanes_of=values.name)
        return replace(schedule, axes=(*schedule.axes, keys, values))

    def _keys_and_room(self) -> tuple[int, int]:
        """Keys, and values, that a thread reads before it uses them, and for how many such threads a multiprocessor has
        registers: for fewer where a thread holds many queries."""
        queries = prod(self.tile[h] for h in self.structure.grid)
        return KEYS_IN_FLIGHT if queries <= QUERIES else KEYS_IN_FLIGHT // 2, room_for(queries, ONLINE_BLOCKS)

    def _online_parts(self, t: int, d: int, steps: int, vector: int, cache: Sequence[Access]) -> Schedule:
        """One block for each program of those that share a cache, or for what these have left."""
        lanes = next(n for n in (32, 16, 8, 4, 2, 1) if steps % n == 0)
        self.set(d, steps // lanes, lanes, vector)
        for h, queries in queries_of_a_key(self.structure, cache):
            self.set(h, queries[0])
        threads, extent, (keys, room) = ONLINE_THREADS[0] // lanes, self.structure.extents[t], self._keys_and_room()
        if extent.is_constant:  # what programs have left, of few heads: all of it at once where it fits
            self.set(t, min(-(-extent.constant // threads), 2 * keys), threads)
            return self.schedule(dot=True, ahead=True)
        self.set(t, keys, threads)
        return self.schedule(dot=True, ahead=True, resident=room // ONLINE_THREADS[0])

    def _leaves_idle(self, blocks: float) -> bool:
        """Whether so many blocks are too few for the multiprocessors, or nearly all of them."""
        return 8 * blocks < 7 * self.target.multiprocessors

    def _online_tensor(self, row: int, t: int, d: int) -> Schedule:
        """Attention of many queries: two products by tensor cores, the rows' maxima and what is summed in registers.

        Of small heads two blocks share a multiprocessor, each of one group of warps: one begins or ends while the other
        computes. Very many queries without a mask are groups of one block, which read keys once.
        """
        width, groups, resident = largest(self.structure, d), 2, 0
        if width <= TILE_DEPTH:
            together = largest(self.structure, row) >= MANY_QUERIES and not self._is_masked()
            groups, resident = (3, 0) if together else (1, 2)
        keys = KEYS_OF_A_TILE if width <= 128 else KEYS_OF_A_TILE // 2  # what a thread's registers hold
        self.set(row, 2, 32 * groups)
        self.set(t, keys // 8, 4, 2)
        self.set(d, width // 8, 4, 2)
        queries, turn = (_row_bytes(width) * n for n in (64 * groups, 2 * keys))  # bytes of a program's, and of keys and values
        shared, sms = self.target.shared_bytes // max(resident, 1) - (4 << 10), self.target.multiprocessors
        stages, beside = (min(MOST_STAGES, (shared - n * queries) // turn) for n in (1, 2))
        programs = prod(-(-largest(self.structure, a) // self.tile[a]) for a in self.structure.grid)
        # Programs of equal length are walked over where the next one's queries leave two slots, or all there would be.
        if walked := groups == 2 and not self._is_masked() and programs > sms and beside >= min(stages, FEWEST_SLOTS):
            stages = beside
        schedule = self.schedule(dot=True, tensor=True, stages=stages, resident=resident, persistent=sms if walked else 0,
                                 **self._heavy_first(row))
        return schedule.with_axis(row, warps=4 * groups).with_axis(d, lanes_of=schedule.axes[t].name)

    def _is_masked(self) -> bool:
        """Whether a mask excludes some keys."""
        return any(excludes(result) for o in body_of(self.structure.function).operations for result in o.results)

    def _heavy_first(self, row: int) -> dict[str, Any]:
        """The order of programs: where a mask lets later rows see more, the last rows of all heads come first; otherwise those
        of a head are neighbours, which read the same keys."""
        others = tuple(a for a in self.structure.grid if a != row)
        return {"order": (row, *others), "reversed": (row,)} if self._is_masked() else {"order": (*others, row)}

    def _online_copied(self, row: int, t: int, d: int) -> Schedule:
        """The same by each warp's tensor core: 16 rows of it or, where registers allow, 32, which read the keys once."""
        width, shared = largest(self.structure, d), self.target.shared_bytes - (2 << 10)
        row_bytes = _row_bytes(width)
        for rows, warps, keys in ((32, 4, 64), (16, 8, 64), (16, 4, 64), (16, 4, 32)):
            turn = 2 * row_bytes * keys  # bytes of keys and values
            stages = (shared - row_bytes * rows * warps) // turn
            if rows * width <= 2048 and stages >= FEWEST_SLOTS and (width <= 128 or keys == 32):
                break
        self.set(row, rows // 8, 8 * warps)
        self.set(t, keys // 8, 4, 2)
        self.set(d, width // 8, 4, 2)
        schedule = self.schedule(dot=True, tensor=True, copied=True, stages=min(MOST_SLOTS, stages), **self._heavy_first(row))
        return schedule.with_axis(row, warps=warps).with_axis(d, lanes_of=schedule.axes[t].name)

    def _vector_matrix(self, k: int, n: int, matrix: Sequence[Access]) -> Schedule:
        """One row times a matrix that is contiguous along what is kept: threads along both, partial sums over k."""
        vector = self._vector(n, matrix)
        threads = next(t for t in (32, 16, 8, 4, 2, 1) if t == 1 or t * vector <= largest(self.structure, n))
        self.set(n, 1, threads, vector)
        self.set(k, 2 * LOADS_IN_FLIGHT, GPU_THREADS // threads, 1)
        return self.schedule(dot=True)


def _core_keys(width: int) -> int:
    """Keys, and values, of a turn of a warp's tensor core: as many as registers have room for."""
    return CORE_WIDTH // width * 16


def _row_bytes(width: int) -> int:
    """Of a row of 16-bit elements in shared memory: whole spans of a swizzle."""
    return 2 * -(-width // TILE_DEPTH) * TILE_DEPTH

