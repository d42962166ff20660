"""Switches and checks of a whole program, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.codegen.llvm.runtime import runtime
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import tensor

__all__ = [
    "are_deterministic_algorithms_enabled",
    "compile",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_num_threads",
    "set_warn_always",
    "typename",
    "use_deterministic_algorithms",
]

_PRECISIONS = ("highest", "high", "medium")
_DEBUG_MODES = ("default", "warn", "error")
_state: dict[str, Any] = {"precision": "highest", "deterministic": 0, "warn_always": False}


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The model itself: whatever runs in metaop is compiled."""
    return (lambda function: function) if model is None else model


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted: results are the same in every run, whatever is set."""
    _state["deterministic"] = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` has set."""
    return _state["deterministic"] > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether `warn_only` was set."""
    return _state["deterministic"] == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` with "default", "warn" or "error"."""
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise ArgumentError(
                f"unknown deterministic_debug_mode {debug_mode!r}",
                fix=f"use one of {', '.join(_DEBUG_MODES)}",
            )
        debug_mode = _DEBUG_MODES.index(debug_mode)
    _state["deterministic"] = debug_mode


def get_deterministic_debug_mode() -> int:
    """0, 1 (warn) or 2 (error)."""
    return _state["deterministic"]


def set_float32_matmul_precision(precision: str) -> None:
    """Accepted: products of float32 matrices are computed in float32."""
    if precision not in _PRECISIONS:
        raise ArgumentError(
            f"unknown precision {precision!r}", fix=f"use one of {', '.join(_PRECISIONS)}"
        )
    _state["precision"] = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` has set."""
    return _state["precision"]


def get_num_threads() -> int:
    """How many threads share the work of a kernel, the caller included.

    METAOP_NUM_THREADS sets it from outside; else it is the number of cores of this process.
    """
    return runtime().get_num_threads()


def set_num_threads(int: int) -> None:
    """Sets how many threads share the work of a kernel, from the next one on."""
    runtime().set_num_threads(int)


def get_num_interop_threads() -> int:
    """One: programs run one after the other."""
    return 1


def set_num_interop_threads(int: int) -> None:
    """Accepted: programs run one after the other."""


def set_flush_denormal(mode: bool) -> bool:
    """False: numbers near zero are computed exactly."""
    return False


def set_warn_always(b: bool) -> None:
    """Accepted; Python's warning filters decide."""
    _state["warn_always"] = b


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` has set."""
    return _state["warn_always"]


def typename(obj: Any) -> str:
    """The name of a tensor's type, or of any object's class with its module."""
    if isinstance(obj, Tensor):
        return obj.type()  # type: ignore[attr-defined]
    kind = obj if isinstance(obj, type) else type(obj)
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _assert(condition: Any, message: Any) -> None:
    """An assertion that tracing keeps."""
    assert condition, message


def _check(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises RuntimeError unless the condition holds."""
    if not cond:
        raise RuntimeError("Expected cond to be True" if message is None else str(message()))


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The shape as a tensor."""
    return tensor(list(input.shape))
