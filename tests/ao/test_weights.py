"""Weights in 8 and 4 bits against exact sums of what they stand for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import metaop
import metaop.ao.quantization as quantization
from metaop import nn
from metaop.errors import ArgumentError, ShapeError

CASES = [(8, None), (8, 32), (8, 128), (4, None), (4, 32), (4, 64), (4, 128)]


def unpacked(layer: quantization.WeightOnlyLinear) -> np.ndarray:
    """The weight (out, in) that a layer stands for, in float64."""
    packed, scale = layer.weight.numpy(), layer.weight_scale.numpy().astype(np.float64)
    groups, outputs = scale.shape
    numbers = packed.reshape(groups, -1, outputs)
    if layer.bits == 4:
        numbers = np.concatenate([numbers & 15, numbers >> 4], 1).astype(np.int64) - 8
    return (numbers * scale[:, None]).reshape(-1, outputs).T


@pytest.mark.parametrize("bits, group", CASES)
@pytest.mark.parametrize("shape", [(256,), (1, 256), (1, 1, 256), (3, 256), (2, 9, 256)])
def test_products(bits: int, group: int | None, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    layer = nn.Linear(256, 72, bias=len(shape) > 1)
    found = quantization.quantize_weights(layer, bits, group)
    weight, wanted = layer.weight.detach().numpy(), unpacked(found)
    # Nothing is further off than half a step.
    steps = np.repeat(found.weight_scale.numpy().T, 256 // found.weight_scale.shape[0], 1)
    assert (np.abs(weight - wanted) <= 0.5001 * steps).all()
    x = random.standard_normal(shape).astype(np.float32)
    bias = 0 if layer.bias is None else layer.bias.detach().numpy()
    result = found(metaop.tensor(x))
    np.testing.assert_allclose(result.numpy(), x @ wanted.T + bias, rtol=1e-4, atol=2e-5)
    half = found(metaop.tensor(x).to(metaop.bfloat16))
    assert half.dtype is metaop.bfloat16
    np.testing.assert_allclose(half.float().numpy(), result.numpy(), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("bits, group", CASES)
def test_gradients_reach_the_inputs(bits: int, group: int | None) -> None:
    found = quantization.quantize_weights(nn.Linear(128, 24), bits, group)
    for rows in (1, 5):
        x = metaop.randn(rows, 128, requires_grad=True)
        weight = metaop.randn(rows, 24)
        (found(x) * weight).sum().backward()
        wanted = weight.numpy() @ unpacked(found)
        np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits, group, share", [(8, None, 0.26), (8, 64, 0.28), (4, 64, 0.16)])
def test_weights_are_never_floats_in_memory(bits: int, group: int | None, share: float) -> None:
    layer = nn.Linear(512, 384, bias=False)
    found = quantization.quantize_weights(layer, bits, group)
    assert sum(v.nbytes for v in found.state_dict().values()) < share * layer.weight.nbytes
    found(metaop.ones(1, 512)).numpy()  # what is recorded so far runs
    for rows in (1, 2, 16, 40):
        text = metaop.inspect.kernels(found(metaop.ones(rows, 512)))
        (temporary,) = re.findall(r"(\d+) bytes of temporary memory", text)
        assert int(temporary) < 0.01 * layer.weight.nbytes


def test_all_linear_maps_of_a_model(tmp_path: Any) -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Sequential(nn.Linear(32, 8)))
    found = quantization.quantize_weights(model, 4, 32)
    kinds = [type(found[0]), type(found[2][0]), type(model[0])]
    assert kinds == [quantization.WeightOnlyLinear] * 2 + [nn.Linear]
    x = metaop.randn(1, 64)
    wanted = found(x).numpy()
    assert np.abs(wanted - model(x).detach().numpy()).max() < 0.2
    metaop.save(found.state_dict(), tmp_path / "state.pth")
    fresh = quantization.quantize_weights(
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Sequential(nn.Linear(32, 8))), 4, 32
    )
    fresh.load_state_dict(metaop.load(tmp_path / "state.pth"))
    np.testing.assert_array_equal(fresh(x).numpy(), wanted)
    compiled = metaop.jit(lambda x: fresh(x))
    for _ in range(3):
        np.testing.assert_allclose(compiled(x).numpy(), wanted, rtol=1e-5, atol=1e-6)
    several = metaop.randn(4, 64)
    metaop.export(found, several, tmp_path / "model.mo", dynamic={"input": {0: "batch"}})
    program = metaop.load_program(tmp_path / "model.mo")
    for rows in (2, 4, 9):
        more = metaop.randn(rows, 64)
        np.testing.assert_allclose(program(more).numpy(), found(more).numpy(), rtol=1e-5, atol=1e-5)
    # One row is another program: it unpacks inside of the sum.
    metaop.export(found, x, tmp_path / "row.mo")
    row = metaop.load_program(tmp_path / "row.mo")
    np.testing.assert_allclose(row(x).numpy(), wanted, rtol=1e-5, atol=1e-6)
    part = quantization.quantize_weights(model, 8, which=lambda name, layer: name == "2.0")
    assert type(part[0]) is nn.Linear
    assert type(part[2][0]) is quantization.WeightOnlyLinear


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ArgumentError, match="3 bits"):
        quantization.quantize_weights(nn.Linear(64, 8), 3)
    with pytest.raises(ArgumentError, match="groups of 48"):
        quantization.quantize_weights(nn.Linear(96, 8), 4, 48)
    with pytest.raises(ArgumentError, match="not a multiple"):
        quantization.quantize_weights(nn.Linear(100, 8), 4, 64)
    with pytest.raises(ShapeError, match="does not fit"):
        quantization.quantize_weights(nn.Linear(64, 8), 4, 32)(metaop.ones(2, 32))
