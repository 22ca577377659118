"""Products of matrices on a GPU: which of its ways to multiply suit the operands, and in which tiles.

By wgmma, operands through TMA rings (`_tensor`); by mma.sync, operands copied to rings by all threads (`_copied`) or straight
from memory (`_warps`); in f32 by multiply-adds out of rings (`_staged`). Each is None where a rule of the hardware stands
against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Dim, Linear, linear
from tilec.dialects.schedule import Schedule
from tilec.pipelines.cost.fetches import F32_STEP, in_pieces, is_run, lies_across, lies_along
from tilec.pipelines.cost.few_rows import MOST_REGISTERS, NEARLY, FewRows
from tilec.pipelines.cost.group_tiles import GroupTiles
from tilec.pipelines.cost.multiply_adds import (
    COLUMNS_OF_THREADS,
    DEPTH,
    ROWS_OF_THREADS,
    STRAIGHT_TILE,
    Tiling,
    straight_cycles,
    tilings,
)
from tilec.pipelines.cost.plan import Plan, Roles, contraction_operands, largest, nearly_best
from tilec.pipelines.cost.rates import (
    APART_MULTIPLY_ADDS,
    FETCHED_BYTES,
    FEW_ROWS,
    FIXED_CYCLES,
    MULTIPLY_ADDS,
    READ_BYTES,
    SHARED_BYTES,
    TILE_DEPTH,
    WARP_PRODUCTS,
    exchange_cycles,
)
from tilec.pipelines.cost.warp_tiles import FEWEST_SLOTS, WarpTiles, warp_tiles
from tilec.pipelines.primop.structure import Access, Reduction, Structure, defining_op, is_contiguous
from tilec.pipelines.targets import GpuTarget

MOST_STAGES, MOST_OF_GROUPS = 6, 8  # of rings; of products by groups of warps, whose smallest tiles come late
PERSISTENT_WAVES = 1  # programs of each block beyond which it pays to walk over them
AS_FAST = 1.1  # times the least: what may come first if it is preferred
FEWEST_STAGES = 3  # with which a product hides the latency of its operands
MOST_TERMS = 64  # of what scales a row that four lanes hold while products are made
MOST_TILINGS = 6  # of a product by multiply-adds that are considered


class Products(Plan):
    """The part of a GPU's plan that multiplies matrices."""

    def __init__(self, structure: Structure, target: GpuTarget, take: int = 0, known: dict[str, Any] | None = None) -> None:
        super().__init__(structure, take, known)
        self.target = target

    def _vector(self, axis: int, accesses: Sequence[Access]) -> int:
        """Elements of one 16-byte access along an axis, fewer where some access or the extent does not allow it."""
        s = self.structure
        for size in (8, 4, 2):
            widest = max((bytes_of(a) for a in accesses if is_contiguous(a.offset, [(axis, 2)], s.ranges)), default=16)
            fits = all(_is_aligned_run(a, axis, size, s) or Dim(axis) not in a.offset.atoms()
                       or not is_contiguous(a.offset, [(axis, 2)], s.ranges) for a in accesses)
            if size * widest <= 32 and fits and s.extents[axis].is_constant and s.extents[axis].constant % size == 0:
                return size
        return 1

    def _tensor(self, roles: Roles, k: int) -> Schedule | None:
        """Products by tensor cores, operands by TMA through rings; None where a rule of the hardware stands against it."""
        s = self.structure
        stage, rows, columns = s.stages[0], *self._sides(roles)
        if not (self.target.wgmma and len(rows) == 1 and columns and (item := self._multiplied_bytes(stage))
                and s.extents[k].is_constant and s.extents[k].constant >= (depth := 2 * TILE_DEPTH // item)):
            return None
        for reduction in stage:
            product = defining_op(reduction.op.operand)
            if product.bounds is not None or any(defining_op(v) is not None for v in product.operands):
                return None
            if not all(self.contiguous(side, (k, depth)) and all(self._in_rows(a, row, k, depth) for a in side)
                       for side, row in zip(contraction_operands(s, reduction), (rows[0], columns[-1]), strict=True)):
                return None
        shared = self.target.shared_bytes - (8 << 10)
        ordered = self.once("tensor", lambda: self._tensor_shapes(rows[0], columns, k, item, shared))
        if not ordered:
            return None
        tiles = self.pick([(time, str(t), t) for time, (_, t) in ordered])
        programs = self._tensor_programs(rows[0], columns, tiles.height, tiles.width)
        sms = self.target.multiprocessors
        self.set(rows[0], 2, 32 * tiles.groups)
        self._set_columns(columns, tiles.width)
        self.set(k, depth)
        order = [a for a in s.grid if a != rows[0]] + [rows[0]]
        walked = programs > PERSISTENT_WAVES * sms and tiles.split == 1
        schedule = self.schedule(order, dot=True, tensor=True, stages=min(MOST_OF_GROUPS, tiles.slots(shared)),
                                 persistent=sms if walked else 0, split=tiles.split, tf32=item == 4)
        return self._with_factors(schedule.with_axis(rows[0], warps=4 * tiles.groups), columns, k)

    def _tensor_shapes(self, row: int, columns: list[int], k: int, item: int,
                       shared: int) -> list[tuple[float, tuple[float, GroupTiles]]]:
        """Tiles with their cycles and with what these would be if memory were faster. Of those that are nearly as fast the
        tallest come first: the matrix, which is in memory, is then read once."""
        s, together, depth = self.structure, len(self.structure.stages[0]), 2 * TILE_DEPTH // item
        length, height = s.extents[k].constant, largest(s, row)
        shapes = [GroupTiles(split, groups, width, together)
                  for groups in (2, 1) for width in self._widths(columns) for split in (1, 2, 4)
                  if width * together <= 256 and (split == 1 or length % (depth * split) == 0)]
        timed = ((time, (if_memory_were_faster, t)) for t in shapes if t.split == 1 or t.slots(shared) >= FEWEST_STAGES
                 for time, if_memory_were_faster in [self._tensor_time(row, columns, k, t, item)])
        return nearly_best(timed, AS_FAST, lambda x: -min(x[1].height, height))

    def _with_factors(self, schedule: Schedule, columns: Sequence[int], k: int) -> Schedule:
        """A schedule that adds up factors of rows on the four lanes that share a row of a result or, where warps share the
        depth, wherever that lies."""
        warps = schedule.axes[k].warps
        lanes, most, place = 4 * warps, MOST_TERMS * warps, schedule.axes[columns[-1] if warps == 1 else k].name
        for axis, reads, vector in self._terms_of_factors():
            length = largest(self.structure, axis)
            if not any(Dim(c) in a.offset.atoms() for a in reads for c in columns):
                while vector > 1 and length <= most and length % (lanes * vector):
                    vector //= 2
                size = min(-(-length // (lanes * vector)) * lanes * vector, most)
                schedule = schedule.with_axis(axis, tile=size, threads=lanes, vector=vector, lanes_of=place, warps=warps)
        return schedule

    def _terms_of_factors(self) -> Iterator[tuple[int, list[Access], int]]:
        """The axes of sums that scale rows, what is read along them, and how many of their terms lie in one read."""
        for (axis,) in (f.axes for f in self.structure.factors):
            reads = [a for a in self.structure.accesses if Dim(axis) in a.offset.atoms()]
            yield axis, reads, min(4, self._vector(axis, reads))

    def _sides(self, roles: Roles) -> tuple[list[int], list[int]]:
        """The axes of rows and of columns of one loop of products over one axis; none where a plan of products does not fit:
        also not where a result is read at mirrored rows, because a thread holds a part of them."""
        s = self.structure
        rows, columns = ([a for a in side if s.extents[a] != linear(1)] for side in (roles.left, roles.right))
        fits = len(s.stages) == 1 and not s.inner and not s.nested and len(roles.reduced) == 1 and \
            all(r.contraction for r in s.stages[0]) and not s.mirrored & {*rows}
        return (rows, columns) if fits else ([], [])

    def _multiplied_bytes(self, stage: Sequence[Reduction]) -> int:
        """The size of the elements of products if tensor cores can make them, else 0: of f32 only where TF32 is allowed."""
        types = multiplied_types([r.op for r in stage])
        return 2 if types <= {"bf16", "f16"} else 4 if types == {"f32"} and self.structure.tf32 else 0

    def _warps(self, roles: Roles, k: int) -> Schedule | None:
        """Products by the tensor core of each warp, operands straight from memory in 16-byte runs along the depth."""
        s = self.structure
        rows, columns = self._sides(roles)
        if len(rows) != 1 or not columns or not (item := self._multiplied_bytes(s.stages[0])):
            return None
        run = 16 // item
        for reduction in s.stages[0]:
            sides = contraction_operands(s, reduction)
            if defining_op(reduction.op.operand).bounds is not None or \
                    not all(side and self._vector(k, side) >= run for side in sides):
                return None
        few, together = largest(s, rows[0]) <= FEW_ROWS, len(s.stages[0])
        sizes, most = ((8, 16, 32, 64, 128), 128) if few else ((64, 32, 16, 8), 64)
        cut = {w: t for w in sizes if w * together <= most and (t := self._tiles_of_warps(columns, w))}
        if not cut:
            return None
        tiles = [FewRows(w, parts, together, run, largest(s, k), bool(s.mirrored)) for w in cut for parts in (1, 2, 4, 8)
                 if parts == 1 or largest(s, k) % (4 * run * parts) == 0] if few else []
        tall = [w for w in (4, 2, 1) if largest(s, rows[0]) > 16 * w or w == 1]
        options: list[tuple[float, str, tuple[int, int, FewRows | None]]] = [
            (time, str(t), (1, t.width, t)) for time, t in nearly_best(
                ((t.cycles(self._tensor_programs(rows[0], columns, FEW_ROWS, t.width), item, self.target.multiprocessors), t)
                 for t in tiles if t.registers <= MOST_REGISTERS), NEARLY, lambda t: t.preference)] or [
            (self._warps_time(rows[0], columns, k, m, 32 * m, w, together, 4 * run), f"{32 * m} x {w * together}", (m, w, None))
            for w in cut for m in tall]
        warps, width, shared = self.pick(options)
        self.set(rows[0], 1 if few else 4, 8 * warps)
        paired = shared is not None and shared.paired
        beside = 1 if paired else 2  # columns of a lane that are neighbours
        for a, size in cut[width].items():
            self.set(a, size // (4 * beside), 4, beside) if a == columns[-1] else self.set(a, size)
        parts = shared.parts if shared else 1
        self.set(k, shared.deep if shared else 1, 4 * parts, run)
        last = columns[-1]
        # Of few rows the loads fill the registers: without a bound ptxas aims at more blocks than that leaves room for.
        schedule = self.schedule(dot=True, ahead=True, resident=shared.resident if shared else 0, tf32=item == 4)
        schedule = schedule.with_axis(rows[0], warps=warps)
        schedule = self._with_factors(schedule.with_axis(k, lanes_of=schedule.axes[last].name, warps=parts), columns, k)
        place = schedule.axes[rows[0]].name
        twins = [schedule.axes[last].twin(threads=4 if paired else 8, vector=1, lanes_of=place)]
        twins += [schedule.axes[k].twin(threads=8 * parts, lanes_of=place)] if paired else []
        return replace(schedule, axes=(*schedule.axes, *twins))

    def _copied(self, roles: Roles, k: int) -> Schedule | None:
        """Products by each warp's tensor core, operands copied to shared memory; None where 16 bytes do not fit."""
        s = self.structure
        stage, rows, columns = s.stages[0], *self._sides(roles)
        if len(rows) != 1 or not columns or largest(s, rows[0]) <= FEW_ROWS or not (item := self._multiplied_bytes(stage)):
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
        schedule = schedule.with_axis(rows[0], warps=tiles.down).with_axis(last, warps=tiles.along)
        return self._with_factors(schedule, columns, k)

    def _deals(self, columns: list[int], tiles: WarpTiles) -> bool:
        """Whether the last axis of a tile's columns has 16 or a power of two as many for each warp."""
        if not self._fits_columns(columns, tiles.width):
            return False
        each, left = divmod(self._tiles_of(columns, tiles.width)[columns[-1]], 16 * tiles.along)
        return not left and (tiles.along == 1 or each & (each - 1) == 0)

    def _staged(self, roles: Roles, k: int) -> Schedule | None:
        """Products of f32 by multiply-adds, operands through rings; None where they cannot be fetched so or it is slower."""
        s = self.structure
        stage, rows, columns = s.stages[0], *self._sides(roles)
        row = max(rows, key=lambda a: largest(s, a), default=None)
        if row is None or not columns or largest(s, row) <= FEW_ROWS or largest(s, k) < DEPTH:
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
                programs = self._tensor_programs(row, columns, t.height, t.width)
                timed.append((t.cycles(programs, steps, self.target.clusters(t.split)), t))
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
        size, length, start = bytes_of(access), self.structure.extents[k].constant, access.offset.constant
        steps, width = [c for atom, c in access.offset.terms if atom != Dim(k)], access.offset.coefficient(Dim(row))
        if width <= 0 or Dim(row) in access.offset.nonlinear_atoms():
            return False
        ends = length % depth == 0 or (width == length + start and all(c % width == 0 for c in steps))
        return ends and all(c * size % 16 == 0 for c in (*steps, start))

    def _widths(self, columns: list[int]) -> list[int]:
        """The widths that tiles of a product by wgmma may have: powers of two, and other multiples of 16 that leave no tile
        cut, whose number may suit the multiprocessors better; otherwise what rows that are taken apart allow, such as those of
        a rotary embedding with heads of 96. Their rows must be at equal distances in memory."""
        s, rights = self.structure, [a for r in self.structure.stages[0] for a in contraction_operands(self.structure, r)[1]]
        whole = prod(largest(s, a) for a in columns)
        even = [w for w in range(256, 31, -16) if w & (w - 1) == 0 or whole % w == 0]
        for widths in (even, range(256, 31, -8)):
            found = [w for w in widths if self._fits_columns(columns, w) and is_run(rights, self._tiles_of(columns, w))]
            if found:
                return found
        return []

    def _fits_columns(self, columns: list[int], width: int) -> bool:
        """Whether a tile of `width` columns is a run of whole axes, with all that are mirrored or summed, and a part of the
        next."""
        s = self.structure
        if columns[-1] in s.mirrored:
            return False
        kept = s.mirrored | s.blocks
        for i, a in reversed(list(enumerate(columns))):
            size = largest(s, a)
            if not s.extents[a].is_constant or size >= width:
                return not kept & {*columns[:i], *([a] if size > width else [])}
            if width % size or (a == columns[-1] and size % 8):
                return False
            width //= size
        return False

    def _tiles_of_warps(self, columns: list[int], width: int) -> dict[int, int]:
        """A tile of `width` columns whose rows threads read for themselves: they need not be a run, so that of an axis beside
        one that is mirrored it may have a part. Empty where there is none."""
        s, last = self.structure, columns[-1]
        if self._fits_columns(columns, width):
            return self._tiles_of(columns, width)
        mirrored = [a for a in columns if a in s.mirrored]
        part = width // prod(largest(s, a) for a in mirrored)
        if not mirrored or last in mirrored or part < 8 or largest(s, last) % part:
            return {}
        return {a: largest(s, a) if a in mirrored else part if a == last else 1 for a in columns}

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

    def _tensor_time(self, row: int, columns: list[int], k: int, tiles: GroupTiles, item: int) -> tuple[float, float]:
        """Cycles that a product of elements of `item` bytes takes, and what they would be if memory were faster: waves of
        blocks, each at the rate of its slowest part, but no less than it takes to read the matrix.

        A step along the depth is 128 bytes, in f32 half as many elements at half the rate.
        """
        s, width = self.structure, tiles.width * tiles.together
        steps = -(-largest(s, k) * item // (2 * TILE_DEPTH * tiles.split))
        multiply = tiles.height * width * TILE_DEPTH / (MULTIPLY_ADDS if tiles.split == 1 else APART_MULTIPLY_ADDS)
        fetched = 2 * TILE_DEPTH * (min(tiles.height, largest(s, row)) + width)
        step = max(multiply, fetched / FETCHED_BYTES, tiles.moved / SHARED_BYTES)
        waves = -(-self._tensor_programs(row, columns, tiles.height, tiles.width) // self.target.clusters(tiles.split))
        cycles = waves * (steps * step + FIXED_CYCLES + exchange_cycles(tiles.height * width, tiles.split))
        matrix = prod(largest(s, a) for a in columns) * tiles.together * largest(s, k) * item
        return max(cycles, matrix / (READ_BYTES * self.target.multiprocessors) + FIXED_CYCLES), cycles

    def _warps_time(self, row: int, columns: list[int], k: int, warps: int, height: int, width: int, together: int,
                    depth: int) -> float:
        """The same where each warp reads its operands itself, `depth` at a time, so that all warps read those of a column."""
        steps = -(-largest(self.structure, k) // depth)
        multiply = height * width * together * 32 / WARP_PRODUCTS
        fetch = 64 * (height + warps * width * together) / FETCHED_BYTES
        blocks = self._tensor_programs(row, columns, height, width)
        return -(-blocks // self.target.multiprocessors) * steps * max(multiply, fetch) + FIXED_CYCLES


def multiplied_types(sums: Iterable[ir.OpView]) -> set[str]:
    """The types of what sums of products multiply."""
    return {str(primop.element_type(v)) for op in sums for v in defining_op(op.operand).operands}


def bytes_of(access: Access) -> int:
    return width_of(access.buffer)


def width_of(value: ir.Value) -> int:
    return {"f32": 4, "i32": 4, "i64": 8, "i1": 1}.get(str(primop.element_type(value)), 2)


def _is_aligned_run(access: Access, axis: int, size: int, structure: Structure) -> bool:
    """Whether `size` neighbours along an axis are a run of memory that begins at a multiple of its length."""
    offset = access.offset
    return is_contiguous(offset, [(axis, size)], structure.ranges) and offset.constant % size == 0 and \
        all(c % size == 0 for atom, c in offset.terms if Dim(axis) not in Linear(0, ((atom, 1),)).atoms())
