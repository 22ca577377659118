"""Which primops share a kernel is read off the views.

Every kernel computes one value, its root, and what stands beside it. Ops are visited from last to first; an op joins the kernel
that uses it unless one of these rules makes it a root of its own:

1. It is a result of the chunk, or a scatter: somebody outside reads memory.
2. A contraction (a sum of products of two different operands) joins only kernels that use it point by point, as the
   accumulator of an epilogue; anything else would repeat it.
3. A value that comes out of a contraction and feeds another reduction is materialised: the epilogue ends there.
4. A row reduction (norm, softmax) joins the kernel that uses it when it is broadcast back over the rows it reduced, and when
   all reductions of that kernel have the same rows: a program makes each of them once, and then walks the row.
5. A value behind a reduction, or dearer than `recompute` ops, is materialised where a contraction would repeat it.
   None of 2 to 5 holds inside a chain that `primop-online-reductions` marked: one loop computes it. What comes out of one is
   materialised where it would be read in another order.
6. A value that several kernels use is recomputed in each if that costs a few elementwise ops, otherwise materialised.
7. What `primop-stage-rows` marked is part of every kernel that uses it, and so is a factor of rows that `primop-delay-scales`
   marked, where only epilogues of contractions do.
8. With `tensor`, an operand of a product of 16-bit matrices is materialised: computed, it would keep tensor cores from it.
9. A value that a kernel would evaluate at too many points, or too deep inside (see `reads.py`), is materialised.
10. What `primop-delay-scales` marked is materialised, by the kernel that it is computed from if that is a contraction's and
   each of its programs has what the value, or a sum of neighbours along the last dimension, is made of.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import prod

from mlir import ir

from tilec.dialects import primop
from tilec.dialects.index_expr import (
    Atom,
    Dim,
    Linear,
    Mod,
    Ranges,
    Symbol,
    dim,
    identity,
    linear,
    map_results,
    range_of,
    substitute,
)
from tilec.pipelines.cost.rates import FEW_ROWS
from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import body_of, erase, extents_of, fresh_name, functions, outline, scope_name
from tilec.pipelines.primop.reads import MOST_REDUCTIONS, Point, Reads, operand_reads, union

ONLINE = "primop.online"  # set by primop-online-reductions: the op belongs to a chain that one loop computes
STAGED = "primop.staged"  # set by primop-stage-rows: "row" on what every program makes for itself, "part" on what is below
BESIDE = "primop.beside"  # set by primop-delay-scales: the op is a further result of the kernel that it is computed from
FACTOR = "primop.factor"  # set by primop-delay-scales: part of what scales the rows of products
REDUCTIONS = (primop.Sum, primop.Max)
FREE = (primop.Constant, primop.Iota)
MOST_MIRRORED = 8  # elements along a dimension that is read from both ends, because one thread holds them
COSTLY = (primop.Exp2, primop.Log2, primop.Sin, primop.Recip, primop.Sqrt, primop.Mod)


def is_contraction(op: ir.OpView) -> bool:
    """A sum whose operand is a product of two operands that vary over different dimensions."""
    if not isinstance(op, primop.Sum) or op.bounds is not None:
        return False
    owner = op.operand.owner
    product = owner.opview if isinstance(owner, ir.Operation) else owner
    if not isinstance(product, primop.Mul):
        return False
    used = [set().union(*(e.atoms() for e in map_results(m))) for m in product.maps]
    return any(isinstance(a, Dim) for a in used[0] - used[1]) or any(isinstance(a, Dim) for a in used[1] - used[0])


def is_pointwise_use(op: ir.OpView, operand: int) -> bool:
    """Whether each element of the operand is used once: the view permutes, reshapes or reverses all of it."""
    if isinstance(op, primop.Gather | primop.Scatter) and operand == 0:
        return False
    if op.bounds is not None and op.bounds[operand].results:
        return False
    return is_bijection(map_results(op.maps[operand]), primop.space_of(op), extents_of(op.operands[operand]))


def is_bijection(view: Sequence[Linear], space: Sequence[Linear], extents: Sequence[Linear]) -> bool:
    """Whether a view maps a space one to one onto indices below `extents`: its row-major offset counts through the space."""
    if any(not e.is_constant for e in extents[1:]):
        live = {dim(d) for d, e in enumerate(space) if e != linear(1)}
        return {e for e in view if not e.is_constant} == live and sum(not e.is_constant for e in view) == len(live)
    view = [substitute(e, {Dim(d): Linear() for d, n in enumerate(space) if n == linear(1)}) for e in view]
    offset, size = Linear(), 1
    for e, extent in zip(reversed(view), reversed(extents), strict=True):
        offset, size = offset + e * size, size * extent.constant if extent.is_constant else size
    offset = unflipped(offset, constant_ranges(space))[0]
    left, step = {d: e for d, e in enumerate(space) if e != linear(1)}, 1
    while left:
        fastest = next((d for d in left if offset.coefficient(Dim(d)) == step), None)
        if fastest is None:
            return False
        offset = offset - dim(fastest) * step
        extent = left.pop(fastest)
        if not extent.is_constant:
            return not left and offset == linear(0) and extents[0] == extent
        step *= extent.constant
    return offset == linear(0) and all(e.is_constant for e in extents) and step == size


def constant_ranges(space: Sequence[Linear]) -> Ranges:
    """The ranges of a space's dimensions, those of a known extent."""
    return {Dim(d): (0, e.constant - 1) for d, e in enumerate(space) if e.is_constant}


