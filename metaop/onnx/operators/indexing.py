"""Operators that choose elements by their positions or values."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from metaop.errors import DimensionError
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import Node, operator
from metaop.onnx.values import Host
from metaop.tensor.core import Tensor


def wrapped(indices: Any, extent: int) -> Any:
    """Non-negative int64 indices: negative ones count from the end."""
    whole = indices.to(metaop.int64)
    return metaop.where(whole < 0, whole + extent, whole)


@operator("Gather")
def gather(x: Tensor, indices: Any, *, axis: int = 0) -> Tensor:
    """Slices of one dimension, in the shape of the indices."""
    axis %= len(x.shape)
    if not isinstance(indices, Tensor):
        return _gather_known(x, np.asarray(indices), axis)
    shape = shape_of(x)
    flat = wrapped(indices, shape[axis]).reshape((-1,))
    if axis == 0 and x.dtype.kind == "float" and len(shape) == 2:
        found = metaop.nn.functional.embedding(flat, x)
    else:
        found = x.index_select(axis, flat)
    return found.reshape((*shape[:axis], *indices.shape, *shape[axis + 1 :]))


def _gather_known(x: Tensor, indices: np.ndarray, axis: int) -> Tensor:
    """Gathers at constant positions; a single one or a contiguous range is a view."""
    extent = shape_of(x)[axis]
    if indices.size and (indices.min() < -extent or indices.max() >= extent):
        raise DimensionError(f"Gather: positions {indices.tolist()} of {extent}")
    if indices.ndim == 0:
        return x.select(axis, int(indices) % extent)
    flat = np.where(indices < 0, indices + extent, indices).ravel()
    if flat.size and (np.diff(flat) == 1).all():
        found = x.narrow(axis, int(flat[0]), len(flat))
    else:
        found = x.index_select(axis, metaop.tensor(flat.astype(np.int64)).to(device=x.device))
    shape = shape_of(x)
    return found.reshape((*shape[:axis], *indices.shape, *shape[axis + 1 :]))


@operator("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """One element for every index."""
    return metaop.gather(x, axis, wrapped(indices, shape_of(x)[axis]))


def _places(indices: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The flat positions of rows of indices, and the number of elements of each."""
    depth = shape_of(indices)[-1]
    flat: Any = metaop.zeros(shape_of(indices)[:-1], dtype=metaop.int64, device=indices.device)
    for dim in range(depth):
        flat = flat * shape[dim] + wrapped(indices.select(-1, dim), shape[dim])
    return flat


@operator("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Slices at rows of indices, batch by batch."""
    shape, depth = shape_of(x), shape_of(indices)[-1]
    rest = shape[batch_dims + depth :]
    batches = int(np.prod(shape[:batch_dims]))
    inner = shape[batch_dims : batch_dims + depth]
    flat = _places(indices, inner).reshape((batches, -1))
    flat = flat + metaop.arange(batches).to(device=x.device).reshape((-1, 1)) * int(np.prod(inner))
    rows = x.reshape((batches * int(np.prod(inner)), int(np.prod(rest))))
    return rows.index_select(0, flat.reshape((-1,))).reshape((*shape_of(indices)[:-1], *rest))


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements Scatter")
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """Replaces single elements, or combines them with new ones."""
    index = wrapped(indices, shape_of(data)[axis])
    if reduction == "none":
        return metaop.scatter(data, axis, index, updates)
    return metaop.scatter_reduce(data, axis, index, updates, _REDUCTIONS[reduction])


@operator("ScatterND")
def scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none"
) -> Tensor:
    """Replaces slices at rows of indices, or combines them with new ones."""
    shape, depth = shape_of(data), shape_of(indices)[-1]
    rest = int(np.prod(shape[depth:]))
    flat = _places(indices, shape).reshape((-1, 1)).expand((-1, rest))
    rows, new = data.reshape((-1, rest)), updates.reshape((-1, rest))
    if reduction == "none":
        found = metaop.scatter(rows, 0, flat, new)
    else:
        found = metaop.scatter_reduce(rows, 0, flat, new, _REDUCTIONS[reduction])
    return found.reshape(shape)


