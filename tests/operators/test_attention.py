"""Scaled dot-product attention against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, ShapeError
from metaop.nn import functional as F
from tests.helpers import check, check_derivatives
from tests.operators.against_torch import compare, draw

NAME = "scaled_dot_product_attention"


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention(lead, options):
    q, k, v = draw(*lead, 4, 5), draw(*lead, 6, 5, seed=1), draw(*lead, 6, 3, seed=2)
    compare(NAME, q, k, v, **options)


def test_boolean_mask_with_an_empty_row():
    torch = pytest.importorskip("torch")
    mask = draw(4, 6, seed=4) > 0
    mask[1] = False
    check(
        (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, metaop.tensor(mask)),
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, torch.from_numpy(mask)
            ),
        ),
        draw(2, 4, 5),
        draw(2, 6, 5),
        draw(2, 6, 3),
    )


def test_float_mask():
    compare(NAME, draw(2, 3, 4, 5), draw(2, 3, 6, 5), draw(2, 3, 6, 3), draw(4, 6))


def test_grouped_heads():
    shapes = ((2, 6, 4, 5), (2, 2, 6, 5), (2, 2, 6, 5))
    compare(NAME, *(draw(*s, seed=k) for k, s in enumerate(shapes)), enable_gqa=True)


def test_types():
    for dtype in ("float32", "float16"):
        q, k, v = (draw(2, 4, 5, dtype=dtype, seed=s) for s in range(3))
        compare(NAME, q, k, v, tolerance=5e-3)


def test_second_derivatives():
    inputs = (draw(3, 2), draw(4, 2), draw(4, 2, seed=1))
    check_derivatives(lambda *xs: F.scaled_dot_product_attention(*xs, is_causal=True), *inputs)


def test_dropout_keeps_the_mean():
    ones = metaop.tensor(np.ones((64, 32, 1)))
    result = F.scaled_dot_product_attention(ones, ones, ones, dropout_p=0.5).numpy()
    assert abs(result.mean() - 1) < 0.05 and result.std() > 0.05


def test_errors():
    q, k = metaop.tensor(draw(4, 5)), metaop.tensor(draw(4, 6))
    with pytest.raises(ShapeError, match=r"\[4, 5\].*\[4, 6\]"):
        F.scaled_dot_product_attention(q, k, k)
    with pytest.raises(ArgumentError, match="is_causal"):
        F.scaled_dot_product_attention(q, q, q, metaop.tensor(draw(4, 4)), is_causal=True)
