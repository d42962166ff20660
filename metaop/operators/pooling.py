"""Pooling: reductions over sliding windows, and over the windows that divide a size evenly."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import truediv
from typing import Any

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import ArgumentError, ShapeError
from metaop.operators.expressions import in_compute_type, index_along, stop_gradient
from metaop.reduce.meta_op import reduce_axes, reduce_with_map
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import reshape, window_count, windows
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node, Shape, constant, index_node
from metaop.unified_graph.symbolic import as_float, divides, is_symbolic, surely_less

Sizes = tuple[int, ...]


@composite
def max_pool(
    input: Node, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> Node:
    """The largest element of every window of the last dimensions; padding never wins."""
    _check_windows("max_pool", input, kernel, stride, padding, dilation, ceil_mode)
    shown = windows(input, kernel, stride, padding, dilation, input.dtype.lowest, ceil_mode)
    return reduce_axes("max", shown, range(input.ndim, shown.ndim))


@composite
def max_pool_with_indices(
    input: Node, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[Node, Node]:
    """`max_pool` and the row-major offset of each maximum within the pooled dimensions."""
    _check_windows("max_pool", input, kernel, stride, padding, dilation, ceil_mode)
    shown = windows(input, kernel, stride, padding, dilation, input.dtype.lowest, ceil_mode)
    # Padding has an offset after all elements, so that it is never the first maximum.
    last = math.prod(input.shape[-len(kernel) :])
    places = element_offsets(input, len(kernel))
    offset = windows(places, kernel, stride, padding, dilation, last, ceil_mode)
    return largest_of(shown, offset, input.ndim, last)


def element_offsets(input: Node, spatial: int) -> Node:
    """Each element's row-major offset within the last `spatial` dimensions."""
    axes = IndexMap.axes(input.shape)[-spatial:]
    return index_node(index_expr.linear_offset(axes, input.shape[-spatial:]), input.shape)


def largest_of(shown: Node, offset: Node, ndim: int, last: int) -> tuple[Node, Node]:
    """The maxima over the dimensions from `ndim` on, and the first offset of each, below `last`."""
    inner = range(ndim, shown.ndim)
    largest = reduce_axes("max", shown, inner)
    kept = reshape(largest, (*largest.shape, *(1 for _ in inner)))
    wins = shown.equals(kept)
    if shown.dtype.kind == "float":
        wins = wins | apply("isnan", shown)
    first = reduce_axes("min", where(wins, offset, last), inner)
    return largest, apply("minimum", first, last - 1)


@composite
def max_unpool(input: Node, indices: Node, output: Sizes) -> Node:
    """The elements at the offsets from `max_pool_with_indices`, and zero elsewhere.

    Elements that several overlapping windows selected are written once.
    """
    if input.shape != indices.shape:
        raise ShapeError(
            f"max_unpool: input {list(input.shape)} and indices {list(indices.shape)} differ",
            fix="pass the indices that max_pool returned with this output",
        )
    lead = input.ndim - len(output)
    size = math.prod(output)
    axes = IndexMap.axes(input.shape)
    place = index_expr.lookup(1, axes, size)
    target = IndexMap(input.shape, [*axes[:lead], place])
    flat = (*input.shape[:lead], size)
    total = reduce_with_map("add", input, target, flat, (indices,))
    times = reduce_with_map("add", constant(1, input.dtype, input.shape), target, flat, (indices,))
    # Elements with the same offset are equal; their mean is written, and each gets the gradient.
    once = stop_gradient(total / apply("clamp_min", times, 1))
    placed = where(times > 1, once + (total - stop_gradient(total)), total)
    return reshape(placed, (*input.shape[:lead], *output))


