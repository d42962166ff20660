"""The package transformers itself, where it is installed: converted, and beside the original."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("libcst")
pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_networks_agree_with_the_originals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.transformers import CASES, convert_needed, is_small, run

    convert_needed(transformers, tmp_path / "transformers_metaop")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    converted = importlib.import_module("transformers_metaop")
    rows = [run(case, transformers, converted) for case in CASES]
    differing = [row for row in rows if not all(is_small(text) for text in list(row.values())[1:])]
    assert not differing
