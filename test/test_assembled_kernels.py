"""ptxas keeps all values of the kernels that the compiler chooses in registers, lets products run on, and keeps reads before
the barriers that say that they have come.

A spill is memory traffic that no cost model counted; a serialised product is one that waits where the code does not say so; a
read of another block that nobody has waited for may find that block gone.
Models are the bench's, with the widths that real ones have, of which one layer has every kernel.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tilec.model_compiler import compile_model
from tilec.pipelines.compiler import compile_module
from tilec.pipelines.targets import find_target
from tilec.runtime.artifact import Artifact
from tilec.tools.bench import matmul
from tilec.tools.bench.models import MODELS

PTXAS, NVDISASM = shutil.which("ptxas"), shutil.which("nvdisasm")
# A model, a target and a type, the lengths of prompts and the context. Heads of 256 elements fill the registers of a thread, a
# row of 18944 elements is no multiple of what a block reads, f32 makes of every 16 bytes fewer elements, and a long cache is
# shared by programs whose sums a second kernel adds up.
COMPILED = {
    "gemma-3-4b-shape": ("sm_90a", "bf16", (128, 2048), 2048),
    "gemma-3-4b-shape, long": ("sm_90a", "bf16", (64,), 32768),
    "qwen2.5-7b": ("sm_120a", "bf16", None, 2048),
    "tinyllama-1.1b": ("sm_80", "f32", None, 2048),
}
KEPT = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"


@functools.cache
def compiled(name: str) -> Artifact:
    target, dtype, chunks, context = COMPILED[name]
    return compile_model(replace(MODELS[name.split(",")[0]], layers=1), target, dtype, context, chunks=chunks, batch=8)


def assembler_says(target: str, file: Path) -> str:
    assert PTXAS is not None
    done = subprocess.run([PTXAS, f"-arch={target}", "-v", file.name, "-o", os.devnull], cwd=file.parent, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.skipif(PTXAS is None, reason="ptxas is not on the path")
@pytest.mark.parametrize("name", COMPILED)
def test_no_kernel_spills_or_waits_for_its_products(name: str, tmp_path: Path) -> None:
    target, artifact = COMPILED[name][0], compiled(name)
    files = [tmp_path / file for file in artifact.files]
    for file in files:
        file.write_bytes(artifact.files[file.name])
    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(files, pool.map(lambda file: assembler_says(target, file), files), strict=True))
    wrong = {file.name: text for file, text in said.items()
             if KEPT not in text or re.search(r"\(C75\d\d\)|serializ|ignored", text, re.IGNORECASE)}
    assert not wrong


RELEASED = "SYNCS.ARRIVE.TRANS64.A1T0"  # at the barrier of a slot
WIDTHS = {"": 1, ".64": 2, ".128": 4}  # of a memory access, in registers


def registers(text: str, width: int = 1) -> set[int]:
    """The registers that operands name: each and, of a wide access, those after it."""
    return {int(n) + i for n in re.findall(r"\bR(\d+)\b", text) for i in range(width)}


def overtaken(code: str, read: str, arrival: str) -> list[str]:
    """The arrivals at a barrier before which nothing has waited for some read that it says has come."""
    found, pending = [], set[int]()
    for line in re.findall(r"/\*[0-9a-f]{4,}\*/ +([^;]*);", code):
        opcode, _, operands = re.sub(r"^@!?U?P\w+ +", "", line.strip()).partition(" ")
        width = WIDTHS[next((w for w in (".128", ".64") if w in opcode), "")]
        if opcode.startswith(read):
            pending |= registers(operands.split(",")[0], width)
        elif opcode == arrival:
            found += [line] if pending else []
        else:  # an instruction waits for what it reads, and for what it writes anew
            pending -= registers(operands, width if opcode.startswith(("ST", "LD")) else 1)
    return found


def machine_code(text: bytes, folder: Path) -> str:
    assert PTXAS is not None and NVDISASM is not None
    (folder / "kernel.ptx").write_bytes(text)
    subprocess.run([PTXAS, "-arch=sm_90a", "kernel.ptx", "-o", "kernel.cubin"], cwd=folder, check=True)
    return subprocess.run([NVDISASM, "kernel.cubin"], cwd=folder, capture_output=True, text=True, check=True).stdout


NEEDED = pytest.mark.skipif(PTXAS is None or NVDISASM is None, reason="ptxas and nvdisasm are not both on the path")


@NEEDED
def test_what_a_block_reads_of_others_has_come_before_it_lets_them_go(tmp_path: Path) -> None:
    """In attention, in products whose depth a cluster shares, and in the choice of a token, where only one thread needs it."""
    seen = set()
    for name, text in compiled("gemma-3-4b-shape").files.items():
        if b"ld.shared::cluster" in text:
            code = machine_code(text, tmp_path)
            assert "LD.E" in code and "UCGABAR_ARV" in code and not overtaken(code, "LD.E", "UCGABAR_ARV"), name
            seen.add(name.removesuffix(".ptx"))
    assert {"decode_layer_attention", "decode_head_argmax", "prefill_layer_output"} <= seen


@NEEDED
@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (512, 2048, 2048), (512, 128, 512)], ids=str)
def test_what_threads_read_of_a_slot_has_come_before_they_give_it_back(shape: tuple[int, int, int], tmp_path: Path) -> None:
    """A copy engine fills the slot again, and knows nothing of reads that are on their way."""
    (text,) = compile_module(matmul.case(*shape, "f32").graph.module, find_target("sm_90a"), {}).files.values()
    code = machine_code(text, tmp_path)
    assert "LDS.128" in code and RELEASED in code and not overtaken(code, "LDS", RELEASED)
