"""A recorded graph and a target in, an artifact out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from mlir import ir

from tilec.dialects import core, primop
from tilec.dialects.index_expr import map_results
from tilec.pipelines.cpu.codegen import emit_objects
from tilec.pipelines.nvvm_to_ptx import emit_ptx
from tilec.pipelines.passes import Entry, run_pipeline
from tilec.pipelines.pipeline import NVVM, cpu_pipeline, kernel_pipeline, scheduled_pipeline, tile_pipeline, without
from tilec.pipelines.plan import expression, plan_module
from tilec.pipelines.targets import CpuTarget, GpuTarget, check_tf32
from tilec.runtime.artifact import Artifact, Kernel, Manifest, TensorMap

Observer = Callable[[str, str, str], None]
VERIFY_EACH = False  # after each pass, as tests want it, and not only after each level


def compile_module(module: ir.Module, target: CpuTarget | GpuTarget, model: dict[str, Any],
                   observer: Observer | None = None, leave_out: Collection[str] = (), tuned: str = "") -> Artifact:
    """Compiles a recorded module in its own context, without the optional passes named in `leave_out`.

    `model` is stored in the manifest for whoever runs the artifact. The observer sees (pass, IR before, IR after). `tuned`
    is a file of `tilec tune`, whose schedules are used.
    """
    return _compile(module, target, tile_pipeline(target.name, tuned), model, observer, leave_out)


def compile_kernels(module: ir.Module, target: CpuTarget | GpuTarget, tuned: str = "") -> Artifact:
    """Compiles a module whose entry points call kernels that are fused already."""
    return _compile(module, target, scheduled_pipeline(target.name, tuned), {}, None, ())


def _compile(module: ir.Module, target: CpuTarget | GpuTarget, to_tiles: Sequence[Entry], model: dict[str, Any],
             observer: Observer | None, leave_out: Collection[str]) -> Artifact:
    with module.context, ir.Location.unknown():
        core.load_all()  # the context may be older than the import of a dialect
        symbols = primop.symbol_ranges(module.operation)
        run = functools.partial(run_pipeline, module, observer=observer, each=VERIFY_EACH or observer is not None)
        if primop.allows_tf32(module.operation):
            check_tf32(target)
        run(without(tuple(to_tiles), leave_out))
        if isinstance(target, CpuTarget):
            plan = plan_module(module.operation)
            run(cpu_pipeline(target))
            files = {f"kernels{i}.o": code for i, code in enumerate(emit_objects(_kernels(module), target))}
            kernels = {name: Kernel(file="") for e in plan.entries.values() for name, _ in e.launches}
        else:
            run(without(kernel_pipeline(target), leave_out))
            plan = plan_module(module.operation)
            run(without(NVVM, leave_out))
            lowered = _kernels(module)
            kernels = {f.attributes["sym_name"].value: _kernel(f, list(symbols)) for f in _functions(lowered)}
            files = {f"{name}.ptx": text.encode() for name, text in emit_ptx(lowered, target).items()}
    manifest = Manifest(target.name, target.kind, symbols, plan.weights, plan.states, kernels, plan.entries, model)
    return Artifact(manifest, files)


def _kernels(module: ir.Module) -> ir.OpView:
    """The nested module that holds the kernels."""
    return next(o for o in module.body.operations if o.operation.name in ("builtin.module", "gpu.module"))


def _functions(kernels: ir.OpView) -> list[ir.OpView]:
    return [o for o in kernels.regions[0].blocks[0].operations if "nvvm.kernel" in o.attributes]


def _kernel(function: ir.OpView, symbols: list[str]) -> Kernel:
    """The manifest's entry for a GPU kernel."""
    name = ir.StringAttr(function.attributes["sym_name"]).value
    block = ir.DenseI32ArrayAttr(function.attributes["nvvm.reqntid"])[0]
    grid = []
    for dimension in ir.ArrayAttr(function.attributes["kernel.grid"]):
        factors = map_results(ir.AffineMapAttr(dimension).value)
        grid.append(" * ".join(f"({expression(f, symbols)})" for f in factors) or "1")
    attributes = function.attributes
    shared = ir.IntegerAttr(attributes["kernel.shared_bytes"]).value if "kernel.shared_bytes" in attributes else 0
    maps = ir.ArrayAttr(attributes["kernel.tensor_maps"]) if "kernel.tensor_maps" in attributes else []
    return Kernel(f"{name}.ptx", grid, block, shared, "kernel.dependent" in attributes, [_tensor_map(m, symbols) for m in maps])


def _tensor_map(attribute: ir.Attribute, symbols: list[str]) -> TensorMap:
    fields = ir.DictAttr(attribute)
    names = ("argument", "width", "plane_rows", "planes", "columns", "rows")
    height = expression(map_results(ir.AffineMapAttr(fields["height"]).value)[0], symbols)
    length = expression(map_results(ir.AffineMapAttr(fields["length"]).value)[0], symbols) if "length" in fields else ""
    return TensorMap(dtype=ir.StringAttr(fields["element"]).value, height=height, length=length,
                     **{n: ir.IntegerAttr(fields[n]).value for n in names})
