"""primop to tile: each fused kernel becomes a program over tiles, its views become the maps of loads and stores.

A kernel's expression is evaluated at a point of its axes (`Structure`), the views composing on the way down, until a
buffer is read. Around that: program ids give the tile's origin along grid axes, each stage of reductions is a loop nest
with accumulators, and the root is stored at the end. Where a tile may reach past an extent, the code exists twice, for
whole tiles without masks and for ragged ones with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlir import ir
from mlir.dialects import arith, func, scf

from tilec.dialects import primop, tile
from tilec.dialects.index_expr import Atom, Dim, dim, linear
from tilec.pipelines.cost_model import LOG, choose_schedules
from tilec.pipelines.emit.expressions import INDEX_DTYPE
from tilec.pipelines.emit.online_rows import OnlineRows
from tilec.pipelines.emit.reductions import is_one_turn
from tilec.pipelines.launches import bind
from tilec.pipelines.passes import Pass, PassFailure
from tilec.pipelines.primop.fuse import REDUCTIONS
from tilec.pipelines.primop.outline import extents_of, functions, kind_of
from tilec.pipelines.primop.structure import (
    Further,
    Reduction,
    Staged,
    analyse,
    capacity,
    defining_op,
    is_mended,
    operand_index,
)
from tilec.pipelines.recording import Recording
from tilec.pipelines.targets import find_target


@dataclass(frozen=True)
class PrimopToTile(Pass):
    """Lower every kernel function from primops to a program over tiles, scheduled for `target`, as recorded in `tuned`."""

    name = "convert-primop-to-tile"
    anchor = "builtin.module"
    target: str = "cpu"
    tuned: str = ""  # a file that `tilec tune` wrote

    def run(self, op: ir.OpView) -> None:
        target = find_target(self.target)
        recording = Recording.load(Path(self.tuned)) if self.tuned else None
        if recording:
            recording.check_target(target.name)
            LOG.info("schedules measured on %s, %s: %s", recording.device, recording.date, recording.path)
        symbols = primop.symbol_ranges(op.operation)
        kernels = functions(op, "primop.kernel")
        if not kernels:
            return
        with ir.InsertionPoint(op.regions[0].blocks[0]), op.operation.location:
            nested = ir.Module.create().operation.clone()
            nested.attributes["sym_name"] = ir.StringAttr.get("kernels")
        structures = {ir.StringAttr(f.attributes["sym_name"]).value: analyse(f, symbols) for f in kernels}
        schedules = choose_schedules(op, structures, target, recording)
        for name, structure in structures.items():
            with structure.function.operation.location:
                _Emitter(structure, schedules[name]).emit(nested.regions[0].blocks[0])
                _declare(structure.function)


def _declare(function: ir.OpView) -> None:
    """Leaves only the signature of a kernel on tensors, for the calls; its body is now the tile function's."""
    name = ir.StringAttr(function.attributes["sym_name"]).value
    with ir.InsertionPoint(function):
        declared = func.FuncOp(name, ir.TypeAttr(function.attributes["function_type"]).value, visibility="private")
    for attribute in ("arg_attrs", "res_attrs"):
        declared.attributes[attribute] = function.attributes[attribute]
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    operands, results = len(kind.inputs), len(kind.results)
    if results > 1:  # each has memory of its own, behind the operands
        bind(declared, [*range(operands), *(-1 - r for r in range(results))], [operands + r for r in range(results)])
    function.operation.erase()


