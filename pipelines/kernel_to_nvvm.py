"""kernel to NVVM: a table of one rule per op, and the function that changes its skin from `func` to `llvm`.

Everything that is not a kernel op is upstream's and is left for upstream's conversions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, llvm, nvvm, vector

from tilec.dialects import kernel
from tilec.dialects.tile import ReduceKind
from tilec.pipelines.layouts import combiner
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import body_of
from tilec.runtime.artifact import ITEM_BYTES

GENERIC = -(1 << 31)  # LLVM's marker for "this index is an operand"
Rule = Callable[[ir.OpView], ir.Value | None]
RULES: dict[str, Rule] = {}


def rule(op: type) -> Callable[[Rule], Rule]:
    """Registers what an op becomes: the function gives the replacement of its result, if it has one."""
    def register(function: Rule) -> Rule:
        RULES[op.OPERATION_NAME] = function  # type: ignore[attr-defined]
        return function
    return register


@dataclass(frozen=True)
class KernelToNvvm(Pass):
    """Turn kernel functions into llvm.func with nvvm attributes, and kernel ops into nvvm and llvm ops."""

    name = "convert-kernel-to-nvvm"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for module in op.regions[0].blocks[0].operations:
            if module.operation.name == "gpu.module":
                module.attributes["dlti.dl_spec"] = ir.Attribute.parse("#dlti.dl_spec<index = 32 : i32>")
                for function in list(module.regions[0].blocks[0].operations):
                    if function.operation.name == "func.func":
                        with function.operation.location:
                            _convert_function(module, function)
                        function.operation.erase()


def _convert_function(module: ir.OpView, function: ir.OpView) -> None:
    source = body_of(function)
    pointer = llvm.PointerType.get(1)
    name = ir.StringAttr(function.attributes["sym_name"]).value
    with ir.InsertionPoint(function):
        signature = ir.Type.parse(f"!llvm.func<void ({', '.join(['ptr<1>'] * len(source.arguments))})>")
        lowered = llvm.LLVMFuncOp(name, ir.TypeAttr.get(signature))
    block_size = ir.IntegerAttr(function.attributes["kernel.block"]).value
    attributes = lowered.operation.attributes
    attributes["gpu.kernel"] = attributes["nvvm.kernel"] = ir.UnitAttr.get()
    attributes["nvvm.reqntid"] = ir.Attribute.parse(f"array<i32: {block_size}, 1, 1>")
    for name in ("kernel.grid", "kernel.dependent"):
        if name in function.attributes:
            attributes[name] = function.attributes[name]
    if "kernel.cluster" in function.attributes:
        blocks = ir.IntegerAttr(function.attributes["kernel.cluster"]).value
        attributes["nvvm.cluster_dim"] = ir.Attribute.parse(f"array<i32: {blocks}, 1, 1>")
    if "kernel.resident" in function.attributes:
        # Without a bound ptxas serialises batched loads to save registers; with it, it uses what a full multiprocessor has.
        resident = ir.IntegerAttr(function.attributes["kernel.resident"]).value
        attributes["nvvm.minctasm"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), resident)
    # No `noalias`: it would make reads of activations non-coherent loads, which ptxas moves above the wait for their writer.
    attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get({"llvm.align": _i64(16)})] * len(source.arguments))
    block = lowered.regions[0].blocks.append(*[pointer] * len(source.arguments))
    for old, new in zip(source.arguments, block.arguments, strict=True):
        old.replace_all_uses_with(new)
    for op in list(source.operations):
        op.operation.detach_from_parent()
        block.append(op)
    _apply_rules(block)
    with ir.InsertionPoint(list(block.operations)[-1]):
        llvm.ReturnOp()
    list(block.operations)[-1].operation.erase()


def _apply_rules(block: ir.Block) -> None:
    for op in list(block.operations):
        for region in op.operation.regions:
            for inner in region.blocks:
                _apply_rules(inner)
        convert = RULES.get(op.operation.name)
        if convert is not None:
            with op.operation.location, ir.InsertionPoint(op):
                replacement = convert(op)
            if replacement is not None:
                op.operation.results[0].replace_all_uses_with(replacement)
            op.operation.erase()


def _i64(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _element(kind: ir.Type) -> ir.Type:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


def _width(kind: ir.Type) -> int:
    return ITEM_BYTES[str(_element(kind))] * (kind.shape[0] if isinstance(kind, ir.VectorType) else 1)


def _address(pointer: ir.Value, offset: ir.Value, element: ir.Type) -> ir.Value:
    i64 = ir.IntegerType.get_signless(64)
    stored = ir.IntegerType.get_signless(8) if str(element) == "i1" else element
    wide = arith.index_cast(i64, offset)
    return llvm.getelementptr(pointer.type, pointer, [wide], ir.DenseI32ArrayAttr.get([GENERIC]), stored, 0)


def _load(op: ir.OpView) -> ir.Value:
    kind = op.results[0].type
    element = _element(kind)
    address = _address(op.buffer, op.offset, element)
    if str(element) == "i1":
        byte = ir.IntegerType.get_signless(8)
        stored = ir.VectorType.get(list(kind.shape), byte) if isinstance(kind, ir.VectorType) else byte
        value = llvm.load(stored, address, alignment=1)
        return arith.cmpi(arith.CmpIPredicate.ne, value, _zero(stored))
    return llvm.load(kind, address, alignment=_width(kind))


def _stream(op: ir.OpView) -> ir.Value:
    """A 16-byte load with cache hints, which only assembly can say; `volatile` keeps it above the wait it was put before."""
    word, kind = ir.IntegerType.get_signless(32), op.results[0].type
    address = _address(op.buffer, op.offset, _element(kind))
    struct = ir.Type.parse("!llvm.struct<(i32, i32, i32, i32)>")
    loaded = llvm.inline_asm(struct, [address], "ld.global.L1::no_allocate.L2::256B.v4.b32 {$0, $1, $2, $3}, [$4];",
                             "=r,=r,=r,=r,l,~{memory}", has_side_effects=True, asm_dialect=0)
    words = [llvm.extractvalue(word, loaded, ir.DenseI64ArrayAttr.get([i])) for i in range(4)]
    return vector.bitcast(kind, vector.from_elements(ir.VectorType.get([4], word), words))


def _store(op: ir.OpView) -> None:
    kind = op.value.type
    element, value = _element(kind), op.value
    address = _address(op.buffer, op.offset, element)
    if str(element) == "i1":
        byte = ir.IntegerType.get_signless(8)
        value = arith.extui(ir.VectorType.get(list(kind.shape), byte) if isinstance(kind, ir.VectorType) else byte, value)
        llvm.store(value, address, alignment=1)
    else:
        llvm.store(value, address, alignment=_width(kind))


def _zero(kind: ir.Type) -> ir.Value:
    attribute = ir.IntegerAttr.get(_element(kind), 0)
    return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute) if isinstance(kind, ir.VectorType)
                          else attribute)


@rule(kernel.ThreadId)
def _thread_id(op: ir.OpView) -> ir.Value:
    return arith.index_cast(ir.IndexType.get(), nvvm.read_ptx_sreg_tid_x(ir.IntegerType.get_signless(32)))


@rule(kernel.BlockId)
def _block_id(op: ir.OpView) -> ir.Value:
    read = {kernel.Dimension.X: nvvm.read_ptx_sreg_ctaid_x, kernel.Dimension.Y: nvvm.read_ptx_sreg_ctaid_y,
            kernel.Dimension.Z: nvvm.read_ptx_sreg_ctaid_z}[op.dimension]
    return arith.index_cast(ir.IndexType.get(), read(ir.IntegerType.get_signless(32)))


@rule(kernel.Shared)
def _shared(op: ir.OpView) -> ir.Value:
    """A module-level array, private to the kernel by its name."""
    function = op.operation.parent
    while function.name != "llvm.func":
        function = function.parent
    kind = ir.MemRefType(op.result.type)
    name = f"{ir.StringAttr(function.attributes['sym_name']).value}_{op.symbol}"
    others = function.parent.regions[0].blocks[0].operations
    if all(not isinstance(o, llvm.GlobalOp) or ir.StringAttr(o.attributes["sym_name"]).value != name for o in others):
        with ir.InsertionPoint(function):
            llvm.GlobalOp(ir.Type.parse(f"!llvm.array<{kind.shape[0]} x {kind.element_type}>"), name,
                          ir.Attribute.parse("#llvm.linkage<internal>"), addr_space=3, alignment=16)
    return llvm.mlir_addressof(llvm.PointerType.get(3), name)


@rule(kernel.LoadGlobal)
def _load_global(op: ir.OpView) -> ir.Value:
    is_vector = isinstance(op.result.type, ir.VectorType)
    return _stream(op) if op.cache is kernel.Cache.STREAM and is_vector and _width(op.result.type) == 16 else _load(op)


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
    nvvm.barrier0()


@rule(kernel.ClusterRank)
def _cluster_rank(op: ir.OpView) -> ir.Value:
    word = ir.IntegerType.get_signless(32)
    rank = llvm.inline_asm(word, [], "mov.u32 $0, %cluster_ctarank;", "=r", asm_dialect=0)
    return arith.index_cast(ir.IndexType.get(), rank)


@rule(kernel.ClusterArrive)
def _cluster_arrive(op: ir.OpView) -> None:
    nvvm.cluster_arrive(aligned=True)


@rule(kernel.ClusterWait)
def _cluster_wait(op: ir.OpView) -> None:
    nvvm.cluster_wait(aligned=True)


@rule(kernel.LoadRemote)
def _load_remote(op: ir.OpView) -> ir.Value:
    word, kind = ir.IntegerType.get_signless(32), op.result.type
    element = _element(kind)
    address = llvm.ptrtoint(word, _address(op.buffer, op.offset, element))
    rank = arith.index_cast(word, op.rank)
    if ITEM_BYTES[str(element)] != 4:
        raise PassFailure(f"only 4-byte elements are read from another block, not {kind}", op.operation.location)
    register = "=f" if str(element) == "f32" else "=r"
    remote = llvm.inline_asm(word, [address, rank], "mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", asm_dialect=0)
    if not isinstance(kind, ir.VectorType):
        return llvm.inline_asm(kind, [remote], "ld.shared::cluster.b32 $0, [$1];", f"{register},r,~{{memory}}",
                               has_side_effects=True, asm_dialect=0)
    four = ir.Type.parse(f"!llvm.struct<({', '.join([str(element)] * 4)})>")
    parts = []
    for start in range(0, kind.shape[0], 4):
        loaded = llvm.inline_asm(four, [remote], f"ld.shared::cluster.v4.b32 {{$0, $1, $2, $3}}, [$4+{4 * start}];",
                                 ",".join([register] * 4) + ",r,~{memory}", has_side_effects=True, asm_dialect=0)
        parts += [llvm.extractvalue(element, loaded, ir.DenseI64ArrayAttr.get([i])) for i in range(4)]
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

        if _width(kind) == 8:  # two words
            halves = ir.VectorType.get([2], word)
            words = llvm.bitcast(halves, value)
            parts = [shuffled(vector.extract(words, [], [i])) for i in (0, 1)]
            other = llvm.bitcast(kind, vector.from_elements(halves, parts))
        else:
            other = shuffled(value)
        value = combine(value, other)
    return value


assert set(kernel.Kernel.operations) == set(RULES), "every kernel op needs a rule"
