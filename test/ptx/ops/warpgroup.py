"""wgmma: products of four warps, which read shared memory and write registers only at their wait.

Meanwhile nobody may write that shared memory, nor touch these registers. A product that one warp has waited for has read
all that its warpgroup reads; each warp has its own registers back at its own wait. A is 64 x k and B is k x n, k being 32
bytes of elements. In shared memory they are made of 16-byte chunks, along k (K-major) or the other axis (MN-major).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Key, Run, Step, instruction
from ..faults import Fault, Unsupported
from ..formats import TYPES, Array
from ..lanes import Lanes
from ..memory import SHARED_BASE
from ..parser import Operand, Register, Vector
from ..spaces import TIME
from .bulk import swizzled
from .tensor import GROUP, MEMBER, elements

if TYPE_CHECKING:
    from ..machine import Batch

Outcome = list[tuple[Key, Lanes]] | None
B32, F32, B64, PRED = TYPES["b32"], TYPES["f32"], TYPES["b64"], TYPES["pred"]
SPANS = np.array([16, 128, 64, 32])  # bytes of a row of a swizzled tile, by bits 62 and 63 of a descriptor
RESERVED = ~(0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62) % (1 << 64)
IDLE, FRAGMENT = 0, -1  # roles of a register; positive: an accumulator, the same number for the same list and shape


@dataclass(frozen=True)
class Form:
    """An instruction, as far as it is known before it runs. `first`: the slots of A, if A is in registers."""

    n: int
    kind: str
    accumulators: tuple[int, ...]
    first: tuple[int, ...]
    signs: int
    along: tuple[bool, bool]  # whether A and B are MN-major

    @property
    def k(self) -> int:
        return 8 if self.kind == "tf32" else 16


@dataclass(eq=False)
class Product:
    """One execution of it by warpgroups: where A and B are, by warpgroup, and whether it adds to what is there."""

    form: Form
    adds: dict[int, bool]
    first: dict[int, Array]
    second: dict[int, Array]
    grains: dict[int, Array]
    landed: dict[int, int] = field(default_factory=dict)  # the token of each warpgroup that is done


class Warpgroups:
    """Who uses which register of wgmma since when; times are numbers of steps. Numbers of registers, then warps."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        launch = batch.launch
        self.each = -(-launch.threads // 128)
        self.group = batch.order.block * self.each + batch.order.thread // 128
        shape = (len(launch.program.fragments), batch.size // 32)
        self.flying, self.role = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        self.touched, self.fenced = np.zeros(shape, np.int64), np.full(shape[1], -1)
        self.roles: dict[tuple[int, tuple[int, ...]], int] = {}
        self.open: list[list[Product]] = [[] for _ in range(shape[1])]
        self.groups: list[list[list[Product]]] = [[] for _ in range(shape[1])]
        batch.watch = self.touch

    def touch(self, step: Step, lanes: Lanes) -> None:
        """Any other instruction uses registers. A plain `mov` leaves it to the assembler where the value is."""
        assert step.touches is not None
        place = np.ix_(step.touches, lanes.warps)
        if self.flying[place].any():
            warp = int(lanes.warps[self.flying[place].any(axis=0).argmax()])
            text = "wgmma in flight: it owns a register that is used here before wgmma.wait_group"
            raise Fault(text, warp * 32 + int(lanes.mask[warp * 32 :].argmax()))
        if not step.statement.opcode.startswith("mov."):
            self.touched[place] = self.batch.launch.steps

    def warps(self, groups: Array) -> Array:
        block, place = groups // self.each, groups % self.each
        first = (block * self.batch.launch.threads + 128 * place) // 32
        return np.asarray((first[:, None] + np.arange(4)).ravel())

    def gather(self, lanes: Lanes) -> Lanes:
        """Those of the lanes, and of the ones parked here, whose warpgroups are complete. Parks the rest."""
        batch = self.batch
        there = batch.parked.pop(batch.key, None)
        arrived = lanes if there is None else batch.sets.union(there, lanes)
        count = np.bincount(self.group[arrived.index], minlength=int(self.group[-1]) + 1)
        complete = batch.sets.of(arrived.mask & (count == 128)[self.group])
        if complete.count < arrived.count:
            rest = arrived.mask & ~complete.mask
            gone = np.isin(self.group, self.group[rest]) & batch.exited
            if gone.any() or (np.bincount(self.group)[self.group] < 128)[rest].any():
                raise Fault("divergent warp instruction: a part of this warpgroup is absent", int(rest.argmax()))
            batch.park(batch.sets.of(rest))
        return lanes if complete is lanes else complete

    def uniform(self, lanes: Lanes, groups: Array, values: Array, what: str) -> Array:
        """One value for each of the warpgroups."""
        values = np.broadcast_to(values, (self.batch.size,))[lanes.index].reshape(len(groups), 128)
        if (differs := values != values[:, :1]).any():
            raise Fault(f"wgmma: {what} differs within a warpgroup", int(lanes.numbers[differs.argmax()]))
        return np.asarray(values[:, 0])

    def place(self, slots: tuple[int, ...], warps: Array) -> tuple[Array, ...]:
        """Where in the tables these registers of these warps are."""
        numbers = self.batch.launch.program.fragments
        return np.ix_(np.array([numbers[slot] for slot in slots], int), warps)

    def take(self, form: Form, lanes: Lanes) -> Array:
        """Claim the registers. Returns, by accumulator and warp, whether they are free of other products."""
        warps = lanes.warps
        if (early := self.fenced[warps] < 0).any():
            raise Fault("no wgmma.fence before the first wgmma", int(warps[early.argmax()]) * 32)
        mine = self.roles.setdefault((form.n, form.accumulators), len(self.roles) + 1)
        uses = ((self.place(form.accumulators, warps), mine), (self.place(form.first, warps), FRAGMENT))
        for place, role in uses:
            if ((self.role[place] != IDLE) & (self.role[place] != role)).any():
                raise Fault("wgmma in flight: it owns a register that this one uses otherwise", int(warps[0]) * 32)
            late: Array = self.touched[place] > self.fenced[warps]
            if late.any():
                warp = int(warps[late.any(axis=0).argmax()])
                raise Fault("no wgmma.fence since a register that wgmma uses here was used otherwise", warp * 32)
        free = np.asarray(self.role[uses[0][0]] == IDLE)
        for place, role in uses:
            self.flying[place] += 1
            self.role[place] = role
        return free

    def release(self, form: Form, warps: Array) -> None:
        place = self.place((*form.accumulators, *form.first), warps)
        self.flying[place] -= 1
        self.role[place] = np.where(self.flying[place] > 0, self.role[place], IDLE)

    def wait(self, lanes: Lanes, pending: int) -> None:
        """Complete all but the last `pending` groups of the warps in `lanes`."""
        done: dict[Product, list[int]] = {}
        for warp in lanes.warps:
            groups = self.groups[warp]
            for product in (each for group in groups[: max(len(groups) - pending, 0)] for each in group):
                done.setdefault(product, []).append(int(warp))
            self.groups[warp] = groups[max(len(groups) - pending, 0) :]
        known = self.batch.order.known
        for product, warps in done.items():
            due = {int(self.group[warp * 32]) for warp in warps} - product.landed.keys()
            if due:
                self.land(product, np.array(sorted(due)))
            self.release(product.form, np.array(warps))
            for warp in warps:
                group = int(self.group[warp * 32])
                known[warp, self.column(group)] = product.landed[group] >> TIME

    def land(self, product: Product, groups: Array) -> None:
        """Compute the product for these warpgroups."""
        batch, form, order = self.batch, product.form, self.batch.order
        lanes = batch.sets.of(np.isin(self.group, groups))
        second = self.matrix(form, product.second, groups, form.n, form.along[1])
        if form.first:
            first = np.zeros((len(groups) * 4, 16, form.k))
            per = 1 if form.kind == "tf32" else 2
            for place, slot in enumerate(form.first):
                along = MEMBER[:, None] * per + np.arange(per) + 4 * per * (place // 2)
                values = elements(batch.registers[slot][lanes.index].reshape(-1, 32), form.kind)
                first[:, GROUP[:, None] + 8 * (place % 2), along] = values
            first = first.reshape(len(groups), 64, form.k)
        else:
            first = self.matrix(form, product.first, groups, 64, form.along[0])
        result = form.signs * np.matmul(first, second.transpose(0, 2, 1))
        # rows are warp, half, group; columns block, member, element; registers block, half, element
        result = result.reshape(len(groups), 4, 2, 8, form.n // 8, 4, 2).transpose(4, 2, 6, 0, 1, 3, 5)
        result = result.reshape(len(form.accumulators), -1)
        adds = np.repeat([product.adds[int(each)] for each in groups], 128)
        for slot, column in zip(form.accumulators, result, strict=True):
            old = batch.registers[slot]
            total = column if old is None else column + np.where(adds, old.view(np.float32)[lanes.index], 0)
            batch.assign(slot, lanes, batch.spread(lanes, total.astype(np.float32).view(np.uint32)))
        for each in (int(group) for group in groups):
            product.landed[each] = token = order.happen(self.column(each))
            batch.shared.give_back(product.grains[each], token)
            order.publish_agent(each // self.each, self.column(each), token)

    def column(self, group: int) -> int:
        """Of a warpgroup as an asynchronous agent."""
        return self.batch.order.agent(group // self.each, group % self.each)

    def matrix(self, form: Form, where: dict[int, Array], groups: Array, rows: int, along: bool) -> Array:
        """(warpgroups, rows, k) elements out of chunks of shared memory."""
        chunks = self.batch.shared.data.reshape(-1, 16)[np.stack([where[int(each)] for each in groups]) // 16]
        words = chunks.view(np.uint32).reshape(len(groups), -1)
        values = elements(words, form.kind).reshape(len(groups), -1)
        if along:
            return values.reshape(len(groups), form.k, rows).transpose(0, 2, 1)
        return values.reshape(len(groups), rows, form.k)


def chunks(descriptor: int, rows: int, along: bool, lane: int) -> Array:
    """The shared addresses of the 16-byte chunks of a matrix: for each row two, or for each of 16 k rows / 8."""
    if descriptor & RESERVED or descriptor >> 49 & 7:
        raise Fault(f"wgmma: the descriptor {descriptor:#x} has bits that must be zero, or a base offset", lane)
    start, leading, stride = ((descriptor >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    span = int(SPANS[descriptor >> 62])
    if not along:
        row, chunk = np.arange(rows)[:, None], np.arange(2)
        at = start + row % 8 * span + row // 8 * stride + chunk * (leading if span == 16 else 16)
    else:
        k, chunk, per = np.arange(16)[:, None], np.arange(rows // 8), span // 16
        over, down = (stride, leading) if span == 16 else (leading, stride)
        at = start + k % 8 * span + k // 8 * down + chunk % per * 16 + chunk // per * over
    return swizzled(at.ravel(), span)


@instruction("wgmma.mma_async.sync")
def product(at: Decoder) -> Run:
    at.need("aligned")
    shape = next((each for each in at.modifiers if re.fullmatch(r"m64n\d+k\d+", each)), "")
    at.need(shape)
    n, k = (int(each) for each in re.findall(r"\d+", shape)[1:])
    kind = next((each for each in ("bf16", "f16", "tf32") if at.modifiers.count(each) == 2), "")
    types, at.modifiers = at.modifiers, []
    if types != ["f32", kind, kind] or k != (8 if kind == "tf32" else 16) or n % 8 or not 8 <= n <= 256:
        raise Unsupported(f"the types {' '.join(types)} at {shape}")
    from_registers = isinstance(at.operands[1], Vector)
    majors = 0 if kind == "tf32" else 1 if from_registers else 2
    at.expect(6 + majors)
    signs = [at.constant(place) for place in (4, 5)]
    flags = [False] * (2 - majors) + [bool(at.constant(6 + place)) for place in range(majors)]
    if any(sign not in (1, -1) for sign in signs):
        raise Unsupported(f"the scales {signs}")
    outputs, inputs = at.vector(0, n // 2), at.vector(1, 4) if from_registers else ()
    reads = [at.reader(each, F32) for each in outputs]
    first_reads = [at.reader(each, B32) for each in inputs] or [at.reader(1, B64)]
    second, adds = at.reader(2, B64), at.reader(3, PRED)
    accumulators, fragments = numbered(at, outputs), numbered(at, inputs)
    form = Form(n, kind, accumulators, fragments, signs[0] * signs[1], (flags[0], flags[1]))
    if len({*accumulators, *fragments}) < len(accumulators) + len(fragments):
        raise Unsupported("one register in two places")
    at.program.touches("shared", 16)
    at.program.asynchronous = True

    def run(batch: Batch, lanes: Lanes) -> Outcome:
        state = batch.state(Warpgroups)
        group = state.gather(lanes)
        if group.count:
            issue(batch, state, group)
        return None if group is lanes else [(batch.after(batch.key), group)]

    def issue(batch: Batch, state: Warpgroups, lanes: Lanes) -> None:
        groups = np.unique(state.group[lanes.index])
        adding = state.uniform(lanes, groups, adds(batch, lanes), "scale-d")
        free = state.take(form, lanes)
        for read, fresh in zip(reads, free, strict=True):
            some = fresh & np.repeat(adding, 4)
            if some.any():
                read(batch, batch.sets.of(lanes.mask & np.isin(batch.order.warp, lanes.warps[some])))
        found: list[dict[int, Array]] = [{}, {}]
        for part, read, rows, along in ((0, first_reads[0], 64, flags[0]), (1, second, n, flags[1])):
            if part == 0 and from_registers:
                for one in first_reads:
                    one(batch, lanes)
                continue
            descriptors = state.uniform(lanes, groups, read(batch, lanes), "a descriptor")
            for each, descriptor in zip(groups, descriptors, strict=True):
                found[part][int(each)] = locate(batch, state, int(each), int(descriptor), rows, along)
        grains = {}
        for each in (int(each) for each in groups):
            where = np.concatenate([places[each] for places in found if each in places])
            grains[each] = batch.shared.lend(where, state.warps(np.array([each])) * 32)
        adds_by = dict(zip((int(each) for each in groups), (bool(each) for each in adding), strict=True))
        new = Product(form, adds_by, found[0], found[1], grains)
        for warp in lanes.warps:
            state.open[warp].append(new)

    return run


def numbered(at: Decoder, operands: tuple[Operand, ...]) -> tuple[int, ...]:
    """The slots of registers, which from now on are known as registers of wgmma."""
    slots = []
    for each in operands:
        if not isinstance(each, Register):
            raise Unsupported(f"{each} where wgmma needs a register")
        slots.append(at.program.slot(each))
        at.program.fragments.setdefault(slots[-1], len(at.program.fragments))
    return tuple(slots)


def locate(batch: Batch, state: Warpgroups, group: int, descriptor: int, rows: int, along: bool) -> Array:
    """Where in the shared memory of the batch the chunks of a matrix are."""
    lane = int(state.warps(np.array([group]))[0]) * 32
    at = chunks(descriptor, rows, along, lane)
    try:
        batch.shared.regions.check("shared", at, 16, 16)
    except Fault as fault:
        fault.lane = lane
        raise
    return at - SHARED_BASE + group // state.each * batch.shared.stride


def by_warp(at: Decoder, act: object) -> Run:
    """Do something for the whole warps that have arrived."""
    at.need("sync"), at.need("aligned")
    at.program.asynchronous = True

    def run(batch: Batch, lanes: Lanes) -> Outcome:
        group = batch.rendezvous(lanes, None)
        if group.count:
            act(batch.state(Warpgroups), group)  # type: ignore[operator]
        return batch.proceed(lanes, group)

    return run


@instruction("wgmma.fence")
def fence(at: Decoder) -> Run:
    at.expect(0)

    def act(state: Warpgroups, lanes: Lanes) -> None:
        state.fenced[lanes.warps] = state.batch.launch.steps

    return by_warp(at, act)


@instruction("wgmma.commit_group")
def commit(at: Decoder) -> Run:
    at.expect(0)

    def act(state: Warpgroups, lanes: Lanes) -> None:
        for warp in lanes.warps:
            state.groups[warp].append(state.open[warp])
            state.open[warp] = []

    return by_warp(at, act)


@instruction("wgmma.wait_group")
def wait(at: Decoder) -> Run:
    pending = at.constant(at.expect(1) - 1)
    return by_warp(at, lambda state, lanes: state.wait(lanes, pending))


@instruction("setmaxnreg")
def registers(at: Decoder) -> Run:
    at.need("inc", "dec"), at.need("u32")
    count = at.constant(at.expect(1) - 1)
    if count % 8 or not 24 <= count <= 256:
        raise Unsupported(f"{count} registers, not a multiple of 8 from 24 to 256")
    return by_warp(at, lambda state, lanes: None)
