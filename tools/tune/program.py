"""A kernel of a model as a program of its own, and all kernels of a model that could be scheduled in several ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import func

from tilec.dialects import core, primop
from tilec.frontend.config import ModelConfig
from tilec.model_compiler import record_for
from tilec.pipelines.cost_model import Candidate, candidates, key_of
from tilec.pipelines.passes import run_pipeline
from tilec.pipelines.pipeline import fused_pipeline
from tilec.pipelines.primop.outline import SHAPE, body_of, functions
from tilec.pipelines.primop.structure import analyse
from tilec.pipelines.recording import symbols_used
from tilec.pipelines.targets import find_target

ARGUMENT, RESULT = "a", "result"  # labels in a kernel's program: a0, a1, ...


@dataclass(frozen=True)
class Request:
    """The program whose kernels are meant, as `tilec compile` makes it."""

    config: ModelConfig
    target: str
    dtype: str
    context: int
    batch: int = 1


@dataclass(frozen=True)
class Kernel:
    """A kernel that has several candidates, with the text of its program and the lengths at which it is measured."""

    name: str
    key: str
    program: str
    symbols: Mapping[str, int]
    candidates: tuple[Candidate, ...]
    schedules: tuple[str, ...]  # of the candidates, as attributes


def kernels_of(request: Request, best: int) -> list[Kernel]:
    """The kernels of a model that have more than one candidate, each with its `best` first."""
    target = request.target
    module = record_for(request.config, target, request.dtype, request.context, batch=request.batch).module
    found: dict[str, Kernel] = {}
    with module.context, ir.Location.unknown():
        core.load_all()
        run_pipeline(module, fused_pipeline(target))
        symbols = primop.symbol_ranges(module.operation)
        for function in functions(module.operation, "primop.kernel"):
            structure = analyse(function, symbols)
            options = candidates(structure, find_target(target), best)
            key = key_of(structure)
            if len(options) > 1 and key not in found:
                name = ir.StringAttr(function.attributes["sym_name"]).value
                used = symbols_used(function.operation.get_asm(use_local_scope=True), symbols)
                found[key] = Kernel(name, key, _program(function, module), _lengths(symbols, used), tuple(options),
                                    tuple(str(c.schedule.to_attribute(len(symbols))) for c in options))
    return list(found.values())


def _lengths(symbols: Mapping[str, tuple[int, int]], used: list[str]) -> dict[str, int]:
    """As many new tokens as a kernel takes, after half a context of others or what is left of it."""
    values = {name: high if name in used else low for name, (low, high) in symbols.items()}
    longest = max((values[n] for n in used if n.startswith("seq")), default=1)
    held = symbols["past"][1] + 1
    return {**values, "past": max(0, min(held // 2, held - longest))}


def _program(function: ir.OpView, module: ir.Module) -> str:
    """An entry point that calls the kernel; what it writes in place is a state, all else that it reads an argument."""
    alone = ir.Module.create()
    for name in ("primop.symbols", primop.TF32):
        if name in module.operation.attributes:
            alone.operation.attributes[name] = module.operation.attributes[name]
    root = list(body_of(function).operations)[-1].operands[0].owner.opview
    written = ir.BlockArgument(root.dest).arg_number if isinstance(root, primop.Scatter) else -1
    with ir.InsertionPoint(alone.body):
        function.operation.clone()
        entry = func.FuncOp("main", ([], []))
    entry.attributes["primop.entry"] = ir.UnitAttr.get()
    with ir.InsertionPoint(entry.add_entry_block()):
        passed = []
        for i, argument in enumerate(body_of(function).arguments):
            shape = ir.AffineMapAttr(ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[i])[SHAPE]).value
            kind = primop.InputKind.STATE if i == written else primop.InputKind.ARGUMENT
            passed.append(primop.Input(label=f"{ARGUMENT}{i}", kind=kind, shape=shape, result=argument.type).result)
        name = ir.StringAttr(function.attributes["sym_name"]).value
        results = list(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results)
        call = func.CallOp(results, name, passed)
        alias = f"{ARGUMENT}{written}" if written >= 0 else None
        primop.Output(call.results[0], alias or RESULT, alias=alias)
        func.ReturnOp([])
    return alone.operation.get_asm(use_local_scope=True)
