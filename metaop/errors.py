"""The error classes: each message says what went wrong, where, with which shapes, and a fix.

Every class also derives from the built-in error that PyTorch raises in the same situation, so
that programs written for PyTorch catch what they expect. For shapes, indices and illegal arguments
that depends on where PyTorch finds the mistake: its C++ raises RuntimeError, its Python ValueError,
IndexError or AssertionError. These classes are what either raises.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType

_PACKAGE = __name__.split(".")[0]


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame, from `frame` outwards, that lies outside the package."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != _PACKAGE and not module.startswith(_PACKAGE + "."):
            return frame
        frame = frame.f_back
    return None


def user_location() -> tuple[CodeType, int] | None:
    """Where the user's program called into the package, as cheaply as Python can tell.

    Returns the code object and the line number; `describe_location` makes text of it.
    """
    frame = user_frame(sys._getframe(1))
    return None if frame is None else (frame.f_code, frame.f_lineno)


def describe_location(location: tuple[CodeType, int] | None) -> str:
    """`file:line in function`, or an empty string when the place is not known."""
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
        location: tuple[CodeType, int] | None = None,
    ) -> None:
        where = describe_location(location or user_location())
        text = message
        if where:
            text += f"\n  at {where}"
        if fix:
            text += f"\n  fix: {fix}"
        super().__init__(text)


class ShapeError(MetaopError, RuntimeError, ValueError):
    """Shapes that do not fit together: `metaop.ones(2, 3) @ metaop.ones(2, 3)`."""


class DTypeError(MetaopError, NotImplementedError):
    """An element type that the operator does not take: `metaop.ones(2).long().mean()`."""


class DeviceError(MetaopError, RuntimeError, AssertionError):
    """Operands on different devices, or a device that this machine lacks."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A GPU has no memory left for a tensor of that size.

    >>> issubclass(metaop.OutOfMemoryError, RuntimeError)
    True
    """


class MemoryBudgetError(MetaopError, MemoryError):
    """A program that takes more than `metaop.memory_budget` allows, whatever is computed again."""


class ArgumentError(MetaopError, ValueError, RuntimeError, AssertionError):
    """An argument outside its legal values: `metaop.dropout(x, p=2)`."""


class ArgumentTypeError(MetaopError, TypeError, RuntimeError):
    """An argument of a type that the operator does not take: `metaop.ones(6).reshape("6")`."""


class DimensionError(MetaopError, IndexError, RuntimeError):
    """A dimension or an index that is none: `metaop.ones(2).sum(3)`, `metaop.ones(2)[5]`."""


class DivisionError(MetaopError, ZeroDivisionError, RuntimeError):
    """Whole numbers divided by zero: `metaop.tensor([1]) // metaop.tensor([0])`."""


class GradientError(MetaopError, RuntimeError):
    """A gradient that cannot be had: backward twice, a changed saved tensor, no grad needed."""


class CheckpointError(MetaopError, RuntimeError):
    """A file that is damaged, foreign or does not fit the module it is loaded into."""


class DatasetError(MetaopError, RuntimeError):
    """Files of a data set that are missing or damaged; the message names them and their source."""


class UnsupportedError(MetaopError, NotImplementedError):
    """Something that PyTorch has and metaop does not."""


class DistributedError(MetaopError, RuntimeError):
    """Ranks that do different things, or ranks that are not there."""


class CaptureError(MetaopError, RuntimeError):
    """A function under `metaop.jit` that reads a value: what it does may depend on data."""


class ControlFlowError(MetaopError, RuntimeError, TypeError):
    """A function of a loop or a choice that does more, or returns something else, than it may."""


class TraceError(MetaopError, ValueError, RuntimeError):
    """A function that `metaop.fx` traces and that needs a value: a condition, a loop, `len`."""


class ExportError(MetaopError, RuntimeError):
    """A function that no program in a file can stand for; the message names the user's line."""


class KernelError(MetaopError, RuntimeError):
    """A custom kernel that says what kernels cannot say, or whose tasks disturb one another."""


class InternalError(MetaopError, AssertionError):
    """An illegal graph between two passes: a defect of metaop, with the text that shows it."""
