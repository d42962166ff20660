"""Options that many functions share: the dimensions of a reduction, the shape and the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.errors import ShapeError
from metaop.tensor.arguments import WHOLE, is_empty, sizes, wrap_dim, wrap_dims
from metaop.unified_graph.node import Shape
from metaop.unified_graph.tensor_type import CPU, Device
from metaop.unified_graph.tracing import configured

DeviceLike = Device | str | int | None
Dimensions = int | Sequence[int] | None


def reduced_dimensions(dim: Dimensions, ndim: int) -> tuple[int, ...]:
    """The dimensions to reduce, in order: all of them for None and (); a 0-d tensor has none."""
    if dim is None or is_empty(dim):
        return tuple(range(ndim))
    if isinstance(dim, WHOLE):
        position = wrap_dim(dim, ndim)
        return (position,) if ndim else ()
    chosen = tuple(sorted(wrap_dims(dim, ndim)))
    return chosen if ndim else ()


def shape_of(arguments: tuple[Any, ...]) -> Shape:
    """The shape in `f(2, 3)` or `f((2, 3))`; ShapeError when a size is negative."""
    shape = sizes(arguments)
    for extent in shape:
        if extent < 0:
            raise ShapeError(
                f"Trying to create tensor with negative dimension {extent}: {list(shape)}",
                fix="sizes are 0 or more",
            )
    return shape


def device_of(device: DeviceLike) -> Device:
    """The device named by a string or a CUDA device number; the default device for None."""
    return default_device.device if device is None else Device(device)


def index_of(device: DeviceLike) -> int:
    """The number of the GPU that is named; that of the current one for None."""
    return (Device.current if device is None else device_of(device).index) or 0


class DefaultDevice:
    """Where new tensors are made unless the call says so (`set_default_device`)."""

    __slots__ = ("device",)

    def __init__(self) -> None:
        self.device = CPU


default_device = DefaultDevice()


def _enter(device: Device) -> Device:
    """`with device:` makes new tensors there until the block is left."""
    _left.append(default_device.device)
    set_default_device(device)
    return device


def _exit(device: Device, *exception: object) -> None:
    set_default_device(_left.pop())


_left: list[Device] = []
Device.__enter__, Device.__exit__ = _enter, _exit  # type: ignore[attr-defined]


def get_default_device() -> Device:
    """The device where new tensors are made unless the call says so.

    >>> metaop.get_default_device()
    device(type='cpu')
    """
    return default_device.device


def set_default_device(device: DeviceLike) -> None:
    """Sets the device where new tensors are made; None means the CPU.

    Raises ArgumentError for devices that there are not.

    >>> metaop.set_default_device("meta")
    >>> metaop.zeros(2).device
    device(type='meta')
    >>> metaop.set_default_device(None)
    """
    default_device.device = CPU if device is None else device_of(device)
    configured("the default device")
