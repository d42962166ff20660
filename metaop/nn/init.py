"""Filling tensors with initial values: constants, and distributions scaled to the layer's size.

Every function fills its tensor in place, without tracking gradients, and returns it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from inspect import cleandoc
from typing import Any

import numpy as np

from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy, zeros_like
from metaop.tensor.grad_mode import no_grad

_LINEAR = ("linear", "sigmoid")
_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}


def calculate_gain(nonlinearity: str, param: int | float | None = None) -> float:
    """The factor by which a nonlinearity's input should be scaled to keep the variance.

    `param` is the slope of "leaky_relu". Names are those of linear layers and convolutions,
    "sigmoid", "tanh", "relu", "leaky_relu" and "selu"; others raise ArgumentError.

    >>> nn.init.calculate_gain("leaky_relu", 1.0), nn.init.calculate_gain("selu")
    (1.0, 0.75)
    """
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
    """Fills the tensor with uniform samples from [a, b); its shape is unchanged.

    >>> x = nn.init.uniform_(metaop.empty(1000), 2.0, 3.0)
    >>> bool((x >= 2).all()), bool((x < 3).all())
    (True, True)
    """
    return tensor.uniform_(a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fills the tensor with normally distributed samples; its shape is unchanged.

    >>> x = nn.init.normal_(metaop.empty(10000), mean=5.0, std=0.1)
    >>> round(x.mean().item(), 1), round(x.std().item(), 1)
    (5.0, 0.1)
    """
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
    """Fills the tensor with samples of a normal distribution truncated to [a, b].

    They are drawn by inverting the cumulative distribution; the shape is unchanged.

    >>> x = nn.init.trunc_normal_(metaop.empty(1000), a=-0.5, b=0.5)
    >>> bool((x.abs() <= 0.5).all())
    True
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
    """Fills the tensor with one number; its shape is unchanged.

    >>> nn.init.constant_(metaop.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fills the tensor with ones; its shape is unchanged.

    >>> nn.init.ones_(metaop.empty(2))
    tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fills the tensor with zeros; its shape is unchanged.

    >>> nn.init.zeros_(metaop.empty(2))
    tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Makes a matrix the identity: ones on the diagonal, zeros elsewhere.

    Raises ArgumentError unless the tensor has two dimensions.

    >>> nn.init.eye_(metaop.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    _require_dimensions("eye_", tensor, tensor.ndim == 2, "2")
    return _write(tensor, np.eye(*tensor.shape))


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Makes a convolution kernel the identity on its input channels.

    The shape is (O, C / groups, *extents) with one to three extents; the ones are at their centre.
    Raises ArgumentError for other shapes, and if `groups` does not divide O.

    >>> nn.init.dirac_(metaop.empty(2, 2, 3))
    tensor([[[0., 1., 0.],
             [0., 0., 0.]],
    <BLANKLINE>
            [[0., 0., 0.],
             [0., 1., 0.]]])
    """
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
    """Fills the tensor with uniform samples within ±gain·sqrt(6 / (fan_in + fan_out)).

    For a weight (O, C, *extents), fan_in is C and fan_out is O, both times the extents. Raises
    ArgumentError for fewer than two dimensions. From Glorot and Bengio, "Understanding the
    difficulty of training deep feedforward neural networks" (2010).

    >>> weight = nn.init.xavier_uniform_(metaop.empty(30, 70))
    >>> round(weight.abs().max().item(), 2)
    0.24
    """
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fills the tensor with normal samples of deviation gain·sqrt(2 / (fan_in + fan_out)).

    For a weight (O, C, *extents), fan_in is C and fan_out is O, both times the extents. Raises
    ArgumentError for fewer than two dimensions. From Glorot and Bengio, "Understanding the
    difficulty of training deep feedforward neural networks" (2010).

    >>> weight = nn.init.xavier_normal_(metaop.empty(100, 100))
    >>> round(weight.std().item(), 2)
    0.1
    """
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fills the tensor with uniform samples within ±gain·sqrt(3 / fan).

    `mode` says which fan counts, "fan_in" or "fan_out" (see `xavier_uniform_`); the gain is that of
    `nonlinearity`, `a` the slope of its negative part. Raises ArgumentError for another mode, and
    for fewer than two dimensions. From He et al., "Delving deep into rectifiers" (2015).

    >>> weight = nn.init.kaiming_uniform_(metaop.empty(100, 150), nonlinearity="relu")
    >>> round(weight.abs().max().item(), 2)
    0.2
    """
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
    """Fills the tensor with normal samples of standard deviation gain / sqrt(fan).

    `mode` says which fan counts, "fan_in" or "fan_out" (see `xavier_uniform_`); the gain is that of
    `nonlinearity`, `a` the slope of its negative part. Raises ArgumentError for another mode, and
    for fewer than two dimensions. From He et al., "Delving deep into rectifiers" (2015).

    >>> weight = nn.init.kaiming_normal_(metaop.empty(100, 200), nonlinearity="relu")
    >>> round(weight.std().item(), 2)
    0.1
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_correct_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Makes the tensor a (semi-)orthogonal matrix times `gain`.

    Dimensions after the first are flattened. Raises ArgumentError for fewer than two dimensions.
    From Saxe et al., "Exact solutions to the nonlinear dynamics of learning" (2013).

    >>> weight = nn.init.orthogonal_(metaop.empty(2, 4))
    >>> (weight @ weight.T).round().abs()
    tensor([[1., 0.],
            [0., 1.]])
    """
    _require_dimensions("orthogonal_", tensor, tensor.ndim >= 2, "2 or more")
    rows = tensor.shape[0]
    columns = math.prod(tensor.shape[1:])
    if rows * columns == 0:
        return tensor
    drawn = zeros_like(tensor).normal_(0, 1, generator=generator)
    wide = np.complex128 if tensor.dtype.is_complex else np.float64
    matrix = np.asarray(drawn.numpy(force=True), wide).reshape(rows, columns)
    q, r = np.linalg.qr(matrix.T if rows < columns else matrix)
    q *= np.diag(r) / np.abs(np.diag(r))
    return _write(tensor, (q.T if rows < columns else q).reshape(tensor.shape) * gain)


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fills a matrix with normal samples, a fraction `sparsity` of each column being zero.

    `std` is their standard deviation. Raises ArgumentError unless there are two dimensions. From
    Martens, "Deep learning via Hessian-free optimization" (2010).

    >>> (nn.init.sparse_(metaop.empty(4, 3), 0.5) == 0).sum(0)
    tensor([2, 2, 2])
    """
    _require_dimensions("sparse_", tensor, tensor.ndim == 2, "2")
    rows = tensor.shape[0]
    order = zeros_like(tensor).uniform_(0, 1, generator=generator).numpy(force=True).argsort(axis=0)
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
    older = f"PyTorch's older name of `{name}`, which warns that it is deprecated."
    function.__doc__ = f"{older}\n\n{cleandoc(current.__doc__ or '')}"
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
