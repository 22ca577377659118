"""The Llama family: one function that records a model from its configuration, for any number of new tokens."""

from __future__ import annotations

from tilec.dialects.index_expr import Linear, linear
from tilec.frontend import nn, sampling
from tilec.frontend.config import ModelConfig
from tilec.frontend.tensor import Graph, Tensor


def record(graph: Graph, config: ModelConfig, dtype: str, context: int, length: Linear | int, past: Linear,
           outputs: str) -> None:
    """Records one forward pass into the entry point that is open on `graph`.

    `length` new tokens follow `past` tokens whose keys and values are in the cache; the cache holds `context` tokens.
    Inputs: `tokens` i32 (length). States: `cache.N.keys` and `cache.N.values`, (kv_heads, context, head_dim).
    Outputs, by `outputs`: "last" gives `logits` f32 (vocabulary) of the last token and `token`, i32 (1), its argmax
    (fed back as the next step's input where length is 1, with the position); "sample" is the same with a token that is drawn,
    see `frontend/sampling.py` for its inputs; "all" gives `logits` f32 (length, vocabulary).
    Weights have `dtype`, norms and the residual stream are f32.
    """
    length = linear(length)
    total = past + length
    hidden, width = config.hidden_size, config.head_dim
    heads, kv_heads = config.heads, config.kv_heads

    def weight(name: str, *shape: int, dtype: str = dtype) -> Tensor:
        return graph.input(name, shape, dtype, kind="weight")

    graph.graph_break("embed")
    tokens = graph.input("tokens", (length,), "i32")
    table = weight("model.embed_tokens.weight", config.vocab_size, hidden)
    x = nn.embedding(table, tokens)
    cos, sin = nn.rotary_table(graph, length, past, config.head_dim)

    for index in range(config.layers):
        graph.graph_break("layer")
        prefix = f"model.layers.{index}."
        norm = nn.rms_norm(x, weight(prefix + "input_layernorm.weight", hidden, dtype="f32"), config.norm_eps, dtype)
        with graph.scope("query"):
            q = nn.linear(norm, weight(prefix + "self_attn.q_proj.weight", heads * width, hidden))
        with graph.scope("key"):
            k = nn.linear(norm, weight(prefix + "self_attn.k_proj.weight", kv_heads * width, hidden))
        with graph.scope("value"):
            v = nn.linear(norm, weight(prefix + "self_attn.v_proj.weight", kv_heads * width, hidden)).cast(dtype)
        with graph.scope("rotary"):
            q = nn.rotate(q.reshape(length, heads, width), cos, sin).cast(dtype)
            k = nn.rotate(k.reshape(length, kv_heads, width), cos, sin).cast(dtype)
        with graph.scope("cache"):
            positions = graph.iota(total)[past:]
            keys, values = (
                graph.input(f"cache.{index}.{what}", (kv_heads, context, width), dtype, kind="state")
                .scatter(1, positions, new.reshape(length, kv_heads, width).permute(1, 0, 2))
                for what, new in (("keys", k), ("values", v)))
        mixed = nn.attention(q, keys[:, :total], values[:, :total], past).cast(dtype)
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
        graph.output(f"cache.{index}.keys", keys, alias=f"cache.{index}.keys")
        graph.output(f"cache.{index}.values", values, alias=f"cache.{index}.values")

    graph.graph_break("head")
    if outputs != "all":
        x = x[length - 1:]
    norm = nn.rms_norm(x, weight("model.norm.weight", hidden, dtype="f32"), config.norm_eps, dtype)
    if not config.tied_embeddings:
        table = weight("lm_head.weight", config.vocab_size, hidden)
    with graph.scope("logits"):
        logits = nn.linear(norm, table)
    if outputs == "all":
        graph.output("logits", logits)
        return
    logits = logits.reshape(config.vocab_size).contiguous()
    graph.output("logits", logits)
    if outputs == "sample":
        token = sampling.sample(logits, sampling.parameters(graph), graph.index(total, "i64")).reshape(1)
    else:
        token = nn.argmax(logits).reshape(1)
    if length == linear(1):  # a decode step feeds the next one
        graph.output("token", token, alias="tokens")
        graph.output("position", graph.index(past + 1, "i64").reshape(1), alias="symbol:past")
    else:
        graph.output("token", token)
