"""An unpickler that runs no code: the only reader of pickles in metaop.

A pickle is a program: it may name any importable function and call it. This reader resolves only
the names in `allowed_names`, calls only functions listed there, and sets attributes only of ordered
dictionaries, and of modules and optimizers in files that the caller trusts. Everything else raises
Damage with the name.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from metaop.serialization.allowed_names import PLAIN_NAMES, Allowed, NumpyType, tensor_names
from metaop.serialization.builder import Builder, Stub, Survey
from metaop.serialization.damage import Damage
from metaop.serialization.objects import fill, is_object
from metaop.tensor.core import Tensor

_CALLABLE = (Allowed, type)


# The Python unpickler, because the one in C cannot be prevented from setting attributes.
_Unpickler: Any = pickle._Unpickler  # type: ignore[attr-defined]


class RestrictedUnpickler(_Unpickler):
    """Unpickles only plain containers and the tensors that `maker` builds.

    `persistent` turns a persistent id into the storage (or the tensor) that it names.
    """

    dispatch = dict(_Unpickler.dispatch)

    def __init__(
        self, file: IO[bytes], maker: Survey | Builder, persistent: Callable[[Any], Any]
    ) -> None:
        super().__init__(file, encoding="latin1")
        self._names = {**PLAIN_NAMES, **tensor_names(maker)}
        self._persistent = persistent

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._names[module, name]
        except KeyError:
            raise Damage(
                f"it names {module}.{name}, which is not on the list of things that may be loaded",
                fix="save state_dicts (tensors, numbers, strings, plain containers) instead of "
                "whole objects",
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack[-1]
        if not isinstance(function, _CALLABLE) or not isinstance(arguments, tuple):
            raise Damage(f"it calls {function!r}, which is not an allowed function")
        self.stack[-1] = function(*arguments)

    def load_build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, OrderedDict) and isinstance(state, dict):
            names = [name for name in state if not hasattr(OrderedDict, name)]
            target.__dict__.update({name: state[name] for name in names})
        elif isinstance(target, NumpyType):
            target.take(state)
        elif isinstance(target, np.ndarray):
            version, shape, kind, is_fortran, content = state
            target.__setstate__((version, shape, kind.dtype, is_fortran, _as_bytes(content)))
        elif is_object(target):
            fill(target, state)
        elif not isinstance(target, (Stub, Tensor)):
            raise Damage(f"it changes attributes of {type(target).__name__}")

    def refuse(self) -> None:
        raise Damage("it uses pickle instructions that no checkpoint needs")

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
    for _code in (pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.INST, pickle.OBJ):
        dispatch[_code[0]] = refuse
    for _code in (pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER):
        dispatch[_code[0]] = refuse


def _as_bytes(content: Any) -> bytes:
    return content.encode("latin1") if isinstance(content, str) else bytes(content)


def unpickle(file: IO[bytes], maker: Survey | Builder, persistent: Callable[[Any], Any]) -> Any:
    """The object that the pickle at the position of `file` describes."""
    try:
        return RestrictedUnpickler(file, maker, persistent).load()
    except Damage:
        raise
    except (EOFError, pickle.UnpicklingError) as error:
        raise Damage(f"it is cut short or damaged ({error or 'end of file'})") from None
    except Exception as error:
        message = f"it is damaged ({type(error).__name__}: {error})"
        raise Damage(message) from error
