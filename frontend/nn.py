"""The blocks of Llama-family models, each a few primops; none of them is known to the compiler by name."""

from __future__ import annotations

import math

from tilec.dialects.index_expr import Linear, dim, floordiv
from tilec.frontend.tensor import LOG2_E, ShapeError, Tensor


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), any shape."""
    return x * (1.0 + (x * -LOG2_E).exp2()).recip()


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: str) -> Tensor:
    """Root mean square normalisation of the last dimension (Zhang and Sennrich 2019): f32 inside, `dtype` outside.

    x is f32 (..., H), weight f32 (H).
    """
    with x.graph.scope("rms_norm"):
        width = x.shape[-1].constant
        scale = ((x * x).sum(-1, keepdim=True) * (1.0 / width) + eps).sqrt().recip()
        return (x * scale * weight).cast(dtype)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x (..., K) times weight (N, K) transposed, f32 (..., N)."""
    dtype = "f32" if x.dtype in ("bf16", "f16") else x.dtype
    return x.unsqueeze(-2).mul(weight, dtype).sum(-1)


def embedding(table: Tensor, tokens: Tensor) -> Tensor:
    """Rows of table (V, H) for i32 tokens (S), as f32 (S, H)."""
    with table.graph.scope("embedding"):
        return table.take(tokens).cast("f32")


def rotary_table(positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each f32 (S, head_dim / 2), for positions f32 (S).

    The frequencies are a weight, `rotary.inverse_frequencies`, so that models that differ in them share kernels. The cosine
    is 1 - 2 sin(x/2)^2, which keeps its accuracy at large angles.
    """
    graph = positions.graph
    with graph.scope("rotary_table"):
        inverse = graph.input("rotary.inverse_frequencies", (head_dim // 2,), "f32", kind="weight")
        angle = positions.unsqueeze(1) * inverse
        half = (angle * 0.5).sin()
        return (half * half * -2.0 + 1.0).contiguous(), angle.sin().contiguous()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021), halves paired: x (S, heads, D), cos and sin (S, D / 2).

    `x * cos + flipped(x) * signed(sin)` on the two halves as a dimension of their own, where `flipped` is a view: one
    expression for all of a head, which can be the epilogue of what makes x.
    """
    length, heads, width = x.shape
    halves = x.reshape(length, heads, 2, width.constant // 2)
    cos, sin = (t.reshape(length, 1, 1, width.constant // 2) for t in (cos, sin))
    sign = (x.graph.iota(2, "f32") * 2.0 + -1.0).reshape(2, 1)
    return (halves * cos + halves.flip(2) * (sin * sign)).reshape(length, heads, width)


def attention(q: Tensor, keys: Tensor, values: Tensor, past: Linear | None, window: int | None = None) -> Tensor:
    """Grouped-query attention.

    q is (S, heads, D); keys and values are (kv_heads, T, D). Causal attention has T = past + S, and S queries aligned to
    the end of T; where `past` is None, every query sees all keys. With `window`, the query at position p sees the keys
    p - window + 1 .. p, so that a window of 1 is the query's own key: Mistral's `sliding_window` as transformers reads it.
    The result is f32 (S, heads, D). Query head h reads kv head `h floordiv group`, a view: nothing is repeated.
    """
    if window is not None and (past is None or window < 1):
        raise ShapeError(f"a window needs causal attention and at least one key, but got window={window} and past={past}")
    graph = q.graph
    _length, heads, width = q.shape
    group = heads.constant // keys.shape[0].constant
    with graph.scope("attention"):
        grouped = [x._viewed((heads, *x.shape[1:]), [floordiv(dim(0), group), dim(1), dim(2)]) for x in (keys, values)]
        accumulate = "f32" if q.dtype in ("bf16", "f16") else q.dtype
        with graph.scope("scores"):
            # (heads, S, T, D): masked where the key is later than the query, and where it is before the query's window.
            scores = q.permute(1, 0, 2).unsqueeze(2).mul(grouped[0].unsqueeze(1), accumulate).sum(-1)
            scores = scores * (LOG2_E / math.sqrt(width.constant) / LOG2_E)
            if past is not None:
                excluded = graph.constant(-math.inf, "f32").expand(*scores.shape)
                scores = scores + excluded.where_index(dim(2) - dim(1) - past - 1)
                if window is not None:
                    scores = scores + excluded.where_index(dim(1) - dim(2) + past - window)
        with graph.scope("softmax"):
            weights = scores.softmax(-1)
        with graph.scope("values"):
            # (S, heads, D, T): weights in the values' own type, as every tensor core wants them, summed in f32
            shares = weights.cast(values.dtype).permute(1, 0, 2).unsqueeze(2)
            return shares.mul(grouped[1].transpose(1, 2).unsqueeze(0), accumulate).sum(-1)


def attention_by_sequence(q: Tensor, keys: Tensor, values: Tensor, last: Tensor, window: int | None = None) -> Tensor:
    """Grouped-query attention with one query for each of several sequences of different lengths.

    q is (B, heads, D), keys and values are (B, kv_heads, T, D), last is i32 (B): query b sees the keys 0 to last(b) of its own
    sequence, with `window` the last so many of them, and nothing else counts, whatever it is. The result is f32 (B, heads, D).
    """
    graph = q.graph
    batch, heads, width = q.shape
    total = keys.shape[2]
    group = heads.constant // keys.shape[1].constant
    accumulate = "f32" if q.dtype in ("bf16", "f16") else q.dtype
    with graph.scope("attention"):
        unseen = last.unsqueeze(1) < graph.iota(total)  # (B, T)
        if window is not None:
            unseen = unseen + (graph.iota(total) < last.unsqueeze(1) + (1 - window))
        grouped_keys, grouped_values = (
            x._viewed((batch, heads, total, width), [dim(0), floordiv(dim(1), group), dim(2), dim(3)]) for x in (keys, values))
        with graph.scope("scores"):
            scores = q.unsqueeze(2).mul(grouped_keys, accumulate).sum(-1)  # (B, heads, T)
            scores = scores * (1.0 / math.sqrt(width.constant))
            scores = unseen.unsqueeze(1).where(graph.constant(-math.inf, scores.dtype), scores)
        with graph.scope("softmax"):
            weights = scores.softmax(-1)
        with graph.scope("values"):
            # (B, heads, D, T); a share of zero times what is not a number would be none.
            seen = unseen.reshape(batch, 1, 1, total).where(graph.constant(0.0, values.dtype), grouped_values.transpose(2, 3))
            return weights.cast(values.dtype).unsqueeze(2).mul(seen, accumulate).sum(-1)


def argmax(x: Tensor) -> Tensor:
    """Index of the first largest element along the last dimension (N), i32: the maximum of N - i where x(i) is the maximum."""
    graph = x.graph
    size = x.shape[-1]
    with graph.scope("argmax"):
        largest = x.max(-1, keepdim=True)
        reversed_index = (graph.iota(size, "i32") * -1) + size.constant
        hit = (x < largest).where(graph.constant(0, "i32"), reversed_index)
        return hit.max(-1) * -1 + size.constant
