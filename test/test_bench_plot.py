"""The plot of results: valid SVG that shows every kind of them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tilec.errors import TilecError
from tilec.tools.bench import plot
from tilec.tools.cli import main

ROOT = Path(__file__).resolve().parent.parent


def test_the_plot_of_the_committed_results_is_what_is_committed(tmp_path: Path) -> None:
    folder = ROOT / "tools" / "bench" / "results"
    names = [f"{kind}_h200_2026-12-01" for kind in ("decode", "prefill", "matmul", "attention", "matvec")]
    assert main(["bench", "plot", *(str(folder / f"{n}.json") for n in names), "--output", str(tmp_path / "plot.svg")]) == 0
    assert (tmp_path / "plot.svg").read_text() == (folder / "h200_2026-12-01.svg").read_text()


def test_a_plot_shows_every_kind_of_result_as_valid_svg() -> None:
    rate = {"ms": 1.0, "ratio": 0.5, "tflops": 400.0, "dtype": "bf16"}
    records = [
        {"results": [{"model": "a<b", "dtype": "f32", "ms_per_token": 2.0, "share_of_copy_rate": 0.5, "torch_ms": 3.0}]},
        {"benchmark": "prefill", "results": [{"model": "m", "dtype": "bf16", "tokens": 7, "tokens_per_second": 1e4, **rate}]},
        {"benchmark": "matmul", "results": [{"shape": "1x2x3", **rate}, {"shape": "4x5x6", "ms": None, "wrong": True}]},
        {"benchmark": "attention", "results": [{"shape": "8x9", "causal": True, **rate}]},
        {"benchmark": "matvec", "results": [{"shape": "7x7", "dtype": "bf16", "ratio": 1.5, "terabytes_per_second": 3.0}]},
    ]
    root = ElementTree.fromstring(plot.draw(plot.panels([*records, *records]), "a & b"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    shown = ("a<b, f32", "2.00 ms, 50% of the limit", "torch", "m, 7", "1x2x3", "8x9, causal", "1.50, 3.00 TB/s", "a & b")
    for text in shown:
        assert texts.count(text) == 1, text
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        if rect.attrib["width"] != "100%":
            assert float(rect.attrib["x"]) >= 0 and float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width
            assert float(rect.attrib["y"]) >= 0 and float(rect.attrib["y"]) + float(rect.attrib["height"]) <= height


@pytest.mark.parametrize("content", ["[]", "{", "{}", '{"results": []}', '{"results": [{"model": "m"}]}'])
def test_what_is_no_record_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(content)
    with pytest.raises(TilecError, match=r"no row has a time|is not a record"):
        plot.main([str(tmp_path / "record.json"), "--output", str(tmp_path / "plot.svg")])
    assert not (tmp_path / "plot.svg").exists()
