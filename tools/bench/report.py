"""The options, records and tables that all benchmarks share."""

from __future__ import annotations

import argparse
import datetime
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilec
from tilec.llm import resolve_target
from tilec.pipelines.pipeline import OPTIONAL
from tilec.runtime.cuda import driver_version, find_gpu
from tilec.tools.bench import torch_side

RATES = (  # columns of what is bound by arithmetic: key, format, unit
    ("dtype", "", ""), ("ms", ".4f", "ms"), ("tflops", ".1f", "TFLOP/s"), ("torch_by", "", ""), ("torch_ms", ".4f", "ms"),
    ("torch_tflops", ".1f", "TFLOP/s"), ("ratio", ".3f", ""), ("wrong", "", ""), ("error", ".1e", ""),
    ("torch_error", ".1e", ""), ("failed", ".60", ""))


def with_rates(row: dict[str, Any]) -> dict[str, Any]:
    """The row with TFLOP/s of both sides."""
    rates = {f"{side}tflops": row["flop"] / row[f"{side}ms"] / 1e9 for side in ("", "torch_") if row.get(f"{side}ms")}
    return {**row, **rates}


def parser(name: str, about: str) -> argparse.ArgumentParser:
    """The options that all measurements share."""
    made = argparse.ArgumentParser(f"tilec bench {name}", description=about)
    made.add_argument("--target", default="auto", help="default: this machine's GPU")
    made.add_argument("--without", action="append", default=[], choices=OPTIONAL, metavar="PASS",
                      help=f"leave out an optional pass: {', '.join(OPTIONAL)}")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the results here, after every row")
    return made


def sizes(count: int) -> Callable[[str], tuple[int, ...]]:
    """Reads so many numbers, as in 4096x14336."""

    def read(text: str) -> tuple[int, ...]:
        parts = text.split("x")
        if len(parts) != count or not all(p.isdecimal() and int(p) for p in parts):
            raise argparse.ArgumentTypeError(f"need {count} sizes joined by x, but got '{text}'")
        return tuple(map(int, parts))

    return read


class Report:
    """Rows of one benchmark: each is written to the record as it comes, all are printed as a table at the end.

    `columns` are (key, format, unit) with a format such as '.3f'; keys that a row lacks stay empty.
    """

    def __init__(self, name: str, target: str, columns: Sequence[tuple[str, str, str]], path: Path | None) -> None:
        gpu = find_gpu()
        if gpu is None:
            raise tilec.TargetError(f"the {name} benchmark needs an NVIDIA GPU, and none was found")
        self.target, self.columns, self.path = resolve_target(target), columns, path
        self.rows: list[dict[str, Any]] = []
        self.record = {"benchmark": name, "device": gpu[1], "cuda_driver": driver_version(), "tilec": tilec.__version__,
                       "torch": torch_side.version(), "numpy": np.__version__, "target": self.target,
                       "date": datetime.date.today().isoformat()}

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append({k: _short(v) if isinstance(v, float) else v for k, v in row.items()})
        print("  ".join(cell.strip() for cell in self._cells(row) if cell.strip()), flush=True)
        if self.path:
            self.path.write_text(json.dumps({**self.record, "results": self.rows}, indent=1) + "\n")

    def _cells(self, row: dict[str, Any]) -> list[str]:
        return ["" if row.get(key) is None else f"{row[key]:{form}}{unit and ' ' + unit}" for key, form, unit in self.columns]

    def table(self) -> None:
        """Prints all rows, aligned; columns that are empty throughout are left out."""
        cells = zip(*map(self._cells, self.rows), strict=True)
        shown = [[key.replace("_", " "), *c] for (key, _, _), c in zip(self.columns, cells, strict=False) if any(c)]
        widths = [max(map(len, column)) for column in shown]
        print()
        for line in zip(*shown, strict=True):
            print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))


def _short(value: float) -> float | None:
    """Five digits; JSON has no infinity."""
    return float(f"{value:.5g}") if math.isfinite(value) else None