def unflipped(expr: Linear, ranges: Ranges) -> tuple[Linear, frozenset[Atom]]:
    """An expression with c - d replaced by d wherever d runs from 0 to c, and the atoms that were reversed."""
    reversed_atoms = set()
    for atom, c in expr.terms:
        bounds = range_of(Linear(0, ((atom, 1),)), ranges)
        if c < 0 and bounds is not None and bounds[0] == 0:
            expr = expr + Linear(0, ((atom, -2 * c),)) + c * bounds[1]
            reversed_atoms.add(atom)
    return Linear.of(expr.constant, dict(expr.terms)), frozenset(reversed_atoms)


def _only_dim(e: Linear) -> list[int]:
    atoms = [a for a in e.atoms() if isinstance(a, Dim)]
    return [a.position for a in atoms] if len(atoms) == 1 else [-1]


@dataclass
class _Facts:
    """What fusion knows of one op before groups are formed."""

    contractions: frozenset[int] = frozenset()  # reached point by point: this op could be their epilogue
    reduced: bool = False  # some reduction lies upstream
    cost: int = 0  # elementwise ops that recomputing it takes, huge behind a reduction
    cut: bool = False  # certainly a root: returned, a scatter, or the end of an epilogue that a reduction reads
    groups: set[int] = field(default_factory=set)
    rows: frozenset[int] | None = None  # of a reduction: the dimensions of its kernel's root along which its result varies
    in_body: bool = False  # evaluated for every element that some reduction of its kernel reads
    in_contraction: bool = False
    reads: dict[int, Reads] = field(default_factory=dict)  # by the root of each of its kernels
    asked: dict[int, Reads] = field(default_factory=dict)  # of a root: where the kernels of others read it
    splits: dict[int, int] | None = None  # of a root: how the views of its contractions take its dimensions apart


@dataclass(frozen=True)
class Fuse(Pass):
    """Outline the kernels of every chunk: reductions with their prologues and epilogues, elementwise chains, scatters."""

    name = "primop-fuse"
    anchor = "builtin.module"
    recompute: int = 6
    tensor: bool = False

    def run(self, op: ir.OpView) -> None:
        for chunk in functions(op, "primop.chunk"):
            _fuse_chunk(op, chunk, self.recompute, self.tensor)


