"""The Llama family: one function that records a model from its configuration, for any number of new tokens."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.dialects.index_expr import Linear, linear
from tilec.frontend import nn, sampling
from tilec.frontend.config import ModelConfig
from tilec.frontend.tensor import Graph, Tensor

FIRST = linear(0)


@dataclass(frozen=True)
class Sequences:
    """Whose tokens a pass takes, and where their keys and values are.

    Either the next `tokens` of one sequence that has `past`, or, `together`, one of each of `tokens` sequences of which none
    has more than `past`. The cache holds `slots` sequences of up to `context` tokens; one alone lies in slot number `slot`,
    those of a batch in the first ones.
    """

    tokens: Linear
    past: Linear
    context: int
    slots: int = 1
    slot: Linear = FIRST
    together: bool = False

    @property
    def total(self) -> Linear:
        """Tokens that the longest sequence has afterwards."""
        return self.past + (1 if self.together else self.tokens)


def record(graph: Graph, config: ModelConfig, dtype: str, sequences: Sequences, outputs: str) -> None:
    """Records one forward pass into the entry point that is open on `graph`.

    Inputs: `tokens` i32 (tokens) and, of several sequences, `positions` i32 (tokens), how many tokens each has. States:
    `cache.N.keys` and `cache.N.values`, (kv_heads, context, head_dim), with the slots in front if there are several.
    Outputs, by `outputs`: "last" gives `logits` f32 (vocabulary) of the last token and `token`, i32 (1), its argmax
    (fed back as the next step's input where there is one token, with the position); "sample" is the same with a token that is
    drawn, see `frontend/sampling.py` for its inputs; "all" gives `logits` f32 (tokens, vocabulary). Of several sequences "last"
    and "sample" give all of them: `logits` f32 (tokens, vocabulary), `token` and `positions` i32 (tokens), fed back.
    Weights have `dtype`, norms, biases and the residual stream are f32.
    """
    length, past, total = sequences.tokens, sequences.past, sequences.total
    hidden, width = config.hidden_size, config.head_dim
    heads, kv_heads = config.heads, config.kv_heads
    window = config.sliding_window
    if window is not None and window >= sequences.context:
        window = None  # it sees all that the cache can hold

    def weight(name: str, *shape: int, dtype: str = dtype) -> Tensor:
        return graph.input(name, shape, dtype, kind="weight")

    def project(norm: Tensor, name: str, count: int) -> Tensor:
        made = nn.linear(norm, weight(name + ".weight", count * width, hidden))
        return made + weight(name + ".bias", count * width, dtype="f32") if config.projection_biases else made

    graph.graph_break("embed")
    tokens = graph.input("tokens", (length,), "i32")
    positions = graph.input("positions", (length,), "i32") if sequences.together else None
    table = weight("model.embed_tokens.weight", config.vocab_size, hidden)
    x = nn.embedding(table, tokens)
    places = graph.iota(total, "f32")[past:] if positions is None else positions.cast("f32")
    cos, sin = nn.rotary_table(places, config.head_dim)

    for index in range(config.layers):
        graph.graph_break("layer")
        prefix = f"model.layers.{index}."
        norm = nn.rms_norm(x, weight(prefix + "input_layernorm.weight", hidden, dtype="f32"), config.norm_eps, dtype)
        with graph.scope("query"):
            q = project(norm, prefix + "self_attn.q_proj", heads)
        with graph.scope("key"):
            k = project(norm, prefix + "self_attn.k_proj", kv_heads)
        with graph.scope("value"):
            v = project(norm, prefix + "self_attn.v_proj", kv_heads).cast(dtype)
        with graph.scope("rotary"):
            q = nn.rotate(q.reshape(length, heads, width), cos, sin).cast(dtype)
            k = nn.rotate(k.reshape(length, kv_heads, width), cos, sin).cast(dtype)
        with graph.scope("cache"):
            (key_cache, keys), (value_cache, values) = (
                _remember(graph, f"cache.{index}.{what}", new.reshape(length, kv_heads, width), sequences, positions)
                for what, new in (("keys", k), ("values", v)))
        if positions is None:
            mixed = nn.attention(q, keys, values, past, window).cast(dtype)
        else:
            mixed = nn.attention_by_sequence(q, keys, values, positions, window).cast(dtype)
        with graph.scope("output"):
            x = x + nn.linear(mixed.reshape(length, heads * width),
                              weight(prefix + "self_attn.o_proj.weight", hidden, heads * width))
        norm = nn.rms_norm(x, weight(prefix + "post_attention_layernorm.weight", hidden, dtype="f32"), config.norm_eps, dtype)
        with graph.scope("gate_up"):
            gate = nn.linear(norm, weight(prefix + "mlp.gate_proj.weight", config.intermediate_size, hidden))
            up = nn.linear(norm, weight(prefix + "mlp.up_proj.weight", config.intermediate_size, hidden))
            inner = (nn.silu(gate) * up).cast(dtype)
        with graph.scope("down"):
            x = x + nn.linear(inner, weight(prefix + "mlp.down_proj.weight", hidden, config.intermediate_size))
        graph.output(f"cache.{index}.keys", key_cache, alias=f"cache.{index}.keys")
        graph.output(f"cache.{index}.values", value_cache, alias=f"cache.{index}.values")

    graph.graph_break("head")
    if outputs != "all" and positions is None:
        x = x[length - 1:]
    norm = nn.rms_norm(x, weight("model.norm.weight", hidden, dtype="f32"), config.norm_eps, dtype)
    if not config.tied_embeddings:
        table = weight("lm_head.weight", config.vocab_size, hidden)
    with graph.scope("logits"):
        logits = nn.linear(norm, table)
    if outputs == "all":
        graph.output("logits", logits)
        return
    if positions is None:
        logits = logits.reshape(config.vocab_size).contiguous()
    graph.output("logits", logits)
    if outputs == "sample" and positions is not None:
        token = sampling.sample(logits, sampling.parameters(graph, length), positions.cast("i64") + 1)
    elif outputs == "sample":
        token = sampling.sample(logits, sampling.parameters(graph), graph.index(total, "i64")).reshape(1)
    else:
        token = nn.argmax(logits).reshape(1 if positions is None else length)
    if positions is not None:
        graph.output("positions", positions + 1, alias="positions")
    if positions is not None or length == linear(1):  # a decode step feeds the next one
        graph.output("token", token, alias="tokens")
        graph.output("position", graph.index(past + 1, "i64").reshape(1), alias="symbol:past")
    else:
        graph.output("token", token)


def _remember(graph: Graph, name: str, new: Tensor, sequences: Sequences, positions: Tensor | None) -> tuple[Tensor, Tensor]:
    """The cache `name` with new keys or values, (tokens, kv_heads, head_dim), in their places, and the part that is in use:
    (kv_heads, total, head_dim), with the sequences in front if there are several."""
    length, kv_heads, width = new.shape
    shape = (kv_heads, linear(sequences.context), width)
    rows, total = new.permute(1, 0, 2), sequences.total
    if sequences.slots == 1 and positions is None:
        cache = graph.input(name, shape, new.dtype, kind="state").scatter(1, graph.iota(total)[sequences.past:], rows)
        return cache, cache[:, :total]
    cache = graph.input(name, (sequences.slots, *shape), new.dtype, kind="state")
    if positions is None:
        start = (sequences.slot, 0, 0, 0)
        cache = cache.scatter(2, graph.iota(total)[sequences.past:], rows.unsqueeze(0), start)
        return cache, cache[sequences.slot, :, :total]
    cache = cache.scatter(2, positions.reshape(length, 1, 1, 1), new.reshape(length, kv_heads, 1, width))
    return cache, cache[:length, :, :total]
