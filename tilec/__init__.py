"""tilec: a small compiler that runs Llama-family models on CPUs and NVIDIA GPUs.

    import tilec
    llm = tilec.LLM("smollm2-135m-instruct")
    print(llm.chat([{"role": "user", "content": "What is a compiler?"}]).text)

`compile` writes an artifact that `load` runs later or elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tilec.errors import ContextLengthError, TargetError, TilecError, UnsupportedError
from tilec.frontend.checkpoints import open_checkpoint
from tilec.frontend.checkpoints.expected import check_tensors
from tilec.frontend.hub import resolve
from tilec.llm import (
    LLM,
    Completion,
    check_output,
    choose_batch,
    choose_context,
    choose_dtype,
    compiled,
    find_recording,
    resolve_target,
)
from tilec.runtime.artifact import Artifact
from tilec.runtime.sampling import SamplingParams

__version__ = "0.1.0"


def compile(model: str | Path, output: str | Path | None = None, target: str = "auto", dtype: str | None = None,
            context: int | None = None, progress: Callable[[str], None] | None = None, batch: int = 1,
            tuned: str | Path | None = None, cache: bool = True) -> Artifact:
    """Compiles a model (a GGUF file, a Hugging Face folder or a known name) and, with `output`, writes the artifact.

    It then takes up to `batch` sequences at once.

    The folder `output` appears whole or not at all; it must be new, empty or an artifact, which is replaced. `progress`
    gets a line before a compilation that is not in the cache. Schedules are those of `tuned`, a file that `tilec tune` wrote,
    or of what it measured on this machine. Without `cache` the program is compiled anew and not kept.
    """
    if output is not None:
        check_output(Path(output))  # before seconds of work
    checkpoint = open_checkpoint(resolve(model))
    check_tensors(checkpoint.config, checkpoint)
    held = choose_context(checkpoint.config, context)
    resolved = resolve_target(target)
    artifact, _ = compiled(checkpoint.config, resolved, choose_dtype(dtype, resolved), held, cache, progress,
                           choose_batch(batch), find_recording(resolved, tuned))
    if output is not None:
        artifact.save(Path(output))
    return artifact


def load(artifact: str | Path, model: str | Path, threads: int | None = None) -> LLM:
    """A model run from an artifact that `compile` wrote; weights come from the checkpoint `model`."""
    return LLM(model, artifact=artifact, threads=threads)


__all__ = [
    "LLM", "Artifact", "Completion", "ContextLengthError", "SamplingParams", "TargetError", "TilecError",
    "UnsupportedError", "compile", "load",
]
