"""Drawing the next token from logits, as primitive ops: temperature, top-k, min-p and top-p, and random numbers.

For logits x f32 (V) or, of several sequences, each with parameters of its own, (B, V), all arithmetic in f32 unless said
otherwise:

1. The distance of token i from the likeliest is d(i) = max(x) - x(i), rounded to f32 and to multiples of 2^-85. Tokens at equal
   distances are ties: all of them are kept or none.
2. Its weight is w(i) = 2^(-d(i) min(log2(e) / temperature, 2^60)), and zero if that is below `min_p`. The likeliest has 1.
3. `top_k` keeps the k smallest distances and what ties with the last of them; 0 keeps all.
4. `top_p` keeps, of those, the smallest set {d <= r} whose weights reach the share `top_p` of theirs; 1 keeps all. The sums
   are f32, so where the share is reached within their rounding, about 1e-6 of the total, the last token may be in or out.
5. The token is the first with the largest w(i) / E(i) among what is kept, where the E(i) are independent and exponential: the
   one that arrives first if token i comes at rate w(i). It is i with probability w(i) / sum(w), as with Gumbel-max.

Temperature 0 keeps the smallest distance alone and takes the first of its ties: the argmax. A token of weight 0 is never
drawn. NaNs among the logits give some token of the vocabulary.

E(i) = -log2(u), where u is uniform on (0, 1) with 31 bits, taken from output number `position` 2^32 + i (counted from 0)
of SplitMix64 (Steele, Lea and Flood 2014) with state `seed`. So a seed and a position stand for the same numbers wherever
they are computed. `runtime/sampling.py` is the same in NumPy: the same integers and, as IEEE says, the same distances; its
exponentials and logarithms may differ in the last places.

The thresholds of 3 and 4 come from one search: non-negative floats are ordered as their bits, so the largest threshold that
leaves too little below it is found bit by bit, BITS at a time, by sums over the vocabulary for all candidates at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.dialects.index_expr import Linear
from tilec.frontend import nn
from tilec.frontend.tensor import LOG2_E, Graph, Tensor

SCALE = 2.0**-64  # makes distances below 2^65 floats below 2.0, whose bits are below 2^KEY_BITS
KEY_BITS = 30
# Bits that one sum of a search settles, and sums that one kernel makes, one after the other. More bits take more candidates,
# 2^BITS - 1; more sums fewer kernels, but fusion lets no more than so many reductions share one (`primop/reads.py`).
BITS, SUMS = 2, 3
MOST_RATE = 2.0**60  # of log2(e) / temperature: what is not as likely as the likeliest then has weight 0
ALL = (1 << 31) - 1  # as a number of tokens


@dataclass(frozen=True)
class Parameters:
    """On the device, scalars or, of several sequences, (B): f32 `temperature`, `top_p` and `min_p`, i32 `top_k`, i64 `seed`."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seed: Tensor


def parameters(graph: Graph, batch: Linear | None = None) -> Parameters:
    """The parameters as arguments of the open entry point, each of shape (1), or (batch), and named as its field."""
    dtypes = {"temperature": "f32", "top_k": "i32", "top_p": "f32", "min_p": "f32", "seed": "i64"}
    if batch is not None:
        return Parameters(**{name: graph.input(name, (batch,), dtype) for name, dtype in dtypes.items()})
    return Parameters(**{name: graph.input(name, (1,), dtype)[0] for name, dtype in dtypes.items()})


def sample(logits: Tensor, given: Parameters, position: Tensor) -> Tensor:
    """A token, i32 scalar, for logits f32 (V), or tokens (B) for (B, V); `position`, i64, is the place in the sequence."""
    graph = logits.graph
    graph.graph_break("weigh")
    with graph.scope("arrivals"):
        rates = arrival_rates(logits.shape[-1].constant, given.seed, position).contiguous()
    with graph.scope("distances"):
        distance = distances(logits)
    with graph.scope("weights"):
        weight = weights(distance, given)
    farthest = reach(distance, weight, given)
    one = graph.constant(1.0, "f32")
    rate = weight * _along(given.temperature > 0.0).where(rates, one)
    return nn.argmax((_along(farthest) < distance).where(graph.constant(-1.0, "f32"), rate))


def _along(value: Tensor) -> Tensor:
    """What each sequence has one of, beside the vocabulary."""
    return value.unsqueeze(-1) if value.rank else value


def distances(logits: Tensor) -> Tensor:
    """How far below the largest each logit is, times SCALE: f32, in the shape of the logits."""
    return (logits.max(-1, keepdim=True) - logits) * SCALE


