"""The words of the kernel language, for import by users.

A kernel may also use arithmetic, comparisons, `if`, `for … in range(…)`, the shapes and types of
its parameters, and every function of the elementwise tables (`metaop.exp`, `math.sqrt`, `max`, …).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from metaop.elementwise.functions import FUNCTIONS
from metaop.errors import KernelError


def task() -> int:
    """The index of the current task: 0 … tasks()-1."""
    raise _outside("task()")


def tasks() -> int:
    """The number of tasks of the kernel."""
    raise _outside("tasks()")


def lanes(extent: int) -> Iterator[int]:
    """A loop whose iterations run in parallel: vector lanes of a CPU, threads of a GPU block.

    Iterations must be independent, except that they may accumulate a sum, product, minimum or
    maximum in a variable: `total += x[i]`, `largest = max(largest, x[i])`.
    """
    raise _outside("lanes()")


def scratch(shape: Any, dtype: Any) -> Any:
    """Memory private to a task: on the stack or in the cache, or a GPU block's shared memory."""
    raise _outside("scratch()")


def shared(shape: Any, dtype: Any) -> Any:
    """Memory that all tasks share during the kernel; use a barrier between writes and reads."""
    raise _outside("shared()")


def copy(target: Any, source: Any) -> None:
    """Copies all elements between memories of equal shape, in any spaces."""
    raise _outside("copy()")


def fill(target: Any, value: Any) -> None:
    """Writes one value to all elements."""
    raise _outside("fill()")


def barrier() -> None:
    """Waits until all tasks have reached this barrier."""
    raise _outside("barrier()")


def cast(value: Any, dtype: Any) -> Any:
    """The value converted to another type."""
    raise _outside("cast()")


def atomic_add(target: Any, index: Any, value: Any) -> None:
    """Atomically computes `target[index] += value`."""
    raise _outside("atomic_add()")


def atomic_max(target: Any, index: Any, value: Any) -> None:
    """Atomically computes `target[index] = max(target[index], value)`."""
    raise _outside("atomic_max()")


def atomic_min(target: Any, index: Any, value: Any) -> None:
    """Atomically computes `target[index] = min(target[index], value)`."""
    raise _outside("atomic_min()")


def _outside(name: str) -> KernelError:
    return KernelError(
        f"{name} was called outside a kernel",
        fix="call it in a function that is decorated with @metaop.kernel",
    )


WORDS: dict[Callable[..., Any], str] = {
    word: word.__name__
    for word in (
        task, tasks, lanes, scratch, shared, copy, fill, barrier, cast, atomic_add, atomic_max,
        atomic_min,
    )
}  # fmt: skip
_BUILTINS: dict[Any, str] = {range: "range", max: "maximum", min: "minimum", abs: "abs"}
_RENAMED = {"fabs": "abs", "pow": "pow", "remainder": ""}


def word_for(function: Any) -> str | None:
    """The word or the table function that a Python function denotes in a kernel, or None."""
    if isinstance(function, ModuleType) or not callable(function):
        return None
    try:
        found = WORDS.get(function) or _BUILTINS.get(function)
    except TypeError:
        return None
    if found is not None:
        return found
    name = getattr(function, "__name__", "")
    module = getattr(function, "__module__", None) or ""
    if module == math.__name__:
        name = _RENAMED.get(name, name)
    elif module.split(".")[0] != __name__.split(".")[0]:
        return None
    return name if name in FUNCTIONS else None
