"""The only reader of pickles in metaop: by default, an unpickler that runs no code.

A pickle is a program: it may name any importable function and call it. This reader resolves only
the names in `allowed_names`, calls only functions listed there, and sets attributes only of ordered
dictionaries. Everything else raises Damage with the name, unless the user has listed it
(`add_safe_globals`) or trusts the file.
"""

from __future__ import annotations

import pickle
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from metaop.serialization.allowed_names import PLAIN_NAMES, Allowed, NumpyType, tensor_names
from metaop.serialization.builder import Builder, Stub, Survey
from metaop.serialization.damage import Damage
from metaop.tensor.core import Tensor

_CALLABLE = (Allowed, type)
# What NumPy itself makes of a trusted file: arrays and numbers of all its types.
_NOT_OF_NUMPY = {place: one for place, one in PLAIN_NAMES.items() if place[0][:5] != "numpy"}


# The Python unpickler, because the one in C cannot be prevented from setting attributes.
_Unpickler: Any = pickle._Unpickler  # type: ignore[attr-defined]


class CheckpointUnpickler(_Unpickler):
    """Unpickles plain containers, the tensors that `maker` builds, and what the user allows.

    `persistent` turns a persistent id into the storage (or the tensor) that it names.
    """

    dispatch = dict(_Unpickler.dispatch)

    def __init__(
        self, file: IO[bytes], maker: Survey | Builder, persistent: Callable[[Any], Any]
    ) -> None:
        super().__init__(file, encoding="latin1")
        plain = _NOT_OF_NUMPY if maker.trusted else PLAIN_NAMES
        self._names = {**plain, **tensor_names(maker)}
        self._maker = maker
        self._persistent = persistent
        # The classes and functions that the user allows, as far as the file names them.
        self._granted: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        found = self._names.get((module, name))
        if found is None:
            if self.proto < 3:  # the names of Python 2
                older = (IMPORT_MAPPING.get(module, module), name)
                module, name = NAME_MAPPING.get((module, name), older)
            found = self._maker.named(module, name)
            self._granted.append(found)
        return found

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)

    def _is_granted(self, one: Any) -> bool:
        return self._maker.trusted or any(one is granted for granted in self._granted)

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack[-1]
        may_call = isinstance(function, _CALLABLE) or self._is_granted(function)
        if not may_call or not isinstance(arguments, tuple):
            raise Damage(f"it calls {function!r}, which is not an allowed function")
        self.stack[-1] = function(*arguments)

    def load_build(self) -> None:
        state, target = self.stack[-1], self.stack[-2]
        if not isinstance(target, (Stub, Tensor)) and self._is_granted(type(target)):
            super().load_build()
            return
        self.stack.pop()
        if isinstance(target, OrderedDict) and isinstance(state, dict):
            names = [name for name in state if not hasattr(OrderedDict, name)]
            target.__dict__.update({name: state[name] for name in names})
        elif isinstance(target, NumpyType):
            self._replace(target, target.completed(state))
        elif isinstance(target, np.ndarray):
            version, shape, kind, is_fortran, content = state
            target.__setstate__((version, shape, kind, is_fortran, _as_bytes(content)))
        elif not isinstance(target, (Stub, Tensor)):
            raise Damage(f"it changes attributes of {type(target).__name__}")

    def _replace(self, old: Any, new: Any) -> None:
        """Puts a value in the place of the last one, which the pickle may refer to again."""
        self.stack[-1] = new
        self.memo.update({key: new for key, one in self.memo.items() if one is old})

    def load_newobj(self) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        self._make(kind, arguments, {})

    def load_newobj_ex(self) -> None:
        options, arguments, kind = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self._make(kind, arguments, options)

    def _make(self, kind: Any, arguments: Any, options: Any) -> None:
        """Puts an object of a class on the stack whose `__init__` has not run."""
        if not self._is_granted(kind):
            self.refuse()
        is_absent = isinstance(kind, Stub)
        self.append(Stub() if is_absent else kind.__new__(kind, *arguments, **options))

    def refuse(self) -> None:
        raise Damage("it uses pickle instructions that no checkpoint needs")

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    for _code in (pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.INST, pickle.OBJ):
        dispatch[_code[0]] = refuse
    for _code in (pickle.NEXT_BUFFER, pickle.READONLY_BUFFER):
        dispatch[_code[0]] = refuse


def _as_bytes(content: Any) -> bytes:
    return content.encode("latin1") if isinstance(content, str) else bytes(content)


def unpickle(file: IO[bytes], maker: Survey | Builder, persistent: Callable[[Any], Any]) -> Any:
    """The object that the pickle at the position of `file` describes."""
    try:
        return CheckpointUnpickler(file, maker, persistent).load()
    except Damage:
        raise
    except (EOFError, pickle.UnpicklingError) as error:
        raise Damage(f"it is cut short or damaged ({error or 'end of file'})") from None
    except Exception as error:
        message = f"it is damaged ({type(error).__name__}: {error})"
        raise Damage(message) from error
