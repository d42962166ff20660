"""Collating a list of samples into a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from metaop.errors import ArgumentTypeError, ShapeError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.functions.joining import stack
from metaop.tensor.promotion import defaults
from metaop.unified_graph.dtype import from_numpy_dtype

CollateMap = dict[Any, Callable[..., Any]]


def default_collate(batch: Sequence[Any]) -> Any:
    """Stacks samples along a new first dimension and keeps their structure.

    Tensors, NumPy arrays and numbers become tensors (of float64 when the first number is a float,
    else of int64 or the default type, as in PyTorch); tuples, lists and mappings are collated
    element by element; strings become a list.
    Raises ArgumentTypeError for other types and ShapeError when the shapes differ.

    >>> metaop.data.default_collate([(1.0, "a"), (2.0, "b")])
    [tensor([1., 2.], dtype=metaop.float64), ('a', 'b')]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Joins samples by the functions that the map has for their types, and keeps their structure.

    A function of the very type comes before that of a type above it. Types that the map lacks raise
    ArgumentTypeError unless they are tuples, lists or mappings, whose elements are joined.

    >>> from metaop.data.collate import collate
    >>> collate([(1, "a"), (2, "b")], collate_fn_map={int: lambda batch, collate_fn_map: sum(batch),
    ...     str: lambda batch, collate_fn_map: "".join(batch)})
    [3, 'ab']
    """
    first, known = batch[0], collate_fn_map or {}
    join = known.get(type(first))
    for kind in () if join else known:
        if isinstance(first, kind):
            join = known[kind]
            break
    if join is not None:
        return join(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        columns = {key: [sample[key] for sample in batch] for key in first}
        return _like_mapping(
            first, {k: collate(column, collate_fn_map=known) for k, column in columns.items()}
        )
    if isinstance(first, Sequence):
        return _collate_sequences(first, batch, known)
    raise ArgumentTypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first)}",
        fix="give DataLoader a collate_fn",
    )


def default_convert(data: Any) -> Any:
    """Converts the NumPy arrays of one sample to tensors, as an unbatched DataLoader does.

    The shape is unchanged.

    >>> import numpy as np
    >>> metaop.data.default_convert([np.ones(2), "a"])
    [tensor([1., 1.], dtype=metaop.float64), 'a']
    """
    if isinstance(data, (np.ndarray, np.generic)):
        return data if _is_text(data) else _tensor(np.asarray(data))
    if isinstance(data, Mapping):
        return _like_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like_sequence(data, [default_convert(value) for value in data])
    return data


def _stack(arrays: Sequence[np.ndarray]) -> Tensor:
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ShapeError(
            "stack expects each tensor to be equal size, but the samples of this batch have the "
            f"shapes {sorted(map(list, shapes))}",
            fix="pad or crop in the data set, or give DataLoader a collate_fn",
        )
    return _tensor(np.stack(arrays))


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Stacks tensors along a new first dimension; ShapeError if their shapes differ."""
    if batch[0].device.type != "cpu":
        return stack(batch)
    return _stack([sample._array() for sample in batch])


def collate_numpy_array_fn(
    batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None
) -> Tensor:
    """Stacks arrays along a new first dimension; ShapeError if their shapes differ."""
    if _is_text(batch[0]):
        raise ArgumentTypeError(
            f"default_collate: found an array of {batch[0].dtype}, which tensors do not support",
            fix="return Python strings, or give DataLoader a collate_fn",
        )
    return _stack([np.asarray(sample) for sample in batch])


def collate_int_fn(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """A tensor of shape (N) of truth values or integers; of the default type if floats follow."""
    array = np.array(batch)
    return _tensor(array.astype(defaults.dtype.numpy) if array.dtype.kind == "f" else array)


def collate_float_fn(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """A tensor of shape (N) of float64."""
    return _tensor(np.array(batch, np.float64))


def collate_str_fn(
    batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None
) -> Sequence[Any]:
    """The texts as they are, whatever their lengths."""
    return batch


def _collate_sequences(first: Sequence[Any], batch: Sequence[Any], known: CollateMap) -> Any:
    if any(len(sample) != len(first) for sample in batch):
        raise ShapeError(
            "each element in list of batch should be of equal size, but the samples have the "
            f"lengths {sorted({len(sample) for sample in batch})}",
            fix="give DataLoader a collate_fn",
        )
    columns = [collate(column, collate_fn_map=known) for column in zip(*batch)]
    return _like_sequence(first, columns)


def _like_sequence(template: Sequence[Any], values: list[Any]) -> Any:
    if hasattr(template, "_fields"):
        return type(template)(*values)
    # Tuples become lists, as in PyTorch: programs assign to `batch[0]`.
    return values if isinstance(template, tuple) else _or_plain(type(template), values)


def _like_mapping(template: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    return _or_plain(type(template), values)


def _or_plain(make: Callable[[Any], Any], values: Any) -> Any:
    try:
        return make(values)
    except TypeError:  # a container whose constructor takes other arguments
        return values


def _tensor(array: np.ndarray) -> Tensor:
    dtype = from_numpy_dtype(array.dtype)
    if dtype is None:
        raise ArgumentTypeError(
            f"default_collate: tensors do not support elements of type {array.dtype}",
            fix="convert them in the data set, for example with .astype(numpy.float32)",
        )
    return from_array(array, dtype)


def _is_text(value: Any) -> bool:
    return value.dtype.kind in "SUO"


# How samples are joined, by their type; programs add their own. NumPy's texts are Python's too.
default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
    np.ndarray: collate_numpy_array_fn,
    np.generic: collate_numpy_array_fn,
    int: collate_int_fn,
    float: collate_float_fn,
}
