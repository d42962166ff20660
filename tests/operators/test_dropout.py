"""Dropout: the statistics of its masks, its gradient, and what a seed decides."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError
from metaop.nn import functional as F
from tests.helpers import gradients
from tests.operators.against_torch import draw


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_part_dropped_and_scale(p):
    result = F.dropout(metaop.tensor(np.ones((100, 200))), p).numpy()
    kept = result != 0
    assert abs(kept.mean() - (1 - p)) < 0.02
    np.testing.assert_allclose(result[kept], 1 / (1 - p), rtol=1e-12)
    # Neither rows nor columns are alike.
    assert kept.mean(0).std() < 0.1 and kept.mean(1).std() < 0.1


def test_masks_differ_between_calls():
    x = metaop.tensor(np.ones(1000))
    assert (F.dropout(x).numpy() != F.dropout(x).numpy()).any()


def test_gradient_uses_the_mask_of_the_forward_pass():
    x = metaop.tensor(draw(50, 4)).requires_grad_()
    y = F.dropout(x * 1.0, 0.3)
    ones = metaop.tensor(np.ones((50, 4)))
    (slope,) = gradients([y], [ones], [x])
    np.testing.assert_allclose(slope.detach().numpy() * x.detach().numpy(), y.detach().numpy())


@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "dropout2d"])
def test_all_or_nothing(name, p):
    x = draw(2, 3, 4, 4)
    result = getattr(F, name)(metaop.tensor(x), p, training=True).numpy()
    np.testing.assert_array_equal(result, x if p == 0 else np.zeros_like(x))


def test_evaluation_changes_nothing():
    x = metaop.tensor(draw(3, 4))
    assert F.dropout(x, 0.5, training=False) is x


@pytest.mark.parametrize(
    ("name", "shape", "lead"),
    [
        ("dropout1d", (40, 30, 5), 2),
        ("dropout1d", (300, 5), 1),
        ("dropout2d", (40, 30, 3, 4), 2),
        ("dropout3d", (40, 30, 2, 3, 2), 2),
        ("dropout3d", (300, 2, 3, 2), 1),
        ("feature_alpha_dropout", (40, 30, 3, 4), 2),
    ],
)
def test_whole_channels(name, shape, lead):
    result = getattr(F, name)(metaop.tensor(np.ones(shape)), 0.4, training=True).numpy()
    flat = result.reshape(*shape[:lead], -1)
    assert (flat == flat[..., :1]).all()
    dropped = (flat[..., 0] < flat.max() - 1e-9).mean()
    assert abs(dropped - 0.4) < 0.1


def test_alpha_dropout_keeps_mean_and_variance():
    x = draw(300, 300)
    result = F.alpha_dropout(metaop.tensor(x), 0.3, training=True).numpy()
    assert abs(result.mean()) < 0.02 and abs(result.std() - 1) < 0.03


def test_in_place():
    x = metaop.tensor(np.ones(100))
    assert F.dropout(x, 0.5, inplace=True) is x
    assert set(np.unique(x.numpy())) == {0.0, 2.0}


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_errors(p):
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        F.dropout(metaop.tensor(draw(3)), p)
