"""Padding against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import MetaopError
from metaop.nn import functional as F
from tests.operators.against_torch import compare, compare_derivatives, draw


@pytest.mark.parametrize(
    "pad", [(1, 2), (1, 2, 3, 0), (0, 1, 2, 0, 1, 1), (-1, 2), (-1, -1, 2, -2)]
)
@pytest.mark.parametrize("value", [None, 1.5])
def test_constant(pad, value):
    compare("pad", draw(2, 3, 4, 5), pad=pad, value=value)


@pytest.mark.parametrize("value", [None, 2])
def test_constant_of_integers(value):
    compare("pad", np.arange(6).reshape(2, 3), pad=(1, 1), value=value)
    compare("pad", np.arange(6).reshape(2, 3) > 2, pad=(1, 1), value=value and True)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("shape", "pad"),
    [
        ((3, 5), (2, 1)),
        ((2, 3, 5), (4, 3)),
        ((2, 3, 4, 5), (2, 1, 0, 3)),
        ((3, 4, 5), (1, 2, 3, 1)),
        ((1, 2, 3, 4, 3), (1, 2, 0, 1, 2, 1)),
    ],
)
def test_continuations(mode, shape, pad):
    compare("pad", draw(*shape), pad=pad, mode=mode)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
def test_second_derivatives(mode):
    compare_derivatives("pad", draw(2, 3, 4), pad=(2, 1), mode=mode)


@pytest.mark.parametrize(
    ("pad", "options"),
    [
        ((1,), {}),
        ((1, 1) * 4, {}),
        ((4, 0), {"mode": "reflect"}),
        ((5, 0), {"mode": "circular"}),
        ((1, 0), {"mode": "mirror"}),
        ((-3, -3), {}),
    ],
)
def test_errors(pad, options):
    with pytest.raises(MetaopError, match="pad"):
        F.pad(metaop.tensor(draw(2, 3, 4)), pad, **options)
