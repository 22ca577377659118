"""The command `tilec`: pull, compile, tune, generate. Errors that a user can mend are one sentence and exit code 1."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import tilec
from tilec.errors import TilecError
from tilec.frontend.checkpoints import open_checkpoint
from tilec.frontend.checkpoints.expected import check_tensors
from tilec.frontend.hub import pull, resolve
from tilec.llm import (
    DEFAULT_CONTEXT,
    DTYPES,
    Completion,
    check_runs_here,
    choose_batch,
    choose_context,
    choose_dtype,
    resolve_target,
)
from tilec.pipelines.targets import CPU_TARGETS, GPU_TARGETS
from tilec.tools import bench


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    with _Interrupts() as interrupts:
        try:
            return options.run(options)
        except BrokenPipeError:  # whoever read the output has left
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        except (Exception, KeyboardInterrupt) as error:
            if interrupts.came:
                print("\ntilec: interrupted", file=sys.stderr)
                return 130
            if isinstance(error, TilecError):
                print(f"tilec: {error}", file=sys.stderr)
            elif isinstance(error, OSError):
                print(f"tilec: {error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
            else:
                raise
            return 1


class _Interrupts:
    """Ctrl-C as one clean exit. It is remembered, because below MLIR's callbacks and in workers it surfaces as another
    error; and it waits while modules load, because native ones do not survive an exception then.
    """

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> _Interrupts:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGALRM)}
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                signal.setitimer(signal.ITIMER_REAL, 0.02)  # and look again
                return
            frame = frame.f_back
        raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    about = "Compile and run Llama-family models on CPUs and NVIDIA GPUs."
    parser = argparse.ArgumentParser("tilec", description=about)
    parser.add_argument("--version", action="version", version=f"tilec {tilec.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    fetch = commands.add_parser("pull", help="fetch a known model into the cache")
    fetch.add_argument("name", help="for example smollm2-135m-instruct")
    fetch.set_defaults(run=_pull)

    compiling = commands.add_parser("compile", help="compile a model to an artifact")
    _add_model(compiling)
    compiling.add_argument("-o", "--output", required=True, type=Path, metavar="DIR", help="folder for the artifact")
    compiling.add_argument("--batch", type=int, default=1, metavar="N", help="sequences at once, up to 8 (default 1)")
    compiling.add_argument("-v", "--verbose", action="store_true", help="say how each kernel is scheduled, and why")
    compiling.add_argument("--tuned", type=Path, metavar="FILE",
                           help="schedules that `tilec tune -o FILE` measured (default: those measured on this machine)")
    compiling.set_defaults(run=_compile)

    tuning = commands.add_parser("tune", help="measure how a model's kernels are scheduled best on this machine")
    _add_model(tuning)
    tuning.add_argument("--batch", type=int, default=1, metavar="N", help="as for `tilec compile` (default 1)")
    tuning.add_argument("--best", type=int, default=4, metavar="N", help="schedules of each kernel to compare (default 4)")
    tuning.add_argument("-o", "--output", type=Path, metavar="FILE",
                        help="for `tilec compile --tuned` (default: a file in the cache, which is used from then on)")
    tuning.set_defaults(run=_tune)

    generate = commands.add_parser("generate", help="answer a prompt")
    _add_model(generate)
    generate.add_argument("prompt", help="the question, or with --raw the text to complete; - reads standard input")
    generate.add_argument("--raw", action="store_true", help="complete the text as it stands, without chat template")
    generate.add_argument("--system", metavar="TEXT", help="system message for the chat template")
    generate.add_argument("--max-tokens", type=int, default=256, metavar="N", help="end after N tokens (default 256)")
    generate.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 (the default) is greedy")
    generate.add_argument("--top-k", type=int, default=0, metavar="K", help="draw from the K likeliest (default: all)")
    generate.add_argument("--top-p", type=float, default=1.0, metavar="P",
                          help="draw from the likeliest with this total probability (default: all)")
    generate.add_argument("--min-p", type=float, default=0.0, metavar="P",
                          help="draw from those with this share of the likeliest one's probability (default: all)")
    generate.add_argument("--seed", type=int, metavar="N", help="draw the same tokens again (default: a fresh seed)")
    generate.add_argument("--stop", action="append", default=[], metavar="TEXT",
                          help="end before this text; may be repeated")
    generate.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: all cores)")
    generate.add_argument("--artifact", type=Path, metavar="DIR", help="run an artifact that `tilec compile` wrote")
    generate.add_argument("--no-cache", action="store_true", help="compile again and keep nothing")
    generate.add_argument("--json", action="store_true", help="print one JSON object instead of streaming text")
    generate.set_defaults(run=_generate)
    measure = commands.add_parser("bench", help="measure on a GPU; alone, list what can be measured")
    measure.add_argument("what", choices=bench.BENCHMARKS, nargs="?", help="each of them has --help")
    measure.add_argument("arguments", nargs=argparse.REMAINDER)
    measure.set_defaults(run=lambda options: bench.run(options.what, options.arguments))
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    targets = ", ".join([*CPU_TARGETS, *GPU_TARGETS])
    parser.add_argument("model", help="a GGUF file, a Hugging Face folder, or a name that `tilec pull` knows")
    parser.add_argument("--target", default="auto", metavar="NAME",
                        help=f"auto (the default: a GPU if there is one), cpu, or one of {targets}")
    parser.add_argument("--dtype", choices=DTYPES,
                        help="of weights and cache (default: bf16; f32 on CPUs without AVX2); tf32 is f32 whose products a "
                             "GPU makes in TF32")
    parser.add_argument("--context", type=int, metavar="N",
                        help=f"tokens the cache holds (default: the model's, up to {DEFAULT_CONTEXT})")


def _pull(options: argparse.Namespace) -> int:
    print(pull(options.name, progress=_progress))
    return 0


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _compile(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    if options.verbose:
        log = logging.getLogger("tilec.schedules")
        log.handlers, log.propagate = [logging.StreamHandler(sys.stdout)], False
        log.setLevel(logging.INFO)
    artifact = tilec.compile(options.model, options.output, options.target, options.dtype, options.context, _progress,
                             options.batch, options.tuned, not options.verbose)  # schedules are said only where code is made
    manifest = artifact.manifest
    size = sum(map(len, artifact.files.values()))
    print(f"{options.output}: {len(manifest.kernels)} kernels for {manifest.target}, {size / 1e3:.0f} kB, "
          f"{time.perf_counter() - start:.1f} s")
    return 0


def _tune(options: argparse.Namespace) -> int:
    checkpoint = open_checkpoint(resolve(options.model))
    check_tensors(checkpoint.config, checkpoint)
    target = resolve_target(options.target)
    check_runs_here(target)
    # Imported here: it loads MLIR, which no other command needs before it compiles.
    command = importlib.import_module("tilec.tools.tune.command")
    held = choose_context(checkpoint.config, options.context)
    request = command.Request(checkpoint.config, target, choose_dtype(options.dtype, target), held, choose_batch(options.batch))
    command.tune(request, options.best, options.output)
    return 0


def _generate(options: argparse.Namespace) -> int:
    params = tilec.SamplingParams(
        max_tokens=options.max_tokens, temperature=options.temperature, top_k=options.top_k, top_p=options.top_p,
        min_p=options.min_p, seed=options.seed, stop=tuple(options.stop))
    prompt = _prompt(options.prompt)
    start = time.perf_counter()
    llm = tilec.LLM(options.model, options.target, options.dtype, options.context, options.threads, options.artifact,
                    not options.no_cache, _progress)
    ready = time.perf_counter() - start
    if options.raw or not llm.checkpoint.chat_template:
        tokens = llm.encode(prompt)
    else:
        messages = [{"role": "system", "content": options.system}] if options.system else []
        tokens = llm.encode_chat([*messages, {"role": "user", "content": prompt}])
    completion = Completion("")
    for piece in llm.stream_tokens(tokens, params, completion):
        if not options.json:
            print(piece, end="", flush=True)
    llm.close()
    if options.json:
        print(json.dumps(_report(llm, completion, ready)))
    else:
        print(f"\n\n{_summary(llm, completion, ready)}")
    return 0


def _prompt(argument: str) -> str:
    """The prompt itself, or with `-` what standard input holds, less the newline that ends its last line."""
    try:
        if argument != "-":
            argument.encode()
            return argument
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeError:
        raise TilecError("the prompt is not UTF-8 text") from None


def _report(llm: tilec.LLM, completion: Completion, ready: float) -> dict[str, object]:
    return {
        "text": completion.text, "tokens": completion.tokens, "finish": completion.finish,
        "prompt_tokens": completion.prompt_tokens, "target": llm.target, "dtype": llm.artifact.manifest.model["dtype"],
        "prefill_seconds": round(completion.prefill_seconds, 4), "decode_seconds": round(completion.decode_seconds, 4),
        "tokens_per_second": round(completion.tokens_per_second, 2),
        "compile_seconds": round(llm.compile_seconds, 3), "ready_seconds": round(ready, 3),
    }


def _summary(llm: tilec.LLM, completion: Completion, ready: float) -> str:
    prefill = completion.prompt_tokens / completion.prefill_seconds if completion.prefill_seconds else 0.0
    compiling = f"compiled in {llm.compile_seconds:.1f} s" if llm.compile_seconds else "compiled before"
    return (f"[{completion.prompt_tokens} prompt tokens at {prefill:.0f}/s, {len(completion.tokens)} tokens at "
            f"{completion.tokens_per_second:.1f} tokens/s on {llm.target}, {compiling}, ready after {ready:.1f} s]")


if __name__ == "__main__":
    sys.exit(main())
