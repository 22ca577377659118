"""The pipelines, as the list of what happens to a program, with the reason for each place in the order.

`tile_pipeline` is common to all targets; `cpu_pipeline` goes on to functions that LLVM compiles, `gpu_pipeline` to
kernels and NVVM, from which `nvvm_to_ptx.py` makes PTX.
"""

from __future__ import annotations

from collections.abc import Collection

from tilec.pipelines.cost.gpu import SHARING_BLOCKS
from tilec.pipelines.cpu.expand_math import ExpandMath
from tilec.pipelines.cse import Cse
from tilec.pipelines.dce import Dce
from tilec.pipelines.kernel.count_turns import CountTurns
from tilec.pipelines.kernel.dependent_launch import DependentLaunch
from tilec.pipelines.kernel.libdevice import Libdevice
from tilec.pipelines.kernel.merge_launches import MergeLaunches
from tilec.pipelines.kernel.native_math import NativeMath
from tilec.pipelines.kernel.peek_barriers import PeekBarriers
from tilec.pipelines.kernel_to_nvvm import KernelToNvvm
from tilec.pipelines.nvvm.narrow_indices import NarrowIndices
from tilec.pipelines.passes import Entry, Nested, Pass, PipelineError, Upstream
from tilec.pipelines.primop.decompose_softmax import DecomposeSoftmax
from tilec.pipelines.primop.delay_scales import DelayScales
from tilec.pipelines.primop.fold_scales import FoldScales
from tilec.pipelines.primop.fuse import Fuse
from tilec.pipelines.primop.group import Group
from tilec.pipelines.primop.held_rows import HeldRows
from tilec.pipelines.primop.inplace_scatter import InplaceScatter
from tilec.pipelines.primop.online_reductions import OnlineReductions
from tilec.pipelines.primop.online_rows import OnlineRows
from tilec.pipelines.primop.pack_weights import PackWeights
from tilec.pipelines.primop.partition import Partition
from tilec.pipelines.primop.share_chains import ShareChains
from tilec.pipelines.primop.stage_rows import StageRows
from tilec.pipelines.primop.write_states import WriteStates
from tilec.pipelines.primop_to_tile import PrimopToTile
from tilec.pipelines.targets import CpuTarget, GpuTarget, find_target
from tilec.pipelines.tile.delay_products import DelayProducts
from tilec.pipelines.tile.persist import Persist
from tilec.pipelines.tile.prefetch import Prefetch
from tilec.pipelines.tile.software_pipeline import SoftwarePipeline
from tilec.pipelines.tile.specialise import Specialise
from tilec.pipelines.tile.split import Split
from tilec.pipelines.tile.stage import Stage
from tilec.pipelines.tile.take_turns import TakeTurns
from tilec.pipelines.tile_to_cpu import TileToCpu
from tilec.pipelines.tile_to_kernel import TileToKernel

PRIMOP: tuple[Entry, ...] = (
    DecomposeSoftmax(),  # before anything counts ops: fusion and chunks see only primops with one meaning
    DelayScales(),  # before chunks, to one of which it moves what another begins with
    Cse(),
    Dce(),
    Partition(),
    Group(),  # before the passes below, which then work on one layer and not on thirty
    InplaceScatter(),  # looks at all uses of a state inside a chunk, so while a chunk is still one function body
    WriteStates(),  # once it is known which scatters write in place
    FoldScales(),  # while softmax's pieces are as decompose-softmax left them, and before a chain is recorded
    OnlineReductions(),  # its marks tell fusion which chains of reductions are one loop
    StageRows(),  # and its marks, what each kernel makes for itself
    Fuse(),
    Group(),  # kernels of different chunks that came out equal
    OnlineRows(),  # looks at all reductions of a kernel, so when it is known which these are
    HeldRows(),  # when it is known which kernels write a state and which read it
    ShareChains(),  # last, as it makes two kernels of one that others still look for
)


# What makes programs faster and not possible: each may be left out, to see what it buys.
OPTIONAL = (
    Cse.name, Dce.name, DelayScales.name, Group.name, FoldScales.name, OnlineReductions.name, StageRows.name, OnlineRows.name,
    HeldRows.name, ShareChains.name,
    PackWeights.name, Prefetch.name, Split.name, Persist.name, DelayProducts.name, TakeTurns.name, SoftwarePipeline.name,
    Specialise.name, MergeLaunches.name, DependentLaunch.name, NativeMath.name, CountTurns.name,
    PeekBarriers.name, NarrowIndices.name,
)


