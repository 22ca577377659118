"""A tile is spread over registers (and threads) the same way on every target; this is that way, written once.

By the layout of its axes a tile becomes fragments: one short vector per register coordinate, holding a box of
neighbouring elements. Elementwise ops, broadcasts, reductions inside a thread, loop-carried values and address
arithmetic are then the same for a CPU core and for a GPU thread. A target's lowering derives from `FragmentLowering`
and says how memory is read and written, what a thread's position is, and what instruction a dot product is.

Worked example: axes m (tile 8, vector 1) and n (tile 32, vector 16). A vector<8x32xf32> becomes sixteen vector<16xf32>
at coordinates (0..7, 0..1); a vector<8x1xf32> becomes eight scalars, each of them splat where it meets the former.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import gcd, prod

from mlir import ir
from mlir.dialects import affine, arith, scf, vector

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import (
    Atom,
    Dim,
    Linear,
    Symbol,
    dim,
    linear,
    make_map,
    map_results,
    substitute,
)
from tilec.dialects.schedule import Axis, Schedule
from tilec.pipelines.layouts import Coordinates, Fragments, Layout, combiner, have_one_sign, shifted, step_of
from tilec.pipelines.passes import PassFailure
from tilec.pipelines.primop.structure import offset_of


class FragmentLowering(ABC):
    """Rewrites the body of one tile function into ops on fragments at the current insertion point."""

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

    # The walk -----------------------------------------------------------------------------------------------------

    def lower_block(self, block: ir.Block) -> None:
        """Lowers every op of a block but its terminator."""
        self.lower_ops(list(block.operations)[:-1])

    def lower_ops(self, ops: list[ir.OpView]) -> None:
        while ops and not self.lower_shares(ops):
            together = [ops[0]]
            while len(together) < len(ops) and _alike(ops[0], ops[len(together)]):
                together.append(ops[len(together)])
            with ops[0].operation.location:
                if isinstance(ops[0], tile.Reduce):
                    self._lower_reduces(together)
                elif isinstance(ops[0], tile.ReduceOnline):
                    self.tiles |= zip((op.result for op in together), self.reduce_online(together), strict=True)
                else:
                    self.lower(ops[0])
            ops = ops[len(together):]

    def lower(self, op: ir.OpView) -> None:
        name = op.operation.name
        if isinstance(op, tile.Load | tile.Gather):
            self.tiles[op.result] = self._lower_load(op)
        elif isinstance(op, tile.Store | tile.Scatter):
            self._lower_store(op)
        elif isinstance(op, tile.IndexTile):
            self.tiles[op.result] = self._lower_index(op)
        elif isinstance(op, tile.Dot):
            self.tiles[op.result] = self.dot(op, *(self.tiles[v] for v in op.operands))
        elif isinstance(op, tile.Reverse):
            self.tiles[op.result] = self._lower_reverse(op)
        elif isinstance(op, tile.Alloc):
            self.scalars[op.result] = self.alloc(op.result.type)
        elif isinstance(op, tile.Barrier):
            self.barrier()
        elif isinstance(op, tile.ProgramId):
            self.scalars[op.result] = self.program_id(op.axis)
        elif isinstance(op, tile.SymbolOp):
            self.scalars[op.result] = self.symbol(op.symbol)
        elif isinstance(op, scf.ForOp):
            self._lower_for(op)
        elif isinstance(op, scf.IfOp):
            self._lower_if(op)
        elif name in ("vector.broadcast", "tile.spread"):
            self.tiles[op.results[0]] = self._lower_broadcast(op)
        elif len(op.results) == 1 and isinstance(op.results[0].type, ir.VectorType):
            self.tiles[op.results[0]] = self._lower_elementwise(op)
        else:
            clone = op.operation.clone()
            for i, operand in enumerate(op.operands):
                clone.operands[i] = self.scalars[operand]
            self.scalars.update(zip(op.results, clone.results, strict=True))

    def _lower_for(self, op: scf.ForOp) -> scf.ForOp:
        carried = list(op.operands)[3:]
        start = [v for c in carried for v in self._flatten(c)]
        bounds = [self.scalars[v] for v in list(op.operands)[:3]]
        loop = scf.ForOp(*bounds, start)
        body = op.regions[0].blocks[0]
        self.scalars[body.arguments[0]] = loop.induction_variable
        with ir.InsertionPoint(loop.body), self._scope():
            self._unflatten(list(body.arguments)[1:], list(loop.inner_iter_args), carried)
            self.depth += 1
            self.lower_block(body)
            self.depth -= 1
            yielded = list(body.operations)[-1].operands
            scf.YieldOp([v for y in yielded for v in self._flatten(y)])
        self._unflatten(list(op.results), list(loop.results), carried)
        return loop

    def _lower_if(self, op: scf.IfOp) -> None:
        if len(op.results):
            raise PassFailure("a branch of a tile function cannot have results", op.operation.location)
        blocks = [r.blocks[0] for r in op.regions if len(r.blocks)]
        branch = scf.IfOp(self.scalars[op.operands[0]], has_else=len(blocks) > 1)
        for source, into in zip(blocks, [branch.then_block, branch.else_block] if len(blocks) > 1 else [branch.then_block],
                                strict=True):
            with ir.InsertionPoint(into), self._scope():
                self.lower_block(source)
                self.end_block()
                scf.YieldOp([])

    def _flatten(self, value: ir.Value) -> list[ir.Value]:
        return list(self.tiles[value].values.values()) if value in self.tiles else [self.scalars[value]]

    def _unflatten(self, old: list[ir.Value], new: list[ir.Value], like: list[ir.Value]) -> None:
        remaining = iter(new)
        for value, model in zip(old, like, strict=True):
            if model in self.tiles:
                known = self.tiles[model]
                self.tiles[value] = Fragments(known.layout, known.element, {c: next(remaining) for c in known.values})
            else:
                self.scalars[value] = next(remaining)

    def _scope(self) -> _Scope:
        return _Scope(self.memo)

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
        element = ir.VectorType(kind).element_type if isinstance(kind, ir.VectorType) else kind
        attribute = ir.FloatAttr.get(element, float(value)) if str(element) in primop.FLOATS else \
            ir.IntegerAttr.get(element, int(value))
        if isinstance(kind, ir.VectorType):
            return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute))
        return arith.constant(kind, attribute)

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

    def _lower_reduces(self, ops: list[tile.Reduce]) -> None:
        """Reductions of one kind along the same axes, one after the other: what they exchange between threads is shared."""
        first, axes = ops[0], list(ops[0].axes)
        values: dict[Coordinates, ir.Value] = {}  # the number of the op follows the register coordinates
        for n, op in enumerate(ops):
            source = self.tiles[op.value]
            combine = combiner(op.kind, source.element)
            partial: dict[Coordinates, ir.Value] = {}
            for c, value in source.values.items():
                at = (*(0 if i in axes else x for i, x in enumerate(c)), n)
                partial[at] = combine(partial[at], value) if at in partial else value
            values |= {c: self._reduce_inside(v, source.layout.box, axes, op.kind, combine) for c, v in partial.items()}
        before, after = list(first.value.type.shape), list(first.result.type.shape)
        schedule = self.schedule.axes
        threads = [a for a in axes if before[a] > 1 and schedule[a].threads > after[a] == 1]
        if threads:
            by_lanes = [a for a in threads if schedule[a].warps == 1 or before[a] != schedule[a].warps]
            values = self.reduce_threads(values, first.kind, threads, by_lanes, list(first.dealt or ()))
        for n, op in enumerate(ops):
            own = {at[:-1]: v for at, v in values.items() if at[-1] == n}
            self.tiles[op.result] = Fragments(self.layout(op.result.type.shape), op.result.type.element_type, own)

    def _reduce_inside(self, value: ir.Value, box: Coordinates, axes: list[int], kind: tile.ReduceKind,
                       combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        wide = [a for a in axes if box[a] > 1]
        if not wide:
            return value
        length = prod(box)
        if prod(box[a] for a in wide) == length:  # halves, then quarters: the same order on every target
            while length > 1:
                half = length // 2
                if length % 2:
                    return self._fold(value, length, combine)
                low, high = (vector.shuffle(value, value, list(range(s, s + half))) for s in (0, half))
                value, length = combine(low, high), half
            return vector.extract(value, [], [0])
        groups: dict[Coordinates, list[int]] = {}
        for flat, position in enumerate(itertools.product(*map(range, box))):
            groups.setdefault(tuple(0 if i in wide else p for i, p in enumerate(position)), []).append(flat)
        result: ir.Value | None = None
        for lane in range(len(next(iter(groups.values())))):
            part = vector.shuffle(value, value, [members[lane] for members in groups.values()])
            result = part if result is None else combine(result, part)
        assert result is not None
        return result

    def _fold(self, value: ir.Value, length: int, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        result = vector.extract(value, [], [0])
        for i in range(1, length):
            result = combine(result, vector.extract(value, [], [i]))
        return result

    # Memory -------------------------------------------------------------------------------------------------------

    def _elements(self, expr: Linear, layout: Layout, at: Coordinates) -> list[Linear]:
        """An index expression at every element of a fragment, in terms of the thread's first element along every axis."""
        base = tuple(i * axis.neighbours * axis.vector for i, axis in zip(at, self.schedule.axes, strict=True))
        steps = [tuple(b + i for b, i in zip(base, inside, strict=True)) for inside in layout.inside()]
        return [shifted(expr, step, self.units) for step in steps]

    def _origin(self, op: ir.OpView, shape: Sequence[int]) -> tuple[list[ir.Value], list[ir.Value]]:
        """The first element of this thread along every axis, and the symbols, as values."""
        rank = len(self.schedule.axes)
        values = [self.scalars[v] for v in op.origin]
        origins = values[:rank]
        for i, axis in enumerate(self.schedule.axes):
            thread = self.thread(i) if axis.threads > 1 and shape[i] > 1 else None
            if thread is not None:
                origin = origins[i]
                origins[i] = self.remember(("origin", i, origin), functools.partial(self._moved, origin, thread, axis))
        return origins, values[rank:]

    def _moved(self, origin: ir.Value, thread: ir.Value, axis: Axis) -> ir.Value:
        """Where the elements of a thread begin: those of a warp are one run."""
        if axis.warps > 1 and axis.registers > 1:
            neighbours = self.constant(axis.neighbours, ir.IndexType.get())
            warp = self._scaled(arith.divui(thread, neighbours), axis.registers * axis.neighbours)
            thread = arith.addi(warp, arith.remui(thread, neighbours))
        return arith.addi(origin, self._scaled(thread, axis.vector))

    def _not_negative(self, value: ir.Value) -> ir.Value:
        return arith.cmpi(arith.CmpIPredicate.sge, value, self.constant(0, ir.IndexType.get()))

    def _scaled(self, value: ir.Value, factor: int) -> ir.Value:
        return arith.muli(value, self.constant(factor, ir.IndexType.get())) if factor != 1 else value

    def apply(self, expr: Linear, origins: list[ir.Value], symbols: list[ir.Value]) -> ir.Value:
        """An index expression as a value."""
        used_dims = sorted({a.position for a in expr.atoms() if isinstance(a, Dim)})
        used_symbols = sorted({a.position for a in expr.atoms() if isinstance(a, Symbol)})
        operands = [origins[i] for i in used_dims] + [symbols[i] for i in used_symbols]
        renamed: dict[Atom, Linear] = {Dim(old): dim(new) for new, old in enumerate(used_dims)}
        renamed |= {Symbol(old): Linear(0, ((Symbol(new), 1),)) for new, old in enumerate(used_symbols)}
        compact = substitute(expr, renamed)

        def make() -> ir.Value:
            if compact.is_constant:
                return self.constant(compact.constant, ir.IndexType.get())
            if compact == dim(0):
                return operands[0]
            return affine.apply(make_map(len(used_dims), len(used_symbols), [compact]), operands)

        return self.remember(("apply", compact, *operands), make)

    def _offset(self, expr: Linear, origins: list[ir.Value], symbols: list[ir.Value]) -> tuple[ir.Value, int]:
        return self.apply(expr - expr.constant, origins, symbols), expr.constant

    def _condition(self, op: ir.OpView, at: Coordinates, layout: Layout, origins: list[ir.Value], symbols: list[ir.Value],
                   whole: bool) -> tuple[ir.Value | None, ir.Value | None]:
        """The mask of a fragment: (one flag for all of it, one flag per element), either None. With `whole` a mask that cannot
        differ inside the fragment is one flag, even if it is another expression for each element."""
        if op.mask is None:
            return None, None
        uniform: ir.Value | None = None
        varying: ir.Value | None = None
        for condition in map_results(op.mask):
            elements = self._elements(condition, layout, at)
            if all(e.is_constant and e.constant >= 0 for e in elements):
                continue
            if all(e == elements[0] for e in elements) or (whole and have_one_sign(elements, self.units)):
                value = self.apply(elements[0], origins, symbols)
                flag = self.remember(("flag", value), functools.partial(self._not_negative, value))
                uniform = flag if uniform is None else arith.andi(uniform, flag)
            else:
                values = self._vector_of(elements, origins, symbols)
                flag = arith.cmpi(arith.CmpIPredicate.sge, values, self.constant(0, values.type))
                varying = flag if varying is None else arith.andi(varying, flag)
        return uniform, varying

    def _vector_of(self, elements: list[Linear], origins: list[ir.Value], symbols: list[ir.Value]) -> ir.Value:
        """Index expressions that differ by constants or more, as a vector of i32 (a scalar for one)."""
        narrow = ir.IntegerType.get_signless(32)
        base = self.apply(elements[0] - elements[0].constant, origins, symbols)
        base = self.remember(("i32", base), lambda: arith.index_cast(narrow, base))
        steps = [e - elements[0] for e in elements]
        if all(s.is_constant for s in steps):
            constants = [elements[0].constant + s.constant for s in steps]
            if len(elements) == 1:
                return arith.addi(base, self.constant(constants[0], narrow)) if constants[0] else base
            kind = ir.VectorType.get([len(elements)], narrow)
            ramp = arith.constant(kind, ir.DenseElementsAttr.get(
                [ir.IntegerAttr.get(narrow, c) for c in constants], kind))
            return arith.addi(self.splat(base, len(elements)), ramp)
        parts = [arith.index_cast(narrow, self.apply(e, origins, symbols)) for e in elements]
        return vector.from_elements(ir.VectorType.get([len(parts)], narrow), parts)

    def _lower_index(self, op: tile.IndexTile) -> Fragments:
        shape = op.result.type.shape
        layout, expr = self.layout(shape), map_results(op.map)[0]
        origins, symbols = self._origin(op, shape)
        values = {at: self._vector_of(self._elements(expr, layout, at), origins, symbols)
                  for at in layout.coordinates()}
        return Fragments(layout, op.result.type.element_type, values)

    def _access(self, op: ir.OpView, buffer: ir.Value, shape: Sequence[int]) -> Iterator[
            tuple[Coordinates, list[Linear], list[ir.Value], list[ir.Value], ir.Value | None, ir.Value | None]]:
        """For every fragment: the element offsets, the values they are made of, and the two masks."""
        layout = self.layout(shape)
        sizes = list(ir.MemRefType(buffer.type).shape)
        offset = offset_of(map_results(op.map), sizes)
        origins, symbols = self._origin(op, shape)
        for at in layout.coordinates():
            elements = self._elements(offset, layout, at)
            aligned = gcd(step_of(elements[0], self.units), elements[0].constant) % layout.length == 0
            whole = self.masks_by_element and aligned and layout.length > 2  # pairs of a tile's edge would all be read early
            yield (at, elements, origins, symbols, *self._condition(op, at, layout, origins, symbols, whole))

    def _rows(self, op: ir.OpView, at: Coordinates, layout: Layout) -> ir.Value:
        """The gathered indices of a fragment: a scalar where its elements share one, otherwise a vector with one for each."""
        index = self.tiles[op.index]
        here = tuple(0 if r == 1 else i for i, r in zip(at, index.layout.registers, strict=True))
        value = index.values[here]
        return value if index.layout.length == 1 else self._widen(value, index.layout.box, layout.box)

    def _with_rows(self, origins: list[ir.Value], rows: ir.Value, count: int) -> list[list[ir.Value]]:
        """The values that each element's offset is made of, with its gathered index as the last."""
        index = ir.IndexType.get()
        if not isinstance(rows.type, ir.VectorType):
            return [[*origins, arith.index_cast(index, rows)]] * count
        return [[*origins, arith.index_cast(index, vector.extract(rows, [], [i]))] for i in range(count)]

    def _is_run(self, elements: list[Linear], places: list[list[ir.Value]]) -> bool:
        """Whether the elements of a fragment are neighbours in memory, in order."""
        return all(e - elements[0] == linear(i) and p is places[0]
                   for i, (e, p) in enumerate(zip(elements, places, strict=True)))

    def _lower_load(self, op: tile.Load | tile.Gather) -> Fragments:
        shape, element = list(op.result.type.shape), op.result.type.element_type
        layout, buffer = self.layout(shape), self.scalars[op.source]
        kind = self.fragment_type(layout, element)
        values: dict[Coordinates, ir.Value] = {}
        for at, elements, origins, symbols, uniform, varying in self._access(op, op.source, shape):
            places = [origins] * len(elements)
            needed = self.needs(at, shape)
            if needed is not None:
                uniform = needed if uniform is None else arith.andi(uniform, needed)
            if isinstance(op, tile.Gather):
                places = self._with_rows(origins, self._rows(op, at, layout), len(elements))
            pad = self.constant(0, kind) if uniform is not None or varying is not None else None
            if self._is_run(elements, places):
                base, constant = self._offset(elements[0], places[0], symbols)
                if uniform is not None:  # a missing row is read from the buffer's start and thrown away
                    inside = self._inside(op, at, layout, constant)
                    base, constant = self._safe(uniform, base, constant - inside), inside
                if varying is not None:
                    assert pad is not None
                    value = self.load_masked(buffer, (base, constant), kind, varying, pad)
                else:
                    value = self.load(buffer, (base, constant), kind)
            else:
                parts = []
                for i, e in enumerate(elements):
                    base, constant = self._offset(e, places[i], symbols)
                    flag = uniform
                    if varying is not None:
                        own = vector.extract(varying, [], [i])
                        flag = own if flag is None else arith.andi(flag, own)
                    if flag is not None:
                        base, constant = self._safe(flag, base, constant), 0
                    parts.append(self.load(buffer, (base, constant), element))
                value = vector.from_elements(kind, parts)
                if varying is not None:
                    value = arith.select(varying, value, pad)
            if uniform is not None:
                value = arith.select(uniform, value, pad)
            values[at] = value
        return Fragments(layout, element, values)

    def _inside(self, op: tile.Load | tile.Gather, at: Coordinates, layout: Layout, constant: int) -> int:
        """The part of a fragment's constant offset that is safe whatever its mask says, because the mask does not vary along
        the axes that it comes from and the buffer is large enough: fragments that differ by it then share an address."""
        if not self.masks_by_element or isinstance(op, tile.Gather) or op.mask is None:
            return 0
        masked = {a.position for e in map_results(op.mask) for a in e.atoms() if isinstance(a, Dim)}
        sizes = list(ir.MemRefType(op.source.type).shape)
        first = tuple(x if i in masked else 0 for i, x in enumerate(at))
        inside = constant - self._elements(offset_of(map_results(op.map), sizes), layout, first)[0].constant
        return inside if 0 <= inside <= prod(sizes) - layout.length and inside % layout.length == 0 else 0

    def _safe(self, flag: ir.Value, base: ir.Value, constant: int) -> ir.Value:
        if constant:
            base = arith.addi(base, self.constant(constant, ir.IndexType.get()))
        return arith.select(flag, base, self.constant(0, ir.IndexType.get()))

    def _lower_store(self, op: tile.Store | tile.Scatter) -> None:
        shape = list(op.value.type.shape)
        owner = self.owns(shape)
        if owner is not None:
            branch = scf.IfOp(owner)
            with ir.InsertionPoint(branch.then_block), self._scope():
                self._store_fragments(op, shape)
                scf.YieldOp([])
        else:
            self._store_fragments(op, shape)

    def _store_fragments(self, op: tile.Store | tile.Scatter, shape: list[int]) -> None:
        source, buffer = self.tiles[op.value], self.scalars[op.dest]
        for at, elements, origins, symbols, uniform, varying in self._access(op, op.dest, shape):
            places = [origins] * len(elements)
            stores = self.stores(at, shape)
            if stores is not None:
                uniform = stores if uniform is None else arith.andi(uniform, stores)
            if isinstance(op, tile.Scatter):
                rows = self._rows(op, at, source.layout)
                places = self._with_rows(origins, rows, len(elements))
                inside = arith.cmpi(arith.CmpIPredicate.ult, rows, self.constant(op.extent, rows.type))
                if isinstance(rows.type, ir.VectorType):
                    varying = inside if varying is None else arith.andi(varying, inside)
                else:
                    uniform = inside if uniform is None else arith.andi(uniform, inside)
            if uniform is not None:
                branch = scf.IfOp(uniform)
                with ir.InsertionPoint(branch.then_block), self._scope():
                    self._store_fragment(source.values[at], buffer, elements, places, symbols, varying)
                    scf.YieldOp([])
            else:
                self._store_fragment(source.values[at], buffer, elements, places, symbols, varying)

    def _store_fragment(self, value: ir.Value, buffer: ir.Value, elements: list[Linear], places: list[list[ir.Value]],
                        symbols: list[ir.Value], varying: ir.Value | None) -> None:
        if self._is_run(elements, places):
            where = self._offset(elements[0], places[0], symbols)
            if varying is None:
                self.store(value, buffer, where)
            else:
                self.store_masked(value, buffer, where, varying)
            return
        for i, e in enumerate(elements):
            part = vector.extract(value, [], [i])
            where = self._offset(e, places[i], symbols)
            if varying is None:
                self.store(part, buffer, where)
                continue
            branch = scf.IfOp(vector.extract(varying, [], [i]))
            with ir.InsertionPoint(branch.then_block), self._scope():
                self.store(part, buffer, where)
                scf.YieldOp([])

    # Products -----------------------------------------------------------------------------------------------------

    def dot_by_multiply_add(self, lhs: Fragments, rhs: Fragments, acc: Fragments) -> Fragments:
        """A dot product as multiply-adds on fragments, whatever the layouts."""
        registers = tuple(max(a, b) for a, b in zip(lhs.layout.registers, rhs.layout.registers, strict=True))
        box = tuple(max(a, b) for a, b in zip(lhs.layout.box, rhs.layout.box, strict=True))
        reduced = [i for i, (a, b) in enumerate(zip(box, acc.layout.box, strict=True)) if a != b]
        values = dict(acc.values)
        for at in Layout(registers, box).coordinates():
            into = tuple(0 if r == 1 else i for i, r in zip(at, acc.layout.registers, strict=True))
            sides = []
            for side in (lhs, rhs):
                here = tuple(0 if r == 1 else i for i, r in zip(at, side.layout.registers, strict=True))
                sides.append(self._converted(self._widened(side, here, box), acc.element))
            for a, b in self._lanes(sides, box, reduced):
                values[into] = self.multiply_add(a, b, values[into])
        return Fragments(acc.layout, acc.element, values)

    def _widened(self, side: Fragments, at: Coordinates, box: Coordinates) -> ir.Value:
        value = side.values[at]
        return self.remember(("widen", value, side.layout.box, box), lambda: self._widen(value, side.layout.box, box))

    def _lanes(self, sides: list[ir.Value], box: Coordinates, reduced: list[int]) -> Iterator[tuple[ir.Value, ir.Value]]:
        """The fragments' elements grouped by position along the reduced axes."""
        if not reduced:
            yield sides[0], sides[1]
            return
        groups: dict[Coordinates, list[int]] = {}
        for flat, position in enumerate(itertools.product(*map(range, box))):
            groups.setdefault(tuple(position[a] for a in reduced), []).append(flat)
        for members in groups.values():
            if len(members) == 1:
                yield vector.extract(sides[0], [], members), vector.extract(sides[1], [], members)
            else:
                yield vector.shuffle(sides[0], sides[0], members), vector.shuffle(sides[1], sides[1], members)

    def _converted(self, value: ir.Value, element: ir.Type) -> ir.Value:
        source = value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
        if source == element:
            return value
        kind = ir.VectorType.get(list(value.type.shape), element) if isinstance(value.type, ir.VectorType) else element
        return self.remember(("extend", value, str(kind)), lambda: arith.extf(kind, value))

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c, fused for floats."""
        element = c.type.element_type if isinstance(c.type, ir.VectorType) else c.type
        if str(element) in primop.FLOATS:
            return ir.Operation.create("math.fma", results=[c.type], operands=[a, b, c]).results[0]
        return arith.addi(arith.muli(a, b), c)


def _alike(first: ir.OpView, other: ir.OpView) -> bool:
    """Whether two reductions can share their exchanges: same axes and sizes along them, and the same kind or maximum."""
    if isinstance(first, tile.ReduceOnline) and isinstance(other, tile.ReduceOnline):
        return (first.maximum, list(first.axes), first.scale) == (other.maximum, list(other.axes), other.scale)
    if not isinstance(first, tile.Reduce) or not isinstance(other, tile.Reduce) or other.value == first.result:
        return False
    axes = list(first.axes)
    shapes = [[list(v.type.shape)[a] for a in axes] for op in (first, other) for v in (op.value, op.result)]
    kinds = [(op.kind, list(op.axes), list(op.dealt or ()), op.value.type.element_type) for op in (first, other)]
    return kinds[0] == kinds[1] and shapes[:2] == shapes[2:]


class _Scope:
    """One level of remembered values, for a block."""

    def __init__(self, memo: list[dict[object, ir.Value]]) -> None:
        self.memo = memo

    def __enter__(self) -> None:
        self.memo.append({})

    def __exit__(self, *exc: object) -> None:
        self.memo.pop()
