"""Fake quantisation for training: modules that observe a tensor and round it."""

from __future__ import annotations

from typing import Any

from metaop.ao.quantization.affine import (
    fake_quantize_per_channel_affine,
    fake_quantize_per_tensor_affine,
)
from metaop.ao.quantization.observer import (
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    WithArguments,
)
from metaop.ao.quantization.scheme import (
    QScheme,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
)
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full, ones, zeros
from metaop.unified_graph.dtype import DType, float32, int8, int32, uint8


class FakeQuantize(WithArguments):
    """Rounds tensors to values that `dtype` can represent; gradients pass within its limits.

    While it is enabled, an `observer`, made with `observer_kwargs`, sees every tensor and
    determines `scale` and `zero_point`. With fake quantisation disabled, tensors pass unchanged.
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__()
        if quant_min is not None or quant_max is not None:
            observer_kwargs |= {"quant_min": quant_min, "quant_max": quant_max}
        self.activation_post_process = observer(**observer_kwargs)
        self.quant_min: int = self.activation_post_process.quant_min
        self.quant_max: int = self.activation_post_process.quant_max
        self.dtype: DType = self.activation_post_process.dtype
        self.qscheme: QScheme = self.activation_post_process.qscheme
        self.ch_axis: int = getattr(self.activation_post_process, "ch_axis", -1)
        self.is_per_channel = self.qscheme.is_per_channel
        self.observer_enabled = self.fake_quant_enabled = True
        is_float = self.qscheme is per_channel_affine_float_qparams
        self.register_buffer("scale", ones(1))
        self.register_buffer("zero_point", zeros(1, dtype=float32 if is_float else int32))

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The observer's current scale and zero point."""
        found: tuple[Tensor, Tensor] = self.activation_post_process.calculate_qparams()
        return found

    def forward(self, x: Tensor) -> Tensor:
        if self.observer_enabled:
            self.activation_post_process(x.detach())
            scale, zero_point = self.calculate_qparams()
            self._set_buffers(scale=scale, zero_point=zero_point)
        if not self.fake_quant_enabled:
            return x
        limits = self.quant_min, self.quant_max
        if self.is_per_channel:
            parameters = self.scale, self.zero_point, self.ch_axis
            return fake_quantize_per_channel_affine(x, *parameters, *limits)
        return fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, *limits)

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Turns rounding on, or off."""
        self.fake_quant_enabled = enabled

    def disable_fake_quant(self) -> None:
        """Turns rounding off."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Turns observation on, or off."""
        self.observer_enabled = enabled

    def disable_observer(self) -> None:
        """Turns observation off, so that scale and zero point stay fixed."""
        self.enable_observer(False)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        # Per-channel parameters get their shape from the data that the observer saw.
        for name in ("scale", "zero_point"):
            value, buffer = state_dict.get(prefix + name), self._buffers[name]
            assert buffer is not None
            if isinstance(value, Tensor) and value.shape != buffer.shape:
                made = full(value.shape, 0, dtype=buffer.dtype, device=buffer.device)
                self._buffers[name] = made
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, "
            f"observer_enabled={self.observer_enabled}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme.value}, "
            f"ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )


def enable_fake_quant(module: Module) -> None:
    """Turns rounding on in a `FakeQuantize` module: for `model.apply(enable_fake_quant)`."""
    if isinstance(module, FakeQuantize):
        module.enable_fake_quant()


def disable_fake_quant(module: Module) -> None:
    """Turns rounding off in a `FakeQuantize` module: for `model.apply(disable_fake_quant)`."""
    if isinstance(module, FakeQuantize):
        module.disable_fake_quant()


def enable_observer(module: Module) -> None:
    """Turns observation on in a `FakeQuantize` module: for `model.apply(enable_observer)`."""
    if isinstance(module, FakeQuantize):
        module.enable_observer()


def disable_observer(module: Module) -> None:
    """Turns observation off in a `FakeQuantize` module: for `model.apply(disable_observer)`."""
    if isinstance(module, FakeQuantize):
        module.disable_observer()


default_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    quant_min=0,
    quant_max=255,
    dtype=uint8,
    qscheme=per_tensor_affine,
    reduce_range=True,
)
default_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=int8,
    qscheme=per_tensor_symmetric,
)
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=int8,
    qscheme=per_channel_symmetric,
    ch_axis=0,
)
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver,
    qscheme=per_channel_affine_float_qparams,
    dtype=uint8,
    quant_min=0,
    quant_max=255,
    ch_axis=0,
    averaging_constant=1,
)
