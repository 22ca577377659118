"""Passes on the kernel level."""

from collections.abc import Callable, Sequence

from mlir import ir
from mlir.dialects import arith, scf, vector


def replace_in_single(op: ir.OpView, operands: Sequence[ir.Value], make: Callable[[list[ir.Value]], ir.Value]) -> None:
    """Replaces an op on scalars or vectors by what `make` makes of each element of its operands, in f32."""
    kind, single = op.results[0].type, ir.F32Type.get()
    vectors = isinstance(kind, ir.VectorType)
    element = kind.element_type if vectors else kind
    with op.operation.location, ir.InsertionPoint(op):
        parts = []
        for i in range(kind.shape[0] if vectors else 1):
            elements = [vector.extract(v, [], [i]) if vectors else v for v in operands]
            part = make([v if element == single else arith.extf(single, v) for v in elements])
            parts.append(part if element == single else arith.truncf(element, part))
        op.results[0].replace_all_uses_with(vector.from_elements(kind, parts) if vectors else parts[0])
    op.operation.erase()


def kernel_loops(module: ir.OpView) -> list[scf.ForOp]:
    """All loops of a module's kernels, inner ones first."""
    found: list[scf.ForOp] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "scf.for":
            found.append(op.opview)
        return ir.WalkResult.ADVANCE

    for kernels in module.regions[0].blocks[0].operations:
        if kernels.operation.name == "gpu.module":
            kernels.operation.walk(visit)
    return found
