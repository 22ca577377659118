"""Functions that a GPU has no accurate instruction for are calls into NVIDIA's libdevice, which LLVM links and inlines."""

from __future__ import annotations

from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, llvm, math, vector

from tilec.pipelines.passes import Pass

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
        for module in op.regions[0].blocks[0].operations:
            if module.operation.name == "gpu.module":
                _replace(module)


def _widen(power: ir.OpView, single: ir.Type) -> None:
    """Computes exp2 of 16-bit elements in f32: the hardware's own 16-bit exponential is not accurate to its last place."""
    kind = power.results[0].type
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    if element == single:
        return
    wide = ir.VectorType.get(list(kind.shape), single) if isinstance(kind, ir.VectorType) else single
    with power.operation.location, ir.InsertionPoint(power):
        result = arith.truncf(kind, math.exp2(arith.extf(wide, power.operands[0])))
    power.results[0].replace_all_uses_with(result)
    power.operation.erase()


def _replace(module: ir.OpView) -> None:
    found: list[ir.OpView] = []
    powers: list[ir.OpView] = []

    def visit(nested: ir.Operation) -> ir.WalkResult:
        if nested.name in FUNCTIONS:
            found.append(nested.opview)
        elif nested.name == "math.exp2":
            powers.append(nested.opview)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    single = ir.F32Type.get()
    for power in powers:
        _widen(power, single)
    used = sorted({FUNCTIONS[call.operation.name] for call in found})
    for call in found:
        name = FUNCTIONS[call.operation.name]
        with call.operation.location, ir.InsertionPoint(call):
            kind = call.results[0].type
            count = kind.shape[0] if isinstance(kind, ir.VectorType) else 1
            element = kind.element_type if isinstance(kind, ir.VectorType) else kind
            parts = []
            for i in range(count):
                operands = [vector.extract(v, [], [i]) if isinstance(kind, ir.VectorType) else v for v in call.operands]
                operands = [v if element == single else arith.extf(single, v) for v in operands]
                part = llvm.call(single, operands, [], [], callee=name)
                parts.append(part if element == single else arith.truncf(element, part))
            result = vector.from_elements(kind, parts) if isinstance(kind, ir.VectorType) else parts[0]
        call.results[0].replace_all_uses_with(result)
        call.operation.erase()
    with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]), module.operation.location:
        for name in used:
            arguments = ", ".join(["f32"] * (2 if name == "__nv_fmodf" else 1))
            llvm.LLVMFuncOp(name, ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<f32 ({arguments})>")))
