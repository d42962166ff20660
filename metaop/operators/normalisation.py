"""Normalisation over batches, layers, groups and instances, with two-pass variances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import ShapeError
from metaop.operators.expressions import in_compute_type, mean, squared_modulus
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import pad, reshape, windows
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import as_float


def moments(node: Node, dims: Sequence[int]) -> tuple[Node, Node]:
    """Mean and biased variance over `dims`, which are kept with extent 1."""
    centre = mean(node, dims, keepdim=True)
    return centre, mean(apply("squared_deviation", node, centre), dims, keepdim=True)


def _standardised(node: Node, centre: Node, variance: Node, eps: float) -> Node:
    return (node - centre) * apply("rsqrt", variance + eps)


def _scaled(node: Node, weight: Node | None, bias: Node | None) -> Node:
    if weight is not None:
        node = node * weight
    return node if bias is None else node + bias


@composite
def batch_norm_training(
    input: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node | None,
    running_variance: Node | None,
    momentum: Node | None,
    eps: float,
) -> tuple[Node, ...]:
    """The input normalised per channel (dimension 1), and the new running statistics.

    The running variance is updated with the unbiased variance. Without running statistics, there is
    only the first result.
    """
    _check_channels("batch_norm", input, weight, bias, running_mean, running_variance)
    dims = [dim for dim in range(input.ndim) if dim != 1]
    count = math.prod(input.shape[dim] for dim in dims)
    if count == 1:
        raise ShapeError(
            f"batch_norm: expected more than 1 value per channel when training, got input "
            f"{list(input.shape)}",
            fix="use a larger batch, or eval()",
        )
    wide = cast(input, input.dtype.compute)
    centre, variance = moments(wide, dims)
    standard = _standardised(wide, centre, variance, eps)
    result = _scaled(standard, _channel(weight, input), _channel(bias, input))
    unbiased = variance * (count / (count - 1) if count else math.nan)
    running = ((running_mean, centre), (running_variance, unbiased))
    return (cast(result, input.dtype), *_moved(running, momentum))


def _moved(running: Sequence[tuple[Node | None, Node]], momentum: Node | None) -> Iterator[Node]:
    """The given running statistics, moved by the fraction `momentum` towards the new ones."""
    for old, new in running:
        if old is not None and momentum is not None:
            rate = cast(momentum, old.dtype)
            new = cast(reshape(new, old.shape), old.dtype)
            yield old * (1.0 - rate) + new * rate


@composite
def batch_norm_evaluation(
    input: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node,
    running_variance: Node,
    eps: float,
) -> Node:
    """The input normalised by the running statistics of each channel (dimension 1)."""
    _check_channels("batch_norm", input, weight, bias, running_mean, running_variance)
    wide = cast(input, input.dtype.compute)
    centre, variance = _channel(running_mean, input), _channel(running_variance, input)
    assert centre is not None and variance is not None
    standard = _standardised(wide, centre, variance, eps)
    return cast(_scaled(standard, _channel(weight, input), _channel(bias, input)), input.dtype)


@composite
def instance_norm(
    input: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node | None,
    running_variance: Node | None,
    momentum: Node | None,
    eps: float,
) -> tuple[Node, ...]:
    """The input normalised per channel of each sample, and the new running statistics.

    Running statistics are updated with averages over the batch.
    """
    _check_channels("instance_norm", input, weight, bias, running_mean, running_variance)
    dims = range(2, input.ndim)
    count = math.prod(input.shape[2:])
    if count == 1:
        raise ShapeError(
            f"instance_norm: expected more than 1 spatial element, got input {list(input.shape)}",
            fix="use larger inputs, or layer_norm",
        )
    wide = cast(input, input.dtype.compute)
    centre, variance = moments(wide, dims)
    standard = _standardised(wide, centre, variance, eps)
    result = _scaled(standard, _channel(weight, input), _channel(bias, input))
    unbiased = mean(variance * (count / max(count - 1, 1)), [0])
    running = ((running_mean, mean(centre, [0])), (running_variance, unbiased))
    return (cast(result, input.dtype), *_moved(running, momentum))


def _channel(parameter: Node | None, input: Node) -> Node | None:
    """A parameter per channel, shaped to broadcast against the input, in the compute type."""
    if parameter is None:
        return None
    wide = cast(parameter, input.dtype.compute)
    return reshape(wide, (1, wide.size, *(1 for _ in input.shape[2:])))


def _check_channels(operator: str, input: Node, *parameters: Node | None) -> None:
    if input.ndim < 2:
        raise ShapeError(
            f"{operator}: expected input (N, C, …), got {list(input.shape)}",
            fix="add the batch or the channel dimension",
        )
    for parameter in parameters:
        if parameter is not None and parameter.shape != (input.shape[1],):
            raise ShapeError(
                f"{operator}: input {list(input.shape)} has {input.shape[1]} channels, a parameter "
                f"or statistic has shape {list(parameter.shape)}",
                fix=f"every parameter has shape [{input.shape[1]}]",
            )


@composite
@in_compute_type
def layer_norm(
    input: Node, weight: Node | None, bias: Node | None, shape: tuple[int, ...], eps: float
) -> Node:
    """The input normalised over the last dimensions, of sizes `shape`, then scaled and shifted."""
    dims = _last_dimensions("layer_norm", input, shape, weight, bias)
    centre, variance = moments(input, dims)
    return _scaled(_standardised(input, centre, variance, eps), weight, bias)


@composite
@in_compute_type
def rms_norm(input: Node, weight: Node | None, shape: tuple[int, ...], eps: float) -> Node:
    """The input divided by its root mean square over the last dimensions, then scaled."""
    dims = _last_dimensions("rms_norm", input, shape, weight)
    square = mean(input * input, dims, keepdim=True)
    return _scaled(input * apply("rsqrt", square + eps), weight, None)


def _last_dimensions(
    operator: str, input: Node, shape: tuple[int, ...], *parameters: Node | None
) -> range:
    if not shape or input.shape[-len(shape) :] != shape:
        raise ShapeError(
            f"{operator}: normalized_shape {list(shape)} does not end input {list(input.shape)}",
            fix=f"the last dimensions of the input must be {list(shape)}",
        )
    for parameter in parameters:
        if parameter is not None and parameter.shape != shape:
            raise ShapeError(
                f"{operator}: a parameter has shape {list(parameter.shape)}, not the normalized "
                f"shape {list(shape)}",
                fix=f"make it {list(shape)}",
            )
    return range(input.ndim - len(shape), input.ndim)


@composite
@in_compute_type
def group_norm(
    input: Node, weight: Node | None, bias: Node | None, groups: int, eps: float
) -> Node:
    """The input (N, C, …) normalised over each group of channels of each sample."""
    _check_channels("group_norm", input, weight, bias)
    batch, channels, *extents = input.shape
    if groups < 1 or channels % groups:
        raise ShapeError(
            f"group_norm: {channels} channels of input {list(input.shape)} are not divisible by "
            f"num_groups={groups}",
            fix="choose a number of groups that divides the channels",
        )
    grouped = reshape(input, (batch, groups, channels // groups, *extents))
    centre, variance = moments(grouped, range(2, grouped.ndim))
    standard = reshape(_standardised(grouped, centre, variance, eps), input.shape)
    return _scaled(standard, _channel(weight, input), _channel(bias, input))


@composite
@in_compute_type
def local_response_norm(input: Node, size: int, alpha: float, beta: float, k: float) -> Node:
    """The input divided by a power of the mean square over `size` neighbouring channels."""
    if input.ndim < 3:
        raise ShapeError(
            f"local_response_norm: expected input (N, C, …) of 3 dimensions or more, got "
            f"{list(input.shape)}",
            fix="add dimensions with unsqueeze",
        )
    batch, channels, *extents = input.shape
    columns = reshape(input * input, (batch, channels, math.prod(extents)))
    padded = pad(columns, (0, size // 2, 0), (0, (size - 1) // 2, 0))
    shown = windows(padded, (size, 1), (1, 1), (0, 0), (1, 1))
    average = reshape(reduce_axes("add", shown, (3, 4)), input.shape) / as_float(size)
    return input / apply("pow", average * alpha + k, beta)


@composite
@in_compute_type
def normalize(input: Node, power: float, dims: tuple[int, ...], eps: float) -> Node:
    """The input divided by its norm of order `power` along `dims`, which is clamped to `eps`."""
    return input / apply("clamp_min", norm(input, power, dims), eps)


def norm(input: Node, power: float, dims: Sequence[int]) -> Node:
    """The vector norm along `dims`, which are kept with extent 1; its gradient is 0 at 0."""
    if power == 2:
        total = reduce_axes("add", squared_modulus(input), dims, keepdim=True)
        return _root(total, lambda x: apply("sqrt", x))
    size = apply("abs", input)
    if power == 1:
        return reduce_axes("add", size, dims, keepdim=True)
    if math.isinf(power):
        return reduce_axes("amax" if power > 0 else "amin", size, dims, keepdim=True)
    if power == 0:
        return reduce_axes("add", cast(input.differs(0), size.dtype), dims, keepdim=True)
    total = reduce_axes("add", apply("pow", size, power), dims, keepdim=True)
    return _root(total, lambda x: apply("pow", x, 1.0 / power))


def _root(total: Node, function: Callable[[Node], Node]) -> Node:
    zero = total.equals(0)
    return where(zero, 0, function(where(zero, 1, total)))
