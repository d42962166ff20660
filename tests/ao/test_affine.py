"""Rounding to quantised values, and its gradient, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import metaop
import metaop.ao.quantization as quantization
from metaop.errors import ArgumentError, DTypeError

# PyTorch means to drop its quantised tensors one day.
pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per:UserWarning")
SHAPES = [(7,), (3, 5), (2, 3, 4, 5), (1, 65), (33, 130)]
TYPES = [(metaop.int8, torch.qint8), (metaop.uint8, torch.quint8)]


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return (3 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale, zero_point", [(0.05, 3), (0.017, 0), (0.3, 120)])
def test_one_scale(shape: tuple[int, ...], scale: float, zero_point: int) -> None:
    x = numbers(shape)
    for own, theirs in TYPES:
        wanted = torch.quantize_per_tensor(torch.tensor(x), scale, zero_point, theirs)
        tensors = metaop.tensor(scale), metaop.tensor(zero_point, dtype=metaop.int32)
        for parameters in ((scale, zero_point), tensors):
            found = quantization.quantize_per_tensor(metaop.tensor(x), *parameters, own)
            assert found.dtype is own
            np.testing.assert_array_equal(found.numpy(), wanted.int_repr().numpy())
            again = quantization.dequantize(found, *parameters)
            np.testing.assert_array_equal(again.numpy(), wanted.dequantize().numpy())


@pytest.mark.parametrize(
    "shape, axis", [((3, 5), 0), ((3, 5), 1), ((2, 3, 4, 5), 1), ((9, 64), -1)]
)
def test_a_scale_for_each_channel(shape: tuple[int, ...], axis: int) -> None:
    x, random = numbers(shape), np.random.default_rng(1)
    scales = random.uniform(0.01, 0.2, shape[axis])
    zeros = random.integers(0, 100, shape[axis])
    for own, theirs in TYPES:
        wanted = torch.quantize_per_channel(
            torch.tensor(x), torch.tensor(scales), torch.tensor(zeros), axis % len(shape), theirs
        )
        parameters = metaop.tensor(scales), metaop.tensor(zeros)
        found = quantization.quantize_per_channel(metaop.tensor(x), *parameters, axis, own)
        np.testing.assert_array_equal(found.numpy(), wanted.int_repr().numpy())
        again = quantization.dequantize(found, *parameters, axis)
        np.testing.assert_allclose(again.numpy(), wanted.dequantize().numpy(), rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limits", [(-128, 127), (0, 255), (-14, 13)])
def test_fake_quantisation_and_its_gradient(
    shape: tuple[int, ...], limits: tuple[int, int]
) -> None:
    x, weight = numbers(shape), numbers(shape, 1)
    zero_point = sum(limits) // 2
    for scale in (0.05, 0.023):
        own = metaop.tensor(x, requires_grad=True)
        theirs = torch.tensor(x, requires_grad=True)
        found = quantization.fake_quantize_per_tensor_affine(own, scale, zero_point, *limits)
        wanted = torch.fake_quantize_per_tensor_affine(theirs, scale, zero_point, *limits)
        (found * metaop.tensor(weight)).sum().backward()
        (wanted * torch.tensor(weight)).sum().backward()
        np.testing.assert_array_equal(found.detach().numpy(), wanted.detach().numpy())
        np.testing.assert_array_equal(own.grad.numpy(), theirs.grad.numpy())
        assert x.size < 60 or 0 < np.count_nonzero(own.grad.numpy()) < x.size


@pytest.mark.parametrize("shape, axis", [((3, 5), 0), ((3, 5), 1), ((2, 3, 4, 5), 1), ((9, 64), 0)])
@pytest.mark.parametrize("is_float", [False, True])
def test_fake_quantisation_of_channels(shape: tuple[int, ...], axis: int, is_float: bool) -> None:
    x, weight, random = numbers(shape), numbers(shape, 1), np.random.default_rng(2)
    scales = random.uniform(0.01, 0.05, shape[axis]).astype(np.float32)
    zeros = random.integers(-10, 10, shape[axis]).astype(np.int32)
    if is_float:
        zeros = (zeros + random.uniform(0, 1, shape[axis])).astype(np.float32)
    own, theirs = metaop.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    found = quantization.fake_quantize_per_channel_affine(
        own, metaop.tensor(scales), metaop.tensor(zeros), axis, -128, 127
    )
    wanted = torch.fake_quantize_per_channel_affine(
        theirs, torch.tensor(scales), torch.tensor(zeros), axis, -128, 127
    )
    (found * metaop.tensor(weight)).sum().backward()
    (wanted * torch.tensor(weight)).sum().backward()
    np.testing.assert_allclose(
        found.detach().numpy(), wanted.detach().numpy(), rtol=1e-6, atol=1e-7
    )
    np.testing.assert_array_equal(own.grad.numpy(), theirs.grad.numpy())


def test_what_cannot_be_quantised_is_refused() -> None:
    x = metaop.ones(3)
    with pytest.raises(DTypeError, match="quantised values cannot be int64"):
        quantization.quantize_per_tensor(x, 1.0, 0, metaop.int64)
    with pytest.raises(DTypeError, match="only floats"):
        quantization.quantize_per_tensor(x.to(metaop.int32), 1.0, 0, metaop.int8)
    with pytest.raises(ArgumentError, match="must not be greater"):
        quantization.fake_quantize_per_tensor_affine(x, 1.0, 0, 3, -3)
    with pytest.raises(ArgumentError, match="one element for each of 3"):
        quantization.fake_quantize_per_channel_affine(x, x[:2], x[:2], 0, -3, 3)
    with pytest.raises(ArgumentError, match="axis needs a tensor"):
        quantization.dequantize(x.to(metaop.int8), 1.0, 0, 0)
