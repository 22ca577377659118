"""Products by multiply-adds of all threads, their operands in shared memory as TMA has put them.

A thread reads 16 bytes at a time: four neighbours along the depth of each of its rows and of each of its columns, or, where
the right operand lies as (k, n), neighbouring columns. Rows of 128 bytes are swizzled: 16 bytes number c of row r lie at
place c xor (r mod 8). What a thread's position adds to a row and what its registers add never share a bit, so a place is
(start of the thread xor a constant) + a constant: eight addresses an operand, and the rest is in the instructions.

Which rows a thread has decides how often memory is asked. Lanes beside each other (0 and 1) should have one row, lanes two
apart (0 and 2) one column: then a warp's read takes two accesses instead of four. The cost model deals 16 x 2 threads to a
warp, of which two lanes share each row and 16 each column; the eight rows that half of them read at once lie in all banks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlir import ir
from mlir.dialects import arith

from tilec.dialects import kernel, tile
from tilec.pipelines.epilogues import Epilogues
from tilec.pipelines.layouts import Fragments, Layout
from tilec.pipelines.passes import PassFailure

ROW = kernel.ROW_BYTES // 4  # elements of a row in shared memory
PIECE = kernel.PIECE_BYTES // 4  # elements that are read at once
Key = tuple[tuple[int, int], ...]  # a row of a thread: along each axis a register, and an element of its vector


@dataclass(frozen=True)
class _Side:
    """One operand of a product: its slot, the axes along which its rows are kept, and where this thread's begin.

    `start` counts elements from the beginning of the memory, with the swizzle of the thread's own part already in it.
    """

    memory: ir.Value
    start: ir.Value
    places: dict[Key, int]  # of every row of a thread: what its registers add to the row's number
    rows: int  # of the slot
    run: int  # neighbouring rows of a thread
    transposed: bool


class SharedProducts(Epilogues):
    """Lowers products of operands in shared memory where no tensor core makes them."""

    places: dict[ir.Value, tuple[ir.Value, ir.Value]]
    last_sums: Sequence[ir.Value] = ()  # of which every value that a turn has read is a part

    def multiply_add_shared(self, first: tile.DotShared) -> None:
        """acc + lhs rhs^T, the depth in ascending order, of a product and of those after it that have the same lhs: each
        element of that is read once for all of them."""
        if first.result in self.tiles:
            return
        ops = [o for o in first.operation.block.operations if isinstance(o, tile.DotShared) and o.lhs == first.lhs]
        if any(o.lhs not in self.places or o.rhs not in self.places or o.acc not in self.tiles for o in ops) or \
                any(str(ir.MemRefType(o.rhs.type).element_type) != "f32" for o in ops):
            raise PassFailure("only f32 operands that have come to shared memory are multiplied by multiply-adds",
                              first.operation.location)
        left = self._side(first.lhs, list(first.lhs_rows), self.tiles[first.acc].layout, False)
        products = [_Product(self, op) for op in ops]
        for at in range(0, ir.MemRefType(first.lhs.type).shape[1], PIECE):
            rows = self._read(left, at)
            for product in products:
                product.multiply(rows, self._read(product.right, at))
        for product in products:
            self.tiles[product.op.result] = product.result()
        self.last_sums = [total for product in products for total in product.one_of_each()]

    def _side(self, slot: ir.Value, axes: Sequence[int], layout: Layout, transposed: bool) -> _Side:
        memory, offset = self.places[slot]
        rows, columns = ir.MemRefType(slot.type).shape
        if any(self.schedule.axes[a].tile & (self.schedule.axes[a].tile - 1) for a in axes):
            raise PassFailure("the rows of an operand in shared memory must be dealt in powers of two", ir.Location.current)
        if not transposed and columns != ROW:
            raise PassFailure(f"rows in shared memory must have {ROW} elements, but have {columns}", ir.Location.current)
        steps = {a: prod(self.schedule.axes[b].tile for b in axes[i + 1:]) for i, a in enumerate(axes)}
        own = self._index(0)
        for a, step in steps.items():
            thread = self.thread(a)
            if thread is not None:
                own = arith.addi(own, self._scaled(self._moved(self._index(0), thread, self.schedule.axes[a]), step))
        places = {}
        each = [[(r, i) for r in range(layout.registers[a]) for i in range(layout.box[a])] for a in axes]
        for key in itertools.product(*each):
            numbers = zip(key, axes, strict=True)
            places[key] = sum(steps[a] * (r * self.schedule.axes[a].neighbours * self.schedule.axes[a].vector + i)
                              for (r, i), a in numbers)
        if transposed:  # columns of a row stand side by side, in blocks of ROW
            block, inside = arith.divui(own, self._index(ROW)), arith.remui(own, self._index(ROW))
            start = arith.addi(self._scaled(block, rows * ROW), inside)
        else:
            start = arith.addi(self._scaled(own, columns), self._scaled(arith.remui(own, self._index(8)), PIECE))
        return _Side(memory, arith.addi(offset, start), places, rows, min(layout.box[axes[-1]], PIECE), transposed)

    def _read(self, side: _Side, first: int) -> dict[Key, list[ir.Value]]:
        """Of every row or column of a thread the PIECE elements at depth `first` and on."""
        if not side.transposed:
            return {key: self._scalars(self._piece(side, first // PIECE ^ row % 8, row * ROW, PIECE))
                    for key, row in side.places.items()}
        found: dict[Key, list[ir.Value]] = {key: [] for key in side.places}
        keys = list(side.places)
        for k in range(first, first + PIECE):
            for start in range(0, len(keys), side.run):  # neighbours are the elements of one vector
                block, column = divmod(side.places[keys[start]], ROW)
                further = block * side.rows * ROW + k * ROW + column % PIECE
                values = self._scalars(self._piece(side, column // PIECE ^ k % 8, further, side.run))
                for key, value in zip(keys[start:start + side.run], values, strict=True):
                    found[key].append(value)
        return found

    def _piece(self, side: _Side, swizzle: int, further: int, length: int) -> ir.Value:
        """Elements at the thread's start with its place in the row xor `swizzle`, and `further` elements on."""
        start = self.remember(("swizzled", side.start, swizzle),
                              lambda: arith.xori(side.start, self._index(swizzle * PIECE))) if swizzle else side.start
        element = ir.MemRefType(side.memory.type).element_type
        kind = ir.VectorType.get([length], element) if length > 1 else element
        return kernel.LoadShared(buffer=side.memory, offset=self._at((start, further)), result=kind).result


