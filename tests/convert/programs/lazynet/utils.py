"""Guards and lazy modules; nothing here imports torch at once."""

import importlib
import importlib.metadata
import importlib.util
import os
from functools import lru_cache
from types import ModuleType


def _is_package_available(name):
    found = importlib.util.find_spec(name) is not None
    return found, importlib.metadata.version(name) if found else "N/A"


@lru_cache
def is_torch_available():
    found, version = _is_package_available("torch")
    return found and tuple(map(int, version.partition("+")[0].split("."))) >= (2, 4, 0)


@lru_cache
def is_torch_other_available():
    return _is_package_available("torch_other")[0]


def is_tracing():
    if not is_torch_available():
        return False
    import torch

    return torch.compiler.is_compiling() or torch.jit.is_tracing()


class LazyModule(ModuleType):
    def __init__(self, name, file, structure, spec):
        super().__init__(name)
        self._homes = {one: home for home, names in structure.items() for one in names}
        self.__file__ = file
        self.__spec__ = spec
        self.__path__ = [os.path.dirname(file)]

    def __dir__(self):
        return sorted(self._homes)

    def __getattr__(self, name):
        if name not in self._homes:
            raise AttributeError(name)
        value = getattr(importlib.import_module("." + self._homes[name], self.__name__), name)
        setattr(self, name, value)
        return value
