"""Quantised layers against exact sums in NumPy, and against PyTorch's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization as theirs

import metaop
import metaop.ao.quantization as ours
from metaop import nn
from metaop.ao.nn import qat, quantized
from metaop.errors import ArgumentError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def numbers(*shape: int, seed: int = 0) -> metaop.Tensor:
    random = np.random.default_rng(seed)
    return metaop.tensor((random.standard_normal(shape) + 0.4).astype(np.float32))


def quantised(model: nn.Module, x: metaop.Tensor, config: Any = None) -> nn.Module:
    model = copy.deepcopy(model).eval()
    model.qconfig = config or ours.get_default_qconfig("onednn")
    observed = ours.prepare(model)
    observed(x)
    return ours.convert(observed)


def rounded(values: metaop.Tensor, scale: float, zero: float, dtype: metaop.dtype) -> np.ndarray:
    """The numbers that quantised values stand for, in float64, less the zero point."""
    limits = np.iinfo(dtype.numpy)
    inverse = np.float32(1) / np.float32(scale)
    found = np.rint(values.numpy() * inverse) + zero
    return np.clip(found, limits.min, limits.max).astype(np.float64) - zero


def weights_of(layer: Any) -> np.ndarray:
    scale = layer.weight_scale.numpy().astype(np.float64)
    return layer.weight.numpy() * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))


@pytest.mark.parametrize("shape", [(1, 40), (7, 40), (2, 33, 40)])
@pytest.mark.parametrize("config", ["onednn", "x86", "qnnpack"])
def test_linear(shape: tuple[int, ...], config: str) -> None:
    x, layer = numbers(*shape), nn.Linear(40, 24)
    found = quantised(layer, x, ours.get_default_qconfig(config))
    assert type(found) is quantized.Linear and found.weight.dtype is metaop.int8
    inputs = rounded(x, found.scale.item(), found.zero_point.item(), metaop.uint8)
    wanted = inputs @ weights_of(found).T * found.scale.item() + layer.bias.detach().numpy()
    np.testing.assert_allclose(found(x).numpy(), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found(x).numpy(), layer(x).detach().numpy(), atol=0.05)


SETTINGS = [
    {}, {"stride": 2, "padding": 1}, {"padding": "same", "dilation": 2}, {"groups": 4},
    {"groups": 8, "padding": 2, "bias": False},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("is_signed", [False, True])
def test_convolutions(settings: dict[str, Any], dimensions: int, is_signed: bool) -> None:
    kinds = (nn.Conv1d, nn.Conv2d)
    layer = kinds[dimensions - 1](8, 16, 3, **settings)
    x = numbers(3, 8, *[9, 11][:dimensions]) + 0.5
    dtype = metaop.int8 if is_signed else metaop.uint8
    observer = ours.MinMaxObserver.with_args(dtype=dtype)
    config = ours.QConfig(observer, ours.default_per_channel_weight_observer)
    found = quantised(layer, x, config)
    assert found.zero_point.item() != 0  # what lies around the input matters
    scale = found.scale.item()
    exact = copy.deepcopy(layer).to(metaop.float64)
    exact.weight.data = metaop.tensor(weights_of(found))
    inputs = rounded(x, scale, found.zero_point.item(), dtype) * scale
    wanted = exact(metaop.tensor(inputs)).detach().numpy()
    np.testing.assert_allclose(found(x).numpy(), wanted, rtol=1e-5, atol=2e-5)
    single = found(x[0])
    np.testing.assert_allclose(single.numpy(), wanted[0], rtol=1e-5, atol=2e-5)


def test_layers_agree_with_pytorch() -> None:
    """The whole numbers are PyTorch's; its results are rounded once more, to their own grid."""
    torch.manual_seed(0)
    other = torch.nn.Sequential(
        theirs.QuantStub(), torch.nn.Conv2d(3, 8, 3, padding=1), theirs.DeQuantStub()
    ).eval()
    own = nn.Sequential(ours.QuantStub(), nn.Conv2d(3, 8, 3, padding=1), ours.DeQuantStub())
    own.load_state_dict({k: metaop.tensor(v.numpy()) for k, v in other.state_dict().items()})
    x = numbers(4, 3, 10, 12)
    # The first observer is asked for whole numbers, so that both round inputs alike.
    other.qconfig = theirs.QConfig(
        theirs.MinMaxObserver.with_args(dtype=torch.quint8),
        theirs.default_per_channel_weight_observer,
    )
    observer = ours.MinMaxObserver.with_args(dtype=metaop.uint8)
    config = ours.QConfig(observer, ours.default_per_channel_weight_observer)
    prepared = theirs.prepare(other)
    prepared(torch.tensor(x.numpy()))
    before = torch.backends.quantized.engine
    if "onednn" not in torch.backends.quantized.supported_engines:
        pytest.skip("PyTorch was built without oneDNN")
    try:
        torch.backends.quantized.engine = "onednn"
        converted = theirs.convert(prepared)
        wanted = converted(torch.tensor(x.numpy())).numpy()
    finally:
        torch.backends.quantized.engine = before
    found = quantised(own, x, config)
    layer, same = found[1], converted[1]
    assert isinstance(found[0], nn.Identity) and isinstance(found[2], nn.Identity)
    np.testing.assert_array_equal(layer.weight.numpy(), same.weight().int_repr().numpy())
    assert layer.scale.item() == converted[0].scale.item()
    assert layer.zero_point.item() == converted[0].zero_point.item()
    again = ours.dequantize(
        ours.quantize_per_tensor(found(x), same.scale, same.zero_point, metaop.uint8),
        same.scale, same.zero_point,
    ).numpy()  # fmt: skip
    if not torch.cpu._is_vnni_supported():
        # Then oneDNN's sums of two products saturate: these are the numbers that it should give.
        values = converted[0](torch.tensor(x.numpy())).dequantize().double()
        weights, bias = same.weight().dequantize().double(), same.bias().double()
        sums = torch.nn.functional.conv2d(values, weights, bias, padding=1).float()
        places = same.scale, same.zero_point, torch.quint8
        wanted = torch.quantize_per_tensor(sums, *places).dequantize().detach().numpy()
    # Ties of the second rounding may fall to the other side.
    assert np.mean(again != wanted) < 0.01
    assert np.abs(again - wanted).max() <= 1.01 * same.scale


