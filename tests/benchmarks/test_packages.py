"""Programs of packages: both sides run in processes of their own, and differences are told."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytest.importorskip("libcst")
pytest.importorskip("torch")
from benchmarks import packages

LAYERS = """\
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.scale * x


def name():
    return torch.__name__
"""
PROGRAM = """\
import layers
import torch


def trains():
    model, losses = layers.Scale(3), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.arange(3.0)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "scale": [model.scale]}


def knows_its_library():
    return len(layers.name())


def fails():
    raise ValueError("on purpose\\nand more")


def _helper():
    raise AssertionError
"""


def test_programs_run_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed, programs = tmp_path / "installed", tmp_path / "programs"
    (installed / "layers").mkdir(parents=True)
    (installed / "layers" / "__init__.py").write_text(LAYERS)
    programs.mkdir()
    (programs / "tries.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setattr(packages, "PROGRAMS", programs)
    monkeypatch.setattr(packages, "PACKAGES", {"tries": ("layers",)})
    folder = tmp_path / "converted"
    packages.convert_needed(["layers"], folder)
    rows = {name: row for name, *row in packages.compare("tries", folder, [], False)}
    assert rows.keys() == {"trains", "knows_its_library", "fails"}
    count, difference = rows["trains"]
    assert count == 6 and difference <= 1e-6
    assert rows["knows_its_library"] == [1, pytest.approx(1 / 5)]  # torch and metaop
    assert rows["fails"] == [0, "PyTorch: ValueError: on purpose"]
    monkeypatch.setattr("sys.argv", ["packages", str(folder), "--only", "trains", "library"])
    assert packages.main() == 1
    assert "| layers | trains | 6 |" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["packages", str(folder), "--modules"])
    assert packages.main() == 0


@pytest.mark.parametrize("name", packages.PACKAGES)
def test_every_file_has_programs(name: str) -> None:
    tree = ast.parse((packages.PROGRAMS / f"{name}.py").read_text())
    public = [
        one.name
        for one in tree.body
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")
    ]
    assert len(public) >= 4


def test_numbers_that_differ_in_count_are_told() -> None:
    assert packages.gap([1.0, 2.0], [1.0]) == "1 numbers instead of 2"
    assert packages.gap([1.0], "TypeError: no") == "metaop: TypeError: no"
    assert packages.gap([100.0, 0.5], [101.0, 0.5]) == pytest.approx(0.01)
