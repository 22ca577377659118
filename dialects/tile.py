"""One function is one kernel: a grid of programs over tiles. Loops are `scf.for`, arithmetic is arith and math on vectors.

Every tile value is a builtin vector with one dimension per axis of the function, of size 1 where it does not vary along
that axis. So a value's dimensions need no names, broadcasting is `vector.broadcast` of size-1 dimensions, and a layout
over threads or registers is a property of the axes alone (`tile.schedule` on the function, see `schedule.py`).

Memory is reached through the views of `primop`: an access names a global buffer, the origin of the tile along every
axis, which is a multiple of the tile's size there, the values of the module's symbols, and a map from (axes)[symbols] to
the buffer's indices. `mask` is a map of the same kind; an element exists where all its results are non-negative.
Masked-off memory is never touched.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

from mlir import ir

from tilec.dialects.core import Attr, Dialect, Operand, Pure, Result, VerifyError

Vector: TypeAlias = ir.VectorType


class ReduceKind(enum.Enum):
    """How elements combine."""

    ADD = "add"
    MAX = "max"


class Tile(Dialect, name="tile"):
    """Programs over tiles of global buffers."""


class ProgramId(Tile.Operation, name="program_id", traits=[Pure]):
    """This program's coordinate along grid axis `axis` (an index into the schedule's axes)."""

    axis: Attr[int]
    result: Result[ir.IndexType]


class SymbolOp(Tile.Operation, name="symbol", traits=[Pure]):
    """The value of a module symbol, read from memory when the kernel starts: one program serves every length."""

    symbol: Attr[str]
    result: Result[ir.IndexType]


class _Access(Tile.Operation):
    map: Attr[ir.AffineMap]
    mask: Attr[ir.AffineMap] = None

    def _check_access(self, buffer: ir.Value, vector: ir.Value, extra: int = 0) -> None:
        rank = ir.VectorType(vector.type).rank
        buffer_type = ir.MemRefType(buffer.type)
        if len(self.map.results) != buffer_type.rank:
            raise VerifyError(f"map must give {buffer_type.rank} indices (the rank of the buffer), "
                              f"but gives {len(self.map.results)}")
        if self.map.n_dims != rank + extra:
            what = "the rank of the tile and one for the index" if extra else "the rank of the tile"
            raise VerifyError(f"map must take {rank + extra} dimensions ({what}), but takes {self.map.n_dims}")
        if len(self.origin) != rank + self.map.n_symbols:
            raise VerifyError(f"needs {rank} tile origins and {self.map.n_symbols} symbols, but got {len(self.origin)}")
        element, tile_element = buffer_type.element_type, ir.VectorType(vector.type).element_type
        if element != tile_element:
            raise VerifyError(f"tile must have the buffer's element type {element}, but has {tile_element}")
        if self.mask is not None and (self.mask.n_dims, self.mask.n_symbols) != (rank, self.map.n_symbols):
            raise VerifyError(f"mask must take {rank} dimensions and {self.map.n_symbols} symbols, "
                              f"but takes {self.mask.n_dims} and {self.mask.n_symbols}")

    def _check_index(self, vector: ir.Value) -> None:
        shape, index = ir.VectorType(vector.type).shape, ir.VectorType(self.index.type)
        if index.rank != len(shape) or any(i not in (1, n) for i, n in zip(index.shape, shape, strict=True)):
            raise VerifyError(f"index must have the tile's shape {list(shape)} or 1 along an axis, but has {list(index.shape)}")
        if not isinstance(index.element_type, ir.IntegerType):
            raise VerifyError(f"index must hold integers, but is {index}")


class Load(_Access, name="load"):
    """A tile of `source`. Masked-off elements read as zero.

    `held` is a map as `mask` is, under which an element is there before the kernel begins; where there is one, it holds for
    the whole tile, which may then be read before earlier kernels have ended.
    """

    held: Attr[ir.AffineMap] = None
    source: Operand[ir.MemRefType]
    result: Result[Vector]
    origin: Sequence[Operand[ir.IndexType]] = ()

    def verify(self) -> None:
        self._check_access(self.source, self.result)
        if self.held is not None and (self.held.n_dims, self.held.n_symbols) != (self.result.type.rank, self.map.n_symbols):
            raise VerifyError(f"held must take {self.result.type.rank} dimensions and {self.map.n_symbols} symbols, "
                              f"but takes {self.held.n_dims} and {self.held.n_symbols}")


class LoadOver(_Access, name="load_over"):
    """A tile of `source` where the mask holds, and of `value` elsewhere."""

    value: Operand[Vector]
    source: Operand[ir.MemRefType]
    result: Result[Vector]
    origin: Sequence[Operand[ir.IndexType]] = ()

    def verify(self) -> None:
        self._check_access(self.source, self.result)
        if self.mask is None:
            raise VerifyError("needs a mask, as all of value would be replaced")
        if self.value.type != self.result.type:
            raise VerifyError(f"value and result must have one type, but have {self.value.type} and {self.result.type}")


class Gather(_Access, name="gather"):
    """A tile of `source` whose map takes one more dimension, last: the element of `index`."""

    source: Operand[ir.MemRefType]
    index: Operand[Vector]
    result: Result[Vector]
    origin: Sequence[Operand[ir.IndexType]] = ()

    def verify(self) -> None:
        self._check_access(self.source, self.result, 1)
        self._check_index(self.result)


class Store(_Access, name="store"):
    """Writes a tile to `dest`."""

    value: Operand[Vector]
    dest: Operand[ir.MemRefType]
    origin: Sequence[Operand[ir.IndexType]] = ()

    def verify(self) -> None:
        self._check_access(self.dest, self.value)


class Scatter(_Access, name="scatter"):
    """Writes a tile to `dest`, whose map takes one more dimension, last: the element of `index`.

    Elements whose index is outside [0, extent) are dropped.
    """

    extent: Attr[int]
    value: Operand[Vector]
    index: Operand[Vector]
    dest: Operand[ir.MemRefType]
    origin: Sequence[Operand[ir.IndexType]] = ()

    def verify(self) -> None:
        self._check_access(self.dest, self.value, 1)
        self._check_index(self.value)


class IndexTile(Tile.Operation, name="index", traits=[Pure]):
    """The value of an affine expression at every element of a tile: iota, positions, conditions."""

    map: Attr[ir.AffineMap]
    result: Result[Vector]
    origin: Sequence[Operand[ir.IndexType]] = ()

    def verify(self) -> None:
        if len(self.map.results) != 1:
            raise VerifyError(f"map must give one index, but gives {len(self.map.results)}")
        rank = ir.VectorType(self.result.type).rank
        if self.map.n_dims != rank:
            raise VerifyError(f"map must take {rank} dimensions (the rank of the tile), but takes {self.map.n_dims}")
        if len(self.origin) != rank + self.map.n_symbols:
            raise VerifyError(f"needs {rank} tile origins and {self.map.n_symbols} symbols, but got {len(self.origin)}")


def _check_reduction(axes: list[int], value: ir.Value, result: ir.Value) -> None:
    before, after = ir.VectorType(value.type), ir.VectorType(result.type)
    if not axes or sorted(set(axes)) != axes or axes[-1] >= before.rank or axes[0] < 0:
        raise VerifyError(f"axes must be a non-empty ascending list below {before.rank}, but is {axes}")
    expected = ir.VectorType.get([1 if i in axes else size for i, size in enumerate(before.shape)], before.element_type)
    divides = after.rank == before.rank and all(
        n == m or (i in axes and m and n % m == 0) for i, (n, m) in enumerate(zip(before.shape, after.shape, strict=True)))
    if after.element_type != before.element_type or not divides:
        raise VerifyError(f"result must be {expected}, but is {after}")


class Reduce(Tile.Operation, name="reduce", traits=[Pure]):
    """Combines a tile along `axes`, which keep size 1: within registers, then across the threads that share them.

    An axis may keep the number of the schedule's threads instead: what each thread holds is combined, and no more. All
    threads get the result. Where the blocks of a cluster share an axis it may be dealt out to them: an element's place along
    the axes `dealt` says which block gets and stores it.
    """

    kind: Attr[ReduceKind]
    axes: Attr[list[int]]
    dealt: Attr[list[int]] = None
    value: Operand[Vector]
    result: Result[Vector]

    def verify(self) -> None:
        _check_reduction(list(self.axes), self.value, self.result)


class ReduceOnline(Tile.Operation, name="reduce_online", traits=[Pure]):
    """Sums, along `axes`, parts that are each relative to a maximum of their own: value(j) exp2(scale (m(j) - max m)).

    Maxima below `floor` count as `floor`, so that a part of nothing, whose maximum is -inf, adds nothing. Both operands
    have one part for each thread along the axes; only the threads that store an element get its result.
    """

    scale: Attr[float]
    floor: Attr[float]
    axes: Attr[list[int]]
    maximum: Operand[Vector]
    value: Operand[Vector]
    result: Result[Vector]

    def verify(self) -> None:
        axes = list(self.axes)
        _check_reduction(axes, self.value, self.result)
        maximum, value = ir.VectorType(self.maximum.type), ir.VectorType(self.value.type)
        if maximum.rank != value.rank or any(
                n != m and (i in axes or n != 1) for i, (n, m) in enumerate(zip(maximum.shape, value.shape, strict=True))):
            raise VerifyError(f"maximum must have the shape of value, or 1 along axes that stay, but is {maximum}")


class Spread(Tile.Operation, name="spread", traits=[Pure]):
    """Repeats a tile that has one element for each thread along an axis to all elements that the thread holds."""

    value: Operand[Vector]
    result: Result[Vector]

    def verify(self) -> None:
        value, result = ir.VectorType(self.value.type), ir.VectorType(self.result.type)
        if (value.rank, value.element_type) != (result.rank, result.element_type):
            raise VerifyError(f"result must have the rank and the elements of {value}, but is {result}")
        for axis, (n, m) in enumerate(zip(value.shape, result.shape, strict=True)):
            if m % n:
                raise VerifyError(f"axis {axis}: {n} elements cannot be repeated to {m}")


class Reverse(Tile.Operation, name="reverse", traits=[Pure]):
    """A tile with its elements along `axis` in reverse order; one thread holds all of them."""

    axis: Attr[int]
    value: Operand[Vector]
    result: Result[Vector]

    def verify(self) -> None:
        if self.result.type != self.value.type:
            raise VerifyError(f"result must have the type of value, {self.value.type}, but has {self.result.type}")
        if not 0 <= self.axis < ir.VectorType(self.value.type).rank:
            raise VerifyError(f"axis must be below {ir.VectorType(self.value.type).rank}, but is {self.axis}")


class Dot(Tile.Operation, name="dot", traits=[Pure]):
    """`acc + sum(lhs * rhs)` along the axes where acc is smaller; lhs and rhs are broadcast against each other.

    Along a summed axis acc has size 1, or one partial sum for each of the schedule's threads or, where these multiply by
    `cores`, for each of its warps, to be combined by `reduce`.
    16-bit operands are multiplied exactly and accumulate in acc's f32. What instruction does it is the target's choice.
    """

    lhs: Operand[Vector]
    rhs: Operand[Vector]
    acc: Operand[Vector]
    result: Result[Vector]

    def verify(self) -> None:
        lhs, rhs, acc = (list(ir.VectorType(v.type).shape) for v in (self.lhs, self.rhs, self.acc))
        if not len(lhs) == len(rhs) == len(acc):
            raise VerifyError(f"lhs, rhs and acc must have one rank, but have {len(lhs)}, {len(rhs)} and {len(acc)}")
        for axis, (a, b, c) in enumerate(zip(lhs, rhs, acc, strict=True)):
            if a != b and 1 not in (a, b):
                raise VerifyError(f"axis {axis}: lhs and rhs must agree or be 1, but are {a} and {b}")
            if max(a, b) % c:
                raise VerifyError(f"axis {axis}: acc must divide {max(a, b)}, but is {c}")
        if self.result.type != self.acc.type:
            raise VerifyError(f"result must have the type of acc, {self.acc.type}, but has {self.result.type}")


class DotTwin(Tile.Operation, name="dot_twin", traits=[Pure]):
    """`acc + lhs rhs^T` by a warp's tensor core: lhs along rows and the depth, rhs along columns and the depth. Of f32 it may
    ignore the low 13 bits, where the schedule says `tf32`.

    rhs and acc lie differently over the lanes, so the columns have two axes: rhs runs along `twin`, acc along `column`, and
    element i of one is element i of the other. So may lhs and rhs along the depth: then rhs runs along `depth_twin`. Where
    warps share the depth, acc has one element along it for each of them.
    """

    column: Attr[int]
    twin: Attr[int]
    depth: Attr[int]
    depth_twin: Attr[int] = None
    lhs: Operand[Vector]
    rhs: Operand[Vector]
    acc: Operand[Vector]
    result: Result[Vector]

    def verify(self) -> None:
        lhs, rhs, acc = (list(ir.VectorType(v.type).shape) for v in (self.lhs, self.rhs, self.acc))
        along = self.depth if self.depth_twin is None else self.depth_twin
        if not len(lhs) == len(rhs) == len(acc):
            raise VerifyError(f"lhs, rhs and acc must have one rank, but have {len(lhs)}, {len(rhs)} and {len(acc)}")
        if rhs[self.twin] != acc[self.column] or rhs[self.column] != 1 or acc[self.twin] != 1:
            raise VerifyError(f"rhs must run along axis {self.twin} as acc along {self.column}, but are {rhs} and {acc}")
        if along != self.depth and (rhs[self.depth], lhs[along], acc[along]) != (1, 1, 1):
            raise VerifyError(f"only rhs may run along axis {along}, and not along {self.depth}, but are {lhs}, {rhs} and "
                              f"{acc}")
        if lhs[self.depth] != rhs[along] or lhs[self.depth] % acc[self.depth]:
            raise VerifyError(f"lhs and rhs must agree along axis {self.depth} and acc have equal parts of it, but are {lhs}, "
                              f"{rhs} and {acc}")
        if self.result.type != self.acc.type:
            raise VerifyError(f"result must have the type of acc, {self.acc.type}, but has {self.result.type}")


class Alloc(Tile.Operation, name="alloc"):
    """Memory of a program, memref<n x T, 3>, uninitialised: its threads write it, meet at a barrier, and read it."""

    result: Result[ir.MemRefType]

    def verify(self) -> None:
        _check_shared("result", self.result, 1)


class Barrier(Tile.Operation, name="barrier"):
    """All threads of the program arrive before any leaves; what they wrote to the program's memory is visible after."""