def test_dynamic_linear_is_pytorchs() -> None:
    layer = torch.nn.Linear(70, 33)
    own = nn.Linear(70, 33)
    own.load_state_dict({k: metaop.tensor(v.detach().numpy()) for k, v in
                         layer.state_dict().items()})  # fmt: skip
    x = numbers(9, 70)
    before = torch.backends.quantized.engine
    if "qnnpack" not in torch.backends.quantized.supported_engines:
        pytest.skip("PyTorch was built without QNNPACK, which takes all 8 bits of inputs")
    try:
        torch.backends.quantized.engine = "qnnpack"
        other = theirs.quantize_dynamic(torch.nn.Sequential(layer), {torch.nn.Linear})
        wanted = other(torch.tensor(x.numpy())).numpy()
    finally:
        torch.backends.quantized.engine = before
    found = ours.quantize_dynamic(nn.Sequential(own), {nn.Linear})
    np.testing.assert_array_equal(found[0].weight.numpy(), other[0].weight().int_repr().numpy())
    np.testing.assert_allclose(found(x).numpy(), wanted, rtol=1e-4, atol=1e-4)
    named = ours.quantize_dynamic(nn.Sequential(own, nn.Linear(33, 2)), {"1"})
    assert type(named[0]) is nn.Linear and type(named[1]) is quantized.dynamic.Linear


