"""Rings that all threads of a block fill, 16 bytes at a time, and products by each warp's tensor core out of them.

A row of a slot has 128 bytes, swizzled as TMA would put them: 16 bytes number c of row r lie at place c xor (r mod 8), so
that eight rows at one column lie in all banks. A product of 16 x 16 x 16 takes four matrices of 8 x 8 of each operand, read
by one instruction to which each lane gives the address of a row. What a thread's position adds to an address and what its
registers add never share a bit of the place: an address is (start of the thread xor a constant) + a constant. Of f32, read as
TF32, such a matrix holds 8 x 4, of which a lane gets one element, as the instruction wants it.

A fetch is ordered after the reads of what lay in its slot by the barrier of the wait in between, where there is more than
one slot; with one slot, by a barrier at the release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from mlir import ir
from mlir.dialects import arith

from tilec.dialects import kernel, tile
from tilec.dialects.index_expr import Dim, Linear, map_results
from tilec.dialects.kernel import PIECE_BYTES, ROW_BYTES, STEP_BYTES
from tilec.dialects.schedule import Schedule
from tilec.pipelines.layouts import Coordinates, Fragments, words_of
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.primop.structure import offset_of
from tilec.pipelines.shared_products import SharedProducts
from tilec.pipelines.thread_reductions import WARP, in_space
from tilec.pipelines.tile import op_before
from tilec.runtime.artifact import ITEM_BYTES

PLACES = ROW_BYTES // PIECE_BYTES  # of a row
ROW = 64  # 16-bit words of a row


def multiplied_words(element: ir.Type, left: list[ir.Value], right: list[ir.Value], acc: list[ir.Value]) -> list[ir.Value]:
    """One product of a warp's tensor core added to four sums of each lane."""
    made = kernel.Mma(element=element, lhs=left, rhs=right, acc=acc, result_=[v.type for v in acc])
    return list(made.operation.results)


