"""Activations: elementwise functions with parameters, gates, and softmax with its relatives."""

from __future__ import annotations

import math
from collections.abc import Callable

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import DTypeError, ShapeError
from metaop.operators.expressions import clip, in_compute_type, index_along, stop_gradient
from metaop.operators.random import unit_uniform
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import reshape, slice_dimension
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node

_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805
# Added to exponential samples, which may be 0, so that their logarithm is finite.
_TINY = 1e-30


@composite
def leaky_relu(input: Node, slope: float) -> Node:
    """x if it is positive, else x * slope."""
    return where(input > 0, input, input * slope)


@composite
@in_compute_type
def elu(input: Node, alpha: float) -> Node:
    """x if it is positive, else alpha * (exp(x) - 1)."""
    return where(input > 0, input, _expm1_below(input) * alpha)


@composite
@in_compute_type
def celu(input: Node, alpha: float) -> Node:
    """x if it is positive, else alpha * (exp(x / alpha) - 1)."""
    return where(input > 0, input, _expm1_below(input / alpha) * alpha)


@composite
@in_compute_type
def selu(input: Node) -> Node:
    """ELU with the constants that keep mean 0 and variance 1 through deep networks."""
    return elu(input, _SELU_ALPHA) * _SELU_SCALE


def _expm1_below(node: Node) -> Node:
    # Clamped, so that large inputs, which are not selected, do not make the gradient NaN.
    return apply("expm1", apply("clamp_max", node, 0))


@composite
@in_compute_type
def gelu(input: Node, approximate: str) -> Node:
    """x times the normal distribution function of x, exact ("none") or by "tanh"."""
    if approximate == "tanh":
        inner = (input + input * input * input * 0.044715) * math.sqrt(2 / math.pi)
        return input * 0.5 * (apply("tanh", inner) + 1.0)
    return input * 0.5 * (apply("erf", input * math.sqrt(0.5)) + 1.0)


@composite
@in_compute_type
def silu(input: Node) -> Node:
    """x * sigmoid(x)."""
    return input * apply("sigmoid", input)


@composite
@in_compute_type
def mish(input: Node) -> Node:
    """x * tanh(softplus(x))."""
    return input * apply("tanh", apply("softplus", input))


@composite
@in_compute_type
def softplus(input: Node, beta: float, threshold: float) -> Node:
    """log(1 + exp(beta * x)) / beta, which is x itself where beta * x exceeds `threshold`."""
    scaled = input * beta
    return where(scaled > threshold, input, apply("softplus", scaled) / beta)


@composite
@in_compute_type
def softsign(input: Node) -> Node:
    """x / (1 + |x|)."""
    return input / (apply("abs", input) + 1.0)


@composite
def hardtanh(input: Node, low: float, high: float) -> Node:
    """x clamped to low … high."""
    return clip(input, low, high)


@composite
@in_compute_type
def hardswish(input: Node) -> Node:
    """x * relu6(x + 3) / 6; NaN for -inf, which is multiplied by 0."""
    middle = input * (input + 3.0) / 6.0
    return where(input <= -3, stop_gradient(input) * 0.0, where(input < 3, middle, input))


@composite
@in_compute_type
def hardsigmoid(input: Node) -> Node:
    """relu6(x + 3) / 6."""
    return where(input <= -3, 0, where(input >= 3, 1, input / 6.0 + 0.5))


@composite
def hardshrink(input: Node, bound: float) -> Node:
    """x if it is outside -bound … bound, else 0."""
    return where((input >= -bound) & (input <= bound), 0, input)


@composite
def softshrink(input: Node, bound: float) -> Node:
    """x moved towards 0 by `bound`, and 0 if it is within -bound … bound."""
    return where(input > bound, input - bound, where(input < -bound, input + bound, input * 0))


@composite
@in_compute_type
def tanhshrink(input: Node) -> Node:
    """x - tanh(x)."""
    return input - apply("tanh", input)


@composite
def threshold(input: Node, bound: float, value: float) -> Node:
    """x if it exceeds `bound`, else `value`."""
    return where(input <= bound, value, input)


