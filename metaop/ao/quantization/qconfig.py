"""Configurations: which observers watch the inputs and the weights of a layer."""

from __future__ import annotations

from typing import Any, NamedTuple

from metaop.ao.quantization.fake_quantize import (
    FakeQuantize,
    default_embedding_fake_quant,
    default_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
)
from metaop.ao.quantization.histogram import HistogramObserver
from metaop.ao.quantization.observer import (
    PlaceholderObserver,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
)
from metaop.errors import ArgumentError


class QConfig(NamedTuple):
    """The factories of the observers of a layer's inputs and of its weight.

    Each is an observer class or the result of its `with_args`, and is called without arguments.
    """

    activation: Any
    weight: Any


default_qconfig = QConfig(default_observer, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
per_channel_dynamic_qconfig = QConfig(
    default_dynamic_quant_observer, default_per_channel_weight_observer
)
default_qat_qconfig = QConfig(default_fake_quant, default_weight_fake_quant)
float_qparams_weight_only_qconfig = QConfig(PlaceholderObserver, default_float_qparams_observer)
default_embedding_qat_qconfig = QConfig(PlaceholderObserver, default_embedding_fake_quant)


def get_default_qconfig(backend: str = "x86") -> QConfig:
    """The configuration for static quantisation.

    `backend` is one of PyTorch's. "x86" and "fbgemm" halve the range of inputs, which PyTorch's
    kernels need and metaop's do not; "onednn" and "qnnpack" keep it. "qnnpack" quantises weights
    per tensor, the others per channel.
    """
    _check(backend)
    halves = backend in ("x86", "fbgemm")
    weight = default_weight_observer if backend == "qnnpack" else _PER_CHANNEL
    return QConfig(HistogramObserver.with_args(reduce_range=halves), weight)


def get_default_qat_qconfig(backend: str = "x86") -> QConfig:
    """The configuration for quantisation-aware training; see `get_default_qconfig`."""
    _check(backend)
    activation = default_fake_quant.with_args(reduce_range=backend in ("x86", "fbgemm"))
    if backend == "qnnpack":
        return QConfig(activation, default_weight_fake_quant)
    return QConfig(activation, default_per_channel_weight_fake_quant)


_PER_CHANNEL = default_per_channel_weight_observer


def _check(backend: str) -> None:
    known = ("x86", "fbgemm", "qnnpack", "onednn")
    if backend not in known:
        raise ArgumentError(f"backend {backend!r} is unknown", fix=f"use one of {known}")


def is_for_training(config: QConfig) -> bool:
    """Whether a configuration applies fake quantisation to weights."""
    made = config.weight
    return getattr(made, "made", made) is FakeQuantize
