"""Embeddings and one-hot vectors."""

from __future__ import annotations

import numpy as np

from metaop.differentiation.tape import leave_unsummed
from metaop.errors import ArgumentError, DTypeError, UnsupportedError
from metaop.nn.functional.arguments import optional
from metaop.operators import embedding as operators
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.recording import modes, record


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` (V, E) at the indices `input` (…): (…, E).

    Row `padding_idx` gets no gradient. With `max_norm`, used rows of a larger norm are first scaled
    down in place. An index out of range raises when the result is computed. With `sparse` the
    gradient of `weight` is a sparse tensor of the used rows.

    >>> F.embedding(metaop.tensor([2, 0]), metaop.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    tensor([[5., 6.],
            [1., 2.]])
    """
    padding = _row(padding_idx, weight)
    if sparse and scale_grad_by_freq:
        raise UnsupportedError(
            "embedding: scale_grad_by_freq not supported with sparse gradients",
            fix="omit sparse or scale_grad_by_freq",
        )
    if max_norm is not None:
        _renormalise(weight, input, max_norm, norm_type)
    attributes = (padding, scale_grad_by_freq)
    call = record(operators.embedding, (input.call, weight.call), attributes)
    if sparse:
        leave_unsummed(call, 1)
    return wrap(call)


def _row(padding_idx: int | None, weight: Tensor) -> int | None:
    if padding_idx is None:
        return None
    rows = weight.shape[0]
    if not -rows <= padding_idx < rows:
        raise ArgumentError(
            f"embedding: padding_idx {padding_idx} must be within num_embeddings {rows}",
            fix="use an existing row",
        )
    return padding_idx % rows


def _renormalise(weight: Tensor, indices: Tensor, limit: float, power: float) -> None:
    previous, modes.gradients = modes.gradients, False
    try:
        attributes = (float(limit), float(power))
        call = record(operators.renormalised, (weight.call, indices.call), attributes)
        weight._rebind(call, "embedding_renorm_")
    finally:
        modes.gradients = previous


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Rows of `weight` combined per bag by "sum", "mean" or "max": (bags, E).

    The rows of a two-dimensional `input` are bags; in a one-dimensional one, bags begin at
    `offsets` (with `include_last_offset`, the last offset is the end). `per_sample_weights` has the
    shape of `input` and needs "sum". With `sparse` the gradient of `weight` is a sparse tensor of
    the used rows.

    >>> weight = metaop.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> F.embedding_bag(metaop.tensor([[0, 2]]), weight, mode="mean")
    tensor([[3., 4.]])
    """
    if scale_grad_by_freq:
        raise UnsupportedError(
            "embedding_bag: scale_grad_by_freq is not available", fix="use embedding and sum"
        )
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"embedding_bag: unknown mode {mode!r}", fix="use sum, mean or max")
    if sparse and mode == "max":
        raise ArgumentError(
            "embedding_bag: max mode does not support sparse weights", fix="omit sparse"
        )
    if per_sample_weights is not None and mode != "sum":
        raise UnsupportedError(
            f"embedding_bag: per_sample_weights needs mode='sum', got {mode!r}",
            fix="leave them out",
        )
    if (input.ndim == 2) != (offsets is None) or input.ndim not in (1, 2):
        raise ArgumentError(
            f"embedding_bag: offsets need one-dimensional input, got {list(input.shape)}",
            fix="two-dimensional input takes no offsets, one-dimensional input needs them",
        )
    if max_norm is not None:
        _renormalise(weight, input, max_norm, norm_type)
    bags = input.shape[0] if offsets is None else offsets.shape[0] - int(include_last_offset)
    if offsets is not None and include_last_offset:
        offsets = offsets[:-1]  # type: ignore[index]
    calls = (input.call, weight.call, optional(offsets), optional(per_sample_weights))
    attributes = (mode, _row(padding_idx, weight), bags)
    call = record(operators.embedding_bag, calls, attributes)
    if sparse:
        leave_unsummed(call, 1)
    return wrap(call)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the class of each element, 0 elsewhere: (…) -> (…, num_classes), int64.

    Without `num_classes` the values are read to find the largest class. Values that are still
    pending are not checked: a class out of range gives zeros.

    >>> F.one_hot(metaop.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    if tensor.dtype is not dtypes.int64:
        raise DTypeError(
            f"one_hot is only applicable to index tensor of type int64, got {tensor.dtype.name}",
            fix="convert it with .long()",
        )
    if num_classes != -1 and num_classes < 1:
        raise ArgumentError(
            f"one_hot: num_classes must be positive, got {num_classes}", fix="pass the number"
        )
    if num_classes == -1 or tensor.call.buffer is not None:
        num_classes = _checked_classes(tensor._array(), num_classes)
    return wrap(record(operators.one_hot, (tensor.call,), (num_classes,)))


def _checked_classes(values: np.ndarray, count: int) -> int:
    """The number of classes: `count`, or for -1 as many as the values need."""
    if not values.size:
        if count == -1:
            raise ArgumentError(
                "one_hot: cannot infer the number of classes from an empty tensor",
                fix="pass num_classes",
            )
        return count
    low, high = int(np.min(values)), int(np.max(values))
    if low < 0:
        raise ArgumentError(f"one_hot: class values must be non-negative, got {low}", fix="shift")
    if count != -1 and high >= count:
        raise ArgumentError(
            f"one_hot: class values must be smaller than num_classes={count}, got {high}",
            fix="pass a larger num_classes",
        )
    return high + 1 if count == -1 else count
