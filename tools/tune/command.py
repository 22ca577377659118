"""Measures the candidates of every kernel of a model and records the fastest, each kernel in a process of its own.

A candidate that ends the process, hangs or is wrong is noted, and the others of its kernel are measured without it.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tilec.errors import TilecError
from tilec.llm import device_name, recording_path, toolchain
from tilec.pipelines.recording import Choice, Measured, Recording, RecordingError
from tilec.tools.tune.program import Kernel, Request, kernels_of

CHILD = [sys.executable, "-m", "tilec.tools.tune.child"]
PATIENCE = 60.0  # seconds without a word after which a child hangs
GAIN = 1.02  # by which a candidate must be faster than the default to be chosen: less is noise


def tune(request: Request, best: int, output: Path | None, say: Callable[[str], None] = print) -> Recording:
    """Measures, prints a line for each kernel, writes the recording and returns it."""
    if best < 2:
        raise TilecError(f"--best must be at least 2, but is {best}: there is nothing to compare one candidate with")
    target = request.target
    path, device = output or recording_path(target), device_name(target)
    earlier = _earlier(path, device, target)
    choices: dict[str, Choice] = {}
    gains = []
    say(f"{'kernel':40} {'default us':>10} {'best us':>10} {'gain':>6}  shape")
    for kernel in kernels_of(request, best):
        times, fastest, failed = _measured(kernel, target)
        measured = tuple(Measured(s, c.shape, times.get(i), failed.get(i, ""))
                         for i, (c, s) in enumerate(zip(kernel.candidates, kernel.schedules, strict=True)))
        if times:
            chosen = 0 if 0 in times and times[0] < GAIN * times[fastest] else fastest
            choices[kernel.key] = Choice(kernel.name, kernel.schedules[chosen], times[chosen], measured)
            gain = times[0] / times[chosen] if 0 in times else None
            gains += [gain] if gain else []
            say(f"{kernel.name:40} {_number(times.get(0), 1):>10} {times[chosen]:>10.1f} {_number(gain, 2):>6}  "
                f"{measured[chosen].shape}{'' if chosen else ' (default)'}")
        for i, why in failed.items():
            say(f"{kernel.name}: {measured[i].shape} left out: {why}")
    if not choices:
        raise TilecError("no kernel could be measured, so nothing is recorded")
    versions = dict(zip(("mlir", "llvm"), toolchain(), strict=True))
    recording = Recording(device, target, versions, datetime.date.today().isoformat(), {**earlier, **choices}, str(path))
    recording.save(path)
    mean = math.exp(sum(map(math.log, gains)) / len(gains)) if gains else 1.0
    say(f"geometric mean of the gains of {len(gains)} kernels: {mean:.3f}; recorded in {path}")
    return recording


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _earlier(path: Path, device: str, target: str) -> dict[str, Choice]:
    """The choices for other kernels that a file holds, which stay. RecordingError, before the work, where it is no place."""
    if path.is_dir():
        raise RecordingError(f"{path} is a folder; name a file for the recording")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return {}
    earlier = Recording.load(path)
    if (earlier.device, earlier.target) != (device, target):
        raise RecordingError(f"{path} was recorded for {earlier.target} on {earlier.device}; name another file")
    return dict(earlier.choices)


def _measured(kernel: Kernel, target: str) -> tuple[dict[int, float], int, dict[int, str]]:
    """(microseconds of each candidate, which is the fastest, why others have none)."""
    failed: dict[int, str] = {}
    while len(failed) < len(kernel.schedules):
        job = {"program": kernel.program, "target": target, "symbols": kernel.symbols,
               "schedules": {i: s for i, s in enumerate(kernel.schedules) if i not in failed}}
        at = None
        try:
            for line in _lines(job):
                at = line.get("at", at)
                if "failed" in line:
                    failed[line["failed"]] = line["why"]
                elif "us" in line:
                    return {int(i): us for i, us in line["us"].items()}, line["fastest"], failed
        except _ChildEnded as ended:
            if at is None:  # before any candidate: no other will do better
                return {}, 0, dict.fromkeys(range(len(kernel.schedules)), str(ended))
            failed[at] = str(ended)
    return {}, 0, failed


class _ChildEnded(Exception):
    """A child that is gone, or was ended, without a result; the text says how."""


def _lines(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a child says of a job, as it says it, and _ChildEnded after its last line."""
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
            CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}) as child:
        assert child.stdin and child.stdout
        said: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_pump, args=(child.stdout, said), daemon=True).start()
        try:
            threading.Thread(target=_feed, args=(child.stdin, json.dumps(job)), daemon=True).start()
            while line := said.get(timeout=PATIENCE):
                yield json.loads(line)
            raise _ChildEnded(_reason(child.wait(), errors))  # whoever has all that is wanted asks for no more lines
        except queue.Empty:
            raise _ChildEnded(f"no answer for {PATIENCE:.0f} s") from None
        finally:
            child.kill()


def _pump(stream: IO[str], into: queue.SimpleQueue[str]) -> None:
    for line in stream:
        into.put(line)
    into.put("")


def _feed(stream: IO[str], text: str) -> None:
    try:
        stream.write(text)
        stream.close()
    except BrokenPipeError:
        pass  # it ended before it read all; how, its exit code says


def _reason(code: int, errors: IO[str]) -> str:
    errors.seek(0)
    last = errors.read().strip().splitlines()[-1:]
    return f"the process ended with {signal.Signals(-code).name}" if code < 0 else f"exit code {code}: {' '.join(last)[:200]}"