def _fuse_chunk(module: ir.OpView, chunk: ir.OpView, recompute: int, tensor: bool) -> None:
    symbols: Ranges = {Symbol(i): r for i, r in enumerate(primop.symbol_ranges(module.operation).values())}
    ops = [o for o in body_of(chunk).operations if o.operation.name not in ("func.return", "func.call")]
    number = {result: i for i, o in enumerate(ops) for result in o.results}
    facts = _facts(ops, number)
    roots: list[int] = []
    for i in range(len(ops) - 1, -1, -1):
        if isinstance(ops[i], FREE):
            continue
        uses = [(number[use.owner.results[0]], use.operand_number) for use in ops[i].result.uses
                if use.owner.operation.parent == chunk.operation and use.owner.name != "func.return"]
        facts[i].reads = _reads(ops, facts, uses)
        marks, users = ops[i].operation.attributes, [ops[u] for u, _ in uses]
        joins = STAGED in marks or _is_factor(ops, facts, i, uses)
        if BESIDE in marks or _is_crowded(ops[i], facts[i]) or (tensor and _is_operand(ops[i], users, symbols)) or (
                not joins and _is_root(ops, number, facts, i, uses, recompute)):
            roots.append(i)
            facts[i].groups, facts[i].asked = {i}, facts[i].reads
            facts[i].reads = {i: Reads(frozenset([Point(whole_index(_root_extents(ops[i])))]))}
            facts[i].rows = _live(ops[i]) if isinstance(ops[i], REDUCTIONS) else None
        else:
            facts[i].groups = set().union(*(facts[u].groups for u, _ in uses))
            facts[i].in_body = any(isinstance(ops[u], REDUCTIONS) or facts[u].in_body for u, _ in uses)
            facts[i].in_contraction = any(is_contraction(ops[u]) or facts[u].in_contraction for u, _ in uses)
    roots.sort()
    chunk_name = ir.StringAttr(chunk.attributes["sym_name"]).value
    slices = {root: _slice(ops, number, set(roots), root) for root in roots}
    hosts = {root: _host(ops, number, facts, slices, root) for root in roots if BESIDE in ops[root].operation.attributes}
    for root in (r for r in roots if hosts.get(r) is None):
        further = [r for r, host in hosts.items() if host == root]
        members = [ops[i] for i in slices[root]] + [ops[i] for r in further for i in slices[r] if i not in slices[root]]
        label = _label(ops[root], [ops[i] for i in slices[root]])
        name = fresh_name(module, f"{chunk_name}_{label}")
        results = [ops[r].result for r in (root, *further)]
        call = outline(module, name, members, results, ops[root], "primop.kernel", ops[root].operation.location)
        for old, new in zip(results, call.results, strict=True):
            old.replace_all_uses_with(new)
    erase(ops)


def _host(ops: list[ir.OpView], number: dict[ir.Value, int], facts: list[_Facts], slices: dict[int, list[int]],
          further: int) -> int | None:
    """The root beside which a kernel can have a further result: a contraction's, whose elements are all that varies of it."""
    members = slices[further]
    outside = {number[v] for i in members for v in ops[i].operands if v in number and number[v] not in members}
    host = outside.pop() if len(outside) == 1 else None
    if host is None or not any(is_contraction(ops[i]) for i in slices[host]) or ONLINE in ops[host].operation.attributes or \
            any(isinstance(ops[i], (*REDUCTIONS, primop.Gather, primop.Scatter)) for i in members if i != further):
        return None
    op, extents = ops[further], _root_extents(ops[host])
    own = Reads(frozenset([Point(whole_index(_root_extents(op)))]))
    if isinstance(op, REDUCTIONS):  # of blocks of a row
        *rows, count, size = primop.space_of(op)
        last = len(extents)
        if list(op.dims) != [last] or not size.is_constant or (*rows, count * size.constant) != extents or \
                map_results(op.maps[0]) != (*identity(last - 1), dim(last - 1) * size.constant + dim(last)):
            return None
        own = operand_reads(op, 0, own)
    elif primop.space_of(op) != extents:
        return None
    return host if facts[host].asked[further].points == own.points else None


