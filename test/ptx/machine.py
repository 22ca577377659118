"""Runs a decoded kernel over all threads of a batch of blocks at once.

Threads that are at the same place form one group, executed as a vector. The group with the smallest key (deepest call,
then lowest program counter) runs first and is merged with any group it reaches, which reconverges structured control
flow. Threads that wait for others are parked; when nobody can run and somebody is parked, that is a deadlock.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .decode import Key, Program, Read, Step
from .faults import Fault
from .formats import Array
from .lanes import Lanes, LaneSets
from .memory import LOCAL_BASE, LOCAL_WINDOW, SHARED_BASE, SHARED_WINDOW, WINDOW, Memory, Range, Regions
from .parser import Parser, Register, Variable
from .spaces import AGENTS, ClusterShared, Global, Order, Shared, Space, local_space
from .tensor_map import TensorMap

Dim = int | tuple[int, ...]
PATIENCE = 2000  # groups chosen in a row with others ready, after which the others get turns: lets spin loops end
State = TypeVar("State")


def triple(dim: Dim) -> tuple[int, int, int]:
    sizes = (dim,) if isinstance(dim, int) else tuple(dim)
    return (*sizes, 1, 1, 1)[:3]  # type: ignore[return-value]


@dataclass(frozen=True)
class Report:
    """What a launch did: instructions executed (each for many threads); its part in programmatic dependent launch."""

    steps: int
    waited: bool
    launched_dependents: bool


@dataclass
class Launch:
    """What all batches of one launch share."""

    name: str
    program: Program
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    addresses: dict[Variable, int]
    shared: tuple[Regions, int]
    local: tuple[Regions, int]
    memory: Global
    max_steps: int
    steps: int = 0
    launched_dependents: bool = False

    @property
    def threads(self) -> int:
        """Of a block, rounded up to whole warps."""
        return -(-math.prod(self.block) // 32) * 32

    def linear_block(self, turn: Array) -> Array:
        """Blocks in the order in which they run, cluster by cluster and by rank within, as linear numbers of the grid."""
        size, shape = math.prod(self.cluster), [g // c for g, c in zip(self.grid, self.cluster, strict=True)]
        number, rank = turn // size, turn % size
        result, scale = np.zeros_like(turn), 1
        for grid, many, wide in zip(self.grid, shape, self.cluster, strict=True):
            result += (number % many * wide + rank % wide) * scale
            number, rank, scale = number // many, rank // wide, scale * grid
        return result


class Batch:
    """The running threads of some blocks: their registers, the memory they see, and the scheduler."""

    def __init__(self, launch: Launch, first: int, blocks: int) -> None:
        self.launch: Launch = launch
        self.addresses = launch.addresses
        self.size = blocks * launch.threads
        self.sets = LaneSets(self.size)
        agents = AGENTS if launch.program.asynchronous else 0
        self.order: Order = Order(blocks, launch.threads, math.prod(launch.cluster), agents)
        self.thread: Array = self.order.thread
        self.turn: Array = first + self.order.block
        self.linear_block: Array = launch.linear_block(self.turn)
        self.lane: Array = np.arange(self.size) % 32
        self.registers: list[Any] = [None] * len(launch.program.slots)
        self.defined: list[Lanes | None] = [None] * len(launch.program.slots)
        self.exited = self.thread >= math.prod(launch.block)
        self.alive = self.size - int(self.exited.sum())
        self.globals = launch.memory
        self.globals.enter(self.linear_block)
        self.shared = Shared(*launch.shared, launch.program.grains["shared"], self.order)
        self.cluster_shared = ClusterShared(self.shared)
        self.local = local_space(launch.local[1], launch.local[0], self.size)
        self.ready: dict[Key, Lanes] = {}
        self.parked: dict[Key, Lanes] = {}
        self.key: Key = (0, 0, ())
        self._states: dict[type, Any] = {}
        self._special: dict[str, Array] = {}
        self.on_exit: list[Callable[[], object]] = [lambda: self.cluster_shared.leave(self.exited)]
        self.on_idle: list[Callable[[], bool]] = []  # nobody can go on: let something asynchronous happen, if it may
        self.on_stuck: list[Callable[[], bool]] = []  # and nothing can happen: may somebody go on all the same?
        self.explain: list[Callable[[], list[str]]] = []  # what those who are parked wait for
        self.watch: Callable[[Step, Lanes], None] | None = None  # sees steps that touch registers of wgmma
        self.schedule(self.key, self.sets.of(~self.exited))

    def state(self, kind: type[State]) -> State:
        """The state that one family of instructions keeps for this batch, made on first use as kind(batch)."""
        if kind not in self._states:
            self._states[kind] = kind(self)  # type: ignore[call-arg]
        found: State = self._states[kind]
        return found

    # Registers

    def require(self, register: Register, slot: int, lanes: Lanes) -> None:
        have = self.defined[slot]
        if have is None or not self.sets.inside(lanes, have):
            missing = lanes.mask if have is None else lanes.mask & ~have.mask
            raise Fault(f"never written: register {register.name} is read", int(missing.argmax()))

    def assign(self, slot: int, lanes: Lanes, bits: Array) -> None:
        if bits.shape != (self.size,):
            bits = np.broadcast_to(bits, (self.size,)).copy()
        if lanes.count == self.alive:  # nobody else will ever look
            self.registers[slot], self.defined[slot] = bits, lanes
            return
        old, have = self.registers[slot], self.defined[slot]
        self.registers[slot] = bits if old is None else np.where(lanes.mask, bits, old)
        if have is None:
            self.defined[slot] = lanes
        elif have is not lanes and not have.full:
            self.defined[slot] = self.sets.union(have, lanes)

    def spread(self, lanes: Lanes, values: Array) -> Array:
        """One value for each of the lanes, as a vector over all."""
        if lanes.full:
            return np.ascontiguousarray(values)
        spread = np.zeros(self.size, values.dtype)
        spread[lanes.index] = values
        return spread

    def special(self, name: str, compute: Callable[[], Array]) -> Array:
        if name not in self._special:
            self._special[name] = compute()
        return self._special[name]

    # Memory

    def route(self, space: str, lanes: Lanes, at: Array) -> list[tuple[Space, Lanes, Array]]:
        """Where an access to `space` goes; for generic addresses several places, each with its lanes and addresses."""
        if space == "shared":
            return [(self.shared, lanes, at)]
        if space == "shared::cluster":
            return [(self.cluster_shared, lanes, at)]
        if space == "local":
            return [(self.local, lanes, at)]
        if space != "generic":
            return [(self.globals, lanes, at)]
        parts: list[tuple[Space, Lanes, Array]] = []
        rest = np.ones(len(at), bool)
        shared = self.cluster_shared if self.order.cluster > 1 else self.shared
        for target, window in ((shared, SHARED_WINDOW), (self.local, LOCAL_WINDOW)):
            inside = (at >= window) & (at < window + WINDOW)
            if inside.any():
                parts.append((target, self.only(lanes, inside), at[inside] - window))
                rest &= ~inside
        if rest.any():
            parts.append((self.globals, lanes if rest.all() else self.only(lanes, rest), at[rest]))
        return parts

    def only(self, lanes: Lanes, chosen: Array) -> Lanes:
        """The lanes for which `chosen`, one entry for each of them, holds."""
        mask = np.zeros(self.size, bool)
        mask[lanes.index] = chosen
        return self.sets.of(mask)

    # Scheduling

    def schedule(self, key: Key, lanes: Lanes) -> None:
        if lanes.count:
            there = self.ready.get(key)
            self.ready[key] = lanes if there is None else self.sets.union(there, lanes)

    def after(self, key: Key) -> Key:
        return (key[0], key[1] + 1, key[2])

    def park(self, lanes: Lanes) -> None:
        """The lanes stay at the current instruction until somebody releases them."""
        there = self.parked.get(self.key)
        self.parked[self.key] = lanes if there is None else self.sets.union(there, lanes)

    def unpark(self, key: Key, lanes: Lanes) -> None:
        rest = self.parked[key].mask & ~lanes.mask
        if rest.any():
            self.parked[key] = self.sets.of(rest)
        else:
            del self.parked[key]

    def rendezvous(self, lanes: Lanes, members: Read | None) -> Lanes:
        """For warp-synchronous instructions: the lanes whose partners are all here; the others are parked.

        `members` reads the mask operand; None means all 32 lanes.
        """
        there = self.parked.get(self.key)
        arrived = lanes if there is None else self.sets.union(there, lanes)
        masks = np.asarray(np.uint32(0xFFFFFFFF)) if members is None else members(self, arrived)
        if masks.ndim == 0 and masks == 0xFFFFFFFF and arrived.whole(32, 32):
            if there is not None:
                del self.parked[self.key]
            return arrived
        masks = np.broadcast_to(masks, (self.size,))
        named = (masks >> self.lane.astype(np.uint32)) & np.uint32(1) == 1
        if (outside := arrived.mask & ~named).any():
            raise Fault("divergent warp instruction: its member mask does not name the lane", int(outside.argmax()))
        warp = self.order.warp
        gone = np.packbits(self.exited, bitorder="little").view(np.uint32)[warp]
        if (lost := arrived.mask & (masks & gone != 0)).any():
            raise Fault("divergent warp instruction: a lane named in the member mask is absent", int(lost.argmax()))
        complete = np.zeros(self.size, bool)
        for mask in np.unique(masks[arrived.index]):
            same = arrived.mask & (masks == mask)
            complete |= same & (mask & ~np.packbits(same, bitorder="little").view(np.uint32)[warp] == 0)
        group = self.sets.of(complete)
        self.parked.pop(self.key, None)
        if (waiting := arrived.mask & ~complete).any():
            self.parked[self.key] = self.sets.of(waiting)
        return group

    def proceed(self, lanes: Lanes, group: Lanes) -> list[tuple[Key, Lanes]] | None:
        """The outcome after `rendezvous` of `lanes` gave `group`."""
        return None if group is lanes else [(self.after(self.key), group)]

    def finish(self, lanes: Lanes) -> None:
        self.exited = self.exited | lanes.mask
        self.alive -= lanes.count
        for react in self.on_exit:
            react()

    def run(self) -> None:
        turn = age = 0
        while self.ready or (self.parked and any(react() for react in (*self.on_idle, *self.on_stuck))):
            age += 1
            if age % PATIENCE == 0:  # somebody may be spinning on memory
                for react in self.on_idle:
                    react()
            keys = sorted(self.ready) if len(self.ready) > 1 else list(self.ready)
            turn = turn + 1 if len(keys) > 1 else 0
            chosen = turn // 64 % len(keys) if turn > PATIENCE and turn % 64 == 0 else 0
            self.key = keys[chosen]
            self._advance(self.ready.pop(self.key), keys[chosen + 1] if chosen + 1 < len(keys) else None)
        if self.parked:
            self.key = min(self.parked)
            raise self._placed(self._deadlock(), self.parked[self.key])

    def _advance(self, lanes: Lanes, other: Key | None) -> None:
        """Run one group until it branches, waits, or meets the group at `other`."""
        depth, counter, stack = self.key
        steps, launch = self.launch.program.steps, self.launch
        while True:
            step = steps[counter]
            active = lanes
            launch.steps += 1
            outcome = None
            try:
                if launch.steps > launch.max_steps:
                    raise Fault(f"no end after {launch.max_steps} instructions")
                if step.guard is not None:
                    chosen = step.guard(self, lanes) & lanes.mask
                    count = np.count_nonzero(chosen)
                    if count < lanes.count:
                        active = self.sets.of(chosen)
                if active.count:
                    if step.touches is not None and self.watch is not None:
                        self.watch(step, active)
                    outcome = step.run(self, active)
            except Fault as fault:
                raise self._placed(fault, active) from None
            except Exception as error:
                error.add_note(f"in {launch.name}, line {step.statement.line}: `{step.statement.text}`")
                raise
            counter += 1
            if outcome is not None:
                for key, group in outcome:
                    self.schedule(key, group)
                if active is not lanes:
                    self.schedule((depth, counter, stack), self.sets.of(lanes.mask & ~active.mask))
                return
            self.key = (depth, counter, stack)
            if other is not None and self.key >= other:
                self.schedule(self.key, lanes)
                return

    def _deadlock(self) -> Fault:
        places = []
        for key, lanes in sorted(self.parked.items()):
            text = self.launch.program.steps[key[1]].statement.text
            places.append(f"{lanes.count} at `{text}`")
        first = self.launch.program.steps[self.key[1]].statement.opcode
        kinds = {"bar": "divergent barrier", "mba": "mbarrier"}
        kind = kinds.get(first[:3], "divergent warp instruction")
        reasons = "".join(f"; {reason}" for explain in self.explain for reason in explain())
        return Fault(f"deadlock, {kind}: these wait for threads that exited or wait elsewhere: {', '.join(places)}{reasons}")

    def _placed(self, fault: Fault, lanes: Lanes) -> Fault:
        lane = fault.lane if fault.lane is not None else int(lanes.mask.argmax())
        statement = self.launch.program.steps[self.key[1]].statement
        block, thread = int(self.linear_block[lane]), int(self.thread[lane])
        (gx, gy, _), (bx, by, _) = self.launch.grid, self.launch.block
        fault.place(
            self.launch.name,
            statement.text,
            statement.line,
            (block % gx, block // gx % gy, block // (gx * gy)),
            (thread % bx, thread // bx % by, thread // (bx * by)),
        )
        return fault


class Module:
    def __init__(self, text: str) -> None:
        parsed = Parser(text)
        self.functions, self.variables = parsed.functions, parsed.variables

    @property
    def kernels(self) -> list[str]:
        return [name for name, function in self.functions.items() if function.entry]

    def kernel(self, name: str) -> Kernel:
        """Decode a kernel. Raises KeyError for a name that is not an entry, Unsupported for what is not modelled."""
        if name not in self.kernels:
            raise KeyError(f"need one of the kernels {self.kernels}, but got {name}")
        return Kernel(self, name)


def parse(text: str) -> Module:
    """Read a PTX module."""
    return Module(text)


def _packed(parameter: Variable, value: object) -> bytes:
    if isinstance(value, np.generic | np.ndarray):
        data = value.tobytes()
    elif isinstance(value, bytes):
        data = value
    elif isinstance(value, TensorMap):
        data = value.pack()
    elif isinstance(value, int):
        data = (value & ((1 << 8 * parameter.size) - 1)).to_bytes(parameter.size, "little")
    elif isinstance(value, float) and parameter.size in (4, 8):
        data = struct.pack("<f" if parameter.size == 4 else "<d", value)
    else:
        raise TypeError(f"{parameter.name}: need {parameter.size} bytes, but got {value!r}")
    if len(data) != parameter.size:
        raise TypeError(f"{parameter.name}: need {parameter.size} bytes, but got {len(data)}: {value!r}")
    return data


class Kernel:
    """One entry, decoded; launch it as often as you like."""

    def __init__(self, module: Module, name: str) -> None:
        self.module, self.name = module, name
        self.function = module.functions[name]
        self.program = Program(module.functions, name)

    def launch(
        self,
        *,
        memory: Memory,
        args: Sequence[object] = (),
        grid: Dim = 1,
        block: Dim | None = None,
        cluster: Dim | None = None,
        shared_bytes: int = 0,
        pending: Sequence[Range] = (),
        cross_block: Sequence[Range] = (),
        batch_threads: int = 8192,
        max_steps: int = 5_000_000,
    ) -> Report:
        """Run to the end or to the first `Fault`.

        args: one for each parameter: int (a pointer, or any integer of the parameter's size), float (.f32, .f64), NumPy
            scalar or array, bytes, or a TensorMap for 128 bytes.
        block: threads; by default the kernel's `.reqntid`.
        cluster: blocks; by default the kernel's `.reqnctapercluster`, or else 1. The blocks of a cluster run together.
        shared_bytes: of dynamic shared memory.
        pending: buffers that the previous kernel may still be writing until griddepcontrol.wait.
        cross_block: buffers through which blocks may talk to each other.
        batch_threads: how many threads run at the same time; blocks that wait for each other must fit.
        max_steps: instructions (each for many threads) after which the kernel counts as endless.
        """
        required = self.function.block
        if block is None and required is None:
            raise ValueError(f"{self.name} has no .reqntid: need block=")
        sizes = triple(block) if block is not None else required
        if required is not None and sizes != required:
            raise ValueError(f"{self.name} requires blocks of {required}, but got {sizes}")
        assert sizes is not None
        if math.prod(sizes) > 1024:
            raise ValueError(f"need at most 1024 threads a block, but got {sizes}")
        grid, clusters = triple(grid), self._cluster(cluster, triple(grid))
        if len(args) != len(self.function.parameters):
            raise TypeError(f"{self.name}: need {len(self.function.parameters)} arguments, but got {len(args)}")
        addresses = self._globals(memory, args)
        shared = self._layout("shared", SHARED_BASE, shared_bytes, addresses)
        local = self._layout("local", LOCAL_BASE, 0, addresses)
        blocks, size = math.prod(grid), math.prod(clusters)
        view = Global(memory, self.program.grains["global"], blocks, list(pending), list(cross_block))
        launch = Launch(self.name, self.program, grid, sizes, clusters, addresses, shared, local, view, max_steps)
        waited = True
        together = max(1, batch_threads // (launch.threads * size)) * size
        with np.errstate(all="ignore"):
            for first in range(0, blocks, together):
                Batch(launch, first, min(together, blocks - first)).run()
                waited &= bool(view.waited.any())
        return Report(launch.steps, waited, launch.launched_dependents)

    def _cluster(self, asked: Dim | None, grid: tuple[int, int, int]) -> tuple[int, int, int]:
        required = self.function.cluster
        if asked is None and required is None and self.function.explicit_cluster:
            raise ValueError(f"{self.name} has .explicitcluster: need cluster=")
        sizes = triple(asked) if asked is not None else required or (1, 1, 1)
        if required is not None and sizes != required:
            raise ValueError(f"{self.name} requires clusters of {required}, but got {sizes}")
        if not 1 <= math.prod(sizes) <= 16:
            raise ValueError(f"need at most 16 blocks a cluster, but got {sizes}")
        if any(blocks % many for blocks, many in zip(grid, sizes, strict=True)):
            raise ValueError(f"{self.name}: need a grid of whole clusters of {sizes}, but got {grid}")
        return sizes

    def _globals(self, memory: Memory, args: Sequence[object]) -> dict[Variable, int]:
        """Place arguments and module variables in global memory."""
        addresses = {}
        for variable in self.program.variables:
            if variable.space in ("global", "const"):
                readonly = variable.space == "const"
                addresses[variable] = memory.symbol((self.module, variable), variable.data, variable.align, readonly)
        for variable, value in zip(self.function.parameters, args, strict=True):
            data = _packed(variable, value)
            addresses[variable] = memory.symbol((self.module, variable), data, variable.align, True)
            memory.write(addresses[variable], np.frombuffer(data, np.uint8))
        return addresses

    def _layout(self, space: str, top: int, dynamic: int, addresses: dict[Variable, int]) -> tuple[Regions, int]:
        """Place the variables of `space`, with gaps. Returns their ranges and the bytes they take above the base."""
        regions, base = Regions(), top
        used = [variable for variable in self.program.variables if variable.space == space]
        for variable in sorted(used, key=lambda each: each.dynamic):
            top = -(-top // max(variable.align, 16)) * max(variable.align, 16)
            addresses[variable] = top
            if variable.dynamic:
                continue
            regions.add(top, variable.size)
            top += variable.size + 128
        if dynamic and any(variable.dynamic for variable in used):
            regions.add(top, dynamic)
            top += dynamic
        return regions, top - base
