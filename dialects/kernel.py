"""One function is what one thread does: scalars and short vectors, and ops that are each one instruction idiom.

A kernel is a `func.func` inside a `gpu.module`, with `kernel.block` (threads), `kernel.grid` (blocks, as maps of the
symbols) and, where blocks work together, `kernel.cluster` (how many neighbours along x). Its arguments are one-dimensional
memrefs in global memory (address space 1), then the table of symbol values, then the tensor maps of its TMA loads (address
space 4, described by `kernel.tensor_maps`); shared memory is declared by `kernel.shared` (address space 3). Offsets count
elements. Layouts have been decided and are no longer visible: only instruction selection is left.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, ClassVar, Optional

from mlir import ir

from tilec.dialects.core import Attr, Dialect, Operand, Pure, Result, VerifyError
from tilec.dialects.tile import ReduceKind


class Dimension(enum.Enum):
    """A dimension of the grid."""

    X = "x"
    Y = "y"
    Z = "z"


class Cache(enum.Enum):
    """How a read of global memory treats the caches.

    `stream` is for what no kernel of a run writes and what is read once: it bypasses the first level, is fetched by the
    second in 256-byte units, and stays where it stands relative to waits and barriers. `held` is for what was written in an
    earlier run: it may be read before the kernels that came before in this one have ended.
    """

    PLAIN = "plain"
    STREAM = "stream"
    HELD = "held"


class Kernel(Dialect, name="kernel"):
    """Threads, warps, barriers and memory accesses of a GPU."""


class ThreadId(Kernel.Operation, name="thread_id", traits=[Pure]):
    """This thread's number in its block."""

    result: Result[ir.IndexType]


class BlockId(Kernel.Operation, name="block_id", traits=[Pure]):
    """This block's coordinate along one dimension of the grid."""

    dimension: Attr[Dimension]
    result: Result[ir.IndexType]


GLOBAL, SHARED, TENSOR_MAP = 1, 3, 4  # address spaces
ROW_BYTES = 128  # of a tile in shared memory, the span of a swizzle, which permutes pieces of PIECE_BYTES
PIECE_BYTES = 16
STEP_BYTES = 32  # of a row that one step of a product by tensor cores takes


def _check_memory(what: str, buffer: ir.Value, space: int) -> None:
    kind = ir.MemRefType(buffer.type)
    if kind.rank != 1 or not isinstance(kind.memory_space, ir.IntegerAttr) or kind.memory_space.value != space:
        raise VerifyError(f"{what} must be one-dimensional in address space {space}, but is {kind}")


class Shared(Kernel.Operation, name="shared", traits=[Pure]):
    """Shared memory of the block, uninitialised, at a multiple of `align` bytes. Equal symbols name the same memory.

    With `over` it may lie where the memory of the symbols `over`0, `over`1, ... does, whose content nobody needs any more.
    """

    symbol: Attr[str]
    align: Attr[int] = None
    over: Attr[str] = None
    result: Result[ir.MemRefType]

    def verify(self) -> None:
        _check_memory("result", self.result, SHARED)


class _Access(Kernel.Operation):
    SPACE: ClassVar[int] = GLOBAL

    def _check_access(self, buffer: ir.Value, value: ir.Value) -> None:
        _check_memory("buffer", buffer, self.SPACE)
        kind = value.type
        element = kind.element_type if isinstance(kind, ir.VectorType) else kind
        if ir.MemRefType(buffer.type).element_type != element:
            raise VerifyError(f"buffer must have elements {element}, but is {buffer.type}")


class LoadGlobal(_Access, name="load_global"):
    """Reads a scalar, or a vector in one access where its alignment allows; zeros, without an access, where `when` is false."""

    cache: Attr[Cache]
    buffer: Operand[ir.MemRefType]
    offset: Operand[ir.IndexType]
    when: Optional[Operand[ir.IntegerType]] = None  # noqa: UP045 - a marker, not a type
    result: Result[Any]

    def verify(self) -> None:
        self._check_access(self.buffer, self.result)
        if self.when is not None and (self.when.type.width != 1 or not isinstance(self.result.type, ir.VectorType)):
            raise VerifyError(f"when must be i1 and result a vector, but are {self.when.type} and {self.result.type}")


class LoadOver(_Access, name="load_over"):
    """Reads a vector where `when` is true; elsewhere it is `value`, without an access."""

    value: Operand[ir.VectorType]
    buffer: Operand[ir.MemRefType]
    offset: Operand[ir.IndexType]
    when: Operand[ir.IntegerType]
    result: Result[ir.VectorType]

    def verify(self) -> None:
        self._check_access(self.buffer, self.result)
        if self.when.type.width != 1 or self.value.type != self.result.type:
            raise VerifyError(f"when must be i1 and value have the result's type {self.result.type}, but are {self.when.type} "
                              f"and {self.value.type}")


