"""NVVM to PTX text, in a worker process: LLVM ends the process when it meets what it cannot select, and that must not be ours.

The PTX of a module is cut into one text per kernel, so that an artifact's kernels can be loaded, read and cached one by
one and equal kernels are equal files.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from mlir import ir
from mlir.dialects import gpu

from tilec.errors import TargetError
from tilec.pipelines.passes import Upstream, run_pipeline
from tilec.pipelines.targets import GpuTarget

# `convert-cf-to-llvm` is refused inside a gpu.module; convert-to-llvm does it there.
INSIDE = ("convert-scf-to-cf", "canonicalize", "cse", "convert-to-llvm", "reconcile-unrealized-casts", "canonicalize", "cse")


def ptx_pipeline(target: GpuTarget) -> tuple[Upstream, ...]:
    """The upstream passes from NVVM inside gpu.modules to PTX text."""
    inside = ",".join(INSIDE)
    return (
        Upstream(f"nvvm-attach-target{{chip={target.name} features=+{target.ptx} O=3}}"),
        Upstream(f"gpu.module({inside})"),
        Upstream("gpu-module-to-binary{format=isa}"),
    )


def emit_ptx(kernels: ir.OpView, target: GpuTarget, workers: int = 2) -> dict[str, str]:
    """PTX by kernel name, for a gpu.module of llvm functions."""
    texts = _split(kernels)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(workers, max(len(texts), 1)), mp_context=context) as pool:
            jobs = {name: pool.submit(_compile, text, target) for name, text in texts.items()}
            return {name: job.result() for name, job in jobs.items()}
    except BrokenProcessPool:
        culprit = next((n for n, text in texts.items() if not _survives(text, target)), "an unknown kernel")
        raise TargetError(f"LLVM cannot generate code for {target.name}: it ended while compiling {culprit}") from None


def _survives(text: str, target: GpuTarget) -> bool:
    """Whether a kernel compiles in a process of its own."""
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            pool.submit(_compile, text, target).result()
    except BrokenProcessPool:
        return False
    return True


def _split(kernels: ir.OpView) -> dict[str, str]:
    """One module text per kernel, with the shared memory and the functions that it names."""
    functions: dict[str, str] = {}
    others: dict[str, str] = {}
    for op in kernels.regions[0].blocks[0].operations:
        name = ir.StringAttr(op.attributes["sym_name"]).value
        group = functions if "nvvm.kernel" in op.attributes else others  # others: shared memory and library functions
        group[name] = op.operation.get_asm(use_local_scope=True)
    attributes = "attributes {dlti.dl_spec = #dlti.dl_spec<index = 32 : i32>}"
    return {
        name: f"module attributes {{gpu.container_module}} {{ gpu.module @kernels {attributes} {{\n"
              + "\n".join([other for symbol, other in others.items() if f"@{symbol}" in text] + [text]) + "\n} }"
        for name, text in functions.items()
    }


def _compile(text: str, target: GpuTarget) -> str:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        run_pipeline(module, ptx_pipeline(target), verify=False)
        for op in module.body.operations:
            if op.operation.name == "gpu.binary":
                return gpu.ObjectAttr(ir.ArrayAttr(op.attributes["objects"])[0]).object.decode().rstrip("\0")
    raise TargetError(f"no PTX came out for {target.name}")
