"""The other side of the comparisons. Torch is loaded here and nowhere else, and everything works without it."""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Call = Callable[[dict[str, Any]], Any]


@functools.cache
def find_torch() -> Any:
    """The torch module where it is installed and sees a GPU, else None."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.set_float32_matmul_precision("highest")  # f32 means f32
    torch.set_grad_enabled(False)
    return torch


def in_tf32(call: Call) -> Call:
    """A call that may multiply f32 in TF32, which torch does not do otherwise here."""
    def run(tensors: dict[str, Any]) -> Any:
        import torch

        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return call(tensors)
        finally:
            torch.set_float32_matmul_precision(before)

    return run


def version() -> str | None:
    """Of the torch that is installed, without loading it."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def release() -> None:
    """Gives cached memory back to the device, where programs of ours can have it."""
    torch = find_torch()
    if torch:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def to_torch(array: np.ndarray, device: str = "cuda") -> Any:
    """A device tensor with the values of an array in memory form (uint16 holds bf16)."""
    import torch

    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).to(device).view(torch.bfloat16)
    return torch.from_numpy(array).to(device)


def replays(calls: Mapping[str, Call], sets: Sequence[Mapping[str, np.ndarray]]) -> dict[str, TorchReplay]:
    """A replay for each of `calls` that runs on this machine, on the same inputs; none without torch."""
    torch = find_torch()
    if not torch:
        return {}
    inputs = [{n: to_torch(a) for n, a in each.items()} for each in sets]
    found = {}
    for name, call in calls.items():
        try:
            found[name] = TorchReplay([functools.partial(call, each) for each in inputs])
        except RuntimeError as error:  # a kernel that does not take these shapes
            print(f"    torch: no {name}: {str(error).splitlines()[0][:100]}")
    return found


class TorchReplay:
    """Calls, one after the other, as a CUDA graph that can be timed: the contestant of `Replay`.

    Results of the latest round are kept, so that each call of a round writes to memory of its own.
    """

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._torch, self._calls = find_torch(), list(calls)
        self.sets, self.runs = len(self._calls), 0
        self._graph: Any = None
        stream = self._torch.cuda.Stream()  # warming up elsewhere than on the default stream, before capture
        stream.wait_stream(self._torch.cuda.current_stream())
        with self._torch.cuda.stream(stream):
            for _ in range(3):
                self._last = self._calls[-1]()
        self._torch.cuda.synchronize()

    def last(self) -> np.ndarray:
        """The last set's result, float64."""
        return self._last.double().cpu().numpy()

    def capture(self, rounds: int) -> None:
        """Makes the graph that `time` replays: all calls, `rounds` times."""
        self._graph, self.runs = self._torch.cuda.CUDAGraph(), self.sets * rounds
        self._kept: deque[Any] = deque(maxlen=self.sets)
        with self._torch.cuda.graph(self._graph):
            for call in self._calls * rounds:
                self._kept.append(call())

    def time(self, repeats: int) -> list[float]:
        """Milliseconds of device time of one call, as the mean of each of `repeats` replays; the first warms up."""
        events = [self._torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        self._graph.replay()
        events[0].record()
        for event in events[1:]:
            self._graph.replay()
            event.record()
        self._torch.cuda.synchronize()
        return [a.elapsed_time(b) / self.runs for a, b in itertools.pairwise(events)]
