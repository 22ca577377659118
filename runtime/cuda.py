"""Runs an artifact on an NVIDIA GPU through the driver API: PTX is loaded by the driver, a decode step is one graph.

Entry points whose launches do not depend on the length of the input are captured once, with grids for the largest
symbols, and replayed for every token: positions and lengths are read from device memory, and results that feed the next
step (`feedback` in the manifest) are copied inside the graph. If the caller's arguments are what the device already
holds, nothing is uploaded.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.errors import TargetError
from tilec.runtime.artifact import Artifact, Buffer, Entry, TensorMap
from tilec.runtime.expressions import evaluate
from tilec.runtime.weights import NUMPY

PORTABLE_CLUSTER = 8  # blocks that a cluster may have on every GPU that has clusters
TENSOR_TYPES = {"bf16": "BFLOAT16", "f16": "FLOAT16", "f32": "FLOAT32"}
ARCHITECTURES = {(8, 0): "sm_80", (8, 6): "sm_86", (8, 9): "sm_89", (9, 0): "sm_90a", (10, 0): "sm_100a", (12, 0): "sm_120a"}


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError:
        raise TargetError("a GPU target needs cuda-bindings; install it with: pip install 'tilec[cuda]'") from None
    return driver


def _check(result: tuple) -> Any:
    """The values of a driver call, or one sentence about what went wrong."""
    code, values = result[0], result[1:]
    if int(code) != 0:
        driver = _driver()
        name = code.name
        hint = {
            "CUDA_ERROR_NO_DEVICE": "no NVIDIA GPU was found; use --target cpu",
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the NVIDIA driver is too old for this artifact; update it",
            "CUDA_ERROR_NO_BINARY_FOR_GPU": "the artifact was compiled for another GPU; compile it for this one",
            "CUDA_ERROR_INVALID_PTX": "the artifact was compiled for another GPU; compile it for this one",
            "CUDA_ERROR_OUT_OF_MEMORY": "the GPU's memory is full; use a smaller --context or a smaller model",
        }.get(name)
        detail = driver.cuGetErrorString(code)[1]
        text = detail.decode() if isinstance(detail, bytes) else str(detail)
        raise TargetError(f"CUDA: {hint} ({name})" if hint else f"CUDA failed with {name}: {text}")
    return values[0] if len(values) == 1 else values


def find_gpu() -> tuple[str, str] | None:
    """(architecture, name) of the first GPU, or None where there is none or no driver."""
    try:
        driver = _driver()
        if int(driver.cuInit(0)[0]) != 0 or _check(driver.cuDeviceGetCount()) == 0:
            return None
        device = _check(driver.cuDeviceGet(0))
        name = _check(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
    except (TargetError, RuntimeError):
        return None
    attributes = driver.CUdevice_attribute
    major, minor = (_check(driver.cuDeviceGetAttribute(a, device)) for a in (
        attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
    if major < 8:
        return None
    return ARCHITECTURES.get((major, minor), "sm_80"), name


def driver_version() -> str:
    """The CUDA version that the driver supports, such as '13.0'."""
    number = _check(_driver().cuDriverGetVersion())
    return f"{number // 1000}.{number % 1000 // 10}"


@dataclass
class _EncodedMap:
    """A tensor map of a launch: the address of its buffer, where its 128 bytes lie, for what row length and height."""

    described: TensorMap
    buffer: int
    place: int
    made_for: tuple[int, int] = (-1, -1)


@dataclass
class _Prepared:
    """An entry point ready to launch."""

    entry: Entry
    memory: list[int]  # device address of every buffer
    functions: list[Any]
    parameters: list[np.ndarray]  # per launch: addresses of the argument values
    values: list[np.ndarray]  # kept alive: the argument values
    maps: list[_EncodedMap]
    graph: Any = None
    holds: tuple[dict[str, bytes], dict[str, int]] | None = None  # arguments and symbols now on the device


class CudaProgram:
    """A loaded artifact with its weights and states on the first GPU."""

    def __init__(self, artifact: Artifact, weights: Iterable[tuple[str, np.ndarray]]) -> None:
        self.manifest = artifact.manifest
        self._d = driver = _driver()
        if self.manifest.kind != "gpu":
            raise TargetError(f"this artifact was compiled for {self.manifest.target}, not for a GPU")
        if find_gpu() is None:
            raise TargetError("no NVIDIA GPU of compute capability 8.0 or newer was found; use --target cpu")
        device = _check(driver.cuDeviceGet(0))
        self._device = device
        self._context = _check(driver.cuDevicePrimaryCtxRetain(device))
        _check(driver.cuCtxSetCurrent(self._context))
        self._stream = _check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self._overlap = driver.CUlaunchAttribute()
        self._overlap.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        self._overlap.value.programmaticStreamSerializationAllowed = 1
        self._allocations: list[Any] = []
        self._functions = self._load(artifact)
        self._weights = {n: self._upload(a) for n, a in weights}
        self._states = {n: self._allocate(_bytes(s.dtype, s.shape), zero=True) for n, s in self.manifest.states.items()}
        arena = max((e.arena_bytes for e in self.manifest.entries.values()), default=0)
        self._arena = self._allocate(max(arena, 16))
        self._symbols = self._allocate(8 * max(len(self.manifest.symbols), 1))
        self._entries: dict[str, _Prepared] = {}

    # Setting up ---------------------------------------------------------------------------------------------------

    def _load(self, artifact: Artifact) -> dict[str, Any]:
        functions = {}
        for name, kernel in self.manifest.kernels.items():
            module = _check(self._d.cuModuleLoadData(artifact.files[kernel.file] + b"\0"))
            functions[name] = _check(self._d.cuModuleGetFunction(module, name.encode()))
            attributes = self._d.CUfunction_attribute
            blocks = _check(self._d.cuFuncGetAttribute(attributes.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, functions[name]))
            if blocks > PORTABLE_CLUSTER:
                wide = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                _check(self._d.cuFuncSetAttribute(functions[name], wide, 1))
            if kernel.shared_bytes:
                limit = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                _check(self._d.cuFuncSetAttribute(functions[name], limit, kernel.shared_bytes))
        return functions

    def _allocate(self, size: int, zero: bool = False) -> int:
        pointer = _check(self._d.cuMemAlloc(max(size, 16)))
        self._allocations.append(pointer)
        if zero:
            _check(self._d.cuMemsetD8(pointer, 0, max(size, 16)))
        return int(pointer)

    def _upload(self, array: np.ndarray) -> int:
        pointer = self._allocate(array.nbytes)
        _check(self._d.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
        return pointer

    def _entry(self, name: str) -> _Prepared:
        """An entry point, which gets its memory when it is first used: some have large results."""
        if name not in self._entries:
            self._entries[name] = self._prepare(self.manifest.entries[name])
        return self._entries[name]

    def _prepare(self, entry: Entry, weights: Mapping[str, int] | None = None) -> _Prepared:
        """Memory for an entry and its launches; `weights` are addresses of weights that stand in for the program's own."""
        memory, held = [], {**self._weights, **(weights or {})}
        for buffer in entry.buffers:
            if buffer.kind == "weight":
                memory.append(held[buffer.label])
            elif buffer.kind == "state":
                memory.append(self._states[buffer.label])
            elif buffer.kind == "temporary":
                memory.append(self._arena + buffer.offset)
            else:
                memory.append(self._allocate(buffer.bytes))
        values, parameters, maps = [], [], []
        for name, used in entry.launches:
            described = self.manifest.kernels[name].tensor_maps
            pointers = np.array([*(memory[b] for b in used), self._symbols], np.uint64)
            encoded = np.zeros(16 * len(described) + 8, np.uint64)  # 128 bytes each, at a multiple of 64
            first = encoded.ctypes.data + -encoded.ctypes.data % 64
            maps += [_EncodedMap(m, memory[used[m.argument]], first + 128 * i) for i, m in enumerate(described)]
            values += [pointers, encoded]
            places = [pointers.ctypes.data + 8 * i for i in range(len(pointers))]
            parameters.append(np.array([*places, *(first + 128 * i for i in range(len(described)))], np.uint64))
        return _Prepared(entry, memory, [self._functions[k] for k, _ in entry.launches], parameters, values, maps)

    def _encode(self, maps: list[_EncodedMap], symbols: Mapping[str, int]) -> None:
        """Writes tensor maps for given lengths where launches find them; those that have not changed are left alone."""
        d = self._d
        for m in maps:
            described, height = m.described, evaluate(m.described.height, symbols)
            length = evaluate(described.length, symbols) if described.length else described.width
            if m.made_for == (length, height):
                continue
            kind = getattr(d.CUtensorMapDataType, "CU_TENSOR_MAP_DATA_TYPE_" + TENSOR_TYPES[described.dtype])
            row = described.width * NUMPY[described.dtype].itemsize
            encoded = _check(d.cuTensorMapEncodeTiled(
                kind, 3, m.buffer, [d.cuuint64_t(n) for n in (length, height, described.planes)],
                [d.cuuint64_t(row), d.cuuint64_t(row * described.plane_rows)],
                [d.cuuint32_t(n) for n in (described.columns, described.rows, 1)], [d.cuuint32_t(1)] * 3,
                d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, d.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
                d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                d.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
            ctypes.memmove(m.place, int(encoded.getPtr()), 128)
            m.made_for = length, height

    # Running ------------------------------------------------------------------------------------------------------

    def run(self, entry: str, arguments: Mapping[str, np.ndarray], symbols: Mapping[str, int],
            fetch: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Runs an entry point and returns copies of the results named in `fetch` (all of them by default)."""
        _check(self._d.cuCtxSetCurrent(self._context))
        prepared = self._entry(entry)
        known = {n: symbols.get(n, low) for n, (low, _) in self.manifest.symbols.items()}
        for name, (low, high) in self.manifest.symbols.items():
            if not low <= known[name] <= high:
                raise ValueError(f"symbol {name} must be in [{low}, {high}], but is {known[name]}")
        self._set_inputs(prepared, arguments, known)
        if prepared.entry.feedback:
            if prepared.graph is None:
                prepared.graph = self._capture(prepared)
            _check(self._d.cuGraphLaunch(prepared.graph, self._stream))
        else:
            self._launch_all(prepared, known)
        results = {}
        for name, number in prepared.entry.results.items():
            if fetch is None or name in fetch:
                results[name] = self._fetch(prepared, number, known)
        _check(self._d.cuStreamSynchronize(self._stream))
        for other in self._entries.values():
            other.holds = None
        if prepared.entry.feedback:
            prepared.holds = self._held_after(prepared, arguments, known, results)
        return results

    def _set_inputs(self, prepared: _Prepared, arguments: Mapping[str, np.ndarray], symbols: dict[str, int]) -> None:
        used = {b.label: i for i, b in enumerate(prepared.entry.buffers) if b.kind == "argument"}
        arrays = {n: np.ascontiguousarray(arguments[n], NUMPY[prepared.entry.buffers[i].dtype]) for n, i in used.items()}
        if prepared.holds == ({n: a.tobytes() for n, a in arrays.items()}, symbols):
            return
        table = np.array(list(symbols.values()) or [0], np.int64)
        _check(self._d.cuMemcpyHtoDAsync(self._symbols, table.ctypes.data, table.nbytes, self._stream))
        for name, i in used.items():
            arrays[name] = rows_apart(prepared.entry.buffers[i], arrays[name], symbols)
            _check(self._d.cuMemcpyHtoDAsync(prepared.memory[i], arrays[name].ctypes.data, arrays[name].nbytes, self._stream))
        _check(self._d.cuStreamSynchronize(self._stream))  # the host arrays may go now

    def _held_after(self, prepared: _Prepared, arguments: Mapping[str, np.ndarray], symbols: dict[str, int],
                    results: dict[str, np.ndarray]) -> tuple[dict[str, bytes], dict[str, int]] | None:
        """What the device's inputs are after the feedback, as far as the host knows it."""
        held = {b.label: np.ascontiguousarray(arguments[b.label], NUMPY[b.dtype]).tobytes()
                for b in prepared.entry.buffers if b.kind == "argument"}
        after = dict(symbols)
        for result, target in prepared.entry.feedback.items():
            if result not in results:
                return None
            if target.startswith("symbol:"):
                after[target.removeprefix("symbol:")] = int(results[result].reshape(-1)[0])
            else:
                held[target] = results[result].tobytes()
        return held, after

    def _fetch(self, prepared: _Prepared, number: int, symbols: dict[str, int]) -> np.ndarray:
        buffer = prepared.entry.buffers[number]
        shape = [evaluate(e, symbols) for e in buffer.shape]
        rows = shape[0] if shape else 1
        whole = np.empty([rows, *buffer.sizes[1:]] if shape else [], NUMPY[buffer.dtype])
        _check(self._d.cuMemcpyDtoHAsync(whole.ctypes.data, prepared.memory[number], whole.nbytes, self._stream))
        return whole[tuple(slice(0, n) for n in shape)]

    def _launch_all(self, prepared: _Prepared, symbols: dict[str, int], skip: frozenset[str] = frozenset(),
                    follows: bool = False) -> None:
        """Launches what is not in `skip`. It `follows` if before it come kernels alone, and none that feeds its arguments."""
        first = not follows
        self._encode(prepared.maps, symbols)
        launches = zip(prepared.entry.launches, prepared.functions, prepared.parameters, strict=True)
        for (name, _), function, parameters in launches:
            kernel = self.manifest.kernels[name]
            grid = [evaluate(e, symbols) for e in kernel.grid]
            if 0 in grid or name in skip:
                continue
            config = self._d.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = grid
            config.blockDimX, config.blockDimY, config.blockDimZ = kernel.block, 1, 1
            config.sharedMemBytes, config.hStream = kernel.shared_bytes, self._stream
            if kernel.dependent and not first:  # the first must not overtake what fed its inputs
                config.attrs, config.numAttrs = [self._overlap], 1
            _check(self._d.cuLaunchKernelEx(config, function, parameters.ctypes.data, 0))
            first = False

    def _capture(self, prepared: _Prepared, skip: frozenset[str] = frozenset()) -> Any:
        """One graph: the launches with grids for the largest symbols, then the copies that feed the next step."""
        largest = {n: high for n, (_, high) in self.manifest.symbols.items()}
        mode = self._d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _check(self._d.cuStreamBeginCapture(self._stream, mode))
        self._launch_all(prepared, largest, skip)
        labels = {b.label: i for i, b in enumerate(prepared.entry.buffers) if b.kind == "argument"}
        for result, target in prepared.entry.feedback.items():
            source = prepared.entry.results[result]
            if target.startswith("symbol:"):
                into = self._symbols + 8 * list(self.manifest.symbols).index(target.removeprefix("symbol:"))
            else:
                into = prepared.memory[labels[target]]
            _check(self._d.cuMemcpyDtoDAsync(into, prepared.memory[source], prepared.entry.buffers[source].bytes, self._stream))
        graph = _check(self._d.cuStreamEndCapture(self._stream))
        return _check(self._d.cuGraphInstantiate(graph, 0))

    def time(self, entry: str, arguments: Mapping[str, np.ndarray], symbols: Mapping[str, int], repeats: int,
             skip: frozenset[str] = frozenset()) -> list[float]:
        """Milliseconds of device time of each of `repeats` steps of an entry with feedback, without the kernels in `skip`."""
        prepared = self._entry(entry)
        self.run(entry, arguments, symbols)
        graph = self._capture(prepared, skip)
        prepared.holds = None
        flags = self._d.CUevent_flags.CU_EVENT_DEFAULT
        events = [_check(self._d.cuEventCreate(flags)) for _ in range(repeats + 1)]
        for event in events[:-1]:
            _check(self._d.cuEventRecord(event, self._stream))
            _check(self._d.cuGraphLaunch(graph, self._stream))
        _check(self._d.cuEventRecord(events[-1], self._stream))
        _check(self._d.cuStreamSynchronize(self._stream))
        times = [_check(self._d.cuEventElapsedTime(a, b)) for a, b in itertools.pairwise(events)]
        for event in events:
            self._d.cuEventDestroy(event)
        self._d.cuGraphExecDestroy(graph)
        return times

    def state(self, name: str) -> np.ndarray:
        """A copy of a state."""
        spec = self.manifest.states[name]
        array = np.empty(spec.shape, NUMPY[spec.dtype])
        _check(self._d.cuMemcpyDtoH(array.ctypes.data, self._states[name], array.nbytes))
        return array

    def close(self) -> None:
        """Gives the memory back."""
        for pointer in self._allocations:
            self._d.cuMemFree(pointer)
        self._allocations = []
        self._d.cuDevicePrimaryCtxRelease(self._device)


def rows_apart(buffer: Buffer, array: np.ndarray, symbols: Mapping[str, int]) -> np.ndarray:
    """An argument or a weight as a kernel reads it: rows of a length that varies lie as far apart as the longest are."""
    shape = [evaluate(e, symbols) for e in buffer.shape]
    if list(array.shape) != shape:
        raise ValueError(f"{buffer.kind} {buffer.label} must have shape {shape}, but has {list(array.shape)}")
    if shape[1:] == buffer.sizes[1:]:
        return array
    whole = np.zeros(buffer.sizes, array.dtype)
    whole[tuple(map(slice, shape))] = array
    return whole


def _bytes(dtype: str, shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * NUMPY[dtype].itemsize
