"""Which operations only compute: ours say so, upstream's are listed, because the bindings cannot ask for effects."""

from functools import cache

from mlir import ir

from tilec.dialects import core

# Dialects whose operations only compute, but for those that read memory.
COMPUTING = ("arith.", "math.", "complex.", "index.", "tensor.", "vector.", "ub.")
READING = {"vector.transfer_read", "vector.load", "vector.maskedload", "vector.expandload", "vector.gather"}
ALSO = {
    *("affine.apply", "affine.min", "affine.max", "affine.delinearize_index", "affine.linearize_index"),
    *("memref.cast", "memref.dim", "memref.subview", "memref.reinterpret_cast", "memref.collapse_shape"),
    *("memref.expand_shape", "memref.extract_aligned_pointer_as_index", "memref.extract_strided_metadata"),
    *("memref.get_global", "memref.memory_space_cast", "memref.view", "builtin.unrealized_conversion_cast"),
    *("gpu.thread_id", "gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "gpu.lane_id"),
}


def is_pure(op: ir.Operation) -> bool:
    """Whether the operation does nothing but compute its results, so that it may be merged, moved and erased.

    Without results it is there for something else (`tensor.parallel_insert_slice`); with regions one must look inside.
    """
    return _named_pure(op.name) and len(op.results) > 0 and len(op.regions) == 0


@cache
def _named_pure(name: str) -> bool:
    declared = core.op_class(name)
    if declared is not None:
        return core.Pure in declared.traits
    return name in ALSO or (name.startswith(COMPUTING) and name not in READING)
