"""Arguments as PyTorch takes them: dimensions that count from the end, sizes with a -1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from metaop.errors import ArgumentTypeError, DimensionError, ShapeError
from metaop.unified_graph.node import Shape

# The types of whole numbers, where a sequence of them may stand as well.
WHOLE = (int, np.integer)


def plain_number(value: Any) -> Any:
    """A NumPy number as a Python number; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def is_empty(value: Any) -> bool:
    """Whether an argument is an empty list or tuple; a number is not."""
    return isinstance(value, (tuple, list)) and not value


def wrap_dim(dim: int, ndim: int) -> int:
    """`dim` as a number from 0; DimensionError when there is no such dimension."""
    extent = ndim or 1
    if type(dim) is not int:
        dim = _integer(dim)
    if -extent <= dim < extent:
        return dim if dim >= 0 else dim + extent
    raise DimensionError(
        f"Dimension out of range (expected to be in range of [{-extent}, {extent - 1}], "
        f"but got {dim})",
        fix=f"the tensor has {ndim} dimensions",
    )


def wrap_dims(dims: int | Iterable[int], ndim: int) -> tuple[int, ...]:
    """Several dimensions as numbers from 0; an error when one appears twice."""
    listed = (dims,) if type(dims) is int or not hasattr(dims, "__iter__") else tuple(dims)
    wrapped = tuple([wrap_dim(dim, ndim) for dim in listed])
    if len(set(wrapped)) != len(wrapped):
        raise ShapeError(f"dim {_twice(wrapped)} appears multiple times in the list of dims")
    return wrapped


def _twice(dims: Sequence[int]) -> int:
    return next(dim for k, dim in enumerate(dims) if dim in dims[:k])


def sizes(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """`f(2, 3)` and `f((2, 3))` alike as (2, 3)."""
    if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)):
        arguments = tuple(arguments[0])
    for extent in arguments:
        if type(extent) is not int:
            return tuple([_integer(extent) for extent in arguments])
    return arguments


def _integer(value: Any) -> int:
    # A truth value in such a place is a mistake, such as a `keepdim` one place too early.
    if not isinstance(value, bool):
        with suppress(AttributeError, TypeError):
            return value.__index__()  # type: ignore[no-any-return]
    raise ArgumentTypeError(
        f"sizes and dimensions are integers, not {type(value).__name__}",
        fix="convert with int(...)",
    )


def infer_size(shape: tuple[int, ...], count: int) -> Shape:
    """`shape` with its -1 replaced so that it holds `count` elements."""
    known = 1
    missing = -1
    for position, extent in enumerate(shape):
        if extent == -1 and missing < 0:
            missing = position
        elif extent < 0:
            raise ShapeError(f"invalid shape {list(shape)}", fix="only one size may be -1")
        else:
            known *= extent
    if missing < 0:
        if known == count:
            return shape
    elif known and count % known == 0:
        return (*shape[:missing], count // known, *shape[missing + 1 :])
    elif known == 0 and count == 0:
        raise ShapeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the "
            "unspecified dimension size -1 can be any value and is ambiguous"
        )
    raise ShapeError(
        f"shape '{list(shape)}' is invalid for input of size {count}",
        fix="the product of the sizes has to stay the same",
    )
