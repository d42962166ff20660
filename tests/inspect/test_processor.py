"""`metaop tune --machine`: it measures, prints and keeps; how fast the machine is, is no matter."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import metaop
from metaop.__main__ import main
from metaop.codegen.llvm.measuring import measured
from metaop.codegen.llvm.processor import host_processor, system_processor
from metaop.errors import ArgumentError


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("METAOP_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("METAOP_MACHINE", "measured")
    monkeypatch.delenv("METAOP_TARGET", raising=False)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_number_is_positive(threads: int) -> None:
    before = metaop.get_num_threads()
    metaop.set_num_threads(threads)
    try:
        found, typical = measured(0.01), system_processor()
    finally:
        metaop.set_num_threads(before)
    assert found.is_measured
    assert all(value > 0 for value in dataclasses.asdict(found).values())
    told = ("registers", "lanes", "first_bytes", "near_bytes", "last_bytes", "line_bytes")
    assert all(getattr(found, name) == getattr(typical, name) for name in told)
    if threads == 1:
        assert found.fork_seconds == typical.fork_seconds


def test_the_command_keeps_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--machine", "--seconds", "0.01"]) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0].split() == ["typical", "measured"]
    assert "memory bandwidth, all cores" in table and "not " not in table
    assert host_processor().is_measured
    assert "speeds                                  measured" in metaop.inspect.info()


def test_unused_measurements_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAOP_MACHINE", "typical")
    monkeypatch.setenv("METAOP_DISK_CACHE", "0")
    assert main(["tune", "--machine", "--seconds", "0.01"]) == 0
    table = capsys.readouterr().out
    assert "not saved" in table and "not used: METAOP_MACHINE=typical" in table
    assert "typical, not measured" in metaop.inspect.info()


def test_restricted_processors_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_TARGET", "baseline")
    with pytest.raises(ArgumentError, match="METAOP_TARGET=baseline"):
        main(["tune", "--machine"])
