"""Stand-ins for names that metaop does not have: they raise when they are used, not before.

The converter writes `metaop.absent.torch.fx.symbolic_trace` where a program says
`torch.fx.symbolic_trace`, and `from metaop.absent.torch.fx import symbolic_trace` for an import.
So a program with one such name in a corner still starts, and the corner says what is missing.
`hasattr` and `getattr` ask whether a name exists; to them, no stand-in does.

While a module is being imported, it may call such a name, as a decorator or to fill a table. The
call then returns another stand-in, so that the rest of the module can be used.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from metaop.errors import UnsupportedError

_FIX = "see docs/migration.md for what to use instead, or guard this line"


class AbsentNameError(UnsupportedError, AttributeError):
    """A name that was asked for with `getattr`: `getattr(metaop.absent.torch.fx, "wrap")`."""


def _reach(name: str, attribute: str) -> None:
    """Raises unless the program itself spells out `name.attribute`, which it may never use."""
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    if not _is_written(sys._getframe(2)):
        raise AbsentNameError(f"{name}.{attribute} is not in metaop".lstrip("."), fix=_FIX)


def _is_written(frame: FrameType) -> bool:
    """Whether a frame looks an attribute up by an instruction of its own, or imports it."""
    if frame.f_globals.get("__name__", "").startswith("importlib."):
        return True
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return instruction.startswith(("LOAD_", "IMPORT_"))


def _is_being_imported(frame: FrameType) -> bool:
    """Whether a frame belongs to a module that is being imported."""
    return getattr(frame.f_globals.get("__spec__"), "_initializing", False)


class _AbsentType(type):
    """The type of stand-ins. They can be base classes, so that modules that subclass them load."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        if _is_being_imported(sys._getframe(1)):
            return _stand_in(f"{cls.__qualname__}()")
        raise UnsupportedError(f"{cls.__qualname__} is not in metaop", fix=_FIX)

    def __getattr__(cls, name: str) -> Any:
        _reach(cls.__qualname__, name)
        return _stand_in(f"{cls.__qualname__}.{name}")

    def __repr__(cls) -> str:
        return f"<absent {cls.__qualname__}>"


def _stand_in(name: str) -> _AbsentType:
    return _AbsentType(name.rpartition(".")[2], (), {"__qualname__": name})


class _AbsentModule(ModuleType):
    """A module all of whose names are stand-ins."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        path = self.__name__.removeprefix(_PREFIX)
        _reach(path, name)
        return _stand_in(f"{path}.{name}")


class _Finder(MetaPathFinder, Loader):
    """Finds every module below `metaop.absent`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_PREFIX):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are made when they are asked for."""


_PREFIX = f"{__name__}."
__path__: list[str] = []  # makes this module a package, so that modules are looked for below it
sys.meta_path.append(_Finder())


def __getattr__(name: str) -> Any:
    _reach("", name)
    __import__(_PREFIX + name)
    return sys.modules[_PREFIX + name]
