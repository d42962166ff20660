"""Observers: modules that watch tensors and derive a scale and a zero point from their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.ao.quantization.affine import limits_of
from metaop.ao.quantization.scheme import (
    QScheme,
    parameters_of_range,
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
)
from metaop.errors import ArgumentError, UnsupportedError
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import full, tensor
from metaop.tensor.functions.pointwise import maximum, minimum
from metaop.tensor.functions.selection import where
from metaop.tensor.grad_mode import no_grad
from metaop.unified_graph.dtype import DType, float32, int8, uint8

_EPS = 2.0**-23


class Partial:
    """A class with some of its arguments bound: calling it passes these and any others."""

    def __init__(self, made: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.made, self.arguments = made, arguments

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.made(*arguments, **{**self.arguments, **named})

    def with_args(self, **named: Any) -> Partial:
        """The same class with more arguments bound."""
        return Partial(self.made, {**self.arguments, **named})

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{getattr(self.made, '__name__', self.made)}.with_args({listed})"


class WithArguments(Module):
    """A module class whose `with_args` makes the factories that a `QConfig` holds."""

    @classmethod
    def with_args(cls, **named: Any) -> Partial:
        """A factory of such modules with these arguments."""
        return Partial(cls, named)

    @no_grad()
    def _set_buffers(self, **values: Tensor) -> None:
        """Writes values into the buffers of these names, or replaces those of another shape."""
        for name, value in values.items():
            buffer = self._buffers[name]
            assert buffer is not None
            if buffer.shape == value.shape:
                buffer.copy_(value)
            else:
                self._buffers[name] = value.detach()


class ObserverBase(WithArguments):
    """A module that returns its input and records statistics of it.

    `calculate_qparams` returns the scale and the zero point for quantised values of `dtype`.
    """

    def __init__(self, dtype: DType, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale, float32, and zero point, int32."""
        raise NotImplementedError


