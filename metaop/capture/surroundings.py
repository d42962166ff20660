"""What a captured function reads of Python's state, so that a change of it is seen.

While a call is traced, a profile function notes which code runs outside of metaop and of Python's
own library. What this code can reach by its names (globals, closures, attributes, elements of
containers) is watched: a captured call stands for later ones as long as all of it stays the same.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import is_
from types import (
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from metaop.nn.module import Module
from metaop.tensor.core import Tensor

# Values that are compared by what they are; all other objects are the same or not.
PLAIN = (int, float, bool, str, bytes, type(None))
_MEMBERS = ("_parameters", "_buffers", "_modules")
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
# Whoever uses these may read an attribute whose name stands nowhere.
_ANY_NAME = {"getattr", "vars", "__dict__", "__getattribute__", "eval", "exec"}
# More of it is not watched but refused: looking at it would cost more than recording.
_MOST_ELEMENTS, _MOST_BYTES, _MOST_PLACES = 1024, 1 << 14, 1 << 14
_ABSENT = object()


class Executed:
    """The code that runs while the context is open, but for metaop's and Python's own."""

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
        if event == "call":
            self._known.setdefault(id(frame.f_code), (frame.f_code, frame.f_globals))
        if isinstance(self._before, FunctionType | MethodType):
            self._before(frame, event, argument)

    def __iter__(self) -> Iterator[tuple[CodeType, dict[str, Any]]]:
        """Pairs of code and its globals."""
        for code, space in self._known.values():
            if _is_users(space.get("__name__")):
                yield code, space


def _is_users(module: Any) -> bool:
    root = str(module).partition(".")[0]
    is_known = root in ("metaop", "numpy") or root in sys.stdlib_module_names
    return not is_known and not root.startswith("namedtuple_")


def _words(code: CodeType) -> Iterable[str]:
    """The names that some code reads, and texts that may be names."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant


class Surroundings:
    """The state that `executed` code can reach from its globals and from `roots`.

    `values` is what it was when this was made, `refusal` why not all of it can be watched.
    `tensors` are those that were reached, `arguments` those that the call was given.
    """

    def __init__(
        self, roots: Sequence[Any], executed: Executed, arguments: Sequence[Tensor]
    ) -> None:
        self.tensors: set[Tensor] = set()
        self.refusal: str | None = None
        self._named: list[tuple[Callable[[str, Any], Any], str]] = []
        self._cells: list[CellType] = []
        self._collections: list[Any] = []
        self._tables: list[dict[Any, Any]] = []
        self._arrays: list[np.ndarray] = []
        self._seen: dict[int, Any] = {}
        self._waiting = list(roots)
        codes = list(executed)
        self._words = dict.fromkeys(word for code, _ in codes for word in _words(code))
        if any(self._attributes(argument) for argument in arguments):
            self.refusal = "it reads attributes of a tensor that is an argument"
        for code, space in codes:
            self._watch(space.get, [name for name in code.co_names if name in space])
        while self._waiting:
            self._visit(self._waiting.pop())
        if len(self._named) + len(self._collections) > _MOST_PLACES:
            self.refusal = "it reads more of Python's state than can be watched"
        self._seen.clear()
        self.values = self._read()

    def are_unchanged(self) -> bool:
        """Whether everything is as it was."""
        found, values = self._read(), self.values
        if len(found) != len(values):
            return False
        return all(map(is_, found, values)) or all(map(_same, found, values))

    def equal(self, other: Surroundings) -> bool:
        """Whether both found the same state."""
        return len(self.values) == len(other.values) and all(map(_same, self.values, other.values))

    def difference(self, other: Surroundings) -> str:
        """The name of something that differs from what it was in `other`."""
        pairs = zip(self._named, self.values, other.values)
        names = [name for (_, name), a, b in pairs if not _same(a, b)]
        return repr(names[0]) if names else "what it reads of a container or a closure"

    def _read(self) -> list[Any]:
        found = [get(name, _ABSENT) for get, name in self._named]
        try:
            found += [cell.cell_contents for cell in self._cells]
        except ValueError:  # a cell has been emptied
            return []
        found += map(len, self._tables)
        found += chain.from_iterable(map(dict.values, self._tables))
        for collection in self._collections:
            found.append(len(collection))
            found += collection
            if isinstance(collection, dict):
                found += collection.values()
        found += [array.tobytes() for array in self._arrays]
        return found

    # --- what can be reached ----------------------------------------------------------------------

    def _watch(self, get: Callable[[str, Any], Any], names: Iterable[str]) -> None:
        for name in names:
            self._named.append((get, name))
            self._waiting.append(get(name, None))

    def _visit(self, value: Any) -> None:
        if type(value) in PLAIN or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            self.tensors.add(value)
            self._watch(value.__dict__.get, self._attributes(value))
        elif isinstance(value, FunctionType):
            self._visit_function(value)
        elif isinstance(value, MethodType):
            self._waiting += (value.__self__, value.__func__)
        elif isinstance(value, functools.partial):
            self._waiting += (value.func, value.args, value.keywords)
        elif isinstance(value, staticmethod | classmethod):
            self._waiting.append(value.__func__)
        elif isinstance(value, property):
            self._waiting.append(value.fget)
        elif isinstance(value, np.ndarray):
            self._visit_array(value)
        elif isinstance(value, _CONTAINERS):
            self._visit_container(value)
        elif isinstance(value, ModuleType):
            if _is_users(value.__name__):
                self._watch_names(value)
        elif isinstance(value, type):
            if _is_users(value.__module__):
                self._watch_names(value)
                self._waiting += value.__bases__
        else:
            self._visit_object(value)

    def _visit_function(self, function: FunctionType) -> None:
        if not _is_users(function.__module__):
            return
        cells = [cell for cell in function.__closure__ or () if _is_filled(cell)]
        self._cells += cells
        self._waiting += [cell.cell_contents for cell in cells]
        self._watch(functools.partial(getattr, function), ("__code__", "__defaults__"))
        self._watch_names(function)

    def _visit_array(self, array: np.ndarray) -> None:
        if array.nbytes > _MOST_BYTES:
            self.refusal = f"it reads a NumPy array of {array.nbytes} bytes outside its arguments"
        else:
            self._arrays.append(array)

    def _visit_container(self, container: Any) -> None:
        if len(container) > _MOST_ELEMENTS:
            self.refusal = f"it reads a {type(container).__name__} of {len(container)} elements"
            return
        if not isinstance(container, tuple | frozenset):
            self._collections.append(container)
        self._waiting += container.values() if isinstance(container, dict) else container

    def _visit_object(self, value: Any) -> None:
        if isinstance(value, Module):
            tables = [value.__dict__[name] for name in _MEMBERS]
            self._tables += tables
            self._waiting += tables[-1].values()
        kind = type(value)
        if _is_users(kind.__module__):
            any_name = not _ANY_NAME.isdisjoint(self._words)
            self._watch_names(value, any_name)
            slots = [name for name in _slots(kind) if any_name or name in self._words]
            self._watch(functools.partial(getattr, value), slots)
            self._waiting.append(kind)
        elif not isinstance(value, Module):  # whose settings have a number of their own
            self._watch_names(value)

    def _attributes(self, tensor: Tensor) -> list[str]:
        """What users have attached to a tensor and the code may read."""
        return [name for name in tensor.__dict__ if name in self._words and name[0] != "_"]

    def _watch_names(self, holder: Any, any_name: bool = False) -> None:
        """Watches what the code that ran may read of a module, a class or an object."""
        space = getattr(holder, "__dict__", None)
        if isinstance(space, dict | MappingProxyType):
            names = list(space) if any_name else [name for name in self._words if name in space]
            self._watch(space.get, names)


def _is_filled(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and (type(a) in PLAIN or isinstance(a, np.generic)) and a == b
