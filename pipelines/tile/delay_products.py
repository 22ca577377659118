"""The last product of a turn, of what the turn computed, is started in the next turn, beside that one's first product.

    for k: s = dot(q, K[k]); p = f(s); o = dot(p, V[k], g(o))   ->   s = dot(q, K[0]); p = f(s); o = g(o)
                                                                     for k from 1: s = dot(q, K[k]); o = dot(p, V[k - 1], o)
                                                                                   p = f(s); o = g(o)
                                                                     o = dot(p, V[last], o)

So the tensor cores have work while a turn computes, and a turn waits for them once instead of twice. The first turn is that
of the last loop of a chain: its mask is right for every turn. Slots of the delayed product are awaited and released a turn
later. What needs neither its result nor its registers, such as the sum of the powers, stands before the wait for it, because
no assembler moves arithmetic across a branch.
Only where tensor cores run beside their warps, as wgmma does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, scf

from tilec.dialects import tile
from tilec.pipelines.effects import is_pure
from tilec.pipelines.loops import in_another_turn, index_constant, take_body
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of
from tilec.pipelines.primop.structure import defining_op
from tilec.pipelines.tile import op_after, tile_functions


@dataclass(frozen=True)
class DelayProducts(Pass):
    """Start the second product of a turn, of what it computed from the first, beside the first of the next turn."""

    name = "tile-delay-products"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for function, schedule in tile_functions(op):
            if schedule.tensor and not schedule.copied and schedule.stages > 1:
                for chain in [c for block in _blocks(body_of(function)) for c in _chains(block)]:
                    turns = [_turn(loop) for loop in chain]
                    if all(turns) and _conditions(chain[:-1]) <= _conditions(chain[-1:]):
                        _delay(chain, [t for t in turns if t])


@dataclass
class _Turn:
    """The two products of a turn, and which carried value the second one adds to."""

    first: tile.DotShared
    second: tile.DotShared
    place: int

    @property
    def slot(self) -> tile.Await:
        return defining_op(self.second.rhs)


def _blocks(block: ir.Block) -> Iterator[ir.Block]:
    """A function's block, and those of its loops, one of which may walk over programs."""
    yield block
    yield from (op.body for op in block.operations if isinstance(op, scf.ForOp))


def _chains(block: ir.Block) -> Iterator[list[scf.ForOp]]:
    """Loops over one axis, each going on where the one before ended with what that carried."""
    chains: list[list[scf.ForOp]] = []
    for op in block.operations:
        if isinstance(op, scf.ForOp):
            last = chains[-1][-1] if chains else None
            if last is not None and last.upperBound == op.lowerBound and list(op.initArgs) == list(last.results):
                chains[-1].append(op)
            else:
                chains.append([op])
    yield from chains


def _turn(loop: scf.ForOp) -> _Turn | None:
    """The products of a loop, if the second one's result is only carried and its left operand was computed from the first."""
    *body, end = list(loop.body.operations)
    dots = [o for o in body if isinstance(o, tile.DotShared)]
    if len(dots) != 2 or not isinstance(dots[1].lhs.type, ir.VectorType) or isinstance(dots[0].lhs.type, ir.VectorType):
        return None
    places = [i for i, v in enumerate(end.operands) if v == dots[1].result]
    slots = [defining_op(d.rhs) for d in dots]
    if len(places) != 1 or len(list(dots[1].result.uses)) != 1 or not all(isinstance(s, tile.Await) for s in slots) or \
            slots[0].ring == slots[1].ring:
        return None
    return _Turn(dots[0], dots[1], places[0])


def _conditions(loops: list[scf.ForOp]) -> set[str]:
    """What the masks and limits of loops look at."""
    return {str(o.attributes[name]) for loop in loops for o in loop.body.operations
            for kind, name in ((tile.IndexTile, "map"), (tile.Load, "mask"), (tile.Fetch, "limit"))
            if isinstance(o, kind) and name in o.attributes}


def _delay(chain: list[scf.ForOp], turns: list[_Turn]) -> None:
    first, last, place = chain[0], chain[-1], turns[0].place
    with first.operation.location, ir.InsertionPoint(first):
        second = arith.addi(first.lowerBound, first.step)
        carried = _first_turn(last, turns[-1], first)
        end = arith.subi(arith.maxsi(last.upperBound, second), last.step)
        number = in_another_turn(turns[-1].slot.turn, {last.induction_variable: end}, first)
    for loop, turn in zip(chain, turns, strict=True):
        with loop.operation.location, ir.InsertionPoint(loop):
            start = second if loop == first else arith.maxsi(loop.lowerBound, second)
            carried = _rotated(loop, turn, start, carried)
    before = turns[-1].second
    with last.operation.location, ir.InsertionPoint(last):
        slot = tile.Await(ring=turns[-1].slot.ring, turn=number, result=before.rhs.type).result
        total = _product(before, carried[-1], slot, carried[place])
        tile.Release(ring=turns[-1].slot.ring, turn=number, running=0)
    for i, result in enumerate(last.results):
        result.replace_all_uses_with(total if i == place else carried[i])
    for loop in reversed(chain):
        loop.operation.erase()
    for turn in turns:
        slot = turn.slot
        turn.second.operation.erase()
        slot.operation.erase()


