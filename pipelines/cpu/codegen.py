"""LLVM dialect to an object file, through LLVM's C interface: the bindings' own engine cannot name a CPU or keep a file.

The MLIR and LLVM libraries of the wheels are called by ctypes. The calls release Python's lock, so the two halves of a
large module are optimised on two threads.
"""

from __future__ import annotations

import ctypes
import platform
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_int, c_void_p
from functools import lru_cache
from pathlib import Path

from mlir import _mlir_libs, ir

from tilec.pipelines.passes import Upstream, run_pipeline
from tilec.pipelines.targets import CpuTarget
from tilec.runtime.llvm_library import llvm_library

# After tile_to_cpu. Loops become branches last, so that invariants leave them first; the index arithmetic of views goes
# before that, so that the two meet.
TO_LLVM = tuple(Upstream(text) for text in (
    "lower-affine", "canonicalize", "cse", "loop-invariant-code-motion",
    "convert-scf-to-cf", "convert-math-to-llvm", "convert-math-to-libm", "convert-vector-to-llvm",
    "convert-arith-to-llvm", "convert-cf-to-llvm", "convert-func-to-llvm", "reconcile-unrealized-casts", "cse",
))

# Before TO_LLVM where the processor has no bf16: arithmetic in f32, and conversions as integer operations on whole vectors,
# for which LLVM would otherwise call a function, element by element.
BF16_BY_F32 = tuple(Upstream(text) for text in (
    "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32}",
    "math-extend-to-supported-types{extra-types=f16 target-type=f32}",
    "arith-expand{include-bf16=true}",
))

_SPIN = {"x86_64": "pause", "aarch64": "yield"}

# Runs a list of launches on every thread of a team together, with a barrier after each: p[0] counts arrivals, p[16] the
# generation (a cache line apart). A waiter gives its core away after two thousand looks, for machines that are busy.
_DRIVER = """
llvm.func @sched_yield() -> i32
llvm.func @tilec_barrier(%p: !llvm.ptr, %n: i64) attributes {passthrough = ["noinline"]} {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %patience = llvm.mlir.constant(2000 : i64) : i64
  %gen = llvm.getelementptr %p[16] : (!llvm.ptr) -> !llvm.ptr, i64
  %old = llvm.load %gen atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64
  %before = llvm.atomicrmw add %p, %one acq_rel : !llvm.ptr, i64
  %arrived = llvm.add %before, %one : i64
  %last = llvm.icmp "eq" %arrived, %n : i64
  llvm.cond_br %last, ^open, ^wait(%zero : i64)
^open:
  llvm.store %zero, %p atomic monotonic {alignment = 8 : i64} : i64, !llvm.ptr
  %new = llvm.add %old, %one : i64
  llvm.store %new, %gen atomic release {alignment = 8 : i64} : i64, !llvm.ptr
  llvm.br ^done
^wait(%looks: i64):
  %now = llvm.load %gen atomic acquire {alignment = 8 : i64} : !llvm.ptr -> i64
  %same = llvm.icmp "eq" %now, %old : i64
  llvm.cond_br %same, ^idle, ^done
^idle:
  llvm.inline_asm has_side_effects "@SPIN@", "" : () -> ()
  %more = llvm.add %looks, %one : i64
  %tired = llvm.icmp "ugt" %more, %patience : i64
  llvm.cond_br %tired, ^give, ^wait(%more : i64)
^give:
  %ignored = llvm.call @sched_yield() : () -> i32
  llvm.br ^wait(%zero : i64)
^done:
  llvm.return
}
llvm.func @tilec_run(%launches: !llvm.ptr, %count: i64, %symbols: !llvm.ptr, %thread: i64, %threads: i64, %barrier: !llvm.ptr) {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %two = llvm.mlir.constant(2 : i64) : i64
  llvm.br ^next(%zero : i64)
^next(%i: i64):
  %more = llvm.icmp "ult" %i, %count : i64
  llvm.cond_br %more, ^launch, ^done
^launch:
  %at = llvm.mul %i, %two : i64
  %slot = llvm.getelementptr %launches[%at] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.ptr
  %kernel = llvm.load %slot : !llvm.ptr -> !llvm.ptr
  %slot2 = llvm.getelementptr %slot[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
  %buffers = llvm.load %slot2 : !llvm.ptr -> !llvm.ptr
  llvm.call %kernel(%buffers, %symbols, %thread, %threads) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, i64) -> ()
  llvm.call @tilec_barrier(%barrier, %threads) : (!llvm.ptr, i64) -> ()
  %j = llvm.add %i, %one : i64
  llvm.br ^next(%j : i64)
^done:
  llvm.return
}
"""