def weights(distance: Tensor, given: Parameters) -> Tensor:
    """Probabilities over the largest one, f32 in the shape of `distance`, zero where below `min_p`."""
    graph = distance.graph
    rate = (given.temperature.recip() * LOG2_E).custom("arith.minimumf", graph.constant(MOST_RATE, "f32"))
    weight = (distance * _along(rate * (-1.0 / SCALE))).exp2()
    return (weight < _along(given.min_p)).where(graph.constant(0.0, "f32"), weight)


def reach(distance: Tensor, weight: Tensor, given: Parameters) -> Tensor:
    """The distance of the last token that is kept, f32 scalar or (B), times SCALE."""
    graph = distance.graph
    with graph.scope("start"):
        state = start = (graph.constant(1 << (KEY_BITS - BITS * SUMS), "i64") * 1).expand(*distance.shape[:-1]).contiguous()
    for _ in range(KEY_BITS // (BITS * SUMS)):
        graph.graph_break("top_k")
        with graph.scope("top_k"):
            count = (given.top_k > 0).where(given.top_k, graph.constant(ALL, "i32"))
            count = (given.temperature > 0.0).where(count, graph.constant(1, "i32"))
            state = _search(state, distance, graph.constant(1, "i32").expand(*distance.shape), count)
    by_count = state
    graph.graph_break("mass")
    with graph.scope("mass"):
        kept = (_along(_threshold(by_count)) < distance).where(graph.constant(0.0, "f32"), weight)
        mass = kept.sum(-1) * given.top_p
    state = start
    for _ in range(KEY_BITS // (BITS * SUMS)):
        graph.graph_break("top_p")
        with graph.scope("top_p"):
            state = _search(state, distance, weight, mass)
    graph.graph_break("draw")
    by_mass = (given.top_p < 1.0).where(state, by_count)
    return _threshold((by_count < by_mass).where(by_count, by_mass))


def _search(state: Tensor, distance: Tensor, values: Tensor, wanted: Tensor) -> Tensor:
    """BITS * SUMS more bits of the largest threshold below which `values`, (V) or (B, V), sum to less than `wanted`.

    The state, i64 in the shape of `wanted`, is the bits found, in place, times 2^32, and the unit of the next bits' lowest: so
    that all steps of a search are one kernel. In the end the unit is 0.
    """
    graph = distance.graph
    none = graph.constant(0, values.dtype)
    key, unit = _key(state), state.cast("i32")
    for number in reversed(range(SUMS)):
        step = unit * (1 << (BITS * number))
        digit = graph.constant(0, "i32")
        for candidate in range(1, 1 << BITS):
            below = (distance < _along(_float(key + step * candidate))).where(values, none).sum(-1)
            digit = digit + (below < wanted).cast("i32")  # candidates ascend, so this counts how many are not too far
        key = key + digit * step
    unit = _shift(unit, BITS * SUMS)
    return key.cast("i64") * (1 << 32) + unit.cast("i64")


def _key(state: Tensor) -> Tensor:
    return _shift(state, 32).cast("i32")


def _float(key: Tensor) -> Tensor:
    return key.custom("arith.bitcast", dtype="f32")


def _threshold(state: Tensor) -> Tensor:
    """What a finished search has found, f32."""
    return _float(_key(state))


def arrival_rates(size: int, seed: Tensor, position: Tensor) -> Tensor:
    """1 / E(i), f32 (size), each between 2^-5 and 2^32: see the module docstring. `seed` and `position` are i64 scalars or (B),
    and the result then (B, size)."""
    graph = seed.graph
    number = graph.iota(size, "i64") + _along(position) * (1 << 32) + 1
    word = number * _wrapped(0x9E3779B97F4A7C15) + _along(seed)
    word = _mixed(word, 30) * _wrapped(0xBF58476D1CE4E5B9)
    word = _mixed(word, 27) * _wrapped(0x94D049BB133111EB)
    bits = _shift(_mixed(word, 31), 33).cast("i32")  # 31 of them
    # u = 1 - v, and the smaller of the two is always known to its last place.
    v = bits.cast("f32") * 2.0**-31 + 2.0**-32
    u = (bits * -1 + ALL).cast("f32") * 2.0**-31 + 2.0**-32
    series = v * (v * (v * (1.0 / 3.0) + 0.5) + 1.0) * LOG2_E  # of -log2(1 - v), to v^3
    return (v < 2.0**-8).where(series, -u.log2()).recip()


def _mixed(word: Tensor, places: int) -> Tensor:
    return word.custom("arith.xori", _shift(word, places))


def _shift(value: Tensor, places: int) -> Tensor:
    """Towards the low end, zeros coming in."""
    return value.custom("arith.shrui", value.graph.constant(places, value.dtype))


def _wrapped(value: int) -> int:
    """The i64 with these 64 bits."""
    return value - (1 << 64) if value >> 63 else value
