"""docs/parity.md says what the tables say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

import torch

from tests.parity import document
from tests.parity.surface import DOCUMENTED_ONLY

PATH = Path(__file__).parents[2] / "docs" / "parity.md"


def test_the_document_is_up_to_date(request: pytest.FixtureRequest) -> None:
    generated = document.text()
    if request.config.getoption("--update-golden"):
        PATH.write_text(generated)
    assert PATH.read_text() == generated, "write it anew with ./test tests/parity --update-golden"


@pytest.mark.parametrize("name", DOCUMENTED_ONLY)
def test_results_that_pytorch_takes_in_its_documentation_only(name: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "empty_permuted": ((1,), (0,)),
        "empty_strided": ((1,), (1,)),
        "sparse_compressed_tensor": ([0, 1], [0], [1.0]),
    }
    given = arguments.get(name, (3,) if name == "hamming_window" else (torch.ones(1),))
    function = getattr(torch.Tensor if name == "to_sparse" else torch, name)
    with pytest.raises(TypeError, match="out"):
        function(*given, out=torch.ones(1))