def _label(root: ir.OpView, members: list[ir.OpView]) -> str:
    """A kernel is called after its root's scope, or what its contractions' scopes share, or its last named op's scope."""
    own = scope_name(root.operation.location)
    if own:
        return own
    scopes = [scope_name(op.operation.location).split("_") for op in members if is_contraction(op)]
    shared = [parts[0] for parts in zip(*scopes, strict=False) if len(set(parts)) == 1]
    named = (scope_name(op.operation.location) for op in reversed(members))
    return "_".join(shared) or next((n for n in named if n), root.operation.name.split(".")[1])


def _facts(ops: list[ir.OpView], number: dict[ir.Value, int]) -> list[_Facts]:
    feeds: list[bool] = []  # whether a reduction reads the value, directly or through elementwise ops of the same space
    users: list[list[ir.OpView]] = []
    for op in reversed(ops):
        inside = {number[use.owner.results[0]] for use in op.results[0].uses if use.owner.name != "func.return"}
        users.insert(0, [ops[u] for u in sorted(inside)])
        feeds.insert(0, any(isinstance(ops[u], REDUCTIONS) or (feeds[u - len(ops)] and not _grows(ops[u], op)) for u in inside))
    facts: list[_Facts] = []
    for i, op in enumerate(ops):
        known = [(number[v], k) for k, v in enumerate(op.operands) if v in number and not facts[number[v]].cut]
        fact = _Facts()
        fact.reduced = isinstance(op, REDUCTIONS) or any(facts[p].reduced for p, _ in known)
        own = 0 if isinstance(op, FREE) else 4 if isinstance(op, COSTLY) else 1
        fact.cost = own + sum(facts[p].cost for p, _ in known)
        if isinstance(op, REDUCTIONS):
            fact.cost = 1 << 20
            fact.contractions = frozenset([i]) if is_contraction(op) else frozenset()
        else:
            pointwise = [facts[p].contractions for p, k in known if is_pointwise_use(op, k)]
            fact.contractions = frozenset().union(*pointwise)
        returned = any(use.owner.name == "func.return" for use in op.results[0].uses)
        ends_epilogue = bool(fact.contractions) and feeds[i] and ONLINE not in op.operation.attributes and (
            len(users[i]) > 1 or any(isinstance(user, REDUCTIONS) for user in users[i]))
        fact.cut = not isinstance(op, FREE) and (returned or isinstance(op, primop.Scatter) or ends_epilogue)
        facts.append(fact)
    return facts


def _reads(ops: list[ir.OpView], facts: list[_Facts], uses: list[tuple[int, int]]) -> dict[int, Reads]:
    """Where the kernels of a value's users would read it."""
    found: dict[int, list[Reads]] = {}
    for u, k in uses:
        if not (isinstance(ops[u], primop.Gather | primop.Scatter) and k == 0):  # at computed places
            for root, reads in facts[u].reads.items():
                found.setdefault(root, []).append(operand_reads(ops[u], k, reads))
    return {root: union(several) for root, several in found.items()}


def _is_crowded(op: ir.OpView, fact: _Facts) -> bool:
    """Rule 9. What joins the reductions of a chain that one loop computes cannot be told apart from it."""
    if ONLINE in op.operation.attributes and fact.reduced:
        return False
    return any(reads.too_many or any(operand_reads(op, k, reads).too_long for k in range(len(op.operands)))
               for reads in fact.reads.values())


def _is_operand(op: ir.OpView, users: Sequence[ir.OpView], symbols: Ranges) -> bool:
    """Rule 8: whether a value is multiplied as a matrix by another, both of 16 bits, and is no link of a chain of one loop."""
    if isinstance(op, REDUCTIONS) or {ONLINE, STAGED} & {*op.operation.attributes}:
        return False
    for user in users:
        sums = [use.owner for use in user.result.uses if isinstance(use.owner, primop.Sum)]
        if isinstance(user, primop.Mul) and any(map(is_contraction, sums)) and \
                {str(primop.element_type(v)) for v in user.operands} <= {"bf16", "f16"} and _is_of_matrices(user, symbols):
            return True
    return False


