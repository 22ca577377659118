"""The host side of a program: calls become an ordered list of launches, values become buffers in one planned arena.

Entry points call chunks, chunks call kernels; here both are written out. Every value gets the buffer its kernel fills.
Temporaries share an arena: two may overlap when one is last read before the other is first written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import Atom, Dim, FloorDiv, Linear, Mod, Symbol, map_results
from tilec.pipelines.launches import binding_of
from tilec.pipelines.primop.outline import body_of, callee_of, extents_of, functions
from tilec.pipelines.primop.structure import capacity
from tilec.runtime.artifact import Buffer, Entry, State, Weight

ALIGNMENT = 256  # bytes: a cache line, a GPU transaction and any vector


@dataclass(frozen=True)
class Plan:
    """What the host part of a module says."""

    entries: dict[str, Entry]
    weights: dict[str, Weight]
    states: dict[str, State]


def plan_module(module: ir.OpView | ir.Operation) -> Plan:
    """The plan of a module whose kernels are tile or kernel functions in a nested module `kernels`."""
    symbols = primop.symbol_ranges(module.operation)
    table = ir.SymbolTable(module.operation)
    nested = next(o for o in module.regions[0].blocks[0].operations if o.operation.name in ("builtin.module", "gpu.module"))
    kernels = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions(nested, "tile.arguments")}
    weights: dict[str, Weight] = {}
    states: dict[str, State] = {}
    entries = {}
    for function in functions(module, "primop.entry"):
        planner = _EntryPlanner(table, kernels, symbols)
        entries[ir.StringAttr(function.attributes["sym_name"]).value] = planner.plan(function)
        weights |= planner.weights
        states |= planner.states
    return Plan(entries, weights, states)


class _EntryPlanner:
    def __init__(self, table: ir.SymbolTable, kernels: dict[str, ir.OpView], symbols: dict[str, tuple[int, int]]) -> None:
        self.table, self.kernels, self.symbols = table, kernels, symbols
        self.buffers: list[Buffer] = []
        self.launches: list[tuple[str, list[int]]] = []
        self.weights: dict[str, Weight] = {}
        self.states: dict[str, State] = {}

    def plan(self, function: ir.OpView) -> Entry:
        values: dict[ir.Value, int] = {}
        results: dict[str, int] = {}
        feedback: dict[str, str] = {}
        inputs: dict[str, int] = {}
        for op in body_of(function).operations:
            if isinstance(op, primop.Input):
                if op.label not in inputs:
                    inputs[op.label] = self._input(op)
                values[op.result] = inputs[op.label]
            elif op.operation.name == "func.call":
                self._call(op, values)
            elif isinstance(op, primop.Output):
                buffer = values[op.value]
                if self.buffers[buffer].kind == "state" and op.alias == self.buffers[buffer].label:
                    continue  # written in place
                self.buffers[buffer] = replace(self.buffers[buffer], kind="result", label=op.label)
                results[op.label] = buffer
                if op.alias:
                    feedback[op.label] = op.alias
        arena = self._place()
        return Entry(self.buffers, self.launches, results, feedback, arena)

    def _input(self, op: primop.Input) -> int:
        dtype, kind = str(primop.element_type(op.result)), op.kind.value
        extents = map_results(op.shape)
        sizes = capacity(extents, self.symbols)
        if kind == "weight":
            tensor = list(ir.RankedTensorType(op.result.type).shape)
            if op.pack is not None:
                self.weights[op.label] = Weight(dtype, sizes, tensor, [expression(e, []) for e in map_results(op.pack)])
                sizes = tensor
            else:
                self.weights[op.label] = Weight(dtype, sizes)
        elif kind == "state":
            self.states[op.label] = State(dtype, sizes)
        return self._buffer(kind, op.label, dtype, sizes, extents)

    def _buffer(self, kind: str, label: str, dtype: str, sizes: list[int], extents: tuple[Linear, ...]) -> int:
        shape = [expression(e, list(self.symbols)) for e in extents]
        self.buffers.append(Buffer(kind, label, dtype, sizes, shape))
        return len(self.buffers) - 1

    def _call(self, call: ir.OpView, values: dict[ir.Value, int]) -> None:
        name = callee_of(call)
        passed = [values[v] for v in call.operands]
        if name in self.kernels:
            binding, results = binding_of(self.table[name], self.kernels[name], len(passed))
            fresh = {}
            for r, result in enumerate(call.results):
                if -1 - r in binding:
                    extents = extents_of(result)
                    fresh[-1 - r] = self._buffer("temporary", "", str(primop.element_type(result)),
                                                 capacity(extents, self.symbols), extents)
            passed = [fresh[b] if b < 0 else passed[b] for b in binding]
            values.update(zip(call.results, (passed[at] for at in results), strict=True))
            self.launches.append((name, passed))
            return
        chunk = self.table[name]
        inner = dict(zip(body_of(chunk).arguments, passed, strict=True))
        for op in body_of(chunk).operations:
            if op.operation.name == "func.call":
                self._call(op, inner)
            elif op.operation.name == "func.return":
                values.update(zip(call.results, (inner[v] for v in op.operands), strict=True))

    def _place(self) -> int:
        """Gives every temporary an offset, largest first, at the lowest place free during its life."""
        life: dict[int, tuple[int, int]] = {}
        for time, (_, used) in enumerate(self.launches):
            for buffer in used:
                life[buffer] = (life.get(buffer, (time, time))[0], time)
        placed: list[tuple[int, int, int]] = []  # buffer, start, end
        temporaries = [b for b in life if self.buffers[b].kind == "temporary"]
        for buffer in sorted(temporaries, key=lambda b: (-self.buffers[b].bytes, b)):
            size = -(-self.buffers[buffer].bytes // ALIGNMENT) * ALIGNMENT
            first, last = life[buffer]
            start = 0
            for other, other_start, other_end in sorted(placed, key=lambda p: p[1]):
                overlaps = life[other][0] <= last and first <= life[other][1]
                if overlaps and start < other_end and other_start < start + size:
                    start = other_end
            placed.append((buffer, start, start + size))
            self.buffers[buffer] = replace(self.buffers[buffer], offset=start)
        return max((end for _, _, end in placed), default=0)


def expression(expr: Linear, names: list[str]) -> str:
    """A size expression as text: symbols by name, dims as d0, d1, ..."""
    def atom_text(atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return names[atom.position]
        if isinstance(atom, Dim):
            return f"d{atom.position}"
        sign = "//" if isinstance(atom, FloorDiv) else "%"
        assert isinstance(atom, FloorDiv | Mod)
        return f"(({expression(atom.numerator, names)}) {sign} {atom.divisor})"

    parts = [f"{atom_text(a)} * {c}" if c != 1 else atom_text(a) for a, c in expr.terms]
    if expr.constant or not parts:
        parts.append(str(expr.constant))
    return " + ".join(parts)