class StoreGlobal(_Access, name="store_global"):
    """Writes a scalar or a vector."""

    value: Operand[Any]
    buffer: Operand[ir.MemRefType]
    offset: Operand[ir.IndexType]

    def verify(self) -> None:
        self._check_access(self.buffer, self.value)


class LoadShared(_Access, name="load_shared"):
    """Reads shared memory."""

    SPACE = SHARED
    buffer: Operand[ir.MemRefType]
    offset: Operand[ir.IndexType]
    result: Result[Any]

    def verify(self) -> None:
        self._check_access(self.buffer, self.result)


class StoreShared(_Access, name="store_shared"):
    """Writes shared memory."""

    SPACE = SHARED
    value: Operand[Any]
    buffer: Operand[ir.MemRefType]
    offset: Operand[ir.IndexType]

    def verify(self) -> None:
        self._check_access(self.buffer, self.value)


class Barrier(Kernel.Operation, name="barrier"):
    """All threads of the block, or the first `threads`, arrive before any leaves; shared memory written is visible after."""

    threads: Attr[int] = None


class GroupBarrier(Kernel.Operation, name="group_barrier"):
    """Barrier `number` of the block, where `threads` threads meet: those that only `arrive` go on at once."""

    threads: Attr[int]
    arrive: Attr[bool] = None
    number: Operand[ir.IndexType]


class WarpBarrier(Kernel.Operation, name="warp_barrier"):
    """All lanes of the warp arrive before any leaves; what they have read and written is ordered before what follows.

    A copy engine that follows may overtake reads: none is under way any more of which `values` are computed.
    """

    values: Sequence[Operand[Any]]


class Uniform(Kernel.Operation, name="uniform", traits=[Pure]):
    """An index that all lanes of a warp have the same of, as one that assemblers know to be so: what follows from it is
    computed once for a warp. All lanes come here together.
    """

    value: Operand[ir.IndexType]
    result: Result[ir.IndexType]


class ClusterRank(Kernel.Operation, name="cluster_rank", traits=[Pure]):
    """This block's number in its cluster."""

    result: Result[ir.IndexType]


class ClusterArrive(Kernel.Operation, name="cluster_arrive"):
    """This thread has come so far: what it wrote to shared memory is there.

    What was computed from all that it has read of others is `values`: they have come, so that others may write or leave.
    """

    values: Sequence[Operand[Any]] = ()


class ClusterWait(Kernel.Operation, name="cluster_wait"):
    """Returns when all threads of the cluster have arrived as often as this one."""


class LoadRemote(_Access, name="load_remote"):
    """Reads the shared memory that block `rank` of the cluster knows by the same name: a scalar, or four at a time."""

    SPACE = SHARED
    buffer: Operand[ir.MemRefType]
    offset: Operand[ir.IndexType]
    rank: Operand[ir.IndexType]
    result: Result[Any]

    def verify(self) -> None:
        self._check_access(self.buffer, self.result)
        if isinstance(self.result.type, ir.VectorType) and self.result.type.shape[0] % 4:
            raise VerifyError(f"result must be a scalar or a vector of a multiple of four, but is {self.result.type}")


class GridWait(Kernel.Operation, name="grid_wait"):
    """Returns when the kernels launched before this one have ended and their writes are visible."""


class LaunchDependents(Kernel.Operation, name="launch_dependents"):
    """Lets the next kernel's blocks start as soon as there is room; it must wait before it reads what this one writes."""


class WarpReduce(Kernel.Operation, name="warp_reduce", traits=[Pure]):
    """Combines a scalar over the lanes whose numbers differ by the bits of `lanes`, by butterfly shuffles.

    All 32 lanes take part; lane l gets the combination over l xor every subset of `lanes`, each a power of two.
    """

    kind: Attr[ReduceKind]
    lanes: Attr[list[int]]
    value: Operand[Any]
    result: Result[Any]

    def verify(self) -> None:
        if any(bit not in (1, 2, 4, 8, 16) for bit in self.lanes):
            raise VerifyError(f"lanes must be powers of two below 32, but are {list(self.lanes)}")
        if isinstance(self.value.type, ir.VectorType):
            raise VerifyError(f"value must be a scalar, but is {self.value.type}")
        if self.value.type != self.result.type:
            raise VerifyError(f"result must have the type of value, {self.value.type}, but has {self.result.type}")


class Exchange(Kernel.Operation, name="exchange", traits=[Pure]):
    """The value of the lane whose number differs by the bit `lanes`; all 32 lanes take part."""

    lanes: Attr[int]
    value: Operand[ir.IntegerType]
    result: Result[ir.IntegerType]

    def verify(self) -> None:
        if self.lanes not in (1, 2, 4, 8, 16):
            raise VerifyError(f"lanes must be a power of two below 32, but is {self.lanes}")


