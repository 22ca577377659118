"""tile to the CPU: the grid becomes a range of programs per thread, tiles become SIMD registers, memory plain pointers.

Every kernel `K` becomes two functions. `K_program` is one program, with `noalias` pointers, so that LLVM may keep what it
read. `K(buffers, symbols, thread, threads)` is what the runtime calls: it reads the pointers and the symbols from two
arrays, takes this thread's contiguous share of the grid, and runs the program for each member. A program's result does
not depend on who runs it, so results do not depend on the number of threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import affine, arith, func, llvm, scf, vector

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import Linear, make_map
from tilec.dialects.schedule import Schedule
from tilec.pipelines.fragments import FragmentLowering
from tilec.pipelines.layouts import Coordinates, Fragments, element_of
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import body_of, functions
from tilec.pipelines.targets import CpuTarget, find_target
from tilec.runtime.artifact import ITEM_BYTES


@dataclass(frozen=True)
class TileToCpu(Pass):
    """Lower the tile functions of the nested module `kernels` to functions over pointers and SIMD vectors."""

    name = "convert-tile-to-cpu"
    anchor = "builtin.module"
    target: str = "cpu"

    def run(self, op: ir.OpView) -> None:
        target = find_target(self.target)
        if not isinstance(target, CpuTarget):
            raise PassFailure(f"convert-tile-to-cpu needs a CPU target, but got {target.name}")
        symbols = list(primop.symbol_ranges(op.operation))
        for nested in op.regions[0].blocks[0].operations:
            if nested.operation.name == "builtin.module":
                for function in functions(nested, "tile.kernel"):
                    with function.operation.location:
                        _lower_kernel(function, symbols, target)
                    function.operation.erase()


def _lower_kernel(function: ir.OpView, symbols: list[str], target: CpuTarget) -> None:
    schedule = Schedule.from_attribute(function.attributes["tile.schedule"])
    name = ir.StringAttr(function.attributes["sym_name"]).value
    pointer, index, i64 = llvm.PointerType.get(), ir.IndexType.get(), ir.IntegerType.get_signless(64)
    buffers = list(body_of(function).arguments)
    grid = schedule.grid
    function.attributes["sym_name"] = ir.StringAttr.get(name + "_tile")
    with ir.InsertionPoint(function):
        program = func.FuncOp(name + "_program", ([pointer] * len(buffers) + [index] * (len(symbols) + len(grid)), []),
                              visibility="private")
        entry = func.FuncOp(name, ([pointer, pointer, i64, i64], []))
    noalias = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
    nothing = ir.DictAttr.get({})
    program.attributes["arg_attrs"] = ir.ArrayAttr.get(
        [noalias] * len(buffers) + [nothing] * (len(symbols) + len(grid)))
    block = program.add_entry_block()
    with ir.InsertionPoint(block):
        lowering = _CpuLowering(schedule, target)
        arguments = list(block.arguments)
        lowering.scalars = dict(zip(buffers, arguments, strict=False))
        lowering.symbol_values = dict(zip(symbols, arguments[len(buffers):], strict=False))
        lowering.programs = dict(zip(grid, arguments[len(buffers) + len(symbols):], strict=True))
        lowering.lower_block(body_of(function))
        func.ReturnOp([])
    _entry(entry, name + "_program", schedule, len(buffers), symbols)


def _entry(entry: ir.OpView, program: str, schedule: Schedule, buffers: int, symbols: list[str]) -> None:
    """The function that the runtime calls: this thread's share of the grid."""
    pointer, index, i64 = llvm.PointerType.get(), ir.IndexType.get(), ir.IntegerType.get_signless(64)
    block = entry.add_entry_block()
    table, values, thread, threads = block.arguments
    with ir.InsertionPoint(block):
        def element(base: ir.Value, i: int, kind: ir.Type) -> ir.Value:
            at = llvm.getelementptr(pointer, base, [], ir.DenseI32ArrayAttr.get([i]), kind, 0)
            return llvm.load(kind, at, alignment=8)

        pointers = [element(table, i, pointer) for i in range(buffers)]
        named = [arith.index_cast(index, element(values, i, i64)) for i in range(len(symbols))]
        counts = [_emit_extent(schedule.axes[a].programs, named) for a in schedule.grid]
        total = arith.constant(index, 1)
        for count in counts:
            total = arith.muli(total, count)
        me, all_ = arith.index_cast(index, thread), arith.index_cast(index, threads)
        one = arith.constant(index, 1)
        low = arith.divui(arith.muli(total, me), all_)
        high = arith.divui(arith.muli(total, arith.addi(me, one)), all_)
        loop = scf.ForOp(low, high, one)
        with ir.InsertionPoint(loop.body):
            ids: list[ir.Value] = []
            rest = loop.induction_variable
            for i in range(len(counts) - 1, -1, -1):
                ids.insert(0, arith.remui(rest, counts[i]) if i else rest)
                rest = arith.divui(rest, counts[i]) if i else rest
            func.CallOp([], program, [*pointers, *named, *ids])
            scf.YieldOp([])
        func.ReturnOp([])