def _is_of_matrices(product: primop.Mul, symbols: Ranges) -> bool:
    """Whether either operand has, beside what both share, more than a few rows."""
    used = [set().union(*(e.atoms() for e in map_results(m))) for m in product.maps]
    sizes = []
    for own in (used[0] - used[1], used[1] - used[0]):
        bounds = [range_of(e, symbols) for d, e in enumerate(primop.space_of(product)) if Dim(d) in own]
        sizes.append(prod(b[1] if b is not None else FEW_ROWS + 1 for b in bounds))
    return min(sizes) > FEW_ROWS


def _is_factor(ops: list[ir.OpView], facts: list[_Facts], i: int, uses: list[tuple[int, int]]) -> bool:
    """Whether an op is part of a factor of rows, one number for each, that only epilogues of contractions read."""
    if FACTOR not in ops[i].operation.attributes or not uses or facts[i].cut or \
            any(isinstance(ops[u], REDUCTIONS) or facts[u].in_body or facts[u].in_contraction for u, _ in uses):
        return False
    roots = set().union(*(facts[u].groups for u, _ in uses))
    return all(facts[root].contractions and ONLINE not in ops[root].operation.attributes and
               _broadcast_back(ops, facts, i, root) is not None for root in roots)


def _is_root(ops: list[ir.OpView], number: dict[ir.Value, int], facts: list[_Facts], i: int, uses: list[tuple[int, int]],
             recompute: int) -> bool:
    op, fact = ops[i], facts[i]
    users = [ops[u] for u, _ in uses]
    if fact.cut or not uses:  # rules 1 and 3
        return True
    if any(isinstance(user, primop.Gather | primop.Scatter) and k == 0 for user, (_, k) in zip(users, uses, strict=True)):
        return True  # read at computed places
    groups = set().union(*(facts[u].groups for u, _ in uses))
    if ONLINE in op.operation.attributes:
        return len(groups) > 1
    below = [ops[number[v]] for v in op.operands if v in number]
    if any(ONLINE in o.operation.attributes and is_contraction(o) for o in below) and \
            not all(_is_permutation(reads) for reads in fact.reads.values()):
        return True  # a program holds a row's parts where one loop has left them
    bodies = [isinstance(ops[u], REDUCTIONS) or facts[u].in_body for u, _ in uses]
    if is_contraction(op):  # rule 2
        if len(groups) > 1 or any(bodies) or any(i not in facts[u].contractions for u, _ in uses) or \
                not _reaches_root(ops, facts, i, groups):
            return True
        root = next(iter(groups))
        fact.rows = _live(ops[root])
        return not _is_accumulator(ops, facts, i, root) or not _same_rows(facts, fact, groups)
    if fact.contractions and any(bodies):  # rule 3
        return True
    if isinstance(op, REDUCTIONS):  # rule 4
        if len(groups) > 1 or any(facts[u].in_contraction or is_contraction(ops[u]) for u, _ in uses):
            return True
        fact.rows = _broadcast_back(ops, facts, i, next(iter(groups)))
        return fact.rows is None or not _same_rows(facts, fact, groups)
    if (fact.reduced or fact.cost > recompute) and any(
            facts[u].in_contraction and not is_contraction(ops[u]) and _grows(ops[u], op) for u, _ in uses):  # rule 5
        return True
    return len(groups) > 1 and fact.cost > recompute  # rule 6


def _is_permutation(reads: Reads) -> bool:
    """Whether a kernel reads a value once for each element of its root, whose dimensions it takes as they are."""
    (view, *others) = reads.views
    return not others and len({*view}) == len(view) and all(e.is_constant or e in {dim(d) for d in _only_dim(e)} for e in view)


def _grows(user: ir.OpView, op: ir.OpView) -> bool:
    return len([e for e in primop.space_of(user) if e != linear(1)]) > len([e for e in extents_of(op.result) if e != linear(1)])


def _live(root: ir.OpView) -> frozenset[int]:
    """The dimensions of a root that have more than one element."""
    return frozenset(d for d, e in enumerate(_root_extents(root)) if e != linear(1))


