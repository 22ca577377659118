"""primop to tile: each fused kernel becomes a program over tiles, its views become the maps of loads and stores.

A kernel's expression is evaluated at a point of its axes (`Structure`), the views composing on the way down, until a
buffer is read. Around that: program ids give the tile's origin along grid axes, each stage of reductions is a loop nest
with accumulators, and the root is stored at the end. Where a tile may reach past an extent, the code exists twice, for
whole tiles without masks and for ragged ones with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import affine, arith, func, math, scf, vector

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import (
    Atom,
    Dim,
    FloorDiv,
    Linear,
    Mod,
    Symbol,
    ceildiv,
    dim,
    floordiv,
    linear,
    make_map,
    range_of,
    substitute,
)
from tilec.dialects.schedule import Schedule
from tilec.pipelines.cost_model import choose_schedule
from tilec.pipelines.elementwise import convert, elementwise
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.fuse import REDUCTIONS, is_contraction
from tilec.pipelines.primop.online_reductions import Chain, below_cast, match_power
from tilec.pipelines.primop.outline import extents_of, functions, kind_of
from tilec.pipelines.primop.structure import (
    Index,
    Reduction,
    Staged,
    Structure,
    analyse,
    capacity,
    defining_op,
    is_row,
    operand_bound,
    operand_index,
)
from tilec.pipelines.targets import find_target

INDEX_DTYPE = "i32"


@dataclass(frozen=True)
class PrimopToTile(Pass):
    """Lower every kernel function from primops to a program over tiles, scheduled for `target`."""

    name = "convert-primop-to-tile"
    anchor = "builtin.module"
    target: str = "cpu"

    def run(self, op: ir.OpView) -> None:
        target = find_target(self.target)
        symbols = primop.symbol_ranges(op.operation)
        kernels = functions(op, "primop.kernel")
        if not kernels:
            return
        with ir.InsertionPoint(op.regions[0].blocks[0]), op.operation.location:
            nested = ir.Module.create().operation.clone()
            nested.attributes["sym_name"] = ir.StringAttr.get("kernels")
        for function in kernels:
            with function.operation.location:
                structure = analyse(function, symbols)
                _Emitter(structure, choose_schedule(structure, target)).emit(nested.regions[0].blocks[0])
                _declare(function)


def _declare(function: ir.OpView) -> None:
    """Leaves only the signature of a kernel on tensors, for the calls; its body is now the tile function's."""
    name = ir.StringAttr(function.attributes["sym_name"]).value
    with ir.InsertionPoint(function):
        declared = func.FuncOp(name, ir.TypeAttr(function.attributes["function_type"]).value, visibility="private")
    for attribute in ("arg_attrs", "res_attrs"):
        declared.attributes[attribute] = function.attributes[attribute]
    function.operation.erase()


def _is_one_turn(start: Linear | int | ir.Value, stop: Linear | int | ir.Value, step: int) -> bool:
    """Whether a loop runs once, for all lengths."""
    if isinstance(start, ir.Value) or isinstance(stop, ir.Value):
        return False
    last = linear(stop)
    return linear(start) == linear(0) and last.is_constant and 0 < last.constant <= step


def _exp2(value: ir.Value) -> ir.Value:
    """For factors of sums whose largest is 1: what is below 2^-126 may be zero."""
    return math.exp2(value, fastmath=arith.FastMathFlags.afn)


def _number(constant: ir.Value) -> float:
    return ir.FloatAttr(defining_op(constant).attributes["value"]).value