def test_embeddings() -> None:
    table = nn.Embedding(20, 12)
    table.qconfig = ours.float_qparams_weight_only_qconfig
    found = ours.convert(ours.prepare(nn.Sequential(table)))[0]
    other = torch.nn.Embedding(20, 12)
    other.weight.data = torch.tensor(table.weight.detach().numpy())
    other.qconfig = theirs.float_qparams_weight_only_qconfig
    same = torch.ao.nn.quantized.Embedding.from_float(other)
    indices = np.array([[3, 19, 0], [7, 7, 1]])
    wanted = same(torch.tensor(indices)).numpy()
    np.testing.assert_allclose(found(metaop.tensor(indices)).numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert found.weight.dtype is metaop.uint8


class Small(nn.Module):
    """A convolution, a norm, a rectifier, and a linear map."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.head = nn.Linear(8, 5)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.head(self.relu(self.bn(self.conv(x))).mean((2, 3)))


def test_layers_are_fused() -> None:
    model, x = Small(), numbers(6, 3, 8, 8)
    for _ in range(3):
        model.train()(x)
    model.eval()
    fused = ours.fuse_modules(model, ["conv", "bn", "relu"])
    assert isinstance(fused.bn, nn.Identity) and isinstance(fused.relu, nn.Identity)
    np.testing.assert_allclose(
        fused(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-5
    )
    found = quantised(fused, x)
    assert type(found.conv[0]) is quantized.Conv2d and type(found.head) is quantized.Linear
    np.testing.assert_allclose(found(x).numpy(), model(x).detach().numpy(), atol=0.02)
    pair = ours.fuse_modules(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), [["0", "1"]])
    np.testing.assert_array_equal(pair(numbers(2, 3)).detach().numpy() >= 0, True)
    with pytest.raises(ArgumentError, match="cannot be one layer"):
        ours.fuse_modules(model, ["relu", "conv"])


def test_quantised_models_are_saved_compiled_and_exported(tmp_path: Any) -> None:
    model, x = Small().eval(), numbers(6, 3, 8, 8)
    found = quantised(model, x)
    wanted = found(x).numpy()
    metaop.save(found.state_dict(), tmp_path / "state.pth")
    fresh = quantised(Small(), numbers(2, 3, 8, 8, seed=5))
    fresh.load_state_dict(metaop.load(tmp_path / "state.pth"))
    np.testing.assert_allclose(fresh(x).numpy(), model(x).detach().numpy(), atol=0.1)
    norm = {k: v for k, v in model.state_dict().items() if k.startswith("bn")}
    fresh.load_state_dict(norm, strict=False)
    np.testing.assert_array_equal(fresh(x).numpy(), wanted)
    compiled = metaop.jit(lambda images: found(images))
    for _ in range(3):
        np.testing.assert_allclose(compiled(x).numpy(), wanted, rtol=1e-5, atol=1e-6)
    path = tmp_path / "model.mo"
    metaop.export(found, x, path, dynamic={"x": {0: "batch"}})
    program = metaop.load_program(path)
    np.testing.assert_allclose(program(x).numpy(), wanted, rtol=1e-5, atol=1e-6)
    more = numbers(9, 3, 8, 8, seed=3)
    np.testing.assert_allclose(program(more).numpy(), found(more).numpy(), rtol=1e-5, atol=1e-6)


def test_training_with_rounding() -> None:
    metaop.manual_seed(0)
    x = numbers(64, 3, 6, 6)
    labels = (x.mean((2, 3)) > 0.4).sum(1)
    model = Small()
    model.qconfig = ours.get_default_qat_qconfig("onednn")
    trained = ours.prepare_qat(model.train())
    assert type(trained.conv) is qat.Conv2d and type(trained.head) is qat.Linear
    optimizer = metaop.optim.Adam(trained.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        loss = nn.functional.cross_entropy(trained(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    trained.eval().apply(ours.disable_observer)
    wanted = trained(x).detach().numpy()
    found = ours.convert(trained)
    assert type(found.conv) is quantized.Conv2d
    # The same whole numbers; sums of floats round otherwise.
    np.testing.assert_allclose(found(x).numpy(), wanted, rtol=1e-3, atol=1e-3)
    assert not any(isinstance(m, ours.FakeQuantize) for m in found.modules())


def test_gradients_of_training_are_pytorchs() -> None:
    torch.manual_seed(0)
    other, own = torch.nn.Linear(6, 4), nn.Linear(6, 4)
    own.load_state_dict({k: metaop.tensor(v.detach().numpy()) for k, v in
                         other.state_dict().items()})  # fmt: skip
    own.qconfig = ours.default_qat_qconfig
    trained = ours.prepare_qat(own)
    inputs, weights = theirs.default_fake_quant(), theirs.default_weight_fake_quant()
    x = numbers(5, 6)
    y = torch.tensor(x.numpy(), requires_grad=True)
    x = x.requires_grad_()
    (trained(x) ** 2).sum().backward()
    result = torch.nn.functional.linear(inputs(y), weights(other.weight), other.bias)
    (result**2).sum().backward()
    pairs = [(x.grad, y.grad), (trained.weight.grad, other.weight.grad),
             (trained.bias.grad, other.bias.grad)]  # fmt: skip
    for found, wanted in pairs:
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_the_whole_way_in_one_call() -> None:
    x = numbers(8, 3, 6, 6)
    model = Small()
    model.qconfig = ours.get_default_qconfig()
    found = ours.quantize(model, lambda observed: observed(x))
    assert type(found.head) is quantized.Linear and type(model.head) is nn.Linear
    model.qconfig = ours.get_default_qat_qconfig()
    found = ours.quantize_qat(model, lambda trained, data: trained(data), [x])
    assert type(found.head) is quantized.Linear and not found.training


def test_some_layers_stay_in_floats() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model.qconfig, model[1].qconfig = ours.default_qconfig, None
    observed = ours.prepare(model)
    observed(numbers(3, 4))
    found = ours.convert(observed)
    assert [type(layer) for layer in found] == [quantized.Linear, nn.Linear]


def test_what_cannot_be_done_is_refused() -> None:
    layer = nn.Linear(4, 4)
    with pytest.raises(ArgumentError, match="no layer of the model has a qconfig"):
        ours.prepare(nn.Sequential(layer))
    layer.qconfig = ours.default_qat_qconfig
    with pytest.raises(ArgumentError, match="is for training"):
        ours.prepare(layer)
    with pytest.raises(ArgumentError, match="training mode"):
        ours.prepare_qat(layer.eval())
    layer.qconfig = ours.default_qconfig
    with pytest.raises(ArgumentError, match="is not for training"):
        ours.prepare_qat(layer.train())
    with pytest.raises(ArgumentError, match="has no observer"):
        ours.convert(layer)
    with pytest.raises(ArgumentError, match="has no quantised form"):
        ours.quantize_dynamic(nn.Sequential(nn.LSTM(3, 3)), {nn.LSTM})
    with pytest.raises(ArgumentError, match="no layers"):
        ours.quantize_dynamic(nn.Sequential(layer), {"9"})
    with pytest.raises(ArgumentError, match="weights cannot be float16"):
        ours.quantize_dynamic(layer, dtype=metaop.float16)
    with pytest.raises(ArgumentError, match="do not fit int32"):
        quantized.Linear(70_000, 1)
    with pytest.raises(ArgumentError, match="backend 'gpu' is unknown"):
        ours.get_default_qconfig("gpu")
    odd = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
    odd.qconfig = ours.default_qconfig
    with pytest.raises(UnsupportedError, match="padding_mode"):
        ours.convert(ours.prepare(odd))
    layer.qconfig = ours.QConfig(ours.default_observer, ours.MinMaxObserver)
    with pytest.raises(UnsupportedError, match="zero point 0"):
        ours.convert(ours.prepare(layer))
