"""Draws results as an SVG: time of a token against the memory limit, rates of prompts, speeds over torch's.

    tilec bench plot tools/bench/results/*.json --output results.svg
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tilec.errors import TilecError

WIDTH, LEFT, RIGHT, ROW = 840, 270, 190, 24  # pixels: the whole, labels, texts after the bars, one bar
USUAL_CONTEXT = 512  # tokens, as `tilec bench decode` has them unless told
INK, SOFT, OURS, LIMIT, TORCH = "#1f2937", "#d1d5db", "#2563eb", "#111827", "#ea580c"


@dataclass(frozen=True)
class Bar:
    """A value with its label, a text after it, and marks (value, colour) to compare it with."""

    label: str
    value: float
    text: str
    marks: tuple[tuple[float, str], ...] = ()


@dataclass
class Panel:
    """Bars on one axis that begins at 0; `legend` names the colours of marks, `line` is a value worth a line."""

    title: str
    legend: Mapping[str, str]
    line: float | None = None
    bars: list[Bar] = field(default_factory=list)


def panels(records: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """What to draw of records, each as `tilec bench NAME --json` writes it; equal bars once, empty panels not at all."""
    decode = Panel("Milliseconds a step", {LIMIT: "reading memory alone, at the device's copy rate", TORCH: "torch"})
    prefill = Panel("Tokens of a prompt a second", {})
    speeds = {n: Panel(f"Speed of {n} over torch's fastest", {}, 1.0) for n in ("matvec", "matmul", "attention")}
    for record in records:
        name = record.get("benchmark", "decode")  # the first records had no name
        for row in record["results"]:
            what = [row.get("model"), row.get("shape"), None if row.get("dtype") == "bf16" else row.get("dtype")]
            what += [{True: "causal", False: "full"}.get(row.get("causal", "")), "symbolic" if row.get("symbolic") else None]
            what += [f"context {n}" if (n := row.get("context", USUAL_CONTEXT)) != USUAL_CONTEXT else None]
            label = ", ".join(filter(None, what))
            if row.get("batch"):
                label += f", {row['batch']} sequences"
            if row.get("without"):
                label += " without " + ", ".join(p.removeprefix("kernel-").removeprefix("primop-") for p in row["without"])
            if name == "decode":
                ms, share = row["ms_per_token"], row["share_of_copy_rate"]
                marks = ((ms * share, LIMIT), *([(row["torch_ms"], TORCH)] if row.get("torch_ms") else []))
                _add(decode, Bar(label, ms, f"{ms:.2f} ms, {share:.0%} of the limit", marks))
            elif name == "prefill" and row.get("ms"):
                rate = row["tokens_per_second"]
                _add(prefill, Bar(f"{label}, {row['tokens']}", rate, f"{rate:,.0f}, {row['tflops']:.0f} TFLOP/s"))
            elif row.get("ratio"):
                rate = f"{row['tflops']:.0f} TFLOP/s" if "tflops" in row else f"{row['terabytes_per_second']:.2f} TB/s"
                _add(speeds[name], Bar(label, row["ratio"], f"{row['ratio']:.2f}, {rate}"))
    return [p for p in (decode, prefill, *speeds.values()) if p.bars]


def _add(panel: Panel, bar: Bar) -> None:
    if bar not in panel.bars:
        panel.bars.append(bar)


def step_of(largest: float) -> float:
    """The distance of ticks, a round number, for about five of them."""
    rough = largest / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough)


def draw(found: Sequence[Panel], caption: str) -> str:
    """The picture as SVG text."""
    body: list[str] = []
    top = 16.0
    for panel in found:
        body += _panel(panel, top)
        top += 64 + ROW * len(panel.bars) + (18 if _used(panel) else 0)
    body.append(_text(16, top + 4, caption, size=11, fill="#6b7280"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 16:.0f}" font-family="system-ui, sans-serif">'
    return "\n".join([head, f"<title>{escape(caption)}</title>", '<rect width="100%" height="100%" fill="white"/>',
                      *body, "</svg>\n"])


def _used(panel: Panel) -> dict[str, str]:
    colours = {colour for bar in panel.bars for _, colour in bar.marks}
    return {colour: name for colour, name in panel.legend.items() if colour in colours}


def _panel(panel: Panel, top: float) -> Iterator[str]:
    largest = max(v for b in panel.bars for v in (b.value, panel.line or 0.0, *(m for m, _ in b.marks)))
    scale, first, end = (WIDTH - LEFT - RIGHT) / largest, top + 22, top + 28 + ROW * len(panel.bars)
    step = step_of(largest)
    yield _text(16, top + 10, panel.title, size=15, weight="bold")
    for i in range(math.floor(largest / step + 1e-9) + 1):
        x = LEFT + i * step * scale
        yield f'<line x1="{x:.1f}" y1="{first}" x2="{x:.1f}" y2="{end}" stroke="{SOFT}"/>'
        yield _text(x, end + 14, f"{i * step:,.10g}", size=11, anchor="middle")
    for i, bar in enumerate(panel.bars):
        y = first + 4 + i * ROW
        yield _text(LEFT - 8, y + 13, bar.label, size=12, anchor="end")
        yield f'<rect x="{LEFT}" y="{y}" width="{bar.value * scale:.1f}" height="{ROW - 8}" rx="2" fill="{OURS}"/>'
        for value, colour in bar.marks:
            yield f'<rect x="{LEFT + value * scale - 1.5:.1f}" y="{y - 3}" width="3" height="{ROW - 2}" fill="{colour}"/>'
        yield _text(WIDTH - RIGHT + 10, y + 13, bar.text, size=12)
    if panel.line is not None:
        x = LEFT + panel.line * scale
        yield f'<line x1="{x:.1f}" y1="{first}" x2="{x:.1f}" y2="{end}" stroke="{TORCH}" stroke-width="2"/>'
    x = float(LEFT)
    for colour, name in _used(panel).items():
        yield f'<rect x="{x}" y="{end + 22}" width="3" height="12" fill="{colour}"/>'
        yield _text(x + 9, end + 32, name, size=11)
        x += 30 + 6 * len(name)


def _text(x: float, y: float, text: str, size: int = 13, anchor: str = "start", weight: str = "normal", fill: str = INK) -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{fill}">{escape(text)}</text>')


def main(arguments: Sequence[str] | None = None) -> int:
    """Draws; returns the exit code."""
    parser = argparse.ArgumentParser("tilec bench plot", description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json", help="what --json of the others wrote")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE.svg")
    options = parser.parse_args(arguments)
    records = []
    for path in options.results:
        try:
            records.append(json.loads(path.read_text()))
            found = panels(records)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TilecError(f"{path} is not a record of `tilec bench` ({type(error).__name__}: {error})") from None
    if not found:
        raise TilecError("there is nothing to draw: no row has a time")
    sources = dict.fromkeys(f"{r.get('device', 'unknown device')}, {r.get('date', 'undated')}" for r in records)
    options.output.write_text(draw(found, "tilec on " + "; ".join(sources)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
