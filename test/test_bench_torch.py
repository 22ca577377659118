"""The decode step in torch that ours is measured against is a Llama, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tilec.model_compiler import compile_model
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.weights import load_weights
from tilec.tools.bench import models
from tilec.tools.bench.torch_decode import Step

TINY = replace(models.MODELS["llama-3.2-1b"], vocab_size=96, hidden_size=64, intermediate_size=96, layers=2, heads=4,
               kv_heads=2, head_dim=16, max_context=128, tied_embeddings=False)


@pytest.mark.parametrize("attend", ["sdpa", "matmuls"])
def test_the_decode_step_in_torch_computes_what_ours_computes(attend: str) -> None:
    artifact = compile_model(TINY, "cpu", "f32", 16)
    read = models.random_weights(artifact.manifest, TINY)
    cpu = CpuProgram(artifact, load_weights(artifact.manifest, read, 1), 1)

    def matrix(*names: str) -> torch.Tensor:
        return torch.cat([torch.from_numpy(np.array(read(n, "f32"))) for n in names])

    with torch.no_grad():
        step = Step(torch, TINY, 8, "cpu", torch.float32)
        step.table, step.head = matrix("model.embed_tokens.weight"), matrix("lm_head.weight")
        layers = []
        for i, (norm, _, _, other, _, _, keys, values) in enumerate(step.layers):
            p = f"model.layers.{i}."
            layers.append((
                norm, matrix(*(f"{p}self_attn.{n}_proj.weight" for n in "qkv")), matrix(p + "self_attn.o_proj.weight"), other,
                matrix(p + "mlp.gate_proj.weight", p + "mlp.up_proj.weight"), matrix(p + "mlp.down_proj.weight"), keys, values))
        token = int(step.token)
        for position in range(6):
            step.layers = [(*w, keys[:, :position + 1], values[:, :position + 1]) for *w, keys, values in layers]
            step.position.fill_(position)
            logits = step.step(step.layer, getattr(step, attend)).numpy()[0]
            ours = cpu.run("decode", {"tokens": np.array([token], np.int32)}, {"past": position})
            np.testing.assert_allclose(logits, ours["logits"], atol=1e-5 * abs(logits).max())
            token = int(ours["token"][0])
            assert int(step.token) == token
    cpu.close()
