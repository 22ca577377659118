"""Schedules for a GPU: neighbouring threads along the contiguous axis, tensor cores where the operands suit them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, FloorDiv, Linear, dim, linear
from tilec.dialects.schedule import Axis, Schedule
from tilec.pipelines.cost.fetches import F32_STEP, in_pieces, is_run, lies_across, lies_along
from tilec.pipelines.cost.multiply_adds import (
    COLUMNS_OF_THREADS,
    DEPTH,
    ROWS_OF_THREADS,
    STRAIGHT_TILE,
    Tiling,
    straight_cycles,
    tilings,
)
from tilec.pipelines.cost.plan import Plan, Roles, contraction_operands, largest, roles_of
from tilec.pipelines.cost.warp_tiles import FEWEST_SLOTS, MOST_SLOTS, WarpTiles, warp_tiles
from tilec.pipelines.primop.structure import Access, Reduction, Structure, defining_op, is_contiguous
from tilec.pipelines.targets import GpuTarget

GPU_THREADS = 256
MOST_THREADS = 1024  # of one block
WARP = 32
CLUSTER = 8  # blocks: the portable limit
ONE_BLOCK = 1 << 15  # elements that one block may walk alone
QUERIES = 4  # heads of one group that share a read of the cache
KEYS_IN_FLIGHT = 4  # keys, and values, that one thread reads before it uses them
LOADS_IN_FLIGHT = 4  # 16-byte loads of one thread
FEW_ROWS = 8  # up to here a product takes the time of reading its matrix
TILE_DEPTH = 64  # 16-bit elements along the reduced axis, half as many of f32: 128 bytes, the span of a swizzle
MOST_STAGES = 6
PERSISTENT_WAVES = 1  # programs of each block beyond which it pays to walk over them
KEYS_OF_A_TILE = 128  # that one turn of attention by tensor cores takes
MOST_STAGES_FEW_ROWS = 12
FEWEST_STAGES = 3  # with which a product hides the latency of its operands
MULTIPLY_ADDS = 2048  # of 16-bit elements that a multiprocessor's tensor cores make in a cycle, half as many in TF32
FETCHED_BYTES = 40  # that a multiprocessor gets from the second-level cache in a cycle
READ_BYTES = 19  # its share of what memory gives in a cycle
FILLED_BYTES = 100  # that TMA writes to shared memory in a cycle, zeros outside the source as well
FIXED_CYCLES = 4000  # until a block has its first tile, and while it stores its result
EXCHANGE_CYCLES, EXCHANGED_BYTES = 2000, 16  # of blocks that meet, and that a block reads of others in a cycle
ROW_LOADS = 16  # the same where a program makes a row first, which must pay for more of the matrix
ELEMENTS_OF_A_TURN = 16  # of a long row that a thread takes between mending what it carries
MOST_TILINGS = 6  # of a product by multiply-adds that are considered
LONGEST_ROW = 640  # threads that may share a row of a matrix
OPERAND_REGISTERS = 40  # of a thread that multiplies straight from memory, for both operands
OTHER_REGISTERS = 32  # of a thread, beside what its loads fill
WALK_REGISTERS = 48  # of one that walks along a row, beside what it reads and adds up in a turn
REGISTERS, THREADS = 65536, 2048  # of one multiprocessor
MOST_REGISTERS = 256  # of one thread
MOST_SHAPES = 8  # of a product with a vector that are considered
READ_CYCLES = 900  # until memory answers
WARP_PRODUCTS = 1024  # multiply-adds of 16-bit elements that a multiprocessor makes by mma.sync in a cycle, half in TF32


@dataclass(frozen=True, order=True)
class _Tiles:
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
    def exchanged(self) -> int:
        """Bytes of what blocks that split the depth add up."""
        return 4 * self.height * self.width * self.together if self.split > 1 else 0

    def slots(self, shared: int) -> int:
        """Turns that fit so many bytes of shared memory, with what is exchanged."""
        return (shared - self.exchanged) // self.slot

    def __str__(self) -> str:
        return f"{self.height} x {self.width * self.together}" + (f" in {self.split} parts" if self.split > 1 else "")


def matvec_shapes(rows: int, steps: int, together: int, wanted: int = 0) -> list[tuple[int, int, int, int, int]]:
    """How rows of a matrix may be read, best first: loads of a thread in one row, threads along a row, rows of a thread,
    threads of a block, blocks that shall be resident. `steps` is the number of loads in a row, 0 if it is not known; `together`
    the number of matrices that are read in one loop; `wanted` how many loads a thread shall have in flight.

    A row is read without a loop, so that all its loads are in flight at once; four of each thread are enough to hide the
    latency of memory, and with few registers each, many threads fit.
    """
    wanted = wanted or LOADS_IN_FLIGHT
    if not steps:
        return [(LOADS_IN_FLIGHT, WARP, 1, GPU_THREADS, 2)]
    shapes = []
    for registers in range(1, 4 * LOADS_IN_FLIGHT + 1):
        threads = -(-steps // registers)
        threads = -(-threads // WARP) * WARP if threads > WARP else 1 << (threads - 1).bit_length()
        block = max(GPU_THREADS // threads, 1) * threads
        for each in (1, 2, 4, 8):
            loads = registers * each * together
            if threads <= LONGEST_ROW:
                idle, uneven = registers * threads - steps, rows % (each * (block // threads)) != 0
                order = (loads < wanted, 20 * idle > steps, uneven, loads, registers > LOADS_IN_FLIGHT, idle, -registers)
                shapes.append((order, loads, registers, threads, each, block))
    if not shapes:  # too long for the threads of a block: a loop
        return [(LOADS_IN_FLIGHT, GPU_THREADS, 1, GPU_THREADS, 2)]
    found = []
    for _, loads, registers, threads, each, block in sorted(shapes)[:MOST_SHAPES]:
        needed = 4 * loads + 4 * registers + OTHER_REGISTERS * (1 if registers * threads == steps else 2)  # masks take some
        resident = max(1, min(THREADS // block, REGISTERS // (block * -(-needed // 8) * 8)))
        found.append((registers, threads, each, block, resident))
    return found


class GpuPlan(Plan):
    """Neighbouring threads along the contiguous axis, 16 bytes each where the operands allow it."""

    def __init__(self, structure: Structure, target: GpuTarget, take: int = 0) -> None:
        super().__init__(structure, take)
        self.target = target

    def _vector(self, axis: int, accesses: Sequence[Access]) -> int:
        """Elements of one 16-byte access along an axis, fewer where some access or the extent does not allow it."""
        s = self.structure
        for size in (8, 4, 2):
            widest = max((_bytes(a) for a in accesses if is_contiguous(a.offset, [(axis, 2)], s.ranges)), default=16)
            fits = all(_is_aligned_run(a, axis, size, s) or Dim(axis) not in a.offset.atoms()
                       or not is_contiguous(a.offset, [(axis, 2)], s.ranges) for a in accesses)
            if size * widest <= 32 and fits and s.extents[axis].is_constant and s.extents[axis].constant % size == 0:
                return size
        return 1

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
        if others and threads < GPU_THREADS and not walked:  # short rows: several of them a block
            rows = 1
            while rows * threads < GPU_THREADS and rows < largest(s, others[-1]):
                rows *= 2
            self.set(others[-1], 1, rows)
        return self.schedule(resident=resident)

    def _words(self, axis: int) -> int:
        """Registers for each element along an axis that a loop reads and adds up."""
        s = self.structure
        reads = {a.buffer: _bytes(a) for a in s.accesses if not a.store and Dim(axis) in a.offset.atoms()}
        sums = max((sum(_width(r.op.result) for r in stage if axis in r.axes) for stage in s.stages), default=0)
        return sum(-(-n // 4) for n in reads.values()) + -(-sums // 4)

    def _registers_of_a_turn(self, axis: int, threads: int, vector: int) -> int:
        """Vectors that a thread takes along an axis: one, but where sums are mended the whole row, or what is worth it."""
        most = ELEMENTS_OF_A_TURN // vector if self.structure.mended else 1
        turns = -(-largest(self.structure, axis) // (threads * vector))
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
        tensor = self._tensor(roles, k)
        if tensor is not None:
            return tensor
        copied = self._copied(roles, k)
        if copied is not None:
            return copied
        warps = self._warps(roles, k)
        if warps is not None:
            return warps
        staged = self._staged(roles, k)
        if staged is not None:
            return staged
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
        while vector > 1 and held * vector * max(map(_bytes, both), default=4) > 4 * OPERAND_REGISTERS:
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
        vector = min(self._vector(k, operands), 16 // max(map(_bytes, matrix)))
        together = len([r for r in s.stages[-1] if r.contraction])
        rows = largest(s, free[0]) if free else 1
        steps = -(-largest(s, k) // vector)
        known = s.extents[k].is_constant
        held = prod(self.tile[a] for a in s.mirrored)  # rows that a thread has anyway
        shapes = matvec_shapes(rows, steps if known else 0, together * held, ROW_LOADS if s.staged else 0)
        others = prod(largest(s, a) for a in s.grid if a not in free and a not in s.mirrored)
        options = []
        for shape in shapes:
            registers, threads, each, block, resident = shape
            taken = each * max(1, block // threads)
            cycles = self._reading_cycles(others * -(-rows // taken), registers * each * together * held * block, resident)
            options.append((cycles, f"{registers} loads by {threads} threads, {taken} rows a block", shape))
        registers, threads, each, block, resident = self.pick(options)
        while not known and threads > 1 and threads * vector > largest(s, k):
            threads //= 2
        self.set(k, registers, threads, vector)
        if free:
            self.set(free[0], each, max(1, block // threads))
        return self.schedule(dot=True, resident=resident)

    def _reading_cycles(self, blocks: int, loads: int, resident: int) -> float:
        """Cycles in which blocks make that many 16-byte loads each, at the rate of memory or of what is in flight at once."""
        rate = min(READ_BYTES, 16 * loads * resident / READ_CYCLES)
        return READ_CYCLES + -(-blocks // self.target.multiprocessors) * 16 * loads / rate

    def online(self) -> Schedule:
        """Attention over a cache, one query: lanes along the head, threads of a whole cluster along the cache.

        Queries that read the same keys are one tile, so that a key is loaded once for all of them.
        """
        s = self.structure
        t = s.stages[0][0].axes[0]
        inner = {Dim(a) for a in s.inner}  # along which keys and values vary, and a mask does not
        cache = [a for a in s.accesses if Dim(t) in a.offset.atoms() and inner & a.offset.atoms() and not a.store]
        d = next((a for a in s.inner if self.contiguous(cache, (a, 2))), None)
        shared = {atom for a in cache for atom in a.offset.atoms()}
        rows = [a for a in s.grid if s.extents[a] != linear(1) and Dim(a) not in shared]
        rows = [a for a in rows if not s.extents[a].is_constant]  # heads that share all keys are not them
        if d is not None and len(rows) == 1:
            return self._online_tensor(rows[0], t, d) if self.target.wgmma else self._online_copied(rows[0], t, d)
        if d is None or not s.extents[d].is_constant:
            return self.schedule(dot=True)
        vector = self._vector(d, cache)
        steps = s.extents[d].constant // vector
        lanes = next(n for n in (32, 16, 8, 4, 2, 1) if steps % n == 0)
        self.set(d, steps // lanes, lanes, vector)
        for h in s.grid:
            sizes = {atom.divisor for a in cache for atom, _ in a.offset.terms
                     if isinstance(atom, FloorDiv) and atom.numerator == dim(h)}
            if len(sizes) == 1 and largest(s, h) % min(sizes) == 0:
                queries = [n for n in range(QUERIES, 0, -1) if min(sizes) % n == 0]
                blocks = CLUSTER * prod(largest(s, a) for a in s.grid)
                self.set(h, next((n for n in queries if 8 * blocks >= 7 * n * self.target.multiprocessors), 1))
        programs = prod(-(-largest(s, h) // self.tile[h]) for h in s.grid)
        turn = 2 * KEYS_IN_FLIGHT * self.tile[d] // lanes // vector * GPU_THREADS  # 16-byte loads of a block
        clusters = (CLUSTER, 4, 2, 1) if self.target.hopper else (1,)
        turns = {c: -(-largest(s, t) // (KEYS_IN_FLIGHT * c * GPU_THREADS // lanes)) for c in clusters}
        options = [(self._reading_cycles(programs * c, turn * n, 1) + FIXED_CYCLES, f"clusters of {c}", c)
                   for c, n in turns.items()]
        filled = next(o for o in options if programs * o[2] <= 2 * self.target.multiprocessors or o[2] == 1)
        cluster = self.pick([filled, *(o for o in options if o != filled)])
        self.set(t, KEYS_IN_FLIGHT, cluster * GPU_THREADS // lanes)
        self.cluster[t] = cluster
        return self.schedule(dot=True, ahead=True)

    def _online_tensor(self, row: int, t: int, d: int) -> Schedule:
        """Attention of many queries: two products by tensor cores, the rows' maxima and what is summed in registers."""
        s, groups = self.structure, 2
        width = largest(s, d)
        keys = KEYS_OF_A_TILE if width <= 128 else KEYS_OF_A_TILE // 2  # what a thread's registers hold
        self.set(row, 2, 32 * groups)
        self.set(t, keys // 8, 4, 2)
        self.set(d, width // 8, 4, 2)
        row_bytes = _row_bytes(width)
        stages = (self.target.shared_bytes - (8 << 10) - row_bytes * 64 * groups) // (2 * row_bytes * keys)
        order = [*(a for a in s.grid if a != row), row]
        schedule = self.schedule(order, dot=True, tensor=True, stages=min(MOST_STAGES, stages), reversed=(row,))
        return schedule.with_axis(row, warps=4 * groups).with_axis(d, lanes_of=schedule.axes[t].name)

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
        order = [*(a for a in self.structure.grid if a != row), row]
        schedule = self.schedule(order, dot=True, tensor=True, copied=True, stages=min(MOST_SLOTS, stages), reversed=(row,))
        return schedule.with_axis(row, warps=warps).with_axis(d, lanes_of=schedule.axes[t].name)

    def _tensor(self, roles: Roles, k: int) -> Schedule | None:
        """Products by tensor cores, operands by TMA through rings; None where a rule of the hardware stands against it."""
        s = self.structure
        stage = s.stages[0]
        rows = [a for a in roles.left if s.extents[a] != linear(1)]
        columns = [a for a in roles.right if s.extents[a] != linear(1)]
        if not (self.target.wgmma and len(s.stages) == 1 and not s.inner and not s.nested and len(rows) == 1 and columns
                and len(roles.reduced) == 1 and all(r.contraction for r in stage) and (item := self._multiplied_bytes(stage))
                and s.extents[k].is_constant and s.extents[k].constant >= (depth := 2 * TILE_DEPTH // item)):
            return None
        for reduction in stage:
            product = defining_op(reduction.op.operand)
            if product.bounds is not None or any(defining_op(v) is not None for v in product.operands):
                return None
            if not all(self.contiguous(side, (k, depth)) and all(self._in_rows(a, row, k, depth) for a in side)
                       for side, row in zip(contraction_operands(s, reduction), (rows[0], columns[-1]), strict=True)):
                return None
        few, length = largest(s, rows[0]) <= FEW_ROWS, s.extents[k].constant
        most = 128 if few else 256  # columns, so that a ring has several slots
        shapes = [_Tiles(split, groups, width, len(stage))
                  for groups in ((1,) if few else (2, 1)) for width in self._widths(columns) for split in (1, 2, 4)
                  if width * len(stage) <= most and (split == 1 or length % (depth * split) == 0)]
        # Two blocks with few rows share a multiprocessor: one reads while the other begins or ends.
        shared = self.target.shared_bytes // 2 - (4 << 10) if few else self.target.shared_bytes - (8 << 10)
        timed = sorted((self._tensor_time(rows[0], columns, k, t, item), t) for t in shapes
                       if t.split == 1 or t.slots(shared) >= FEWEST_STAGES)
        if not timed:
            return None
        tiles = self.pick([(time, str(tiles), tiles) for time, tiles in timed])
        programs = self._tensor_programs(rows[0], columns, tiles.height, tiles.width)
        sms = self.target.multiprocessors
        self.set(rows[0], 2, 32 * tiles.groups)
        self._set_columns(columns, tiles.width)
        self.set(k, depth)
        order = [a for a in s.grid if a != rows[0]] + [rows[0]]
        stages = min(MOST_STAGES_FEW_ROWS if few else MOST_STAGES, tiles.slots(shared))
        walked = programs > PERSISTENT_WAVES * sms and not few and tiles.split == 1
        schedule = self.schedule(order, dot=True, tensor=True, stages=stages, persistent=sms if walked else 0,
                                 resident=2 if few else 0, split=tiles.split, tf32=item == 4)
        return schedule.with_axis(rows[0], warps=4 * tiles.groups)

    def _multiplied_bytes(self, stage: Sequence[Reduction]) -> int:
        """The size of the elements of products if tensor cores can make them, else 0: of f32 only where TF32 is allowed."""
        types = {str(primop.element_type(v)) for r in stage for v in defining_op(r.op.operand).operands}
        return 2 if types <= {"bf16", "f16"} else 4 if types == {"f32"} and self.structure.tf32 else 0

    def _warps(self, roles: Roles, k: int) -> Schedule | None:
        """Products by the tensor core of each warp, operands straight from memory in 16-byte runs along the depth."""
        s = self.structure
        rows = [a for a in roles.left if s.extents[a] != linear(1)]
        columns = [a for a in roles.right if s.extents[a] != linear(1)]
        if len(s.stages) != 1 or s.inner or s.nested or len(rows) != 1 or not columns or len(roles.reduced) != 1 or \
                not all(r.contraction for r in s.stages[0]) or not (item := self._multiplied_bytes(s.stages[0])):
            return None
        run = 16 // item
        for reduction in s.stages[0]:
            sides = contraction_operands(s, reduction)
            if defining_op(reduction.op.operand).bounds is not None or \
                    not all(side and self._vector(k, side) >= run for side in sides):
                return None
        few, together = largest(s, rows[0]) <= FEW_ROWS, len(s.stages[0])
        # Of few rows, many warps shall read the matrix, each with many loads in flight.
        sizes, most = ((8, 16, 32, 64, 128), 128) if few else ((64, 32, 16, 8), 64)
        widths = [w for w in sizes if w * together <= most and self._fits_columns(columns, w)]
        if not widths:
            return None
        tall = [w for w in (4, 2, 1) if largest(s, rows[0]) > 16 * w or w == 1]
        each = 2 if few else 4
        warps, width = self.pick([
            (self._warps_time(rows[0], columns, k, m, 8 * each * m, w, together, 4 * run),
             f"{8 * each * m} x {w * together}", (m, w)) for w in widths for m in tall])
        self.set(rows[0], each, 8 * warps)
        self._set_columns(columns, width)
        deep = min(LOADS_IN_FLIGHT * 8 // (width * together), -(-largest(s, k) // (4 * run))) if few else 1
        self.set(k, max(deep, 1), 4, run)
        last = columns[-1]
        # Of few rows the loads fill the registers: without a bound ptxas aims at more blocks than that leaves room for.
        resident = max(REGISTERS // (MOST_REGISTERS * WARP * warps), 1) if few else 0
        schedule = self.schedule(dot=True, ahead=True, twin=last, resident=resident, tf32=item == 4)
        schedule = schedule.with_axis(rows[0], warps=warps)
        schedule = schedule.with_axis(k, lanes_of=schedule.axes[last].name)
        twin = Axis(schedule.axes[last].name + "_twin", s.extents[last], self.tile[last], 8, 1, False,
                    lanes_of=schedule.axes[rows[0]].name)
        return replace(schedule, axes=(*schedule.axes, twin))

    def _copied(self, roles: Roles, k: int) -> Schedule | None:
        """Products by each warp's tensor core, operands copied to shared memory; None where 16 bytes do not fit."""
        s = self.structure
        stage = s.stages[0]
        rows = [a for a in roles.left if s.extents[a] != linear(1)]
        columns = [a for a in roles.right if s.extents[a] != linear(1)]
        if len(s.stages) != 1 or s.inner or s.nested or len(rows) != 1 or not columns or \
                len(roles.reduced) != 1 or not all(r.contraction for r in stage) or largest(s, rows[0]) <= FEW_ROWS or \
                rows[0] in s.mirrored or not (item := self._multiplied_bytes(stage)):
            return None
        for reduction in stage:
            product = defining_op(reduction.op.operand)
            if product.bounds is not None or any(defining_op(v) is not None for v in product.operands):
                return None
            left, right = contraction_operands(s, reduction)
            if not all(all(in_pieces(a, k, s, 16 // item) for a in side) or
                       (item == 2 and all(in_pieces(a, kept, s) for a in side))
                       for side, kept in ((left, rows[0]), (right, columns[-1]))):
                return None
        programs, shared, depth = self._tensor_programs, self.target.shared_bytes, largest(s, k) * item // 2
        fitting = [t for t in warp_tiles(len(stage)) if self._deals(columns, t)] or \
            [t for width in range(256, 63, -16) for t in warp_tiles(len(stage), width) if self._deals(columns, t)]
        options = [(t.cycles(programs(rows[0], columns, t.height, t.width), depth, self.target.multiprocessors),
                    str(t), t) for t in fitting if t.slots(shared, 2 * TILE_DEPTH) >= FEWEST_SLOTS]
        if not options:
            return None
        tiles, last = self.pick(sorted(options, key=lambda option: option[0])), columns[-1]
        self.set(rows[0], tiles.rows // 8, 8 * tiles.down)
        self._set_columns(columns, tiles.width)
        self.set(last, self.tile[last] // (8 * tiles.along), 4 * tiles.along, 2)
        self.set(k, 2 * TILE_DEPTH // item)
        schedule = self.schedule([a for a in s.grid if a != rows[0]] + rows, dot=True, tensor=True, copied=True,
                                 stages=tiles.slots(shared, 2 * TILE_DEPTH), resident=tiles.resident, tf32=item == 4)
        return schedule.with_axis(rows[0], warps=tiles.down).with_axis(last, warps=tiles.along)

    def _deals(self, columns: list[int], tiles: WarpTiles) -> bool:
        """Whether the last axis of a tile's columns has 16 or a power of two as many for each warp."""
        if not self._fits_columns(columns, tiles.width):
            return False
        each, left = divmod(self._tiles_of(columns, tiles.width)[columns[-1]], 16 * tiles.along)
        return not left and (tiles.along == 1 or each & (each - 1) == 0)

    def _staged(self, roles: Roles, k: int) -> Schedule | None:
        """Products of f32 by multiply-adds, operands through rings; None where they cannot be fetched so or it is slower."""
        s = self.structure
        stage = s.stages[0]
        row = max((a for a in roles.left if s.extents[a] != linear(1)), key=lambda a: largest(s, a), default=None)
        columns = [a for a in roles.right if s.extents[a] != linear(1)]
        if not (len(s.stages) == 1 and not s.inner and not s.nested and row is not None and columns
                and len(roles.reduced) == 1 and all(r.contraction for r in stage) and largest(s, row) > FEW_ROWS
                and row not in s.mirrored and largest(s, k) >= DEPTH):
            return None
        lefts: list[Access] = []
        rights: list[Access] = []
        for reduction in stage:
            product = defining_op(reduction.op.operand)
            if product.bounds is not None or any(defining_op(v) is not None for v in product.operands) or \
                    {str(primop.element_type(v)) for v in product.operands} != {"f32"}:
                return None
            left, right = contraction_operands(s, reduction)
            lefts, rights = [*lefts, *left], [*rights, *right]
        if not lefts or not rights:
            return None
        by_tma = all(lies_along(a, row, k, DEPTH, s) for a in lefts)
        by_all = all(in_pieces(a, k, s, F32_STEP) for a in lefts)
        ways = (  # copied by all threads, across the depth, and whether that can be; roles need registers to hand over
            (False, False, self.target.wgmma and by_tma and all(lies_along(a, columns[-1], k, DEPTH, s) for a in rights)),
            (False, True, self.target.wgmma and by_tma and len(columns) == 1 and all(
                lies_across(a, columns[0], k, DEPTH, s) for a in rights)),
            (True, False, by_all and all(in_pieces(a, k, s, F32_STEP) for a in rights)),
            (True, True, by_all and len(columns) == 1 and all(in_pieces(a, columns[0], s, F32_STEP) for a in rights)))
        copied, across = next((way[:2] for way in ways if way[2]), (None, None))
        if copied is None:
            return None
        steps, sms, shared = -(-largest(s, k) // DEPTH), self.target.multiprocessors, self.target.shared_bytes
        timed: list[tuple[float, Tiling]] = []
        for t in tilings(len(stage)):
            tiles = self._tiles_of(columns, t.width)
            if self._fits_columns(columns, t.width) and tiles[columns[-1]] >= COLUMNS_OF_THREADS * t.groups and \
                    t.stages(shared) >= FEWEST_SLOTS and (across or is_run(rights, tiles)) and (t.split == 1 or (
                        not (across or copied) and s.extents[k].is_constant and s.extents[k].constant % (DEPTH * t.split) == 0
                        and t.stages(shared) >= FEWEST_STAGES)):
                timed.append((t.cycles(self._tensor_programs(row, columns, t.height, t.width), steps, sms), t))
        straight = straight_cycles(self._tensor_programs(row, columns, STRAIGHT_TILE, STRAIGHT_TILE), steps, len(stage), sms)
        if not timed or straight <= min(timed)[0]:
            return None
        options = [(time, str(t), t) for time, t in sorted(timed)[:MOST_TILINGS]]
        chosen, last = self.pick(options), columns[-1]
        tiles, threads = self._tiles_of(columns, chosen.width), COLUMNS_OF_THREADS * chosen.groups
        self.set(row, chosen.rows, ROWS_OF_THREADS)
        for a, size in tiles.items():
            self.set(a, size)
        vector = min(4, tiles[last] // threads, self._vector(last, [a for a in s.accesses if a not in (*lefts, *rights)]))
        self.set(last, tiles[last] // (threads * vector), threads, vector)
        self.set(k, DEPTH)
        programs, workers = self._tensor_programs(row, columns, chosen.height, chosen.width), sms * chosen.resident
        walked = chosen.split == 1 and not copied and programs > PERSISTENT_WAVES * workers
        schedule = self.schedule([a for a in s.grid if a != row] + [row], dot=True, staged=True, copied=copied,
                                 stages=min(MOST_STAGES, chosen.stages(shared)), resident=chosen.resident,
                                 persistent=workers if walked else 0, split=chosen.split)
        return schedule.with_axis(last, warps=4 * chosen.groups)

    def _tiles_of(self, columns: list[int], width: int) -> dict[int, int]:
        """A tile of `width` columns as tiles of the axes that it runs over."""
        tiles: dict[int, int] = {}
        for a in reversed(columns):
            tiles[a] = min(largest(self.structure, a), width) if self.structure.extents[a].is_constant else width
            width //= tiles[a]
        return {a: tiles[a] for a in columns}

    def _in_rows(self, access: Access, row: int, k: int, depth: int) -> bool:
        """Whether TMA can step through an access, at multiples of 16 bytes, and reads zero past the end of the reduced axis:
        that is a whole number of tiles, or the end of a row in memory."""
        size, length, start = _bytes(access), self.structure.extents[k].constant, access.offset.constant
        steps, width = [c for atom, c in access.offset.terms if atom != Dim(k)], access.offset.coefficient(Dim(row))
        ends = length % depth == 0 or (width == length + start and all(c % width == 0 for c in steps))
        return ends and all(c * size % 16 == 0 for c in (*steps, start))

    def _widths(self, columns: list[int]) -> list[int]:
        """The widths that tiles of a product by wgmma may have: powers of two, otherwise what rows that are taken apart allow,
        such as those of a rotary embedding with heads of 96. Their rows must be at equal distances in memory."""
        rights = [a for r in self.structure.stages[0] for a in contraction_operands(self.structure, r)[1]]
        for widths in ((256, 128, 64, 32), range(256, 31, -8)):
            found = [w for w in widths if self._fits_columns(columns, w) and is_run(rights, self._tiles_of(columns, w))]
            if found:
                return found
        return []

    def _fits_columns(self, columns: list[int], width: int) -> bool:
        """Whether a tile of `width` columns is a run of whole axes, with all that are mirrored, and a part of the next."""
        s = self.structure
        if columns[-1] in s.mirrored:
            return False
        for i, a in reversed(list(enumerate(columns))):
            size = largest(s, a)
            if not s.extents[a].is_constant or size >= width:
                return not s.mirrored & {*columns[:i], *([a] if size > width else [])}
            if width % size or (a == columns[-1] and size % 8):
                return False
            width //= size
        return False

    def _set_columns(self, columns: list[int], width: int) -> None:
        for a in reversed(columns):
            size = min(largest(self.structure, a), width) if self.structure.extents[a].is_constant else width
            self.set(a, size // 8, 4, 2) if a == columns[-1] else self.set(a, size)
            width //= size

    def _tensor_programs(self, row: int, columns: list[int], height: int, width: int) -> int:
        """Programs of a product in tiles of height x width, at the largest lengths."""
        s = self.structure
        others = prod(largest(s, a) for a in s.grid if a not in (row, *columns))
        return -(-largest(s, row) // height) * -(-prod(largest(s, a) for a in columns) // width) * others

    def _tensor_time(self, row: int, columns: list[int], k: int, tiles: _Tiles, item: int) -> float:
        """Cycles that a product of elements of `item` bytes takes: waves of blocks, each at the rate of its slowest part.

        A step along the depth is 128 bytes, in f32 half as many elements at half the rate.

        With few rows nothing is faster than reading the matrix; of the shapes that are as fast, the one with least to do.
        """
        s, width = self.structure, tiles.width * tiles.together
        steps = -(-largest(s, k) * item // (2 * TILE_DEPTH * tiles.split))
        multiply = tiles.height * width * TILE_DEPTH / MULTIPLY_ADDS
        fetched = 2 * TILE_DEPTH * (min(tiles.height, largest(s, row)) + width)
        step = max(multiply, fetched / FETCHED_BYTES, tiles.slot / FILLED_BYTES)
        exchange = EXCHANGE_CYCLES + tiles.exchanged / EXCHANGED_BYTES if tiles.split > 1 else 0
        blocks = self._tensor_programs(row, columns, tiles.height, tiles.width) * tiles.split
        waves = -(-blocks // self.target.multiprocessors)
        time = waves * (steps * step + FIXED_CYCLES + exchange)
        if largest(s, row) > FEW_ROWS:
            return time
        read = float(item) * largest(s, k) * prod(largest(s, a) for a in columns) * tiles.together
        return max(time, read / (READ_BYTES * self.target.multiprocessors)) + time / 1000

    def _warps_time(self, row: int, columns: list[int], k: int, warps: int, height: int, width: int, together: int,
                    depth: int) -> float:
        """The same where each warp reads its operands itself, `depth` at a time, so that all warps read those of a column."""
        steps = -(-largest(self.structure, k) // depth)
        multiply = height * width * together * 32 / WARP_PRODUCTS
        fetch = 64 * (height + warps * width * together) / FETCHED_BYTES
        blocks = self._tensor_programs(row, columns, height, width)
        return -(-blocks // self.target.multiprocessors) * steps * max(multiply, fetch) + FIXED_CYCLES

    def _vector_matrix(self, k: int, n: int, matrix: Sequence[Access]) -> Schedule:
        """One row times a matrix that is contiguous along what is kept: threads along both, partial sums over k."""
        vector = self._vector(n, matrix)
        threads = next(t for t in (32, 16, 8, 4, 2, 1) if t == 1 or t * vector <= largest(self.structure, n))
        self.set(n, 1, threads, vector)
        self.set(k, 2 * LOADS_IN_FLIGHT, GPU_THREADS // threads, 1)
        return self.schedule(dot=True)


def _row_bytes(width: int) -> int:
    """Of a row of 16-bit elements in shared memory: whole spans of a swizzle."""
    return 2 * -(-width // TILE_DEPTH) * TILE_DEPTH


def _bytes(access: Access) -> int:
    return _width(access.buffer)


def _width(value: ir.Value) -> int:
    return {"f32": 4, "i32": 4, "i64": 8, "i1": 1}.get(str(primop.element_type(value)), 2)


def _is_aligned_run(access: Access, axis: int, size: int, structure: Structure) -> bool:
    """Whether `size` neighbours along an axis are a run of memory that begins at a multiple of its length."""
    offset = access.offset
    return is_contiguous(offset, [(axis, size)], structure.ranges) and offset.constant % size == 0 and \
        all(c % size == 0 for atom, c in offset.terms if Dim(axis) not in Linear(0, ((atom, 1),)).atoms())
