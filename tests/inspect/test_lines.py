"""Profiles by user line, and the flame view that is drawn of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import metaop
from metaop.errors import ArgumentError
from metaop.execution import executor
from metaop.inspect.by_line import LineTime, Place
from metaop.inspect.flame import flame

_SVG = "{http://www.w3.org/2000/svg}"


def little(x: metaop.Tensor) -> None:
    (x[:8, :8] @ x[:8, :8]).sum().item()


def much(x: metaop.Tensor) -> None:
    (x @ x).sum().item()


def times(result: metaop.inspect.Profile) -> dict[str, LineTime]:
    return {line.place.function: line for line in result.by_line()}


def test_work_stands_at_the_lines_of_its_functions() -> None:
    x = metaop.rand(512, 512)
    x.numpy()
    with metaop.profile() as result:
        for _ in range(3):
            little(x)
            much(x)
    found = times(result)
    assert {"little", "much"} <= set(found)
    kernels = {name: sum(line.kernels.values()) for name, line in found.items()}
    for name in ("little", "much"):
        own = [run for run in result.runs if name in " ".join(run.operators)]
        spans = sum(kernel.end - kernel.start for run in own for kernel in run.kernels)
        assert len(own) == 3 and kernels[name] == pytest.approx(spans)
    assert found["much"].operators["matmul"] == 3
    assert all(line.host > 0 for line in found.values())


def test_lines_of_one_program_share_it_by_their_work() -> None:
    x = metaop.rand(300, 300)
    x.numpy()
    with metaop.profile() as result:
        a = (x @ x).sum()
        b = x[0].exp().sum()
        (a + b).item()
    assert len(result.runs) == 1
    first, *others = result.by_line()
    assert "matmul" in first.operators
    mine = sum(first.kernels.values())
    assert all(sum(line.kernels.values()) < mine / 50 for line in others)


def test_compiling_is_told_apart() -> None:
    executor.clear_programs()
    x = metaop.rand(20)
    with metaop.profile() as result:
        x.exp().sum().item()
    (line,) = (line for line in result.by_line() if "exp" in line.operators)
    assert line.compiling > 0
    with metaop.profile() as again:
        for _ in range(2):
            metaop.rand(20).exp().sum().item()
        with metaop.profile() as second:
            metaop.rand(20).exp().sum().item()
    assert sum(line.compiling for line in second.by_line()) == 0
    assert sum(line.compiling for line in again.by_line()) > 0 and len(again.by_line()) == 2


def test_captured_calls_stand_at_the_line_that_calls_them() -> None:
    captured = metaop.jit(lambda x: x.exp())
    x = metaop.rand(50)
    for _ in range(3):
        captured(x).numpy()
    with metaop.profile() as result:
        captured(x).numpy()
    (line,) = (line for line in result.by_line() if line.kernels)
    assert line.place.function == "test_captured_calls_stand_at_the_line_that_calls_them"


def test_shares_add_up_to_everything() -> None:
    with metaop.profile() as result:
        much(metaop.rand(64, 64))
    rows = result.lines().splitlines()
    shares = [float(row.split()[1].rstrip("%")) for row in rows[1:] if row[10:18].endswith("%")]
    assert len(shares) == len(result.by_line()) + 1
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares) + 1e-6)
    assert rows[-1].endswith("Python between programs") and shares[-1] >= 0
    assert not executor.watchers


def test_an_empty_profile_is_all_python() -> None:
    with metaop.profile() as result:
        pass
    assert result.by_line() == [] and "100.0%" in result.lines()


def test_the_flame_nests_and_never_overlaps(tmp_path: Path) -> None:
    x = metaop.rand(64, 64)
    with metaop.profile() as result:
        little(x)
        much(x)
    path = tmp_path / "flame.svg"
    result.flame(path)
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert not list(root.iter(_SVG + "script"))
    rows = _rows(root)
    assert len(rows) == 5 and rows[0] == [(0.0, 1200.0)]
    for above, below in pairwise(rows):
        for (_, end), (start, _) in pairwise(below):
            assert end <= start + 1e-6
        for start, end in below:
            assert any(a - 1e-6 <= start and end <= b + 1e-6 for a, b in above)
    tips = [tip.text or "" for tip in root.iter(_SVG + "title")]
    assert any(tip.startswith("much: ") for tip in tips) and any("ms, " in tip for tip in tips)


def _rows(root: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """The bars of each level, from left to right: where they begin and end."""
    levels: dict[float, list[tuple[float, float]]] = {}
    for bar in root.iter(_SVG + "rect"):
        left, width = float(bar.attrib["x"]), float(bar.attrib["width"])
        levels.setdefault(float(bar.attrib["y"]), []).append((left, left + width))
    return [sorted(levels[y]) for y in sorted(levels)]


def test_widths_are_time() -> None:
    lines = [_line("a.py", {"k": 3e6}), _line("b.py", {"k": 1e6})]
    rows = _rows(ElementTree.fromstring(flame(lines, 8e6)))
    assert rows[1] == [(0.0, 450.0), (450.0, 600.0)]


def test_hostile_names_are_escaped() -> None:
    name = "</title><script>alert(1)</script>&\"'\x00\udc80\ufffe"
    root = ElementTree.fromstring(flame([_line(name, {name: 1e6})], 1e6))
    assert not list(root.iter(_SVG + "script"))
    tips = [tip.text or "" for tip in root.iter(_SVG + "title")]
    assert any("<script>alert(1)</script>&\"'???" in tip for tip in tips)


def _line(file: str, kernels: dict[str, float]) -> LineTime:
    return LineTime(Place(file, "f", 1), 0.0, kernels, 0.0, 0.0, {})


def test_other_pictures_than_svg_are_refused(tmp_path: Path) -> None:
    with metaop.profile() as result:
        pass
    with pytest.raises(ArgumentError, match="flame view is an SVG"):
        result.flame(tmp_path / "flame.png")