def _emit_extent(expr: Linear, symbols: list[ir.Value]) -> ir.Value:
    if expr.is_constant:
        return arith.constant(ir.IndexType.get(), expr.constant)
    return affine.apply(make_map(0, len(symbols), [expr]), symbols)


class _CpuLowering(FragmentLowering):
    """Fragments as SIMD registers of one core."""

    def __init__(self, schedule: Schedule, target: CpuTarget) -> None:
        super().__init__(schedule)
        self.target = target
        self.symbol_values: dict[str, ir.Value] = {}
        self.programs: dict[int, ir.Value] = {}

    def program_id(self, axis: int) -> ir.Value:
        return self.programs[axis]

    def symbol(self, name: str) -> ir.Value:
        return self.symbol_values[name]

    def thread(self, axis: int) -> ir.Value | None:
        return None

    def reduce_threads(self, values: dict[Coordinates, ir.Value], kind: tile.ReduceKind, axes: list[int], by_lanes: list[int],
                       dealt: Sequence[int]) -> dict[Coordinates, ir.Value]:
        raise PassFailure("a CPU program has one thread, but the schedule spreads an axis over several", ir.Location.current)

    def reduce_online(self, ops: list[tile.ReduceOnline]) -> list[Fragments]:
        raise PassFailure("a CPU program has one thread, but the schedule spreads an axis over several", ir.Location.current)

    def alloc(self, kind: ir.Type) -> ir.Value:
        shaped = ir.MemRefType(kind)
        count = arith.constant(ir.IntegerType.get_signless(64), shaped.shape[0])
        return llvm.alloca(llvm.PointerType.get(), count, _stored(shaped.element_type), alignment=64)

    def barrier(self) -> None:
        return

    def _address(self, buffer: ir.Value, offset: tuple[ir.Value, int], element: ir.Type) -> ir.Value:
        base, constant = offset
        pointer = llvm.PointerType.get()
        stored = _stored(element)
        wide = self.remember(("i64", base), lambda: arith.index_cast(ir.IntegerType.get_signless(64), base))
        moved = self.remember(("address", buffer, wide, str(element)), lambda: llvm.getelementptr(
            pointer, buffer, [wide], ir.DenseI32ArrayAttr.get([_DYNAMIC]), stored, 0))
        if not constant:
            return moved
        return llvm.getelementptr(pointer, moved, [], ir.DenseI32ArrayAttr.get([constant]), stored, 0)

    def load(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type) -> ir.Value:
        element = element_of(kind)
        address = self._address(buffer, offset, element)
        if str(element) == "i1":
            stored = llvm.load(_with_element(kind, _stored(element)), address, alignment=1)
            return arith.cmpi(arith.CmpIPredicate.ne, stored, self.constant(0, stored.type))
        return llvm.load(kind, address, alignment=ITEM_BYTES[str(element)])

    def load_masked(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type, mask: ir.Value,
                    otherwise: ir.Value) -> ir.Value:
        element = element_of(kind)
        address = self._address(buffer, offset, element)
        if str(element) == "i1":
            stored = _with_element(kind, _stored(element))
            value = _masked_load(stored, address, mask, self.constant(0, stored), 1)
            return arith.cmpi(arith.CmpIPredicate.ne, value, self.constant(0, stored))
        moved = _with_element(kind, _moved(element))
        value = _masked_load(moved, address, mask, _as(otherwise, moved), ITEM_BYTES[str(element)])
        return _as(value, kind)

    def store(self, value: ir.Value, buffer: ir.Value, offset: tuple[ir.Value, int]) -> None:
        element = element_of(value.type)
        value = self._storable(value)
        llvm.store(value, self._address(buffer, offset, element), alignment=ITEM_BYTES[str(element)])

    def store_masked(self, value: ir.Value, buffer: ir.Value, offset: tuple[ir.Value, int], mask: ir.Value) -> None:
        element = element_of(value.type)
        value = self._storable(value)
        value = _as(value, _with_element(value.type, _moved(element_of(value.type))))
        llvm.intr_masked_store(value, self._address(buffer, offset, element), mask, ITEM_BYTES[str(element)])

    def _storable(self, value: ir.Value) -> ir.Value:
        element = element_of(value.type)
        return arith.extui(_with_element(value.type, _stored(element)), value) if str(element) == "i1" else value

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        if not self.target.fused and str(element_of(c.type)) in primop.FLOATS:
            return arith.addf(arith.mulf(a, b), c)
        return super().multiply_add(a, b, c)

    def dot(self, op: tile.Dot, lhs: Fragments, rhs: Fragments, acc: Fragments) -> Fragments:
        pair = self._pair_axis(lhs, rhs, acc)
        return self.dot_by_multiply_add(lhs, rhs, acc) if pair is None else self._dot_pairs(lhs, rhs, acc, pair)

    def _pair_axis(self, lhs: Fragments, rhs: Fragments, acc: Fragments) -> int | None:
        """The reduced axis, if both operands hold bf16 pairs along it, last in their boxes, and one is a bare pair."""
        if str(lhs.element) != "bf16" or str(rhs.element) != "bf16" or acc.layout.length == 1:
            return None
        both = [i for i, (a, b, c) in enumerate(zip(lhs.layout.box, rhs.layout.box, acc.layout.box, strict=True))
                if a == b == 2 and c == 1]
        if len(both) != 1 or any(n > 1 for n in lhs.layout.box[both[0] + 1:] + rhs.layout.box[both[0] + 1:]):
            return None
        return both[0] if min(lhs.layout.length, rhs.layout.length) == 2 else None

    def _dot_pairs(self, lhs: Fragments, rhs: Fragments, acc: Fragments, axis: int) -> Fragments:
        narrow, wide = (lhs, rhs) if lhs.layout.length == 2 else (rhs, lhs)
        values = dict(acc.values)
        registers = tuple(max(a, b) for a, b in zip(lhs.layout.registers, rhs.layout.registers, strict=True))
        for at in itertools.product(*map(range, registers)):
            def here(t: Fragments, at: tuple[int, ...] = at) -> tuple[int, ...]:
                return tuple(0 if r == 1 else i for i, r in zip(at, t.layout.registers, strict=True))
            into = here(acc)
            values[into] = self._pair_product(narrow.values[here(narrow)], wide.values[here(wide)], values[into])
        return Fragments(acc.layout, acc.element, values)

    def _pair_product(self, pair: ir.Value, panel: ir.Value, total: ir.Value) -> ir.Value:
        """total[i] + pair[0] * panel[2i] + pair[1] * panel[2i + 1], bf16 products in f32."""
        length = total.type.shape[0]
        word, words = ir.IntegerType.get_signless(32), ir.VectorType.get([length], ir.IntegerType.get_signless(32))
        one = ir.VectorType.get([1], word)
        packed = self.remember(("pair", pair), lambda: vector.broadcast(
            words, vector.extract(vector.bitcast(one, pair), [], [0])))
        if self.target.bf16_dot and length == 16:
            repeated = self.remember(("pairs", pair), lambda: vector.bitcast(panel.type, packed))
            return llvm.call_intrinsic(total.type, "llvm.x86.avx512bf16.dpbf16ps.512", [total, panel, repeated], [], [])
        weights = self.remember(("words", panel), lambda: vector.bitcast(words, panel))
        for name, source, low in (("even", weights, True), ("odd", weights, False)):
            a = self._half(packed, low, total.type, (name, "pair"))
            b = self._half(source, low, total.type, (name, "panel"))
            total = self.multiply_add(a, b, total)
        return total

    def _half(self, words: ir.Value, low: bool, kind: ir.Type, key: tuple[str, str]) -> ir.Value:
        """The bf16 in the low or high half of each word, as f32: bf16 is the upper half of f32."""
        def make() -> ir.Value:
            if low:
                bits = arith.shli(words, self.constant(16, words.type))
            else:
                bits = arith.andi(words, self.constant(-65536, words.type))
            return arith.bitcast(kind, bits)
        return self.remember((*key, words), make)


_DYNAMIC = -(1 << 31)  # LLVM's marker for "this index is an operand"


def _masked_load(kind: ir.Type, address: ir.Value, mask: ir.Value, otherwise: ir.Value, alignment: int) -> ir.Value:
    # The generated builder takes the pass-through as a single value in a list position and rejects both forms.
    attributes = {"alignment": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), alignment)}
    return ir.Operation.create("llvm.intr.masked.load", results=[kind], operands=[address, mask, otherwise],
                               attributes=attributes).results[0]


def _with_element(kind: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType.get(list(kind.shape), element) if isinstance(kind, ir.VectorType) else element


def _stored(element: ir.Type) -> ir.Type:
    """How an element lies in memory: i1 takes a byte."""
    return ir.IntegerType.get_signless(8) if str(element) == "i1" else element


def _moved(element: ir.Type) -> ir.Type:
    """As what masked memory accesses move an element: LLVM takes apart those of 16-bit floats and converts each to f32."""
    return ir.IntegerType.get_signless(16) if str(element) in ("bf16", "f16") else element


def _as(value: ir.Value, kind: ir.Type) -> ir.Value:
    return value if value.type == kind else arith.bitcast(kind, value)