# --- Shared memory: tiles on their way to tensor cores ----------------------------------------------------------------

def _check_shared(what: str, value: ir.Value, rank: int) -> None:
    kind = ir.MemRefType(value.type)
    if kind.rank != rank or not isinstance(kind.memory_space, ir.IntegerAttr) or kind.memory_space.value != 3:
        raise VerifyError(f"{what} must have rank {rank} in address space 3, but is {kind}")


class Ring(Tile.Operation, name="ring"):
    """Shared memory for tiles on their way: memref<slots x rows x columns>. Slots are filled and emptied in turn."""

    result: Result[ir.MemRefType]

    def verify(self) -> None:
        _check_shared("result", self.result, 3)


class Fetch(_Access, name="fetch"):
    """Starts to copy a tile of `source` to the ring's slot `turn` mod slots, as soon as that has been released.

    The slot's rows run along the function's axes `rows`, last fastest, its columns along the axis `column`, along which
    the source is contiguous. Along a column axis that a cluster shares a block copies its own part. What lies outside the
    source reads as zero, and so do rows from `limit`, a map from the symbols, on, counted along the last of `rows`, and
    columns from `column_limit` on.
    """

    rows: Attr[list[int]]
    column: Attr[int]
    limit: Attr[ir.AffineMap] = None
    column_limit: Attr[ir.AffineMap] = None
    ring: Operand[ir.MemRefType]
    turn: Operand[ir.IndexType]
    source: Operand[ir.MemRefType]
    origin: Sequence[Operand[ir.IndexType]] = ()

    def verify(self) -> None:
        _check_shared("ring", self.ring, 3)
        if len(self.map.results) != ir.MemRefType(self.source.type).rank:
            raise VerifyError(f"map must give {ir.MemRefType(self.source.type).rank} indices (the rank of source), "
                              f"but gives {len(self.map.results)}")
        if len(self.origin) != self.map.n_dims + self.map.n_symbols:
            raise VerifyError(f"needs {self.map.n_dims} tile origins and {self.map.n_symbols} symbols, "
                              f"but got {len(self.origin)}")
        if ir.MemRefType(self.ring.type).element_type != ir.MemRefType(self.source.type).element_type:
            raise VerifyError(f"ring must have the elements of source, {self.source.type}, but is {self.ring.type}")


