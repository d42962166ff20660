"""Resizing, sampling and shuffling of images against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import metaop
from metaop.errors import MetaopError
from metaop.nn import functional as F
from tests.operators.against_torch import compare, compare_derivatives, draw

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SIZES = {1: [(3,), (8,), (16,), (11,)], 2: [(10, 12), (3, 4), (2, 9)], 3: [(8, 4, 6), (3, 5, 2)]}
SHAPES = {1: (2, 3, 8), 2: (2, 3, 5, 6), 3: (1, 2, 4, 4, 3)}
CASES = [(spatial, size) for spatial, sizes in SIZES.items() for size in sizes]
NAMES = {1: "linear", 2: "bilinear", 3: "trilinear"}


@pytest.mark.parametrize(("spatial", "size"), CASES)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area"])
def test_without_weights(spatial, size, mode):
    compare("interpolate", draw(*SHAPES[spatial]), size=size, mode=mode)


@pytest.mark.parametrize(("spatial", "size"), CASES)
@pytest.mark.parametrize("align_corners", [False, True])
def test_linear(spatial, size, align_corners):
    options = {"size": size, "mode": NAMES[spatial], "align_corners": align_corners}
    compare("interpolate", draw(*SHAPES[spatial]), **options)


@pytest.mark.parametrize("size", SIZES[2])
@pytest.mark.parametrize("align_corners", [False, True])
def test_bicubic(size, align_corners):
    options = {"size": size, "mode": "bicubic", "align_corners": align_corners}
    compare("interpolate", draw(2, 3, 5, 6), **options)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(4, 3), (2, 9), (12, 7)])
def test_antialias(mode, size):
    compare("interpolate", draw(1, 2, 9, 10), size=size, mode=mode, antialias=True, tolerance=1e-6)


@pytest.mark.parametrize("factor", [2, 0.5, 1.5, (2.0, 0.7), 1.3])
@pytest.mark.parametrize("recompute", [None, True])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_scale_factor(factor, recompute, mode):
    options = {"scale_factor": factor, "recompute_scale_factor": recompute, "mode": mode}
    compare("interpolate", draw(2, 3, 5, 6), **options)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_a_factor_that_rounds_to_a_ratio(mode):
    compare("interpolate", draw(2, 3, 3, 22), scale_factor=(2.3, 1.01), mode=mode)
    compare("interpolate", draw(2, 3, 20, 3), scale_factor=(1.02, 2.1), mode=mode)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias_with_a_factor_that_rounds_to_a_ratio(mode):
    """Values only: PyTorch's gradient is not that of its function."""
    image = draw(2, 3, 9, 22)
    options = {"scale_factor": (0.6, 1.01), "mode": mode, "antialias": True}
    theirs = torch.nn.functional.interpolate(torch.tensor(image), **options)
    ours = metaop.nn.functional.interpolate(metaop.tensor(image), **options)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-12)


def test_single_precision():
    image = draw(2, 3, 5, 6, dtype="float32")
    compare("interpolate", image, size=(13, 17), mode="bilinear")
    compare("interpolate", image, size=(13, 17), mode="nearest")
    compare("interpolate", np.arange(24, dtype=np.uint8).reshape(1, 1, 4, 6), size=(7, 9))


def test_upsample():
    compare("upsample", draw(2, 3, 4), scale_factor=2)


@pytest.mark.parametrize(
    ("mode", "size", "extent"),
    [
        *(("linear", size, extent) for size, extent in ((1, 3), (1, 7), (3, 5), (5, 15), (2, 9))),
        *(("nearest-exact", size, 49) for size in (2, 4)),
    ],
)
def test_centres_that_are_whole_numbers(mode, size, extent):
    """There a sum that is rounded once gives another neighbour than one that is rounded twice."""
    compare("interpolate", draw(2, 3, size), size=extent, mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_second_derivatives_of_interpolate(mode):
    compare_derivatives("interpolate", draw(1, 2, 3, 4), size=(6, 5), mode=mode)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode, padding_mode, align_corners):
    options = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    compare("grid_sample", draw(2, 3, 5, 6), draw(2, 4, 3, 2), **options)
    if mode != "bicubic":
        compare("grid_sample", draw(2, 2, 3, 4, 3), draw(2, 2, 3, 2, 3), **options)


@pytest.mark.parametrize("align_corners", [False, True])
def test_affine_grid(align_corners):
    compare("affine_grid", draw(2, 2, 3), size=(2, 3, 4, 5), align_corners=align_corners)
    compare("affine_grid", draw(2, 3, 4), size=(2, 1, 3, 1, 2), align_corners=align_corners)


def test_second_derivatives_of_grid_sample():
    compare_derivatives("grid_sample", draw(1, 2, 4, 4), draw(1, 2, 3, 2) / 2, align_corners=False)


def test_shuffles():
    compare("pixel_shuffle", draw(2, 12, 3, 4), upscale_factor=2)
    compare("pixel_shuffle", draw(9, 2, 2), upscale_factor=3)
    compare("pixel_unshuffle", draw(2, 3, 4, 6), downscale_factor=2)
    compare("channel_shuffle", draw(2, 6, 3, 2), groups=3, gradient=False)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.interpolate(x),
        lambda x: F.interpolate(x, size=4, scale_factor=2),
        lambda x: F.interpolate(x, size=4, mode="linear"),
        lambda x: F.interpolate(x, size=(4, 4, 4)),
        lambda x: F.interpolate(x, size=(4, 4), align_corners=True),
        lambda x: F.interpolate(x, size=(0, 4)),
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: F.pixel_unshuffle(x, 4),
        lambda x: F.channel_shuffle(x, 2),
        lambda x: F.grid_sample(x, x),
        lambda x: F.affine_grid(x, (2, 3, 4, 5)),
    ],
)
def test_errors(call):
    with pytest.raises(MetaopError, match="fix:"):
        call(metaop.tensor(draw(2, 3, 5, 6)))
