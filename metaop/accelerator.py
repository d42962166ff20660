"""Device-independent access to the accelerator of this machine: GPUs through CUDA, or none."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any

from metaop import cuda
from metaop.errors import DeviceError
from metaop.tensor.options import DeviceLike
from metaop.unified_graph.tensor_type import Device

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "device_count",
    "device_index",
    "get_device_module",
    "is_available",
    "set_device_idx",
    "set_device_index",
    "synchronize",
]

device_count = cuda.device_count
is_available = cuda.is_available


def current_accelerator(check_available: bool = False) -> Device | None:
    """The device type of the accelerator, or None without one."""
    return Device("cuda") if is_available() else None


def current_device_index() -> int:
    """The index of the device that "cuda" stands for."""
    return cuda.current_device()


def set_device_index(device: DeviceLike, /) -> None:
    """Sets the device that "cuda" stands for; see `metaop.cuda.set_device`."""
    cuda.set_device(device)


def synchronize(device: DeviceLike = None, /) -> None:
    """Waits until a device has finished all work launched on it."""
    if is_available():
        cuda.synchronize(device)


def get_device_module(device: Device | str | None = None) -> ModuleType:
    """The module of the functions of a device, by default the accelerator or else the CPU.

    Raises DeviceError for devices without one.

    >>> metaop.get_device_module("cuda:0") is metaop.cuda
    True
    """
    if device is None:
        device = current_accelerator() or "cpu"
    kind = str(device).partition(":")[0]
    if not isinstance(device, (Device, str)) or kind not in ("cpu", "cuda", "mps", "xpu"):
        raise DeviceError(
            f"Device {device!r} does not have a corresponding module",
            fix='use "cpu", "cuda", "mps", "xpu", a device of these, or None',
        )
    return import_module(f"metaop.{kind}")


class device_index:
    """`with device_index(k):` selects a device for the block; None selects nothing."""

    def __init__(self, device: int | None, /) -> None:
        self._context = nullcontext() if device is None else cuda.device(device)

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)


current_device_idx = current_device_index
set_device_idx = set_device_index
