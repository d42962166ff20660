"""Element types and devices of tensors, conversions between them, and facts about a tensor."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from metaop.errors import ArgumentTypeError
from metaop.operators.basic import convert
from metaop.tensor import devices
from metaop.tensor.arguments import sizes, wrap_dim
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.options import default_device, device_of
from metaop.tensor.promotion import defaults
from metaop.tensor.surface import method, public
from metaop.tensor.writing import in_place
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import record
from metaop.unified_graph.tensor_type import Device
from metaop.unified_graph.tracing import configured


@method()
def to(
    input: Tensor,
    *args: Any,
    dtype: DType | None = None,
    device: Any = None,
    non_blocking: builtins.bool = False,
    copy: builtins.bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`input` with another dtype or on another device; `input` itself if both match.

    Accepts what PyTorch's `to` accepts: a dtype, a device, a device and a dtype, another tensor.
    """
    flags: list[builtins.bool] = []
    for argument in args:
        if isinstance(argument, DType):
            dtype = argument
        elif isinstance(argument, Tensor):
            dtype, device = argument.dtype, argument.device
        elif named := dtypes.from_python_type(argument):
            dtype = named
        elif isinstance(argument, builtins.bool):
            flags.append(argument)
        elif isinstance(argument, (Device, str, builtins.int)):
            device = argument
        elif argument is not None:
            raise ArgumentTypeError(
                f"to() received {builtins.type(argument).__name__}",
                fix="pass a dtype, a device or a tensor",
            )
    # Positional flags are non_blocking and then copy.
    non_blocking, copy = (a or b for a, b in zip((non_blocking, copy), (*flags, False, False)))
    call = input.call
    result = input
    if dtype is not None and dtype is not call.type.dtype:
        result = wrap(record(convert, (call,), (dtype,)))
    if device is not None:
        result = devices.moved(result, device_of(device), non_blocking)
    return result.clone() if copy and result is input else result


