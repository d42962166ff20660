"""Streams and events: work of a device runs in the order of the program, in one stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metaop.codegen.cuda.device import runtime
from metaop.errors import ArgumentError
from metaop.executor import realize
from metaop.tensor.options import DeviceLike, device_of
from metaop.unified_graph.tensor_type import Device

__all__ = ["Event", "Stream", "current_stream", "default_stream", "set_stream", "stream"]


def _finish() -> None:
    from metaop import cuda

    if cuda.is_available():
        cuda.synchronize()


class Event:
    """A point in the program's work, and when the GPU has come to it.

    Recording it starts the work before, and waits for nothing.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._marker: Any = None

    def record(self, stream: Any = None) -> None:
        """Makes this the point behind everything that the program has asked for so far."""
        realize()
        self._runtime = runtime(Device.current or 0)
        self._marker = self._runtime.marker()

    def elapsed_time(self, end_event: Event) -> float:
        """The milliseconds between this event and a later one, after waiting for both.

        Raises ArgumentError for events that have not been recorded.
        """
        if self._marker is None or end_event._marker is None:
            raise ArgumentError(
                "Both events must be recorded before calculating elapsed time.",
                fix="call record() on both",
            )
        return self._runtime.reached([self._marker, end_event._marker])[1] / 1e6

    def query(self) -> bool:
        """Whether the GPU has come to the point; True before any is recorded."""
        return self._marker is None or self._runtime.is_reached(self._marker)

    def wait(self, stream: Any = None) -> None:
        """Returns at once: streams run in order."""

    def synchronize(self) -> None:
        """Waits until the GPU has come to the point."""
        if self._marker is not None:
            self._runtime.reached([self._marker])


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
