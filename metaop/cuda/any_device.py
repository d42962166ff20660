"""Streams and events of any device: work runs in the order of the program, in one stream."""

from __future__ import annotations

from typing import Any

from metaop.codegen.cuda.device import device_count, runtime
from metaop.errors import ArgumentError
from metaop.execution.executor import realize
from metaop.tensor.options import DeviceLike, device_of
from metaop.unified_graph.tensor_type import Device


def _present(device: DeviceLike) -> Device:
    """The device, by default a GPU or else the CPU; DeviceError for a GPU that is not there."""
    if device is None:
        device = "cuda" if device_count() else "cpu"
    found = device_of(device)
    if found.type == "cuda":
        runtime(found.index or 0)
    return found


class Event:
    """A point in the program's work, and when the GPU has come to it.

    Recording it starts the work before, and waits for nothing; it raises DeviceError without a GPU.

    >>> metaop.Event("cpu").query()
    True
    """

    _marker: Any = None

    def __init__(
        self,
        device: DeviceLike = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.device = _present(device)

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
    """A name for the one order in which a device works.

    `with stream:` changes nothing, nor does `priority`. Raises DeviceError for a GPU that is not
    there.

    >>> metaop.Stream("cpu").query()
    True
    """

    def __init__(self, device: DeviceLike = None, *, priority: int = 0) -> None:
        self.device = _present(device)
        self.priority = priority

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        """Changes nothing."""

    def wait_stream(self, stream: Any) -> None:
        """Returns at once: streams run in order."""

    def wait_event(self, event: Any) -> None:
        """Returns at once: streams run in order."""

    def record_event(self, event: Event | None = None) -> Event:
        """A recorded event; DeviceError without a GPU."""
        event = event or Event(self.device)
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work is done, after waiting for it."""
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """Waits for all work."""
        from metaop import cuda

        if cuda.is_available():
            cuda.synchronize()
