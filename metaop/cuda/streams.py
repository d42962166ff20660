"""Streams and events: work of a device runs in the order of the program, in one stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metaop.tensor.options import DeviceLike, device_of

__all__ = ["Event", "Stream", "current_stream", "default_stream", "set_stream", "stream"]


def _finish() -> None:
    from metaop import cuda

    if cuda.is_available():
        cuda.synchronize()


class Event:
    """A point in the program's work; recording it waits for the work before."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._moment = 0.0

    def record(self, stream: Any = None) -> None:
        """Notes the moment when everything before is done."""
        _finish()
        self._moment = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """The milliseconds from this event to a later one."""
        return (end_event._moment - self._moment) * 1000

    def query(self) -> bool:
        """Whether the work before is done: it is, since `record` waits."""
        return True

    def wait(self, stream: Any = None) -> None:
        """Returns at once: streams run in order."""

    def synchronize(self) -> None:
        """Waits for the work before."""
        _finish()


class Stream:
    """A name for the one order in which a device works."""

    def __init__(self, device: DeviceLike = None, priority: int = 0, **options: Any) -> None:
        self.device = device_of("cuda" if device is None else device)
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Returns at once: streams run in order."""

    def wait_event(self, event: Any) -> None:
        """Returns at once: streams run in order."""

    def record_event(self, event: Event | None = None) -> Event:
        """A recorded event."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work is done, after waiting for it."""
        _finish()
        return True

    def synchronize(self) -> None:
        """Waits for all work."""
        _finish()


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
