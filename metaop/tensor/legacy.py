"""The typed constructors of early PyTorch: `FloatTensor(2, 3)`, `Tensor([1, 2])`, `x.new(3)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.errors import ArgumentTypeError
from metaop.tensor.attributes import fields
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty, tensor
from metaop.tensor.options import DeviceLike, default_device, device_of
from metaop.tensor.promotion import defaults
from metaop.tensor.surface import method
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.cut import recorder
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import CPU
from metaop.unified_graph.tracing import configured


def construct(dtype: DType, device: DeviceLike, arguments: tuple[Any, ...]) -> Tensor:
    """What the old constructors make: a tensor of data, of a size, or an empty one."""
    if len(arguments) == 1 and not isinstance(arguments[0], (int, np.integer)):
        data = arguments[0]
        if isinstance(data, Tensor):
            return data.to(dtype=dtype, device=device).detach()
        if type(data).__name__ == "Size":
            return empty(data, dtype=dtype, device=device)
        return tensor(data, dtype=dtype, device=device)
    return empty(*(arguments or (0,)), dtype=dtype, device=device)


class TypedTensor(type):
    """The class of `FloatTensor` and its kin: tests the dtype, and makes tensors of it."""

    dtype: DType
    place: str

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype is cls.dtype
            and instance.device.type == cls.place
        )

    def __call__(cls, *arguments: Any) -> Tensor:
        return construct(cls.dtype, cls.place, arguments)

    def __repr__(cls) -> str:
        return cls.__qualname__


_NAMES = {
    "FloatTensor": dtypes.float32,
    "DoubleTensor": dtypes.float64,
    "HalfTensor": dtypes.float16,
    "BFloat16Tensor": dtypes.bfloat16,
    "ByteTensor": dtypes.uint8,
    "CharTensor": dtypes.int8,
    "ShortTensor": dtypes.int16,
    "IntTensor": dtypes.int32,
    "LongTensor": dtypes.int64,
    "BoolTensor": dtypes.bool_,
}


def typed_tensors(place: str, prefix: str) -> dict[str, TypedTensor]:
    """The typed tensors of a device type by name, for the module called `prefix`."""
    members = {"place": place, "__module__": prefix}
    return {
        name: TypedTensor(
            name,
            (),
            {
                **members,
                "dtype": dtype,
                "__qualname__": f"{prefix}.{name}",
                "__doc__": _WORDS.format(prefix=prefix, name=name, dtype=dtype.name, place=place),
            },
        )
        for name, dtype in _NAMES.items()
    }


_WORDS = """A tensor of type {dtype} on {place}: of data, of a shape, or empty.

`isinstance` tells whether a tensor has this type and is there.

>>> {prefix}.{name}(2, 3).shape, {prefix}.{name}([1, 0]).dtype
(metaop.Size([2, 3]), metaop.{dtype})
"""


def set_default_tensor_type(t: Any) -> None:
    """Sets the default float type and device, as in `set_default_tensor_type(FloatTensor)`.

    Raises ArgumentTypeError for types that are not floating-point.

    >>> metaop.set_default_tensor_type(metaop.FloatTensor)
    """
    if isinstance(t, str):
        place = "cuda" if ".cuda." in t else "cpu"
        kind = _NAMES.get(t.rpartition(".")[2])
    else:
        place, kind = t.place, t.dtype
    if kind is None or kind.kind != "float":
        raise ArgumentTypeError(
            f"only floating-point types are supported as the default type, not {t!r}",
            fix="pass metaop.FloatTensor or metaop.DoubleTensor",
        )
    defaults.dtype = kind
    configured("the default type")
    default_device.device = CPU if place == "cpu" else device_of(place)


@method()
def new(input: Tensor, *arguments: Any) -> Tensor:
    """A tensor of data or of a size, with the type and device of `input`."""
    return construct(input.dtype, input.device, arguments)


@method()
def as_subclass(input: Tensor, cls: type) -> Any:
    """The same value as an instance of a subclass of Tensor."""
    result: Any = object.__new__(cls)
    fields(result).update(fields(input if input.requires_grad else input.detach()))
    if result._call.buffer is None:
        recorder.watch(result)  # the value may be read when no other handle is left
    return result


@method()
def record_stream(input: Tensor, stream: Any) -> None:
    """Accepted: memory is reused in the order of the program's work."""


@method()
def resize(input: Tensor, *sizes: Any) -> Tensor:
    """The elements under another shape of the same size; the old name of `reshape`."""
    return input.reshape(*sizes)


def _new_tensor(cls: type, *arguments: Any, **options: Any) -> Any:
    made = construct(defaults.dtype, options.get("device") or default_device.device, arguments)
    return made if cls is Tensor else as_subclass(made, cls)


Tensor.__new__ = staticmethod(_new_tensor)  # type: ignore[method-assign]
