"""Whether gradients are tracked: `no_grad`, `enable_grad`, `inference_mode`, `set_grad_enabled`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from metaop.errors import UnsupportedError
from metaop.unified_graph.recording import modes


def _check_tangents(mode: _GradientMode) -> None:
    """Refuses that the user stops gradients where tangents are computed with their help."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    if modes.duals and not mode.mode and not name.startswith("metaop."):
        raise UnsupportedError(
            f"{type(mode).__name__} inside of forward_ad.dual_level would stop tangents too",
            fix="omit it: unpack_dual gives values without history",
        )


class _Inference(threading.local):
    """Whether this thread is in `inference_mode`."""

    is_on = False


_inference = _Inference()


class _GradientMode:
    """Sets gradient tracking: a context manager, and a decorator of functions and classes."""

    mode = True

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._previous: list[bool] = []

    def __new__(cls, function: Any = None, *args: Any) -> Any:
        self = object.__new__(cls)
        if callable(function):
            self.__init__()  # type: ignore[misc]
            return self(function)
        return self

    def _fresh(self) -> _GradientMode:
        return type(self)()

    def __enter__(self) -> None:
        _check_tangents(self)
        self._previous.append(modes.gradients)
        modes.gradients = self.mode

    def __exit__(self, *exception: object) -> None:
        modes.gradients = self._previous.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import inspect

        if inspect.isgeneratorfunction(function):
            return self._generator(function)

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return function(*args, **kwargs)

        return run

    def _generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            try:
                with self._fresh():
                    item = next(generator)
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        generator.close()
                        raise
                    except BaseException as error:
                        with self._fresh():
                            item = generator.throw(error)
                    else:
                        with self._fresh():
                            item = generator.send(sent)
            except StopIteration as stop:
                return stop.value

        return run


class no_grad(_GradientMode):
    """Nothing recorded inside tracks gradients: `with no_grad():`, `@no_grad()`, `@no_grad`.

    Raises UnsupportedError inside of `forward_ad.dual_level`.

    >>> x = metaop.ones(1, requires_grad=True)
    >>> with metaop.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    mode = False


class enable_grad(_GradientMode):
    """Gradients are tracked inside, also within `no_grad`.

    Unlike the modes that switch tracking off, it raises no UnsupportedError inside of
    `forward_ad.dual_level`.

    >>> x = metaop.ones(1, requires_grad=True)
    >>> with metaop.no_grad(), metaop.enable_grad():
    ...     (x * 2).requires_grad
    True
    """

    mode = True


class inference_mode(_GradientMode):
    """`no_grad` under the name for evaluation; `inference_mode(False)` changes nothing.

    Tensors that are made inside may be used everywhere. Raises UnsupportedError inside of
    `forward_ad.dual_level`.

    >>> with metaop.inference_mode():
    ...     metaop.is_grad_enabled()
    False
    """

    mode = False

    def __new__(cls, mode: Any = True) -> Any:
        return _GradientMode.__new__(cls, mode)

    def __enter__(self) -> None:
        super().__enter__()
        self._outer.append(_inference.is_on)
        _inference.is_on = self.is_on

    def __exit__(self, *exception: object) -> None:
        _inference.is_on = self._outer.pop()
        super().__exit__(*exception)

    def __init__(self, mode: Any = True) -> None:
        super().__init__()
        self.is_on = mode is not False
        self._outer: list[bool] = []
        self.mode = False if self.is_on else modes.gradients

    def _fresh(self) -> _GradientMode:
        return type(self)(self.is_on)


class set_grad_enabled(_GradientMode):
    """Switches tracking on or off: at once as a function, until the end as a context manager.

    Switching it off raises UnsupportedError inside of `forward_ad.dual_level`.

    >>> with metaop.set_grad_enabled(False):
    ...     metaop.is_grad_enabled()
    False
    """

    def __new__(cls, mode: bool) -> Any:
        return object.__new__(cls)

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        _check_tangents(self)
        self._previous = [modes.gradients]
        modes.gradients = self.mode

    def __enter__(self) -> None:
        modes.gradients = self.mode

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        modes.gradients = self._previous[-1]
        return super().__call__(function)

    def _fresh(self) -> _GradientMode:
        return set_grad_enabled(self.mode)


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is on.

    >>> with metaop.inference_mode():
    ...     metaop.is_inference_mode_enabled()
    True
    """
    return _inference.is_on


def is_grad_enabled() -> bool:
    """Whether gradients are tracked now.

    >>> metaop.is_grad_enabled()
    True
    """
    return modes.gradients
