"""Streams and events of a GPU that is none: each stream is a thread, and each is late.

What is put on a stream happens later, in order; streams are in order with each other where events,
or CUDA's rule for the default stream, say so. A program that forgets to wait reads what was there
before.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

# Seconds by which everything is late: on the default stream, and on streams of the program's own.
_LATE, _LATER = 1e-4, 2e-3
_numbers = itertools.count(1 << 20)
_here = threading.local()


class StandInError(Exception):
    """A program did what it may not do with a GPU."""


class Device:
    """A GPU by its number; as a context the current one of the thread."""

    compute_capability = "90"
    attributes = {"MultiProcessorCount": 2}

    def __init__(self, device: int | None = None) -> None:
        self.id = current_device() if device is None else int(device)
        self._previous: list[int] = []

    @property
    def pci_bus_id(self) -> str:
        """What tells the GPUs of a host apart."""
        return f"0000:{self.id:02X}:00.0"

    def use(self) -> None:
        """Makes this the current GPU of the thread."""
        _here.device = self.id

    def synchronize(self) -> None:
        """Waits for all streams of the GPU."""
        for stream in Stream.of_device(self.id):
            stream.synchronize()

    def __enter__(self) -> Device:
        self._previous.append(current_device())
        self.use()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _here.device = self._previous.pop()


def current_device() -> int:
    """The number of the current GPU of the thread."""
    return getattr(_here, "device", 0)


class Event:
    """A point in the work of a stream."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.moment = 0.0
        self._timed = not disable_timing
        self._point = threading.Event()
        self._point.set()

    @property
    def done(self) -> bool:
        """Whether all before the point has happened."""
        return self._point.is_set()

    def record(self, stream: Stream | None = None) -> None:
        """Makes the end of what the stream has now the point."""
        stream = stream or get_current_stream()
        if self._timed:
            stream.put(self._note_time)
        self._point = stream.marker()

    def _note_time(self) -> None:
        self.moment = time.perf_counter()

    def synchronize(self) -> None:
        """Waits for the point."""
        self._point.wait()


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """The milliseconds between two points that have been reached."""
    if not (start_event.done and end_event.done):
        raise StandInError("a time is asked for before its event has happened")
    return 1000 * (end_event.moment - start_event.moment)


class Stream:
    """Work of one GPU in order. An error is raised by whatever the program does next with it."""

    _all: dict[tuple[int, int], Stream] = {}

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.device_id = current_device()
        self.ptr = 0 if null else next(_numbers)
        self._joins_default = not (null or non_blocking)
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._previous: list[Stream] = []
        Stream._all[self.device_id, self.ptr] = self
        threading.Thread(target=self._run, daemon=True).start()

    @classmethod
    def of_device(cls, device: int) -> list[Stream]:
        """All streams of a GPU."""
        return [stream for (owner, _), stream in list(cls._all.items()) if owner == device]

    @classmethod
    def at(cls, device: int, ptr: int) -> Stream:
        """The stream of an address; StandInError when the GPU has none there."""
        if ptr == 0:
            return default_stream(device)
        if (device, ptr) not in cls._all:
            raise StandInError(f"invalid resource handle: GPU {device} has no stream {ptr}")
        return cls._all[device, ptr]

    def _run(self) -> None:
        late = _LATER if self.ptr else _LATE
        while True:
            work = self._work.get()
            if isinstance(work, _Marker):
                work()
            elif self._error is None:
                time.sleep(late)
                try:
                    work()
                except BaseException as error:
                    self._error = error

    def put(self, work: Callable[[], None]) -> None:
        """Adds work, which happens when all before is done."""
        self.check()
        default = Stream._all.get((self.device_id, 0))
        if self.ptr == 0:
            earlier = [s for s in Stream.of_device(self.device_id) if s._joins_default]
        else:
            earlier = [default] if self._joins_default and default is not None else []
        for stream in earlier:
            self._work.put(stream.marker().wait)
        self._work.put(work)

    def marker(self) -> threading.Event:
        """What is set when all that the stream has now is done, or has failed."""
        point = threading.Event()
        self._work.put(_Marker(point))
        return point

    def check(self) -> None:
        """Raises the error of earlier work."""
        if self._error is not None:
            raise self._error

    def wait_event(self, event: Event) -> None:
        """What comes later happens after the event."""
        self._work.put(event._point.wait)

    def record(self, event: Event | None = None) -> Event:
        """An event at the end of what the stream has now."""
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Waits for all that the stream has now."""
        point = self.marker()
        while not point.wait(0.01):
            self.check()
        self.check()

    def use(self) -> Stream:
        """Makes this the current stream of the thread on its GPU."""
        _current()[self.device_id] = self
        return self

    def __enter__(self) -> Stream:
        self._previous.append(get_current_stream(self.device_id))
        return self.use()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._previous.pop().use()


class _Marker:
    def __init__(self, point: threading.Event) -> None:
        self.point = point

    def __call__(self) -> None:
        self.point.set()


def default_stream(device: int) -> Stream:
    """The default stream of a GPU."""
    with _making:
        if (device, 0) not in Stream._all:
            with Device(device):
                Stream(null=True)
        return Stream._all[device, 0]


_making = threading.RLock()


def get_current_stream(device_id: int | None = None) -> Stream:
    """The current stream of the thread."""
    device = current_device() if device_id is None else device_id
    return _current().get(device) or default_stream(device)


def _current() -> dict[int, Any]:
    if not hasattr(_here, "streams"):
        _here.streams = {}
    found: dict[int, Any] = _here.streams
    return found