def _root_extents(root: ir.OpView) -> tuple[Linear, ...]:
    return extents_of(root.result) if isinstance(root, REDUCTIONS) else primop.space_of(root)


def whole_index(extents: Sequence[Linear]) -> tuple[Linear, ...]:
    """The index of a root's own element; a dimension of one element has the index 0, so that equal reads are equal."""
    return tuple(Linear() if e == linear(1) else dim(d) for d, e in enumerate(extents))


def _same_rows(facts: list[_Facts], fact: _Facts, groups: set[int]) -> bool:
    """Whether the reductions that have joined the kernel so far have the rows of this one, and are not too many."""
    joined = [o.rows for o in facts if o is not fact and o.groups == groups and o.rows is not None]
    return all(rows == fact.rows for rows in joined) and len(joined) < MOST_REDUCTIONS


def _reaches_root(ops: list[ir.OpView], facts: list[_Facts], contraction: int, groups: set[int]) -> bool:
    """Whether the one kernel that uses the contraction does so in its epilogue."""
    root = next(iter(groups))
    return contraction in facts[root].contractions


def _is_accumulator(ops: list[ir.OpView], facts: list[_Facts], contraction: int, root: int) -> bool:
    """Whether a kernel reads a contraction's result at one place for every element of its root, or at its mirror images."""
    extents = _root_extents(ops[root])
    views = facts[contraction].reads[root].views
    flips = [unflipped(e, constant_ranges(extents)) for view in views for e in view]
    same = {tuple(unflipped(e, constant_ranges(extents))[0] for e in view) for view in views}
    if len(same) != 1 or not is_bijection(next(iter(same)), extents, extents_of(ops[contraction].result)):
        return False
    if not any(atoms for _, atoms in flips):
        return True
    splits = splits_of(views)
    if splits is None or facts[root].splits not in (None, splits):
        return False
    for atom in frozenset().union(*(atoms for _, atoms in flips)):
        bounds = range_of(Linear(0, ((atom, 1),)), constant_ranges(extents))
        if bounds is None or bounds[1] >= MOST_MIRRORED or isinstance(atom, Mod):
            return False
    facts[root].splits = splits
    return True


def splits_of(views: Collection[Sequence[Linear]]) -> dict[int, int] | None:
    """The dimensions that views take apart, d floordiv c and d mod c, with their c; None where it is not as simple as that."""
    splits: dict[int, int] = {}
    for atom in {a for view in views for e in view for a, _ in e.terms if not isinstance(a, Dim | Symbol)}:
        inside = atom.numerator.terms[0][0] if len(atom.numerator.terms) == 1 else None
        if not isinstance(inside, Dim) or atom.numerator != dim(inside.position):
            return None
        if splits.setdefault(inside.position, atom.divisor) != atom.divisor:
            return None
    return splits


def _broadcast_back(ops: list[ir.OpView], facts: list[_Facts], reduction: int, root: int) -> frozenset[int] | None:
    """The whole dimensions of its root along which a kernel reads a reduction's result, None if it reads it otherwise."""
    top, views = ops[root], facts[reduction].reads[root].views
    rank = len(_root_extents(top))
    if len(views) != 1:
        return None
    view = [e for e in next(iter(views)) if not e.is_constant]
    whole = all(len(e.terms) == 1 and e == dim(*_only_dim(e)) and _only_dim(e)[0] < rank for e in view)
    return frozenset(_only_dim(e)[0] for e in view) & _live(top) if whole and len(set(view)) == len(view) else None


def _slice(ops: list[ir.OpView], number: dict[ir.Value, int], roots: set[int], root: int) -> list[int]:
    """The numbers of the ops of a root's kernel, in order."""
    members, pending = {root}, [root]
    while pending:
        for operand in ops[pending.pop()].operands:
            i = number.get(operand)
            if i is not None and i not in roots and i not in members:
                members.add(i)
                pending.append(i)
    return sorted(members)
