"""Tiles as values: fragments of the layout of their axes, and what is computed with them element by element.

Worked example: axes m (tile 8, vector 1) and n (tile 32, vector 16). A vector<8x32xf32> becomes sixteen vector<16xf32>
at coordinates (0..7, 0..1); a vector<8x1xf32> becomes eight scalars, each of them splat where it meets the former.
"""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import prod

from mlir import ir
from mlir.dialects import arith, scf, vector

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import linear
from tilec.dialects.schedule import Schedule
from tilec.pipelines.layouts import Coordinates, Fragments, Layout, all_of, element_of
from tilec.pipelines.passes import PassFailure


class FragmentValues(ABC):
    """What every lowering of tile functions knows of values, and what a target must say."""

    masks_by_element = False  # whether a mask that may differ inside a vector costs an access for each element

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        # What a thread's first element along each axis is a multiple of, 0 if it is 0.
        self.units = tuple(a.vector if a.threads > 1 else 0 if a.extent == linear(a.tile) else a.tile for a in schedule.axes)
        self.scalars: dict[ir.Value, ir.Value] = {}
        self.tiles: dict[ir.Value, Fragments] = {}
        self.memo: list[dict[object, ir.Value]] = [{}]
        self.depth = 0  # loops around the current op

    # What a target says -------------------------------------------------------------------------------------------

    @abstractmethod
    def load(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type) -> ir.Value:
        """Reads a scalar or a vector at element `offset` (value + constant) of a buffer."""

    @abstractmethod
    def load_masked(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type, mask: ir.Value,
                    otherwise: ir.Value) -> ir.Value:
        """As `load`, for a vector whose elements exist where `mask` is true."""

    def load_when(self, buffer: ir.Value, offset: tuple[ir.Value, int], kind: ir.Type, flag: ir.Value,
                  otherwise: ir.Value | None) -> ir.Value | None:
        """As `load`, without an access where a flag is false: zeros or `otherwise`. None where that is not better than reading
        another place."""
        return None

    @abstractmethod
    def store(self, value: ir.Value, buffer: ir.Value, offset: tuple[ir.Value, int]) -> None:
        """Writes a scalar or a vector."""

    @abstractmethod
    def store_masked(self, value: ir.Value, buffer: ir.Value, offset: tuple[ir.Value, int], mask: ir.Value) -> None:
        """Writes the elements of a vector whose mask is true."""

    @abstractmethod
    def program_id(self, axis: int) -> ir.Value:
        """This program's coordinate along a grid axis, an index."""

    @abstractmethod
    def symbol(self, name: str) -> ir.Value:
        """The value of a module symbol, an index."""

    @abstractmethod
    def thread(self, axis: int) -> ir.Value | None:
        """This thread's coordinate along an axis, None where there is one thread."""

    @abstractmethod
    def reduce_threads(self, values: dict[Coordinates, ir.Value], kind: tile.ReduceKind, axes: list[int], by_lanes: list[int],
                       dealt: Sequence[int]) -> dict[Coordinates, ir.Value]:
        """Combines values over the threads of a program along some axes; all of them get the result, or with `dealt` those
        that store it (see tile.Reduce). Only along those in `by_lanes` do the lanes of a warp have different values."""

    def reduce_lanes(self, values: dict[Coordinates, ir.Value], kind: tile.ReduceKind, axes: list[int]) -> dict[
            Coordinates, ir.Value]:
        """Combines values over the lanes of each warp along some axes; where there are no warps, nothing asks for it."""
        raise NotImplementedError

    @abstractmethod
    def reduce_online(self, ops: list[tile.ReduceOnline]) -> list[Fragments]:
        """Sums of parts with one common maximum (see the op), over the threads of a program."""

    @abstractmethod
    def alloc(self, kind: ir.Type) -> ir.Value:
        """Memory of the program."""

    @abstractmethod
    def barrier(self) -> None:
        """All threads of the program meet."""

    @abstractmethod
    def dot(self, op: tile.Dot, lhs: Fragments, rhs: Fragments, acc: Fragments) -> Fragments:
        """Multiplies and accumulates."""

    def stores(self, at: Coordinates, shape: Sequence[int]) -> ir.Value | None:
        """Whether this thread is the one to write a fragment that was dealt to it; None where `owns` says it all."""
        return None

    def needs(self, at: Coordinates, shape: Sequence[int]) -> ir.Value | None:
        """Whether this thread has a use for a fragment of what is read; None where it may have one for all."""
        return None

    def lower_shares(self, ops: list[ir.OpView]) -> bool:
        """Lowers what is left of a block for each share of the fragments by itself; False if nothing asks for that."""
        return False

    def share(self, registers: Coordinates) -> Callable[[Coordinates], bool] | None:
        """Which fragments of a tile belong to the share that is lowered; None for all."""
        return None

    def end_block(self) -> None:
        """What must stand at the end of a function and of an arm of a branch."""
        return

    def owns(self, shape: Sequence[int]) -> ir.Value | None:
        """Whether this thread is the one to write a tile that others hold as well; None where all do or it is alone."""
        return None

    # What has been made -------------------------------------------------------------------------------------------

    def _scope(self) -> _Scope:
        return _Scope(self.memo)

    @contextlib.contextmanager
    def _when(self, *conditions: ir.Value | None) -> Iterator[None]:
        """Inside, ops run only where all conditions hold; those that are None always do."""
        condition = all_of(*conditions)
        if condition is None:
            yield
            return
        branch = scf.IfOp(condition)
        with ir.InsertionPoint(branch.then_block), self._scope():
            yield
            scf.YieldOp([])

    def remember(self, key: object, make: Callable[[], ir.Value]) -> ir.Value:
        """The value made for `key` in this block or one around it."""
        for known in reversed(self.memo):
            if key in known:
                return known[key]
        self.memo[-1][key] = make()
        return self.memo[-1][key]

    # Tiles and fragments ------------------------------------------------------------------------------------------

    def layout(self, shape: Sequence[int]) -> Layout:
        """The layout of a tile shape. An axis of size 1 is held by every thread; one of the number of threads, singly, as is
        one of the number of warps by all lanes of each."""
        axes = self.schedule.axes
        for axis, size in zip(axes, shape, strict=True):
            if size not in (1, axis.tile, axis.threads, axis.warps):
                raise PassFailure(f"axis {axis.name} has tiles of {axis.tile}, but a tile of size {size} is used",
                                  ir.Location.current)
        whole = [n == a.tile for a, n in zip(axes, shape, strict=True)]
        registers = tuple(a.registers if w else 1 for a, w in zip(axes, whole, strict=True))
        return Layout(registers, tuple(a.vector if w else 1 for a, w in zip(axes, whole, strict=True)), self.share(registers))

    @staticmethod
    def fragment_type(layout: Layout, element: ir.Type) -> ir.Type:
        return ir.VectorType.get([layout.length], element) if layout.length > 1 else element

    def splat(self, value: ir.Value, length: int) -> ir.Value:
        """A scalar in every element of a vector; the scalar itself for length 1."""
        return vector.broadcast(ir.VectorType.get([length], value.type), value) if length > 1 else value

    def constant(self, value: float | int, kind: ir.Type) -> ir.Value:
        """A constant of a scalar or vector type."""
        element = element_of(kind)
        attribute = ir.FloatAttr.get(element, float(value)) if str(element) in primop.FLOATS else \
            ir.IntegerAttr.get(element, int(value))
        if isinstance(kind, ir.VectorType):
            return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute))
        return arith.constant(kind, attribute)

    def or_zero(self, flag: ir.Value, value: ir.Value) -> ir.Value:
        """A value if a flag is true, otherwise 0; pairs of 16-bit elements are chosen as the words that they are held in."""
        kind = value.type
        if isinstance(kind, ir.VectorType) and str(kind.element_type) in ("bf16", "f16") and kind.shape[0] % 2 == 0:
            words = ir.VectorType.get([kind.shape[0] // 2], ir.IntegerType.get_signless(32))
            return vector.bitcast(kind, self.or_zero(flag, vector.bitcast(words, value)))
        return arith.select(flag, value, self.constant(0, kind))

    def _lower_elementwise(self, op: ir.OpView) -> Fragments:
        result = op.results[0].type
        layout = self.layout(result.shape)
        kind = self.fragment_type(layout, result.element_type)
        if op.operation.name == "arith.constant":
            splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
            attribute = ir.DenseElementsAttr.get_splat(kind, splat) if layout.length > 1 else splat
            value = arith.constant(kind, attribute)
            return Fragments(layout, result.element_type, dict.fromkeys(layout.coordinates(), value))
        operands = [self.tiles[v] for v in op.operands]
        attributes = {a: op.operation.attributes[a] for a in op.operation.attributes}
        values = {c: ir.Operation.create(op.operation.name, results=[kind], operands=[t.values[c] for t in operands],
                                         attributes=attributes).results[0]
                  for c in layout.coordinates()}
        return Fragments(layout, result.element_type, values)

    def _lower_broadcast(self, op: ir.OpView) -> Fragments:
        source = self.tiles[op.operands[0]]
        return self.broadcast(source, self.layout(op.results[0].type.shape))

    def broadcast(self, source: Fragments, layout: Layout) -> Fragments:
        """Repeats a tile along the axes where it has size 1."""
        known: dict[Coordinates, ir.Value] = {}
        values = {}
        for c in layout.coordinates():
            at = tuple(0 if r == 1 else i for i, r in zip(c, source.layout.registers, strict=True))
            if at not in known:
                known[at] = self._widen(source.values[at], source.layout.box, layout.box)
            values[c] = known[at]
        return Fragments(layout, source.element, values)

    def _widen(self, value: ir.Value, old: Coordinates, new: Coordinates) -> ir.Value:
        """A fragment with box `old` repeated to box `new`."""
        if old == new:
            return value
        if prod(old) == 1:
            return self.splat(value, prod(new))
        order = []
        for position in itertools.product(*map(range, new)):
            flat = 0
            for p, n in zip(position, old, strict=True):
                flat = flat * n + (p if n > 1 else 0)
            order.append(flat)
        return vector.shuffle(value, value, order)

    def _lower_reverse(self, op: tile.Reverse) -> Fragments:
        source, axis = self.tiles[op.value], self.schedule.axes[op.axis]
        if axis.threads > 1:
            raise PassFailure(f"axis {axis.name} is reversed, but spread over {axis.threads} threads", op.operation.location)
        registers, box = source.layout.registers[op.axis], source.layout.box
        order = []
        for position in source.layout.inside():
            flat = 0
            for i, (p, n) in enumerate(zip(position, box, strict=True)):
                flat = flat * n + (n - 1 - p if i == op.axis else p)
            order.append(flat)
        values = {}
        for at in source.layout.coordinates():
            value = source.values[tuple(registers - 1 - x if i == op.axis else x for i, x in enumerate(at))]
            values[at] = vector.shuffle(value, value, order) if box[op.axis] > 1 else value
        return Fragments(source.layout, source.element, values)

    def _converted(self, value: ir.Value, element: ir.Type) -> ir.Value:
        source = element_of(value.type)
        if source == element:
            return value
        kind = ir.VectorType.get(list(value.type.shape), element) if isinstance(value.type, ir.VectorType) else element
        return self.remember(("extend", value, str(kind)), lambda: arith.extf(kind, value))

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c, fused for floats."""
        element = element_of(c.type)
        if str(element) in primop.FLOATS:
            return ir.Operation.create("math.fma", results=[c.type], operands=[a, b, c]).results[0]
        return arith.addi(arith.muli(a, b), c)


class _Scope:
    """One level of remembered values, for a block."""

    def __init__(self, memo: list[dict[object, ir.Value]]) -> None:
        self.memo = memo

    def __enter__(self) -> None:
        self.memo.append({})

    def __exit__(self, *exc: object) -> None:
        self.memo.pop()
