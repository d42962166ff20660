"""Guards on the Python state that a captured function reads.

Everything that the executed code can reach by name (globals, closures, attributes, elements of
containers) is watched: a captured call is valid for later ones as long as all of it is unchanged.
A missing name is watched too, if it would hide what was read (an attribute of the class, a builtin)
or if `hasattr` would see it.
"""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import chain
from operator import is_
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any
from weakref import ref

import numpy as np

from metaop.capture.executed import (
    Executed,
    codes_inside,
    globals_of,
    is_users,
    reads_any_name,
    words_of,
)
from metaop.nn.module import Module
from metaop.tensor.core import Tensor

# Values that are compared by value; all other objects are compared by identity.
PLAIN = (int, float, bool, str, bytes, type(None))
_MEMBERS = ("_parameters", "_buffers", "_modules")
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, MappingProxyType)
# Methods that Python calls implicitly.
_SPECIAL = frozenset(
    ("__bool__", "__call__", "__getattr__", "__delete__", "__enter__", "__exit__", "__get__",
     "__missing__", "__set__")
).union(dir(int), dir(list), dir(dict))  # fmt: skip
# Larger state is refused, not watched: comparing it would cost more than recording.
_MOST_ELEMENTS, _MOST_BYTES, _MOST_PLACES = 1024, 1 << 14, 1 << 14
_ABSENT = object()


