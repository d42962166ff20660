"""Pooling against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, ShapeError
from metaop.nn import functional as F
from tests.operators.against_torch import compare, compare_derivatives, draw

SHAPES = {1: (2, 3, 9), 2: (2, 3, 7, 6), 3: (2, 2, 4, 5, 6)}

MAX = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    {"kernel_size": 2, "stride": 1, "dilation": 2},
]


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("options", MAX)
def test_max_pool(spatial, options):
    compare(f"max_pool{spatial}d", draw(*SHAPES[spatial]), **options)
    compare(f"max_pool{spatial}d", draw(*SHAPES[spatial]), return_indices=True, **options)


def test_max_pool_of_different_sizes_per_dimension_without_batch():
    compare("max_pool2d", draw(3, 7, 6), kernel_size=(3, 2), stride=(1, 2), padding=(1, 0))


def test_first_of_equal_maxima_gets_the_gradient():
    ties = np.random.default_rng(0).integers(0, 2, (2, 3, 6, 6)).astype(np.float64)
    compare("max_pool2d", ties, kernel_size=3, stride=2, padding=1)
    compare("max_pool2d", ties, kernel_size=3, stride=2, padding=1, return_indices=True)


def test_max_pool_keeps_nan():
    values = draw(1, 1, 4, 4)
    values[0, 0, 1, 2] = np.nan
    compare("max_pool2d", values, kernel_size=2, gradient=False)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_types(dtype):
    compare("max_pool2d", draw(2, 3, 6, 6, dtype=dtype), kernel_size=2)
    compare("avg_pool2d", draw(2, 3, 6, 6, dtype=dtype), kernel_size=2)


AVERAGE = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
]


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("options", AVERAGE)
def test_average_pool(spatial, options):
    compare(f"avg_pool{spatial}d", draw(*SHAPES[spatial]), **options)


@pytest.mark.parametrize("spatial", [2, 3])
def test_divisor_override(spatial):
    options = {"kernel_size": 2, "divisor_override": 3}
    compare(f"avg_pool{spatial}d", draw(*SHAPES[spatial]), **options)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_power_pool(spatial, power):
    values = np.abs(draw(*SHAPES[spatial])) + 0.1
    compare(f"lp_pool{spatial}d", values, norm_type=power, kernel_size=2)
    compare(f"lp_pool{spatial}d", values, norm_type=power, kernel_size=2, stride=1, ceil_mode=True)


ADAPTIVE = [(1, 4), (1, 9), (2, 1), (2, (3, 2)), (2, (5, 4)), (2, (None, 9)), (3, (2, 3, 4))]


@pytest.mark.parametrize(("spatial", "size"), ADAPTIVE)
def test_adaptive_pools(spatial, size):
    compare(f"adaptive_avg_pool{spatial}d", draw(*SHAPES[spatial]), output_size=size)
    compare(f"adaptive_max_pool{spatial}d", draw(*SHAPES[spatial]), output_size=size)
    compare(
        f"adaptive_max_pool{spatial}d",
        draw(*SHAPES[spatial]),
        output_size=size,
        return_indices=True,
    )


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("output", [False, True])
def test_max_unpool(spatial, output):
    torch = pytest.importorskip("torch")
    shape = SHAPES[spatial] if output else (2, 3, 4, 6, 2)[: spatial + 2]
    pool = getattr(torch.nn.functional, f"max_pool{spatial}d")
    pooled, indices = pool(torch.from_numpy(draw(*shape)), 2, return_indices=True)
    size = shape[2:] if output else None
    name = f"max_unpool{spatial}d"
    compare(name, pooled.numpy(), indices.numpy(), kernel_size=2, output_size=size)


@pytest.mark.parametrize(
    ("spatial", "options"),
    [
        (2, {"kernel_size": 2, "output_size": (3, 4)}),
        (2, {"kernel_size": (2, 3), "output_ratio": (0.5, 0.7)}),
        (2, {"kernel_size": 3, "output_size": 1}),
        (3, {"kernel_size": 2, "output_size": (2, 3, 4)}),
    ],
)
def test_fractional_max_pool(spatial, options):
    shape = SHAPES[spatial]
    samples = np.random.default_rng(3).uniform(size=(*shape[:2], spatial))
    name = f"fractional_max_pool{spatial}d"
    for indices in (False, True):
        draws = {"_random_samples": samples, "return_indices": indices}
        compare(name, draw(*shape), **options, **draws)
    found = getattr(F, name)(metaop.tensor(draw(*shape)), **options)
    assert found.shape[:2] == shape[:2]


def test_second_derivatives():
    compare_derivatives("max_pool2d", draw(1, 2, 5, 5), kernel_size=3, stride=2, padding=1)
    compare_derivatives("avg_pool2d", draw(1, 2, 5, 5), kernel_size=3, stride=2, padding=1)
    compare_derivatives("lp_pool2d", np.abs(draw(1, 2, 4, 4)) + 0.5, norm_type=3, kernel_size=2)
    compare_derivatives("adaptive_avg_pool2d", draw(1, 2, 5, 5), output_size=3)


@pytest.mark.parametrize(
    ("shape", "options", "error"),
    [
        ((5, 5), {"kernel_size": 2}, ShapeError),
        ((1, 2, 3, 3), {"kernel_size": 4}, ShapeError),
        ((1, 2, 5, 5), {"kernel_size": 2, "padding": 2}, ArgumentError),
        ((1, 2, 5, 5), {"kernel_size": 2, "stride": -1}, ArgumentError),
        ((1, 2, 5, 5), {"kernel_size": 2, "stride": 0}, ArgumentError),
    ],
)
def test_errors(shape, options, error):
    for pool in (F.max_pool2d, F.avg_pool2d):
        with pytest.raises(error, match="pool"):
            pool(metaop.tensor(draw(*shape)), **options)