def _first_turn(loop: scf.ForOp, turn: _Turn, first: scf.ForOp) -> list[ir.Value]:
    """A turn without its second product, at the insertion point; what it carries, and the product's left operand."""
    copies = {loop.induction_variable: first.lowerBound, **dict(zip(loop.inner_iter_args, first.initArgs, strict=True))}
    *body, end = list(loop.body.operations)
    for op in body:
        if op in (turn.second, turn.slot) or (isinstance(op, tile.Release) and op.ring == turn.slot.ring):
            continue
        clone = op.operation.clone()
        for i, operand in enumerate(clone.operands):
            clone.operands[i] = copies.get(operand, operand)
        copies.update(zip(op.operation.results, clone.results, strict=True))
    results = [turn.second.acc if i == turn.place else v for i, v in enumerate(end.operands)]
    return [copies.get(v, v) for v in (*results, turn.second.lhs)]


def _rotated(old: scf.ForOp, turn: _Turn, start: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
    """The loop whose turns begin with the second product of the turn before; what it carries in the end."""
    loop = scf.ForOp(start, old.upperBound, old.step, carried)
    body, end = take_body(old, loop)
    own, ring = loop.inner_iter_args[turn.place], turn.slot.ring
    summed = _depends_on(body, own)
    with ir.InsertionPoint(loop.body):
        second, others = turn.second, [o for o in summed if o != turn.second]
        for op in others:  # what is added up is mended when the product has been made
            op.operation.detach_from_parent()
            loop.body.append(op)
        scf.YieldOp([*(second.acc if i == turn.place else v for i, v in enumerate(end.operands)), second.lhs])
    with ir.InsertionPoint(turn.first):
        before = arith.subi(turn.slot.turn, index_constant(1))
        slot = tile.Await(ring=ring, turn=before, result=second.rhs.type).result
    with ir.InsertionPoint(op_after(turn.first)):
        product = _product(second, loop.inner_iter_args[len(carried) - 1], slot, own)
        made = tile.Made(running=1, value=turn.first.result, result=turn.first.result.type)
        turn.first.result.replace_all_uses_except(made.result, made.operation)
    for op in body:
        if isinstance(op, tile.Release) and op.ring != ring:  # with the second product still running
            op.operation.attributes["running"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)
    fetch = next(o for o in body if isinstance(o, tile.Fetch) and o.ring == ring)
    narrowed = _narrowed(second.lhs)
    after = body[body.index(narrowed) + 1:]
    held = _depends_on(after, narrowed.results[0])
    for op in after:  # what needs neither is computed before the wait
        if op not in held and op not in others and is_pure(op.operation):
            op.operation.move_before(narrowed.operation)
    fetch.operation.move_before(narrowed.operation)
    with ir.InsertionPoint(narrowed):
        summed_up = tile.Made(running=0, value=product, result=product.type)
        tile.Release(ring=ring, turn=before, running=0)
    for op in others:
        for i, operand in enumerate(op.operands):
            if operand == own:
                op.operation.operands[i] = summed_up.result
    next(o for o in body if isinstance(o, tile.Release) and o.ring == ring).operation.erase()
    return list(loop.results)


def _product(like: tile.DotShared, lhs: ir.Value, rhs: ir.Value, acc: ir.Value) -> ir.Value:
    return tile.DotShared(lhs_rows=like.lhs_rows, rhs_rows=like.rhs_rows, transposed=like.transposed, lhs=lhs, rhs=rhs, acc=acc,
                          result=acc.type).result


def _depends_on(body: list[ir.OpView], value: ir.Value) -> list[ir.OpView]:
    """The ops that need a value, in order."""
    known, found = {value}, []
    for op in body:
        if any(v in known for v in op.operands):
            known |= set(op.results)
            found.append(op)
    return found


def _narrowed(value: ir.Value) -> ir.OpView:
    """The first op that makes a product's left operand as tensor cores read it: from there on it takes their registers."""
    op = defining_op(value)
    narrow = [v for v in op.operands if isinstance(v.type, ir.VectorType) and v.type.element_type == value.type.element_type
              and not isinstance(defining_op(v), arith.ConstantOp)]
    return _narrowed(narrow[0]) if narrow else op
