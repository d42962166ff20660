"""The mode of PyTorch for threads of backward, of which there is one here."""

from __future__ import annotations

from contextlib import ContextDecorator

from metaop.errors import ArgumentTypeError


class set_multithreading_enabled(ContextDecorator):
    """Whether backward may run on several threads: a context manager, a decorator, or a call.

    Backward is recorded on the calling thread, whatever `mode` is, and all kernels share the
    threads of `metaop.set_num_threads`. Raises ArgumentTypeError unless `mode` is a bool.

    >>> x = metaop.ones(2, requires_grad=True)
    >>> with metaop.autograd.set_multithreading_enabled(False):
    ...     x.sum().backward()
    """

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise ArgumentTypeError(
                f"set_multithreading_enabled takes a bool, not {type(mode).__name__}",
                fix="pass True or False",
            )
        self.mode = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass

    def clone(self) -> set_multithreading_enabled:
        """Another one with the same mode."""
        return type(self)(self.mode)