@operator("TensorScatter")
def tensor_scatter(
    past: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """Writes new entries to a cache at a position per sample."""
    shape, count = shape_of(past), shape_of(update)[axis]
    axis %= len(shape)
    steps = metaop.arange(count).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    if write_indices is not None:
        steps = steps + write_indices.reshape([-1] + [1] * (len(shape) - 1))
    if mode == "circular":
        steps = metaop.remainder(steps, shape[axis])
    return metaop.scatter(past, axis, steps.expand(update.shape), update)


@operator("OneHot")
def one_hot(indices: Tensor, depth: Host, values: Tensor, *, axis: int = -1) -> Tensor:
    """One-hot encoding: the second of two values at the index, the first elsewhere."""
    count = int(np.asarray(depth).reshape(-1)[0])
    ndim = len(indices.shape) + 1
    axis %= ndim
    whole = indices.to(metaop.int64)
    whole = metaop.where(whole < 0, whole + count, whole).unsqueeze(axis)
    classes = metaop.arange(count).reshape([-1 if k == axis else 1 for k in range(ndim)])
    return metaop.where(whole == classes.to(device=whole.device), values[1], values[0])


@operator("TopK")
def top_k(
    x: Tensor, k: Host, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """The largest or smallest elements, and where they are; of equal ones the first."""
    found, places = metaop.sort(x, dim=axis, descending=bool(largest), stable=True)
    count = int(np.asarray(k).reshape(-1)[0])
    return found.narrow(axis, 0, count), places.narrow(axis, 0, count)


@operator("NonZero")
def non_zero(x: Tensor) -> Tensor:
    """The positions of what is not 0, one column for each."""
    return metaop.nonzero(x).t()


@operator("Compress")
def compress(x: Tensor, condition: Host, *, axis: int | None = None) -> Tensor:
    """The slices for which a condition holds."""
    kept = metaop.tensor(np.flatnonzero(condition).astype(np.int64)).to(device=x.device)
    return x.reshape((-1,)).index_select(0, kept) if axis is None else x.index_select(axis, kept)


@operator("Unique")
def unique(
    x: Host, *, axis: int | None = None, sorted: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Unique elements or slices, their first positions, the inverse indices, and counts."""
    found, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        found = np.take(found, order, 0 if axis is None else axis)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return found, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def extract_features(x: Tensor, y: Tensor) -> Tensor:
    """Columns of a matrix."""
    found = x.index_select(len(x.shape) - 1, y.reshape((-1,)))
    return found.reshape((1, -1)) if len(x.shape) == 1 else found


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Host,
    scores: Host,
    max_output_boxes_per_class: Host | None = None,
    iou_threshold: Host | None = None,
    score_threshold: Host | None = None,
    *,
    center_point_box: int = 0,
) -> np.ndarray:
    """Non-maximum suppression: rows (sample, class, box) of the kept boxes."""
    limit, overlap, least = (
        None if one is None else np.asarray(one).reshape(-1)[0]
        for one in (max_output_boxes_per_class, iou_threshold, score_threshold)
    )
    corners = _corners(np.asarray(boxes, np.float32), bool(center_point_box))
    kept = []
    for sample in range(scores.shape[0]):
        for label in range(scores.shape[1]):
            found = _suppressed(
                corners[sample],
                scores[sample, label],
                0 if limit is None else int(limit),
                0.0 if overlap is None else float(overlap),
                None if least is None else float(least),
            )
            kept += [(sample, label, box) for box in found]
    return np.array(kept, np.int64).reshape(-1, 3)


def _corners(boxes: np.ndarray, center: bool) -> np.ndarray:
    """Boxes (…, 4) as minimum and maximum coordinates."""
    if center:
        x, y, width, height = np.moveaxis(boxes, -1, 0)
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _suppressed(
    boxes: np.ndarray, scores: np.ndarray, limit: int, overlap: float, least: float | None
) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > least]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], -1)
    kept: list[int] = []
    while len(order) and len(kept) < limit:
        best, order = order[0], order[1:]
        kept.append(int(best))
        low = np.maximum(boxes[order, :2], boxes[best, :2])
        high = np.minimum(boxes[order, 2:], boxes[best, 2:])
        common = np.prod(np.maximum(0, high - low), -1)
        union = areas[order] + areas[best] - common
        order = order[common <= overlap * union]
    return kept


@operator("Hardmax")
def hardmax(x: Tensor, *, axis: int | None = None, node: Node) -> Tensor:
    """1 at the first maximum, 0 elsewhere."""
    from metaop.onnx.operators.reductions import along

    return along(x, axis, node.version, _first_largest)


def _first_largest(x: Tensor, dim: int) -> Tensor:
    place = metaop.argmax(x, dim, keepdim=True)
    count = shape_of(x)[dim]
    shape = [-1 if k == dim % len(x.shape) else 1 for k in range(len(x.shape))]
    return (metaop.arange(count).reshape(shape).to(device=x.device) == place).to(x.dtype)