class _Product:
    """The sums of one product on their way."""

    def __init__(self, lowering: SharedProducts, op: tile.DotShared) -> None:
        self.lowering, self.op, self.acc = lowering, op, lowering.tiles[op.acc]
        layout, sides = self.acc.layout, (list(op.lhs_rows), list(op.rhs_rows))
        self.right = lowering._side(op.rhs, sides[1], layout, bool(op.transposed))
        self.keys = [tuple(tuple((at[a], inside[a]) for a in axes) for axes in sides)
                     for at in self.acc.values for inside in layout.inside()]
        self.sums = [s for value in self.acc.values.values() for s in lowering._scalars(value)]

    def multiply(self, rows: dict[Key, list[ir.Value]], columns: dict[Key, list[ir.Value]]) -> None:
        for k in range(PIECE):
            self.sums = [self.lowering.multiply_add(rows[row][k], columns[column][k], total)
                         for (row, column), total in zip(self.keys, self.sums, strict=True)]

    def one_of_each(self) -> list[ir.Value]:
        """Sums such that every row and every column has a part in one."""
        rows, columns = (list(dict.fromkeys(key[side] for key in self.keys)) for side in (0, 1))
        sums = dict(zip(self.keys, self.sums, strict=True))
        return [sums[rows[i % len(rows)], columns[i % len(columns)]] for i in range(max(len(rows), len(columns)))]

    def result(self) -> Fragments:
        return Fragments(self.acc.layout, self.acc.element, self.lowering._gathered(self.acc.values, self.sums))
