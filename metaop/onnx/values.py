"""The values that pass between operators: tensors, arrays on the host, sequences, nothing.

A value is an array on the host if it depends only on the file and on sizes (the shape of a Reshape,
the bounds of a Slice), or if tensors do not have its dtype: uint16, uint32, uint64, strings, and
types of 8 bits and less other than int8, uint8 and bool. All others are tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from metaop.errors import ArgumentTypeError, UnsupportedError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import Device

# A host array as a parameter: it determines shapes, or its operator has no compiled form.
Host = np.ndarray


def has_tensor_type(array: np.ndarray) -> bool:
    """Whether tensors have the element type of an array."""
    return array.dtype.kind != "c" and dtypes.from_numpy_dtype(array.dtype) is not None


def to_tensor(value: Any, device: Device | None = None) -> Any:
    """Converts a value to a tensor, also within sequences; None stays None.

    Raises UnsupportedError for numbers of a type that tensors do not have.
    """
    if isinstance(value, list):
        return [to_tensor(one, device) for one in value]
    if value is None or isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if not has_tensor_type(array):
        raise UnsupportedError(
            f"tensors of {array.dtype} are not supported here",
            fix="Cast to a type that metaop has before this operator",
        )
    tensor = from_numpy(array.copy() if not array.flags.writeable else array)
    return tensor if device is None else tensor.to(device=device)


def to_host(value: Any) -> Any:
    """Converts a value to an array, also within sequences; computes tensors. None stays None."""
    if isinstance(value, list):
        return [to_host(one) for one in value]
    return value.numpy(force=True) if isinstance(value, Tensor) else value


def result(value: Any, device: Device | None = None) -> Any:
    """The result of a network for a value: a tensor if tensors have its dtype."""
    if isinstance(value, list):
        return [result(one, device) for one in value]
    if isinstance(value, (np.generic, str)):
        value = np.asarray(value, object if isinstance(value, str) else None)
    if isinstance(value, np.ndarray) and has_tensor_type(value):
        return to_tensor(value, device)
    return value


def given(value: Any, name: str, element_type: int = TensorProto.UNDEFINED) -> Any:
    """An argument of a network as a value; Python numbers stay on the host.

    `element_type` is that of the input, which a Python number gets.

    Raises ArgumentTypeError for anything but tensors, arrays, numbers, strings and sequences.
    """
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, (list, tuple)):
        return [given(one, name) for one in value]
    if isinstance(value, str):
        return np.array(value, object)
    if isinstance(value, (bool, int, float)):
        known = element_type != TensorProto.UNDEFINED
        return np.array(value, numpy_type(element_type) if known else None)
    if isinstance(value, (np.generic, np.ndarray)):
        array = np.asarray(value)
        array = array.astype(object) if array.dtype.kind in "US" else array
        return to_tensor(array) if has_tensor_type(array) else array
    raise ArgumentTypeError(
        f"input {name!r} is a {type(value).__name__}, not a tensor",
        fix="pass tensors or arrays, and lists of them for sequences",
    )


def _known_types() -> dict[int, np.dtype]:
    found = {}
    for number in TensorProto.DataType.values():
        if number != TensorProto.UNDEFINED:
            found[number] = np.dtype(helper.tensor_dtype_to_np_dtype(number))
    return found


# Looked up here while a network runs: captured functions run nothing of other packages.
_NUMPY_TYPES = _known_types()


def numpy_type(element_type: int) -> np.dtype:
    """The NumPy type of a number in `TensorProto.DataType`."""
    if element_type not in _NUMPY_TYPES:
        raise UnsupportedError(f"there is no element type {element_type} in ONNX")
    return _NUMPY_TYPES[element_type]


def tensor_type(element_type: int) -> DType | None:
    """The dtype of tensors for a number in `TensorProto.DataType`, None if there is none."""
    found = numpy_type(element_type)
    return None if found.kind == "c" else dtypes.from_numpy_dtype(found)


def element_type(dtype: DType) -> int:
    """The number in `TensorProto.DataType` of a type of tensors."""
    return helper.np_dtype_to_tensor_dtype(dtype.numpy)


def integers(value: Any) -> tuple[int, ...]:
    """A list of integers: an attribute, or the values of an input."""
    return tuple(int(one) for one in np.atleast_1d(to_host(value)).ravel())
