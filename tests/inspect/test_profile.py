"""Profiles: what they see, what they write, and that they leave nothing switched on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop.codegen.backend import observers
from metaop.unified_graph.recording import watched


def work() -> None:
    x = metaop.from_numpy(np.random.default_rng(0).normal(size=(30, 20)).astype(np.float32))
    (x.exp().sum(1) + 1).numpy()


def test_kernels_and_source_lines_are_seen() -> None:
    with metaop.profile() as result:
        work()
        work()
    assert len(result.runs) == 2
    run = result.runs[0]
    assert run.kernels and all(kernel.end >= kernel.start for kernel in run.kernels)
    (place, operators), *rest = run.operators.items()
    assert not rest and operators[:2] == ["exp", "sum"]
    assert "test_profile.py" in place and place.endswith("in work")


def test_the_table_counts_kernels() -> None:
    with metaop.profile() as result:
        for _ in range(3):
            work()
    header, *rows = result.table().splitlines()
    assert header.split() == ["calls", "ms", "share", "kernel"]
    counts = {row.split()[-1]: int(row.split()[0]) for row in rows}
    assert sum(counts.values()) == sum(len(run.kernels) for run in result.runs)
    assert all(count % 3 == 0 for count in counts.values())


def test_the_trace_has_the_events_of_chrome(tmp_path: Path) -> None:
    with metaop.profile(tmp_path / "trace.json") as result:
        work()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    program, *kernels = events
    assert program["name"] == "program" and len(kernels) == len(result.runs[0].kernels)
    for event in events:
        assert event["ph"] == "X" and event["dur"] >= 0
        assert program["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= program["ts"] + program["dur"] + 1e-3


def test_everything_is_switched_off_again() -> None:
    with pytest.raises(ZeroDivisionError), metaop.profile() as result:
        raise ZeroDivisionError
    work()
    assert not result.runs and not observers and not watched.locations


def test_averages_can_be_walked_through() -> None:
    x = metaop.randn(64, 64)
    with metaop.profiler.profile() as result:
        for _ in range(3):
            (x.exp() + 1).sum().item()
    averages = result.key_averages()
    assert averages and all(event.key in averages.table() for event in averages)
    assert averages[0].cpu_time_total == max(event.self_cpu_time_total for event in averages)
    assert averages[0].cpu_time * averages[0].count == pytest.approx(averages[0].cpu_time_total)
    assert sum(event.count for event in averages) >= 3
