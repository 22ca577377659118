"""tile to kernel: tiles are spread over the threads of a block by the schedule's layouts, and one thread's part remains.

A thread's coordinate along an axis comes from its number, last axis fastest. Values that do not vary along an axis are
held by all threads along it; one of them writes. Reductions across threads go by shuffles as far as a warp reaches and
through shared memory from there; every thread gets the result, combined in one fixed order.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlir import ir
from mlir.dialects import arith, func, gpu, scf, vector

from tilec.dialects import kernel, primop, tile
from tilec.dialects.index_expr import Linear, linear, make_map
from tilec.dialects.schedule import Schedule
from tilec.errors import UnsupportedError
from tilec.pipelines.fragments import FragmentLowering
from tilec.pipelines.layouts import Coordinates, Fragments, combiner
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import body_of, functions

WARP = 32
GLOBAL = 1
MAX_BLOCKS_YZ = 65535


@dataclass(frozen=True)
class TileToKernel(Pass):
    """Distribute the tile functions of the nested module `kernels` over threads, into a gpu.module of the same name."""

    name = "convert-tile-to-kernel"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        symbols = primop.symbol_ranges(op.operation)
        for nested in list(op.regions[0].blocks[0].operations):
            if nested.operation.name == "builtin.module":
                with ir.InsertionPoint(nested), nested.operation.location:
                    module = gpu.GPUModuleOp(ir.StringAttr(nested.attributes["sym_name"]).value)
                    if not len(module.regions[0].blocks):
                        module.regions[0].blocks.append()
                for function in functions(nested, "tile.kernel"):
                    with function.operation.location, ir.InsertionPoint(module.regions[0].blocks[0]):
                        _lower_kernel(function, symbols)
                nested.operation.erase()


def _lower_kernel(function: ir.OpView, symbols: dict[str, tuple[int, int]]) -> None:
    schedule = Schedule.from_attribute(function.attributes["tile.schedule"])
    buffers = list(body_of(function).arguments)
    roles = [ir.StringAttr(a).value for a in ir.ArrayAttr(function.attributes["tile.arguments"])]
    flat = [_flat(b.type) for b in buffers]
    table = ir.MemRefType.get([len(symbols)], ir.IntegerType.get_signless(64), memory_space=_space(GLOBAL))
    lowered = func.FuncOp(ir.StringAttr(function.attributes["sym_name"]).value, ([*flat, table], []))
    lowered.attributes["tile.arguments"] = function.attributes["tile.arguments"]
    grid = _Grid(schedule, len(symbols))
    lowered.attributes["kernel.block"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _block_size(schedule))
    lowered.attributes["kernel.grid"] = grid.attribute()
    if schedule.cluster > 1:
        lowered.attributes["kernel.cluster"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), schedule.cluster)
    block = lowered.add_entry_block()
    with ir.InsertionPoint(block):
        lowering = _GpuLowering(schedule, grid, list(symbols), block.arguments[len(buffers)])
        lowering.scalars = dict(zip(buffers, block.arguments, strict=False))
        lowering.weights = {block.arguments[i] for i, role in enumerate(roles) if role == "weight"}
        lowering.lower_block(body_of(function))
        lowering.finish()
        func.ReturnOp([])


def _block_size(schedule: Schedule) -> int:
    """Whole warps: shuffles need all lanes."""
    return -(-schedule.threads // WARP) * WARP


def _space(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def _flat(kind: ir.Type) -> ir.Type:
    shaped = ir.MemRefType(kind)
    if prod(shaped.shape) >= 1 << 31:
        raise UnsupportedError(f"a buffer of {prod(shaped.shape)} elements is beyond the 32-bit offsets of GPU kernels; "
                               "use a smaller context")
    return ir.MemRefType.get([prod(shaped.shape)], shaped.element_type, memory_space=_space(GLOBAL))


class _Grid:
    """Which grid axis lies along which dimension of the launch: the fastest along x, what does not fit folded into x."""

    def __init__(self, schedule: Schedule, symbols: int) -> None:
        self.schedule, self.symbols = schedule, symbols
        live = [a for a in schedule.grid if schedule.axes[a].programs != linear(1)]
        fits = len(live) <= 3 and all(self._small(a) for a in live[:-1])
        self.direct = dict(zip(reversed(live), kernel.Dimension, strict=False)) if fits else {}
        self.folded = [] if fits else live

    def _small(self, axis: int) -> bool:
        programs = self.schedule.axes[axis].programs
        return (programs.is_constant and programs.constant <= MAX_BLOCKS_YZ) or not programs.is_constant

    def attribute(self) -> ir.Attribute:
        """Three maps from the symbols, each a list of factors: the launch has their products as its dimensions."""
        counts: list[list[Linear]] = [[], [], []]
        for axis, dimension in self.direct.items():
            counts[list(kernel.Dimension).index(dimension)].append(self.schedule.axes[axis].programs)
        counts[0] += [self.schedule.axes[a].programs for a in self.folded]
        if self.schedule.cluster > 1:
            counts[0].append(linear(self.schedule.cluster))
        return ir.ArrayAttr.get([ir.AffineMapAttr.get(make_map(0, self.symbols, factors)) for factors in counts])


class _GpuLowering(FragmentLowering):
    """Fragments as the registers of one thread."""

    def __init__(self, schedule: Schedule, grid: _Grid, symbols: list[str], table: ir.Value) -> None:
        super().__init__(schedule)
        self.grid, self.symbols, self.table = grid, symbols, table
        self.weights: set[ir.Value] = set()
        self.padded = _block_size(schedule) != schedule.threads
        self.thread_number = kernel.ThreadId(result=ir.IndexType.get()).result
        self.coordinates: dict[int, ir.Value] = {}
        self.symbol_values: dict[str, ir.Value] = {}
        self.reductions = 0
        self.clustered = False
        stride = 1
        self.strides: dict[int, int] = {}
        for i in schedule.thread_order:
            axis = schedule.axes[i]
            threads = axis.threads // axis.cluster
            if axis.threads > 1:
                self.strides[i] = stride
                self.coordinates[i] = self._digit(self.thread_number, stride, threads, stride * threads < schedule.threads
                                                  or self.padded)
                if axis.cluster > 1:
                    rank = kernel.ClusterRank(result=ir.IndexType.get()).result
                    self.coordinates[i] = arith.addi(self.coordinates[i], self._scaled(rank, threads))
                stride *= threads

    def _digit(self, value: ir.Value, stride: int, base: int, bounded: bool) -> ir.Value:
        value = arith.divui(value, self.constant(stride, ir.IndexType.get())) if stride > 1 else value
        return arith.remui(value, self.constant(base, ir.IndexType.get())) if bounded else value

    # Places -------------------------------------------------------------------------------------------------------

    def program_id(self, axis: int) -> ir.Value:
        index = ir.IndexType.get()
        if axis in self.grid.direct:
            return self._block(self.grid.direct[axis])
        if axis not in self.grid.folded:
            return self.constant(0, index)
        rest = self._block(kernel.Dimension.X)
        for other in reversed(self.grid.folded):
            count = self._extent(self.schedule.axes[other].programs)
            if other == axis:
                return arith.remui(rest, count)
            rest = arith.divui(rest, count)
        raise PassFailure(f"axis {axis} is not part of the grid")

    def _block(self, dimension: kernel.Dimension) -> ir.Value:
        """A program's coordinate along a dimension of the grid: blocks of a cluster are neighbours along x."""
        block = kernel.BlockId(dimension=dimension, result=ir.IndexType.get()).result
        if self.schedule.cluster > 1 and dimension is kernel.Dimension.X:
            return arith.divui(block, self.constant(self.schedule.cluster, ir.IndexType.get()))
        return block

    def _extent(self, expr: Linear) -> ir.Value:
        return self.apply(expr, [], [self.symbol(n) for n in self.symbols])

    def symbol(self, name: str) -> ir.Value:
        if name not in self.symbol_values:
            at = self.constant(self.symbols.index(name), ir.IndexType.get())
            value = kernel.LoadGlobal(cache=kernel.Cache.PLAIN, buffer=self.table, offset=at,
                                      result=ir.IntegerType.get_signless(64)).result
            self.symbol_values[name] = arith.index_cast(ir.IndexType.get(), value)
        return self.symbol_values[name]

    def thread(self, axis: int) -> ir.Value | None:
        return self.coordinates.get(axis)

    def owns(self, shape: Sequence[int]) -> ir.Value | None:
        index = ir.IndexType.get()
        conditions = [arith.cmpi(arith.CmpIPredicate.eq, self._place(a), self.constant(0, index))
                      for a in self.coordinates if shape[a] == 1]
        if self.padded:
            conditions.append(arith.cmpi(arith.CmpIPredicate.ult, self.thread_number,
                                         self.constant(self.schedule.threads, index)))
        if not conditions:
            return None
        result = conditions[0]
        for condition in conditions[1:]:
            result = arith.andi(result, condition)
        return result

    # Memory -------------------------------------------------------------------------------------------------------

    def _at(self, offset: tuple[ir.Value, int]) -> ir.Value:
        base, constant = offset
        return arith.addi(base, self.constant(constant, ir.IndexType.get())) if constant else base

    def load(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type) -> ir.Value:
        cache = kernel.Cache.STREAM if buffer in self.weights else kernel.Cache.PLAIN
        return kernel.LoadGlobal(cache=cache, buffer=buffer, offset=self._at(offset), result=kind).result

    def load_masked(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type, mask: ir.Value,
                    otherwise: ir.Value) -> ir.Value:
        vector_type = ir.VectorType(kind)
        base, index = self._at(offset), ir.IndexType.get()
        parts = []
        for i in range(vector_type.shape[0]):
            place = arith.addi(base, self.constant(i, index)) if i else base
            safe = arith.select(vector.extract(mask, [], [i]), place, self.constant(0, index))
            parts.append(self.load(buffer, (safe, 0), vector_type.element_type))
        return arith.select(mask, vector.from_elements(kind, parts), otherwise)

    def store(self, value: ir.Value, buffer: ir.Value, offset: tuple[ir.Value, int]) -> None:
        kernel.StoreGlobal(value=value, buffer=buffer, offset=self._at(offset))

    def store_masked(self, value: ir.Value, buffer: ir.Value, offset: tuple[ir.Value, int], mask: ir.Value) -> None:
        base, index = self._at(offset), ir.IndexType.get()
        for i in range(ir.VectorType(value.type).shape[0]):
            branch = scf.IfOp(vector.extract(mask, [], [i]))
            with ir.InsertionPoint(branch.then_block):
                place = arith.addi(base, self.constant(i, index)) if i else base
                self.store(vector.extract(value, [], [i]), buffer, (place, 0))
                scf.YieldOp([])

    # Reductions and products --------------------------------------------------------------------------------------

    def reduce_threads(self, values: dict[Coordinates, ir.Value], kind: tile.ReduceKind, axes: list[int],
                       owned: bool) -> dict[Coordinates, ir.Value]:
        scalars = [s for v in values.values() for s in self._scalars(v)]
        near: list[int] = []  # steps between the lanes of a warp that combine
        for axis in axes:
            count, stride, inside = self._local(axis), self.strides[axis], self._in_warp(axis)
            if inside & (inside - 1) or stride & (stride - 1) or count % inside:
                raise PassFailure(f"axis {self.schedule.axes[axis].name} is reduced over {count} threads at a stride of "
                                  f"{stride}, which is no power of two inside a warp and whole warps beyond",
                                  ir.Location.current)
            near += [stride << i for i in range(inside.bit_length() - 1)]
        if near:
            scalars = [kernel.WarpReduce(kind=kind, lanes=near, value=v, result=v.type).result for v in scalars]
        if any(self._local(a) > self._in_warp(a) for a in axes):
            scalars = self._through_shared(scalars, kind, axes, owned)
        return self._gathered(values, scalars)

    def _gathered(self, values: dict[Coordinates, ir.Value], scalars: list[ir.Value]) -> dict[Coordinates, ir.Value]:
        """Fragments like `values` from their elements, listed one after the other."""
        result, remaining = {}, iter(scalars)
        for at, v in values.items():
            count = ir.VectorType(v.type).shape[0] if isinstance(v.type, ir.VectorType) else 1
            parts = [next(remaining) for _ in range(count)]
            result[at] = vector.from_elements(v.type, parts) if count > 1 else parts[0]
        return result

    def _scalars(self, value: ir.Value) -> list[ir.Value]:
        if not isinstance(value.type, ir.VectorType):
            return [value]
        return [vector.extract(value, [], [i]) for i in range(value.type.shape[0])]

    def _local(self, axis: int) -> int:
        """Threads of one block along an axis."""
        return self.schedule.axes[axis].threads // self.schedule.axes[axis].cluster

    def _place(self, axis: int) -> ir.Value:
        """This thread's coordinate along an axis inside its block."""
        if self.schedule.axes[axis].cluster == 1:
            return self.coordinates[axis]
        return arith.remui(self.coordinates[axis], self.constant(self._local(axis), ir.IndexType.get()))

    def _in_warp(self, axis: int) -> int:
        """Neighbours along an axis that share a warp."""
        return min(self._local(axis), max(WARP // self.strides[axis], 1))

    def _slots(self, axes: list[int], group: dict[int, int]) -> tuple[ir.Value, ir.Value | None, int, list[int]]:
        """Where threads leave values to be combined along `axes`, of which `group[a]` neighbours hold the same.

        (slot of this thread's own group at distance 0, whether this thread writes for its neighbours, number of slots,
        distances of the slots that combine).
        """
        index = ir.IndexType.get()
        slot: ir.Value | None = None
        writes: ir.Value | None = None
        size, distances = 1, [0]
        for axis in self.coordinates:
            place = self._place(axis)
            if axis in axes:
                count = self._local(axis) // group[axis]
                distances = [d + size * i for i in range(count) for d in distances]
                inside = arith.remui(place, self.constant(group[axis], index))
                first = arith.cmpi(arith.CmpIPredicate.eq, inside, self.constant(0, index))
                writes = first if writes is None else arith.andi(writes, first)
            else:
                count = self._local(axis)
                part = self._scaled(place, size)
                slot = part if slot is None else arith.addi(slot, part)
            size *= count
        return slot if slot is not None else self.constant(0, index), writes, size, distances

    def _own_slot(self, base: ir.Value, axes: list[int], group: dict[int, int]) -> ir.Value:
        """This thread's own slot: its group's at distance 0, moved by where the thread stands along `axes`."""
        size = 1
        for axis in self.coordinates:
            if axis in axes:
                beyond = arith.divui(self._place(axis), self.constant(group[axis], ir.IndexType.get()))
                base = arith.addi(base, self._scaled(beyond, size))
                size *= self._local(axis) // group[axis]
            else:
                size *= self._local(axis)
        return base

    def _leave(self, values: list[ir.Value], slot: ir.Value, size: int, writes: ir.Value | None) -> ir.Value:
        """Writes values to fresh shared memory, value i at slot + i * size."""
        element = values[0].type
        memory = ir.MemRefType.get([len(values) * size], element, memory_space=_space(3))
        shared = kernel.Shared(symbol=f"reduce{self.reductions}", result=memory).result
        self.reductions += 1
        if self.padded:
            alive = arith.cmpi(arith.CmpIPredicate.ult, self.thread_number,
                               self.constant(self.schedule.threads, ir.IndexType.get()))
            writes = alive if writes is None else arith.andi(writes, alive)
        branch = scf.IfOp(writes) if writes is not None else None
        with ir.InsertionPoint(branch.then_block) if branch else contextlib.nullcontext():
            for i, value in enumerate(values):
                kernel.StoreShared(value=value, buffer=shared, offset=self._at((slot, i * size)))
            if branch:
                scf.YieldOp([])
        return shared

    def _through_shared(self, values: list[ir.Value], kind: tile.ReduceKind, axes: list[int], owned: bool) -> list[ir.Value]:
        """Warps combine: one lane of each group leaves its value, and every thread reads those of its group, in order.

        With `owned` only the first threads along the axes read: the others need no result.
        """
        combine, element, index = combiner(kind, values[0].type), values[0].type, ir.IndexType.get()
        group = {a: self._in_warp(a) for a in axes}
        base, writes, size, distances = self._slots(axes, group)
        shared = self._leave(values, self._own_slot(base, axes, group), size, writes)
        kernel.Barrier()

        def combined() -> list[ir.Value]:
            return [functools.reduce(combine, [
                kernel.LoadShared(buffer=shared, offset=self._at((base, i * size + d)), result=element).result
                for d in distances]) for i in range(len(values))]

        if owned:
            first = [arith.cmpi(arith.CmpIPredicate.eq, self._place(a), self.constant(0, index)) for a in axes]
            branch = scf.IfOp(functools.reduce(arith.andi, first), [element] * len(values), has_else=True)
            with ir.InsertionPoint(branch.then_block):
                scf.YieldOp(combined())
            with ir.InsertionPoint(branch.else_block):
                scf.YieldOp(values)
            results = list(branch.results)
        else:
            results = combined()
        kernel.Barrier()  # before a later turn of a loop writes again
        return results

    def reduce_cluster(self, values: dict[Coordinates, ir.Value], kind: tile.ReduceKind, axes: list[int],
                       owned: bool) -> dict[Coordinates, ir.Value]:
        """Blocks leave their values where the others can read them, and combine them by rank."""
        if self.depth:
            raise PassFailure("a reduction over a cluster of blocks cannot stand in a loop", ir.Location.current)
        flat = {at: self._scalars(v) for at, v in values.items()}
        first = next(iter(flat.values()))[0]
        combine, element, index = combiner(kind, first.type), first.type, ir.IndexType.get()
        group = {a: self._local(a) for a in axes}
        slot, writes, size, _ = self._slots(axes, group)
        shared = self._leave([s for parts in flat.values() for s in parts], slot, size, writes)
        kernel.ClusterBarrier()
        self.clustered = True
        ranks = [self.constant(r, index) for r in range(self.schedule.cluster)]
        results: list[ir.Value] = []

        def combined(count: int) -> list[ir.Value]:
            places = [self._at((slot, (len(results) + i) * size)) for i in range(count)]
            return [functools.reduce(combine, [
                kernel.LoadRemote(buffer=shared, offset=place, rank=r, result=element).result for r in ranks])
                for place in places]

        for at, parts in flat.items():
            if not owned:
                results += combined(len(parts))
                continue
            branch = scf.IfOp(self.stores(at, [1] * len(self.schedule.axes)), [element] * len(parts), has_else=True)
            with ir.InsertionPoint(branch.then_block):
                scf.YieldOp(combined(len(parts)))
            with ir.InsertionPoint(branch.else_block):
                scf.YieldOp(parts)
            results += list(branch.results)
        return self._gathered(values, results)

    def stores(self, at: Coordinates, shape: Sequence[int]) -> ir.Value | None:
        """Blocks of a cluster share out the registers along the first axis that has several: the first to rank 0, and so on."""
        if all(axis.cluster == 1 or size > 1 for axis, size in zip(self.schedule.axes, shape, strict=True)):
            return None
        registers = [i for i, axis in enumerate(self.schedule.axes) if axis.registers > 1]
        turn = at[registers[0]] % self.schedule.cluster if registers else 0
        rank = kernel.ClusterRank(result=ir.IndexType.get()).result
        return arith.cmpi(arith.CmpIPredicate.eq, rank, self.constant(turn, ir.IndexType.get()))

    def finish(self) -> None:
        """What ends a kernel: no block may leave while another still reads its memory."""
        if self.clustered:
            kernel.ClusterBarrier()

    def dot(self, op: tile.Dot, lhs: Fragments, rhs: Fragments, acc: Fragments) -> Fragments:
        return self.dot_by_multiply_add(lhs, rhs, acc)

    def _converted(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """bf16 pairs become f32 by integer ops, of which a multiprocessor does four times as many as conversions."""
        kind = value.type
        if not (isinstance(kind, ir.VectorType) and str(kind.element_type) == "bf16" and str(element) == "f32"
                and kind.shape[0] % 2 == 0):
            return super()._converted(value, element)

        def make() -> ir.Value:
            word, count = ir.IntegerType.get_signless(32), kind.shape[0]
            words = vector.bitcast(ir.VectorType.get([count // 2], word), value)
            parts = []
            for i in range(count // 2):
                bits = vector.extract(words, [], [i])
                halves = (arith.shli(bits, self.constant(16, word)), arith.andi(bits, self.constant(-65536, word)))
                parts += [arith.bitcast(element, half) for half in halves]
            return vector.from_elements(ir.VectorType.get([count], element), parts)

        return self.remember(("extend", value, str(element)), make)