# What LLVM calls to convert single elements where the processor cannot; a process need not have these functions.
_BF16 = """
llvm.func @__truncsfbf2(%x: f32) -> bf16 {
  %one = llvm.mlir.constant(1 : i32) : i32
  %sixteen = llvm.mlir.constant(16 : i32) : i32
  %below_half = llvm.mlir.constant(0x7FFF : i32) : i32
  %quiet = llvm.mlir.constant(0x40 : i32) : i32
  %bits = llvm.bitcast %x : f32 to i32
  %high = llvm.lshr %bits, %sixteen : i32
  %odd = llvm.and %high, %one : i32
  %nudged = llvm.add %bits, %below_half : i32
  %even = llvm.add %nudged, %odd : i32
  %rounded = llvm.lshr %even, %sixteen : i32
  %nan = llvm.or %high, %quiet : i32
  %is_nan = llvm.fcmp "uno" %x, %x : f32
  %chosen = llvm.select %is_nan, %nan, %rounded : i1, i32
  %narrow = llvm.trunc %chosen : i32 to i16
  %result = llvm.bitcast %narrow : i16 to bf16
  llvm.return %result : bf16
}
"""

# Up: the exponent is moved by a multiplication, which also brings
# subnormals into place. Down: an addition of 0.5 rounds what becomes subnormal, integers round the rest.
_F16 = """
llvm.func @__extendhfsf2(%h: f16) -> f32 {
  %magnitude_bits = llvm.mlir.constant(0x7FFF : i32) : i32
  %infinity = llvm.mlir.constant(0x7C00 : i32) : i32
  %sign_bit = llvm.mlir.constant(0x8000 : i32) : i32
  %wide_infinity = llvm.mlir.constant(0x7F800000 : i32) : i32
  %thirteen = llvm.mlir.constant(13 : i32) : i32
  %sixteen = llvm.mlir.constant(16 : i32) : i32
  %scale = llvm.mlir.constant(5.19229686E+33 : f32) : f32
  %narrow = llvm.bitcast %h : f16 to i16
  %bits = llvm.zext %narrow : i16 to i32
  %magnitude = llvm.and %bits, %magnitude_bits : i32
  %moved = llvm.shl %magnitude, %thirteen : i32
  %unscaled = llvm.bitcast %moved : i32 to f32
  %scaled = llvm.fmul %unscaled, %scale : f32
  %finite = llvm.bitcast %scaled : f32 to i32
  %special = llvm.or %moved, %wide_infinity : i32
  %is_special = llvm.icmp "uge" %magnitude, %infinity : i32
  %chosen = llvm.select %is_special, %special, %finite : i1, i32
  %sign = llvm.and %bits, %sign_bit : i32
  %wide_sign = llvm.shl %sign, %sixteen : i32
  %signed = llvm.or %chosen, %wide_sign : i32
  %result = llvm.bitcast %signed : i32 to f32
  llvm.return %result : f32
}
llvm.func @__truncsfhf2(%x: f32) -> f16 {
  %magnitude_bits = llvm.mlir.constant(0x7FFFFFFF : i32) : i32
  %wide_infinity = llvm.mlir.constant(0x7F800000 : i32) : i32
  %too_large = llvm.mlir.constant(0x477FF000 : i32) : i32
  %smallest = llvm.mlir.constant(0x38800000 : i32) : i32
  %half_bits = llvm.mlir.constant(0x3F000000 : i32) : i32
  %half = llvm.mlir.constant(5.0E-1 : f32) : f32
  %rebias = llvm.mlir.constant(0x38000000 : i32) : i32
  %below_half = llvm.mlir.constant(0xFFF : i32) : i32
  %infinity = llvm.mlir.constant(0x7C00 : i32) : i32
  %nan = llvm.mlir.constant(0x7E00 : i32) : i32
  %one = llvm.mlir.constant(1 : i32) : i32
  %thirteen = llvm.mlir.constant(13 : i32) : i32
  %sixteen = llvm.mlir.constant(16 : i32) : i32
  %sign_bit = llvm.mlir.constant(0x8000 : i32) : i32
  %bits = llvm.bitcast %x : f32 to i32
  %magnitude = llvm.and %bits, %magnitude_bits : i32
  %positive = llvm.bitcast %magnitude : i32 to f32
  %shifted = llvm.fadd %positive, %half : f32
  %shifted_bits = llvm.bitcast %shifted : f32 to i32
  %subnormal = llvm.sub %shifted_bits, %half_bits : i32
  %last = llvm.lshr %magnitude, %thirteen : i32
  %odd = llvm.and %last, %one : i32
  %nudged = llvm.add %magnitude, %below_half : i32
  %even = llvm.add %nudged, %odd : i32
  %rebiased = llvm.sub %even, %rebias : i32
  %normal = llvm.lshr %rebiased, %thirteen : i32
  %is_subnormal = llvm.icmp "ult" %magnitude, %smallest : i32
  %finite = llvm.select %is_subnormal, %subnormal, %normal : i1, i32
  %overflows = llvm.icmp "uge" %magnitude, %too_large : i32
  %limited = llvm.select %overflows, %infinity, %finite : i1, i32
  %is_nan = llvm.icmp "ugt" %magnitude, %wide_infinity : i32
  %chosen = llvm.select %is_nan, %nan, %limited : i1, i32
  %high = llvm.lshr %bits, %sixteen : i32
  %sign = llvm.and %high, %sign_bit : i32
  %signed = llvm.or %chosen, %sign : i32
  %narrow = llvm.trunc %signed : i32 to i16
  %result = llvm.bitcast %narrow : i16 to f16
  llvm.return %result : f16
}
"""


