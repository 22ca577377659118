"""A CUDA driver without a GPU: memory is the PTX interpreter's, a launch runs there, and a graph is a list of calls.

    monkeypatch.setattr("tilec.runtime.cuda._driver", FakeDriver)

With it `CudaProgram` and what is built on it run as they are. It also refuses what the real driver would: names that it does
not have, memory that is not there, a graph that was destroyed, an event that was not recorded.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from .ptx import Memory, TensorMap, parse

driver: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
OK = (driver.CUresult.CUDA_SUCCESS,)


class FakeDriver:
    """The part of `cuda.bindings.driver` that the runtime uses. Every replay of a graph takes a millisecond by its events."""

    CUdevice_attribute, CUevent_flags, CUstream_flags = driver.CUdevice_attribute, driver.CUevent_flags, driver.CUstream_flags
    CUstreamCaptureMode, CUlaunchAttribute = driver.CUstreamCaptureMode, driver.CUlaunchAttribute
    CUlaunchAttributeID, CUfunction_attribute = driver.CUlaunchAttributeID, driver.CUfunction_attribute
    CUtensorMapDataType, CUtensorMapInterleave = driver.CUtensorMapDataType, driver.CUtensorMapInterleave
    CUtensorMapSwizzle, CUtensorMapL2promotion = driver.CUtensorMapSwizzle, driver.CUtensorMapL2promotion
    CUtensorMapFloatOOBfill = driver.CUtensorMapFloatOOBfill
    cuuint32_t = cuuint64_t = staticmethod(int)

    def __init__(self) -> None:
        self.memory, self.live, self.capturing = Memory(), set(), None
        self.clock, self.launches, self.graphs, self.events = 0.0, 0, 0, 0

    def CUlaunchConfig(self) -> SimpleNamespace:
        return SimpleNamespace(attrs=[], numAttrs=0)

    def _do(self, action: Callable[[], Any]) -> tuple:
        """Now, or when the graph that is being captured is launched."""
        action() if self.capturing is None else self.capturing.append(action)
        return OK

    # The device ---------------------------------------------------------------------------------------------------

    def cuInit(self, flags: int) -> tuple:
        return OK

    def cuDeviceGetCount(self) -> tuple:
        return (*OK, 1)

    def cuDeviceGet(self, number: int) -> tuple:
        return (*OK, number)

    def cuDeviceGetName(self, length: int, device: int) -> tuple:
        return (*OK, b"a simulated GPU\0")

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> tuple:
        return (*OK, 9 if "MAJOR" in attribute.name else 0)

    def cuDriverGetVersion(self) -> tuple:
        return (*OK, 13000)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple:
        return (*OK, "context")

    def cuDevicePrimaryCtxRelease(self, device: int) -> tuple:
        return OK

    def cuCtxSetCurrent(self, context: str) -> tuple:
        return OK

    def cuStreamCreate(self, flags: Any) -> tuple:
        return (*OK, "stream")

    def cuStreamSynchronize(self, stream: str) -> tuple:
        assert self.capturing is None
        return OK

    # Memory -------------------------------------------------------------------------------------------------------

    def cuMemAlloc(self, size: int) -> tuple:
        place = self.memory.alloc(-(-size // 16) * 16)
        self.live.add(place)
        return (*OK, place)

    def cuMemFree(self, place: int) -> tuple:
        self.live.remove(int(place))
        return OK

    def cuMemsetD8(self, place: int, value: int, size: int) -> tuple:
        self.memory.write(int(place), np.full(size, value, np.uint8))
        return OK

    def cuMemsetD8Async(self, place: int, value: int, size: int, stream: str) -> tuple:
        return self._do(lambda: self.cuMemsetD8(place, value, size))

    def cuMemcpyHtoD(self, place: int, host: int, size: int) -> tuple:
        self.memory.write(int(place), np.frombuffer(ctypes.string_at(host, size), np.uint8))
        return OK

    def cuMemcpyHtoDAsync(self, place: int, host: int, size: int, stream: str) -> tuple:
        return self._do(lambda: self.cuMemcpyHtoD(place, host, size))

    def cuMemcpyDtoH(self, host: int, place: int, size: int) -> tuple:
        return self.cuMemcpyDtoHAsync(host, place, size, "stream")

    def cuMemcpyDtoHAsync(self, host: int, place: int, size: int, stream: str) -> tuple:
        ctypes.memmove(host, self.memory.read(int(place), (size,), np.uint8).tobytes(), size)
        return OK

    def cuMemcpyDtoDAsync(self, into: int, place: int, size: int, stream: str) -> tuple:
        return self._do(lambda: self.memory.write(into, self.memory.read(place, (size,), np.uint8)))

    # Code ---------------------------------------------------------------------------------------------------------

    def cuModuleLoadData(self, code: bytes) -> tuple:
        return (*OK, parse(code.removesuffix(b"\0").decode()))

    def cuModuleGetFunction(self, module: Any, name: bytes) -> tuple:
        return (*OK, module.kernel(name.decode()))

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> tuple:
        assert ("DYNAMIC_SHARED" in attribute.name and value <= 227 << 10) or ("NON_PORTABLE" in attribute.name and value == 1)
        return OK

    def cuFuncGetAttribute(self, attribute: Any, function: Any) -> tuple:
        assert "CLUSTER_WIDTH" in attribute.name
        return (*OK, (function.function.cluster or (1,))[0])

    def cuTensorMapEncodeTiled(self, kind: Any, rank: int, address: int, sizes: list, strides: list, box: list, steps: list,
                               interleave: Any, swizzle: Any, promotion: Any, fill: Any) -> tuple:
        assert "NONE" in interleave.name and "NONE" in fill.name and steps == [1] * rank
        dtype = {"BFLOAT16": "bf16", "FLOAT16": "f16", "FLOAT32": "f32"}[kind.name.rsplit("_", 1)[1]]
        span = int(swizzle.name.rsplit("_", 1)[1].removesuffix("B"))
        encoded = ctypes.create_string_buffer(TensorMap(address, dtype, sizes, strides, box, span).pack(), 128)
        return (*OK, SimpleNamespace(getPtr=lambda: ctypes.addressof(encoded), kept=encoded))

    def cuLaunchKernelEx(self, config: SimpleNamespace, function: Any, parameters: int, extra: int) -> tuple:
        kinds = function.function.parameters
        places = (ctypes.c_void_p * len(kinds)).from_address(parameters)
        values = [ctypes.c_uint64.from_address(p).value if kind.size == 8 else ctypes.string_at(p, kind.size)
                  for p, kind in zip(places, kinds, strict=True)]

        def launch() -> None:
            self.launches += 1
            function.launch(grid=(config.gridDimX, config.gridDimY, config.gridDimZ), memory=self.memory, args=values,
                            block=(config.blockDimX, config.blockDimY, config.blockDimZ), shared_bytes=config.sharedMemBytes)

        return self._do(launch)

    # Graphs and events --------------------------------------------------------------------------------------------

    def cuStreamBeginCapture(self, stream: str, mode: Any) -> tuple:
        assert self.capturing is None
        self.capturing = []
        return OK

    def cuStreamEndCapture(self, stream: str) -> tuple:
        graph, self.capturing = self.capturing, None
        return (*OK, graph)

    def cuGraphInstantiate(self, graph: list, flags: int) -> tuple:
        self.graphs += 1
        return (*OK, list(graph))

    def cuGraphDestroy(self, graph: list) -> tuple:
        graph.clear()
        return OK

    def cuGraphLaunch(self, graph: list, stream: str) -> tuple:
        assert graph, "a graph without nodes, or one that was destroyed"
        for action in graph:
            action()
        self.clock += 1.0
        return OK

    def cuGraphExecDestroy(self, graph: list) -> tuple:
        self.graphs -= 1
        graph.clear()
        return OK

    def cuEventCreate(self, flags: Any) -> tuple:
        self.events += 1
        return (*OK, [])

    def cuEventRecord(self, event: list, stream: str) -> tuple:
        event.append(self.clock)
        return OK

    def cuEventElapsedTime(self, start: list, end: list) -> tuple:
        return (*OK, end[-1] - start[-1])

    def cuEventDestroy(self, event: list) -> tuple:
        self.events -= 1
        return OK


class FakeTorch:
    """As much of torch.cuda as replays use: a call is run when it is captured, and a replay takes half a millisecond."""

    def __init__(self) -> None:
        self.cuda = self
        self.CUDAGraph = lambda: SimpleNamespace(replay=lambda: None)
        self.Stream = self.current_stream = lambda: SimpleNamespace(wait_stream=lambda other: None)
        self.stream = self.graph = lambda it: contextlib.nullcontext()
        self.synchronize = self.empty_cache = lambda: None
        self.Event = lambda enable_timing: SimpleNamespace(record=lambda: None, elapsed_time=lambda other: 0.5)