class PlaceholderObserver(ObserverBase):
    """Observes nothing: it marks values whose range is computed at run time."""

    def __init__(
        self,
        dtype: DType = uint8,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        low, high = limits_of(dtype)
        self.quant_min = low if quant_min is None else quant_min
        self.quant_max = high if quant_max is None else quant_max

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        raise UnsupportedError(
            "PlaceholderObserver observes nothing: it has no scale and no zero point",
            fix="use another observer, or quantize_dynamic",
        )


class UniformQuantizationObserverBase(ObserverBase):
    """The base of observers of a range, `min_val` to `max_val`; both are infinite before any data.

    Quantised values have the `dtype` int8 or uint8. They go from `quant_min` to `quant_max`, by
    default the range of the dtype; `reduce_range` halves it. A scale is at least `eps`.
    """

    min_val: Tensor
    max_val: Tensor
    eps: Tensor

    def __init__(
        self,
        dtype: DType = uint8,
        qscheme: QScheme = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        if not isinstance(qscheme, QScheme):
            raise ArgumentError(
                f"{type(self).__name__}: qscheme {qscheme!r} is unknown",
                fix="use one of metaop.ao.quantization.QScheme",
            )
        self.qscheme = qscheme
        self.reduce_range = reduce_range
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if (quant_min is None) != (quant_max is None):
            raise ArgumentError(
                f"{type(self).__name__}: quant_min and quant_max must be given together",
                fix="pass both",
            )
        low, high = limits_of(dtype) if quant_min is None else (quant_min, quant_max or 0)
        if not low <= 0 <= high or low == high or high - low > 255:
            raise ArgumentError(
                f"{type(self).__name__}: values from {low} to {high} must include 0, and be at "
                "most 256",
                fix="choose other limits",
            )
        if reduce_range and qscheme.is_symmetric and dtype is uint8:
            raise UnsupportedError(
                f"{type(self).__name__}: reduce_range with {qscheme.value} does not support uint8",
                fix="use int8, or omit reduce_range",
            )
        self.quant_min, self.quant_max = (low // 2, high // 2) if reduce_range else (low, high)
        self.register_buffer("eps", tensor([eps]))
        self.register_buffer("min_val", tensor(float("inf")))
        self.register_buffer("max_val", tensor(float("-inf")))

    def reset_min_max_vals(self) -> None:
        """Forgets the range."""
        self._keep(tensor(float("inf")), tensor(float("-inf")))

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point: (1,), or (channels,) if each channel has its own."""
        return self._qparams_of(self.min_val, self.max_val)

    def _qparams_of(self, least: Tensor, greatest: Tensor) -> tuple[Tensor, Tensor]:
        limits = (self.quant_min, self.quant_max)
        found = parameters_of_range(
            least.reshape(-1),
            greatest.reshape(-1),
            limits,
            self.qscheme,
            self.dtype,
            self.eps,
            self.has_customized_qrange,
        )
        return found

    def _keep(self, least: Tensor, greatest: Tensor) -> None:
        self._set_buffers(min_val=least, max_val=greatest)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        # Per-channel ranges get their shape from the data.
        for name in ("min_val", "max_val"):
            value = state_dict.get(prefix + name)
            buffer = self._buffers[name]
            assert buffer is not None
            if isinstance(value, Tensor) and value.shape != buffer.shape:
                self._buffers[name] = full(value.shape, 0.0, device=buffer.device)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class MinMaxObserver(UniformQuantizationObserverBase):
    """The minimum and the maximum of all values so far, one range per tensor."""

    def __init__(
        self,
        dtype: DType = uint8,
        qscheme: QScheme = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
    ) -> None:
        if isinstance(qscheme, QScheme) and qscheme.is_per_channel:
            raise ArgumentError(
                f"{type(self).__name__} has one range for all channels, got {qscheme.value}",
                fix="use PerChannelMinMaxObserver",
            )
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps, is_dynamic)

    def forward(self, x: Tensor) -> Tensor:
        if x.numel():
            numbers = x.detach().to(float32)
            self._see(numbers.amin(), numbers.amax())
        return x

    def _see(self, least: Tensor, greatest: Tensor) -> None:
        self._keep(minimum(self.min_val, least), maximum(self.max_val, greatest))


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Moving averages of the minimum and the maximum of each tensor.

    Each step moves them by `averaging_constant` times the difference.
    """

    def __init__(self, averaging_constant: float = 0.01, **named: Any) -> None:
        self.averaging_constant = averaging_constant
        super().__init__(**named)

    def _see(self, least: Tensor, greatest: Tensor) -> None:
        self._keep(*_averaged(self, least, greatest, self.averaging_constant))


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """The minimum and the maximum of all values so far in each channel, along `ch_axis`."""

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: DType = uint8,
        qscheme: QScheme = per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
    ) -> None:
        if isinstance(qscheme, QScheme) and not qscheme.is_per_channel:
            raise ArgumentError(
                f"{type(self).__name__} has a range for each channel, got {qscheme.value}",
                fix="use MinMaxObserver",
            )
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps, is_dynamic)
        self.ch_axis = ch_axis

    def forward(self, x: Tensor) -> Tensor:
        if x.numel():
            numbers = x.detach().to(float32).movedim(self.ch_axis, 0).flatten(1)
            self._see(numbers.amin(1), numbers.amax(1))
        return x

    def _see(self, least: Tensor, greatest: Tensor) -> None:
        self._keep(minimum(self.min_val, least), maximum(self.max_val, greatest))


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Moving averages of the minimum and the maximum of each channel."""

    def __init__(self, averaging_constant: float = 0.01, ch_axis: int = 0, **named: Any) -> None:
        self.averaging_constant = averaging_constant
        super().__init__(ch_axis, **named)

    def _see(self, least: Tensor, greatest: Tensor) -> None:
        self._keep(*_averaged(self, least, greatest, self.averaging_constant))


def _averaged(
    observer: UniformQuantizationObserverBase, least: Tensor, greatest: Tensor, constant: float
) -> tuple[Tensor, Tensor]:
    """The old range moved towards a new one."""
    is_first = observer.min_val > observer.max_val
    moved = (
        where(is_first, new, old + constant * (new - old))
        for old, new in ((observer.min_val, least), (observer.max_val, greatest))
    )
    return tuple(moved)  # type: ignore[return-value]


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=uint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_weight_observer = MinMaxObserver.with_args(dtype=int8, qscheme=per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = default_weight_observer.with_args(
    quant_min=-127, quant_max=127, eps=2.0**-12
)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=int8, qscheme=per_channel_symmetric
)
per_channel_weight_observer_range_neg_127_to_127 = default_per_channel_weight_observer.with_args(
    quant_min=-127, quant_max=127, eps=2.0**-12
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=uint8, qscheme=per_channel_affine_float_qparams, ch_axis=0
)