@composite
@in_compute_type
def average_pool(
    input: Node,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Node:
    """The mean of every window; padding counts as zeros only with `count_include_pad`."""
    ones = (1,) * len(kernel)
    _check_windows("avg_pool", input, kernel, stride, padding, ones, ceil_mode)
    shown = windows(input, kernel, stride, padding, ones, 0, ceil_mode)
    total = reduce_axes("add", shown, range(input.ndim, shown.ndim))
    divide: Callable[[Node, Any], Node] = truediv if total.dtype.kind == "float" else _truncated
    if divisor is not None:
        return divide(total, divisor)
    lead = input.ndim - len(kernel)
    common = 1
    for k, extent in enumerate(input.shape[lead:]):
        count = _counted(
            total.shape, lead + k, extent, kernel[k], stride[k], padding[k], count_include_pad
        )
        if isinstance(count, Node):
            total = divide(total, cast(count, total.dtype))
        else:
            common *= count
    return total if common == 1 else divide(total, common)


def _truncated(total: Node, count: Any) -> Node:
    return apply("trunc_divide", total, count)


def _counted(
    shape: Shape, dim: int, extent: int, kernel: int, stride: int, padding: int, with_padding: bool
) -> Node | int:
    """The number of elements that a window averages along one dimension.

    It is a plain number if no window reaches beyond what counts, whatever the sizes are.
    """
    low, high = (-padding, extent + padding) if with_padding else (0, extent)
    last = (shape[dim] - 1) * stride - padding
    if surely_less(low - 1, -padding) and surely_less(last + kernel - 1, high):
        return kernel
    start = index_along(shape, dim) * stride - padding
    return apply("minimum", start + kernel, high) - apply("maximum", start, low)


@composite
@in_compute_type
def power_pool(input: Node, power: float, kernel: Sizes, stride: Sizes, ceil_mode: bool) -> Node:
    """`(sum of x**power over the window) ** (1/power)`, computed as in PyTorch."""
    zeros = (0,) * len(kernel)
    averaged = average_pool(
        apply("pow", input, power), kernel, stride, zeros, ceil_mode, True, None
    )
    size = float(math.prod(kernel))
    positive = apply("sign", averaged) * apply("relu", apply("abs", averaged))
    total = positive * size
    return apply("sqrt", total) if power == 2 else apply("pow", total, 1.0 / power)


@composite
@in_compute_type
def adaptive_average_pool(input: Node, output: Sizes) -> Node:
    """The mean over windows that divide each of the last dimensions into `output` parts.

    Windows that overlap are summed along one dimension after the other: rows first, in whole
    vectors, and their gradient reads at most two windows of each dimension.
    """
    extents = _adaptive_extents(input, output)
    lead = input.ndim - len(output)
    do_overlap = any(not divides(parts or 1, extent) for extent, parts in zip(extents, output))
    total = input
    for k in range(1, len(output) + 1) if do_overlap else (len(output),):
        shown = _adaptive_windows(total, (*output[:k], *extents[k:]), 0)
        total = reduce_axes("add", shown, range(total.ndim, shown.ndim))
    common = 1
    for k, extent in enumerate(extents):
        parts = output[k]
        if divides(parts, extent):
            common *= extent // parts
            continue
        part = index_along(total.shape, lead + k)
        end = _floor((part + 1) * extent + (parts - 1), parts)
        total = total / cast(end - _floor(part * extent, parts), total.dtype)
    return total if common == 1 else total / as_float(common)


def _floor(node: Node, divisor: int) -> Node:
    return apply("floor_divide", node, divisor)


@composite
def adaptive_max_pool(input: Node, output: Sizes) -> tuple[Node, Node]:
    """The maximum over windows that divide each of the last dimensions into `output` parts.

    The second result is the row-major offset of each maximum within the pooled dimensions.
    """
    shown = _adaptive_windows(input, output, input.dtype.lowest)
    last = math.prod(input.shape[-len(output) :])
    offset = _adaptive_windows(element_offsets(input, len(output)), output, last)
    return largest_of(shown, offset, input.ndim, last)


def _adaptive_windows(input: Node, output: Sizes, fill: float) -> Node:
    """Windows from `floor(o * n / parts)` to `ceil((o + 1) * n / parts)`: (…, *parts, *widest)."""
    extents = _adaptive_extents(input, output)
    lead = input.ndim - len(output)
    widest = [_widest(n, parts) if parts else 1 for n, parts in zip(extents, output)]
    shape = (*input.shape[:lead], *output, *widest)
    axes = IndexMap.axes(shape)
    indices: list[IndexExpr] = list(axes[:lead])
    guards = []
    for k, (n, parts) in enumerate(zip(extents, output)):
        part, inner = axes[lead + k], axes[lead + len(output) + k]
        place = part * n // max(parts, 1) + inner
        indices.append(place)
        if not divides(parts or 1, n):
            end = (part * n + (n + parts - 1)) // parts
            guards.append(Within(end - 1 - place, widest[k]))
    return reindex(input, IndexMap(shape, indices, guards), fill)


def _adaptive_extents(input: Node, output: Sizes) -> Shape:
    """The extents that are divided into `output` parts."""
    lead = input.ndim - len(output)
    extents = input.shape[lead:]
    if lead < 1 or lead > 2 or 0 in extents:
        raise ShapeError(
            f"adaptive pooling to {list(output)}: input {list(input.shape)} must be "
            f"(N, C, *extents) or (C, *extents) without empty extents",
            fix="add or merge dimensions first",
        )
    return extents


def _widest(extent: int, parts: int) -> int:
    """The extent of the widest window; one more, at times, where the extent is symbolic."""
    if divides(parts, extent):
        return extent // parts
    rest = extent % parts
    # Windows begin and end at multiples of `rest / parts` behind a whole number. One has such a
    # number between both ends, and so holds one element more, unless all of them are ends.
    all_are_ends = not is_symbolic(rest) and parts % rest == 0
    return extent // parts + (1 if all_are_ends else 2)


def _check_windows(
    operator: str,
    input: Node,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> None:
    spatial = len(kernel)
    if input.ndim not in (spatial + 1, spatial + 2):
        raise ShapeError(
            f"{operator}{spatial}d: expected input of {spatial + 1} or {spatial + 2} dimensions, "
            f"got {list(input.shape)}",
            fix="inputs are (N, C, *extents) or (C, *extents)",
        )
    if min((*kernel, *stride, *dilation)) < 1:
        raise ArgumentError(
            f"{operator}{spatial}d: kernel_size, stride and dilation must be greater than zero",
            fix=f"got kernel {list(kernel)}, stride {list(stride)}, dilation {list(dilation)}",
        )
    if any(2 * p > k for p, k in zip(padding, kernel)) or min(padding) < 0:
        raise ArgumentError(
            f"{operator}{spatial}d: padding {list(padding)} should be at most half of kernel "
            f"{list(kernel)}",
            fix="pad the input with nn.functional.pad",
        )
    counts = [
        window_count(n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(input.shape[-spatial:], kernel, stride, padding, dilation)
    ]
    if any(count < 1 for count in counts):
        raise ShapeError(
            f"{operator}{spatial}d: kernel {list(kernel)} does not fit input {list(input.shape)}: "
            f"the output would have extents {counts}",
            fix="use a smaller kernel, or pad the input",
        )