@composite
def prelu(input: Node, weight: Node) -> Node:
    """x if it is positive, else x times the slope of its channel (dimension 1)."""
    channels = input.shape[1] if input.ndim >= 2 else 1
    if weight.size not in (1, channels) or weight.ndim > 1:
        raise ShapeError(
            f"prelu: weight {list(weight.shape)} does not fit input {list(input.shape)}",
            fix=f"pass a weight with 1 element, or with one per channel ({channels})",
        )
    if weight.size == 1:
        slope = reshape(weight, ())
    else:
        slope = reshape(weight, (channels, *(1 for _ in input.shape[2:])))
    return where(input > 0, input, input * slope)


@composite
def rrelu(input: Node, seed: Node, lower: float, upper: float) -> Node:
    """x if it is positive, else x times a slope drawn uniformly from lower … upper."""
    slope = unit_uniform(seed, input.shape, input.dtype) * (upper - lower) + lower
    return where(input > 0, input, input * cast(slope, input.dtype))


@composite
@in_compute_type
def gumbel_softmax(input: Node, seed: Node, tau: Node, hard: bool, dim: int) -> Node:
    """softmax((x + Gumbel noise) / tau); with `hard`, one-hot with a straight-through gradient."""
    uniform = unit_uniform(seed, input.shape, input.dtype)
    noise = -apply("log", -apply("log1p", -uniform) + _TINY)
    soft = _softmax((input + noise) / tau, dim)
    if not hard:
        return soft
    place = index_along(soft.shape, dim)
    largest = reduce_axes("max", soft, [dim], keepdim=True)
    first = reduce_axes("min", where(soft.equals(largest), place, input.shape[dim]), [dim], True)
    chosen = cast(place.equals(first), soft.dtype)
    return soft + stop_gradient(chosen - soft)


@composite
@in_compute_type
def glu(input: Node, dim: int) -> Node:
    """The first half of dimension `dim` times the sigmoid of the second half."""
    extent = input.shape[dim] if input.ndim else 1
    if extent % 2 or not input.ndim:
        raise ShapeError(
            f"glu: dimension {dim} of {list(input.shape)} must have an even size",
            fix="pad that dimension or choose another",
        )
    half = extent // 2
    value, gate = slice_dimension(input, dim, 0, half), slice_dimension(input, dim, half, half)
    return value * apply("sigmoid", gate)


@composite
def softmax(input: Node, dim: int, dtype: DType | None) -> Node:
    """exp(x) divided by its sum along `dim`, with the maximum subtracted first."""
    return _in_float(input, dtype, lambda x: _softmax(x, dim))


def _softmax(input: Node, dim: int) -> Node:
    if not input.ndim:
        return input * 0 + 1.0
    powers = apply("exp", input - _maximum(input, dim))
    # One division per row; the sum is at least 1.
    return powers * apply("reciprocal", reduce_axes("add", powers, [dim], keepdim=True))


@composite
def log_softmax(input: Node, dim: int, dtype: DType | None) -> Node:
    """The logarithm of softmax: x - log(sum(exp(x))) along `dim`, stable for large x."""
    return _in_float(input, dtype, lambda x: log_normalised(x, dim))


def log_normalised(input: Node, dim: int) -> Node:
    """x - log(sum(exp(x))) along `dim`."""
    if not input.ndim:
        return input * 0
    shifted = input - _maximum(input, dim)
    total = reduce_axes("add", apply("exp", shifted), [dim], keepdim=True)
    return shifted - apply("log", total)


def _maximum(input: Node, dim: int) -> Node:
    return stop_gradient(reduce_axes("max", input, [dim], keepdim=True))


def _in_float(input: Node, dtype: DType | None, function: Callable[[Node], Node]) -> Node:
    result = dtype or input.dtype
    if result.kind != "float":
        raise DTypeError(
            f"softmax is not implemented for {result.name}", fix="pass dtype=metaop.float32"
        )
    return cast(function(cast(cast(input, result), result.compute)), result)