class Commit(Tile.Operation, name="commit"):
    """The fetches since the last commit are a group, where all threads fetch: groups come in order."""


class Await(Tile.Operation, name="await"):
    """The slot of a turn, memref<rows x columns>, when its tile has come: of fetches in groups, when all but the last `later`
    groups have."""

    later: Attr[int] = None
    ring: Operand[ir.MemRefType]
    turn: Operand[ir.IndexType]
    result: Result[ir.MemRefType]

    def verify(self) -> None:
        _check_shared("ring", self.ring, 3)
        _check_shared("result", self.result, 2)
        if ir.MemRefType(self.ring.type).shape[1:] != ir.MemRefType(self.result.type).shape:
            raise VerifyError(f"result must have the shape of a slot of {self.ring.type}, but is {self.result.type}")


class Release(Tile.Operation, name="release"):
    """The slot of a turn may be filled again, when all products but the last `running` have been made."""

    running: Attr[int]
    ring: Operand[ir.MemRefType]
    turn: Operand[ir.IndexType]

    def verify(self) -> None:
        _check_shared("ring", self.ring, 3)


class DotShared(Tile.Operation, name="dot_shared", traits=[Pure]):
    """`acc + lhs rhs^T` by tensor cores, or of f32 by multiply-adds of all threads: rhs (n, k) in shared memory, lhs (m, k)
    there or, for tensor cores, a tile of this program's threads. With `tf32` in the schedule tensor cores take f32, too, and
    may ignore the low 13 bits of every element.

    The rows of lhs and rhs run along the function's axes `lhs_rows` and `rhs_rows`, last fastest; acc is a tile over both.
    With `transposed`, rhs lies in memory as (k, n); with `lhs_transposed`, lhs as (k, m).
    """

    lhs_rows: Attr[list[int]]
    rhs_rows: Attr[list[int]]
    transposed: Attr[bool] = None
    lhs_transposed: Attr[bool] = None
    lhs: Operand[Any]
    rhs: Operand[ir.MemRefType]
    acc: Operand[Vector]
    result: Result[Vector]

    def verify(self) -> None:
        _check_shared("rhs", self.rhs, 2)
        shape = ir.VectorType(self.acc.type).shape
        n, k = list(ir.MemRefType(self.rhs.type).shape)[::-1 if self.transposed else 1]
        if isinstance(self.lhs.type, ir.VectorType):
            m, depth = None, prod(ir.VectorType(self.lhs.type).shape) // prod(shape[a] for a in self.lhs_rows)
        else:
            _check_shared("lhs", self.lhs, 2)
            m, depth = list(ir.MemRefType(self.lhs.type).shape)[::-1 if self.lhs_transposed else 1]
        for what, operand, rows, axes in (("lhs", self.lhs, m, self.lhs_rows), ("rhs", self.rhs, n, self.rhs_rows)):
            if rows not in (None, prod(shape[a] for a in axes)):
                raise VerifyError(f"{what} must have {prod(shape[a] for a in axes)} rows, those of acc along {list(axes)}, "
                                  f"but is {operand.type}")
        if depth != k:
            raise VerifyError(f"lhs and rhs must have the same depth, but are {self.lhs.type} and {self.rhs.type}")
        if self.result.type != self.acc.type:
            raise VerifyError(f"result must have the type of acc, {self.acc.type}, but has {self.result.type}")


class Made(Tile.Operation, name="made"):
    """A product's result, when all products but the last `running` have been made: until then nothing else may use it."""

    running: Attr[int]
    value: Operand[Vector]
    result: Result[Vector]

    def verify(self) -> None:
        if self.result.type != self.value.type:
            raise VerifyError(f"result must have the type of value, {self.value.type}, but has {self.result.type}")


class TakeTurn(Tile.Operation, name="take_turn"):
    """Groups of warps go on from here one after the other, in a circle: each when the one before comes to its `pass_turn`."""


class PassTurn(Tile.Operation, name="pass_turn"):
    """The next group of warps may go on."""


class Worker(Tile.Operation, name="worker", traits=[Pure]):
    """This block's number among those that walk over a kernel's programs."""

    result: Result[ir.IndexType]


class Producer(Tile.Operation, name="producer", traits=[Pure]):
    """Whether this thread is one of those that only fetch."""

    result: Result[ir.IntegerType]
