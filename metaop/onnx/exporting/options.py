"""Options of an export under PyTorch's names."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from metaop.errors import UnsupportedError


class TrainingMode(enum.IntEnum):
    """The mode in which a network is exported; only EVAL is supported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.IntEnum):
    """The operators that a file may contain; only ONNX is supported."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class _Exporting(threading.local):
    """Whether a thread is recording a network for an export."""

    now = False


_exporting = _Exporting()


def is_in_onnx_export() -> bool:
    """Whether the calling network is being exported."""
    return _exporting.now


@contextmanager
def exporting() -> Iterator[None]:
    """Makes `is_in_onnx_export` true inside the block."""
    before, _exporting.now = _exporting.now, True
    try:
        yield
    finally:
        _exporting.now = before


def register_custom_op_symbolic(
    symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int
) -> NoReturn:
    """Raises UnsupportedError: operators that ONNX lacks are expanded, not registered."""
    raise UnsupportedError(
        f"{symbolic_name}: metaop has no symbolic functions for operators",
        fix="write the operator with metaop functions, which are expanded in the file",
    )


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> NoReturn:
    """Raises UnsupportedError, like `register_custom_op_symbolic`."""
    raise UnsupportedError(f"{symbolic_name}: metaop has no symbolic functions for operators")
