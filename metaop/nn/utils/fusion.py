"""Folds batch normalisation into the preceding layer, for inference."""

from __future__ import annotations

import copy
from typing import TypeVar

from metaop.errors import ArgumentError
from metaop.nn.convolution import _Convolution
from metaop.nn.linear import Linear
from metaop.nn.normalisation import _BatchNorm
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor

AnyConvolution = TypeVar("AnyConvolution", bound=_Convolution)
AnyLinear = TypeVar("AnyLinear", bound=Linear)


def fuse_conv_bn_eval(
    conv: AnyConvolution, bn: _BatchNorm, transpose: bool = False
) -> AnyConvolution:
    """A convolution equivalent to `conv` followed by `bn` in evaluation mode.

    Its shapes are those of `conv`. Raises ArgumentError unless both are in evaluation mode.

    >>> conv, norm = nn.Conv2d(1, 2, 3).eval(), nn.BatchNorm2d(2).eval()
    >>> fused, image = nn.utils.fuse_conv_bn_eval(conv, norm), metaop.ones(1, 1, 3, 3)
    >>> metaop.allclose(fused(image), norm(conv(image)), atol=1e-5)
    True
    """
    _check(conv, bn)
    fused = copy.deepcopy(conv)
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, *statistics, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: AnyLinear, bn: _BatchNorm) -> AnyLinear:
    """A linear layer equivalent to `linear` followed by `bn` in evaluation mode.

    Its shapes are those of `linear`. Raises ArgumentError unless both are in evaluation mode.

    >>> linear, norm = nn.Linear(2, 3).eval(), nn.BatchNorm1d(3).eval()
    >>> fused, x = nn.utils.fuse_linear_bn_eval(linear, norm), metaop.ones(1, 2)
    >>> metaop.allclose(fused(x), norm(linear(x)), atol=1e-5)
    True
    """
    _check(linear, bn)
    if bn.num_features not in (linear.out_features, 1):
        raise ArgumentError(
            f"To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"{linear.out_features} and {bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, *statistics)
    return fused


def _check(layer: _Convolution | Linear, bn: _BatchNorm) -> None:
    if layer.training or bn.training:
        raise ArgumentError("Fusion only for eval!", fix="call .eval() on both")
    if bn.running_mean is None or bn.running_var is None:
        raise ArgumentError("Fusion needs running statistics", fix="track_running_stats=True")


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution with the normalisation folded in; shapes are unchanged.

    >>> one, zero = metaop.ones(1), metaop.zeros(1)
    >>> weight = metaop.ones(1, 1, 1)
    >>> nn.utils.fuse_conv_bn_weights(weight, None, zero, 4 * one, 0.0, one, zero)[0].flatten()
    tensor([0.5000])
    """
    channels = 1 if transpose else 0
    shape = [-1 if k == channels else 1 for k in range(conv_w.ndim)]
    return _fused(conv_w, conv_b, shape, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer with the normalisation folded in; shapes are unchanged.

    >>> one, zero = metaop.ones(1), metaop.zeros(1)
    >>> weight, bias = nn.utils.fuse_linear_bn_weights(
    ...     metaop.ones(1, 1), one, zero, 4 * one, 0.0, one, zero
    ... )
    >>> weight, bias
    (Parameter containing:
    tensor([[0.5000]]), Parameter containing:
    tensor([0.5000]))
    """
    return _fused(linear_w, linear_b, [-1, 1], bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(
    weight: Tensor,
    bias: Tensor | None,
    shape: list[int],
    mean: Tensor,
    variance: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
) -> tuple[Parameter, Parameter]:
    factor = (variance + eps).rsqrt()
    factor = factor if scale is None else factor * scale
    moved = ((-mean) if bias is None else bias - mean) * factor
    moved = moved if shift is None else moved + shift
    made = ((weight * factor.reshape(shape)).to(weight.dtype), moved.to(weight.dtype))
    return tuple(Parameter(x.detach(), weight.requires_grad) for x in made)  # type: ignore[return-value]
