"""Passes on the kernel level."""

from collections.abc import Callable, Sequence

from mlir import ir
from mlir.dialects import arith, scf, vector

from tilec.pipelines.layouts import element_of
from tilec.pipelines.primop.outline import ops_in


def replace_in_single(op: ir.OpView, operands: Sequence[ir.Value], make: Callable[[list[ir.Value]], ir.Value]) -> None:
    """Replaces an op on scalars or vectors by what `make` makes of each element of its operands, in f32."""
    kind, single = op.results[0].type, ir.F32Type.get()
    vectors, element = isinstance(kind, ir.VectorType), element_of(kind)
    with op.operation.location, ir.InsertionPoint(op):
        parts = []
        for i in range(kind.shape[0] if vectors else 1):
            elements = [vector.extract(v, [], [i]) if vectors else v for v in operands]
            part = make([v if element == single else arith.extf(single, v) for v in elements])
            parts.append(part if element == single else arith.truncf(element, part))
        op.results[0].replace_all_uses_with(vector.from_elements(kind, parts) if vectors else parts[0])
    op.operation.erase()


def gpu_modules(module: ir.OpView) -> list[ir.OpView]:
    """The nested modules that hold a module's GPU kernels."""
    return [o for o in module.regions[0].blocks[0].operations if o.operation.name == "gpu.module"]


def kernel_loops(module: ir.OpView) -> list[scf.ForOp]:
    """All loops of a module's kernels."""
    return [loop for kernels in gpu_modules(module) for loop in ops_in(kernels, scf.ForOp)]
