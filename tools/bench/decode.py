"""Time of one decode step on a GPU, random weights at the true shapes of public models.

    tilec bench decode --model llama-3.2-1b --context 512 --json results.json

Prints, per model, the median device time of a token, the bytes that must be read for it over the time, and their share of
the copy rate of an H200. `--kernels` adds what each kernel costs: the step's time with and without it. `--entry sample` times
the step that draws its token, with top-k and top-p, instead of the greedy one.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tilec
from tilec.frontend.config import ModelConfig, inverse_frequencies
from tilec.llm import resolve_target
from tilec.model_compiler import compile_model
from tilec.runtime.artifact import ITEM_BYTES, Artifact
from tilec.runtime.cuda import CudaProgram, driver_version, find_gpu
from tilec.runtime.sampling import Sampler, SamplingParams
from tilec.runtime.weights import load_weights

COPY_RATE = 4.3e12  # bytes a second: a device copy on an H200, reads plus writes


def _llama(**shape: object) -> ModelConfig:
    common = {"norm_eps": 1e-5, "rope_theta": 500000.0, "max_context": 131072, "tied_embeddings": False}
    return ModelConfig(**{**common, **shape})  # type: ignore[arg-type]


MODELS = {
    "llama-3.2-1b": _llama(vocab_size=128256, hidden_size=2048, intermediate_size=8192, layers=16, heads=32, kv_heads=8,
                           head_dim=64, tied_embeddings=True),
    "tinyllama-1.1b": _llama(vocab_size=32000, hidden_size=2048, intermediate_size=5632, layers=22, heads=32, kv_heads=4,
                             head_dim=64, max_context=2048),
    "llama-3.1-8b": _llama(vocab_size=128256, hidden_size=4096, intermediate_size=14336, layers=32, heads=32, kv_heads=8,
                           head_dim=128),
}


def random_weights(artifact: Artifact, config: ModelConfig) -> object:
    """Reads like a checkpoint, but gives slices of one random pool: values of a trained model's size, no repetition."""
    pool = np.random.default_rng(0).standard_normal(1 << 24, dtype=np.float32) * 0.02
    pools = {"f32": pool, "f16": pool.astype(np.float16), "bf16": (pool.view(np.uint32) >> 16).astype(np.uint16)}

    def read(name: str, dtype: str) -> np.ndarray:
        if name == "rotary.inverse_frequencies":
            return inverse_frequencies(config)
        shape = artifact.manifest.weights[name].shape
        if len(shape) == 1:
            return np.ones(shape, np.float32)
        count, source = int(np.prod(shape)), pools[dtype]
        start = hash(name) % (source.size // 2)
        return np.resize(source[start:], count).reshape(shape)

    return read


def measure(name: str, target: str, dtype: str, context: int, repeats: int, kernels: bool,
            leave_out: Sequence[str] = (), entry: str = "decode") -> dict[str, object]:
    """Compiles a model, fills its cache up to `context` in form only, and times decode steps around there."""
    config = MODELS[name]
    room = context + 2 * repeats + 64
    artifact = compile_model(config, target, dtype, room, leave_out=leave_out)
    program = CudaProgram(artifact, load_weights(artifact.manifest, random_weights(artifact, config), 8))  # type: ignore[arg-type]
    arguments = {"tokens": np.array([7], np.int32)}
    if entry == "sample":
        arguments |= Sampler(SamplingParams(temperature=0.8, top_k=50, top_p=0.95, seed=1)).arguments
    launches = artifact.manifest.entries[entry].launches
    times = program.time(entry, arguments, {"past": context - repeats // 2}, repeats)
    median = statistics.median(times[5:])
    used = {b.label for b in artifact.manifest.entries[entry].buffers if b.kind == "weight"}
    read = sum(ITEM_BYTES[w.dtype] * int(np.prod(w.shape)) for n, w in artifact.manifest.weights.items()
               if n in used and not (n == "model.embed_tokens.weight" and not config.tied_embeddings))
    read += 2 * config.layers * config.kv_heads * config.head_dim * context * ITEM_BYTES[dtype]
    result: dict[str, object] = {
        "model": name, "dtype": dtype, "context": context, "ms_per_token": round(median, 4),
        "gigabytes": round(read / 1e9, 3), "terabytes_per_second": round(read / median / 1e9, 3),
        "share_of_copy_rate": round(read / median * 1e3 / COPY_RATE, 3),
        "launches": len(launches),
    }
    if entry != "decode":
        result["entry"] = entry
    if leave_out:
        result["without"] = list(leave_out)
    if kernels:
        costs = {}
        for kernel in dict.fromkeys(k for k, _ in launches):
            count = sum(k == kernel for k, _ in launches)
            without = statistics.median(program.time(entry, arguments, {"past": context}, 30, frozenset([kernel]))[5:])
            costs[kernel] = {"launches": count, "microseconds_each": round((median - without) * 1e3 / count, 2)}
        result["kernels"] = costs
    program.close()
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser("tilec bench decode", description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", choices=[*MODELS], help="default: all")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "f16", "f32"])
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--kernels", action="store_true", help="also what each kernel costs")
    parser.add_argument("--entry", default="decode", choices=["decode", "sample"])
    parser.add_argument("--without", action="append", default=[], metavar="PASS", help="leave out an optional pass")
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args(arguments)
    gpu = find_gpu()
    if gpu is None:
        raise tilec.TargetError("the decode benchmark needs an NVIDIA GPU, and none was found")
    results = []
    for name in options.model or MODELS:
        r = measure(name, resolve_target(options.target), options.dtype, options.context, options.repeats, options.kernels,
                    options.without, options.entry)
        for kernel, cost in r.get("kernels", {}).items():  # type: ignore[attr-defined]
            print(f"    {kernel:40} {cost['launches']:4} x {cost['microseconds_each']:8.2f} us")
        print(f"{name:16} {r['dtype']:5} {r['ms_per_token']:8.4f} ms  {r['terabytes_per_second']:6.3f} TB/s  "
              f"{100 * r['share_of_copy_rate']:5.1f}% of the copy rate, {r['launches']} launches")  # type: ignore[operator]
        results.append(r)
    if options.json:
        record = {
            "device": gpu[1], "cuda_driver": driver_version(), "tilec": tilec.__version__,
            "date": datetime.date.today().isoformat(), "repeats": options.repeats, "results": results,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
