"""Tiles that come through shared memory, and products by tensor cores: the part of a GPU's lowering for rings and roles.

Every slot of a ring has two barriers, full and empty, whose phases alternate: in turn t a slot is filled for the time t
floordiv slots, and waiting for that needs its parity. One thread of the producer fetches by TMA, or one weights and one
what kernels write, which has to be waited for; a group of four warps says with one arrival that it has done with a
slot, and where each thread reads for itself, each warp does.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod

from mlir import ir
from mlir.dialects import arith, scf, vector

from tilec.dialects import kernel, tile
from tilec.dialects.index_expr import Dim, Linear, dim, linear, make_map, map_results
from tilec.dialects.kernel import ROW_BYTES
from tilec.dialects.schedule import Schedule
from tilec.pipelines.copied_tiles import CopiedTiles, blocks_of, multiplied_words
from tilec.pipelines.layouts import Coordinates, Fragments, words_of
from tilec.pipelines.loops import known_bounds
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.primop.outline import ops_in
from tilec.pipelines.primop.structure import defining_op, offset_of
from tilec.pipelines.thread_reductions import WARP, in_space
from tilec.pipelines.tile import GROUP, op_after, op_before
from tilec.runtime.artifact import ITEM_BYTES

# Registers of a thread of the producer and of the others, by groups that compute and blocks that share a multiprocessor.
REGISTERS = {(1, 2): (40, 216), (2, 0): (40, 232), (2, 1): (40, 232), (3, 0): (32, 160)}
TURNS = 2  # the number of the barrier where the first group waits for its turn
CORE_LANES = (8, 16)  # of a row of a matrix that a warp's tensor core multiplies with a vector
LONG_WALK = 12  # turns of a product straight from memory beyond which LLVM shall write out two: more take registers


@dataclass(frozen=True)
class TensorMap:
    """How TMA loads see a buffer, argument number `argument`: planes of rows of `width` elements, moved in boxes.

    Rows from `height` on and elements of a row from `length` on, expressions of the symbols, read as zero; a plane begins
    every `plane_rows` rows.
    """

    argument: int
    element: str
    width: int
    height: Linear
    plane_rows: int
    planes: int
    columns: int
    rows: int
    length: Linear | None = None

    def to_attribute(self, symbols: int) -> ir.Attribute:
        number = ir.IntegerType.get_signless(64)
        names = ("argument", "width", "plane_rows", "planes", "columns", "rows")
        fields = {n: ir.IntegerAttr.get(number, getattr(self, n)) for n in names}
        height = ir.AffineMapAttr.get(make_map(0, symbols, [self.height]))
        more = {} if self.length is None else {"length": ir.AffineMapAttr.get(make_map(0, symbols, [self.length]))}
        return ir.DictAttr.get({**fields, **more, "element": ir.StringAttr.get(self.element), "height": height})


@dataclass
class _Ring:
    slots: int
    rows: int
    blocks: int  # of 128-byte rows, side by side
    bytes: int
    elements: int
    memory: ir.Value
    full: ir.Value
    empty: ir.Value


def dealt_registers(schedule: Schedule) -> tuple[int, int] | None:
    """Registers of a thread that fetches and of one that computes where they have roles, None if all have as many."""
    return REGISTERS.get((schedule.threads // GROUP, schedule.resident))


class TensorCores(CopiedTiles):
    """Lowers rings, fetches, roles and products by tensor cores."""

    def __init__(self, schedule: Schedule, padded: bool) -> None:
        super().__init__(schedule, padded)
        self.rings: dict[ir.Value, _Ring] = {}
        self.tensor_maps: dict[TensorMap, ir.Value] = {}
        self.groups = schedule.threads // GROUP
        self.group = self.thread_number  # of this thread's group, once there are rings
        self.sharing = WARP if schedule.staged else GROUP  # threads that release a slot together
        self.awaited = 0  # ops that still await what comes to rings
        self.running = False  # products may not have ended
        self.only_fetches = False  # here is one thread
        self.fetches: bool | None = None  # whether only weights are fetched here, or only what is none; None for both

    def lower(self, op: ir.OpView) -> None:
        if self.schedule.copied and self.lower_copied(op):
            return
        if isinstance(op, tile.Ring):
            self.rings[op.result] = self._lower_ring(op)
        elif isinstance(op, tile.Fetch):
            self._lower_fetch(op)
        elif isinstance(op, tile.Await):
            self._lower_await(op)
        elif isinstance(op, tile.Release):
            self._lower_release(op)
        elif isinstance(op, tile.DotShared) and self.schedule.staged:
            self.multiply_add_shared(op)
        elif isinstance(op, tile.DotShared):
            self.tiles[op.result] = self._lower_dot(op)
        elif isinstance(op, tile.DotTwin):
            self.tiles[op.result] = self._lower_dot_twin(op) if op.depth_twin is None else self._lower_dot_of_runs(op)
        elif isinstance(op, tile.Made):
            self.tiles[op.result] = self._waited(self.tiles[op.value], op.running)
        elif isinstance(op, tile.TakeTurn):
            kernel.GroupBarrier(number=arith.addi(self.group, self._index(TURNS)), threads=2 * GROUP)
        elif isinstance(op, tile.PassTurn):
            following = arith.remui(arith.addi(self.group, self._index(1)), self._index(self.groups))
            kernel.GroupBarrier(number=arith.addi(following, self._index(TURNS)), threads=2 * GROUP, arrive=True)
        elif isinstance(op, tile.Worker):
            self.scalars[op.result] = kernel.BlockId(dimension=kernel.Dimension.X, result=ir.IndexType.get()).result
        elif isinstance(op, tile.Producer):
            threads = self._index(self.schedule.threads)
            self.scalars[op.result] = arith.cmpi(arith.CmpIPredicate.uge, self.thread_number, threads)
        elif isinstance(op, scf.IfOp) and isinstance(defining_op(op.operands[0]), tile.Producer):
            self._lower_roles(op)
        else:
            super().lower(op)

    # Rings --------------------------------------------------------------------------------------------------------

    def _lower_ring(self, op: tile.Ring) -> _Ring:
        kind, number = ir.MemRefType(op.result.type), len(self.rings)
        slots, rows, columns = kind.shape
        item, blocks = ITEM_BYTES[str(kind.element_type)], blocks_of(columns, kind.element_type, self.schedule)
        size = rows * blocks * ROW_BYTES // item
        memory = kernel.Shared(symbol=f"ring{number}", align=1024, result=ir.MemRefType.get(
            [slots * size], kind.element_type, memory_space=in_space(3))).result
        barriers = ir.MemRefType.get([slots], ir.IntegerType.get_signless(64), memory_space=in_space(3))
        full, empty = (kernel.Shared(symbol=f"ring{number}_{name}", result=barriers).result for name in ("full", "empty"))
        last = not isinstance(op_after(op), tile.Ring)
        with self._when(self._is(self.thread_number, 0)):
            for slot in range(slots):
                kernel.MbarrierInit(count=1, barriers=full, index=self._index(slot))
                kernel.MbarrierInit(count=self.schedule.threads // self.sharing, barriers=empty, index=self._index(slot))
            if last:
                kernel.FenceMbarriers()
        if last:
            kernel.Barrier()
            group = arith.divui(self.thread_number, self._index(GROUP))
            self.group = kernel.Uniform(value=group, result=ir.IndexType.get()).result
            ops = list(op.operation.block.operations)
            self.awaited = sum(len(ops_in(o, tile.Await)) for o in ops)
            if any(ops_in(o, tile.TakeTurn) for o in ops):
                with self._when(self._is(self.group, self.groups - 1)):  # as if the last group had just passed the turn
                    kernel.GroupBarrier(number=self._index(TURNS), threads=2 * GROUP, arrive=True)
        return _Ring(slots, rows, blocks, size * item, size, memory, full, empty)

    def free_memory(self, size: int) -> str | None:
        """Rings, once all that comes to them has come."""
        drained = not self.awaited and not self.depth
        return "ring" if drained and sum(r.slots * r.bytes for r in self.rings.values()) >= size else None

    def _turn(self, ring: _Ring, turn: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The slot of a turn, and the parity of its phase."""
        turn, slots = self.scalars[turn], self._index(ring.slots)
        slot = self.remember(("slot", turn, ring.slots), lambda: arith.remui(turn, slots))
        parity = self.remember(("parity", turn, ring.slots), lambda: arith.remui(arith.divui(turn, slots), self._index(2)))
        return slot, parity

    def _lower_fetch(self, op: tile.Fetch) -> None:
        ring, constant = self.rings[op.ring], self.scalars[op.source] in self.weights
        if self.fetches not in (None, constant):
            return
        slot, parity = self._turn(ring, op.turn)
        described, x, y, z = self._place_of(op)
        if described not in self.tensor_maps:
            self.tensor_maps[described] = self.add_tensor_map()
        with self._when(None if self.only_fetches else self._is(self.thread_number, 0)):
            opposite = arith.subi(self._index(1), parity)
            kernel.MbarrierWait(barriers=ring.empty, index=slot, parity=opposite)
            kernel.MbarrierExpect(bytes=ring.bytes, barriers=ring.full, index=slot)
            for block in range(ring.blocks):
                offset = self._at((self._scaled(slot, ring.elements), block * described.columns * ring.rows))
                kernel.TmaLoad(
                    element=ir.MemRefType(op.ring.type).element_type, tensor_map=self.tensor_maps[described],
                    x=self._at((x, block * described.columns)), y=y, z=z, buffer=ring.memory, offset=offset,
                    barriers=ring.full, index=slot, constant=constant or None)

    def _place_of(self, op: tile.Fetch) -> tuple[TensorMap, ir.Value, ir.Value, ir.Value]:
        """The tensor map of a fetch, and the column, the row and the plane of the tile in it.

        A row is what one step along the last of `rows` skips in memory: what is left of the offset is the column. Where the
        rows end at a limit, other terms of the offset choose the plane.
        """
        source, ring = ir.MemRefType(op.source.type), self.rings[op.ring]
        offset = offset_of(map_results(op.map), list(source.shape))
        width = offset.coefficient(Dim(op.rows[-1])) if op.rows else prod(source.shape)
        step = width
        for axis in reversed(op.rows):
            if width <= 0 or offset.coefficient(Dim(axis)) != step:
                raise PassFailure("the rows of a tile must be at equal distances in memory", op.operation.location)
            step *= self.schedule.axes[axis].tile
        if offset.coefficient(Dim(op.column)) != 1 or offset.nonlinear_atoms() & {Dim(a) for a in (*op.rows, op.column)}:
            raise PassFailure("a tile must be contiguous along its columns", op.operation.location)
        y = Linear(offset.constant // width, tuple((a, c // width) for a, c in offset.terms if c % width == 0))
        x, z, total = offset - y * width, Linear(), -(-prod(source.shape) // width)
        height, plane_rows = linear(total), total
        if op.limit is not None:
            others = [c for a, c in y.terms if a != Dim(op.rows[-1])]
            plane_rows = min(others, default=total)
            if len(op.rows) != 1 or any(c % plane_rows for c in [*others, y.constant, total]):
                raise PassFailure("rows that end at a limit must lie in planes of equal size", op.operation.location)
            z = Linear(y.constant // plane_rows, tuple((a, c // plane_rows) for a, c in y.terms if a != Dim(op.rows[-1])))
            y, height = y - z * plane_rows, map_results(op.limit)[0]
        length = None
        if op.column_limit is not None:
            length = map_results(op.column_limit)[0]
            if x != dim(op.column):
                raise PassFailure("columns that end at a limit must begin with a row", op.operation.location)
        columns = ROW_BYTES // ITEM_BYTES[str(source.element_type)]
        described = TensorMap(self.arguments[self.scalars[op.source]], str(source.element_type), width, height, plane_rows,
                              total // plane_rows, columns, ring.rows, length)
        values = [self.scalars[v] for v in op.origin]
        origins, symbols = values[:op.map.n_dims], values[op.map.n_dims:]
        x, y, z = (self.apply(e, origins, symbols) for e in (x, y, z))
        if self.schedule.axes[op.column].cluster > 1:  # this block's part of the tile
            x = arith.addi(x, self._scaled(self._rank(), ir.MemRefType(op.ring.type).shape[-1]))
        return described, x, y, z

    def _lower_await(self, op: tile.Await) -> None:
        ring = self.rings[op.ring]
        slot, parity = self._turn(ring, op.turn)
        kernel.MbarrierWait(barriers=ring.full, index=slot, parity=parity)
        self.awaited -= 1
        self.places[op.result] = (ring.memory, self._scaled(slot, ring.elements))

    def _lower_release(self, op: tile.Release) -> None:
        ring = self.rings[op.ring]
        slot, _ = self._turn(ring, op.turn)
        if not isinstance(op_before(op), tile.Release):
            if self.schedule.staged:
                kernel.WarpBarrier(values=self.last_sums)
                self.last_sums = ()
            else:
                kernel.WgmmaWait(running=op.running)
        first = arith.remui(self.thread_number, self._index(self.sharing))
        with self._when(self._is(first, 0)):
            kernel.MbarrierArrive(barriers=ring.empty, index=slot)

    # Roles --------------------------------------------------------------------------------------------------------

    def _lower_roles(self, op: scf.IfOp) -> None:
        branch = scf.IfOp(self.scalars[op.operands[0]], has_else=True)
        fewer, more = dealt_registers(self.schedule) or (0, 0)
        with ir.InsertionPoint(branch.then_block), self._scope():
            if fewer:
                kernel.SetRegisters(count=fewer, more=False)
            # Weights by a warp of their own, first: it does not wait for the kernel before.
            fetches = [f for o in op.then_block.operations for f in ops_in(o, tile.Fetch)]
            kinds = sorted({self.scalars[f.source] in self.weights for f in fetches}, reverse=True)
            self.only_fetches = True
            for warp, constant in enumerate(kinds):
                self.fetches = constant if len(kinds) > 1 else None
                with self._when(self._is(self.thread_number, self.schedule.threads + WARP * warp)):
                    self.lower_block(op.then_block)
            self.fetches, self.only_fetches = None, False
            scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block), self._scope():
            if more:
                kernel.SetRegisters(count=more, more=True)
            self.some_threads = self.schedule.threads
            self.lower_block(op.else_block)
            self.some_threads = None
            self.end_block()
            scf.YieldOp([])

    # Products -----------------------------------------------------------------------------------------------------

    def _lower_dot(self, op: tile.DotShared) -> Fragments:
        acc = self.tiles[op.acc]
        rhs, rhs_offset = self.places[op.rhs]
        rows = prod(self.schedule.axes[a].tile for a in op.lhs_rows)
        columns = prod(self.schedule.axes[a].tile for a in op.rhs_rows)
        slot_rows, slot_columns = ir.MemRefType(op.rhs.type).shape
        depth = slot_rows if op.transposed else slot_columns
        if rows != 64 * self.groups:
            raise PassFailure(f"a tile of {rows} rows cannot be dealt to {self.groups} groups of 64", op.operation.location)
        lhs: dict[str, list[ir.Value]] = {"lhs": [], "lhs_offset": [], "lhs_registers": []}
        if op.lhs in self.tiles:
            tile_ = self.tiles[op.lhs]
            reduced = [i for i, n in enumerate(op.lhs.type.shape) if n > 1 and i not in list(op.lhs_rows)]
            lhs["lhs_registers"] = [tile_.values[at] for at in self._register_order(tile_, list(op.lhs_rows), reduced)]
        else:
            memory, offset = self.places[op.lhs]
            if self.groups > 1:
                offset = arith.addi(offset, self._scaled(self.group, 64 * ROW_BYTES // ITEM_BYTES[str(self._element(op.rhs))]))
            lhs["lhs"], lhs["lhs_offset"] = [memory], [offset]
        order = self._register_order(acc, list(op.lhs_rows), list(op.rhs_rows))
        scalars = [s for at in order for s in self._scalars(acc.values[at])]
        result = kernel.Wgmma(
            element=self.multiplied(self._element(op.rhs)), columns=columns, depth=depth, lhs_rows=rows, rhs_rows=slot_rows,
            **lhs, transposed=op.transposed, counted=self.schedule.persistent > 0 or None, rhs=rhs, rhs_offset=rhs_offset,
            acc=scalars, result_=[s.type for s in scalars])
        made = list(result.operation.results)
        if _is_used_at_once(op):
            made = list(kernel.WgmmaWait(running=0, acc=made, result_=[s.type for s in made]).operation.results)
        elif not any(isinstance(use.owner, tile.Made) for use in op.result.uses):
            self.running = True
        values = self._gathered({at: acc.values[at] for at in order}, made)
        return Fragments(acc.layout, acc.element, {at: values[at] for at in acc.values})

    def _lower_dot_twin(self, op: tile.DotTwin) -> Fragments:
        """Products of 16 x 8 x 32 bytes: of four neighbouring words along the depth a lane gives two to each of two steps.

        Which elements meet in a step does not matter, as long as both operands agree: so both are read in runs of up to 16
        bytes. A word is two elements of 16 bits or one of f32. Eight rows are the upper half of a product; what the lower one
        makes of the same rows is dropped. A column of the right operand is the element of one lane of eight, so two columns of
        the result are the elements of lanes beside each other: the halves of a run twice as long, or those of two registers.
        """
        lhs, rhs, acc = (self.tiles[v] for v in (op.lhs, op.rhs, op.acc))
        element = self.multiplied(op.lhs.type.element_type)
        rows = [i for i, n in enumerate(lhs.layout.registers) if n > 1 and i != op.depth]
        own, theirs = acc.layout.box[op.column], rhs.layout.box[op.twin]
        beside = own == theirs  # two columns lie in two registers
        deep = [side.layout.registers[op.depth] * side.layout.box[op.depth] for side in (lhs, rhs)]
        if len(rows) > 1 or any(lhs.layout.registers[row] % 2 for row in rows) or own not in (theirs, 2 * theirs) or \
                own != acc.layout.length or (beside and acc.layout.registers[op.column] % 2) or deep[0] != deep[1] or \
                deep[0] * ITEM_BYTES[str(lhs.element)] % 8 or lhs.layout.length != lhs.layout.box[op.depth]:
            raise PassFailure("the layout of a tile is not that of a tensor core's operands", op.operation.location)

        sums = {at: self._scalars(value) for at, value in acc.values.items()}
        for at in acc.layout.coordinates():
            if (rows and at[rows[0]] % 2) or (beside and at[op.column] % 2):
                continue
            heights = [at, *(_moved(at, row, at[row] + 1) for row in rows)]
            left = [self._words(lhs, c, op.depth) for c in heights]
            for i in range(theirs):
                there = _moved(at, op.twin, at[op.column] // 2 if beside else at[op.column])
                right = self._words(rhs, there, op.depth, i)
                places = [(_moved(c, op.column, c[op.column] + step), i) if beside else (c, i + step * theirs)
                          for c in heights for step in (0, 1)]
                total = [sums[c][k] for c, k in places]
                total += [self.constant(0, acc.element)] * (4 - len(total))
                for step in range(0, len(right), 2):
                    upper, lower = left[0][step:step + 2], left[-1][step:step + 2]
                    total = multiplied_words(element, [upper[0], lower[0], upper[1], lower[1]], right[step:step + 2], total)
                for (c, k), value in zip(places, total, strict=False):
                    sums[c][k] = value
        return Fragments(acc.layout, acc.element, self._gathered(acc.values, [s for at in acc.values for s in sums[at]]))

    def _lower_dot_of_runs(self, op: tile.DotTwin) -> Fragments:
        """Products of 16 x 8 x 32 bytes whose right operand is four columns, each on eight lanes, so that memory gives 128
        bytes of it at once: what a tensor core counts as columns 2t and 2t + 1 are the halves of these runs of column t. They
        meet the halves of eight rows, of which the first are its upper rows and the second its lower ones. So of a lane's
        results the first, of upper rows and first halves, and the last count: together they are one element of the result.
        """
        lhs, rhs, acc = (self.tiles[v] for v in (op.lhs, op.rhs, op.acc))
        element, zero = self.multiplied(op.lhs.type.element_type), self.constant(0, acc.element)
        runs = [(side.layout.box[axis], side.layout.length) for side, axis in ((lhs, op.depth), (rhs, op.depth_twin))]
        deep = lhs.layout.registers[op.depth], 2 * rhs.layout.registers[op.depth_twin]
        rows = [n for i, n in enumerate(lhs.layout.registers) if i != op.depth]
        if max(rows) > 1 or acc.layout.length != 1 or runs[0] != runs[1] or runs[0][0] != runs[0][1] or deep[0] != deep[1] or \
                runs[0][0] * ITEM_BYTES[str(lhs.element)] != 16:
            raise PassFailure("the layout of a tile is not that of a tensor core's operands", op.operation.location)
        left = self._words(lhs, (0,) * len(lhs.layout.registers), op.depth)
        values: dict[Coordinates, ir.Value] = {}
        for at, before in acc.values.items():
            right, total = self._words(rhs, _moved(at, op.twin, at[op.column]), op.depth_twin), [before, zero, zero, zero]
            for i in range(0, len(right), 2):
                first = i // 4 * 8 + i % 4
                upper, lower = left[first:first + 2], left[first + 4:first + 6]
                total = multiplied_words(element, [upper[0], lower[0], upper[1], lower[1]], right[i:i + 2], total)
            values[at] = arith.addf(total[0], total[3])
        return Fragments(acc.layout, acc.element, values)

    def dot_of_cores(self, op: tile.Dot, lhs: Fragments, rhs: Fragments, acc: Fragments) -> Fragments:
        """A matrix times a vector, in products of 16 x 8 x 16 that are all matrix: the four words that a lane reads of a row at
        once are, as they lie in registers, two of row lane floordiv 4 of the left operand and two of the row 8 below.

        So each row of the matrix is several of the operand, at different places of the depth, and each column of the right
        operand is the vector at some of these places. Of what a product has, only elements whose row and column are at the same
        places count: with 4 r lanes along the depth, of row 8 h + i and column j those where j mod (2 r) is i mod r + r h.
        """
        (depth,) = (i for i, n in enumerate(op.acc.type.shape) if n != max(v.type.shape[i] for v in (op.lhs, op.rhs)))
        is_vector = all(n == 1 for i, n in enumerate(op.lhs.type.shape) if i != depth)
        vector, matrix = (lhs, rhs) if is_vector else (rhs, lhs)
        lanes, zero = self.schedule.axes[depth].neighbours, self.constant(0, acc.element)
        runs = [(s.layout.registers[depth], s.layout.box[depth], s.layout.length, str(s.element)) for s in (lhs, rhs)]
        if acc.layout.length != 1 or lanes not in CORE_LANES or self.strides[depth] != 1 or runs[0] != runs[1] or \
                runs[0][1:3] != (8, 8) or ITEM_BYTES[runs[0][3]] != 2:
            raise PassFailure("the layout of a tile is not that of a tensor core's operands", op.operation.location)
        words, element = self._words(vector, (0,) * len(acc.layout.registers), depth), self.multiplied(op.lhs.type.element_type)
        lower = self._lane_bit(lanes.bit_length() - 1)  # whether this lane's column is at places of lower rows
        right = [arith.select(lower, words[i + 1], words[i]) for i in range(0, len(words), 2)]
        values: dict[Coordinates, ir.Value] = {}
        for at, before in acc.values.items():
            left, total = self._words(matrix, at, depth), [zero] * 4
            for i in range(0, len(left), 4):
                total = multiplied_words(element, left[i:i + 4], right[i // 2:i // 2 + 2], total)
            values[at] = arith.addf(before, self._counted(total, lanes))
        return Fragments(acc.layout, acc.element, values)

    def _counted(self, total: list[ir.Value], lanes: int) -> ir.Value:
        """The sum of the elements of a product with a vector that count, for all lanes of a row of the matrix: of 8 lanes each
        has one, of 16 every other."""
        upper, lower = (arith.select(self._lane_bit(2), total[i + 1], total[i]) for i in (0, 2))
        value, steps = arith.select(self._lane_bit(lanes.bit_length() - 4), lower, upper), [1, 4]
        if lanes == 16:
            elsewhere = arith.xori(self._lane_bit(0), self._lane_bit(3))
            value, steps = arith.select(elsewhere, self.constant(0, value.type), value), [1, 2, 4, 8]
        return kernel.WarpReduce(kind=tile.ReduceKind.ADD, lanes=steps, value=value, result=value.type).result

    def _lane_bit(self, number: int) -> ir.Value:
        return self.remember(("lane bit", number), lambda: self._is(arith.remui(
            arith.divui(self.thread_number, self._index(1 << number)), self._index(2)), 1))

    def _words(self, side: Fragments, at: Coordinates, depth: int, element: int = 0) -> list[ir.Value]:
        """Of a row or, with the number of an element of runs that lie across the depth, a column: its words along the depth."""
        registers = side.layout.registers
        values = [side.values[tuple(k if i == depth else x if n > 1 else 0 for i, (x, n) in enumerate(
            zip(at, registers, strict=True)))] for k in range(registers[depth])]
        if side.layout.box[depth] == side.layout.length > 1:
            return [w for value in values for w in self.remember(("words", value), functools.partial(words_of, value))]
        scalars, each = [self._scalars(value)[element] for value in values], 4 // ITEM_BYTES[str(side.element)]
        pair = ir.VectorType.get([each], side.element)
        return [words_of(vector.from_elements(pair, scalars[i:i + each]))[0] for i in range(0, len(scalars), each)]

    @staticmethod
    def _element(memory: ir.Value) -> ir.Type:
        return ir.MemRefType(memory.type).element_type

    def _flatten(self, value: ir.Value) -> list[ir.Value]:
        """Loops carry scalars: the registers of a product in flight must not be packed, moved or renamed."""
        values = super()._flatten(value)
        return [s for v in values for s in (self._scalars(v) if _is_summed(v) else [v])] if self.schedule.rings else values

    def _unflatten(self, old: list[ir.Value], new: list[ir.Value], like: list[ir.Value]) -> None:
        if self.schedule.rings:
            models, given = [v for m in like for v in super(TensorCores, self)._flatten(m)], iter(new)
            taken = [[next(given) for _ in self._scalars(v)] if _is_summed(v) else next(given) for v in models]
            new = [self._gathered({(): v}, t)[()] if isinstance(t, list) else t for v, t in zip(models, taken, strict=True)]
        super()._unflatten(old, new, like)

    def _register_order(self, acc: Fragments, rows: list[int], columns: list[int]) -> list[Coordinates]:
        """The fragments in the order of the instruction's registers: for 8 columns, two sets of rows."""
        m = next(a for a in rows if acc.layout.registers[a] > 1)
        if acc.layout.registers[m] != 2 or acc.layout.length != 2 or acc.layout.box[columns[-1]] != 2:
            raise PassFailure("the layout of a tile is not that of a tensor core's result", ir.Location.current)
        return sorted(acc.layout.coordinates(), key=lambda at: (*(at[a] for a in columns), at[m]))

    def _lower_for(self, op: scf.ForOp) -> scf.ForOp:
        loop = super()._lower_for(op)
        products = [o for o in op.body.operations if isinstance(o, tile.DotShared)]
        in_flight = self.running or any(isinstance(o, tile.Made) for o in op.body.operations)
        if self.schedule.resident and not self.schedule.dot:
            keep_rolled(loop)  # a turn has as many loads in flight as registers were counted for
        elif any(isinstance(o, tile.DotTwin) for o in op.body.operations):
            unroll_long(loop)
        elif in_flight and len(products) > 1:
            # LLVM would peel the first turn and set the second product's accumulators to zero while the first runs, for
            # which ptxas makes it wait (C7517).
            keep_rolled(loop)
        if self.running and products:
            for result in op.results:
                if result in self.tiles:
                    self.tiles[result] = self._waited(self.tiles[result])
            self.running = False
        return loop

    def _waited(self, acc: Fragments, running: int = 0) -> Fragments:
        """Results of products, when all but the last `running` of them have ended."""
        values = list(acc.values.values())
        if not all(isinstance(v.type, ir.VectorType) and v.type.shape[0] == 2 for v in values):
            return acc
        scalars = [s for v in values for s in self._scalars(v)]
        done = kernel.WgmmaWait(running=running, acc=scalars, result_=[s.type for s in scalars])
        return Fragments(acc.layout, acc.element, self._gathered(acc.values, list(done.operation.results)))

    # Results ------------------------------------------------------------------------------------------------------

    def _store_fragments(self, op: tile.Store | tile.Scatter, shape: list[int]) -> None:
        """Pairs of 16-bit columns that four lanes hold become 16 bytes in each of them, where memory allows it."""
        axis = self._transposed_axis(op, shape)
        if axis is None:
            super()._store_fragments(op, shape)
            return
        source, word = self.tiles[op.value], ir.IntegerType.get_signless(32)
        lane = self._place(axis)
        if self.schedule.axes[axis].warps > 1:
            lane = arith.remui(lane, self._index(4))
        wide = ir.VectorType.get([8], source.element)
        whole = self.schedule.axes[axis].registers // 4 * 4
        for at, elements, origins, symbols, uniform, _ in self._access(op, op.dest, shape):
            if at[axis] >= whole:  # what is left of an odd width
                with self._when(uniform):
                    self._store_fragment(source.values[at], self.scalars[op.dest], elements, [origins] * 2, symbols, None)
                continue
            if at[axis] % 4:
                continue
            pairs = [source.values[tuple(x + i if a == axis else x for a, x in enumerate(at))] for i in range(4)]
            words = [w for p in pairs for w in words_of(p)]
            words = self._transposed(words, lane)
            value = vector.bitcast(wide, vector.from_elements(ir.VectorType.get([4], word), words))
            base, constant = self._offset(elements[0], origins, symbols)
            with self._when(uniform, self.stores(at, shape)):
                self.store(value, self.scalars[op.dest], (arith.addi(base, self._scaled(lane, 6)), constant))

    def _transposed_axis(self, op: tile.Store | tile.Scatter, shape: list[int]) -> int | None:
        """The axis along which four lanes hold two neighbours each, if rows of 16 bytes can be stored along it: blocks of a
        cluster are dealt four registers at a time only where these are multiples of four."""
        axes = self.schedule.axes
        found = [i for i, a in enumerate(axes) if a.vector == 2 and a.neighbours == 4 and self.strides[i] == 1
                 and shape[i] == a.tile and a.registers >= 4 and (a.registers % 4 == 0 or self.deal is None)]
        if not self.schedule.tensor or not isinstance(op, tile.Store) or len(found) != 1 or \
                ITEM_BYTES[str(op.value.type.element_type)] != 2 or self.tiles[op.value].layout.length != 2:
            return None
        column = Dim(found[0])
        offset = offset_of(map_results(op.map), list(ir.MemRefType(op.dest.type).shape))
        aligned = all(c % 8 == 0 for a, c in offset.terms if a != column) and offset.constant % 8 == 0
        masked = op.mask is not None and any(column in e.atoms() for e in map_results(op.mask))
        simple = offset.coefficient(column) == 1 and column not in offset.nonlinear_atoms()
        return found[0] if aligned and simple and not masked else None

    def _transposed(self, words: list[ir.Value], lane: ir.Value) -> list[ir.Value]:
        """Four words in each of four lanes, transposed: lane i gets word i of every lane, in the lanes' order."""
        for bit in (1, 2):
            odd = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(lane, self._index(bit)), self._index(0))
            for low in (i for i in range(4) if not i & bit):
                high = low | bit
                sent = arith.select(odd, words[low], words[high])
                came = kernel.Exchange(lanes=bit, value=sent, result=sent.type).result
                words[low], words[high] = arith.select(odd, came, words[low]), arith.select(odd, words[high], came)
        return words

    # What the frame gives -----------------------------------------------------------------------------------------

    arguments: dict[ir.Value, int]
    weights: set[ir.Value]

    def add_tensor_map(self) -> ir.Value:
        """A new argument of the kernel."""
        raise NotImplementedError


def keep_rolled(loop: scf.ForOp) -> None:
    """Tells LLVM neither to unroll a loop nor to peel turns off it."""
    loop.operation.attributes["loop_annotation"] = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")


def unroll_long(loop: scf.ForOp) -> None:
    """Tells LLVM to write out two turns of a long loop, so that what one reads ahead needs not be moved for the next."""
    if bounds := known_bounds(loop):
        first, last, step = bounds
        if -(-(last - first) // step) > LONG_WALK:
            loop.operation.attributes["loop_annotation"] = ir.Attribute.parse(
                "#llvm.loop_annotation<unroll = <count = 2 : i32>>")


def _moved(at: Coordinates, axis: int, place: int) -> Coordinates:
    return (*at[:axis], place, *at[axis + 1:])


def _is_summed(value: ir.Value) -> bool:
    """Whether a fragment can be a sum of products: what is narrower stays packed, as products read it."""
    return not isinstance(value.type, ir.VectorType) or isinstance(value.type.element_type, ir.F32Type)


def _is_used_at_once(op: tile.DotShared) -> bool:
    """Whether anything but the next product of a loop reads a product's result: then it must have ended."""
    for use in op.result.uses:
        if isinstance(use.owner, tile.Made):
            continue
        if use.owner.operation.name != "scf.yield":
            return True
        loop = use.owner.operation.parent.opview
        if any(not isinstance(u.owner, tile.DotShared) for u in loop.inner_iter_args[use.operand_number].uses):
            return True
    return False
