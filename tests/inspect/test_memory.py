"""Records of memory: what is held is counted once, and stands at the line that asked for it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import metaop
from metaop import nn
from metaop.codegen.memory.buffers import host
from tests.codegen.force import change_thresholds

MIB = 1 << 20


def held_by(found: dict[str, int], *words: str) -> int:
    return sum(nbytes for name, nbytes in found.items() if all(word in name for word in words))


def test_lines_that_hold_memory() -> None:
    with metaop.inspect.memory() as record:
        first = metaop.rand(512, 512)
        first.numpy()
        second = (first * 2).exp()
        second.numpy()
        del second
        third = first.sum(0)
        third.numpy()
    peak, now = record.at_peak(), record.now()
    assert held_by(peak, "test_memory.py", "test_lines_that_hold_memory") >= 2 * MIB
    assert held_by(peak, "exp") == MIB and held_by(now, "exp") == 0
    assert held_by(now, "sum") == 512 * 4
    assert sum(peak.values()) == record.peak and sum(now.values()) == record.used == host.used
    seed = 64  # a block of the least size
    assert record.used - record.before <= MIB + 512 * 4 + seed
    text = record.table(limit=2)
    assert "MiB at the peak" in text and text.count("\n") == 4
    assert record.peak - record.before >= 2 * MIB
    del first, third


def test_memory_from_before_that_is_freed() -> None:
    before = metaop.zeros(512, 512)
    before.numpy()
    with metaop.inspect.memory() as record:
        del before
        assert record.used == record.before - MIB
    assert record.peak == record.before
    assert record.now().get("held before", 0) == record.used


def test_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "memory.svg"
    with metaop.inspect.memory(path) as record:
        kept: list[Any] = []
        for k in range(600):
            x = metaop.ones(64) * k
            x.numpy()
            kept.append(x)
    picture = ElementTree.parse(path).getroot()
    tag = "{http://www.w3.org/2000/svg}"
    areas = picture.findall(f"{tag}polygon")
    corners = [
        [tuple(map(float, pair.split(","))) for pair in area.attrib["points"].split()]
        for area in areas
    ]
    assert len(corners[0]) <= 2 * 400
    top = min(y for area in corners for _, y in area)
    assert top == pytest.approx(20, abs=1)  # the peak
    texts = [one.text or "" for one in picture.findall(f"{tag}text")]
    assert any("mul" in text and "test_the_picture" in text for text in texts)
    assert f"{record.peak / MIB:.2f} MiB" in texts[-1]


def test_refused() -> None:
    with metaop.inspect.memory() as record:
        with pytest.raises(ValueError, match="already recorded"), metaop.inspect.memory():
            pass
        assert host.watch is not None
    assert host.watch is None
    with pytest.raises(ValueError, match="as SVG"):
        record.save("memory.png")


@pytest.mark.parametrize("tracked", [False, True])
def test_the_peak_of_a_program_beside_its_lower_bound(
    tracked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a gradient two neighbouring layers are alive at once, with one all of them.

    Where the near cache is large, layers would otherwise run slice by slice, in less memory.
    """
    change_thresholds(monkeypatch, least_bytes=1 << 40)
    widths = [64, 256, 512, 256, 512, 64]
    rows, number = 1024, 4
    net = nn.Sequential(*[nn.Linear(a, b) for a, b in pairwise(widths)])
    x = metaop.randn(rows, widths[0])
    for tensor in (x, *net.parameters()):
        tensor.detach().numpy()

    def run() -> None:
        if tracked:
            net(x).square().sum().backward()
            metaop.stack([p.grad.sum() for p in net.parameters()]).numpy()  # type: ignore
        else:
            with metaop.no_grad():
                net(x).numpy()

    run()
    net.zero_grad()
    with metaop.inspect.memory() as record:
        run()
    layers = [rows * width * number for width in widths[1:]]
    neighbours = max(a + b for a, b in pairwise(layers))
    gradients = sum(p.numel() for p in net.parameters()) * number
    bound = sum(layers[:-1]) + gradients if tracked else neighbours
    # Blocks are rounded up by 1/8 at most; a backward pass holds two gradients of layers besides.
    besides = neighbours if tracked else layers[-1]
    assert bound <= (record.peak - record.before) * 1.0001
    assert record.peak - record.before <= 1.125 * (bound + besides)
