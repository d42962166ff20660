"""Making tensors: from data, filled, ranges, triangles."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, ArgumentTypeError, ShapeError
from metaop.operators.basic import constant_fill, filled
from metaop.tensor.arguments import plain_number
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.exposed import borrow
from metaop.tensor.functions.strided_views import as_strided
from metaop.tensor.options import DeviceLike, device_of, shape_of
from metaop.tensor.promotion import Number, check_fits, default_dtype_of, defaults, fitting_call
from metaop.tensor.sharded.placing import placeable, placeable_from_host
from metaop.tensor.strides import contiguous_strides
from metaop.tensor.surface import method, public, synonym
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Shape
from metaop.unified_graph.recording import Call, record
from metaop.unified_graph.tensor_type import CPU, Device


@public()
@placeable_from_host
def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new tensor with a copy of `data`: numbers, nested sequences, NumPy arrays or tensors.

    The shape is that of the nest. Without `dtype`, Python floats get the default float type,
    integers int64, booleans bool; arrays keep their type. Raises ArgumentError for nests of
    uneven length.

    >>> metaop.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    >>> metaop.tensor(0.5, dtype=metaop.float64)
    tensor(0.5000, dtype=metaop.float64)
    """
    if isinstance(data, Tensor):
        result = data.detach().clone().to(dtype=dtype, device=device)
    else:
        result = _from_data(data, dtype, copy=True).to(device=device_of(device))
    return result.requires_grad_() if requires_grad else result


