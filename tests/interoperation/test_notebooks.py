"""What notebooks show: balanced HTML, escaped, for which nothing runs."""

from __future__ import annotations

import copy
import pickle
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import metaop
from metaop import nn

HOSTILE = "<script>alert('&\"')</script>"


class Page(HTMLParser):
    """The tags and the texts of a piece of HTML, every tag of which has its end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        self.text += text
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += text


def page_of(value: Any) -> Page:
    return Page(value._repr_html_())


def test_values_of_a_matrix() -> None:
    values = np.arange(200, dtype=np.float32).reshape(10, 20) / 8
    page = page_of(metaop.from_numpy(values))
    assert "Tensor" in page.text and "float32[10, 20]" in page.text and "cpu" in page.text
    shown = [0, 1, 2, None, 17, 18, 19]
    assert page.rows[0] == ["", *("…" if k is None else str(k) for k in shown)]
    assert [row[0] for row in page.rows[1:]] == ["0", "1", "2", "…", "7", "8", "9"]
    for row in page.rows[1:]:
        for column, cell in zip(shown, row[1:]):
            if row[0] == "…" or column is None:
                assert cell == "…"
            else:
                assert float(cell) == pytest.approx(values[int(row[0]), column], abs=5e-5)


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "int8", "int64", "bool", "complex64", "uint8"]
)
def test_values_of_every_kind(dtype: str) -> None:
    given = torch.tensor([[0, 1, 3], [2, 1, 5]]).to(getattr(torch, dtype))
    made = metaop.tensor([[0, 1, 3], [2, 1, 5]]).to(getattr(metaop, dtype))
    made.tolist()
    page = page_of(made)
    assert f"{dtype}[2, 3]" in page.text
    cells = [cell for row in page.rows[1:] for cell in row[1:]]
    names = {"True": True, "False": False}
    found = [names[cell] if cell in names else complex(cell) for cell in cells]
    assert found == given.reshape(-1).tolist()


def test_other_dimensions() -> None:
    assert page_of(metaop.tensor(2.5)).rows == [["2.5000"]]
    assert page_of(metaop.tensor([3, 4])).rows == [["0", "1"], ["3", "4"]]
    deep = page_of(metaop.from_numpy(np.arange(24).reshape(2, 3, 2, 2)))
    assert "[0, 0, :, :]" in deep.text
    assert deep.rows == [["", "0", "1"], ["0", "0", "1"], ["1", "2", "3"]]
    assert page_of(metaop.zeros(0, 3)).rows == []
    assert "meta" in page_of(metaop.zeros(2, device="meta")).text
    assert "Parameter" in page_of(nn.Parameter(metaop.ones(2))).text
    assert "not yet known" in page_of(nn.LazyLinear(3).weight).text
    odd = page_of(metaop.tensor([float("nan"), float("inf"), -1.5]))
    assert odd.rows[1] == ["nan", "inf", "-1.5000"]


def test_nothing_runs() -> None:
    x = metaop.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    page = page_of(y)
    assert "not computed yet" in page.text and page.rows == [] and y.call.is_pending
    y.sum().backward()
    assert "requires grad" in page_of(x).text
    assert y.tolist() == pytest.approx(np.exp([1.0, 2.0]).tolist(), rel=1e-6)
    assert page_of(y).rows[1] == ["2.7183", "7.3891"]
    whole = metaop.from_numpy(np.arange(12.0).reshape(3, 4))
    view = whole[1:, ::2]
    assert page_of(view).rows[1:] == [["0", "4.", "6."], ["1", "8.", "10."]]
    assert view.call.is_pending


def test_a_captured_function_may_ask() -> None:
    @metaop.jit
    def double(x: metaop.Tensor) -> metaop.Tensor:
        y = x * 2
        assert "not computed yet" in page_of(x).text + page_of(y).text
        return y + 1

    for k in range(8):
        assert double(metaop.tensor([float(k)])).tolist() == [2 * k + 1]
    assert double.traces < 8  # it was captured


class Hostile(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_parameter(HOSTILE, nn.Parameter(metaop.ones(2, 3)))
        self.register_buffer("counts" + HOSTILE, metaop.zeros(4))
        shared = nn.Linear(3, 2)
        self.add_module("first" + HOSTILE, shared)
        self.add_module("second", nn.Sequential(shared, nn.ReLU()))
        self.add_module("none", None)

    def extra_repr(self) -> str:
        return f"name={HOSTILE}"

    def _get_name(self) -> str:
        return "Net" + HOSTILE


def test_a_module_is_a_tree() -> None:
    net = Hostile()
    page = page_of(net)
    assert "script" not in page.tags and page.text.count(HOSTILE) == 5
    assert page.tags.count("details") == 4  # the linear layer stands twice
    assert f"Net{HOSTILE}(name={HOSTILE}), 14 parameters" in page.text
    assert f"parameter {HOSTILE}: float32[2, 3]" in page.text
    assert f"buffer counts{HOSTILE}: float32[4]" in page.text
    assert "(1) ReLU(), 0 parameters" in page.text
    assert "in_features=3, out_features=2" in page.text
    lazy = page_of(nn.Sequential(nn.LazyLinear(2, bias=False), nn.Linear(2, 3)))
    assert "at least 9 parameters" in lazy.text and "not yet known" in lazy.text


def test_repr_copies_and_pickles_are_as_before() -> None:
    net, reference = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    page_of(net)
    assert repr(net) == repr(reference) and str(net) == str(reference)
    kept = pickle.loads(pickle.dumps(net))
    assert page_of(kept).text == page_of(copy.deepcopy(net)).text == page_of(net).text
    x = metaop.tensor([1.0, 2.0])
    page_of(x)
    assert repr(x) == str(x) == repr(torch.tensor([1.0, 2.0]))
    assert page_of(pickle.loads(pickle.dumps(x))).text == page_of(x).text


def test_a_loaded_program(tmp_path: Path) -> None:
    net = nn.Linear(3, 2)
    path = tmp_path / "net.mo"
    metaop.export(net, (metaop.ones(4, 3),), path, dynamic={"input": {0: "batch"}})
    program = metaop.load_program(path)
    page = page_of(program)
    assert any(row[0] == "input" and "float32" in row[2] for row in page.rows)
    assert ["weights", "2 tensors", "8 numbers"] in page.rows
    assert any(row[:2] == ["size", "batch"] and "from" in row[2] for row in page.rows)
    program.inputs = [program.inputs[0]._replace(name=HOSTILE)]
    page = page_of(program)
    assert "script" not in page.tags and HOSTILE in page.text


def test_profiles_and_records_of_memory() -> None:
    x = metaop.tensor([1.0, 2.0, 3.0])
    with metaop.profile() as result, metaop.inspect.memory() as record:
        x.exp().sum().item()
    page = page_of(result)
    assert page.rows[0] == ["calls", "ms", "share", "kernel"]
    assert [row[3] for row in page.rows[1:]] == [
        line.split()[-1] for line in result.table().splitlines()[1:]
    ]
    assert len(page.rows) > 1
    assert ElementTree.fromstring(record._repr_svg_()).tag.endswith("svg")
