"""Functions that a GPU has no accurate instruction for are calls into NVIDIA's libdevice, which LLVM links and inlines."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import llvm, math

from tilec.pipelines.kernel import gpu_modules, replace_in_single
from tilec.pipelines.layouts import element_of
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import ops_in

# In f32. `math.exp2` is not here: ex2.approx.f32 is within 2 units in the last place everywhere.
FUNCTIONS = {
    "math.sin": "__nv_sinf", "math.log2": "__nv_log2f", "math.tanh": "__nv_tanhf", "math.erf": "__nv_erff",
    "math.sqrt": "__nv_sqrtf", "arith.remf": "__nv_fmodf",
}


@dataclass(frozen=True)
class Libdevice(Pass):
    """Replace sin, log2, tanh, erf, sqrt and remainder in GPU kernels by calls into libdevice; exp2 of 16 bits runs in f32."""

    name = "kernel-libdevice"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for module in gpu_modules(op):
            _replace(module)


def _replace(module: ir.OpView) -> None:
    found = [o for o in ops_in(module, ir.OpView) if o.operation.name in FUNCTIONS]
    powers = [o for o in ops_in(module, math.Exp2Op) if not isinstance(element_of(o.result.type), ir.F32Type)]
    for power in powers:  # the hardware's own 16-bit exponential is not accurate to its last place
        replace_in_single(power, power.operands, lambda values: math.exp2(*values))
    used = sorted({FUNCTIONS[call.operation.name] for call in found})
    for call in found:
        replace_in_single(call, call.operands, functools.partial(_call, FUNCTIONS[call.operation.name]))
    with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]), module.operation.location:
        for name in used:
            arguments = ", ".join(["f32"] * (2 if name == "__nv_fmodf" else 1))
            llvm.LLVMFuncOp(name, ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<f32 ({arguments})>")))


def _call(name: str, operands: list[ir.Value]) -> ir.Value:
    return llvm.call(ir.F32Type.get(), operands, [], [], callee=name)
