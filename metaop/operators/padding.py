"""Padding: a constant around a tensor, or its own elements continued past the border."""

from __future__ import annotations

from collections.abc import Callable

from metaop.errors import ShapeError
from metaop.reindex.views import broadcast_to, concatenate, flip, slice_dimension
from metaop.reindex.views import pad as pad_constant
from metaop.unified_graph.composite import composite
from metaop.unified_graph.node import Node, Scalar

Widths = tuple[int, ...]


@composite
def pad(input: Node, before: Widths, after: Widths, mode: str, value: Scalar) -> Node:
    """The input with `before` and `after` elements added to each dimension (removed if negative).

    mode "constant" fills with `value`, "reflect" mirrors without repeating the border, "replicate"
    repeats the border, "circular" wraps around.
    """
    if mode != "constant":
        for dim, (first, last) in enumerate(zip(before, after)):
            input = extended(input, dim, first, last, mode)
        return input
    if any(n + b + a < 0 for n, b, a in zip(input.shape, before, after)):
        raise ShapeError(
            f"pad: widths {list(before)} and {list(after)} cut more off than {list(input.shape)} "
            "has",
            fix="use smaller negative widths",
        )
    if input.dtype.kind == "int":
        value = int(value)
    elif input.dtype.kind == "bool":
        value = bool(value)
    return pad_constant(input, before, after, value)


def extended(input: Node, dim: int, before: int, after: int, mode: str) -> Node:
    """One dimension continued past its ends: "reflect", "replicate" or "circular"."""
    if before == after == 0:
        return input
    if mode == "replicate":
        return _replicated(input, dim, before, after)
    if min(before, after) < 0:
        extent = input.shape[dim] + min(before, 0) + min(after, 0)
        input = slice_dimension(input, dim, max(-before, 0), extent)
        before, after = max(before, 0), max(after, 0)
    limit, piece = _CONTINUATIONS[mode]
    extent = input.shape[dim]
    if max(before, after) > limit(extent):
        raise ShapeError(
            f"pad: {mode} padding of {before} and {after} is too wide for dimension {dim} of "
            f"{list(input.shape)}",
            fix=f"use {limit(extent)} at most",
        )
    pieces = [piece(input, dim, before, True), input, piece(input, dim, after, False)]
    return concatenate([one for one in pieces if one.shape[dim]], dim) if extent else input


def _replicated(input: Node, dim: int, before: int, after: int) -> Node:
    """Element `i` is element `i - before`, or the nearest border element."""
    extent = input.shape[dim]
    total = extent + before + after
    if not extent or total < 0:
        raise ShapeError(
            f"pad: replicate padding of {before} and {after} does not fit dimension {dim} of "
            f"{list(input.shape)}"
        )
    start, lead = max(-before, 0), min(max(before, 0), total)
    kept = max(min(extent - start, total - lead), 0)
    pieces = [
        _repeated(input, dim, lead, True),
        slice_dimension(input, dim, min(start, extent), kept),
        _repeated(input, dim, total - lead - kept, False),
    ]
    return concatenate([one for one in pieces if one.shape[dim]] or pieces[:1], dim)


def _mirrored(input: Node, dim: int, width: int, at_start: bool) -> Node:
    start = 1 if at_start else input.shape[dim] - 1 - width
    return flip(slice_dimension(input, dim, start, width), [dim])


def _repeated(input: Node, dim: int, width: int, at_start: bool) -> Node:
    border = slice_dimension(input, dim, 0 if at_start else input.shape[dim] - 1, 1)
    return broadcast_to(border, (*input.shape[:dim], width, *input.shape[dim + 1 :]))


def _wrapped(input: Node, dim: int, width: int, at_start: bool) -> Node:
    start = input.shape[dim] - width if at_start else 0
    return slice_dimension(input, dim, start, width)


# For each mode: the largest padding of an extent, and the piece that is added at one end.
_CONTINUATIONS: dict[str, tuple[Callable[[int], int], Callable[..., Node]]] = {
    "reflect": (lambda extent: extent - 1, _mirrored),
    "circular": (lambda extent: extent, _wrapped),
}
