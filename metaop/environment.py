"""Process-wide switches and checks, under PyTorch's names."""

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
    """Returns the model unchanged, because metaop compiles everything, for any shapes.

    Without a model it returns a decorator that changes nothing. The options are PyTorch's; they
    have no effect.

    >>> metaop.compile(metaop.relu)(metaop.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return (lambda function: function) if model is None else model


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Stores the mode. It has no effect: all kernels are deterministic, except scatters on CUDA.

    >>> metaop.use_deterministic_algorithms(True, warn_only=True)
    >>> metaop.get_deterministic_debug_mode()
    1
    >>> metaop.use_deterministic_algorithms(False)
    """
    _state["deterministic"] = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """The mode that `use_deterministic_algorithms` has set.

    >>> metaop.are_deterministic_algorithms_enabled()
    False
    """
    return _state["deterministic"] > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether `warn_only` was set by `use_deterministic_algorithms`.

    >>> metaop.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return _state["deterministic"] == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` with "default", "warn" or "error".

    Raises ArgumentError for any other value.

    >>> metaop.set_deterministic_debug_mode("default")
    """
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise ArgumentError(
                f"unknown deterministic_debug_mode {debug_mode!r}",
                fix=f"use one of {', '.join(_DEBUG_MODES)}",
            )
        debug_mode = _DEBUG_MODES.index(debug_mode)
    _state["deterministic"] = debug_mode


def get_deterministic_debug_mode() -> int:
    """The mode that `set_deterministic_debug_mode` has set: 0, 1 (warn) or 2 (error).

    >>> metaop.get_deterministic_debug_mode()
    0
    """
    return _state["deterministic"]


def set_float32_matmul_precision(precision: str) -> None:
    """Stores the precision. It has no effect: float32 products are computed in float32.

    Raises ArgumentError unless it is "highest", "high" or "medium".

    >>> metaop.set_float32_matmul_precision("highest")
    """
    if precision not in _PRECISIONS:
        raise ArgumentError(
            f"unknown precision {precision!r}", fix=f"use one of {', '.join(_PRECISIONS)}"
        )
    _state["precision"] = precision


def get_float32_matmul_precision() -> str:
    """The precision that `set_float32_matmul_precision` has set.

    >>> metaop.get_float32_matmul_precision()
    'highest'
    """
    return _state["precision"]


def get_num_threads() -> int:
    """The number of threads that share the work of a kernel, including the caller.

    It is METAOP_NUM_THREADS if that is set, otherwise the number of cores of this process.

    >>> metaop.get_num_threads() >= 1
    True
    """
    return runtime().get_num_threads()


def set_num_threads(int: int) -> None:
    """Sets the number of threads that share the work of a kernel, from the next kernel on.

    Raises ArgumentError for numbers below 1.

    >>> metaop.set_num_threads(metaop.get_num_threads())
    """
    runtime().set_num_threads(int)


def get_num_interop_threads() -> int:
    """The number of programs that run at once: one, because programs run one after the other.

    >>> metaop.get_num_interop_threads()
    1
    """
    return 1


def set_num_interop_threads(int: int) -> None:
    """Has no effect: programs run one after the other.

    >>> metaop.set_num_interop_threads(4)
    >>> metaop.get_num_interop_threads()
    1
    """


def set_flush_denormal(mode: bool) -> bool:
    """Returns False: metaop always keeps denormal numbers.

    >>> metaop.set_flush_denormal(True)
    False
    """
    return False


def set_warn_always(b: bool) -> None:
    """Stores the flag. It has no effect: Python's warning filters decide.

    >>> metaop.set_warn_always(False)
    """
    _state["warn_always"] = b


def is_warn_always_enabled() -> bool:
    """The flag that `set_warn_always` has set.

    >>> metaop.is_warn_always_enabled()
    False
    """
    return _state["warn_always"]


def typename(obj: Any) -> str:
    """The name of a tensor's type, or of any object's class with its module.

    >>> metaop.typename(metaop.ones(1)), metaop.typename([])
    ('metaop.FloatTensor', 'list')
    """
    if isinstance(obj, Tensor):
        return obj.type()  # type: ignore[attr-defined]
    kind = obj if isinstance(obj, type) else type(obj)
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _assert(condition: Any, message: Any) -> None:
    """Raises AssertionError with `message` unless the condition holds."""
    assert condition, message


def _assert_async(input: Tensor, assert_msg: str = "") -> None:
    """Raises RuntimeError unless the only element of `input` is true; it computes the value.

    `assert_msg` is the message.
    """
    if not input:
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _check(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises RuntimeError unless the condition holds."""
    if not cond:
        raise RuntimeError("Expected cond to be True" if message is None else str(message()))


def _log_api_usage_once(event: str) -> None:
    """Does nothing: metaop collects no usage statistics."""


def _set_logs(**levels: Any) -> None:
    """Does nothing: what PyTorch's compiler logs is what `metaop.inspect` shows."""


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The shape as a tensor."""
    return tensor(list(input.shape))
