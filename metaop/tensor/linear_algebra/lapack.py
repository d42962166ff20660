"""LAPACK and BLAS on the host, from NumPy and SciPy, with as many threads as matrices pay for.

OpenBLAS wakes its threads for 32 rows already, and they spin for a while when they have nothing to
do. Where cores are busy, a call of 5 µs then takes 10 ms.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from metaop.codegen.llvm.runtime import runtime
from metaop.errors import MetaopError

# Smaller matrices take less time than waking threads and waiting for them.
_SMALLEST_FOR_THREADS = 256 * 256


class LinAlgError(MetaopError, RuntimeError):
    """A matrix without the property that was asked for: singular, not positive definite.

    >>> try:
    ...     metaop.linalg.inv(metaop.zeros(2, 2))
    ... except metaop.linalg.LinAlgError as error:
    ...     print(type(error).__name__)
    LinAlgError
    """


def on_host(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, which calls LAPACK or BLAS for the matrices among its arguments.

    NumPy's error of linear algebra becomes a LinAlgError that names `linalg.name`.
    """
    matrices = [one for one in arguments if isinstance(one, np.ndarray)]
    try:
        with _threads.limited(_worth(matrices)):
            return function(*arguments)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(
            f"linalg.{name}: {error}", fix="check the rank and the condition of the matrix"
        ) from None


def lapack(name: str, like: np.ndarray) -> Any:
    """A function of LAPACK for the type of an array, from SciPy, which is loaded when needed."""
    from scipy.linalg.lapack import get_lapack_funcs

    return get_lapack_funcs((name,), (like,))[0]


def blas(name: str, like: np.ndarray) -> Any:
    """The same of BLAS."""
    from scipy.linalg.blas import get_blas_funcs

    return get_blas_funcs((name,), (like,))[0]


def _worth(matrices: Iterable[np.ndarray]) -> int:
    """The threads that are worth waking for a batch of matrices, one of which runs at a time."""
    largest = max((one.shape[-1] * one.shape[-2] for one in matrices if one.ndim > 1), default=0)
    return runtime().get_num_threads() if largest >= _SMALLEST_FOR_THREADS else 1


class _Threads:
    """The threads of BLAS while this process computes matrices, perhaps in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._before: list[tuple[Any, int]] = []

    @contextmanager
    def limited(self, count: int) -> Iterator[None]:
        """Lets BLAS use so many threads in a block; after the last block, as many as before."""
        with self._lock:
            if not self._blocks:
                # SciPy brings a library of its own once it is loaded.
                libraries = _libraries("scipy.linalg" in sys.modules)
                self._before = [(library, library.get_num_threads()) for library in libraries]
            self._blocks += 1
            for library, known in self._before:
                if known != count or self._blocks > 1:
                    library.set_num_threads(count)
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                for library, known in self._before if not self._blocks else ():
                    library.set_num_threads(known)


_threads = _Threads()


@cache
def _libraries(with_scipy: bool) -> list[Any]:
    """The libraries that have threads of their own."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