class _Emitter(OnlineRows):
    """Writes one tile function."""

    def emit(self, into: ir.Block) -> None:
        kernel = self.structure.function
        block = kernel.regions[0].blocks[0]
        results = list(list(block.operations)[-1].operands)
        in_place = isinstance(self.structure.root, primop.Scatter)
        tensors = [*block.arguments, *([] if in_place else results)]
        types = [self._memref(t) for t in tensors]
        name = ir.StringAttr(kernel.attributes["sym_name"]).value
        with ir.InsertionPoint(into):
            function = func.FuncOp(name, (types, []))
        function.attributes["tile.kernel"] = ir.UnitAttr.get()
        function.attributes["tile.schedule"] = self.schedule.to_attribute(len(self.symbols))
        written = [self.structure.root.dest] if in_place else results
        roles = ["write" if t in written else "weight" if t not in results and kind_of(t) == "weight" else "read"
                 for t in tensors]
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
        for twin, axis in self.schedule.twins.items():
            self.origin[twin] = self.origin[axis]
        if self.schedule.rings:  # one body: operands are fetched whole, and only what is stored is masked
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
            self.guards = tuple(self.structure.extents[a] - 1 - dim(a) for a in ragged)
            with ir.InsertionPoint(branch.else_block):
                self._body()
                scf.YieldOp([])

    def _body(self) -> None:
        self.memo, self.reduced = {}, {}
        for row in self.structure.staged:
            self._make_row(row)
        shared = [f for f in self.structure.factors if self.schedule.axes[f.axes[0]].warps > 1]
        for factor in shared:  # by warps that meet for it while the matrix is on its way
            self._stage([factor])
        terms = [(f, self._terms(f)) for f in self.structure.factors if f not in shared]
        for stage in self.structure.stages:
            if self.structure.online:
                self._online_stage(stage)
            elif is_mended(stage):
                self._mended_stage(stage)
            else:
                self._stage(stage)
        for factor, read in terms:
            self._add_up(factor, read)
        self._walk(self.structure.inner, self._store_parts if self.structure.parts else self._store_results)

    def _terms(self, factor: Reduction) -> ir.Value | None:
        """What a factor of rows is the sum of, read before the products that it scales are made; None where it takes a loop, or
        registers that only threads which fetch nothing have."""
        (axis,) = factor.axes
        if self.tiles[axis] != self.structure.extents[axis].constant or not self.schedule.roles:
            return None
        with factor.op.operation.location:
            return self._whole(factor, self._operand(factor.op, 0, factor.point))

    def _add_up(self, factor: Reduction, terms: ir.Value | None) -> None:
        with factor.op.operation.location:
            if terms is None:
                self._stage([factor])
            else:
                self.reduced[factor.op] = self._reduced_tile(factor, terms)

    def _store_parts(self) -> None:
        for part, place in self.structure.parts:
            with part.operation.location:
                tile.Store(value=self.reduced[defining_op(part.operand)], dest=self.buffers[part.result],
                           **self._place((dim(self.structure.part), *place), self.guards))

    def _make_row(self, row: Staged) -> None:
        """Computes a row into memory of the program, for all its threads to read."""
        with row.op.operation.location:
            kind = ir.MemRefType.get([self.structure.extents[row.axis].constant], primop.element_type(row.op.result),
                                     memory_space=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 3))
            memory = tile.Alloc(result=kind).result
            for reduction in row.reductions:
                self._stage([reduction])

            def store() -> None:
                tile.Store(value=self._compute(row.op, row.point), dest=memory, **self._place((dim(row.axis),), self.guards))

            self._walk([row.axis], store)
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
            if is_one_turn(start, stop, step):  # what has been read for this tile is still there
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

    def _store_results(self) -> None:
        values = [self._value_of(further) for further in self.structure.beside]  # read before anything is written
        self._store_root()
        for further, value in zip(self.structure.beside, values, strict=True):
            with further.op.operation.location:
                tile.Store(value=value, dest=self.buffers[further.op.result], **self._place(further.index, self.guards))

    def _value_of(self, further: Further) -> ir.Value:
        """A further result: each of its elements made from the root's, or sums of blocks of them."""
        op, point, axis = further.op, further.point, further.axis
        with op.operation.location:
            if axis is None:
                return self._whole_tile(self._compute(op, point))
            if self.tiles[axis] != self.structure.extents[axis].constant:
                raise PassFailure("a block that is summed must lie in one tile", op.operation.location)
            return self._reduced_tile(Reduction(op, (axis,), point, False), self._whole_tile(self._operand(op, 0, point)))

    def _store_root(self) -> None:
        s = self.structure
        with s.root.operation.location:
            if isinstance(s.root, primop.Scatter):
                self._scatter(s.root)
                return
            value = self.reduced[s.root] if isinstance(s.root, REDUCTIONS) else self._compute(s.root, s.point)
            index = s.point[:len(extents_of(s.root.result))]
            tile.Store(value=self._whole_tile(value), dest=self.buffers[s.root.result], **self._place(index, self.guards))

    def _whole_tile(self, value: ir.Value) -> ir.Value:
        """A value with an element for each of the root's."""
        atoms = self._point_atoms()
        return self._broadcast(value, [self.tiles[a] if Dim(a) in atoms else n for a, n in enumerate(value.type.shape)])

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
