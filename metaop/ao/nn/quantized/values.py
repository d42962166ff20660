"""What quantised layers share: an integer weight, and the rounding of inputs."""

from __future__ import annotations

import math
from typing import Any

from metaop.ao.quantization.affine import (
    along,
    limits_of,
    quantize_per_channel,
    quantize_per_tensor,
)
from metaop.ao.quantization.fake_quantize import FakeQuantize
from metaop.errors import ArgumentError, UnsupportedError
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full, zeros
from metaop.tensor.grad_mode import no_grad
from metaop.unified_graph.dtype import DType, float32, int8, int32

# How many products of 8-bit inputs and 8-bit weights int32 can accumulate without overflow.
_MOST_PRODUCTS = (1 << 31) // (255 * 128)


class QuantizedWeight(Module):
    """A layer with an int8 `weight`, a `weight_scale` per output, and a `bias`.

    `weight_sums` are the sums of each output's weights, for inputs with a zero point.
    """

    weight: Tensor
    weight_scale: Tensor
    weight_sums: Tensor
    bias: Tensor | None

    def _make_weight(self, shape: tuple[int, ...], has_bias: bool, device: Any = None) -> None:
        products = math.prod(shape[1:])
        if products > _MOST_PRODUCTS:
            raise ArgumentError(
                f"{type(self).__name__}: sums of {products} products do not fit int32",
                fix=f"leave the layer in floats; at most {_MOST_PRODUCTS} fit",
            )
        outputs = shape[0]
        self.register_buffer("weight", zeros(shape, dtype=int8, device=device))
        self.register_buffer("weight_scale", full((outputs,), 1.0, device=device))
        self.register_buffer("weight_sums", zeros(outputs, dtype=int32, device=device))
        self.register_buffer("bias", zeros(outputs, device=device) if has_bias else None)

    @no_grad()
    def _take_weight(self, layer: Any, observer: Any) -> None:
        """Takes over the parameters of a float layer, rounded as an observer determines."""
        if observer.dtype is not int8 or not observer.qscheme.is_symmetric:
            raise UnsupportedError(
                f"{type(self).__name__}: weights are int8 with zero point 0, got "
                f"{observer.dtype.name} and {observer.qscheme.value}",
                fix="use dtype int8 and a symmetric scheme for weights",
            )
        weight = layer.weight.detach().to(float32)
        scale, zero_point = observer.calculate_qparams()
        outputs = weight.shape[:1]
        scale, zero_point = scale.expand(outputs), zero_point.expand(outputs)
        self.weight = quantize_per_channel(weight, scale, zero_point, 0, int8)
        self.weight_scale = scale.clone()
        self.weight_sums = self.weight.to(int32).flatten(1).sum(1).to(int32)
        self.bias = None if layer.bias is None else layer.bias.detach().to(float32).clone()

    def _in_floats(self, sums: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
        """The float results of integer sums, whose outputs lie along an axis."""
        moved = along(self.weight_sums, sums.ndim, axis) * zero_point
        found = (sums - moved).to(float32) * (along(self.weight_scale, sums.ndim, axis) * scale)
        return found if self.bias is None else found + along(self.bias, sums.ndim, axis)


class QuantizedInput(QuantizedWeight):
    """A layer that rounds its inputs by `scale` and `zero_point`, to int8 or uint8."""

    scale: Tensor
    zero_point: Tensor

    def _make_input(self, dtype: DType, device: Any = None) -> None:
        limits_of(dtype)
        self.dtype = dtype
        self.register_buffer("scale", full((), 1.0, device=device))
        self.register_buffer("zero_point", zeros((), dtype=int32, device=device))

    @no_grad()
    def _take_input(self, observer: Any) -> None:
        """Takes over the scale and the zero point of an observer of inputs."""
        scale, zero_point = observer.calculate_qparams()
        if scale.numel() != 1:
            raise UnsupportedError(
                f"{type(self).__name__}: inputs have one scale, got {scale.numel()}",
                fix="use an observer with one range for all channels",
            )
        self.scale = scale.reshape(()).clone()
        self.zero_point = zero_point.reshape(()).to(int32).clone()

    def _rounded(self, input: Tensor) -> Tensor:
        return quantize_per_tensor(input, self.scale, self.zero_point, self.dtype)


def observers_of(layer: Any) -> tuple[Any, Any]:
    """The observer of a prepared layer's inputs, and one for its weight.

    Raises ArgumentError for a layer that was not prepared.
    """
    inputs, config = layer._modules.get("activation_pre_process"), getattr(layer, "qconfig", None)
    if inputs is None or config is None:
        raise ArgumentError(
            f"{type(layer).__name__} has no observer of its inputs",
            fix="call prepare or prepare_qat first, and run some data through the model",
        )
    return _observer_in(inputs), weight_observer(layer)


def weight_observer(layer: Any) -> Any:
    """An observer that has seen a layer's weight: that of its training, or a new one."""
    trained = layer._modules.get("weight_fake_quant")
    if trained is not None and bool((trained.activation_post_process.min_val < float("inf")).all()):
        return trained.activation_post_process
    made = _observer_in(layer.qconfig.weight()).to(layer.weight.device)
    made(layer.weight.detach().to(float32))
    return made


def _observer_in(module: Any) -> Any:
    """The observer, unwrapped from fake quantisation."""
    return module.activation_post_process if isinstance(module, FakeQuantize) else module
