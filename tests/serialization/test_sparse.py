"""Sparse tensors in checkpoints: PyTorch reads them, and metaop those of PyTorch."""

from __future__ import annotations

import io
from typing import Any

import pytest

import metaop
from metaop.errors import CheckpointError

torch = pytest.importorskip("torch")


def made(library: Any, kind: str) -> Any:
    dense = library.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, -1.0]])
    if kind == "twice":
        return library.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [1.0, 2.0, 4.0], (2, 3))
    if kind == "rows":
        return library.sparse_coo_tensor([[2, 0]], [[1.0, 2.0], [3.0, 4.0]], (4, 2))
    if kind == "empty":
        return library.sparse_coo_tensor(library.zeros(1, 0).long(), library.zeros(0), (3,))
    return getattr(dense, f"to_sparse{kind}")()


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("kind", ["", "_csr", "_csc", "twice", "rows", "empty"])
@pytest.mark.parametrize(("writer", "reader"), [(metaop, torch), (torch, metaop), (metaop, metaop)])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_are_exchanged(
    writer: Any, reader: Any, kind: str, weights_only: bool
) -> None:
    file = io.BytesIO()
    writer.save({"matrix": made(writer, kind), "layout": writer.sparse_csr}, file)
    file.seek(0)
    read = reader.load(file, weights_only=weights_only)
    found, expected = read["matrix"], made(reader, kind)
    assert found.layout is expected.layout and read["layout"] is reader.sparse_csr
    assert found.shape == expected.shape
    assert found.to_dense().tolist() == expected.to_dense().tolist()
    if found.layout is reader.sparse_coo:
        assert found.is_coalesced() == expected.is_coalesced()
        assert found._values().tolist() == expected._values().tolist()


def test_a_file_cannot_call_indices_sorted_that_are_not() -> None:
    file = io.BytesIO()
    x = metaop.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, 4.0], (2,), is_coalesced=True)
    metaop.save(x, file)
    file.seek(0)
    found = metaop.load(file)
    assert not found.is_coalesced() and found.coalesce().values().tolist() == [2, 5]


def test_indices_outside_are_refused() -> None:
    file = io.BytesIO()
    x = metaop.tensor([0.0, 1.0]).to_sparse()
    x.shape = metaop.Size((1,))
    metaop.save(x, file)
    file.seek(0)
    with pytest.raises(CheckpointError):
        metaop.load(file)
