"""The CPU under the names of `metaop.cuda`, for programs that serve any device.

There is one, it needs no preparation, and its work runs in the order of the program.

>>> metaop.get_device_module("cpu").device_count()
1
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metaop.execution.executor import realize
from metaop.tensor.options import DeviceLike

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "stream",
    "synchronize",
]


def is_available() -> bool:
    """Always."""
    return True


is_initialized = is_available


def device_count() -> int:
    """The number of CPUs, not of their cores: 1."""
    return 1


def current_device() -> str:
    """Always "cpu"."""
    return "cpu"


def set_device(device: DeviceLike) -> None:
    """Does nothing: there is one CPU."""


def synchronize(device: DeviceLike = None) -> None:
    """Computes everything that the program has asked for so far; there is one `device`."""
    realize()


class Stream:
    """A name for the one order in which the CPU works; a `priority` changes nothing."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Returns at once: work runs in order."""

    def wait_event(self, event: Any) -> None:
        """Returns at once: work runs in order."""

    def record_event(self) -> None:
        """Does nothing."""


class Event:
    """A point in the program's work, which the CPU has always come to."""

    def record(self, stream: Any = None) -> None:
        """Does nothing."""

    def query(self) -> bool:
        """Always True."""
        return True

    def wait(self, stream: Any = None) -> None:
        """Returns at once: work runs in order."""

    def synchronize(self) -> None:
        """Returns at once."""


_current = [Stream()]


def current_stream(device: DeviceLike = None) -> Stream:
    """The innermost stream that `with stream(...)` names; there is one `device`."""
    return _current[-1]


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Lets `current_stream` return a stream; the order of the program's work stays."""
    _current.append(_current[-1] if stream is None else stream)
    try:
        yield
    finally:
        _current.pop()


StreamContext = stream