def blocks_of(columns: int, element: ir.Type, schedule: Schedule) -> int:
    """How many rows of 128 bytes side by side a row of a tile takes; no product reads what is beside the tile in the last."""
    size = columns * ITEM_BYTES[str(element)]
    whole = ROW_BYTES if schedule.staged else STEP_BYTES
    if size % whole:
        raise PassFailure(f"rows of a tile in shared memory must be multiples of {whole} bytes, but are {columns} x {element}",
                          ir.Location.current)
    return -(-size // ROW_BYTES)


@dataclass
class _CopiedRing:
    slots: int
    rows: int
    columns: int
    blocks: int  # of 128-byte rows, side by side
    elements: int
    memory: ir.Value


@dataclass(frozen=True)
class _Matrices:
    """Where this lane's row of an operand's matrices begins: `start` counts 16-bit words, the swizzle already in it."""

    memory: ir.Value
    start: ir.Value
    rows: int  # of the slot
    transposed: bool

    def further(self, row: int, step: int) -> tuple[int, int]:
        """(xor, plus): what the matrices from row `row` on have at step `step` of the depth, in places and in words."""
        along, across = (row // 8, 16 * step) if self.transposed else (2 * step, row)
        block, place = divmod(along, PLACES)
        return place, (block * self.rows + across) * ROW


class CopiedTiles(SharedProducts):
    """Lowers rings, fetches and products where all threads fetch."""

    def __init__(self, schedule: Schedule, padded: bool) -> None:
        super().__init__(schedule, padded)
        self.places = {}  # of slots: memory and offset
        self.copied_rings: dict[ir.Value, _CopiedRing] = {}

    def lower_copied(self, op: ir.OpView) -> bool:
        """Lowers an op if it is one of these."""
        if isinstance(op, tile.Ring):
            self.copied_rings[op.result] = self._copied_ring(op)
        elif isinstance(op, tile.Fetch):
            self._copy(op)
        elif isinstance(op, tile.Commit):
            kernel.CommitCopies()
        elif isinstance(op, tile.Await):
            self._arrived(op)
        elif isinstance(op, tile.Release):
            if self.copied_rings[op.ring].slots == 1 and not isinstance(op_before(op), tile.Release):
                kernel.Barrier()
        elif isinstance(op, tile.DotShared) and self.schedule.tensor:
            self.tiles[op.result] = self._warp_products(op)
        else:
            return False
        return True

    # Copies -----------------------------------------------------------------------------------------------------------

    def _copied_ring(self, op: tile.Ring) -> _CopiedRing:
        kind = ir.MemRefType(op.result.type)
        slots, rows, columns = kind.shape
        blocks = blocks_of(columns, kind.element_type, self.schedule)
        elements = rows * blocks * ROW_BYTES // ITEM_BYTES[str(kind.element_type)]
        memory = kernel.Shared(symbol=f"ring{len(self.copied_rings)}", align=1024, result=ir.MemRefType.get(
            [slots * elements], kind.element_type, memory_space=in_space(kernel.SHARED))).result
        return _CopiedRing(slots, rows, columns, blocks, elements, memory)

    def _slot(self, ring: _CopiedRing, turn: ir.Value) -> ir.Value:
        """Where the slot of a turn begins."""
        number = self.scalars[turn]
        slot = self.remember(("slot", number, ring.slots), lambda: arith.remui(number, self._index(ring.slots)))
        return self._scaled(slot, ring.elements)

    def _copy(self, op: tile.Fetch) -> None:
        """Thread t copies place t mod 8 of row t floordiv 8, and of rows further on until all have been."""
        ring, threads = self.copied_rings[op.ring], self.schedule.threads
        wide = PIECE_BYTES // ITEM_BYTES[str(ir.MemRefType(op.source.type).element_type)]
        offset = offset_of(map_results(op.map), list(ir.MemRefType(op.source.type).shape))
        if offset.coefficient(Dim(op.column)) != 1 or Dim(op.column) in offset.nonlinear_atoms():
            raise PassFailure("a tile must be contiguous along its columns", op.operation.location)
        values = [self.scalars[v] for v in op.origin]
        symbols, slot = values[op.map.n_dims:], self._slot(ring, op.turn)
        place = arith.remui(self.thread_number, self._index(PLACES))
        first = arith.divui(self.thread_number, self._index(PLACES))
        at_once = threads // PLACES
        for start in range(0, ring.rows, at_once):
            row = self._at((first, start))
            swizzled = arith.xori(place, arith.remui(row, self._index(8)))
            into = arith.addi(slot, arith.addi(self._scaled(row, PLACES * wide), self._scaled(swizzled, wide)))
            inside = self._is_below(row, ring.rows) if start + at_once > ring.rows else None
            origins = list(values[:op.map.n_dims])
            self._step(origins, op.rows, row)
            exists = self._exists(op.rows, origins)
            for block in range(ring.blocks):
                origins[op.column] = arith.addi(values[op.column], self._at((self._scaled(place, wide), block * PLACES * wide)))
                left = ring.columns // wide - block * PLACES
                with self._when(inside, self._is_below(place, left) if left < PLACES else None):
                    kernel.CopyAsync(
                        element=ir.MemRefType(op.source.type).element_type, buffer=ring.memory,
                        offset=self._at((into, block * ring.rows * PLACES * wide)),
                        source=self.scalars[op.source], place=self.apply(offset, origins, symbols),
                        bytes=self._bytes(op.column, origins, exists, wide))

    def _step(self, origins: list[ir.Value], rows: Sequence[int], row: ir.Value) -> None:
        """Moves the origins of the axes along which a slot's rows run to row number `row`."""
        for position, axis in reversed(list(enumerate(rows))):
            digit = row
            if position:
                size = self._index(self.schedule.axes[axis].tile)
                digit, row = arith.remui(row, size), arith.divui(row, size)
            origins[axis] = arith.addi(origins[axis], digit)

    def _end(self, axis: int) -> Linear | None:
        """Where an axis ends, unless it is a whole number of tiles."""
        extent, size = self.schedule.axes[axis].extent, self.schedule.axes[axis].tile
        return None if extent.is_constant and extent.constant % size == 0 else extent

    def _exists(self, rows: Sequence[int], origins: Sequence[ir.Value]) -> ir.Value | None:
        found = None
        for axis in rows:
            if (end := self._end(axis)) is not None:
                below = arith.cmpi(arith.CmpIPredicate.ult, origins[axis], self.extent(end))
                found = below if found is None else arith.andi(found, below)
        return found

    def _bytes(self, column: int, origins: Sequence[ir.Value], exists: ir.Value | None, wide: int) -> ir.Value:
        """How many of 16 bytes exist."""
        whole = self._index(PIECE_BYTES)
        if (end := self._end(column)) is not None:
            if end.is_constant and end.constant % wide == 0:
                below = arith.cmpi(arith.CmpIPredicate.ult, origins[column], self.extent(end))
                exists = below if exists is None else arith.andi(exists, below)
            else:
                left = arith.maxsi(arith.subi(self.extent(end), origins[column]), self._index(0))
                whole = arith.minsi(self._scaled(left, PIECE_BYTES // wide), whole)
        return whole if exists is None else arith.select(exists, whole, self._index(0))

    def _is_below(self, value: ir.Value, number: int) -> ir.Value:
        return arith.cmpi(arith.CmpIPredicate.ult, value, self._index(number))

    def _arrived(self, op: tile.Await) -> None:
        ring = self.copied_rings[op.ring]
        if not isinstance(op_before(op), tile.Await):
            kernel.WaitCopies(later=op.later or 0)
            kernel.Barrier()
        self.places[op.result] = (ring.memory, self._slot(ring, op.turn))

    # Products ---------------------------------------------------------------------------------------------------------

    def _warp_products(self, op: tile.DotShared) -> Fragments:
        """acc + lhs rhs^T in steps of 32 bytes along the depth, in ascending order."""
        acc, held = self.tiles[op.acc], ir.MemRefType(op.rhs.type).element_type
        element = self.multiplied(held)
        rows, columns = list(op.lhs_rows), list(op.rhs_rows)
        row, column = rows[-1], columns[-1]
        registers = acc.layout.registers
        if acc.layout.length != 2 or acc.layout.box[column] != 2 or registers[row] % 2 or registers[column] % 2 or \
                any(self.schedule.axes[a].threads > 1 for a in (*rows[:-1], *columns[:-1])):
            raise PassFailure("the layout of a tile is not that of tensor cores' results", op.operation.location)
        depth = ir.MemRefType(op.rhs.type).shape[0 if op.transposed else 1]
        right = self._matrices(op.rhs, column, 4, bool(op.transposed))
        left = None if op.lhs in self.tiles else self._matrices(op.lhs, row, 8, bool(op.lhs_transposed))
        steps = {a: prod(self.schedule.axes[b].tile for b in columns[i + 1:]) for i, a in enumerate(columns)}
        sums = {at: self._scalars(value) for at, value in acc.values.items()}
        own = self._words_of_rows(op) if left is None else {}
        for step in range(depth * ITEM_BYTES[str(held)] // 32):
            words: dict[Coordinates, list[ir.Value]] = {}
            for at in acc.layout.coordinates():
                if at[row] % 2 == 0 and (key := tuple(at[a] for a in rows)) not in words:
                    words[key] = own[key][4 * step:4 * step + 4] if left is None else self.remember(
                        ("left", op.lhs, at[row], step), partial(self._load, left, 8 * at[row], step))
            for at in acc.layout.coordinates():
                if at[column] % 2 or any(at[a] for a in rows):
                    continue
                number = sum(step_ * at[a] for a, step_ in steps.items() if a != column) + 8 * at[column]
                read = self._load(right, number, step)
                for key, lhs in words.items():
                    for further, rhs in enumerate((read[:2], read[2:])):
                        upper = tuple(key[rows.index(a)] if a in rows else n + further if a == column else n
                                      for a, n in enumerate(at))
                        lower = tuple(n + 1 if a == row else n for a, n in enumerate(upper))
                        results = multiplied_words(element, lhs, rhs, [*sums[upper], *sums[lower]])
                        sums[upper], sums[lower] = results[:2], results[2:]
        values = self._gathered(acc.values, [s for at in acc.values for s in sums[at]])
        return Fragments(acc.layout, acc.element, values)

    def multiplied(self, element: ir.Type) -> ir.Type:
        """As what tensor cores read elements: f32 as TF32, if the schedule says so."""
        if str(element) != "f32":
            return element
        if not self.schedule.tf32:
            raise PassFailure("tensor cores read f32 only as TF32, which this schedule does not ask for", ir.Location.current)
        return ir.FloatTF32Type.get()

    def _matrices(self, slot: ir.Value, axis: int, lanes: int, transposed: bool) -> _Matrices:
        """This lane's row of the first four matrices of its warp.

        The matrices of a right operand are, in the order of the lanes: two along the depth, then the same of 8 columns
        further; of a left operand two along the rows, then the same of 8 further along the depth.
        """
        memory, offset = self.places[slot]
        offset = self._scaled(offset, ITEM_BYTES[str(ir.MemRefType(slot.type).element_type)] // 2)
        lane = arith.remui(self.thread_number, self._index(WARP))
        inside, fourth = arith.remui(lane, self._index(8)), arith.divui(lane, self._index(8))
        odd, high = arith.remui(fourth, self._index(2)), arith.divui(fourth, self._index(2))
        first = self._index(0)  # row of the slot where the warp's part begins
        dealt = self.schedule.axes[axis]
        if dealt.warps > 1:
            registers = dealt.tile // dealt.warps // 8
            if transposed and registers & (registers - 1):
                raise PassFailure("what lies across the depth must be dealt to warps in powers of two", ir.Location.current)
            warp = arith.divui(self.coordinates[axis], self._index(lanes))
            first = self._scaled(warp, dealt.tile // dealt.warps)
        if transposed:  # along the depth by rows, along what is kept by places
            deep, further = (odd, high) if lanes == 4 else (high, odd)
            row = arith.addi(inside, self._scaled(deep, 8))
            place = arith.addi(arith.divui(first, self._index(8)), further)
            block, place = arith.divui(place, self._index(PLACES)), arith.remui(place, self._index(PLACES))
            row = arith.addi(row, self._scaled(block, ir.MemRefType(slot.type).shape[0]))
        elif lanes == 4:
            row, place = arith.addi(arith.addi(first, inside), self._scaled(high, 8)), odd
        else:
            row, place = arith.addi(arith.addi(first, inside), self._scaled(odd, 8)), high
        swizzled = arith.xori(place, inside)
        start = arith.addi(self._scaled(row, ROW), self._scaled(swizzled, ROW // PLACES))
        return _Matrices(memory, arith.addi(offset, start), ir.MemRefType(slot.type).shape[0], transposed)

    def _load(self, matrices: _Matrices, row: int, step: int) -> list[ir.Value]:
        place, further = matrices.further(row, step)
        start, word = matrices.start, ir.IntegerType.get_signless(32)
        if place:
            start = self.remember(("swizzled", start, place),
                                  lambda: arith.xori(matrices.start, self._index(place * ROW // PLACES)))
        read = kernel.LoadMatrix(transposed=True if matrices.transposed else None, buffer=matrices.memory,
                                 offset=self._at((start, further)), result_=[word] * 4)
        return list(read.operation.results)

    def _words_of_rows(self, op: tile.DotShared) -> dict[Coordinates, list[ir.Value]]:
        """A left operand in registers: of every pair of rows the words of all steps, in the order of the instruction."""
        source, rows = self.tiles[op.lhs], list(op.lhs_rows)
        reduced = [i for i, n in enumerate(op.lhs.type.shape) if n > 1 and i not in rows]
        if source.layout.length != 2 or ITEM_BYTES[str(source.element)] != 2 or len(reduced) != 1 or \
                source.layout.box[reduced[0]] != 2:
            raise PassFailure("the layout of a tile is not that of tensor cores' operands", op.operation.location)
        found: dict[Coordinates, list[ir.Value]] = {}
        for at in sorted(source.layout.coordinates(), key=lambda at: (at[reduced[0]], *(at[a] for a in rows))):
            key = tuple(at[a] - at[a] % 2 if a == rows[-1] else at[a] for a in rows)
            found.setdefault(key, []).extend(words_of(source.values[at]))
        return found


    # What the frame gives ---------------------------------------------------------------------------------------------

    def extent(self, expr: Linear) -> ir.Value:
        """The value of an extent."""
        raise NotImplementedError
