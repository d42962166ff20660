"""Normalisation against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, ShapeError
from metaop.nn import functional as F
from tests.operators.against_torch import compare, compare_derivatives, draw


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 2, 2)])
def test_batch_norm_of_the_batch(shape):
    options = {"running_mean": None, "running_var": None, "training": True}
    values = draw(*shape) + 5
    compare("batch_norm", values, **options)
    compare("batch_norm", values, None, None, draw(3), draw(3), True, 0.1, 1e-3)


def test_batch_norm_by_running_statistics():
    # PyTorch takes no running statistics that require a gradient.
    statistics = (draw(3), np.abs(draw(3)) + 0.1)
    compare("batch_norm", draw(4, 3, 5), *statistics, draw(3), draw(3), gradient=False)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
@pytest.mark.parametrize("momentum", [0.1, 0.3, 1.0])
def test_running_statistics_move(name, momentum):
    torch = pytest.importorskip("torch")
    x, centre, variance = draw(4, 3, 5) + 2, draw(3), np.abs(draw(3))
    ours = [metaop.tensor(a) for a in (x, centre, variance)]
    theirs = [torch.from_numpy(a.copy()) for a in (x, centre, variance)]
    ours[0].requires_grad_()
    for _ in range(2):
        getattr(F, name)(*ours, None, None, True, momentum)
        getattr(torch.nn.functional, name)(*theirs, None, None, True, momentum)
    for mine, other in zip(ours[1:], theirs[1:]):
        assert not mine.requires_grad
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-12)


def test_variance_of_large_values():
    compare(
        "batch_norm",
        draw(64, 3, dtype="float32") + 1e3,
        None,
        None,
        None,
        None,
        True,
        tolerance=1e-3,
    )
    compare(
        "layer_norm", draw(3, 64, dtype="float32") + 1e3, normalized_shape=(64,), tolerance=1e-3
    )


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(5,), (3, 5)])
def test_layer_norm(shape, affine):
    parameters = (draw(*shape), draw(*shape, seed=1)) if affine else ()
    compare("layer_norm", draw(2, 3, 5), shape, *parameters)


def test_layer_norm_of_16_bits():
    x, w = draw(3, 8, dtype="float16"), draw(8, dtype="float16")
    compare("layer_norm", x, (8,), w, w, tolerance=5e-3)


@pytest.mark.parametrize("options", [{}, {"eps": 1e-3}])
def test_rms_norm(options):
    compare("rms_norm", draw(2, 3, 5), (3, 5), draw(3, 5), **options)
    compare("rms_norm", draw(2, 3, 5, dtype="float32"), (5,), **options)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 5), (2, 4, 3, 3)])
def test_group_norm(groups, shape):
    if len(shape) > 2 or groups < 4:
        compare("group_norm", draw(*shape), groups, draw(4), draw(4, seed=1))


def test_instance_norm():
    compare("instance_norm", draw(2, 3, 5))
    compare("instance_norm", draw(2, 3, 4, 5), None, None, draw(3), draw(3))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_local_response_norm(size):
    compare("local_response_norm", draw(2, 6, 4), size=size, alpha=0.5, k=2.0)
    compare("local_response_norm", draw(2, 6, 3, 2), size=size)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("dim", [0, 1, -1, (0, 1)])
def test_normalize(p, dim):
    if not isinstance(dim, tuple) or p == 2.0:
        compare("normalize", draw(3, 4, 2), p=p, dim=dim)


def test_normalize_zero():
    compare("normalize", np.zeros((2, 3)))


def test_second_derivatives():
    compare_derivatives("layer_norm", draw(2, 5), normalized_shape=(5,))
    compare_derivatives("group_norm", draw(2, 4, 3), num_groups=2)
    compare_derivatives("rms_norm", draw(2, 5), normalized_shape=(5,))
    compare_derivatives("normalize", draw(3, 4))
    compare_derivatives(
        "batch_norm", draw(4, 3), running_mean=None, running_var=None, training=True
    )


def test_errors():
    x = metaop.tensor(draw(2, 4, 3))
    with pytest.raises(ShapeError, match="num_groups"):
        F.group_norm(x, 3)
    with pytest.raises(ShapeError, match="normalized_shape"):
        F.layer_norm(x, (4,))
    with pytest.raises(ShapeError, match="channels"):
        F.batch_norm(x, None, None, metaop.tensor(draw(3)), training=True)
    with pytest.raises(ShapeError, match="more than 1 value"):
        F.batch_norm(metaop.tensor(draw(1, 4)), None, None, training=True)
    with pytest.raises(ArgumentError, match="running_mean"):
        F.batch_norm(x, None, None)
