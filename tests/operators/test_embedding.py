"""Embeddings against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import DTypeError, MetaopError
from metaop.nn import functional as F
from tests.operators.against_torch import compare, draw

INDICES = np.array([[1, 3, 0], [3, 3, 4]])


@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}, {"padding_idx": -2}])
@pytest.mark.parametrize("frequency", [False, True])
def test_embedding(options, frequency):
    compare("embedding", INDICES, draw(5, 2), scale_grad_by_freq=frequency, **options)
    compare("embedding", np.array(2), draw(5, 2), **options)
    compare("embedding", INDICES.astype(np.int32), draw(5, 2), **options)


@pytest.mark.parametrize("norm_type", [1.0, 2.0])
def test_max_norm_changes_used_rows(norm_type):
    torch = pytest.importorskip("torch")
    weight = draw(5, 2) * 3
    mine, other = metaop.tensor(weight), torch.from_numpy(weight.copy())
    options = {"max_norm": 1.0, "norm_type": norm_type}
    found = F.embedding(metaop.tensor(INDICES[:, 1:]), mine, **options)
    expected = torch.nn.functional.embedding(torch.from_numpy(INDICES[:, 1:]), other, **options)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
def test_embedding_bag(mode, padding):
    options = {"mode": mode, "padding_idx": padding}
    compare("embedding_bag", INDICES, draw(5, 2), **options)
    flat, offsets = np.array([1, 3, 0, 3, 4, 2]), np.array([0, 2, 2, 5])
    compare("embedding_bag", flat, draw(5, 2), offsets, **options)
    ends = np.array([0, 2, 6])
    compare("embedding_bag", flat, draw(5, 2), ends, include_last_offset=True, **options)


def test_weighted_embedding_bag():
    torch = pytest.importorskip("torch")
    from tests.helpers import check

    check(
        (
            lambda w, s: F.embedding_bag(
                metaop.tensor(INDICES), w, mode="sum", per_sample_weights=s
            ),
            lambda w, s: torch.nn.functional.embedding_bag(
                torch.from_numpy(INDICES), w, mode="sum", per_sample_weights=s
            ),
        ),
        draw(5, 2),
        draw(2, 3),
    )


@pytest.mark.parametrize("classes", [-1, 5, 8])
def test_one_hot(classes):
    compare("one_hot", INDICES, num_classes=classes)
    compare("one_hot", np.array(3), num_classes=classes)


@pytest.mark.parametrize("classes", [[0, 3], [-1, 0]])
def test_one_hot_of_classes_out_of_range(classes):
    with pytest.raises(MetaopError, match="class values"):
        F.one_hot(metaop.tensor(classes), 3)


def test_errors():
    weight = metaop.tensor(draw(5, 2))
    with pytest.raises(DTypeError, match="float64"):
        F.embedding(metaop.tensor([1.0], dtype=metaop.float64), weight)
    with pytest.raises(MetaopError, match="padding_idx"):
        F.embedding(metaop.tensor(INDICES), weight, padding_idx=5)
    with pytest.raises(DTypeError, match="int64"):
        F.one_hot(metaop.tensor([1.0]))
    with pytest.raises(IndexError, match="5"):
        F.embedding(metaop.tensor([1, 5]), weight).numpy()