def without(passes: tuple[Entry, ...], names: Collection[str]) -> tuple[Entry, ...]:
    """A pipeline with the named optional passes left out. PipelineError for a name that is none of them."""
    for name in names:
        if name not in OPTIONAL:
            raise PipelineError(f"'{name}' cannot be left out; these can: {', '.join(OPTIONAL)}")
    return tuple(p for p in passes if not (isinstance(p, Pass) and p.name in names))


def primop_pipeline(target: CpuTarget | GpuTarget) -> tuple[Entry, ...]:
    """From a recorded module to functions that are one kernel each."""
    clusters, gpu = isinstance(target, GpuTarget) and target.hopper, isinstance(target, GpuTarget)
    hopper = DelayScales | StageRows | HeldRows | ShareChains
    wanted = [p for p in PRIMOP if (clusters or not isinstance(p, hopper)) and (gpu or not isinstance(p, OnlineReductions))]
    if isinstance(target, CpuTarget):  # where a second look at a row costs less than mending, whatever its length: measured
        wanted = [p for p in wanted if not isinstance(p, OnlineRows)]
    # One loop over a long axis keeps one program busy: for one query worth it where a cluster of blocks can share that loop.
    chosen = {OnlineReductions.name: OnlineReductions(one=clusters, rows=True), Fuse.name: Fuse(tensor=gpu)}
    if isinstance(target, GpuTarget):
        chosen[ShareChains.name] = ShareChains(programs=SHARING_BLOCKS * target.multiprocessors)
    return tuple(chosen.get(p.name, p) if isinstance(p, Pass) else p for p in wanted)


def fused_pipeline(name: str) -> tuple[Entry, ...]:
    """From a recorded module to the kernels that a target gets, whose schedules are then chosen."""
    return (
        *primop_pipeline(find_target(name)),
        PackWeights(name),  # after fusion, which decides who reads a weight; before views become loads
    )


def scheduled_pipeline(name: str, tuned: str = "") -> tuple[Entry, ...]:
    """From kernels to tile functions for a target, with schedules from the recording `tuned` where it has some."""
    return (
        PrimopToTile(name, tuned),
        Cse(),  # constants and loads that several operands share
        Dce(),
    )


def tile_pipeline(name: str, tuned: str = "") -> tuple[Entry, ...]:
    """From a recorded module to tile functions for a target."""
    return (*fused_pipeline(name), *scheduled_pipeline(name, tuned))


CPU: tuple[Entry, ...] = (
    ExpandMath(),  # on whole tiles: their shape no longer matters once a polynomial is arithmetic
)

KERNEL: tuple[Entry, ...] = (
    Prefetch(),
    Split(),  # while operands are loads, whose tiles it widens
    Stage(),
    Persist(),  # of what is staged, whose turns it counts on; before roles, so that both walk over the programs
    DelayProducts(),  # when it is known which slots a product reads; before roles, so that both count the same turns
    TakeTurns(),  # with products that stand beside each other
    SoftwarePipeline(),  # of what all threads fetch, when it is known in which turn
    Specialise(),  # of what is staged: the threads that fetch need no registers for products
    TileToKernel(),
    MergeLaunches(),  # before waits are placed: each part of a merged kernel waits at its own first access
    DependentLaunch(),  # when all accesses are known, and before their addresses are lowered and harder to move
)

NVVM: tuple[Entry, ...] = (
    Libdevice(),  # while operands are still vectors of a known element type
    NativeMath(),  # after powers of 16 bits became such of 32
    Nested("gpu.module", (Nested("func.func", (  # for each kernel by itself, on all cores
        Upstream("lower-affine"),  # index arithmetic becomes visible ...
        Upstream("canonicalize"),
        Upstream("cse"),
        Upstream("loop-invariant-code-motion"),  # ... and leaves the loops while there are loops
    )),)),
    CountTurns(),  # of what upstream has made alike and left in the loops
    PeekBarriers(),  # whose slots and phases are then known a turn ahead
    KernelToNvvm(),
    NarrowIndices(),  # when no kernel op takes an index any more
)


def cpu_pipeline(target: CpuTarget) -> tuple[Entry, ...]:
    """From tile functions to functions over pointers and SIMD vectors."""
    return (*CPU, TileToCpu(target.name))


def kernel_pipeline(target: GpuTarget) -> tuple[Entry, ...]:
    """From tile functions to kernels, one thread's part each."""
    return tuple(p for p in KERNEL if target.hopper or not isinstance(p, DependentLaunch))


def gpu_pipeline(target: GpuTarget) -> tuple[Entry, ...]:
    """From tile functions to NVVM."""
    return (*kernel_pipeline(target), *NVVM)