def emit_objects(kernels: ir.OpView, target: CpuTarget, workers: int = 2) -> list[bytes]:
    """Object files holding every function of the module `kernels` (lowered to LLVM's dialect here) and the driver."""
    texts = _split(kernels, workers)
    llvm_library()  # one thread starts the libraries, before several use them
    _mlir_c()
    conversions = ("" if target.bf16_dot else _BF16) + ("" if target.f16 else _F16)
    driver = _DRIVER.replace("@SPIN@", _SPIN[target.triple_arch]) + conversions
    texts[0] = texts[0].rstrip().removesuffix("}") + driver + "}"
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda text: _compile(text, target), texts))


def _split(kernels: ir.OpView, parts: int) -> list[str]:
    """The functions of a module dealt to `parts` modules of about the same size, each program with its entry."""
    functions = list(kernels.regions[0].blocks[0].operations)
    pairs = [(str(a) + "\n" + str(b)) for a, b in zip(functions[::2], functions[1::2], strict=True)]
    bins: list[list[str]] = [[] for _ in range(parts)]
    for text in sorted(pairs, key=len, reverse=True):
        min(bins, key=lambda b: sum(map(len, b))).append(text)
    return ["module {\n" + "\n".join(b) + "\n}" for b in bins]


def _compile(text: str, target: CpuTarget) -> bytes:
    context = ir.Context()
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        run_pipeline(module, TO_LLVM if target.bf16_dot else (*BF16_BY_F32, *TO_LLVM), verify=False)
        return _object_code(module, target)


class _Operation(ctypes.Structure):
    _fields_ = [("pointer", c_void_p)]


@lru_cache(maxsize=1)
def _mlir_c() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(_mlir_libs.__file__).parent / "libMLIRPythonCAPI.so"))
    library.mlirTranslateModuleToLLVMIR.restype = c_void_p
    library.mlirTranslateModuleToLLVMIR.argtypes = [_Operation, c_void_p]
    return library


def _object_code(module: ir.Module, target: CpuTarget, passes: str = "default<O3>") -> bytes:
    llvm = llvm_library()
    triple = c_char_p(llvm.LLVMGetDefaultTargetTriple()).value
    if target.triple_arch != platform.machine().lower().replace("arm64", "aarch64").replace("amd64", "x86_64"):
        triple = f"{target.triple_arch}-unknown-linux-gnu".encode()
    description, error = c_void_p(), c_void_p()
    if llvm.LLVMGetTargetFromTriple(triple, byref(description), byref(error)):
        raise RuntimeError(f"LLVM has no code generator for {triple!r}")
    machine = llvm.LLVMCreateTargetMachine(description, triple, target.llvm_cpu.encode(), ",".join(target.features).encode(),
                                           3, 2, 0)  # aggressive, position independent, default code model
    context = llvm.LLVMContextCreate()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    operation = _Operation(get_pointer(module.operation._CAPIPtr, b"mlir.ir.Operation._CAPIPtr"))
    translated = _mlir_c().mlirTranslateModuleToLLVMIR(operation, context)
    if not translated:
        raise RuntimeError("the module could not be translated to LLVM IR")
    layout = llvm.LLVMCreateTargetDataLayout(machine)
    llvm.LLVMSetTarget(translated, triple)
    llvm.LLVMSetModuleDataLayout(translated, layout)
    options = llvm.LLVMCreatePassBuilderOptions()
    _check(llvm, llvm.LLVMRunPasses(translated, passes.encode(), machine, options))
    buffer = c_void_p()
    if llvm.LLVMTargetMachineEmitToMemoryBuffer(machine, translated, c_int(1), byref(error), byref(buffer)):
        raise RuntimeError(ctypes.string_at(error).decode())
    code = ctypes.string_at(llvm.LLVMGetBufferStart(buffer), llvm.LLVMGetBufferSize(buffer))
    llvm.LLVMDisposeMemoryBuffer(buffer)
    llvm.LLVMDisposePassBuilderOptions(options)
    llvm.LLVMDisposeModule(translated)
    llvm.LLVMContextDispose(context)
    llvm.LLVMDisposeTargetData(layout)
    llvm.LLVMDisposeTargetMachine(machine)
    return code


def _check(llvm: ctypes.CDLL, error: int | None) -> None:
    if error:
        raise RuntimeError(ctypes.string_at(llvm.LLVMGetErrorMessage(error)).decode())


