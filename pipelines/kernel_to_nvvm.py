"""kernel to NVVM: one rule per op (`nvvm_rules.py`), and the function that changes its skin from `func` to `llvm`.

Everything that is not a kernel op is upstream's and is left for upstream's conversions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from mlir import ir
from mlir.dialects import llvm

from tilec.dialects import kernel
from tilec.pipelines.kernel import gpu_modules
from tilec.pipelines.nvvm_rules import RULES, i64
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import body_of, ops_in
from tilec.runtime.artifact import ITEM_BYTES

STATIC_BYTES = 48 << 10  # of shared memory that a kernel may declare; more is asked for at launch
PART = re.compile(r"part\d+_")


@dataclass(frozen=True)
class KernelToNvvm(Pass):
    """Turn kernel functions into llvm.func with nvvm attributes, and kernel ops into nvvm and llvm ops."""

    name = "convert-kernel-to-nvvm"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for module in gpu_modules(op):
            for function in list(module.regions[0].blocks[0].operations):
                if function.operation.name == "func.func":
                    with function.operation.location:
                        _convert_function(module, function)
                    function.operation.erase()


def _convert_function(module: ir.OpView, function: ir.OpView) -> None:
    source = body_of(function)
    name = ir.StringAttr(function.attributes["sym_name"]).value
    spaces = [ir.MemRefType(a.type).memory_space.value for a in source.arguments]
    pointers = [llvm.PointerType.get() if space == kernel.TENSOR_MAP else llvm.PointerType.get(1) for space in spaces]
    with ir.InsertionPoint(function):
        signature = ir.Type.parse(f"!llvm.func<void ({', '.join(str(p).removeprefix('!llvm.') for p in pointers)})>")
        lowered = llvm.LLVMFuncOp(name, ir.TypeAttr.get(signature))
    block_size = ir.IntegerAttr(function.attributes["kernel.block"]).value
    attributes = lowered.operation.attributes
    attributes["gpu.kernel"] = attributes["nvvm.kernel"] = ir.UnitAttr.get()
    attributes["nvvm.reqntid"] = ir.Attribute.parse(f"array<i32: {block_size}, 1, 1>")
    for kept in ("kernel.grid", "kernel.dependent", "kernel.tensor_maps", "kernel.wide_indices"):
        if kept in function.attributes:
            attributes[kept] = function.attributes[kept]
    if "kernel.cluster" in function.attributes:
        blocks = ir.IntegerAttr(function.attributes["kernel.cluster"]).value
        attributes["nvvm.cluster_dim"] = ir.Attribute.parse(f"array<i32: {blocks}, 1, 1>")
    if "kernel.resident" in function.attributes:
        # Without a bound ptxas serialises batched loads to save registers; with it, it uses what a full multiprocessor has.
        resident = ir.IntegerAttr(function.attributes["kernel.resident"]).value
        attributes["nvvm.minctasm"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), resident)
    # No `noalias`: it would make reads of activations non-coherent loads, which ptxas moves above the wait for their writer.
    plain = ir.DictAttr.get({"llvm.align": i64(16)})
    by_value = ir.Attribute.parse("{llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant}")
    attributes["arg_attrs"] = ir.ArrayAttr.get([by_value if space == kernel.TENSOR_MAP else plain for space in spaces])
    block = lowered.regions[0].blocks.append(*pointers)
    for old, new in zip(source.arguments, block.arguments, strict=True):
        old.replace_all_uses_with(new)
    for op in list(source.operations):
        op.operation.detach_from_parent()
        block.append(op)
    _place_shared(lowered, name)
    _apply_rules(block)
    with ir.InsertionPoint(list(block.operations)[-1]):
        llvm.ReturnOp()
    list(block.operations)[-1].operation.erase()


def _place_shared(function: ir.OpView, name: str) -> None:
    """Gives shared memory its place: arrays of the module, or, if that is too much, parts of one array sized at launch.

    Parts of a merged kernel run in different blocks, so theirs overlap. What may lie over other memory does in the array.
    """
    found = ops_in(function, kernel.Shared)
    sizes = {op.symbol: _shared_bytes(op) for op in found}
    aligns = {op.symbol: op.align or 16 for op in found}
    below = {op.symbol: op.over for op in found if op.over}
    offsets: dict[str, int] = {}
    ends: dict[str, int] = {}
    for symbol in sorted(sizes, key=lambda s: (s in below, -aligns[s], s)):
        if symbol in below:
            others = [s for s in offsets if re.fullmatch(below[symbol] + r"\d+", s)]
            room = sum(sizes[s] for s in others)
            if sizes[symbol] > room:
                raise PassFailure(f"{symbol} has {sizes[symbol]} bytes, but {', '.join(others)} only {room}",
                                  function.operation.location)
            offsets[symbol] = min(offsets[s] for s in others)
            continue
        part = PART.match(symbol)
        key = part.group() if part else ""
        offsets[symbol] = -(-ends.get(key, 0) // aligns[symbol]) * aligns[symbol]
        ends[key] = offsets[symbol] + sizes[symbol]
    total = ends.pop("", 0) + max(ends.values(), default=0)
    dynamic = sum(sizes.values()) > STATIC_BYTES
    if dynamic:
        function.attributes["kernel.shared_bytes"] = i64(total)
        with ir.InsertionPoint(function):
            llvm.GlobalOp(ir.Type.parse("!llvm.array<0 x i8>"), f"{name}_shared", ir.Attribute.parse("#llvm.linkage<external>"),
                          addr_space=3, alignment=1024)
    declared: set[str] = set()
    for op in found:
        kind, symbol = ir.MemRefType(op.result.type), op.symbol
        if not dynamic and symbol not in declared:
            with ir.InsertionPoint(function):
                llvm.GlobalOp(ir.Type.parse(f"!llvm.array<{_room(kind)} x {kind.element_type}>"), f"{name}_{symbol}",
                              ir.Attribute.parse("#llvm.linkage<internal>"), addr_space=3, alignment=aligns[symbol])
            declared.add(symbol)
        with op.operation.location, ir.InsertionPoint(op):
            place = llvm.mlir_addressof(llvm.PointerType.get(3), f"{name}_shared" if dynamic else f"{name}_{symbol}")
            if dynamic:
                place = llvm.getelementptr(llvm.PointerType.get(3), place, [], ir.DenseI32ArrayAttr.get([offsets[symbol]]),
                                           ir.IntegerType.get_signless(8), 0)
        op.result.replace_all_uses_with(place)
        op.operation.erase()


def _shared_bytes(op: kernel.Shared) -> int:
    kind = ir.MemRefType(op.result.type)
    return prod(kind.shape) * ITEM_BYTES[str(kind.element_type)]


def _room(kind: ir.MemRefType) -> int:
    """Elements to declare: whole 16 bytes, up to where LLVM may read past the end of what it knows is aligned."""
    each = 16 // ITEM_BYTES[str(kind.element_type)]
    return -(-prod(kind.shape) // each) * each


def _apply_rules(block: ir.Block) -> None:
    for op in list(block.operations):
        for region in op.operation.regions:
            for inner in region.blocks:
                _apply_rules(inner)
        convert = RULES.get(op.operation.name)
        if convert is not None:
            with op.operation.location, ir.InsertionPoint(op):
                replacement = convert(op)
            values = replacement if isinstance(replacement, list) else [] if replacement is None else [replacement]
            for result, value in zip(op.operation.results, values, strict=True):
                result.replace_all_uses_with(value)
            op.operation.erase()


assert set(kernel.Kernel.operations) - {kernel.Shared.OPERATION_NAME} == set(RULES), "every kernel op needs a rule"