@public()
@placeable_from_host
def as_tensor(data: Any, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """`data` as a tensor, sharing memory with an array or tensor of the right type and device.

    Other data are copied, as `metaop.tensor` does; the shape is that of the data.

    >>> x = metaop.ones(2)
    >>> metaop.as_tensor(x) is x
    True
    """
    if isinstance(data, Tensor):
        return data.to(dtype=dtype, device=device)
    return _from_data(data, dtype, copy=False).to(device=device_of(device))


asarray = synonym("asarray", as_tensor)


@public()
@placeable_from_host
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor that shares the memory of a NumPy array, with its shape and type.

    Each sees what is written into the other, as long as both exist; only read-only arrays and those
    with negative strides are copied. Raises ArgumentTypeError for other objects.

    >>> import numpy as np
    >>> metaop.from_numpy(np.arange(3.0))
    tensor([0., 1., 2.], dtype=metaop.float64)
    """
    if not isinstance(ndarray, np.ndarray):
        raise ArgumentTypeError(
            f"expected np.ndarray (got {type(ndarray).__name__})", fix="use metaop.tensor(data)"
        )
    return _from_data(ndarray, None, copy=False)


@public()
@placeable_from_host
def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A 1-d tensor of the bytes of a Python buffer.

    `offset` is in bytes; `count` is the number of elements, -1 for all that follow.

    >>> metaop.frombuffer(bytearray([1, 0, 2, 0]), dtype=metaop.int16)
    tensor([1, 2], dtype=metaop.int16)
    """
    result = borrow(np.frombuffer(buffer, dtype.numpy, count, offset), dtype)
    return result.requires_grad_() if requires_grad else result


@public()
@placeable_from_host
def from_file(
    filename: str | PathLike[str],
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A 1-d tensor of the first `size` elements in a file.

    If `shared`, writes into the tensor change the file, which is made and grows as needed. Raises
    ArgumentError if the file is too short otherwise.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     name = folder + "/numbers"
    ...     _ = metaop.from_file(name, shared=True, size=2).copy_(metaop.tensor([1.5, 2.5]))
    ...     metaop.from_file(name, size=2)
    tensor([1.5000, 2.5000])
    """
    kind, count, path = dtype or defaults.dtype, size or 0, Path(filename)
    needed, found = count * kind.itemsize, path.stat().st_size if path.exists() else 0
    if found < needed and not shared:
        raise ArgumentError(
            f"from_file: {filename} has {found} bytes, and {count} elements need {needed}"
        )
    if found < needed:
        with path.open("ab") as file:
            file.truncate(needed)
    if not count:
        return zeros(0, dtype=kind, device=device, requires_grad=requires_grad)
    memory = np.memmap(filename, kind.numpy, "r+" if shared else "c", shape=(count,))
    result = borrow(memory, kind)
    result = result if device is None else result.to(device)  # type: ignore[attr-defined]
    return result.requires_grad_() if requires_grad else result


@public()
@placeable_from_host
def scalar_tensor(
    s: Number,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A 0-d tensor of a number, of the default float type unless `dtype` says otherwise.

    >>> metaop.scalar_tensor(2), metaop.scalar_tensor(2).shape
    (tensor(2.), metaop.Size([]))
    """
    kind = dtype or defaults.dtype
    return tensor(s, dtype=kind, device=device, requires_grad=requires_grad)


def _from_data(data: Any, dtype: DType | None, copy: bool) -> Tensor:
    array = data if isinstance(data, np.ndarray) else _array_of(data, dtype)
    kind = dtypes.from_numpy_dtype(array.dtype)
    if kind is None:
        raise ArgumentTypeError(
            f"can't convert data of type {array.dtype} to a tensor",
            fix="supported types are " + ", ".join(known.name for known in dtypes.ALL),
        )
    if dtype is not None and dtype is not kind:
        with np.errstate(all="ignore"):
            return from_array(array.astype(dtype.numpy), dtype)
    if array is not data:
        return from_array(array, kind)
    return from_array(array.copy(), kind) if copy else borrow(array, kind)


def _array_of(data: Any, dtype: DType | None) -> np.ndarray:
    """Nested sequences as an array of the type that PyTorch would infer."""
    if isinstance(data, (list, tuple)) and all(isinstance(item, np.ndarray) for item in data):
        # Images and the like are converted whole, not number by number.
        if len({(item.shape, item.dtype) for item in data}) == 1:
            stacked = np.stack(data)
            return stacked if dtype is None else stacked.astype(dtype.numpy, copy=False)
    leaves: list[Any] = []
    shape = _flatten(data, leaves, 0)
    if any(isinstance(value, (complex, np.complexfloating)) for value in leaves):
        kind = defaults.dtype.whole if dtype is None else dtype
        return np.array(leaves, kind.numpy).reshape(shape)
    if dtype is not None:
        if dtype.kind == "int":
            for value in leaves:
                if isinstance(value, (int, float)):
                    check_fits(value, dtype)
        # Negative integers wrap around in unsigned types.
        exact = dtype.kind == "int" and all(isinstance(value, int) for value in leaves)
        with np.errstate(all="ignore"):
            array = np.array(leaves, np.int64 if exact else None)
            return array.astype(dtype.numpy).reshape(shape)
    found: DType | None = None
    for value in leaves:
        one = dtypes.from_numpy_dtype(value.dtype) if isinstance(value, np.generic) else None
        one = one or _type_of_number(value)
        found = one if found is None else dtypes.promote(found, one)
    found = found or defaults.dtype
    try:
        return np.array(leaves, found.numpy).reshape(shape)
    except OverflowError:
        for value in leaves:
            check_fits(value, found)
        raise


def _type_of_number(value: Any) -> DType:
    if isinstance(value, (bool, int, float)):
        return default_dtype_of(value)
    raise ArgumentTypeError(
        f"could not infer the dtype of {type(value).__name__}",
        fix="pass numbers, sequences of numbers, NumPy arrays or tensors",
    )


def _flatten(data: Any, leaves: list[Any], depth: int) -> Shape:
    """Appends the numbers in nested sequences to `leaves` and returns the common shape."""
    if isinstance(data, Tensor):
        data = data.detach()._array()
    if isinstance(data, np.ndarray):
        leaves.extend(data.reshape(-1))
        return data.shape
    if isinstance(data, str) and depth:
        raise ArgumentError(
            f"too many dimensions 'str': {data!r} is no number",
            fix="give texts numbers first, as positions in a list of all of them",
        )
    if isinstance(data, (str, bytes)) or not hasattr(data, "__len__"):
        leaves.append(data)
        return ()
    inner: Shape | None = None
    for item in data:
        shape = _flatten(item, leaves, depth + 1)
        if inner is not None and shape != inner:
            raise ArgumentError(
                f"expected sequence of length {inner[0] if inner else 0} at dim {depth + 1} "
                f"(got {shape[0] if shape else 0})",
                fix="all sequences of one level need the same length",
            )
        inner = shape
    return (len(data), *(inner or ()))


def _finish(call: Call, requires_grad: bool) -> Tensor:
    result = wrap(call)
    return result.requires_grad_() if requires_grad else result


def _filled(
    shape: Shape, value: Number, dtype: DType, device: Device, requires_grad: bool = False
) -> Tensor:
    """Zeros and ones are compiled in; any other number is an argument."""
    if isinstance(dtype, type):
        dtype = dtypes.from_python_type(dtype) or dtype
    if device is CPU and value in (0, 1):
        call = record(constant_fill, (), (value, shape, dtype))
    else:
        call = record(filled, (fitting_call(value, dtype, device),), (shape, dtype))
    return _finish(call, requires_grad)


@public(out=True)
@placeable
def zeros(
    *sizes: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros of a shape: `zeros(2, 3)` or `zeros((2, 3))`.

    Its type is the default float type unless `dtype` is given. Raises ShapeError for negative
    sizes.

    >>> metaop.zeros(2, 3)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    shape = shape_of(sizes if size is None else (size,))
    return _filled(shape, 0, dtype or defaults.dtype, device_of(device), requires_grad)


@public(out=True)
@placeable
def ones(
    *sizes: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones of a shape: `ones(2, 3)` or `ones((2, 3))`.

    Its type is the default float type unless `dtype` is given. Raises ShapeError for negative
    sizes.

    >>> metaop.ones(2, dtype=metaop.int64)
    tensor([1, 1])
    """
    shape = shape_of(sizes if size is None else (size,))
    return _filled(shape, 1, dtype or defaults.dtype, device_of(device), requires_grad)


@public(out=True)
@placeable
def full(
    size: Sequence[int],
    fill_value: Number,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one number; its type is the number's unless `dtype` is given.

    `size` is its shape. Raises DTypeError for a number that the type cannot hold.

    >>> metaop.full((2, 2), 7)
    tensor([[7, 7],
            [7, 7]])
    """
    if isinstance(fill_value, Tensor):
        dtype = dtype or fill_value.dtype
        fill_value = fill_value.item()
    fill_value = plain_number(fill_value)
    dtype = dtype or default_dtype_of(fill_value)
    return _filled(shape_of((size,)), fill_value, dtype, device_of(device), requires_grad)


@public(out=True)
@placeable
def empty(
    *sizes: Any,
    size: Any = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of a shape, to be filled later: zeros, which cost nothing if never read.

    >>> metaop.empty(2, 3).fill_(0.5)
    tensor([[0.5000, 0.5000, 0.5000],
            [0.5000, 0.5000, 0.5000]])
    """
    shape = shape_of(sizes if size is None else (size,))
    return _filled(shape, 0, dtype or defaults.dtype, device_of(device), requires_grad)


@public()
@placeable
def zeros_like(input: Tensor, **options: Any) -> Tensor:
    """Zeros of the shape, dtype and device of `input`, unless the options say otherwise.

    Zeros cost nothing if they are overwritten before being read, so `empty_like` is this function.

    >>> metaop.zeros_like(metaop.tensor([1.0, 2.0]))
    tensor([0., 0.])
    """
    return _like(input, 0, **options)


@public()
@placeable
def ones_like(input: Tensor, **options: Any) -> Tensor:
    """Ones of the shape, dtype and device of `input`, unless the options say otherwise.

    >>> metaop.ones_like(metaop.tensor([1.0, 2.0]), dtype=metaop.int64)
    tensor([1, 1])
    """
    return _like(input, 1, **options)


@public()
@placeable
def full_like(input: Tensor, fill_value: Number, **options: Any) -> Tensor:
    """One number in the shape, dtype and device of `input`, unless the options say otherwise.

    >>> metaop.full_like(metaop.tensor([1.0, 2.0]), 0.5)
    tensor([0.5000, 0.5000])
    """
    return _like(input, fill_value, **options)


empty_like = synonym("empty_like", zeros_like)


def _like(
    input: Tensor,
    value: Number,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:
    kind = input.call.type
    place = kind.device if device is None else device_of(device)
    return _filled(kind.shape, value, dtype or kind.dtype, place, requires_grad)


@method()
@placeable
def new_zeros(input: Tensor, *size: Any, **options: Any) -> Tensor:
    """Zeros of another shape with the dtype and device of `input`."""
    return _new(input, size, 0, **options)


@method()
@placeable
def new_ones(input: Tensor, *size: Any, **options: Any) -> Tensor:
    """Ones of another shape with the dtype and device of `input`."""
    return _new(input, size, 1, **options)


@method()
@placeable
def new_full(input: Tensor, size: Sequence[int], fill_value: Number, **options: Any) -> Tensor:
    """One number in another shape with the dtype and device of `input`."""
    return _new(input, (size,), fill_value, **options)


new_empty = method("new_empty")(new_zeros)


@public()
def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """A tensor to be filled later, laid out with the given strides.

    `size` is its shape; strides are counted in elements, one for each dimension.

    >>> metaop.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    size, stride = shape_of((size,)), tuple(stride)
    extent = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
    if stride == contiguous_strides(size):
        return empty(size, **options)
    return as_strided(empty(extent, **options), size, stride)


@public()
def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """A tensor to be filled later, whose dimensions are in another order in memory.

    `size` is its shape, `physical_layout` the dimensions from the outermost to the innermost.
    Raises ArgumentError unless these are all dimensions, each once.

    >>> metaop.empty_permuted((2, 3, 5), (0, 2, 1)).stride()
    (15, 1, 3)
    """
    order = tuple(physical_layout)
    if sorted(order) != list(range(len(size))):
        raise ArgumentError(
            f"empty_permuted: physical_layout {order} of {len(size)} dimensions",
            fix="name each dimension once",
        )
    strides, step = [0] * len(order), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(size[dim], 1)
    return empty_strided(size, strides, **options)


@method()
def new_empty_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], **options: Any
) -> Tensor:
    """`empty_strided` with the dtype and device of `input`."""
    kind = input.call.type
    return empty_strided(size, stride, **{"dtype": kind.dtype, "device": kind.device, **options})


@method()
@placeable_from_host
def new_tensor(
    input: Tensor,
    data: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A copy of `data` with the dtype and device of `input`."""
    place = input.device if device is None else device
    return tensor(data, dtype=dtype or input.dtype, device=place, requires_grad=requires_grad)


def _new(
    input: Tensor,
    size: tuple[Any, ...],
    value: Number,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    place = input.device if device is None else device_of(device)
    return _filled(shape_of(size), value, dtype or input.dtype, place, requires_grad)


@public(in_place=True, export=False, in_place_function=True)
def fill(input: Tensor, value: Number | Tensor) -> Tensor:
    """A tensor of the shape of `input` with `value`, a number or a 0-d tensor, everywhere.

    >>> metaop.fill(metaop.zeros(2), 3)
    tensor([3., 3.])
    """
    kind = input.call.type
    if isinstance(value, Tensor):
        if value.ndim:
            raise ShapeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} "
                "dimensions.",
                fix="use copy_ to write a tensor",
            )
        return wrap(record(filled, (value.call,), (kind.shape, kind.dtype)))
    return _filled(kind.shape, value, kind.dtype, kind.device)


@public(in_place=True, export=False, in_place_function=True)
def zero(input: Tensor) -> Tensor:
    """Replaces every element by zero; the shape stays.

    >>> metaop.zero_(metaop.ones(2))
    tensor([0., 0.])
    """
    return fill(input, 0)
