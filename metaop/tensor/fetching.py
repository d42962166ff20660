"""Values that are handed over when they are there, while Python goes on: `fetch`.

Asking computes nothing: what is pending comes with the next cut, as all that is visible. A thread
waits for values that other threads compute, copies them and calls the callbacks, one after another.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from metaop.errors import ArgumentTypeError, CaptureError, UnsupportedError
from metaop.execution.executor import awaited, realize
from metaop.forking import register_at_fork
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.shared_storage import is_exposed
from metaop.tensor.surface import public
from metaop.unified_graph.tracing import state

Callback = Callable[[Any], object]


class _Fetched(Future):  # type: ignore[type-arg]
    """The values of some tensors, as they were when they were asked for.

    Whoever waits for them has them computed.
    """

    def __init__(self, held: Sequence[Tensor], assemble: Callable[[list[Tensor]], Any]) -> None:
        super().__init__()
        self._held = list(held)
        self._assemble = assemble
        self._lock = threading.RLock()

    def result(self, timeout: float | None = None) -> Any:
        """The values: tensors of their own on the host, nested as those that were asked for.

        Raises TimeoutError after `timeout` seconds, and what computing the values raised.
        """
        self._hurry()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What computing the values raised, or None."""
        self._hurry()
        return super().exception(timeout)

    def _hurry(self) -> None:
        try:
            pending = [one._call for one in self._held if one._call.is_pending]
            if pending:
                realize(*pending)
        except Exception as error:
            self._finish(error)
        if _fetcher.is_own_thread():
            self.deliver()

    def is_there(self) -> bool:
        """Whether all values have been computed, or are on their way; then they are delivered."""
        if self.done():
            return True
        if any(one._call.is_pending for one in list(self._held)):
            return False
        _fetcher.deliver(self)
        return True

    def deliver(self) -> None:
        """Copies the values and sets the result, unless that has been done."""
        try:
            found = [_copy(one) for one in list(self._held)]
        except Exception as error:
            self._finish(error)
        else:
            self._finish(found)

    def _finish(self, found: list[Tensor] | Exception) -> None:
        with self._lock:
            if self.done():
                return
            self._held.clear()
            if isinstance(found, Exception):
                self.set_exception(found)
            else:
                self.set_result(self._assemble(found))


class _Fetcher:
    """The thread that copies values and calls callbacks."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Fetched | threading.Event] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def is_own_thread(self) -> bool:
        return self._thread is threading.current_thread()

    def deliver(self, fetched: _Fetched | threading.Event) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="metaop fetch", daemon=True)
                self._thread.start()
        self._queue.put(fetched)

    def finish(self) -> None:
        """Waits until all that was asked for has been handed over."""
        if awaited:
            realize()
        if self._thread is not None:
            done = threading.Event()
            self.deliver(done)
            done.wait()

    def _work(self) -> None:
        while True:
            fetched = self._queue.get()
            if isinstance(fetched, threading.Event):
                fetched.set()
            else:
                fetched.deliver()
            del fetched


_fetcher = _Fetcher()


@public(method=True)
def fetch(input: Any, callback: Callback | None = None) -> Future[Any]:
    """A future of the values that tensors have now; Python goes on meanwhile.

    `input` is a tensor, or a nest of tensors in tuples, lists and dicts. `result()` gives tensors
    of their own in the memory of the host, nested alike, without a gradient. What is pending is
    computed by the next step, read or `result()`, whichever comes first. With `callback`, a thread
    calls `callback(values)`, one callback after another, and logs what it raises. The process
    waits for all of them at its end.

    Raises ArgumentTypeError for anything but tensors, CaptureError in a captured function, and
    UnsupportedError for global tensors.

    >>> metaop.fetch({"loss": metaop.ones(2).sum()}).result()
    {'loss': tensor(2.)}
    """
    from metaop.trees import tree_flatten, tree_unflatten

    if state.trace is not None:
        raise CaptureError(
            "a captured function fetches a value", fix="return the tensor, and fetch it outside"
        )
    leaves, structure = tree_flatten(input)
    held = [_as_it_is(leaf) for leaf in leaves]
    fetched = _Fetched(held, lambda values: tree_unflatten(values, structure))
    if callback is not None:
        fetched.add_done_callback(lambda done: callback(done.result()))
    if not fetched.is_there():
        awaited.append(fetched.is_there)
        fetched.is_there()  # another thread may have computed it in between
    return fetched


def _as_it_is(leaf: Any) -> Tensor:
    """A tensor that keeps the current value, whatever is written afterwards."""
    if not isinstance(leaf, Tensor):
        raise ArgumentTypeError(
            f"fetch: {type(leaf).__name__} is not a tensor", fix="pass tensors, or nests of them"
        )
    if leaf.device.placement is not None:
        raise UnsupportedError("fetch of a global tensor", fix="fetch tensor.to_local()")
    call = leaf.call
    return leaf.detach().clone() if is_exposed(call) else wrap(call)


def _copy(held: Tensor) -> Tensor:
    return from_array(held._array().copy(), held._call.type.dtype)


def _in_child() -> None:
    global _fetcher
    _fetcher = _Fetcher()
    awaited.clear()


register_at_fork(after_in_child=_in_child)
atexit.register(lambda: _fetcher.finish())
