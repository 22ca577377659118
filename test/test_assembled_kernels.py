"""ptxas keeps all values of the kernels that the compiler chooses in registers, and lets products run on.

A spill is memory traffic that no cost model counted; a serialised product is one that waits where the code does not say so.
Models are the bench's, with the widths that real ones have, of which one layer has every kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tilec.model_compiler import compile_model
from tilec.tools.bench.models import MODELS

PTXAS = shutil.which("ptxas")
# A model, a target and a type, and the lengths of prompts. Heads of 256 elements fill the registers of a thread, a row of
# 18944 elements is no multiple of what a block reads, and f32 makes of every 16 bytes fewer elements.
COMPILED = {
    "gemma-3-4b-shape": ("sm_90a", "bf16", (128, 2048)),
    "qwen2.5-7b": ("sm_120a", "bf16", None),
    "tinyllama-1.1b": ("sm_80", "f32", None),
}
KEPT = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"


def assembler_says(target: str, file: Path) -> str:
    assert PTXAS is not None
    done = subprocess.run([PTXAS, f"-arch={target}", "-v", file.name, "-o", os.devnull], cwd=file.parent, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.skipif(PTXAS is None, reason="ptxas is not on the path")
@pytest.mark.parametrize("name", COMPILED)
def test_no_kernel_spills_or_waits_for_its_products(name: str, tmp_path: Path) -> None:
    target, dtype, chunks = COMPILED[name]
    artifact = compile_model(replace(MODELS[name], layers=1), target, dtype, 2048, chunks=chunks, batch=8)
    files = [tmp_path / file for file in artifact.files]
    for file in files:
        file.write_bytes(artifact.files[file.name])
    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(files, pool.map(lambda file: assembler_says(target, file), files), strict=True))
    wrong = {file.name: text for file, text in said.items()
             if KEPT not in text or re.search(r"\(C75\d\d\)|serializ|ignored", text, re.IGNORECASE)}
    assert not wrong
