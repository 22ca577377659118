"""Indices of kernels are words of 32 bits: no buffer of a kernel has more elements than such a word can count.

Upstream makes every index 64 bits wide, and a GPU computes with such a number in two or more instructions, which a division
multiplies. An address is widened where it is made: the element of a buffer is a signed index there. A function that is marked
with `kernel.wide_indices` keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, llvm

from tilec.pipelines.kernel import gpu_modules
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.outline import ops_in

LIMIT = 1 << 31


@dataclass(frozen=True)
class NarrowIndices(Pass):
    """Compute indices of GPU kernels in 32 bits."""

    name = "nvvm-narrow-indices"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for module in gpu_modules(op):
            for function in ops_in(module, llvm.LLVMFuncOp):
                _narrow(function)


def _narrow(function: ir.OpView) -> None:
    if "kernel.wide_indices" in function.attributes:
        return
    ops = ops_in(function, ir.OpView)
    word = ir.IntegerType.get_signless(32)
    exact = ir.Attribute.parse("#arith.overflow<nsw>")
    for op in ops:
        if isinstance(op, arith.ConstantOp) and _is_index(op.result):
            number = ir.IntegerAttr(op.value).value
            if not -LIMIT <= number < LIMIT:
                raise PassFailure(f"an index of {number} needs more than 32 bits", op.location)
            op.operation.attributes["value"] = ir.IntegerAttr.get(word, number)
        if isinstance(op, arith.AddIOp | arith.SubIOp | arith.MulIOp) and _is_index(op.result):
            op.operation.attributes["overflowFlags"] = exact
        for value in (*op.results, *(a for region in op.regions for block in region.blocks for a in block.arguments)):
            if _is_index(value):
                value.set_type(word)
    for op in ops:
        if isinstance(op, arith.IndexCastOp | arith.IndexCastUIOp):
            _replace(op, word)


def _replace(cast: ir.OpView, word: ir.Type) -> None:
    """Between indices and integers: what was an index is a word now."""
    before, after = cast.operands[0], cast.results[0]
    with cast.location, ir.InsertionPoint(cast):
        if before.type == after.type:
            value = before
        elif before.type == word:
            value = (arith.extsi if isinstance(cast, arith.IndexCastOp) else arith.extui)(after.type, before)
        else:
            value = arith.trunci(word, before)
    after.replace_all_uses_with(value)
    cast.operation.erase()


def _is_index(value: ir.Value) -> bool:
    return isinstance(value.type, ir.IndexType)
