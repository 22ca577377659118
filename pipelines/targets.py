"""What the compiler knows of a machine. Everything that decides speed or legality is a field here, not a test in a pass."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, field
from pathlib import Path

from tilec.errors import TargetError


@dataclass(frozen=True)
class CpuTarget:
    """A processor: LLVM's name for it, and the features that change the code we make.

    `vector_bytes` is the width of its vector `registers` (16 to 64). `bf16_dot` means AVX512_BF16: its pair product and
    conversions. `fused` means a multiply-add in hardware, `f16` conversions from and to f16.
    """

    name: str
    triple_arch: str
    llvm_cpu: str
    vector_bytes: int
    features: tuple[str, ...] = ()
    bf16_dot: bool = False
    fused: bool = True
    f16: bool = True
    registers: int = 32
    kind: str = field(default="cpu", init=False)

    @property
    def lanes(self) -> int:
        """f32 elements of one register."""
        return self.vector_bytes // 4


@dataclass(frozen=True)
class GpuTarget:
    """An NVIDIA architecture: chip and PTX version, shared memory per block in bytes, its number of
    multiprocessors, and whether it has what came with Hopper: kernels that start before their predecessor ends, clusters of
    up to `most_clustered` blocks, copies by TMA. `wgmma` means products by groups of four warps, which only Hopper has.
    """

    name: str
    ptx: str
    shared_bytes: int
    multiprocessors: int
    hopper: bool
    wgmma: bool = False
    most_clustered: int = 1
    kind: str = field(default="gpu", init=False)

    def clusters(self, blocks: int) -> int:
        """How many clusters of so many blocks run at once where each block takes a multiprocessor for itself.

        A cluster stays in one group of multiprocessors. Most groups have 16 to 18, one has fewer: so an H200, of 132, runs
        66 clusters of 2 blocks, but 30 of 4, 15 of 8 and 7 of 16, as cuOccupancyMaxActiveClusters says.
        """
        return (self.multiprocessors if blocks <= 2 else self.multiprocessors * 10 // 11) // blocks


GPU_TARGETS = {
    "sm_80": GpuTarget("sm_80", "ptx80", 163 << 10, 108, False),
    "sm_86": GpuTarget("sm_86", "ptx80", 99 << 10, 84, False),
    "sm_89": GpuTarget("sm_89", "ptx80", 99 << 10, 128, False),
    "sm_90a": GpuTarget("sm_90a", "ptx86", 227 << 10, 132, True, True, 16),
    "sm_100a": GpuTarget("sm_100a", "ptx86", 227 << 10, 148, True, most_clustered=16),
    "sm_120a": GpuTarget("sm_120a", "ptx87", 99 << 10, 170, True, most_clustered=8),
}

# x86-64 levels by what they add. Names are LLVM's; AVX512_BF16 is asked for on top of the level.
CPU_TARGETS = {t.name: t for t in (
    CpuTarget("x86-64-avx512bf16", "x86_64", "x86-64-v4", 64, ("+avx512bf16",), True),
    CpuTarget("x86-64-avx512", "x86_64", "x86-64-v4", 64),
    CpuTarget("x86-64-avx2", "x86_64", "x86-64-v3", 32, registers=16),
    CpuTarget("x86-64", "x86_64", "x86-64", 16, fused=False, f16=False, registers=16),
    CpuTarget("aarch64", "aarch64", "generic", 16),
)}


def host_cpu() -> CpuTarget:
    """The best CPU target that this machine can run."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return CPU_TARGETS["aarch64"]
    if machine not in ("x86_64", "amd64"):
        raise TargetError(f"no CPU code generator for '{machine}'; supported are x86-64 and arm64")
    flags = _x86_flags()
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= flags:
        return CPU_TARGETS["x86-64-avx512bf16" if "avx512_bf16" in flags else "x86-64-avx512"]
    return CPU_TARGETS["x86-64-avx2" if {"avx2", "fma"} <= flags else "x86-64"]


def _x86_flags() -> set[str]:
    try:
        match = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return set()
    return set(match.group(1).split()) if match else set()


def processor_name() -> str:
    """What this machine's processor calls itself."""
    try:
        match = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.machine()


def check_tf32(target: CpuTarget | GpuTarget) -> None:
    """TargetError unless the target has tensor cores, which alone know TF32; those of every GPU here do."""
    if isinstance(target, CpuTarget):
        raise TargetError(f"dtype tf32 needs the tensor cores of a GPU, and {target.name} is a CPU; use f32")


def find_target(name: str) -> CpuTarget | GpuTarget:
    """The target called `name`: 'cpu' (this machine), a CPU level or an NVIDIA architecture. Raises TargetError."""
    if name == "cpu":
        return host_cpu()
    known: dict[str, CpuTarget | GpuTarget] = {**CPU_TARGETS, **GPU_TARGETS}
    if name not in known:
        raise TargetError(f"unknown target '{name}'; choose cpu (this machine) or one of {', '.join(known)}")
    return known[name]
