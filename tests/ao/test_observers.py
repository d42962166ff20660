"""Observers, and rounding in training, against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization as theirs

import metaop
import metaop.ao.quantization as ours
from metaop.errors import ArgumentError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def batches(count: int = 4, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [
        ((1 + k) * random.standard_normal((4, 6, 5)) + 0.3).astype(np.float32) for k in range(count)
    ]


def pair(name: str, scheme: str | None = None, is_signed: bool = False, **named: Any) -> Any:
    """The same observer here and there."""
    own, other = dict(named), dict(named)
    if scheme is not None:
        own["qscheme"], other["qscheme"] = getattr(ours, scheme), getattr(torch, scheme)
    own["dtype"] = metaop.int8 if is_signed else metaop.uint8
    other["dtype"] = torch.qint8 if is_signed else torch.quint8
    return getattr(ours, name)(**own), getattr(theirs, name)(**other)


def assert_alike(own: Any, other: Any, **tolerance: float) -> None:
    for found, wanted in zip(own.calculate_qparams(), other.calculate_qparams()):
        assert found.shape == tuple(wanted.shape)
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), **(tolerance or {"rtol": 1e-6}))


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("name, scheme", [
    ("MinMaxObserver", "per_tensor_affine"),
    ("MinMaxObserver", "per_tensor_symmetric"),
    ("MovingAverageMinMaxObserver", "per_tensor_affine"),
    ("PerChannelMinMaxObserver", "per_channel_affine"),
    ("PerChannelMinMaxObserver", "per_channel_symmetric"),
    ("PerChannelMinMaxObserver", "per_channel_affine_float_qparams"),
    ("MovingAveragePerChannelMinMaxObserver", "per_channel_symmetric"),
])  # fmt: skip
def test_ranges(name: str, scheme: str, is_signed: bool) -> None:
    for named in ({}, {"reduce_range": True}, {"quant_min": -7, "quant_max": 8}, {"eps": 0.25}):
        axis = {"ch_axis": 1} if "Channel" in name else {}
        if named.get("reduce_range") and "symmetric" in scheme and not is_signed:
            with pytest.raises(UnsupportedError, match="reduce_range"):
                pair(name, scheme, is_signed, **named, **axis)
            continue
        own, other = pair(name, scheme, is_signed, **named, **axis)
        for batch in batches():
            own(metaop.tensor(batch))
            other(torch.tensor(batch))
            assert_alike(own, other)


def test_what_was_never_seen_has_scale_one() -> None:
    own, other = pair("MinMaxObserver")
    assert_alike(own, other)
    own(metaop.ones(3))
    own.reset_min_max_vals()
    assert_alike(own, other)


@pytest.mark.parametrize("is_signed", [False, True])
def test_histograms(is_signed: bool) -> None:
    for scheme in ("per_tensor_affine", "per_tensor_symmetric"):
        own, other = pair("HistogramObserver", scheme, is_signed, bins=256)
        for batch in batches():
            batch[0, 0, 0] *= 30  # rare, and far away
            own(metaop.tensor(batch))
            other(torch.tensor(batch))
            counts = own.histogram.numpy(), other.histogram.numpy()
            assert counts[0].sum() == pytest.approx(counts[1].sum(), rel=1e-5)
            # The ends of bins are rounded otherwise: a few numbers fall into the next bin.
            assert np.abs(counts[0] - counts[1]).sum() <= 0.05 * counts[1].sum()
        # By a bin of 256 at most.
        (scale, zero), (wanted, wanted_zero) = own.calculate_qparams(), other.calculate_qparams()
        np.testing.assert_allclose(scale.numpy(), wanted.numpy(), rtol=0.01)
        np.testing.assert_allclose(zero.numpy(), wanted_zero.numpy(), atol=1)


def test_what_is_rare_is_left_out() -> None:
    x = np.random.default_rng(0).laplace(size=100_000).astype(np.float32)
    (own, other), plain = pair("HistogramObserver"), ours.MinMaxObserver()
    for observer in (own, plain):
        observer(metaop.tensor(x))
    other(torch.tensor(x))
    assert_alike(own, other, rtol=0.01, atol=1)
    assert own.calculate_qparams()[0].item() < 0.95 * plain.calculate_qparams()[0].item()


def test_histograms_leave_infinite_numbers_out() -> None:
    own = ours.HistogramObserver()
    own(metaop.tensor([1.0, 2.0, float("inf"), -float("inf")]))
    assert own.min_val.item() == 1 and own.max_val.item() == 2
    own(metaop.tensor([float("inf")]))
    assert own.max_val.item() == 2


def test_percentiles() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(100_000).astype(np.float32)
    for percentile in (99.0, 99.9):
        own = ours.PercentileObserver(percentile, dtype=metaop.int8)
        own(metaop.tensor(x))
        scale, zero = (value.item() for value in own.calculate_qparams())
        low, high = ((limit - zero) * scale for limit in (-128, 127))
        outside = (1 - percentile / 100) / 2
        wanted = np.quantile(x, [outside, 1 - outside])
        np.testing.assert_allclose((low, high), wanted, atol=0.03)
    with pytest.raises(ArgumentError, match="percentile 20"):
        ours.PercentileObserver(20)


def test_states_of_observers_are_saved_and_loaded() -> None:
    for name in ("MinMaxObserver", "PerChannelMinMaxObserver", "HistogramObserver"):
        own, fresh = getattr(ours, name)(), getattr(ours, name)()
        own(metaop.tensor(batches()[0]))
        fresh.load_state_dict(own.state_dict())
        for found, wanted in zip(fresh.calculate_qparams(), own.calculate_qparams()):
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@pytest.mark.parametrize("name", ["default_fake_quant", "default_weight_fake_quant",
                                  "default_per_channel_weight_fake_quant",
                                  "default_embedding_fake_quant"])  # fmt: skip
def test_fake_quantisation_as_a_module(name: str) -> None:
    own, other = getattr(ours, name)(), getattr(theirs, name)()
    for batch in batches():
        batch = batch.reshape(24, 5)
        x, y = metaop.tensor(batch, requires_grad=True), torch.tensor(batch, requires_grad=True)
        found, wanted = own(x), other(y)
        (found * found).sum().backward()
        (wanted * wanted).sum().backward()
        np.testing.assert_allclose(
            found.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-5)
    own.disable_observer()
    kept = own.scale.numpy().copy()
    own(100 * x)
    np.testing.assert_array_equal(own.scale.numpy(), kept)
    own.disable_fake_quant()
    assert own(x) is x
    fresh = getattr(ours, name)()
    fresh.load_state_dict(own.state_dict())
    np.testing.assert_array_equal(fresh.scale.numpy(), kept)


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentError, match="one range for all channels"):
        ours.MinMaxObserver(qscheme=ours.per_channel_affine)
    with pytest.raises(ArgumentError, match="a range for each channel"):
        ours.PerChannelMinMaxObserver(qscheme=ours.per_tensor_affine)
    with pytest.raises(ArgumentError, match="must include 0"):
        ours.MinMaxObserver(quant_min=3, quant_max=9)
    with pytest.raises(ArgumentError, match="given together"):
        ours.MinMaxObserver(quant_min=0)
    with pytest.raises(ArgumentError, match="is unknown"):
        ours.MinMaxObserver(qscheme="per_tensor_affine")
    with pytest.raises(UnsupportedError, match="observes nothing"):
        ours.PlaceholderObserver().calculate_qparams()
