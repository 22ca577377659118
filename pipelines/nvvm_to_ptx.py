"""NVVM to PTX text, in a worker process: LLVM ends the process when it meets what it cannot select, and that must not be ours.

The PTX of a module is cut into one text per kernel, so that an artifact's kernels can be loaded, read and cached one by
one and equal kernels are equal files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from mlir import ir
from mlir.dialects import gpu

from tilec.errors import TargetError
from tilec.pipelines.passes import Upstream, run_pipeline
from tilec.pipelines.targets import GPU_TARGETS, GpuTarget

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
    names = sorted(texts, key=lambda n: -len(texts[n]))
    shares = [{n: texts[n] for n in names[i::workers]} for i in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        done = [ptx for part in pool.map(lambda share: _in_worker(share, target), shares) for ptx in part.items()]
    return dict(sorted(done, key=lambda item: list(texts).index(item[0])))


def _in_worker(texts: dict[str, str], target: GpuTarget) -> dict[str, str]:
    """Compiles kernels in a process of their own, which answers with one line of JSON for each."""
    if not texts:
        return {}
    request = json.dumps({"target": target.name, "kernels": texts})
    # A command and not a fork or a re-import: the caller's own program must not run again in the worker.
    worker = subprocess.run([sys.executable, "-m", __name__], input=request, capture_output=True, text=True,
                            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
    done = dict(json.loads(line) for line in worker.stdout.splitlines())
    missing = [name for name in texts if name not in done]
    if missing:
        last = worker.stderr.strip().splitlines()
        reason = next((line for line in last if "error" in line.lower()), last[-1] if last else "it said nothing")
        raise TargetError(f"LLVM cannot generate code of {missing[0]} for {target.name}: {reason.strip()[:300]}")
    return done


def _split(kernels: ir.OpView) -> dict[str, str]:
    """One module text per kernel, with the shared memory and the functions that it names."""
    functions: dict[str, str] = {}
    others: dict[str, str] = {}
    for op in kernels.regions[0].blocks[0].operations:
        name = ir.StringAttr(op.attributes["sym_name"]).value
        group = functions if "nvvm.kernel" in op.attributes else others  # others: shared memory and library functions
        group[name] = op.operation.get_asm(use_local_scope=True)
    return {
        name: "module attributes {gpu.container_module} { gpu.module @kernels {\n"
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


def main() -> None:
    """The worker: reads {"target": ..., "kernels": {name: MLIR}} and prints [name, PTX] lines as they are ready."""
    request = json.load(sys.stdin)
    target = GPU_TARGETS[request["target"]]
    for name, text in request["kernels"].items():
        print(json.dumps([name, _compile(text, target)]), flush=True)


if __name__ == "__main__":
    main()
