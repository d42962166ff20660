"""Values that arrive later."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """A value that is set once; `wait()` blocks until it is.

    Setting it again raises InvalidStateError.

    >>> future = metaop.futures.Future()
    >>> future.set_result(3)
    >>> future.wait(), future.then(lambda done: done.value() + 1).wait()
    (3, 4)
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._inner: concurrent.futures.Future[T] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether a value or an error has been set."""
        return self._inner.done()

    def wait(self) -> T:
        """Blocks until the value is set and returns it; raises the error if one was set instead."""
        return self._inner.result()

    def value(self) -> T:
        """The value of a completed future."""
        return self._inner.result(timeout=0)

    def set_result(self, result: T) -> None:
        """Sets the value."""
        self._inner.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Sets an error, which `wait()` raises."""
        self._inner.set_exception(result)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Calls `callback(self)` once the future is done, at once if it is done already."""
        self._inner.add_done_callback(lambda _: callback(self))

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of the result of `callback(self)`."""
        following: Future[Any] = Future()

        def run(done: Future[T]) -> None:
            try:
                following.set_result(callback(done))
            except Exception as error:
                following.set_exception(error)

        self.add_done_callback(run)
        return following


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list `futures`, done once all of them are.

    If one of them failed, waiting raises its error.

    >>> future = metaop.futures.Future()
    >>> future.set_result(3)
    >>> [one.value() for one in metaop.futures.collect_all([future]).wait()]
    [3]
    """
    together: Future[list[Future[Any]]] = Future()
    missing = {id(future) for future in futures}

    def arrived(future: Future[Any]) -> None:
        missing.discard(id(future))
        if not missing and not together.done():
            together.set_result(futures)

    for future in list(futures):
        future.add_done_callback(arrived)
    if not futures:
        together.set_result(futures)
    return together


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """Waits for all futures and returns their values; raises the error of one that failed.

    >>> future = metaop.futures.Future()
    >>> future.set_result(3)
    >>> metaop.futures.wait_all([future])
    [3]
    """
    return [future.wait() for future in futures]