class Guards:
    """The state that `executed` code can reach from its globals and from `roots`.

    `values` holds the state at construction; `refusal` says why it cannot all be watched.
    `tensors` are the tensors that were reached, `arguments` those that the call received.
    """

    def __init__(
        self, roots: Sequence[Any], executed: Executed, arguments: Sequence[Tensor]
    ) -> None:
        codes = list(executed)
        self.refusal: str | None = None
        self._words = frozenset(word for code, _ in codes for word in words_of(code))
        self._any_name = reads_any_name(self._words)
        self._collect(roots, codes)
        while self._further_words - self._words:
            self._words |= self._further_words
            self._collect(roots, codes)
        if any(map(self._attributes, arguments)):
            self.refusal = "it reads attributes of a tensor that is an argument"
        if len(self._named) + len(self._collections) + len(self._spaces) > _MOST_PLACES:
            self.refusal = "it reads more of Python's state than can be watched"
        unknown = {code for code, _ in codes} - codes_inside(self._codes)
        if unknown:
            name = unknown.pop().co_name
            self.refusal = f"it runs {name}, and what that reads of Python's state is not known"
        self.values = self._read()

    def _collect(self, roots: Sequence[Any], codes: Sequence[tuple[CodeType, Any]]) -> None:
        """Finds all places that hold what the code reads."""
        self.tensors: set[Tensor] = set()
        self._further_words: set[str] = set()
        self._named: list[tuple[Callable[[str, Any], Any], str]] = []
        self._cells: list[CellType] = []
        self._collections: list[Any] = []
        self._tables: list[dict[Any, Any]] = []
        self._arrays: list[np.ndarray] = []
        # Names that some namespaces lack, but that would be read there if they existed.
        self._spaces: list[Any] = []
        self._absent: list[frozenset[str]] = []
        self._codes: list[CodeType] = []
        self._seen: dict[int, Any] = {}
        self._waiting = list(roots)
        for code, space in codes:
            self._watch_globals(code, space)
        while self._waiting:
            self._visit(self._waiting.pop())
        self._seen.clear()

    def are_unchanged(self, arguments: Iterable[Tensor]) -> bool:
        """Whether everything is as it was, and nothing has been attached to the arguments."""
        if not all(map(frozenset.isdisjoint, self._absent, self._spaces)):
            return False
        if any(map(self._attributes, arguments)):
            return False
        found, values = self._read(), self.values
        if len(found) != len(values):
            return False
        return all(map(is_, found, values)) or all(map(_same, found, values))

    def equal(self, other: Guards) -> bool:
        """Whether both found the same state."""
        return len(self.values) == len(other.values) and all(map(_same, self.values, other.values))

    def watches(self, container: Any) -> bool:
        """Whether the code may read the elements of a container."""
        return any(one is container for one in self._collections)

    def difference(self, other: Guards) -> str:
        """The name of something that differs from its value in `other`."""
        pairs = zip(self._named, self.values, other.values)
        names = [name for (_, name), a, b in pairs if not _same(a, b)]
        return repr(names[0]) if names else "what it reads of a container or a closure"

    def _read(self) -> list[Any]:
        found = [get(name, _ABSENT) for get, name in self._named]
        try:
            found += [cell.cell_contents for cell in self._cells]
        except ValueError:  # a cell is empty
            found += map(_content, self._cells)
        found += map(len, self._tables)
        found += self.members()
        for collection in self._collections:
            found.append(len(collection))
            found += collection
            if isinstance(collection, dict | MappingProxyType):
                found += collection.values()
        for array in self._arrays:
            found += (array.tobytes(), str(array.shape), array.dtype)
        return found

    def members(self) -> Iterator[Any]:
        """The parameters, buffers and layers of networks."""
        return chain.from_iterable(map(dict.values, self._tables))

    # --- reachable state --------------------------------------------------------------------------

    def _watch(self, get: Callable[[str, Any], Any], names: Iterable[str]) -> None:
        for name in names:
            self._named.append((get, name))
            self._waiting.append(get(name, None))

    def _watch_globals(self, code: CodeType, space: dict[str, Any]) -> None:
        names = globals_of(code)
        self._watch(space.get, names)
        own = space.get("__builtins__")
        builtins = own.__dict__ if isinstance(own, ModuleType) else own
        if isinstance(builtins, dict):
            self._watch(builtins.get, [name for name in names if name not in space])

    def _visit(self, value: Any) -> None:
        if type(value) in PLAIN or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        for kind, parts in _LEADING:
            if isinstance(value, kind):
                self._waiting += parts(value)
                return
        visit = next(visit for kind, visit in _VISITS if isinstance(value, kind))
        visit(self, value)

    def _visit_tensor(self, tensor: Tensor) -> None:
        self.tensors.add(tensor)
        self._watch(tensor.__dict__.get, self._attributes(tensor))
        self._watch_absent(tensor.__dict__, self._attribute_words())
        self._waiting.append(type(tensor))

    def _visit_function(self, function: FunctionType) -> None:
        cells = function.__closure__ or ()
        contents = list(map(_content, cells))
        if not is_users(function.__module__):  # it may call its arguments
            self._waiting += filter(callable, contents)
            return
        self._codes.append(function.__code__)
        self._cells += cells
        self._waiting += contents
        parts = ("__code__", "__defaults__", "__kwdefaults__")
        self._watch(functools.partial(getattr, function), parts)
        self._watch_names(function)

    def _visit_array(self, array: np.ndarray) -> None:
        if array.nbytes > _MOST_BYTES:
            self.refusal = f"it reads a NumPy array of {array.nbytes} bytes outside its arguments"
        else:
            self._arrays.append(array)

    def _visit_bytes(self, data: bytearray) -> None:
        if len(data) > _MOST_BYTES:
            self.refusal = f"it reads a bytearray of {len(data)} bytes"
        else:
            self._watch(lambda name, default: bytes(data), ("a bytearray",))

    def _visit_container(self, container: Any) -> None:
        if len(container) > _MOST_ELEMENTS:
            self.refusal = f"it reads a {type(container).__name__} of {len(container)} elements"
            return
        if not isinstance(container, tuple | frozenset):
            self._collections.append(container)
        is_mapping = isinstance(container, dict | MappingProxyType)
        self._waiting += container.values() if is_mapping else container
        if is_users(type(container).__module__):
            self._visit_object(container)

    def _visit_variable(self, variable: ContextVar[Any]) -> None:
        self._watch(lambda name, default: variable.get(default), [variable.name])

    def _visit_getter(self, getter: Any) -> None:
        arguments = getter.__reduce__()[1]
        self._further_words.update(chain(*(str(name).split(".") for name in arguments)))

    def _visit_module(self, module: ModuleType) -> None:
        if is_users(module.__name__):
            self._watch_names(module)

    def _visit_class(self, kind: type) -> None:
        if not is_users(kind.__module__):
            return
        space = kind.__dict__
        called = [name for name in space if name.startswith("__") and callable(space[name])]
        self._watch(space.get, called)
        self._watch_names(kind, self._any_name, self._words | _SPECIAL)
        self._watch(functools.partial(getattr, kind), ("__bases__",))
        self._waiting.append(type(kind))

    def _visit_object(self, value: Any) -> None:
        kind = type(value)
        own = getattr(value, "__dict__", {})
        if isinstance(value, Module):
            tables = [value.__dict__[name] for name in _MEMBERS]
            self._tables += tables
            self._waiting += tables[-1].values()
            hooks = [table for name, table in own.items() if name.endswith("_hooks")]
            self._waiting += chain.from_iterable(table.values() for table in hooks if table)
        # Python's own library reads their contents under names that the code does not mention.
        names_inside = any(base.__module__ == "collections" for base in kind.__mro__)
        if is_users(kind.__module__):
            self._watch_names(value, self._any_name or names_inside)
            slots = [name for name in _slots(kind) if self._any_name or name in self._words]
            self._watch(functools.partial(getattr, value), (*slots, "__class__"))
            return
        self._waiting += filter(callable, own.values())
        if not isinstance(value, Module):  # settings of modules have a version number
            self._watch_names(value, names_inside)

    def _attributes(self, tensor: Tensor) -> list[str]:
        """The attributes that users have attached to a tensor and that the code may read."""
        words = self._words
        return [name for name in tensor.__dict__ if name in words and name[0] != "_"]

    def _attribute_words(self) -> frozenset[str]:
        return frozenset(word for word in self._words if not word.startswith("_"))

    def _watch_names(
        self, holder: Any, any_name: bool = False, words: frozenset[str] | None = None
    ) -> None:
        """Watches what the executed code may read of a module, a class or an object."""
        space = getattr(holder, "__dict__", None)
        if not isinstance(space, dict | MappingProxyType):
            return
        words = self._words if words is None else words
        if any_name:
            self._collections.append(space)
            self._waiting += space.values()
        else:
            self._watch(space.get, [name for name in words if name in space])
            self._watch_absent(space, words)

    def _watch_absent(self, space: Any, words: frozenset[str]) -> None:
        self._spaces.append(space)
        self._absent.append(words.difference(space))


