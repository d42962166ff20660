"""Helpers for distributions, metaop's and users', under PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import as_tensor
from metaop.tensor.functions.joining import broadcast_tensors
from metaop.tensor.functions.random import randn
from metaop.tensor.functions.ranges import arange
from metaop.tensor.grad_mode import enable_grad
from metaop.tensor.promotion import defaults
from metaop.tensor.type_info import finfo
from metaop.unified_graph.dtype import DType

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers as tensors of one shape; numbers get the dtype of the tensors."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    dtype = tensors[0].dtype if tensors else defaults.dtype
    device = tensors[0].device if tensors else None
    made = [
        value if isinstance(value, Tensor) else as_tensor(value, dtype, device) for value in values
    ]
    return tuple(broadcast_tensors(*made))


class lazy_property(cached_property):
    """A property that is computed at the first read and kept; a parameter may replace it."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        with enable_grad():
            return super().__get__(instance, owner)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities clamped to be neither 0 nor 1."""
    small = finfo(probs.dtype).eps
    return probs.clamp(small, 1 - small)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The logarithms of probabilities, or the log-odds of a boolean."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The probabilities whose logarithms, or log-odds, are `logits`."""
    return logits.sigmoid() if is_binary else F.softmax(logits, -1)


def standard_normal(shape: Sequence[int], dtype: DType | None, device: Any) -> Tensor:
    """Samples of the normal distribution with mean 0 and deviation 1, without a gradient."""
    return randn(tuple(shape), dtype=dtype, device=device)


def sum_rightmost(value: Tensor, count: int) -> Tensor:
    """The sum over the last `count` dimensions."""
    return value.sum(tuple(range(-count, 0))) if count else value


def _lower_triangle(extent: int, diagonal: int) -> tuple[list[int], list[int]]:
    """Rows and columns of the elements at or below a diagonal, row by row."""
    places = [
        (row, column) for row in range(extent) for column in range(min(row + diagonal + 1, extent))
    ]
    return [row for row, _ in places], [column for _, column in places]


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements at or below a diagonal of matrices (…, N, N), row by row, as (…, M)."""
    extent = mat.shape[-1]
    if not -extent <= diag < extent:
        raise ArgumentError(
            f"diag ({diag}) provided is outside [{-extent}, {extent - 1}].",
            fix="name a diagonal of the matrix",
        )
    rows, columns = _lower_triangle(extent, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Vectors (…, M) as matrices (…, N, N) that hold them at and below a diagonal."""
    count, extent = vec.shape[-1], max(0, -diag)
    while len(_lower_triangle(extent, diag)[0]) < count:
        extent += 1
    rows, columns = _lower_triangle(extent, diag)
    if len(rows) != count:
        raise ArgumentError(
            f"The size of last dimension is {count} which cannot be expressed as the lower "
            "triangular part of a square D x D matrix.",
            fix="give as many elements as a triangle has",
        )
    # Every element of the matrix reads one of the vector, or the zero appended to it.
    sources = [[count] * extent for _ in range(extent)]
    for source, (row, column) in enumerate(zip(rows, columns)):
        sources[row][column] = source
    places = [place for row in sources for place in row]
    filled = F.pad(vec, (0, 1)).index_select(-1, as_tensor(places, device=vec.device))
    return filled.reshape(*vec.shape[:-1], extent, extent)


def values_of_support(count: int, like: Tensor, batch: Any, expand: bool) -> Tensor:
    """0 … count - 1 along a new first dimension before those of a batch."""
    values = arange(count, dtype=like.dtype, device=like.device)
    values = values.reshape(count, *[1] * len(batch))
    return values.expand(count, *batch) if expand else values
