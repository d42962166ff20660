"""docs/parity.md says what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.parity import document

PATH = Path(__file__).parents[2] / "docs" / "parity.md"


def test_the_document_is_up_to_date(request: pytest.FixtureRequest) -> None:
    generated = document.text()
    if request.config.getoption("--update-golden"):
        PATH.write_text(generated)
    assert PATH.read_text() == generated, "write it anew with ./test tests/parity --update-golden"
