"""From statements to closures, by a table: `@instruction("name")` over one function per mnemonic.

A decoder function takes the modifiers it understands off the `Decoder`; whatever is left over is refused, so that
nothing is ever skipped. It returns a `Run`, which executes the instruction for a set of lanes and returns None to go
on, or where its lanes go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .faults import Unsupported
from .formats import STORAGE, TYPES, Array, Type
from .lanes import Lanes
from .parser import Address, Function, Immediate, Name, Not, Operand, Pair, Register, Statement, Variable, Vector
from .special import SPECIAL

if TYPE_CHECKING:
    from .machine import Batch

Key = tuple[int, int, tuple[int, ...]]
"""Where threads are: (minus the call depth, program counter, return addresses). The smallest key runs first."""

Run = Callable[["Batch", Lanes], "list[tuple[Key, Lanes]] | None"]
Read = Callable[["Batch", Lanes], Array]
Write = Callable[["Batch", Lanes, Array], None]

Decode = Callable[["Decoder"], "Run | list[Run]"]

_TABLE: dict[str, list[tuple[bool | None, Decode]]] = {}


def instruction(*names: str, floating: bool | None = None) -> Callable[[Decode], Decode]:
    """Register a decoder for mnemonics (longer dotted ones win), for all types or only for (non-)floating ones."""

    def register(function: Decode) -> Decode:
        for name in names:
            _TABLE.setdefault(name, []).append((floating, function))
        return function

    return register


@dataclass(slots=True)
class Step:
    run: Run
    guard: Read | None
    statement: Statement
    touches: Array | None = None  # the numbers of the wgmma registers that it reads or writes, unless it is a wgmma


class Program:
    """One kernel and the functions it calls, decoded: `steps`, and what a launch must lay out for them."""

    def __init__(self, functions: dict[str, Function], name: str) -> None:
        self.functions = functions
        self.slots: dict[object, int] = {}
        self.variables: dict[Variable, None] = {}  # in order of first use
        self.grains = {"shared": 16, "global": 32}
        self.fragments: dict[int, int] = {}  # slots that wgmma uses, numbered
        self.asynchronous = False  # whether mbarrier, bulk copies or wgmma are used
        self.entries: dict[str, int] = {}
        self.steps: list[Step] = []
        self.called = [name]
        for each in self.called:  # grows while it runs
            self._function(functions[each])
        self._refuse_recursion(name, ())
        for step in self.steps if self.fragments else ():
            if not step.statement.opcode.startswith("wgmma.mma_async"):
                used = {self.slots.get(each, -1) for each in registers(step.statement.operands)} & self.fragments.keys()
                step.touches = np.array(sorted(self.fragments[slot] for slot in used)) if used else None

    def _function(self, function: Function) -> None:
        if function.refused:
            raise Unsupported(f"{', '.join('.' + each for each in function.refused)} of {function.name}")
        self.entries[function.name] = len(self.steps)
        starts: list[int] = []
        for statement in function.statements:
            starts.append(len(self.steps))
            decoder = Decoder(self, function, statement, starts)
            self.steps += [Step(run, decoder.guard, statement) for run in decoder.decode()]
        end = Statement("ret", (), None, "ret (end of body)", 0)
        starts.append(len(self.steps))
        self.steps.append(Step(Decoder(self, function, end, starts).decode()[0], None, end))

    def _refuse_recursion(self, name: str, callers: tuple[str, ...]) -> None:
        if name in callers:
            raise Unsupported(f"recursion: {' calls '.join([*callers, name])}")
        for statement in self.functions[name].statements:
            for each in statement.operands if statement.opcode.startswith("call") else ():
                if isinstance(each, Name):
                    self._refuse_recursion(each.name, (*callers, name))

    def slot(self, key: object) -> int:
        return self.slots.setdefault(key, len(self.slots))

    def touches(self, space: str, nbytes: int) -> None:
        for name in self.grains:
            if space.removesuffix("::cluster") in (name, "generic"):
                self.grains[name] = min(self.grains[name], nbytes)

    def stored(self, variable: Variable) -> dict[tuple[int, int], Register]:
        """The pieces (offset, bits) in which a call parameter is passed; each travels in a register of its own."""
        prefix = f"{variable.function}:{variable.name}+"
        found = [key for key in self.slots if isinstance(key, Register) and key.name.startswith(prefix)]
        return {(int(key.name.removeprefix(prefix)), key.width): key for key in found}


class Decoder:
    """One statement being decoded: its modifiers, and readers and writers for its operands."""

    def __init__(self, program: Program, function: Function, statement: Statement, starts: list[int]) -> None:
        self.program, self.function, self.statement, self.starts = program, function, statement, starts
        self.operands = statement.operands
        self.mnemonic, *self.modifiers = statement.opcode.split(".")
        self.guard: Read | None = None

    def decode(self) -> list[Run]:
        try:
            if self.statement.guard is not None:
                self.guard = self.reader(self.statement.guard, TYPES["pred"])
            found = self._look_up()(self)
            if self.modifiers:
                raise Unsupported(f"modifier {', '.join('.' + each for each in self.modifiers)}")
        except Unsupported as error:
            where = f"{self.function.name}, line {self.statement.line}: `{self.statement.text}`"
            raise Unsupported(f"{error} ({where})") from None
        return found if isinstance(found, list) else [found]

    def _look_up(self) -> Decode:
        parts = [self.mnemonic, *self.modifiers]
        types = [TYPES[each] for each in self.modifiers if each in TYPES]
        for length in range(len(parts), 0, -1):
            for floating, function in _TABLE.get(".".join(parts[:length]), []):
                if floating is None or (types and types[-1].floating == floating):
                    self.mnemonic, self.modifiers = ".".join(parts[:length]), parts[length:]
                    return function
        raise Unsupported("unknown instruction")

    # Modifiers

    def take(self, *names: str) -> str:
        """Remove and return whichever of the modifiers is there, or ""."""
        for name in names:
            if name in self.modifiers:
                self.modifiers.remove(name)
                return name
        return ""

    def need(self, *names: str) -> str:
        found = self.take(*names)
        if not found:
            raise Unsupported(f"need one of {', '.join('.' + name for name in names)}")
        return found

    def type(self) -> Type:
        """Remove and return the last type."""
        for at in range(len(self.modifiers) - 1, -1, -1):
            if self.modifiers[at] in TYPES:
                return TYPES[self.modifiers.pop(at)]
        raise Unsupported("need a type")

    # Operands

    def expect(self, *counts: int) -> int:
        if len(self.operands) not in counts:
            raise Unsupported(f"need {' or '.join(map(str, counts))} operands, but got {len(self.operands)}")
        return len(self.operands)

    def vector(self, at: int, count: int | None = None) -> tuple[Operand, ...]:
        """The parts of a `{...}` operand; a plain operand is a vector of one."""
        operand = self.operands[at]
        parts = operand.items if isinstance(operand, Vector) else (operand,)
        if count not in (None, len(parts)):
            raise Unsupported(f"need {count} registers, but got {len(parts)}")
        return parts

    def constant(self, at: int) -> int:
        operand = self.operands[at]
        if not isinstance(operand, Immediate) or operand.width:
            raise Unsupported(f"operand {at} must be an integer constant")
        return operand.bits

    def reader(self, operand: Operand | int, kind: Type, wider: bool = False) -> Read:
        """Reads an operand (or the operand of that number) as `kind`; `wider` allows registers of more bits than that.

        A register gives (lanes,) values, a constant a scalar, packed types a last axis of 2.
        """
        operand = self.operands[operand] if isinstance(operand, int) else operand
        if isinstance(operand, Not):
            inner = self.reader(operand.operand, kind)
            return lambda batch, lanes: ~inner(batch, lanes)
        if isinstance(operand, Immediate):
            value = kind.decode(immediate(operand, kind))
            return lambda batch, lanes: value
        if isinstance(operand, Variable):
            return self._variable(operand, kind)
        if isinstance(operand, Name):
            return self._special(operand.name, kind)
        if not isinstance(operand, Register):
            raise Unsupported(f"operand {operand} where a {kind.name} value is needed")
        if operand.width != kind.width and not (wider and operand.width > kind.width > 1):
            raise Unsupported(f"{operand.name} has {operand.width} bits where {kind.name} is needed")
        slot, register = self.program.slot(operand), operand
        truncate, view, storage = operand.width != kind.width, kind.view, kind.storage

        def raw(batch: Batch, lanes: Lanes) -> Array:
            have = batch.defined[slot]
            if have is not lanes and (have is None or not have.full):
                batch.require(register, slot, lanes)
            return batch.registers[slot]

        if truncate:
            return lambda batch, lanes: kind.decode(raw(batch, lanes).astype(storage))
        if not kind.native:
            return lambda batch, lanes: kind.decode(raw(batch, lanes))
        if view == storage:
            return raw

        def native(batch: Batch, lanes: Lanes) -> Array:
            have = batch.defined[slot]
            if have is not lanes and (have is None or not have.full):
                batch.require(register, slot, lanes)
            return batch.registers[slot].view(view)

        return native

    def _variable(self, variable: Variable, kind: Type) -> Read:
        if variable.space == "param" or kind.width < 32:
            raise Unsupported(f"the address of {variable.name} as {kind.name}")
        self.program.variables[variable] = None
        return lambda batch, lanes: np.asarray(batch.addresses[variable]).astype(kind.storage).view(kind.view)

    def _special(self, name: str, kind: Type) -> Read:
        value = SPECIAL.get(name)
        if value is None or kind.width < 32:
            raise Unsupported(f"register {name}")
        return lambda batch, lanes: value(batch).astype(kind.storage).view(kind.view)

    def writer(self, operand: Operand | int, kind: Type, wider: bool = False) -> Write:
        """Writes values as `reader` gives them. `wider` extends into a larger register, by sign for s types."""
        operand = self.operands[operand] if isinstance(operand, int) else operand
        if operand == Name("_"):
            return lambda batch, lanes, values: None
        if not isinstance(operand, Register):
            raise Unsupported(f"destination {operand}")
        if operand.width != kind.width and not (wider and operand.width > kind.width > 1):
            raise Unsupported(f"{operand.name} has {operand.width} bits where {kind.name} is written")
        slot, encode = self.program.slot(operand), kind.encode
        if operand.width != kind.width:
            extended = np.dtype(f"{'i' if kind.kind == 's' else 'u'}{operand.width // 8}")
            storage = STORAGE[operand.width]

            def extend(batch: Batch, lanes: Lanes, values: Array) -> None:
                batch.assign(slot, lanes, encode(values).view(kind.view).astype(extended).view(storage))

            return extend
        if kind.native:
            view, storage = kind.view, kind.storage

            def native(batch: Batch, lanes: Lanes, values: Array) -> None:
                batch.assign(slot, lanes, (values if values.dtype == view else values.astype(view)).view(storage))

            return native
        return lambda batch, lanes, values: batch.assign(slot, lanes, encode(values))

    def address(self, at: int, rest: bool = False) -> Read:
        """Reads an `[address]` operand as int64, one entry for each of the lanes only. `rest`: more may follow in it."""
        operand = self.operands[at]
        if not isinstance(operand, Address) or (operand.rest and not rest):
            raise Unsupported(f"operand {operand} where an address is needed")
        base, offset = operand.base, operand.offset
        wide = TYPES["u32"] if isinstance(base, Register) and base.width == 32 else TYPES["s64"]
        read = self.reader(base, wide)
        if isinstance(base, Register):
            return lambda batch, lanes: read(batch, lanes)[lanes.index].astype(np.int64) + offset
        return lambda batch, lanes: np.full(lanes.count, int(read(batch, lanes)) + offset, np.int64)

    def piece(self, operand: Operand, extra: int, width: int) -> Register | None:
        """The register in which `[parameter + offset]` of a call travels, or None for any other address."""
        if not isinstance(operand, Address) or not isinstance(operand.base, Variable) or operand.base.space != "param":
            return None
        variable = operand.base
        return Register(0, f"{variable.function}:{variable.name}+{operand.offset + extra}", width)


def registers(operands: Iterable[Operand]) -> Iterator[Register]:
    """Those that the operands name."""
    for each in operands:
        if isinstance(each, Register):
            yield each
        elif isinstance(each, Vector):
            yield from registers(each.items)
        elif isinstance(each, Address):
            yield from registers((each.base, *each.rest))
        elif isinstance(each, Not):
            yield from registers((each.operand,))
        elif isinstance(each, Pair):
            yield from registers((each.first, each.second))


def immediate(operand: Immediate, kind: Type) -> Array:
    """The literal as bits of `kind`; a 0d literal narrows where a 32-bit float is asked for."""
    bits = operand.bits
    if operand.width and operand.width != kind.width:
        if kind.name != "f32":
            raise Unsupported(f"a {operand.width}-bit float literal as {kind.name}")
        return np.asarray(bits, np.uint64).view(np.float64).astype(np.float32).view(np.uint32)
    if kind.width == 1:
        return np.asarray(bool(bits))
    if kind.floating and not operand.width and kind.native:
        raise Unsupported(f"an integer literal as {kind.name}")
    if not -(1 << (kind.width - 1)) <= bits < 1 << kind.width:
        raise Unsupported(f"the literal {bits} does not fit {kind.name}")
    return np.asarray(bits & ((1 << kind.width) - 1), kind.storage)


def elementwise(at: Decoder, function: Callable[..., Array], result: Type, *sources: Type, wider: bool = False) -> Run:
    """destination = function(sources...), for the many instructions that are no more than that."""
    at.expect(len(sources) + 1)
    write = at.writer(0, result, wider)
    reads = [at.reader(place + 1, kind, wider) for place, kind in enumerate(sources)]
    if len(reads) == 1:
        (first,) = reads
        return lambda batch, lanes: write(batch, lanes, function(first(batch, lanes)))
    if len(reads) == 2:
        first, second = reads
        return lambda batch, lanes: write(batch, lanes, function(first(batch, lanes), second(batch, lanes)))
    if len(reads) == 3:
        first, second, third = reads
        return lambda batch, lanes: write(
            batch, lanes, function(first(batch, lanes), second(batch, lanes), third(batch, lanes))
        )
    return lambda batch, lanes: write(batch, lanes, function(*(read(batch, lanes) for read in reads)))
