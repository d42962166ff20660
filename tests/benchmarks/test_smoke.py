"""The benchmarks run, and both frameworks compute the same in them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import first_steps, iterations, run, sizes
from benchmarks.comparison import reason
from benchmarks.streams import STREAMS

pytest.importorskip("torch")


def _measured(path: Path, *words: str) -> dict[str, Any]:
    """What the command wrote about the rows with these words."""
    run.main([*words, "--quick", "--json", str(path / "report.json")])
    report = json.loads((path / "report.json").read_text())
    assert not report["failures"]
    return report


def test_a_stream_of_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = _measured(tmp_path, "sizes: MLP 64-128-128-10, ever new")["sizes"]
    assert row["error"] < 1e-3
    assert row["new"]["programs"] > 0 and row["seen"]["programs"] == row["seen"]["kernels"] == 0
    assert all(seconds > 0 for part in ("new", "seen") for seconds in row[part]["seconds"].values())
    assert capsys.readouterr().out.count("| torch |") == 2  # as it comes, and in the table


def test_steps_of_a_fresh_process(tmp_path: Path) -> None:
    (row,) = _measured(tmp_path, "first_steps: MLP")["first_steps"]
    assert row["cold"][0]["kernels"] > 0
    assert row["warm"][0]["kernels"] == row["cold"][1]["kernels"] == 0
    assert len(row["torch"]) == 2 and not row["excluded"]


def test_many_steps_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "LSTM cell 32-64, batch 16"
    monkeypatch.setattr(iterations, "_NETWORKS", {name: iterations._NETWORKS[name]})
    monkeypatch.setattr(iterations, "_ROUNDS", 1)
    rows = _measured(tmp_path, "iterations:")["metrics"]
    assert [row["framework"] for row in rows] == ["metaop"] * 6 + ["torch"]
    assert all(row["value"] > 0 for row in rows)


def test_a_whole_program(tmp_path: Path) -> None:
    (row,) = _measured(tmp_path, "programs: club")["programs"]
    assert set(row["runs"]) == {"metaop", "metaop, filled cache", "torch"}
    for run_of in row["runs"].values():
        assert run_of["processor"] > 0 and run_of["first"] == pytest.approx(math.log(2), rel=0.2)


@pytest.mark.parametrize("name", STREAMS)
def test_streams_have_as_many_steps_as_wanted(name: str) -> None:
    import numpy as np

    batches = list(STREAMS[name].sizes(np.random.default_rng(0), 30))
    assert len(batches) == 30
    again = list(STREAMS[name].sizes(np.random.default_rng(0), 30))
    for one, other in zip(batches, again):
        np.testing.assert_equal(one, other)


def test_tables_tell_what_the_compiler_of_pytorch_refuses() -> None:
    why = reason(RuntimeError("No working C++ compiler found\nin this place"))
    step = first_steps.Step(1.0, 2.0, 3)
    row = first_steps.FirstSteps("net", (step, step), (step,), {"torch": (step,)}, {"x": why})
    assert "x excluded: RuntimeError: No working C++ compiler found |" in first_steps.markdown_row(
        row
    )
    part = sizes.Pass({"metaop": 1.0, "torch": 2.0}, 1, 2)
    streamed = sizes.Streamed("net", 4, part, part, 0.0, {"torch-dynamic": why})
    lines = sizes.markdown_row(streamed).splitlines()
    assert len(lines) == 2 and "torch-dynamic excluded" in lines[0] and "| 2.00 |" in lines[1]
