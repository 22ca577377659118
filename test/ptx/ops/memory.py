"""Loads, stores and atomics. Cache hints change nothing here; `.nc` and the memory order decide what is a race."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, Run, instruction
from ..faults import Unsupported
from ..formats import TYPES, Array, Type, select
from ..lanes import Lanes
from ..parser import Name
from ..spaces import Access

if TYPE_CHECKING:
    from ..machine import Batch

STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys", "cluster")
EVICTION = ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")
HINTS = ["ca", "cg", "cs", "lu", "cv", "wb", "wt", "L2::64B", "L2::128B", "L2::256B"]
HINTS += [f"{level}::{each}" for level in ("L1", "L2") for each in EVICTION]


def space(at: Decoder) -> str:
    names = ("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param")
    return (at.take(*names) or "generic").removesuffix("::cta")


def order(at: Decoder) -> bool:
    """Remove memory order, scope and cache hints; whether the access is strong."""
    at.take("weak")
    strong = at.take(*STRONG)
    at.take(*SCOPES)
    while at.take(*HINTS):
        pass
    return bool(strong)


def access(at: Decoder) -> tuple[str, Access, int, Type]:
    """The space, access, number of elements and element type of a load or store."""
    where, strong, coherent = space(at), order(at), not at.take("nc")
    count = int((at.take("v2", "v4", "v8") or "v1")[1:])
    kind = at.type()
    nbytes = count * kind.width // 8
    if nbytes > 32 or (not coherent and where != "global"):
        raise Unsupported("this access")
    return where, Access(nbytes, strong, False, coherent), count, kind


@instruction("ld")
def ld(at: Decoder) -> Run | list[Run]:
    where, how, count, kind = access(at)
    at.expect(2)
    targets, source = at.vector(0, count), at.operands[1]
    if at.piece(source, 0, kind.width):
        passed = [at.piece(source, each * kind.width // 8, kind.width) for each in range(count)]
        return [copy(at, piece, target, kind) for piece, target in zip(passed, targets, strict=True)]
    writes, address = [at.writer(each, kind, wider=True) for each in targets], at.address(1)
    at.program.touches(where, how.nbytes)

    def run(batch: Batch, lanes: Lanes) -> None:
        parts = batch.route(where, lanes, address(batch, lanes))
        loaded = [memory.load(some, at, how, kind.storage) for memory, some, at in parts]
        for place, write in enumerate(writes):
            values = batch.spread(parts[0][1], loaded[0][:, place])
            for (_, some, _), rows in zip(parts[1:], loaded[1:], strict=True):
                values[some.index] = rows[:, place]
            write(batch, lanes, kind.decode(values))

    return run


@instruction("st")
def st(at: Decoder) -> Run | list[Run]:
    where, how, count, kind = access(at)
    at.expect(2)
    sources, target = at.vector(1, count), at.operands[0]
    if at.piece(target, 0, kind.width):
        passed = [at.piece(target, each * kind.width // 8, kind.width) for each in range(count)]
        return [copy(at, source, piece, kind) for piece, source in zip(passed, sources, strict=True)]
    if where in ("const", "param") or not how.coherent:
        raise Unsupported(f"a store to {where}")
    bits = TYPES[f"b{kind.width}"]
    reads, address = [at.reader(each, bits, wider=True) for each in sources], at.address(0)
    at.program.touches(where, how.nbytes)

    def run(batch: Batch, lanes: Lanes) -> None:
        values = np.empty((batch.size, count), kind.storage)
        for place, read in enumerate(reads):
            values[:, place] = read(batch, lanes)
        for memory, some, to in batch.route(where, lanes, address(batch, lanes)):
            memory.store(some, to, how, values[some.index])

    return run


def copy(at: Decoder, source: object, target: object, kind: Type) -> Run:
    read, write = at.reader(source, kind, wider=True), at.writer(target, kind, wider=True)  # type: ignore[arg-type]
    return lambda batch, lanes: write(batch, lanes, read(batch, lanes))


CHANGE: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "cas": lambda old, expected, new: select(old == expected, new, old),
    "inc": lambda old, limit: np.where(old >= limit, 0, old + 1).astype(old.dtype),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1).astype(old.dtype),
}


@instruction("atom", "red")
def atom(at: Decoder) -> Run:
    order(at)
    where, change = space(at), CHANGE[at.need(*CHANGE)]
    at.take("noftz")
    kind = at.type()
    returns = at.mnemonic == "atom"
    first = 2 if returns else 1
    at.expect(first + 1, *([first + 2] if change is CHANGE["cas"] else []))
    operands = [at.reader(place, kind) for place in range(first, len(at.operands))]
    address = at.address(first - 1)
    write = at.writer(0 if returns else Name("_"), kind)
    how = Access(kind.width // 8, strong=True, atomic=True)
    if where not in ("global", "shared", "shared::cluster", "generic") or kind.width < 16:
        raise Unsupported(f"atomics on {kind.name} in {where}")
    at.program.touches(where, how.nbytes)

    def run(batch: Batch, lanes: Lanes) -> None:
        shape = (batch.size, 2) if kind.packed else (batch.size,)
        values = [np.broadcast_to(read(batch, lanes), shape) for read in operands]
        old = np.zeros(batch.size, kind.storage)
        for memory, some, to in batch.route(where, lanes, address(batch, lanes)):
            mine = [value[some.index] for value in values]

            def step(bits: Array, which: Array, mine: list[Array] = mine) -> Array:
                return kind.encode(change(kind.decode(bits), *(value[which] for value in mine)))

            old[some.index] = memory.update(some, to, how, step, kind.storage)
        write(batch, lanes, kind.decode(old))

    return run


@instruction("prefetch", "prefetchu")
def prefetch(at: Decoder) -> Run:
    space(at)
    at.need("L1", "L2", "L2::evict_last", "L2::evict_normal", "tensormap")
    read = at.address(at.expect(1) - 1)

    def run(batch: Batch, lanes: Lanes) -> None:
        read(batch, lanes)

    return run


@instruction("membar", "fence")
def fence(at: Decoder) -> Run:
    """Memory is in order here anyway; that another block may look is for the launch to say (`cross_block`)."""
    at.take("acq_rel", "sc", "acquire", "release")
    at.need(*SCOPES, "gl", "proxy")
    at.take("alias", "async::generic")
    at.expect(0)
    return lambda batch, lanes: None