def _check_multiplied(element: ir.Type) -> None:
    if str(element) not in ("bf16", "f16", "tf32"):
        raise VerifyError(f"element must be what tensor cores multiply, bf16, f16 or tf32, but is {element}")


class Mma(Kernel.Operation, name="mma", traits=[Pure]):
    """acc + lhs rhs^T by a warp, 16 x 8 x 16: registers as mma.sync.m16n8k16 wants them, two 16-bit elements in each of lhs
    and rhs, f32 in acc. Of tf32 16 x 8 x 8, one element in each, of whose f32 the low 13 bits do not count."""

    element: Attr[ir.Type]
    lhs: Sequence[Operand[ir.IntegerType]]
    rhs: Sequence[Operand[ir.IntegerType]]
    acc: Sequence[Operand[ir.F32Type]]
    result_: Sequence[Result[ir.F32Type]]

    def verify(self) -> None:
        _check_multiplied(self.element)
        sizes = [len(self.lhs), len(self.rhs), len(self.acc), len(self.operation.results)]
        if sizes != [4, 2, 4, 4]:
            raise VerifyError(f"lhs, rhs, acc and results must be 4, 2, 4 and 4 registers, but are {sizes}")


class LoadMatrix(_Access, name="load_matrix"):
    """Four matrices of 8 x 8 16-bit words from shared memory, by a warp: lane 8 i + r gives the offset, in such words, of row r
    of matrix i, 16 bytes; each lane gets of every matrix two neighbours of row lane floordiv 4 or, `transposed`, of that
    column. Of f32, which is two words, that is one element."""

    SPACE = SHARED
    transposed: Attr[bool] = None
    buffer: Operand[ir.MemRefType]
    offset: Operand[ir.IndexType]
    result_: Sequence[Result[ir.IntegerType]]

    def verify(self) -> None:
        _check_memory("buffer", self.buffer, SHARED)
        if len(self.operation.results) != 4:
            raise VerifyError(f"needs 4 results, one of each matrix, but has {len(self.operation.results)}")


class CopyAsync(Kernel.Operation, name="copy_async"):
    """Starts to copy 16 bytes from global to shared memory: `bytes` of them, and zeros for the rest."""

    element: Attr[ir.Type]
    buffer: Operand[ir.MemRefType]
    offset: Operand[ir.IndexType]
    source: Operand[ir.MemRefType]
    place: Operand[ir.IndexType]
    bytes: Operand[ir.IndexType]

    def verify(self) -> None:
        _check_memory("buffer", self.buffer, SHARED)
        _check_memory("source", self.source, GLOBAL)
        for buffer in (self.buffer, self.source):
            if ir.MemRefType(buffer.type).element_type != self.element:
                raise VerifyError(f"both buffers must have elements {self.element}, but one is {buffer.type}")


class CommitCopies(Kernel.Operation, name="commit_copies"):
    """The copies that this thread has started since the last commit are a group."""


class WaitCopies(Kernel.Operation, name="wait_copies"):
    """Returns when all groups of this thread's copies but the last `later` have come. Others see them after a barrier."""

    later: Attr[int]


# --- Asynchronous copies and tensor cores -----------------------------------------------------------------------------


class _Mbarrier(Kernel.Operation):
    """Works on the barrier number `index` of an array of them in shared memory, memref<n x i64, 3>."""

    barriers: Operand[ir.MemRefType]
    index: Operand[ir.IndexType]

    def verify(self) -> None:
        _check_memory("barriers", self.barriers, SHARED)
        if str(ir.MemRefType(self.barriers.type).element_type) != "i64":
            raise VerifyError(f"barriers must have elements i64, but are {self.barriers.type}")


class MbarrierInit(_Mbarrier, name="mbarrier_init"):
    """A barrier whose phases end after `count` arrivals. Others see it after fence_mbarriers and a barrier of the block."""

    count: Attr[int]
    barriers: Operand[ir.MemRefType]
    index: Operand[ir.IndexType]


class FenceMbarriers(Kernel.Operation, name="fence_mbarriers"):
    """Makes initialised barriers visible to copies and to other threads."""


class MbarrierExpect(_Mbarrier, name="mbarrier_expect"):
    """Arrives, and lets the phase end no earlier than `bytes` more have been copied."""

    bytes: Attr[int]
    barriers: Operand[ir.MemRefType]
    index: Operand[ir.IndexType]


class MbarrierArrive(_Mbarrier, name="mbarrier_arrive"):
    """Arrives."""

    barriers: Operand[ir.MemRefType]
    index: Operand[ir.IndexType]


