"""Chooses where the pixels of a tensor image are processed: in NumPy, or by recorded operators.

A sample of a data set is plain host data. Its transforms run in NumPy: they differ from sample to
sample, so recording them would create a new program for every batch. An image that is part of a
graph (it requires a gradient, is on another device, is pending or is traced) is processed by metaop
operators. Functions on pixels are written once, with functions that both have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

import metaop
from metaop.errors import ArgumentTypeError, ShapeError
from metaop.tensor.core import Tensor, from_array
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tracing import state

Function = TypeVar("Function", bound=Callable[..., Any])

# A NumPy array or a tensor; the last dimensions are (channels, height, width).
Pixels = Any


def is_host_data(image: Tensor) -> bool:
    """Whether the image is a computed host tensor outside all graphs."""
    call = image.call
    computed = call.buffer is not None and call.type.device.type == "cpu"
    return computed and not call.requires_grad and state.trace is None


def on_pixels(function: Function) -> Function:
    """Makes a function of pixels one of tensors; the image comes first, then its options."""

    @functools.wraps(function)
    def on_tensor(image: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(image, Tensor):
            raise ArgumentTypeError(
                f"{function.__name__}: img should be a PIL Image or a Tensor, got {type(image)}",
                fix="convert it with metaop.vision.transforms.ToTensor()",
            )
        if image.ndim < 2:
            raise ShapeError(
                f"{function.__name__}: an image of shape {list(image.shape)} has no height and "
                "width",
                fix="pass (…, channels, height, width)",
            )
        if not is_host_data(image):
            return function(image, *args, **options)
        result = np.ascontiguousarray(function(image.numpy(), *args, **options))
        dtype = dtypes.from_numpy_dtype(result.dtype)
        assert dtype is not None
        return from_array(result.copy() if not result.flags.writeable else result, dtype)

    return on_tensor  # type: ignore[return-value]


def namespace(image: Pixels) -> ModuleType:
    """The module whose functions accept the image."""
    return metaop if isinstance(image, Tensor) else np


def dtype_of(image: Pixels) -> DType:
    """The element type, the same object for arrays and tensors."""
    found = image.dtype if isinstance(image, Tensor) else dtypes.from_numpy_dtype(image.dtype)
    assert found is not None
    return found


def cast(image: Pixels, dtype: DType) -> Pixels:
    """Converts the values to another dtype; floats are truncated to integers."""
    if isinstance(image, Tensor):
        return image.to(dtype)  # type: ignore[attr-defined]
    return image.astype(dtype.numpy, copy=False)


def constant(values: np.ndarray, image: Pixels) -> Pixels:
    """A host array in the image's form: unchanged, or as a tensor on the image's device."""
    if isinstance(image, Tensor):
        return metaop.as_tensor(values, device=image.device)
    return values


def working_type(image: Pixels) -> DType:
    """The float type in which interpolated values are computed."""
    dtype = dtype_of(image)
    return dtype if dtype.kind == "float" else dtypes.float32


def rounded_to(values: Pixels, dtype: DType) -> Pixels:
    """Converts floats to `dtype`; integers are rounded and clamped."""
    if dtype.kind == "float":
        return cast(values, dtype)
    xp = namespace(values)
    return cast(xp.clip(xp.round(values), dtype.lowest, dtype.highest), dtype)


def bound_of(dtype: DType) -> float:
    """The value of white."""
    return 1.0 if dtype.kind == "float" else dtype.highest


def check_channels(name: str, image: Pixels, permitted: tuple[int, ...]) -> None:
    """Refuses an image with another number of channels."""
    channels = image.shape[-3] if image.ndim > 2 else 1
    if channels not in permitted:
        raise ShapeError(
            f"{name}: Input image tensor permitted channel values are {list(permitted)}, but found "
            f"{channels} (shape {list(image.shape)})"
        )
