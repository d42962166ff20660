"""Convolutions: each is one sum over one product of two reindexed operands."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import cast
from metaop.errors import ShapeError
from metaop.operators.linear import require_one_dtype
from metaop.reduce.meta_op import reduce_axes, reduce_with_map
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import reshape, windows
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import IndexExpr, constant
from metaop.unified_graph.node import Node

Sizes = tuple[int, ...]


@composite
def convolution(
    input: Node,
    weight: Node,
    bias: Node | None,
    stride: Sizes,
    before: Sizes,
    after: Sizes,
    dilation: Sizes,
    groups: int,
) -> Node:
    """Cross-correlation over the last dimensions, zero-padded by `before` and `after`.

    input (N, C, *extents) or (C, *extents), weight (O, C / groups, *kernel), bias (O);
    the result is (N, O, *positions) or (O, *positions).
    """
    spatial = len(stride)
    _check("convolution", input, weight, bias, spatial, groups, weight.shape[1] * groups)
    _check_bias("convolution", bias, weight.shape[0])
    batched = _with_batch(input, spatial)
    extents, kernel = batched.shape[2:], weight.shape[2:]
    positions = tuple(
        (n + b + a - d * (k - 1) - 1) // s + 1
        for n, b, a, d, k, s in zip(extents, before, after, dilation, kernel, stride)
    )
    padded = [n + b + a for n, b, a in zip(extents, before, after)]
    if any(n <= d * (k - 1) for n, d, k in zip(padded, dilation, kernel)):
        raise ShapeError(
            f"convolution: kernel {list(kernel)} with dilation {list(dilation)} is larger than the "
            f"padded input {padded}",
            fix="pad more, or use a smaller kernel",
        )
    # Axes: batch, (group,) output channel, positions, channel of the group, kernel offsets.
    lead = _channel_axes(batched.shape[0], weight.shape[0], groups)
    box = (*lead, *positions, weight.shape[1], *kernel)
    axes = IndexMap.axes(box)
    group, output = _group_and_channel(axes, groups, weight.shape[0])
    outer, channel, inner = _split(axes, len(lead), spatial)
    places = [o * s + k * d - b for o, s, k, d, b in zip(outer, stride, inner, dilation, before)]
    guards = [Within(place, extent) for place, extent in zip(places, extents)]
    of_input = IndexMap(box, [axes[0], group * weight.shape[1] + channel, *places], guards)
    of_weight = IndexMap(box, [output, channel, *inner])
    product = _product(batched, of_input, weight, of_weight)
    summed = reduce_axes("add", product, range(len(lead) + spatial, len(box)))
    return _finish(summed, bias, input, (weight.shape[0], *positions))


@composite
def transposed_convolution(
    input: Node,
    weight: Node,
    bias: Node | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Node:
    """The transposition of `convolution`: every input element adds a scaled kernel to the result.

    input (N, C, *extents) or (C, *extents), weight (C, O / groups, *kernel), bias (O).
    """
    spatial = len(stride)
    _check("conv_transpose", input, weight, bias, spatial, groups, weight.shape[0])
    outputs = weight.shape[1] * groups
    _check_bias("conv_transpose", bias, outputs)
    batched = _with_batch(input, spatial)
    extents, kernel = batched.shape[2:], weight.shape[2:]
    result = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for n, s, p, d, k, extra in zip(extents, stride, padding, dilation, kernel, output_padding)
    )
    if any(extent <= 0 for extent in result):
        raise ShapeError(
            f"conv_transpose: the result would have extents {list(result)} for input "
            f"{list(input.shape)}",
            fix="use less padding",
        )
    lead = _channel_axes(batched.shape[0], outputs, groups)
    channels = weight.shape[0] // groups
    box = (*lead, *extents, channels, *kernel)
    axes = IndexMap.axes(box)
    group, output = _group_and_channel(axes, groups, outputs)
    outer, channel, inner = _split(axes, len(lead), spatial)
    source = group * channels + channel
    own = output if groups == 1 else axes[2]
    of_input = IndexMap(box, [axes[0], source, *outer])
    of_weight = IndexMap(box, [source, own, *inner])
    product = _product(batched, of_input, weight, of_weight)
    places = [i * s + k * d - p for i, s, k, d, p in zip(outer, stride, inner, dilation, padding)]
    guards = [Within(place, extent) for place, extent in zip(places, result)]
    target = IndexMap(box, [*axes[: len(lead)], *places], guards)
    summed = reduce_with_map("add", product, target, (*lead, *result))
    return _finish(summed, bias, input, (outputs, *result))


def _channel_axes(batch: int, outputs: int, groups: int) -> Sizes:
    return (batch, outputs) if groups == 1 else (batch, groups, outputs // groups)


def _group_and_channel(
    axes: tuple[IndexExpr, ...], groups: int, outputs: int
) -> tuple[IndexExpr, IndexExpr]:
    """The group and the output channel as index expressions over the axes of the box."""
    if groups == 1:
        return constant(0), axes[1]
    return axes[1], axes[1] * (outputs // groups) + axes[2]


def _split(
    axes: tuple[IndexExpr, ...], lead: int, spatial: int
) -> tuple[tuple[IndexExpr, ...], IndexExpr, tuple[IndexExpr, ...]]:
    """The position axes, the channel axis and the kernel axes, which follow the leading ones."""
    return axes[lead : lead + spatial], axes[lead + spatial], axes[lead + spatial + 1 :]


def _product(input: Node, of_input: IndexMap, weight: Node, of_weight: IndexMap) -> Node:
    # 16-bit floats are multiplied and accumulated in float32.
    compute = input.dtype.compute
    return reindex(cast(input, compute), of_input) * reindex(cast(weight, compute), of_weight)


def _finish(summed: Node, bias: Node | None, input: Node, result: Sizes) -> Node:
    shape = (summed.shape[0], *result)
    value = cast(reshape(summed, shape), input.dtype)
    if bias is not None:
        value = value + reshape(bias, (1, result[0], *(1 for _ in result[1:])))
    return value if input.ndim == len(shape) else reshape(value, result)


def _with_batch(input: Node, spatial: int) -> Node:
    return input if input.ndim == spatial + 2 else reshape(input, (1, *input.shape))


def _check(
    operator: str,
    input: Node,
    weight: Node,
    bias: Node | None,
    spatial: int,
    groups: int,
    channels: int,
) -> None:
    require_one_dtype(operator, input=input, weight=weight, bias=bias)
    if weight.ndim != spatial + 2 or input.ndim not in (spatial + 1, spatial + 2):
        raise ShapeError(
            f"{operator}{spatial}d: expected input of {spatial + 1} or {spatial + 2} dimensions "
            f"and weight of {spatial + 2}, got {list(input.shape)} and {list(weight.shape)}",
            fix="inputs are (N, C, *extents) or (C, *extents)",
        )
    if weight.shape[0] < groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but "
            f"got weight of size {list(weight.shape)} instead",
            fix="make at least one channel for each group",
        )
    found = input.shape[-spatial - 1]
    if found != channels or groups < 1 or weight.shape[0] % groups:
        divides = groups > 0 and weight.shape[0] % groups == 0
        raise ShapeError(
            f"{operator}{spatial}d: weight {list(weight.shape)} with groups={groups} expects input "
            f"with {channels} channels, got input {list(input.shape)} with {found}",
            fix=f"give it an input with {channels} channels, or make the layer for {found}"
            if divides
            else "in_channels and out_channels must be multiples of groups",
        )


def _check_bias(operator: str, bias: Node | None, outputs: int) -> None:
    if bias is not None and bias.shape != (outputs,):
        raise ShapeError(
            f"{operator}: bias {list(bias.shape)} should have shape [{outputs}]",
            fix="one bias per output channel",
        )


@composite
def unfold(input: Node, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> Node:
    """Sliding windows as columns: (N, C, H, W) -> (N, C * kernel, windows); unbatched too."""
    if input.ndim not in (3, 4):
        raise ShapeError(
            f"unfold: expected input (N, C, H, W) or (C, H, W), got {list(input.shape)}",
            fix="add or merge dimensions first",
        )
    batched = _with_batch(input, 2)
    shown = windows(batched, kernel, stride, padding, dilation)
    if min(shown.shape[2:4]) <= 0:
        raise ShapeError(
            f"unfold: kernel {list(kernel)} does not fit the padded input {list(input.shape)}",
            fix="pad more, or use a smaller kernel",
        )
    batch, channels, rows, columns, *_ = shown.shape
    box = (batch, channels, *kernel, rows, columns)
    axes = IndexMap.axes(box)
    moved = reindex(shown, IndexMap(box, (*axes[:2], *axes[4:], *axes[2:4])))
    result = (channels * math.prod(kernel), rows * columns)
    return reshape(moved, result if input.ndim == 3 else (batch, *result))


@composite
def fold(
    input: Node, output: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Node:
    """The transposition of `unfold`: (N, C * kernel, windows) -> (N, C, *output); unbatched too."""
    size = math.prod(kernel)
    positions = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(output, kernel, dilation, padding, stride)
    )
    expected = math.prod(positions)
    if input.ndim not in (2, 3) or input.shape[-2] % size or input.shape[-1] != expected:
        raise ShapeError(
            f"fold: input {list(input.shape)} does not fit output_size {list(output)} with kernel "
            f"{list(kernel)}",
            fix=f"input is (N, C * {size}, {expected})",
        )
    batch = input.shape[0] if input.ndim == 3 else 1
    box = (batch, input.shape[-2] // size, *kernel, *positions)
    axes = IndexMap.axes(box)
    places = [
        o * s + k * d - p for o, s, k, d, p in zip(axes[4:], stride, axes[2:4], dilation, padding)
    ]
    guards = [Within(place, extent) for place, extent in zip(places, output)]
    target = IndexMap(box, [*axes[:2], *places], guards)
    result = reduce_with_map("add", reshape(input, box), target, (*box[:2], *output))
    return result if input.ndim == 3 else reshape(result, result.shape[1:])
