"""Who may import whom, what a start loads, and that nothing in the repository names the machine it was written on."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
THIRD_PARTY = ("mlir", "torch", "numpy", "cuda", "tokenizers", "jinja2", "llvm", "transformers", "gguf", "safetensors")

# The most specific row counts. What is written covers what is below it.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "tilec.errors": (),
    "tilec.dialects": ("tilec.dialects", "tilec.errors", "mlir", "numpy"),
    "tilec.frontend": ("tilec.dialects", "tilec.frontend", "tilec.errors", "mlir", "numpy"),
    # Opening a model and knowing what it needs must not load a compiler.
    "tilec.frontend.config": ("tilec.errors", "numpy"),
    "tilec.frontend.hub": ("tilec.errors",),
    "tilec.frontend.checkpoints": (
        "tilec.frontend.checkpoints", "tilec.frontend.config", "tilec.runtime.tokenizer", "tilec.errors", "numpy"),
    "tilec.pipelines": (
        "tilec.dialects", "tilec.pipelines", "tilec.runtime.artifact", "tilec.runtime.llvm_library", "tilec.errors",
        "mlir", "numpy"),
    "tilec.pipelines.targets": ("tilec.errors",),  # the command line lists targets without loading a compiler
    "tilec.pipelines.recording": ("tilec.errors",),  # and a start from the cache depends on what was recorded
    "tilec.runtime": ("tilec.runtime", "tilec.errors", "numpy", "cuda", "tokenizers", "jinja2", "llvm"),
    "tilec.tools": ("tilec", "mlir", "numpy", "torch"),
    "tilec": ("tilec", "numpy"),
}


def modules() -> Iterator[tuple[str, Path]]:
    """(name as installed, file) of everything that is shipped."""
    for package in ("tilec", "dialects", "frontend", "pipelines", "runtime", "tools"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            name = ".".join(parts if package == "tilec" else ["tilec", *parts]).removesuffix(".__init__")
            yield name, path


def imports(name: str, path: Path) -> Iterator[tuple[str, int]]:
    """(module, line) of every import that runs in a file, `from package import module` as that module."""
    is_package = path.name == "__init__.py"
    for node in running_nodes(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                relative = "." * node.level + base
                base = importlib.util.resolve_name(relative, name if is_package else name.rpartition(".")[0])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in NAMES else base, node.lineno


def running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, without those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for part in child.orelse:
                yield part
                yield from running_nodes(part)
        else:
            yield child
            yield from running_nodes(child)


MODULES = dict(modules())
NAMES = frozenset(MODULES)


def covers(allowed: str, module: str) -> bool:
    # `tilec` itself stands for everything of ours; any other name for itself and what is below it.
    return module == allowed or module.startswith(allowed + ".")


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_what_its_layer_may(name: str) -> None:
    row = max((row for row in MAY_IMPORT if covers(row, name)), key=len)
    wrong = [
        f"line {line}: {module}" for module, line in imports(name, MODULES[name])
        if covers("tilec", module) or module.partition(".")[0] in THIRD_PARTY
        if not any(covers(allowed, module) for allowed in MAY_IMPORT[row])
    ]
    assert not wrong, f"{name} may import {', '.join(MAY_IMPORT[row])}, but has {'; '.join(wrong)}"


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_packages_that_are_declared(name: str) -> None:
    known = {*sys.stdlib_module_names, *THIRD_PARTY, "tilec"}
    strange = {module for module, _ in imports(name, MODULES[name]) if module.partition(".")[0] not in known}
    assert not strange, f"{name} imports {', '.join(sorted(strange))}, which pyproject.toml does not declare"


def test_there_are_no_import_cycles() -> None:
    graph = {name: {m for m, _ in imports(name, path) if m in NAMES and m != name} for name, path in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, "import cycle: " + " -> ".join([*above[above.index(name):], name])
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*above, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_every_package_of_the_repository_is_installed() -> None:
    import tomllib

    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    present = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert present == listed


def loaded_by(code: str) -> set[str]:
    """Which of the heavy packages a fresh interpreter has loaded after `code`."""
    code += "\nimport sys\nprint(*({'mlir', 'torch', 'transformers'} & {m.partition('.')[0] for m in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.splitlines()[-1].split())


def test_importing_tilec_loads_neither_mlir_nor_torch() -> None:
    assert loaded_by("import tilec, tilec.tools.cli") == set()


def test_generating_from_a_cached_artifact_loads_neither_mlir_nor_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .models import write_llama

    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    model = write_llama(tmp_path / "model", num_hidden_layers=1)
    code = (
        f"import tilec\nllm = tilec.LLM({str(model)!r}, target='cpu', context=32)\n"
        "assert llm.generate('w1 w2', tilec.SamplingParams(max_tokens=3))[0].tokens\n"
    )
    assert loaded_by(code + "assert llm.compile_seconds > 0") == {"mlir"}
    assert loaded_by(code + "assert llm.compile_seconds == 0") == set()


def repository_files() -> list[Path]:
    """What git tracks or would track; where there is no git, everything outside folders that tools make."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return [ROOT / name for name in result.stdout.split("\0") if name and (ROOT / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        made = re.compile(r"build|dist|__pycache__|.*\.egg-info|\.(?!ci).*")
        files = (p for p in ROOT.rglob("*") if p.is_file())
        return [p for p in files if not any(made.fullmatch(part) for part in p.relative_to(ROOT).parts[:-1])]


def test_no_file_names_a_place_on_the_machine_it_was_written_on() -> None:
    here = "|".join(re.escape(str(p)) for p in (ROOT, Path.home(), Path(sys.prefix)) if len(p.parts) > 2)
    private = re.compile(rf"/(?:home|Users|root)/\w|(?:{here or 'nowhere'})\b")
    found = []
    for path in repository_files():
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            if private.search(line) and path != Path(__file__).resolve():
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)