def _converter(dtype: DType, name: str) -> Any:
    def function(input: Tensor, memory_format: Any = None) -> Tensor:
        call = input.call
        if call.type.dtype is dtype:
            return input
        return wrap(record(convert, (call,), (dtype,)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The values as {dtype.name}."
    return function


bool = method()(_converter(dtypes.bool_, "bool"))
byte = method()(_converter(dtypes.uint8, "byte"))
char = method()(_converter(dtypes.int8, "char"))
short = method()(_converter(dtypes.int16, "short"))
int = method()(_converter(dtypes.int32, "int"))
long = method()(_converter(dtypes.int64, "long"))
half = method()(_converter(dtypes.float16, "half"))
bfloat16 = method()(_converter(dtypes.bfloat16, "bfloat16"))
float = method()(_converter(dtypes.float32, "float"))
double = method()(_converter(dtypes.float64, "double"))
cfloat = method()(_converter(dtypes.complex64, "cfloat"))
cdouble = method()(_converter(dtypes.complex128, "cdouble"))


_TYPE_NAMES = {
    dtypes.bool_: "Bool",
    dtypes.uint8: "Byte",
    dtypes.int8: "Char",
    dtypes.int16: "Short",
    dtypes.int32: "Int",
    dtypes.int64: "Long",
    dtypes.float16: "Half",
    dtypes.bfloat16: "BFloat16",
    dtypes.float32: "Float",
    dtypes.float64: "Double",
    dtypes.complex64: "ComplexFloat",
    dtypes.complex128: "ComplexDouble",
}
_TYPES_BY_NAME = {f"{name}Tensor": dtype for dtype, name in _TYPE_NAMES.items()}


@method()
def type(input: Tensor, dtype: Any = None, non_blocking: Any = False) -> Any:
    """The name of the tensor's type ("metaop.FloatTensor"), or the values as another type."""
    if dtype is None:
        place = "" if input.device.type == "cpu" else f"{input.device.type}."
        return f"metaop.{place}{_TYPE_NAMES[input.dtype]}Tensor"
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        if name not in _TYPES_BY_NAME:
            raise ArgumentTypeError(f"invalid type: {dtype!r}", fix="pass a dtype")
        return to(input, _TYPES_BY_NAME[name], device="cuda" if ".cuda." in dtype else None)
    if dtype is Tensor:
        return to(input, defaults.dtype, device=default_device.device)
    # FloatTensor and the like name a dtype and a kind of device.
    return to(input, getattr(dtype, "dtype", dtype), device=getattr(dtype, "place", None))


@method()
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """The values converted to the dtype of `other`."""
    return to(input, other)


@method()
def cpu(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor on the CPU."""
    return to(input, device="cpu")


@method()
def cuda(input: Tensor, device: Any = None, non_blocking: Any = False) -> Tensor:
    """The tensor on a CUDA device, the first one unless `device` says otherwise."""
    place = "cuda" if device is None else device
    return to(input, device=place, non_blocking=builtins.bool(non_blocking))


@method()
def size(input: Tensor, dim: Any = None) -> Any:
    """The shape, or the extent of one dimension."""
    if dim is None:
        return input.shape
    return input.shape[wrap_dim(dim, input.ndim)]


@public(method=True)
def numel(input: Tensor) -> builtins.int:
    """The number of elements: the product of all sizes.

    >>> metaop.numel(metaop.zeros(2, 3))
    6
    """
    return input.call.type.size


@method()
def dim(input: Tensor) -> builtins.int:
    """The number of dimensions."""
    return input.ndim


@method()
def element_size(input: Tensor) -> builtins.int:
    """The size of one element in bytes."""
    return input.dtype.itemsize


@public(method=True)
def is_floating_point(input: Tensor) -> builtins.bool:
    """Whether the elements are floating-point numbers.

    >>> metaop.is_floating_point(metaop.ones(1)), metaop.is_floating_point(metaop.tensor([1]))
    (True, False)
    """
    return input.dtype.kind == "float"


@public(method=True)
def is_complex(input: Tensor) -> builtins.bool:
    """Whether the elements are complex numbers.

    >>> x = metaop.ones(1)
    >>> metaop.is_complex(x), metaop.is_complex(metaop.complex(x, x))
    (False, True)
    """
    return input.dtype.is_complex


@public(method=True)
def is_signed(input: Tensor) -> builtins.bool:
    """Whether the dtype has negative numbers, unlike bool and unsigned integers.

    >>> metaop.tensor([1]).is_signed(), metaop.tensor([1], dtype=metaop.uint8).is_signed()
    (True, False)
    """
    return input.dtype.signed


@public(method=True)
def is_nonzero(input: Tensor) -> builtins.bool:
    """Whether the single element is nonzero; it is read.

    Raises ShapeError for any other number of elements.

    >>> metaop.is_nonzero(metaop.tensor([0.5]))
    True
    """
    return input.item() != 0


@public()
def is_tensor(obj: Any) -> builtins.bool:
    """Whether `obj` is a metaop tensor.

    >>> metaop.is_tensor(metaop.ones(1)), metaop.is_tensor([1.0])
    (True, False)
    """
    return isinstance(obj, Tensor) or getattr(obj, "is_sparse", False) is True


@public(method=True)
def is_conj(input: Tensor) -> builtins.bool:
    """False: no tensor is only marked as conjugated or negated, because elements are computed.

    >>> metaop.is_conj(metaop.ones(2))
    False
    """
    return False


is_neg = method("is_neg")(is_conj)
nelement = method("nelement")(numel)
ndimension = method("ndimension")(dim)


@method()
def copy_(input: Tensor, src: Any, non_blocking: Any = False) -> Tensor:
    """Writes the values of `src` into the tensor, converted, broadcast and moved to its device.

    `src` is a tensor or a number. Raises ArgumentTypeError for others.
    """
    if isinstance(src, (builtins.bool, builtins.int, builtins.float, complex, np.generic)):
        src = from_array(np.asarray(src).astype(input.dtype.numpy), input.dtype)
    if not isinstance(src, Tensor):
        raise ArgumentTypeError(
            f"copy_ takes a tensor or a number, not {builtins.type(src).__name__}",
            fix="make it a tensor: metaop.tensor(...)",
        )
    return in_place(input, _copied, src.to(input.device, input.dtype))


def _copied(input: Tensor, source: Tensor) -> Tensor:
    return source.expand(input.shape) if source.shape != input.shape else source


_copied.__name__ = "copy"


@public()
def can_cast(from_: DType, to: DType) -> builtins.bool:
    """Whether a value of one type may be written into a tensor of the other.

    It may not if the kind is lower: floats are not written into integers. Sizes do not matter.

    >>> metaop.can_cast(metaop.float64, metaop.float16)
    True
    >>> metaop.can_cast(metaop.float32, metaop.int64)
    False
    """
    return dtypes.kind_rank(from_) <= dtypes.kind_rank(to)


@public()
def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest type that both types can be converted to.

    Floats are of a higher kind than integers, whatever their size; uint8 and int8 need int16.

    >>> metaop.promote_types(metaop.int32, metaop.float16)
    metaop.float16
    >>> metaop.promote_types(metaop.uint8, metaop.int8)
    metaop.int16
    """
    return dtypes.promote(type1, type2)


def get_default_dtype() -> DType:
    """The type of float tensors made without a dtype.

    >>> metaop.get_default_dtype()
    metaop.float32
    """
    return defaults.dtype


def set_default_dtype(d: DType) -> None:
    """Sets the type of float tensors made without a dtype.

    Raises ArgumentTypeError for types that are not floating-point.

    >>> metaop.set_default_dtype(metaop.float64)
    >>> metaop.tensor(0.5).dtype
    metaop.float64
    >>> metaop.set_default_dtype(metaop.float32)
    """
    if not isinstance(d, DType) or d.kind != "float":
        raise ArgumentTypeError(
            "only floating-point types are supported as the default type", fix="pass a float dtype"
        )
    defaults.dtype = d
    configured("the default dtype")


def array(input: Tensor, dtype: Any = None, copy: Any = None) -> np.ndarray:
    """The result of `numpy.asarray(tensor)`."""
    values = input.numpy()
    if dtype is not None and values.dtype != dtype:
        return values.astype(dtype)
    return values.copy() if copy else values


def wrapped(
    input: Tensor, array: np.ndarray, context: Any = None, return_scalar: builtins.bool = False
) -> Tensor | np.ndarray:
    """The result of a NumPy function of the tensor, as a tensor if its type allows."""
    dtype = dtypes.from_numpy_dtype(array.dtype)
    return array if dtype is None else from_array(np.asarray(array), dtype)


@public(method=True)
def get_device(input: Tensor) -> builtins.int:
    """The number of the CUDA device, -1 on the CPU.

    >>> metaop.get_device(metaop.ones(1))
    -1
    """
    return -1 if input.device.index is None else input.device.index


@method()
def pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """A copy in memory that GPUs read by themselves, so that `to(…, non_blocking=True)` returns.

    Without a GPU, the tensor itself. Raises DeviceError for tensors that are not on the CPU.
    """
    return devices.pinned(input)


@method()
def is_pinned(input: Tensor, device: Any = None) -> builtins.bool:
    """Whether the tensor lies in memory that GPUs read by themselves."""
    return devices.is_pinned(input)


@public(method=True)
def is_same_size(input: Tensor, other: Tensor) -> builtins.bool:
    """Whether two tensors have the same shape.

    >>> metaop.is_same_size(metaop.ones(2, 1), metaop.ones(2))
    False
    """
    return input.shape == other.shape


@method()
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """The sum over the dimensions along which `size` would be broadcast to this shape."""
    target = sizes(size)
    if not target:
        return input.sum()
    extra = input.ndim - len(target)
    dims = [k for k in range(input.ndim) if k < extra or target[k - extra] != input.shape[k]]
    return input.sum(dims, True).reshape(target) if dims else input
