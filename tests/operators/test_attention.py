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


def multi_head(*inputs, **options):
    """`multi_head_attention_forward` with 2 heads of size 3 in both frameworks."""
    torch = pytest.importorskip("torch")
    masks = {
        name: options.pop(name) for name in ("attn_mask", "key_padding_mask") if name in options
    }
    count = len(inputs)
    parameters = [draw(18, 6), draw(18), draw(6, 6), draw(6)]

    def run(module, convert):
        def attend(*tensors):
            w_in, b_in, w_out, b_out = tensors[count:]
            xs = tensors[:count] * 3 if count == 1 else tensors[:count]
            return module.multi_head_attention_forward(
                *xs,
                6,
                2,
                w_in,
                b_in,
                None,
                None,
                options.get("zero", False),
                0.0,
                w_out,
                b_out,
                need_weights=options.get("need_weights", True),
                average_attn_weights=options.get("average", True),
                **{name: convert(mask) for name, mask in masks.items()},
            )

        return attend

    theirs = run(torch.nn.functional, torch.from_numpy)

    def first_results(function):
        return lambda *tensors: [y for y in function(*tensors) if y is not None]

    pair = (first_results(run(F, metaop.tensor)), first_results(theirs))
    check(pair, *inputs, *parameters)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("shape", [(5, 4, 6), (5, 6)])
def test_multi_head_self_attention(shape, need_weights):
    multi_head(draw(*shape), need_weights=need_weights)
    multi_head(draw(*shape), need_weights=need_weights, zero=True)


@pytest.mark.parametrize("average", [True, False])
def test_multi_head_attention_with_masks(average):
    query, key, value = draw(5, 4, 6), draw(3, 4, 6), draw(3, 4, 6, seed=1)
    padding = np.zeros((4, 3), bool)
    padding[1, 2] = padding[3, 0] = True
    multi_head(query, key, value, average=average, key_padding_mask=padding)
    excluded = np.triu(np.ones((5, 3), bool), 2)
    multi_head(query, key, value, average=average, attn_mask=excluded)
    options = {"attn_mask": draw(5, 3), "key_padding_mask": np.where(padding, -np.inf, 0.0)}
    multi_head(query, key, value, average=average, **options)
    multi_head(query, key, value, need_weights=False, attn_mask=draw(8, 5, 3))


def test_multi_head_attention_of_wrong_sizes():
    x, w = metaop.tensor(draw(5, 4, 6)), metaop.tensor(draw(6, 6))
    with pytest.raises(ShapeError, match="num_heads=4"):
        F.multi_head_attention_forward(x, x, x, 6, 4, w, None, None, None, False, 0.0, w, None)