class _Emitter:
    """Writes one tile function."""

    def __init__(self, structure: Structure, schedule: Schedule) -> None:
        self.structure, self.schedule = structure, schedule
        if schedule.twin >= 0:
            structure.extents.append(structure.extents[schedule.twin])
        self.symbols = list(structure.symbols)
        self.rank = len(structure.extents)
        self.ranges = structure.ranges
        self.tiles = [a.tile for a in schedule.axes]
        self.origin: list[ir.Value] = []
        self.guards: tuple[Linear, ...] = ()  # conditions, non-negative, under which an element of the tile exists
        self.buffers: dict[ir.Value, ir.Value] = {}
        self.rows: dict[ir.Value, ir.Value] = {}  # what the program has made for itself
        self.reduced: dict[ir.OpView, ir.Value] = {}
        self.memo: dict[tuple, ir.Value] = {}
        self.never: frozenset[Linear] = frozenset()  # conditions that hold nowhere in the present loop

    # The frame ----------------------------------------------------------------------------------------------------

    def emit(self, into: ir.Block) -> None:
        kernel = self.structure.function
        block = kernel.regions[0].blocks[0]
        result = list(block.operations)[-1].operands[0]
        in_place = isinstance(self.structure.root, primop.Scatter)
        tensors = [*block.arguments, *([] if in_place else [result])]
        types = [self._memref(t) for t in tensors]
        name = ir.StringAttr(kernel.attributes["sym_name"]).value
        with ir.InsertionPoint(into):
            function = func.FuncOp(name, (types, []))
        function.attributes["tile.kernel"] = ir.UnitAttr.get()
        function.attributes["tile.schedule"] = self.schedule.to_attribute(len(self.symbols))
        written = self.structure.root.dest if in_place else result
        roles = ["write" if t == written else "weight" if t != result and kind_of(t) == "weight" else "read" for t in tensors]
        function.attributes["tile.arguments"] = ir.ArrayAttr.get([ir.StringAttr.get(r) for r in roles])
        entry = function.add_entry_block()
        self.buffers = dict(zip(tensors, entry.arguments, strict=True))
        with ir.InsertionPoint(entry):
            self._program()
            func.ReturnOp([])

    def _memref(self, value: ir.Value) -> ir.Type:
        return ir.MemRefType.get(capacity(extents_of(value), self.structure.symbols), primop.element_type(value))

    def _program(self) -> None:
        zero = arith.constant(ir.IndexType.get(), 0)
        self.origin = [zero] * self.rank
        self.symbol_values = [tile.SymbolOp(symbol=s, result=ir.IndexType.get()).result for s in self.symbols]
        ragged = []
        for a in self.structure.grid:
            extent, size = self.structure.extents[a], self.tiles[a]
            if extent == linear(1):
                ragged += [a] if size > 1 else []
                continue
            program = tile.ProgramId(axis=a, result=ir.IndexType.get()).result
            if a in self.schedule.reversed:
                last = arith.subi(self._value(self.structure.extents[a] + (size - 1)), self._index(size))
                program = arith.subi(arith.divui(last, self._index(size)), program)
            self.origin[a] = program if size == 1 else arith.muli(program, self._index(size))
            if not extent.is_constant or extent.constant % size:
                ragged.append(a)
        if self.schedule.twin >= 0:
            self.origin[-1] = self.origin[self.schedule.twin]
        if self.schedule.tensor:  # one body: operands are fetched whole, and only what is stored is masked
            self.guards = tuple(self.structure.extents[a] - 1 - dim(a) for a in ragged)
            self._body()
            return
        if not ragged:
            self._body()
            return
        whole = None
        for a in ragged:
            end = arith.addi(self.origin[a], self._index(self.tiles[a]))
            fits = arith.cmpi(arith.CmpIPredicate.sle, end, self._value(self.structure.extents[a]))
            whole = fits if whole is None else arith.andi(whole, fits)
        partial = any(self.tiles[a] > 1 for a in ragged)
        branch = scf.IfOp(whole, has_else=partial)
        with ir.InsertionPoint(branch.then_block):
            self._body()
            scf.YieldOp([])
        if partial:
            ragged += [self.rank - 1] if self.schedule.twin in ragged else []
            self.guards = tuple(self.structure.extents[a] - 1 - dim(a) for a in ragged)
            with ir.InsertionPoint(branch.else_block):
                self._body()
                scf.YieldOp([])

    def _body(self) -> None:
        self.memo, self.reduced = {}, {}
        for row in self.structure.staged:
            self._make_row(row)
        for stage in self.structure.stages:
            if self.structure.online:
                self._online_stage(stage)
            else:
                self._stage(stage)
        self._walk(self.structure.inner, self._store_root)

    def _make_row(self, row: Staged) -> None:
        """Computes a row into memory of the program, for all its threads to read."""
        with row.op.operation.location:
            kind = ir.MemRefType.get([self.structure.extents[row.axis].constant], primop.element_type(row.op.result),
                                     memory_space=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 3))
            memory = tile.Alloc(result=kind).result
            for reduction in row.reductions:
                self._stage([reduction])
            self._walk([row.axis], lambda: tile.Store(
                value=self._compute(row.op, row.point), dest=memory, **self._place((dim(row.axis),), self.guards)))
            tile.Barrier()
        self.memo = {}
        self.rows[row.op.result] = memory

    def _walk(self, axes: Sequence[int], body: Callable[[], None]) -> None:
        """Runs `body` for every tile of some axes."""
        if not axes:
            body()
            return
        for start, stop, step, guard in self._spans(axes[0], 1):
            saved, guards = self.origin[axes[0]], self.guards
            self.guards = guards + guard
            if _is_one_turn(start, stop, step):  # what has been read for this tile is still there
                self._walk(axes[1:], body)
                self.guards = guards
                continue
            loop = scf.ForOp(self._value(linear(start)), self._value(linear(stop)), self._index(step))
            with ir.InsertionPoint(loop.body):
                self.origin[axes[0]] = loop.induction_variable
                self.memo = {}
                self._walk(axes[1:], body)
                scf.YieldOp([])
            self.origin[axes[0]], self.guards, self.memo = saved, guards, {}

    def _spans(self, axis: int, copies: int) -> list[tuple[Linear | int, Linear | int, int, tuple[Linear, ...]]]:
        """The loops that cover an axis: (start, stop, step, guards), whole steps first and then what is left."""
        extent, size = self.structure.extents[axis], self.tiles[axis]
        step = size * copies
        if self.schedule.tensor and self.structure.online and axis not in self.structure.inner:
            whole = self._rounded(self._live_extent(axis, whole=True), size, up=False)
            end = self._rounded(self._live_extent(axis, whole=False), size, up=True)
            return [(0, whole, size, ()), (whole, end, size, (extent - 1 - dim(axis),))]
        if self.schedule.tensor and axis not in self.structure.inner:
            return [(0, ceildiv(extent, size) * size, size, ())]  # past the end both operands are zero
        if extent.is_constant:
            whole: Linear = linear(extent.constant // step * step)
            spans: list = [(0, whole, step, ())] if whole.constant else []
            rest = extent.constant - whole.constant
            if not rest:
                return spans
        elif self.structure.online and size > (threads := self.schedule.axes[axis].threads):
            # What is left is taken one element a thread: a whole turn would mostly compute what does not exist.
            whole = floordiv(extent, size) * size
            return [(0, whole, size, ()), (whole, extent, threads, (extent - 1 - dim(axis),) if threads > 1 else ())]
        else:
            from_extent = floordiv(extent, step) * step
            spans, whole, rest = [(0, from_extent, step, ())], from_extent, -1
            if step == 1:
                return [(0, extent, 1, ())]
        guard = (extent - 1 - dim(axis),) if size > 1 and (rest < 0 or rest % size) else ()
        return [*spans, (whole, extent, size, guard)]

    # Reductions ---------------------------------------------------------------------------------------------------

    def _stage(self, stage: list[Reduction]) -> None:
        copies = self.schedule.unroll if stage[0].contraction else 1
        start = [self._neutral(r, self._accumulator_shape(r)) for r in stage for _ in range(copies)]
        final = self._reduce_loops(stage, list(stage[0].axes), start, copies)
        for i, reduction in enumerate(stage):
            parts = final[i * copies:(i + 1) * copies]
            while len(parts) > 1:
                parts = [self._combine(reduction, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            total = self._reduced_tile(reduction, parts[0])
            self.reduced[reduction.op] = self._converted(total, primop.element_type(reduction.op.result))

    def _reduced_tile(self, reduction: Reduction, total: ir.Value, sizes: Sequence[int] | None = None) -> ir.Value:
        """An accumulator combined along the reduced axes, which keep size 1, or `sizes`."""
        shape = list(total.type.shape)
        axes = [a for a in reduction.axes if shape[a] > (sizes[a] if sizes else 1)]
        if not axes:
            return total
        kept = [(sizes[a] if sizes else 1) if a in axes else n for a, n in enumerate(shape)]
        kind = tile.ReduceKind.ADD if isinstance(reduction.op, primop.Sum) else tile.ReduceKind.MAX
        return tile.Reduce(kind=kind, axes=axes, value=total,
                           result=ir.VectorType.get(kept, total.type.element_type)).result

    def _nested_reduction(self, op: ir.OpView, index: Index) -> ir.Value:
        """A reduction evaluated for every element of the current tile, its loop here and now."""
        own, parallel = self.structure.nested[op], iter(index)
        reduced, dims = iter(own), list(op.dims)
        point = tuple(dim(next(reduced)) if d in dims else next(parallel) for d in range(len(primop.space_of(op))))
        reduction = Reduction(op, own, point, is_contraction(op))
        memo, online = self.memo, self.structure.online
        self.structure.online = False
        start = [self._neutral(reduction, self._accumulator_shape(reduction))]
        final = self._reduce_loops([reduction], list(own), start, 1)[0]
        self.memo, self.structure.online = memo, online
        return self._converted(self._reduced_tile(reduction, final), primop.element_type(op.result))

    # A maximum and the sums that use it, in one loop (see online_reductions.py for the algebra) ---------------------

    def _online_stage(self, stage: list[Reduction]) -> None:
        maximum, chain = stage[0], self._chain(stage)
        for a in self.structure.inner:
            if self.structure.extents[a] != linear(self.tiles[a]):
                raise PassFailure(f"an online chain needs axis {self.schedule.axes[a].name} in one tile, but its extent is "
                                  f"{self.structure.extents[a]} and its tile {self.tiles[a]}", maximum.op.operation.location)
        start = []
        for reduction in stage:
            start.append(self._neutral(reduction, self._accumulator_shape(reduction)))
            self.reduced[reduction.op] = start[-1]  # its shape is all that the others need yet
        largest, *sums = self._reduce_loops(stage, list(maximum.axes), start, 1)
        axes = [a for a in maximum.axes if largest.type.shape[a] > 1]
        self.reduced[maximum.op] = self._reduced_tile(maximum, largest)  # removed again where nobody reads it
        for reduction, value in zip(stage[1:], sums, strict=True):
            if not axes:  # all parts are relative to one maximum
                value = self._reduced_tile(reduction, value)
            else:
                shape = [1 if a in axes else n for a, n in enumerate(value.type.shape)]
                kind = ir.VectorType.get(shape, value.type.element_type)
                value = tile.ReduceOnline(scale=_number(chain.scale), floor=chain.floor, axes=axes, maximum=largest,
                                          value=value, result=kind).result
            self.reduced[reduction.op] = self._converted(value, primop.element_type(reduction.op.result))

    def _accumulate_online(self, stage: list[Reduction], values: list[ir.Value]) -> list[ir.Value]:
        maximum, chain = stage[0], self._chain(stage)
        for reduction in stage[1:]:  # what does not wait for the maximum is read now
            if reduction.contraction:
                product, index = defining_op(reduction.op.operand), operand_index(reduction.op, 0, reduction.point, self.ranges)
                for k, operand in enumerate(product.operands):
                    if not self._depends_on(operand, maximum.op):
                        self._operand(product, k, index)
        larger = self._accumulated(maximum, values[0])
        mend = self._mend(chain, maximum, values[0], larger)
        self.reduced[maximum.op] = larger
        result = [larger]
        for reduction, value in zip(stage[1:], values[1:], strict=True):
            with reduction.op.operation.location:
                mended = arith.mulf(*self._aligned(value, mend))
                result.append(self._accumulated(reduction, mended))
        return result

    def _depends_on(self, value: ir.Value, reduction: ir.OpView) -> bool:
        op = defining_op(value)
        return op is not None and (op == reduction or any(self._depends_on(v, reduction) for v in op.operands))

    def _chain(self, stage: list[Reduction]) -> Chain:
        for reduction in stage[1:]:
            operand = defining_op(reduction.op.operand)
            for op in (operand, *(below_cast(v) for v in operand.operands)):
                chain = match_power(op)
                if chain is not None:
                    return chain
        raise PassFailure("an online chain has no exponential of its maximum", stage[0].op.operation.location)

    def _rounded(self, value: ir.Value, size: int, up: bool) -> ir.Value:
        count = (arith.ceildivui if up else arith.divui)(value, self._index(size))
        return arith.muli(count, self._index(size))

    def _live_extent(self, axis: int, whole: bool) -> ir.Value:
        """The end of a chain's axis for this program: its extent, or where a mask begins that excludes all that follows.

        A summand that is -inf where a condition `axis - rest >= 0` holds excludes, for every element of the tile, what
        lies past the largest `rest`; with `whole`, for no element what lies before the smallest.
        """
        end = self._value(self.structure.extents[axis])
        for condition in self._exclusions(axis):
            last = dim(axis) - condition
            known = {Dim(a): dim(a) + (self.tiles[a] - 1 if (last.coefficient(Dim(a)) > 0) != whole else 0)
                     for a in range(self.rank) if a != axis}
            origins = [*self.origin, *self.symbol_values]
            limit = affine.apply(make_map(self.rank, len(self.symbols), [substitute(last, known)]), origins)
            end = arith.minsi(end, arith.maxsi(limit, self._index(0)))
        return end

    def _exclusions(self, axis: int) -> list[Linear]:
        """Conditions under which the scores of a chain are -inf."""
        maximum = self.structure.stages[0][0]
        pending, found = [(maximum.op.operand, operand_index(maximum.op, 0, maximum.point, self.ranges))], []
        while pending:
            value, point = pending.pop()
            op = defining_op(value)
            if not isinstance(op, primop.Add):
                continue
            for k, operand in enumerate(op.operands):
                constant = defining_op(operand)
                bound = operand_bound(op, k, point, self.ranges)
                if isinstance(constant, primop.Constant) and constant.attributes["value"].value == float("-inf"):
                    found += [e for e in bound if len(bound) == 1 and e.coefficient(Dim(axis)) == 1
                              and Dim(axis) not in e.nonlinear_atoms()]
                else:
                    pending.append((operand, operand_index(op, k, point, self.ranges)))
        return found

    def _mend(self, chain: Chain, maximum: Reduction, before: ir.Value, after: ir.Value) -> ir.Value:
        """The factor exp2(c (m_before - m_after)) that turns sums relative to one maximum into sums relative to another."""
        index = tuple(maximum.point[d] for d in range(len(maximum.point)) if d not in list(maximum.op.dims))
        memo, known = self.memo, self.reduced[maximum.op]
        clamped = []
        for value in (before, after):
            self.memo, self.reduced[maximum.op] = {}, value
            clamped.append(self._evaluate(chain.clamped, index))
        self.memo, self.reduced[maximum.op] = memo, known
        difference = arith.subf(*self._aligned(*clamped))
        scale = self._splat(_number(chain.scale), difference.type.element_type, difference.type.shape)
        return _exp2(arith.mulf(difference, scale))

    def _reduce_loops(self, stage: list[Reduction], axes: list[int], values: list[ir.Value], copies: int) -> list[ir.Value]:
        if not axes:
            return self._accumulate(stage, values, 1, 0)
        axis, inner = axes[0], axes[1:]
        used = copies if not inner else 1
        for start, stop, step, guard in self._spans(axis, used):
            size = self.tiles[axis] = min(self.tiles[axis], step)
            here = step // size
            saved, guards = self.origin[axis], self.guards
            self.guards = guards + guard
            if self.schedule.tensor and self.structure.online and not guard:
                self.never = frozenset(self._exclusions(axis))
            one_turn = here == 1 and _is_one_turn(start, stop, step)
            if one_turn:
                values = self._reduce_loops(stage, inner, values, copies) if inner else \
                    self._accumulate(stage, values, copies, 0)
            elif _is_one_turn(start, stop, step):
                values = self._steps(stage, axis, inner, values, saved, here, copies)
            else:
                bounds = [b if isinstance(b, ir.Value) else self._value(linear(b)) for b in (start, stop)]
                loop = scf.ForOp(*bounds, self._index(step), values)
                with ir.InsertionPoint(loop.body):
                    scf.YieldOp(self._steps(stage, axis, inner, list(loop.inner_iter_args), loop.induction_variable, here,
                                            copies))
                values = list(loop.results)
            self.origin[axis], self.guards, self.never = saved, guards, frozenset()
            self.memo = self.memo if one_turn else {}
            self.tiles[axis] = self.schedule.axes[axis].tile
        return values

    def _steps(self, stage: list[Reduction], axis: int, inner: list[int], values: list[ir.Value], base: ir.Value,
               here: int, copies: int) -> list[ir.Value]:
        for copy in range(here):
            offset = copy * self.tiles[axis]
            self.origin[axis] = arith.addi(base, self._index(offset)) if offset else base
            self.memo = {}
            values = self._reduce_loops(stage, inner, values, copies) if inner else \
                self._accumulate(stage, values, copies, copy)
        return values

    def _accumulate(self, stage: list[Reduction], values: list[ir.Value], copies: int, copy: int) -> list[ir.Value]:
        values = list(values)
        if self.structure.online:
            return self._accumulate_online(stage, values)
        for i, reduction in enumerate(stage):
            position = i * copies + copy
            with reduction.op.operation.location:
                values[position] = self._accumulated(reduction, values[position])
        return values

    def _accumulated(self, reduction: Reduction, accumulator: ir.Value) -> ir.Value:
        op = reduction.op
        index = operand_index(op, 0, reduction.point, self.ranges)
        tail = tuple(g for g in self.guards if any(Dim(a) in g.atoms() for a in reduction.axes))
        if reduction.contraction and self.schedule.twin >= 0:
            return self._twin_product(reduction, index, tail, accumulator)
        if reduction.contraction and self.schedule.dot:
            product = defining_op(op.operand)
            sides = [self._operand(product, k, index) for k in (0, 1)]
            fetched = [self.schedule.tensor and isinstance(defining_op(v), tile.Load) for v in sides]  # zero past the end
            zeroed = [v if f else self._select_guard(tail, v, 0.0) for v, f in zip(sides, fetched, strict=True)]
            return tile.Dot(lhs=zeroed[0], rhs=zeroed[1], acc=accumulator, result=accumulator.type).result
        value = self._operand(op, 0, reduction.point)
        value = self._converted(value, accumulator.type.element_type)
        value = self._select_guard(tail, value, self._neutral_value(reduction))
        if self.structure.online:  # what one thread holds becomes one partial result
            value = self._reduced_tile(reduction, value, self._partial_sizes(reduction))
        return self._combine(reduction, accumulator, value)

    def _twin_product(self, reduction: Reduction, index: Index, tail: tuple[Linear, ...], accumulator: ir.Value) -> ir.Value:
        """A product whose right operand is read along the twin of its columns."""
        product, column, twin = defining_op(reduction.op.operand), self.schedule.twin, self.rank - 1
        moved = tuple(substitute(e, {Dim(column): dim(twin)}, self.ranges) for e in index)
        lhs, rhs = self._operand(product, 0, index), self._operand(product, 1, moved)
        lhs, rhs = (self._select_guard(tail, v, 0.0) for v in (lhs, rhs))
        return tile.DotTwin(column=column, twin=twin, depth=reduction.axes[0], lhs=lhs, rhs=rhs, acc=accumulator,
                            result=accumulator.type).result

    def _accumulator_shape(self, reduction: Reduction) -> list[int]:
        index = operand_index(reduction.op, 0, reduction.point, self.ranges)
        axes = self._axes_below(reduction.op.operand, index) | self._axes_of(operand_bound(reduction.op, 0, reduction.point))
        if reduction.contraction and self.schedule.dot:
            shape = self._shape(axes - set(reduction.axes))
            for a in reduction.axes:  # one partial sum for every thread along the axis
                shape[a] = 1 if self.schedule.tensor or self.schedule.twin >= 0 else self.schedule.axes[a].threads
            return shape
        if any(self.tiles[a] > 1 for a in reduction.axes):
            axes |= set(reduction.axes)
        shape = self._shape(axes)
        if self.structure.online:
            sizes = self._partial_sizes(reduction)
            for a in reduction.axes:
                shape[a] = sizes[a]
        return shape

    def _partial_sizes(self, reduction: Reduction) -> list[int]:
        """What a chain carries along each axis: one part a thread, but with tensor cores one maximum for all of a row."""
        shared = self.schedule.tensor and isinstance(reduction.op, primop.Max)
        return [1 if shared else axis.threads for axis in self.schedule.axes]

    def _neutral_value(self, reduction: Reduction) -> float | int:
        if isinstance(reduction.op, primop.Sum):
            return 0
        element = primop.element_type(reduction.op.operand)
        return float("-inf") if str(element) in primop.FLOATS else -(1 << (ir.IntegerType(element).width - 1))

    def _neutral(self, reduction: Reduction, shape: Sequence[int]) -> ir.Value:
        element = primop.element_type(reduction.op.operand)
        if str(element) in primop.FLOATS:
            element = ir.F32Type.get()
        return self._splat(self._neutral_value(reduction), element, shape)

    def _combine(self, reduction: Reduction, a: ir.Value, b: ir.Value) -> ir.Value:
        a, b = self._aligned(a, b)
        is_float = str(a.type.element_type) in primop.FLOATS
        if isinstance(reduction.op, primop.Sum):
            return arith.addf(a, b) if is_float else arith.addi(a, b)
        return arith.maximumf(a, b) if is_float else arith.maxsi(a, b)

    # Storing ------------------------------------------------------------------------------------------------------

    def _store_root(self) -> None:
        s = self.structure
        with s.root.operation.location:
            if isinstance(s.root, primop.Scatter):
                self._scatter(s.root)
                return
            value = self.reduced[s.root] if isinstance(s.root, REDUCTIONS) else self._compute(s.root, s.point)
            shape = list(value.type.shape)
            wanted = [self.tiles[a] if Dim(a) in self._point_atoms() else n for a, n in enumerate(shape)]
            value = self._broadcast(value, wanted)
            index = s.point[:len(extents_of(s.root.result))]
            tile.Store(value=value, dest=self.buffers[s.root.result], **self._place(index, self.guards))

    def _point_atoms(self) -> set[Atom]:
        return set().union(*(e.atoms() for e in self.structure.point), set())

    def _scatter(self, op: primop.Scatter) -> None:
        point = self.structure.point
        value, index = self._operand(op, 2, point), self._operand(op, 1, point)
        if str(index.type.element_type) != INDEX_DTYPE:  # what is outside stays outside
            index = self._clamped(index, -1, op.extent)
        full = self._shape({a for a in range(self.rank) if Dim(a) in self._point_atoms()})
        where = operand_index(op, 0, (*point, dim(self.rank)), self.ranges)
        tile.Scatter(extent=op.extent, value=self._broadcast(value, full), index=index, dest=self.buffers[op.dest],
                     **self._place(where, self.guards, 1))

    # Evaluating expressions ---------------------------------------------------------------------------------------

    def _operand(self, op: ir.OpView, k: int, point: Index) -> ir.Value:
        """Operand k of an op at a point, zero where its bound excludes the element."""
        bound = tuple(e for e in operand_bound(op, k, point, self.ranges) if not self._always(e))
        guards = self.guards
        self.guards = guards + bound
        value = self._evaluate(op.operands[k], operand_index(op, k, point, self.ranges))
        self.guards = guards
        return self._select_guard(bound, value, 0)

    def _evaluate(self, value: ir.Value, index: Index) -> ir.Value:
        op = defining_op(value)
        if isinstance(op, REDUCTIONS) and op not in self.structure.nested:
            return self._mirrored(self.reduced[op], index)
        key = (value, index, self.guards)
        if key not in self.memo:
            if op is None:
                self.memo[key] = self._load(value, index)
            elif is_row(op):
                self.memo[key] = self._load_row(value, index)
            elif op in self.structure.nested:
                self.memo[key] = self._nested_reduction(op, index)
            else:
                self.memo[key] = self._compute(op, index)
        return self.memo[key]

    def _mirrored(self, value: ir.Value, index: Index) -> ir.Value:
        """A reduction's result as it is read: from the other end along axes whose coefficient is negative."""
        flipped = {atom.position for e in index for atom, c in e.terms if c < 0 and isinstance(atom, Dim)}
        for axis in sorted(flipped & self.structure.mirrored):
            if value.type.shape[axis] > 1:
                value = tile.Reverse(axis=axis, value=value, result=value.type).result
        return value

    def _load(self, value: ir.Value, index: Index) -> ir.Value:
        axes = self._axes_of(index)
        shape = self._shape(axes)
        relevant = tuple(g for g in self.guards if self._axes_of((g,)) <= axes)
        return tile.Load(source=self.buffers[value], result=ir.VectorType.get(shape, primop.element_type(value)),
                         **self._place(index, relevant)).result

    def _load_row(self, value: ir.Value, index: Index) -> ir.Value:
        place = tuple(e for e in index if not e.is_constant)
        kind = ir.VectorType.get(self._shape(self._axes_of(place)), primop.element_type(value))
        relevant = tuple(g for g in self.guards if self._axes_of((g,)) <= self._axes_of(place))
        return tile.Load(source=self.rows[value], result=kind, **self._place(place or (Linear(),), relevant)).result

    def _compute(self, op: ir.OpView, point: Index) -> ir.Value:
        with op.operation.location:
            element = primop.element_type(op.result)
            if isinstance(op, primop.Constant):
                attribute = op.attributes["value"]
                return self._splat(attribute.value, element, [1] * self.rank)
            if isinstance(op, primop.Iota):
                return self._converted(self._index_tile(point[0]), element)
            if isinstance(op, primop.Gather):
                return self._gather(op, point)
            if self.structure.online and isinstance(op, primop.Exp2) and (chain := match_power(op)) is not None:
                return self._power(chain, point)
            if isinstance(op, primop.Add) and any(self._is_excluded(op, k, point) for k in (0, 1)):
                kept = 1 if self._is_excluded(op, 0, point) else 0
                return self._converted(self._operand(op, kept, point), element)
            values = [self._operand(op, k, point) for k in range(len(op.operands))]
            if isinstance(op, primop.Add | primop.Mul | primop.Mod):
                values = [self._converted(v, element) for v in values]
            if isinstance(op, primop.Cast):
                return self._converted(values[0], element)
            return elementwise(op, self._aligned(*values), element)

    def _is_excluded(self, op: ir.OpView, k: int, point: Index) -> bool:
        """Whether an operand exists nowhere in the tiles of the present loop."""
        return bool(self.never) and any(e in self.never for e in operand_bound(op, k, point, self.ranges))

    def _power(self, chain: Chain, point: Index) -> ir.Value:
        """exp2((x - m) c) as exp2(x c - m c): one multiply-add for every element, the rest once a row."""
        scaled = defining_op(chain.power.operand)
        inside = operand_index(chain.power, 0, point, self.ranges)
        shifted, at = defining_op(scaled.lhs), operand_index(scaled, 0, inside, self.ranges)
        score, negated = (self._operand(shifted, k, at) for k in (0, 1))
        scale = _number(chain.scale)
        offset = arith.mulf(negated, self._splat(scale, negated.type.element_type, negated.type.shape))
        score, offset = self._aligned(score, offset)
        factor = self._splat(scale, score.type.element_type, score.type.shape)
        return _exp2(math.fma(score, factor, offset))

    def _clamped(self, index: ir.Value, low: int, high: int) -> ir.Value:
        """An index within bounds, and only then narrowed."""
        bounds = [self._splat(v, index.type.element_type, index.type.shape) for v in (low, high)]
        return self._converted(arith.minsi(arith.maxsi(index, bounds[0]), bounds[1]), ir.Type.parse(INDEX_DTYPE))

    def _gather(self, op: primop.Gather, point: Index) -> ir.Value:
        rows = self._clamped(self._operand(op, 1, point), 0, op.extent - 1)
        where = operand_index(op, 0, (*point, dim(self.rank)), self.ranges)
        axes = self._axes_of(where) | {a for a, n in enumerate(rows.type.shape) if n > 1}
        relevant = tuple(g for g in self.guards if self._axes_of((g,)) <= axes)
        return tile.Gather(source=self.buffers[op.data], index=rows,
                           result=ir.VectorType.get(self._shape(axes), primop.element_type(op.data)),
                           **self._place(where, relevant, 1)).result

    # Tiles --------------------------------------------------------------------------------------------------------

    def _axes_of(self, index: Sequence[Linear]) -> set[int]:
        """The axes along which an index takes more than one value inside a tile: `h floordiv 4` in a tile of 4 takes one."""
        atoms = set().union(*(e.atoms() for e in index), set())
        axes = {a.position for a in atoms if isinstance(a, Dim) and a.position < self.rank and self.tiles[a.position] > 1}
        return {a for a in axes if any(self._varies(e, a) for e in index)}

    def _varies(self, expr: Linear, axis: int) -> bool:
        inside = Dim(self.rank + 1)
        split = dim(axis) * self.tiles[axis] + dim(inside.position)
        ranges = {**{k: v for k, v in self.ranges.items() if k != Dim(axis)}, inside: (0, self.tiles[axis] - 1)}
        return inside in substitute(expr, {Dim(axis): split}, ranges).atoms()

    def _axes_below(self, value: ir.Value, index: Index) -> set[int]:
        """The axes along which an expression varies."""
        op = defining_op(value)
        if op is None or is_row(op):
            return self._axes_of(index)
        if op in self.structure.nested:
            own, parallel, dims = iter(self.structure.nested[op]), iter(index), list(op.dims)
            point = tuple(dim(next(own)) if d in dims else next(parallel) for d in range(len(primop.space_of(op))))
            return self._axes_below(op.operand, operand_index(op, 0, point, self.ranges)) - set(self.structure.nested[op])
        if isinstance(op, REDUCTIONS):
            return {a for a, n in enumerate(self.reduced[op].type.shape) if n > 1}
        if isinstance(op, primop.Iota):
            return self._axes_of(index)
        axes: set[int] = set()
        for k, operand in enumerate(op.operands):
            point = (*index, Linear()) if isinstance(op, primop.Gather) and k == 0 else index
            axes |= self._axes_below(operand, operand_index(op, k, point, self.ranges))
            bound = operand_bound(op, k, index, self.ranges)
            axes |= self._axes_of([e for e in bound if not self._always(e)])
        return axes

    def _shape(self, axes: set[int]) -> list[int]:
        return [self.tiles[a] if a in axes else 1 for a in range(self.rank)]

    def _always(self, condition: Linear) -> bool:
        bounds = range_of(condition, self.ranges)
        return bounds is not None and bounds[0] >= 0

    def _select_guard(self, guard: Sequence[Linear], value: ir.Value, otherwise: float | int) -> ir.Value:
        """`value` where all conditions hold, otherwise a constant."""
        if not guard:
            return value
        flags = self._flags(guard)
        flags, value = self._aligned(flags, value)
        return arith.select(flags, value, self._splat(otherwise, value.type.element_type, value.type.shape))

    def _flags(self, guard: Sequence[Linear]) -> ir.Value:
        result: ir.Value | None = None
        for condition in guard:
            at = self._index_tile(condition)
            zero = self._splat(0, at.type.element_type, at.type.shape)
            holds = arith.cmpi(arith.CmpIPredicate.sge, at, zero)
            result = holds if result is None else arith.andi(*self._aligned(result, holds))
        assert result is not None
        return result

    def _index_tile(self, expr: Linear) -> ir.Value:
        shape = self._shape(self._axes_of((expr,)))
        kind = ir.VectorType.get(shape, ir.Type.parse(INDEX_DTYPE))
        return tile.IndexTile(result=kind, **self._place((expr,))).result

    def _place(self, index: Sequence[Linear], guards: Sequence[Linear] = (), extra: int = 0) -> dict[str, object]:
        """The map, mask and origin of an access; the symbols are passed only where one of them occurs."""
        used = any(isinstance(atom, Symbol) for e in (*index, *guards) for atom in e.atoms())
        symbols = self.symbol_values if used else []
        place: dict[str, object] = {"map": make_map(self.rank + extra, len(symbols), index),
                                    "origin": [*self.origin, *symbols]}
        if guards:
            place["mask"] = make_map(self.rank, len(symbols), guards)
        return place

    def _aligned(self, *values: ir.Value) -> tuple[ir.Value, ...]:
        shape = [max(sizes) for sizes in zip(*(v.type.shape for v in values), strict=True)]
        return tuple(self._broadcast(v, shape) for v in values)

    def _broadcast(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        if list(value.type.shape) == list(shape):
            return value
        if any(n not in (1, m) for n, m in zip(value.type.shape, shape, strict=True)):  # one per thread, for its elements
            return tile.Spread(value=value, result=ir.VectorType.get(list(shape), value.type.element_type)).result
        return vector.broadcast(ir.VectorType.get(list(shape), value.type.element_type), value)

    def _splat(self, value: float | int | bool, element: ir.Type, shape: Sequence[int]) -> ir.Value:
        is_float = str(element) in primop.FLOATS
        attribute = ir.FloatAttr.get(element, float(value)) if is_float else ir.IntegerAttr.get(element, int(value))
        kind = ir.VectorType.get(list(shape), element)
        return arith.constant(kind, ir.DenseElementsAttr.get_splat(kind, attribute))

    def _converted(self, value: ir.Value, element: ir.Type) -> ir.Value:
        return convert(value, element)

    def _index(self, value: int) -> ir.Value:
        return arith.constant(ir.IndexType.get(), value)

    def _value(self, expr: Linear) -> ir.Value:
        """The run-time value of an expression of symbols, none of which is negative."""
        result: ir.Value | None = self._index(expr.constant) if expr.constant or not expr.terms else None
        for atom, c in expr.terms:
            if isinstance(atom, Symbol):
                term = self.symbol_values[atom.position]
            elif isinstance(atom, FloorDiv):
                term = arith.divui(self._value(atom.numerator), self._index(atom.divisor))
            elif isinstance(atom, Mod):
                term = arith.remui(self._value(atom.numerator), self._index(atom.divisor))
            else:
                raise PassFailure(f"an extent must be made of symbols, but has {atom}")
            term = arith.muli(term, self._index(c)) if c != 1 else term
            result = term if result is None else arith.addi(result, term)
        assert result is not None
        return result
