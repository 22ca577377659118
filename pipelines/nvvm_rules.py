"""What each kernel op is in NVVM and LLVM: one rule per op, in the order of the dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlir import ir
from mlir.dialects import arith, llvm, nvvm, vector

from tilec.dialects import kernel
from tilec.dialects.tile import ReduceKind
from tilec.pipelines.layouts import combiner, element_of, words_of
from tilec.pipelines.passes import PassFailure
from tilec.runtime.artifact import ITEM_BYTES

GENERIC = -(1 << 31)  # LLVM's marker for "this index is an operand"
Rule = Callable[[ir.OpView], ir.Value | list[ir.Value] | None]
RULES: dict[str, Rule] = {}


def rule(op: type) -> Callable[[Rule], Rule]:
    """Registers what an op becomes: the function gives the replacements of its results, if it has any."""
    def register(function: Rule) -> Rule:
        RULES[op.OPERATION_NAME] = function  # type: ignore[attr-defined]
        return function
    return register


def i64(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def width_of(kind: ir.Type) -> int:
    return ITEM_BYTES[str(element_of(kind))] * (kind.shape[0] if isinstance(kind, ir.VectorType) else 1)


def address_of(pointer: ir.Value, offset: ir.Value, element: ir.Type) -> ir.Value:
    i64 = ir.IntegerType.get_signless(64)
    stored = ir.IntegerType.get_signless(8) if str(element) == "i1" else element
    wide = arith.index_cast(i64, offset)
    return llvm.getelementptr(pointer.type, pointer, [wide], ir.DenseI32ArrayAttr.get([GENERIC]), stored, 0)


def _load(op: ir.OpView) -> ir.Value:
    kind = op.results[0].type
    element = element_of(kind)
    address = address_of(op.buffer, op.offset, element)
    if str(element) == "i1":
        byte = ir.IntegerType.get_signless(8)
        stored = ir.VectorType.get(list(kind.shape), byte) if isinstance(kind, ir.VectorType) else byte
        value = llvm.load(stored, address, alignment=1)
        return arith.cmpi(arith.CmpIPredicate.ne, value, _zero(stored))
    return llvm.load(kind, address, alignment=width_of(kind))


def _stream(op: ir.OpView) -> ir.Value:
    """A 16-byte load with cache hints, which only assembly can say; `volatile` keeps it above the wait it was put before."""
    word, kind = ir.IntegerType.get_signless(32), op.results[0].type
    address = address_of(op.buffer, op.offset, element_of(kind))
    loaded = llvm.inline_asm(_struct(4, word), [address], "ld.global.L1::no_allocate.L2::128B.v4.b32 {$0, $1, $2, $3}, [$4];",
                             "=r,=r,=r,=r,l,~{memory}", has_side_effects=True, asm_dialect=0)
    return vector.bitcast(kind, vector.from_elements(ir.VectorType.get([4], word), _members(loaded, 4, word)))


def _load_when(op: ir.OpView, otherwise: ir.Value | None = None) -> ir.Value:
    """Loads of 16 bytes, or one of 8, under a condition; zeros, or the words of another value, where it is false."""
    word, kind = ir.IntegerType.get_signless(32), op.results[0].type
    if width_of(kind) % 16 and width_of(kind) != 8:
        raise PassFailure(f"under a condition 8 or 16 bytes are read at once, not {kind}", op.operation.location)
    address, count = address_of(op.buffer, op.offset, element_of(kind)), min(width_of(kind) // 4, 4)
    names, words = [f"${i}" for i in range(count)], []
    known = words_of(otherwise) if otherwise is not None else []
    load = f"ld.relaxed.gpu.global.v{count}.b32" if known else f"ld.global.v{count}.b32"  # ptxas moves plain ones to their use
    for start in range(0, width_of(kind) // 4, count):
        before = known[start:start + count]
        loaded = llvm.inline_asm(
            _struct(count, word), [address, op.when, *before], "".join(f"mov.b32 {name}, 0; " for name in names if not before) +
            f"@${count + 1} {load} {{{', '.join(names)}}}, [${count}+{4 * start}];",
            ",".join(["=&r"] * count + ["l", "b", *map(str, range(len(before))), "~{memory}"]), has_side_effects=True,
            asm_dialect=0)
        words += _members(loaded, count, word)
    return vector.bitcast(kind, vector.from_elements(ir.VectorType.get([len(words)], word), words))


def _store(op: ir.OpView) -> None:
    kind = op.value.type
    element, value = element_of(kind), op.value
    address = address_of(op.buffer, op.offset, element)
    if str(element) == "i1":
        byte = ir.IntegerType.get_signless(8)
        value = arith.extui(ir.VectorType.get(list(kind.shape), byte) if isinstance(kind, ir.VectorType) else byte, value)
        llvm.store(value, address, alignment=1)
    else:
        llvm.store(value, address, alignment=width_of(kind))


def _zero(kind: ir.Type) -> ir.Value:
    attribute = ir.IntegerAttr.get(element_of(kind), 0)
    return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute) if isinstance(kind, ir.VectorType)
                          else attribute)


def _words(value: ir.Value) -> list[ir.Value]:
    """A scalar of 4 or 8 bytes as words."""
    word = ir.IntegerType.get_signless(32)
    if width_of(value.type) == 4:
        return [llvm.bitcast(word, value)]
    both = llvm.bitcast(ir.VectorType.get([2], word), value)
    return [vector.extract(both, [], [i]) for i in range(2)]


@rule(kernel.ThreadId)
def _thread_id(op: ir.OpView) -> ir.Value:
    return arith.index_cast(ir.IndexType.get(), nvvm.read_ptx_sreg_tid_x(ir.IntegerType.get_signless(32)))


@rule(kernel.BlockId)
def _block_id(op: ir.OpView) -> ir.Value:
    read = {kernel.Dimension.X: nvvm.read_ptx_sreg_ctaid_x, kernel.Dimension.Y: nvvm.read_ptx_sreg_ctaid_y,
            kernel.Dimension.Z: nvvm.read_ptx_sreg_ctaid_z}[op.dimension]
    return arith.index_cast(ir.IndexType.get(), read(ir.IntegerType.get_signless(32)))


@rule(kernel.LoadGlobal)
def _load_global(op: ir.OpView) -> ir.Value:
    is_vector = isinstance(op.result.type, ir.VectorType)
    if op.when is not None:
        return _load_when(op)
    return _stream(op) if op.cache is kernel.Cache.STREAM and is_vector and width_of(op.result.type) == 16 else _load(op)


@rule(kernel.LoadOver)
def _load_over(op: ir.OpView) -> ir.Value:
    return _load_when(op, op.value)


@rule(kernel.LoadShared)
def _load_shared(op: ir.OpView) -> ir.Value:
    return _load(op)


@rule(kernel.StoreGlobal)
def _store_global(op: ir.OpView) -> None:
    _store(op)


@rule(kernel.StoreShared)
def _store_shared(op: ir.OpView) -> None:
    _store(op)


@rule(kernel.Barrier)
def _barrier(op: ir.OpView) -> None:
    if op.threads is None:
        nvvm.barrier0()
    else:
        nvvm.BarrierOp(None, barrierId=_word(1), numberOfThreads=_word(op.threads))


@rule(kernel.GroupBarrier)
def _group_barrier(op: ir.OpView) -> None:
    if op.arrive:
        nvvm.BarrierArriveOp(_word(op.threads), barrierId=_word(op.number))
    else:
        nvvm.BarrierOp(None, barrierId=_word(op.number), numberOfThreads=_word(op.threads))


@rule(kernel.WarpBarrier)
def _warp_barrier(op: ir.OpView) -> None:
    _need(op.values)
    nvvm.bar_warp_sync(_word(-1))


def _need(values: Sequence[ir.Value]) -> None:
    """An instruction that needs values, so that what they are computed of has been read: a store that never happens."""
    words = [w for v in values for w in _words(v)]
    if words:
        mix = "".join(f"xor.b32 all, all, ${i}; " for i in range(1, len(words)))
        llvm.inline_asm(None, words, f"{{ .reg .pred never; .reg .b32 lanes, all; mov.b32 all, $0; {mix}activemask.b32 lanes; "
                        "setp.eq.u32 never, lanes, 0; @never st.shared.b32 [lanes], all; }",
                        ",".join(["r"] * len(words)) + ",~{memory}", has_side_effects=True, asm_dialect=0)


@rule(kernel.Uniform)
def _uniform(op: ir.OpView) -> ir.Value:
    word = ir.IntegerType.get_signless(32)
    return arith.index_cast(ir.IndexType.get(), _combined(arith.index_cast(word, op.value)))


def _combined(value: ir.Value) -> ir.Value:
    """A word that all lanes have, combined once more: assemblers know that they all have the result, and keep it, and what is
    computed from it, in registers of the warp."""
    return nvvm.redux_sync(value.type, value, nvvm.ReduxKind.OR, _word(-1))


@rule(kernel.ClusterRank)
def _cluster_rank(op: ir.OpView) -> ir.Value:
    word = ir.IntegerType.get_signless(32)
    rank = llvm.inline_asm(word, [], "mov.u32 $0, %cluster_ctarank;", "=r", asm_dialect=0)
    return arith.index_cast(ir.IndexType.get(), rank)


@rule(kernel.ClusterArrive)
def _cluster_arrive(op: ir.OpView) -> None:
    # An arrival that releases everything would wait until the whole GPU sees what was written to global memory. One that
    # does not may overtake reads, unless an instruction before it needs what they bring.
    _need(op.values)
    nvvm.fence_sync_restrict(nvvm.MemOrderKind.RELEASE)
    nvvm.cluster_arrive_relaxed(aligned=True)


@rule(kernel.ClusterWait)
def _cluster_wait(op: ir.OpView) -> None:
    nvvm.cluster_wait(aligned=True)


@rule(kernel.LoadRemote)
def _load_remote(op: ir.OpView) -> ir.Value:
    word, kind = ir.IntegerType.get_signless(32), op.result.type
    element = element_of(kind)
    address = llvm.ptrtoint(word, address_of(op.buffer, op.offset, element))
    rank = arith.index_cast(word, op.rank)
    size = ITEM_BYTES[str(element)]
    if size not in (4, 8) or (size == 8 and isinstance(kind, ir.VectorType)):
        raise PassFailure(f"words of 4 or 8 bytes are read from another block, not {kind}", op.operation.location)
    register = "=f" if str(element) == "f32" else "=r" if size == 4 else "=l"
    remote = llvm.inline_asm(word, [address, rank], "mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", asm_dialect=0)
    if not isinstance(kind, ir.VectorType):
        return llvm.inline_asm(kind, [remote], f"ld.shared::cluster.b{8 * size} $0, [$1];", f"{register},r,~{{memory}}",
                               has_side_effects=True, asm_dialect=0)
    four = _struct(4, element)
    parts = []
    for start in range(0, kind.shape[0], 4):
        loaded = llvm.inline_asm(four, [remote], f"ld.shared::cluster.v4.b32 {{$0, $1, $2, $3}}, [$4+{4 * start}];",
                                 ",".join([register] * 4) + ",r,~{memory}", has_side_effects=True, asm_dialect=0)
        parts += _members(loaded, 4, element)
    return vector.from_elements(kind, parts)


@rule(kernel.GridWait)
def _grid_wait(op: ir.OpView) -> None:
    llvm.inline_asm(None, [], "griddepcontrol.wait;", "~{memory}", has_side_effects=True, asm_dialect=0)


@rule(kernel.LaunchDependents)
def _launch_dependents(op: ir.OpView) -> None:
    llvm.inline_asm(None, [], "griddepcontrol.launch_dependents;", "", has_side_effects=True, asm_dialect=0)


@rule(kernel.WarpReduce)
def _warp_reduce(op: ir.OpView) -> ir.Value:
    word, value, kind = ir.IntegerType.get_signless(32), op.value, op.value.type
    combine = combiner(ReduceKind(op.kind), kind)
    everyone, clamp = arith.constant(word, -1), arith.constant(word, 31)
    for bit in sorted(op.lanes, reverse=True):
        step = arith.constant(word, bit)

        def shuffled(v: ir.Value, step: ir.Value = step) -> ir.Value:
            return nvvm.shfl_sync(v.type, everyone, v, step, clamp, nvvm.ShflKind.bfly)

        if width_of(kind) == 8:  # two words
            parts = [shuffled(w) for w in _words(value)]
            other = llvm.bitcast(kind, vector.from_elements(ir.VectorType.get([2], word), parts))
        else:
            other = shuffled(value)
        value = combine(value, other)
    return value


@rule(kernel.Exchange)
def _exchange(op: ir.OpView) -> ir.Value:
    word = ir.IntegerType.get_signless(32)
    everyone, clamp, step = (arith.constant(word, v) for v in (-1, 31, op.lanes))
    return nvvm.shfl_sync(word, everyone, op.value, step, clamp, nvvm.ShflKind.bfly)


@rule(kernel.Mma)
def _mma(op: ir.OpView) -> list[ir.Value]:
    text = (f"mma.sync.aligned.m16n8k{_depth_of_a_step(op.element)}.row.col.f32.{op.element}.{op.element}.f32 "
            "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};")
    made = llvm.inline_asm(_struct(4), [*op.lhs, *op.rhs, *op.acc], text, ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4),
                           asm_dialect=0)
    return _members(made, 4)


@rule(kernel.LoadMatrix)
def _load_matrix(op: ir.OpView) -> list[ir.Value]:
    word = ir.IntegerType.get_signless(32)
    address = address_of(op.buffer, op.offset, ir.F16Type.get())
    layout = nvvm.MMALayout.col if op.transposed else nvvm.MMALayout.row
    read = nvvm.ldmatrix(_struct(4, word), address, 4, layout,
                         ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"), nvvm.LdStMatrixEltType.B16)
    return _members(read, 4, word)


@rule(kernel.CopyAsync)
def _copy_async(op: ir.OpView) -> None:
    into, source = address_of(op.buffer, op.offset, op.element), address_of(op.source, op.place, op.element)
    nvvm.cp_async_shared_global(into, source, 16, nvvm.LoadCacheModifierKind.CG, cp_size=_word(op.bytes))


@rule(kernel.CommitCopies)
def _commit_copies(op: ir.OpView) -> None:
    nvvm.cp_async_commit_group()


@rule(kernel.WaitCopies)
def _wait_copies(op: ir.OpView) -> None:
    nvvm.cp_async_wait_group(op.later)


# --- Asynchronous copies and tensor cores -----------------------------------------------------------------------------

FOREVER = 10_000_000  # nanoseconds that one try of a wait may take


def _barrier_of(op: ir.OpView) -> ir.Value:
    return address_of(op.barriers, op.index, ir.IntegerType.get_signless(64))


def _word(value: int | ir.Value) -> ir.Value:
    word = ir.IntegerType.get_signless(32)
    return arith.constant(word, value) if isinstance(value, int) else arith.index_cast(word, value)


@rule(kernel.MbarrierInit)
def _mbarrier_init(op: ir.OpView) -> None:
    nvvm.mbarrier_init(_barrier_of(op), _word(op.count))


@rule(kernel.FenceMbarriers)
def _fence_mbarriers(op: ir.OpView) -> None:
    nvvm.fence_mbarrier_init()


@rule(kernel.MbarrierExpect)
def _mbarrier_expect(op: ir.OpView) -> None:
    nvvm.MBarrierArriveExpectTxOp(None, _barrier_of(op), _word(op.bytes))


@rule(kernel.MbarrierArrive)
def _mbarrier_arrive(op: ir.OpView) -> None:
    nvvm.MBarrierArriveOp(None, _barrier_of(op))


@rule(kernel.MbarrierWait)
def _mbarrier_wait(op: ir.OpView) -> None:
    if not op.ended:
        nvvm.mbarrier_try_wait_parity(_barrier_of(op), _word(op.parity), _word(FOREVER))
        return
    # In one piece, with branches that are the same in all lanes: assemblers would take one around a wait for divergent.
    place = llvm.ptrtoint(ir.IntegerType.get_signless(32), _barrier_of(op))
    llvm.inline_asm(None, [place, _word(op.parity), *op.ended], " ".join((
        "{ .reg .pred ended; @$2 bra.uni ENDED; AGAIN:", f"mbarrier.try_wait.parity.shared.b64 ended, [$0], $1, {FOREVER};",
        "@!ended bra.uni AGAIN; ENDED: }")), "r,r,b,~{memory}", has_side_effects=True, asm_dialect=0)


@rule(kernel.MbarrierTest)
def _mbarrier_test(op: ir.OpView) -> ir.Value:
    return nvvm.mbarrier_test_wait(op.result.type, _barrier_of(op), _word(op.parity))


@rule(kernel.TmaLoad)
def _tma_load(op: ir.OpView) -> None:
    into = llvm.addrspacecast(llvm.PointerType.get(7), address_of(op.buffer, op.offset, op.element))
    nvvm.CpAsyncBulkTensorGlobalToSharedClusterOp(into, op.tensor_map, [_word(op.x), _word(op.y), _word(op.z)],
                                                 _barrier_of(op), [])




def _depth_of_a_step(element: ir.Type) -> int:
    """Elements of 32 bytes, which one instruction takes along the depth."""
    return 8 if str(element) == "tf32" else 16


def _descriptor(buffer: ir.Value, offset: ir.Value, element: ir.Type, leading: int, counted: bool) -> ir.Value:
    """How a tile of swizzled 128-byte rows lies in shared memory: its address, `leading` bytes between blocks side by side
    where the rows run along the columns of the result, 1024 bytes between groups of eight rows."""
    wide, word = ir.IntegerType.get_signless(64), ir.IntegerType.get_signless(32)
    place = llvm.ptrtoint(word, address_of(buffer, offset, element))
    low = arith.shrui(arith.andi(place, arith.constant(word, 0x3FFFF)), arith.constant(word, 4))
    low = _combined(low) if counted else low
    return arith.ori(arith.extui(wide, low), arith.constant(wide, (leading >> 4) << 16 | 64 << 32 | 1 << 62))


def _steps(op: kernel.Wgmma, rows: int, transposed: bool) -> list[int]:
    """The distances of an operand's steps along the depth, in units of 16 bytes: 32 bytes in a row, or 16 rows."""
    steps, inside = range(op.depth // _depth_of_a_step(op.element)), kernel.ROW_BYTES // kernel.STEP_BYTES
    if transposed:
        return [step * 16 * kernel.ROW_BYTES // 16 for step in steps]
    return [(step // inside * rows * kernel.ROW_BYTES + step % inside * kernel.STEP_BYTES) // 16 for step in steps]


@rule(kernel.Wgmma)
def _wgmma(op: ir.OpView) -> list[ir.Value]:
    """Fence, steps and commit in one piece of assembly: nothing, not even a zero for acc, may come between them.

    Of f32 in shared memory the instruction takes the bits that TF32 has: sign, exponent and ten of the mantissa. That cuts
    off up to 2^-10 of each operand, always towards zero; nobody rounds them before.
    """
    word, values, transposed = ir.IntegerType.get_signless(32), list(op.acc), bool(op.transposed)
    tf32 = str(op.element) == "tf32"
    held = ir.F32Type.get() if tf32 else op.element
    counted = bool(op.counted)
    rhs = _descriptor(op.rhs, op.rhs_offset, held, op.rhs_rows * kernel.ROW_BYTES if transposed else 16, counted)
    if op.lhs_registers:
        lhs, kind = [llvm.bitcast(word, v) for v in op.lhs_registers], "r"
    else:
        lhs, kind = [_descriptor(op.lhs[0], op.lhs_offset[0], held, 16, counted)], "l"
    count = len(values)
    acc = ", ".join(f"${i}" for i in range(count))
    lines = ["{ .reg .pred add; .reg .b64 left, right; setp.ne.b32 add, 1, 0; wgmma.fence.sync.aligned;"]
    steps = zip(_steps(op, op.lhs_rows, False), _steps(op, op.rhs_rows, transposed), strict=True)
    for step, (left, right) in enumerate(steps):
        lines.append(f"add.s64 right, ${count + len(lhs)}, {right};")
        if op.lhs_registers:
            operand = "{" + ", ".join(f"${count + 4 * step + i}" for i in range(4)) + "}"
        else:
            lines.append(f"add.s64 left, ${count}, {left};")
            operand = "left"
        majors = "" if tf32 else f", {int(transposed)}" if op.lhs_registers else f", 0, {int(transposed)}"
        shape = f"m64n{op.columns}k{_depth_of_a_step(op.element)}.f32.{op.element}.{op.element}"
        lines.append(f"wgmma.mma_async.sync.aligned.{shape} {{{acc}}}, {operand}, right, add, 1, 1{majors};")
    lines.append("wgmma.commit_group.sync.aligned; }")
    constraints = ",".join([*["=f"] * count, *[kind] * len(lhs), "l", *map(str, range(count)), "~{memory}"])
    total = llvm.inline_asm(_struct(count), [*lhs, rhs, *values], " ".join(lines), constraints, has_side_effects=True,
                            asm_dialect=0)
    return _members(total, count)


def _struct(count: int, element: object = "f32") -> ir.Type:
    return ir.Type.parse(f"!llvm.struct<({', '.join([str(element)] * count)})>")


def _members(struct: ir.Value, count: int, element: ir.Type | None = None) -> list[ir.Value]:
    kind = element or ir.F32Type.get()
    return [llvm.extractvalue(kind, struct, ir.DenseI64ArrayAttr.get([i])) for i in range(count)]


@rule(kernel.WgmmaWait)
def _wgmma_wait(op: ir.OpView) -> list[ir.Value]:
    """The values pass through the wait, so that nothing that uses them can move before it."""
    values = list(op.acc)
    if not values:
        nvvm.wgmma_wait_group_sync_aligned(op.running)
        return []
    ties = ",".join(["=f"] * len(values) + [str(i) for i in range(len(values))] + ["~{memory}"])
    waited = llvm.inline_asm(_struct(len(values)), values, f"wgmma.wait_group.sync.aligned {op.running};", ties,
                             has_side_effects=True, asm_dialect=0)
    return _members(waited, len(values))


@rule(kernel.SetRegisters)
def _set_registers(op: ir.OpView) -> None:
    action = nvvm.SetMaxRegisterAction.increase if op.more else nvvm.SetMaxRegisterAction.decrease
    nvvm.setmaxregister(op.count, action)
