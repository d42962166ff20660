"""Filling tensors with initial values: constants, and distributions scaled to the layer's size.

Every function writes its tensor in place, without gradients, and returns it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy, zeros_like
from metaop.tensor.gradients import no_grad

_LINEAR = ("linear", "sigmoid")
_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}


def calculate_gain(nonlinearity: str, param: int | float | None = None) -> float:
    """The factor by which a nonlinearity's input should be scaled to keep the variance."""
    if nonlinearity in _LINEAR or nonlinearity.startswith(("conv1d", "conv2d", "conv3d", "conv_t")):
        return 1.0
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ArgumentError(f"negative_slope {param} not a valid number", fix="pass a float")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ArgumentError(
            f"Unsupported nonlinearity {nonlinearity}",
            fix=f"use one of {', '.join((*_LINEAR, *_GAINS, 'leaky_relu'))} or a conv name",
        )
    return _GAINS[nonlinearity]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Numbers spread evenly over [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normally distributed numbers."""
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Normally distributed numbers, drawn again while outside [a, b].

    Drawn by inverting the cumulative distribution of evenly spread numbers.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=2,
        )
    low, high = (0.5 * (1 + math.erf((edge - mean) / std / math.sqrt(2))) for edge in (a, b))
    tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
    return tensor.erfinv_().mul_(std * math.sqrt(2)).add_(mean).clamp_(a, b)


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """The same number everywhere."""
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix (of two dimensions)."""
    _require_dimensions("eye_", tensor, tensor.ndim == 2, "2")
    return _write(tensor, np.eye(*tensor.shape))


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution kernel (3 to 5 dimensions) that passes its input through."""
    _require_dimensions("dirac_", tensor, tensor.ndim in (3, 4, 5), "3, 4, or 5")
    sizes = tensor.shape
    if sizes[0] % groups:
        raise ArgumentError(
            f"dim 0 of {list(sizes)} must be divisible by groups={groups}", fix="change groups"
        )
    per_group = sizes[0] // groups
    values = np.zeros(sizes)
    centre = tuple(extent // 2 for extent in sizes[2:])
    for group in range(groups):
        for channel in range(min(per_group, sizes[1])):
            place = (group * per_group + channel, channel, *centre)
            values[place] = 1
    return _write(tensor, values)


def _write(tensor: Tensor, values: np.ndarray) -> Tensor:
    return tensor.copy_(from_numpy(np.ascontiguousarray(values)).to(tensor.device, tensor.dtype))


def _require_dimensions(name: str, tensor: Tensor, holds: bool, allowed: str) -> None:
    if not holds:
        raise ArgumentError(
            f"{name}: only tensors with {allowed} dimensions are supported, not shape "
            f"{list(tensor.shape)}",
            fix="initialise this tensor in another way",
        )


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ArgumentError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions "
            f"(shape {list(tensor.shape)})",
            fix="initialise vectors with uniform_, normal_ or constant_",
        )
    receptive_field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive_field, tensor.shape[0] * receptive_field


def _correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"Mode {mode} not supported", fix="use fan_in or fan_out")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Evenly spread within ±gain·sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with standard deviation gain·sqrt(2 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Evenly spread within ±gain·sqrt(3 / fan) (He et al. 2015)."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_correct_fan(tensor, mode))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal with standard deviation gain / sqrt(fan) (He et al. 2015)."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_correct_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A (semi-)orthogonal matrix; dimensions after the first are flattened (Saxe et al. 2013)."""
    _require_dimensions("orthogonal_", tensor, tensor.ndim >= 2, "2 or more")
    rows = tensor.shape[0]
    columns = math.prod(tensor.shape[1:])
    if rows * columns == 0:
        return tensor
    drawn = zeros_like(tensor).normal_(0, 1, generator=generator)
    matrix = np.asarray(drawn.numpy(), np.float64).reshape(rows, columns)
    q, r = np.linalg.qr(matrix.T if rows < columns else matrix)
    q *= np.sign(np.diag(r))
    return _write(tensor, (q.T if rows < columns else q).reshape(tensor.shape) * gain)


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """A matrix of normal numbers with a fraction `sparsity` of each column zero (Martens 2010)."""
    _require_dimensions("sparse_", tensor, tensor.ndim == 2, "2")
    rows = tensor.shape[0]
    order = zeros_like(tensor).uniform_(0, 1, generator=generator).numpy().argsort(axis=0)
    mask = np.ones(tensor.shape)
    np.put_along_axis(mask, order[: math.ceil(sparsity * rows)], 0, axis=0)
    tensor.normal_(0, std, generator=generator)
    return tensor.mul_(from_numpy(mask).to(tensor.device, tensor.dtype))


def _deprecated(current: Callable[..., Tensor]) -> Callable[..., Tensor]:
    name = current.__name__

    def function(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name[:-1]}` is now deprecated in favor of `nn.init.{name}`.",
            FutureWarning,
            stacklevel=2,
        )
        return current(*args, **kwargs)

    function.__name__ = name[:-1]
    function.__doc__ = f"PyTorch's older name of `{name}`."
    return function


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
