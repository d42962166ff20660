"""Max pooling over windows with pseudo-random starts (Graham, 2014)."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import ShapeError
from metaop.operators.expressions import index_along
from metaop.operators.pooling import element_offsets, largest_of
from metaop.reindex.meta_op import reindex
from metaop.reindex.views import select, unsqueeze
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.index_expr import lookup
from metaop.unified_graph.node import Node

Sizes = tuple[int, ...]


@composite
def fractional_max_pool(
    input: Node, samples: Node, kernel: Sizes, output: Sizes
) -> tuple[Node, Node]:
    """The maxima of (N, C, *extents) over `output` windows per dimension, and their offsets.

    `samples` (N, C, D), in [0, 1), determine where windows begin; the last one ends at the border.
    """
    spatial = len(kernel)
    extents = input.shape[2:]
    fits = input.ndim == spatial + 2 and samples.shape == (*input.shape[:2], spatial)
    if not fits or any(o + k - 1 > n for o, k, n in zip(output, kernel, extents)):
        raise ShapeError(
            f"fractional_max_pool{spatial}d: input {list(input.shape)} does not fit kernel "
            f"{list(kernel)} and output {list(output)} with samples {list(samples.shape)}",
            fix="output + kernel - 1 is at most the input's extent; samples are (N, C, dimensions)",
        )
    # PyTorch numbers the samples of images from the last dimension.
    order = [1, 0] if spatial == 2 else list(range(spatial))
    starts = [
        _starts(select(samples, 2, order[k]), output[k], kernel[k], extents[k])
        for k in range(spatial)
    ]
    shape = (*input.shape[:2], *output, *kernel)
    axes = IndexMap.axes(shape)
    places = [
        lookup(k + 1, (*axes[:2], axes[2 + k]), extents[k] - kernel[k] + 1) + axes[2 + spatial + k]
        for k in range(spatial)
    ]
    windows = IndexMap(shape, [*axes[:2], *places])
    shown = reindex(input, windows, 0, starts)
    offsets = reindex(element_offsets(input, spatial), windows, 0, starts)
    return largest_of(shown, offsets, input.ndim, math.prod(extents))


def _starts(sample: Node, count: int, kernel: int, extent: int) -> Node:
    """The starts of the windows along one dimension: (N, C, count)."""
    shape = (*sample.shape, count)
    place = index_along(shape, 2)
    last = extent - kernel
    step = last / (count - 1) if count > 1 else 0.0
    sample = unsqueeze(sample, 2)
    moved = _whole((cast(place, sample.dtype) + sample) * step) - _whole(sample * step)
    return where(place.equals(count - 1), last, moved)


def _whole(node: Node) -> Node:
    return cast(apply("floor", node), dtypes.int64)
