"""Programs on the CPU target against the reference: random ones, every primop alone, and the shapes that fusion must make."""

from __future__ import annotations

import os

import numpy as np
from hypothesis import HealthCheck, given, settings

from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import Artifact
from tilec.runtime.cpu import CpuProgram
from tilec.runtime.weights import pack

from . import reference
from .programs import Program, programs
from .reference import Array

EXAMPLES = int(os.environ.get("TILEC_EXAMPLES", "60"))
RANDOM = settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
                  suppress_health_check=list(HealthCheck))


def run(program: Program, target: str = "cpu", threads: int | None = None) -> dict[str, Array]:
    """Compiles and runs the entry point `main`."""
    return run_artifact(program, compile_module(program.graph.module, find_target(target), {}), threads)


def run_artifact(program: Program, artifact: Artifact, threads: int | None = None) -> dict[str, Array]:
    held = {n: reference.to_memory(a, program.dtypes[n]) for n, a in program.inputs.items()}
    weights = {n: pack(held[n], w) for n, w in artifact.manifest.weights.items()}
    cpu = CpuProgram(artifact, weights, threads)
    try:
        for name in artifact.manifest.states:
            cpu.state(name)[...] = held[name]
        results = dict(cpu.run("main", held, program.symbols))
        for name, state in program.aliases.items():
            results[name] = cpu.state(state)
        return {n: reference.from_memory(a, program.dtypes[n]) for n, a in results.items()}
    finally:
        cpu.close()


@RANDOM
@given(programs())
def test_a_random_program_computes_what_the_reference_says(program: Program) -> None:
    expected = program.expected()
    expected.check(run(program))
