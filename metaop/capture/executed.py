"""The user code that runs while a call is traced, and the names that it reads."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from metaop.unified_graph.tracing import state

# Code that uses these may read an attribute whose name is written nowhere.
_ANY_NAME = {
    "getattr", "hasattr", "vars", "__dict__", "__getattribute__", "eval", "exec", "attrgetter",
}  # fmt: skip


class Executed:
    """The code that runs while the context is open, except for metaop's and Python's own.

    Host steps are excluded, because captured calls run them again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[CodeType, dict[str, Any]]] = {}

    def __enter__(self) -> Executed:
        self._before: Any = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exception: Any) -> None:
        sys.setprofile(None)
        if hasattr(self._before, "enable"):
            self._before.enable()  # a profiler written in C
        else:
            sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and not (state.trace is not None and state.trace.inside_step):
            self._known.setdefault(id(frame.f_code), (frame.f_code, frame.f_globals))
        if isinstance(self._before, FunctionType | MethodType):
            self._before(frame, event, argument)

    def __iter__(self) -> Iterator[tuple[CodeType, dict[str, Any]]]:
        """Pairs of code and its globals."""
        for code, space in self._known.values():
            if is_users(space.get("__name__")):
                yield code, space


def is_users(module: Any) -> bool:
    """Whether the module with this name belongs neither to metaop nor to Python's library."""
    root = str(module).partition(".")[0]
    is_known = root in ("metaop", "numpy") or root in sys.stdlib_module_names
    return not is_known and not root.startswith("namedtuple_")


def words_of(code: CodeType) -> Iterator[str]:
    """The names that a code object reads, strings that may be names, and its own name.

    What metaop itself calls, such as `forward`, is known only by its own name.
    """
    yield code.co_name
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from (part for part in constant if isinstance(part, str))


def reads_any_name(words: Iterable[str]) -> bool:
    """Whether code with these words may read attributes whose names are computed at run time."""
    return not _ANY_NAME.isdisjoint(words)


def globals_of(code: CodeType) -> list[str]:
    """The global names that a code object reads."""
    if "globals" in code.co_names:
        return list(dict.fromkeys(words_of(code)))
    loads = (one for one in dis.get_instructions(code) if one.opname in _LOADS)
    return list(dict.fromkeys(one.argval for one in loads))


_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")


def codes_inside(codes: Iterable[CodeType]) -> set[CodeType]:
    """The codes, and those of the functions and classes that they define."""
    found: set[CodeType] = set()
    waiting = list(codes)
    while waiting:
        code = waiting.pop()
        if code not in found:
            found.add(code)
            waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
    return found
