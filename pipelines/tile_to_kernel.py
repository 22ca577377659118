"""tile to kernel: tiles are spread over the threads of a block by the schedule's layouts, and one thread's part remains.

A thread's coordinate along an axis comes from its number, last axis fastest. Values that do not vary along an axis are
held by all threads along it; one of them writes. Reductions across threads go by shuffles as far as a warp reaches and
through shared memory from there; every thread gets the result, combined in one fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mlir import ir
from mlir.dialects import arith, func, gpu, vector

from tilec.dialects import kernel, primop, tile
from tilec.dialects.index_expr import Atom, Dim, Linear, Mod, linear, make_map
from tilec.dialects.schedule import Schedule
from tilec.errors import UnsupportedError
from tilec.pipelines.layouts import Fragments
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import body_of, functions, ops_in
from tilec.pipelines.tensor_cores import GROUP, TensorCores, dealt_registers
from tilec.pipelines.thread_reductions import WARP, in_space
from tilec.runtime.artifact import ITEM_BYTES

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
    kinds = [ir.StringAttr(a).value for a in ir.ArrayAttr(function.attributes["tile.arguments"])]
    flat = [_flat(b.type) for b in buffers]
    table = ir.MemRefType.get([len(symbols)], ir.IntegerType.get_signless(64), memory_space=in_space(GLOBAL))
    lowered = func.FuncOp(ir.StringAttr(function.attributes["sym_name"]).value, ([*flat, table], []))
    lowered.attributes["tile.arguments"] = function.attributes["tile.arguments"]
    grid = _Grid(schedule, len(symbols))
    roles = any(isinstance(o, tile.Producer) for o in body_of(function).operations)
    lowered.attributes["kernel.block"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _block_size(schedule, roles))
    lowered.attributes["kernel.grid"] = grid.attribute()
    if "tile.workers" in function.attributes:
        workers = linear(ir.IntegerAttr(function.attributes["tile.workers"]).value)
        lowered.attributes["kernel.grid"] = ir.ArrayAttr.get([
            ir.AffineMapAttr.get(make_map(0, len(symbols), f)) for f in ([workers], [], [])])
    if schedule.cluster > 1:
        lowered.attributes["kernel.cluster"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), schedule.cluster)
    # ptxas lets roles change their numbers of registers only where a bound says how many they begin with.
    resident = schedule.resident or (1 if roles and dealt_registers(schedule) else 0)
    if resident:
        lowered.attributes["kernel.resident"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), resident)
    block = lowered.add_entry_block()
    with ir.InsertionPoint(block):
        lowering = _GpuLowering(schedule, grid, list(symbols), block.arguments[len(buffers)])
        lowering.scalars = dict(zip(buffers, block.arguments, strict=False))
        lowering.weights = {block.arguments[i] for i, role in enumerate(kinds) if role == "weight"}
        lowering.arguments = {v: i for i, v in enumerate(list(block.arguments)[:len(buffers)])}
        lowering.lower_block(body_of(function))
        lowering.end_block()
        func.ReturnOp([])
    if schedule.twins and not ops_in(function, tile.ReduceOnline):
        # Turns of a product of few rows are written out: where addresses are one base and numbers, ptxas reads so far ahead
        # that registers spill.
        lowered.attributes["kernel.wide_indices"] = ir.UnitAttr.get()
    if lowering.tensor_maps:
        maps = [m.to_attribute(len(symbols)) for m in lowering.tensor_maps]
        lowered.attributes["kernel.tensor_maps"] = ir.ArrayAttr.get(maps)
        lowered.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([a.type for a in block.arguments], []))


def _block_size(schedule: Schedule, roles: bool) -> int:
    """Whole warps, because shuffles need all lanes, and those that only fetch."""
    return -(-schedule.threads // WARP) * WARP + (GROUP if roles else 0)


def _in_pieces(kind: ir.Type) -> bool:
    """Whether a fragment is a whole number of 16 bytes, or 8."""
    size = kind.shape[0] * ITEM_BYTES[str(kind.element_type)] if isinstance(kind, ir.VectorType) else 0
    return size == 8 or (size > 0 and size % 16 == 0)


def _is_shared(buffer: ir.Value) -> bool:
    return ir.MemRefType(buffer.type).memory_space.value == kernel.SHARED


def _flat(kind: ir.Type) -> ir.Type:
    shaped = ir.MemRefType(kind)
    if prod(shaped.shape) >= 1 << 31:
        raise UnsupportedError(f"a buffer of {prod(shaped.shape)} elements is beyond the 32-bit offsets of GPU kernels; "
                               "use a smaller context")
    return ir.MemRefType.get([prod(shaped.shape)], shaped.element_type, memory_space=in_space(GLOBAL))


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


class _GpuLowering(TensorCores):
    """Fragments as the registers of one thread."""

    masks_by_element = True

    def __init__(self, schedule: Schedule, grid: _Grid, symbols: list[str], table: ir.Value) -> None:
        super().__init__(schedule, schedule.threads % WARP != 0)
        self.grid, self.symbols, self.table = grid, symbols, table
        self.weights: set[ir.Value] = set()
        self.held = False  # whether what is loaded now was there before the kernel
        self.early = False  # whether it is read ahead of its use
        self.symbol_values: dict[str, ir.Value] = {}

    def add_tensor_map(self) -> ir.Value:
        kind = ir.MemRefType.get([128], ir.IntegerType.get_signless(8), memory_space=in_space(kernel.TENSOR_MAP))
        return self.table.owner.add_argument(kind, ir.Location.current)

    # Places -------------------------------------------------------------------------------------------------------

    def program_id(self, axis: int) -> ir.Value:
        index = ir.IndexType.get()
        if axis in self.grid.direct:
            return self._block(self.grid.direct[axis])
        if axis not in self.grid.folded:
            return self.constant(0, index)
        rest = self._block(kernel.Dimension.X)
        for other in reversed(self.grid.folded):
            count = self.extent(self.schedule.axes[other].programs)
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

    def extent(self, expr: Linear) -> ir.Value:
        return self.apply(expr, [], [self.symbol(n) for n in self.symbols])

    def symbol(self, name: str) -> ir.Value:
        if name not in self.symbol_values:
            at = self.constant(self.symbols.index(name), ir.IndexType.get())
            value = kernel.LoadGlobal(cache=kernel.Cache.PLAIN, buffer=self.table, offset=at,
                                      result=ir.IntegerType.get_signless(64)).result
            index = ir.IndexType.get()
            if self.schedule.rings or self.schedule.twins:
                # Accumulators leave few registers, so LLVM is told that a length is not negative and takes one.
                word = arith.trunci(ir.IntegerType.get_signless(32), value)
                self.symbol_values[name] = arith.index_castui(index, word)
            else:
                self.symbol_values[name] = arith.index_cast(index, value)
        return self.symbol_values[name]

    # Memory -------------------------------------------------------------------------------------------------------

    def alloc(self, kind: ir.Type) -> ir.Value:
        shaped = ir.MemRefType(kind)
        return self._shared(shaped.shape[0], shaped.element_type)

    def barrier(self) -> None:
        self._barrier()

    def _lower_load(self, op: tile.Load | tile.LoadOver | tile.Gather) -> Fragments:
        kind = self.fragment_type(self.layout(list(op.result.type.shape)), op.result.type.element_type)
        self.held = isinstance(op, tile.Load) and op.held is not None and (op.mask is None or _in_pieces(kind))
        self.early = isinstance(op, tile.Load | tile.LoadOver) and self.schedule.ahead and _in_pieces(kind) and \
            not _is_shared(self.scalars[op.source]) and self.scalars[op.source] not in self.weights
        fragments, self.held, self.early = super()._lower_load(op), False, False
        return fragments

    def load_when(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type, flag: ir.Value,
                  otherwise: ir.Value | None) -> ir.Value | None:
        """Of what is read ahead, which LLVM would move to where it is used, and of what is held: another place, which would be
        read instead, may not be. What a tile repeats is read once."""
        if not (self.held or self.early):
            return None
        if otherwise is not None:
            return kernel.LoadOver(value=otherwise, buffer=buffer, offset=self._at(offset), when=flag, result=kind).result
        cache = kernel.Cache.HELD if self.held else kernel.Cache.PLAIN
        return self.remember(("when", buffer, *offset, flag), lambda: kernel.LoadGlobal(
            cache=cache, buffer=buffer, offset=self._at(offset), when=flag, result=kind).result)

    def load(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type) -> ir.Value:
        if _is_shared(buffer):
            return kernel.LoadShared(buffer=buffer, offset=self._at(offset), result=kind).result
        cache = kernel.Cache.STREAM if buffer in self.weights else kernel.Cache.HELD if self.held else kernel.Cache.PLAIN
        return kernel.LoadGlobal(cache=cache, buffer=buffer, offset=self._at(offset), result=kind).result

    def load_masked(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type, mask: ir.Value,
                    otherwise: ir.Value) -> ir.Value:
        self.held = False  # an element that does not exist is read from where the buffer begins, which may not be held
        vector_type = ir.VectorType(kind)
        base, index = self._at(offset), ir.IndexType.get()
        parts = []
        for i in range(vector_type.shape[0]):
            place = arith.addi(base, self.constant(i, index)) if i else base
            safe = arith.select(vector.extract(mask, [], [i]), place, self.constant(0, index))
            parts.append(self.load(buffer, (safe, 0), vector_type.element_type))
        return arith.select(mask, vector.from_elements(kind, parts), otherwise)

    def _is_run(self, elements: list[Linear], places: list[list[ir.Value]]) -> bool:
        """Also one that begins at a multiple of its size: a GPU reads and writes no other vectors."""
        return super()._is_run(elements, places) and self._is_multiple(elements[0], len(elements))

    def _is_multiple(self, offset: Linear, size: int) -> bool:
        """Whether an offset is known to be a multiple of `size`. Along an axis a thread begins at multiples of its vectors."""
        axes = self.schedule.axes

        def whole(atom: Atom) -> bool:
            if isinstance(atom, Dim):  # beyond the axes is what a gather has found
                return atom.position < len(axes) and axes[atom.position].vector % size == 0
            return isinstance(atom, Mod) and atom.divisor % size == 0 and self._is_multiple(atom.numerator, size)

        return offset.constant % size == 0 and all(c % size == 0 or whole(a) for a, c in offset.terms)

    def store(self, value: ir.Value, buffer: ir.Value, offset: tuple[ir.Value, int]) -> None:
        store = kernel.StoreShared if _is_shared(buffer) else kernel.StoreGlobal
        store(value=value, buffer=buffer, offset=self._at(offset))

    def store_masked(self, value: ir.Value, buffer: ir.Value, offset: tuple[ir.Value, int], mask: ir.Value) -> None:
        base, index = self._at(offset), ir.IndexType.get()
        for i in range(ir.VectorType(value.type).shape[0]):
            with self._when(vector.extract(mask, [], [i])):
                place = arith.addi(base, self.constant(i, index)) if i else base
                self.store(vector.extract(value, [], [i]), buffer, (place, 0))

    # The end, and products ----------------------------------------------------------------------------------------

    def dot(self, op: tile.Dot, lhs: Fragments, rhs: Fragments, acc: Fragments) -> Fragments:
        return self.dot_of_cores(op, lhs, rhs, acc) if self.schedule.cores else self.dot_by_multiply_add(lhs, rhs, acc)

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
