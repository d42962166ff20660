"""The error classes: each message says what went wrong, where, with which shapes, and a fix.

Every class also derives from the built-in error that PyTorch raises in the same situation, so
that programs written for PyTorch catch what they expect. For shapes, indices and arguments, that
depends on where PyTorch finds the mistake: its C++ code raises RuntimeError, its Python code
ValueError, IndexError or AssertionError. These classes derive from both.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import TypeAlias

_PACKAGE = __name__.split(".")[0]
# A place in a program: the code object and the number of the line.
Location: TypeAlias = tuple[CodeType, int]


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame, from `frame` outwards, that lies outside the package."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != _PACKAGE and not module.startswith(_PACKAGE + "."):
            return frame
        frame = frame.f_back
    return None


def user_location() -> Location | None:
    """The place where the user's program called into the package, found at low cost.

    Returns the code object and the line number; `describe_location` formats them.
    """
    frame = user_frame(sys._getframe(1))
    return None if frame is None else (frame.f_code, frame.f_lineno)


def call_path() -> tuple[Location, ...]:
    """The places from the caller outwards to the user's program; without one, all of them."""
    path: list[Location] = []
    frame: FrameType | None = sys._getframe(1)
    outermost = user_frame(frame)
    while frame is not None:
        path.append((frame.f_code, frame.f_lineno))
        frame = None if frame is outermost else frame.f_back
    return tuple(path)


def describe_location(location: Location | None) -> str:
    """`file:line in function`, or an empty string if the place is unknown."""
    if location is None:
        return ""
    code, line = location
    return f"{code.co_filename}:{line} in {code.co_name}"


class MetaopError(Exception):
    """The base of all errors raised on purpose.

    Arguments: `message` (what is wrong, with shapes), `fix` (what the user can do), `location`
    (defaults to the line of the user's program that is running now).
    """

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        location: Location | None = None,
    ) -> None:
        where = describe_location(location or user_location())
        text = message
        if where:
            text += f"\n  at {where}"
        if fix:
            text += f"\n  fix: {fix}"
        super().__init__(text)


class ShapeError(MetaopError, RuntimeError, ValueError):
    """Shapes that do not match: `metaop.ones(2, 3) @ metaop.ones(2, 3)`."""


class DTypeError(MetaopError, NotImplementedError):
    """A dtype that the operator does not accept: `metaop.ones(2).long().mean()`."""


class RangeError(DTypeError, OverflowError, ValueError):
    """A number that its type cannot hold: `metaop.tensor(2**70)`."""


class DeviceError(MetaopError, RuntimeError, AssertionError):
    """Operands on different devices, or a device that this machine lacks."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A GPU has too little memory left for a tensor.

    >>> issubclass(metaop.OutOfMemoryError, RuntimeError)
    True
    """


class MemoryBudgetError(MetaopError, MemoryError):
    """A program that exceeds `metaop.memory_budget`, however much is recomputed."""


class ArgumentError(MetaopError, ValueError, RuntimeError, AssertionError):
    """An argument outside its legal values: `metaop.dropout(x, p=2)`."""


class ArgumentTypeError(MetaopError, TypeError, RuntimeError):
    """An argument of a type that the operator does not accept: `metaop.ones(6).reshape("6")`."""


class DimensionError(MetaopError, IndexError, RuntimeError):
    """A dimension or an index out of range: `metaop.ones(2).sum(3)`, `metaop.ones(2)[5]`."""


class DivisionError(MetaopError, ZeroDivisionError, RuntimeError):
    """An integer divided by zero: `metaop.tensor([1]) // metaop.tensor([0])`."""


class GradientError(MetaopError, RuntimeError):
    """A gradient that cannot be computed: backward twice, an overwritten saved tensor."""


class CheckpointError(MetaopError, RuntimeError):
    """A file that is damaged, has a foreign format or does not match the module that loads it."""


class DatasetError(MetaopError, RuntimeError):
    """Missing or damaged files of a data set; the message names them and their source."""


class UnsupportedError(MetaopError, NotImplementedError):
    """Something that PyTorch has and metaop does not."""


class MissingPackageError(UnsupportedError, ImportError):
    """A part of metaop that needs a package which is not installed."""


class DistributedError(MetaopError, RuntimeError):
    """Ranks that diverge, or that are missing.

    >>> issubclass(metaop.distributed.DistError, RuntimeError)
    True
    """


class CaptureError(MetaopError, RuntimeError):
    """A function under `metaop.jit` that reads a value, so its control flow may depend on data."""


class ControlFlowError(MetaopError, RuntimeError, TypeError):
    """A body or branch of `metaop.control_flow` with a side effect or results of the wrong type."""


class TraceError(MetaopError, ValueError, RuntimeError):
    """A function that needs a value while `metaop.fx` traces it: a condition, a loop, `len`."""


class ExportError(MetaopError, RuntimeError):
    """A function that cannot be exported; the message names the user's line."""


class KernelError(MetaopError, RuntimeError):
    """A custom kernel that uses what the kernel language lacks, or whose tasks interfere."""


class InternalError(MetaopError, AssertionError):
    """A bug in metaop: an illegal graph between two passes, with the text that shows it."""