_VISITS: list[tuple[Any, Callable[[Guards, Any], None]]] = [
    (Tensor, Guards._visit_tensor),
    (FunctionType, Guards._visit_function),
    (np.ndarray, Guards._visit_array),
    (bytearray, Guards._visit_bytes),
    (_CONTAINERS, Guards._visit_container),
    (ContextVar, Guards._visit_variable),
    ((operator.attrgetter, operator.methodcaller), Guards._visit_getter),
    (ModuleType, Guards._visit_module),
    (type, Guards._visit_class),
    (object, Guards._visit_object),
]
# Objects that only lead to others.
_LEADING: list[tuple[Any, Callable[[Any], Iterable[Any]]]] = [
    (MethodType, lambda method: (method.__self__, method.__func__)),
    (BuiltinMethodType, lambda method: (method.__self__,)),
    (functools.partial, lambda partial: (partial.func, partial.args, partial.keywords)),
    ((staticmethod, classmethod), lambda method: (method.__func__,)),
    (property, lambda found: (found.fget, found.fset, found.fdel)),
    (ref, lambda reference: (reference(),)),
]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT


def _slots(kind: type) -> Iterator[str]:
    """The names of a class's slots, as code inside its methods reads them."""
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            yield f"_{base.__name__.lstrip('_')}{name}" if is_private else name


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b) or not (type(a) in PLAIN or isinstance(a, np.generic)):
        return False
    return bool(a == b and (a or repr(a) == repr(b)))  # 0.0 equals -0.0