class MbarrierWait(_Mbarrier, name="mbarrier_wait"):
    """Returns when the phase of a parity, 0 for the first, has ended; at once if mbarrier_test has found that, and `ended`
    says so."""

    barriers: Operand[ir.MemRefType]
    index: Operand[ir.IndexType]
    parity: Operand[ir.IndexType]
    ended: Sequence[Operand[ir.IntegerType]] = ()


class MbarrierTest(_Mbarrier, name="mbarrier_test"):
    """Whether the phase of a parity has ended. Then what was copied or written before may be read; nobody waits."""

    barriers: Operand[ir.MemRefType]
    index: Operand[ir.IndexType]
    parity: Operand[ir.IndexType]
    result: Result[ir.IntegerType]


class TmaLoad(_Mbarrier, name="tma_load"):
    """Starts to copy the box at column x, row y of plane z to shared memory; its bytes count for a barrier. What is
    `constant` no kernel writes."""

    element: Attr[ir.Type]
    constant: Attr[bool] = None
    tensor_map: Operand[ir.MemRefType]
    x: Operand[ir.IndexType]
    y: Operand[ir.IndexType]
    z: Operand[ir.IndexType]
    buffer: Operand[ir.MemRefType]
    offset: Operand[ir.IndexType]
    barriers: Operand[ir.MemRefType]
    index: Operand[ir.IndexType]

    def verify(self) -> None:
        super().verify()
        _check_memory("tensor_map", self.tensor_map, TENSOR_MAP)
        _check_memory("buffer", self.buffer, SHARED)
        if ir.MemRefType(self.buffer.type).element_type != self.element:
            raise VerifyError(f"buffer must have elements {self.element}, but is {self.buffer.type}")


class Wgmma(Kernel.Operation, name="wgmma"):
    """Starts `acc + lhs rhs^T` by the four warps of a group: lhs 64 x depth, rhs `columns` x depth.

    In shared memory both lie in rows of 128 bytes, swizzled, as a tensor map with such a box puts them; what has longer
    rows lies in several such blocks, of `lhs_rows` and `rhs_rows` rows. With `transposed`, rhs lies as depth x columns. acc
    are, for every 8 columns, two neighbouring ones of row 16 w + lane floordiv 4 of warp w, and the same of 8 rows further;
    lhs may be given in registers, in the same order. An element of tf32 is an f32 of which the low 13 bits do not count: both
    operands then lie in shared memory, in rows along the depth. `counted` offsets follow from what assemblers do not know to be
    the same in all lanes.
    """

    element: Attr[ir.Type]
    columns: Attr[int]
    depth: Attr[int]
    lhs_rows: Attr[int]
    rhs_rows: Attr[int]
    transposed: Attr[bool] = None
    counted: Attr[bool] = None
    lhs: Sequence[Operand[ir.MemRefType]]
    lhs_offset: Sequence[Operand[ir.IndexType]]
    lhs_registers: Sequence[Operand[ir.VectorType]]
    rhs: Operand[ir.MemRefType]
    rhs_offset: Operand[ir.IndexType]
    acc: Sequence[Operand[ir.F32Type]]
    result_: Sequence[Result[ir.F32Type]]

    def verify(self) -> None:
        _check_multiplied(self.element)
        held = "f32" if str(self.element) == "tf32" else str(self.element)
        for what, operand in (("rhs", self.rhs), *(("lhs", v) for v in self.lhs)):
            _check_memory(what, operand, SHARED)
            if str(ir.MemRefType(operand.type).element_type) != held:
                raise VerifyError(f"{what} must have elements {held}, but is {operand.type}")
        if held == "f32" and (self.transposed or not self.lhs):
            raise VerifyError("operands of tf32 must lie in shared memory in rows along the depth")
        if not len(self.acc) == len(self.operation.results) == self.columns // 2:
            raise VerifyError(f"acc and results must be {self.columns // 2} values for {self.columns} columns, but are "
                              f"{len(self.acc)} and {len(self.operation.results)}")
        places, pairs = len(self.lhs), len(self.lhs_registers)
        if places != len(self.lhs_offset) or (places, pairs) not in ((1, 0), (0, self.depth // 4)):
            raise VerifyError(f"lhs must be one place in shared memory or {self.depth // 4} pairs, but is {len(self.lhs)} and "
                              f"{len(self.lhs_registers)}")


class WgmmaWait(Kernel.Operation, name="wgmma_wait"):
    """Returns when all products of this group of warps but the last `running` have been made; then acc may be used."""

    running: Attr[int]
    acc: Sequence[Operand[ir.F32Type]] = ()
    result_: Sequence[Result[ir.F32Type]] = ()


class SetRegisters(Kernel.Operation, name="set_registers"):
    """From here on the threads of this group of four warps have `count` registers, more than before or fewer."""

    count: Attr[int]
    more: Attr[bool]
