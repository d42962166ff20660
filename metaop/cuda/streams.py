"""Streams and events of GPUs: work of a device runs in the order of the program, in one stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metaop.cuda import any_device
from metaop.tensor.options import DeviceLike, device_of

__all__ = ["Event", "Stream", "current_stream", "default_stream", "set_stream", "stream"]


class Event(any_device.Event):
    """A point in the program's work, and when the GPU has come to it.

    Recording it starts the work before, and waits for nothing.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.device = device_of("cuda")


class Stream(any_device.Stream):
    """A name for the one order in which a device works."""

    def __init__(self, device: DeviceLike = None, priority: int = 0, **options: Any) -> None:
        self.device = device_of("cuda" if device is None else device)
        self.priority = priority

    def record_event(self, event: any_device.Event | None = None) -> any_device.Event:
        """A recorded event."""
        return super().record_event(event or Event())


def current_stream(device: DeviceLike = None) -> Stream:
    """The stream that work goes to."""
    return Stream(device)


default_stream = current_stream


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Accepts `with metaop.cuda.stream(s):`; the order of the program's work stays."""
    yield


def set_stream(stream: Stream) -> None:
    """Accepted; the order of the program's work stays."""
