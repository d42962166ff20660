"""Estimates of derivatives from samples on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.errors import ArgumentError
from metaop.tensor.arguments import wrap_dims
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat
from metaop.tensor.promotion import defaults
from metaop.tensor.surface import public


@public()
def gradient(
    input: Tensor,
    *,
    spacing: float | Sequence[Any] | None = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """Second-order accurate derivatives along `dim` (all dimensions if None), one tensor each.

    They have the shape of the input. `spacing` is the distance between samples, one per dimension,
    or tensors of their coordinates. `edge_order` (1 or 2) is the order of accuracy at both ends.

    >>> metaop.gradient(metaop.tensor([0.0, 1.0, 4.0, 9.0]))
    (tensor([1., 2., 4., 5.]),)
    """
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order is {edge_order}, but must be 1 or 2")
    dims = wrap_dims(range(input.ndim) if dim is None else dim, input.ndim)
    given: Any = 1.0 if spacing is None else spacing
    listed = list(given) if isinstance(given, (list, tuple)) else [given] * len(dims)
    if len(listed) != len(dims):
        raise ArgumentError(f"gradient: {len(listed)} spacings for {len(dims)} dimensions")
    return tuple(_along(input, one, space, edge_order) for one, space in zip(dims, listed))


def _along(input: Tensor, dim: int, space: Any, edge_order: int) -> Tensor:
    length = input.shape[dim]
    if length <= edge_order:
        raise ArgumentError(
            f"gradient: dimension {dim} has {length} samples, but {edge_order + 1} are needed"
        )
    values = (input if input.dtype.is_differentiable else input.to(defaults.dtype)).movedim(dim, -1)
    if isinstance(space, Tensor) and space.ndim:
        gaps = space.diff().to(values.dtype)
    else:
        gaps = values.detach().new_full((length - 1,), float(space))
    slopes = values.diff() / gaps
    low, high = gaps[:-1], gaps[1:]
    pieces = [slopes[..., :1], slopes[..., -1:]]
    if length > 2:
        bends = (slopes[..., 1:] - slopes[..., :-1]) / (low + high)
        pieces.insert(1, slopes[..., :-1] + bends * low)
        if edge_order == 2:
            pieces[0] = pieces[0] - bends[..., :1] * gaps[:1]
            pieces[2] = pieces[2] + bends[..., -1:] * gaps[-1:]
    return cat(pieces, -1).movedim(-1, dim)
