"""Large kernels give the same bits in every run: races of copies with reads are rare, and short ones do not show them."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from tilec.runtime.cuda import find_gpu
from tilec.tools.bench import attention, harness, matmul

gpu = find_gpu()
pytestmark = pytest.mark.skipif(gpu is None, reason="no NVIDIA GPU on this machine")
RUNS = 20
CASES = {
    "multiply-adds, blocks that walk": lambda: matmul.case(4096, 4096, 4096, "f32"),
    "multiply-adds, depth in parts": lambda: matmul.case(512, 2048, 2048, "f32"),
    "tensor cores, blocks that walk": lambda: matmul.case(4096, 4096, 4096, "bf16"),
    "tensor cores, depth in parts": lambda: matmul.case(512, 4096, 14336, "bf16"),
    "attention, narrow heads": lambda: attention.case(8192, 64, False),
    "attention, two blocks on a multiprocessor": lambda: attention.case(4096, 64, True),
    "attention, causal": lambda: attention.case(4096, 128, True),
}


@pytest.mark.parametrize("name", CASES)
def test_every_run_gives_the_same_bits(name: str) -> None:
    case = CASES[name]()
    inputs = case.inputs(0)
    assert gpu is not None
    index, exact = case.exact(inputs)
    with contextlib.ExitStack() as stack:
        replay = harness.load(case, gpu[0], [inputs], (), stack)
        first = replay.run([case.output])[0][case.output]
        assert harness.error_of(harness.as_float64(first[index], case.dtype), exact) <= harness.LIMITS[case.dtype]
        for run in range(RUNS):
            again = replay.run([case.output])[0][case.output]
            assert np.array_equal(first.view(np.uint8), again.view(np.uint8)), f"run {run} differs"
