"""Modules that hold modules or parameters."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, overload

from metaop.errors import ArgumentTypeError, DimensionError
from metaop.nn.module import Module, indented


def _position(index: int, length: int) -> int:
    """`index` counted from the front; raises DimensionError if it is out of range."""
    index = operator.index(index)
    if not -length <= index < length:
        raise DimensionError(f"index {index} is out of range", fix=f"there are {length} modules")
    return index % length


class _InOrder(Module):
    """The base class of containers whose modules have positions."""

    def _name_at(self, index: int) -> str:
        return next(islice(self._modules, _position(index, len(self._modules)), None))

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name_at(index)]
        for name in names:
            delattr(self, name)
        self._modules = {str(k): module for k, module in enumerate(self._modules.values())}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def pop(self, key: int | slice) -> Any:
        """Removes a module and returns it."""
        taken = self[key]  # type: ignore[index]
        del self[key]
        return taken


class Sequential(_InOrder):
    """Modules called in order, each with the result of the previous one.

    Example: `Sequential(Linear(8, 4), ReLU())`, or with an OrderedDict of names and modules.

    Shapes are those of the first input and of the last result.

    >>> nn.Sequential(nn.Linear(8, 4), nn.ReLU())(metaop.ones(2, 8)).shape
    metaop.Size([2, 4])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for index, module in enumerate(args):
                self.add_module(str(index), module)

    @overload
    def __getitem__(self, index: int) -> Module: ...

    @overload
    def __getitem__(self, index: slice) -> Sequential: ...

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name_at(index)]

    def __add__(self, other: Sequential) -> Sequential:
        _require_sequential("add", other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Sequential:
        _require_sequential("add", other)
        return self.extend(list(other))

    def __mul__(self, times: int) -> Sequential:
        _require_positive(times)
        return Sequential(*(module for _ in range(times) for module in self))

    def __rmul__(self, times: int) -> Sequential:
        return self * times

    def __imul__(self, times: int) -> Sequential:
        _require_positive(times)
        return self.extend([module for _ in range(times - 1) for module in self])

    def append(self, module: Module) -> Sequential:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Sequential:
        """Inserts a module before position `index`."""
        if not isinstance(module, Module):
            raise ArgumentTypeError(f"module should be of type {Module}", fix="pass an nn.Module")
        count = len(self._modules)
        if not -count <= index <= count:
            raise DimensionError(f"Index out of range: {index}", fix=f"there are {count} modules")
        modules = list(self)
        modules.insert(index if index >= 0 else index + count, module)
        self._modules = {str(k): module for k, module in enumerate(modules)}
        return self

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Adds several modules at the end."""
        for module in sequential:
            self.append(module)
        return self

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


def _require_sequential(action: str, other: Any) -> None:
    if not isinstance(other, Sequential):
        raise ArgumentTypeError(
            f"{action} operator supports only objects of Sequential class, but "
            f"{type(other).__name__} is given",
            fix="wrap it: Sequential(module)",
        )


def _require_positive(times: Any) -> None:
    if not isinstance(times, int):
        raise TypeError(f"unsupported operand type(s) for *: Sequential and {type(times).__name__}")
    if times <= 0:
        raise ValueError(f"Non-positive multiplication factor {times} for Sequential")


class ModuleList(_InOrder):
    """A list whose modules are registered; it has no forward of its own.

    Raises DimensionError for an index out of range.

    >>> layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    >>> len(list(layers.parameters()))
    6
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self += modules

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._name_at(index)]

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def insert(self, index: int, module: Module) -> None:
        """Inserts a module before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._modules = {str(k): member for k, member in enumerate(modules)}

    def append(self, module: Module | None) -> ModuleList:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Adds several modules at the end."""
        if not isinstance(modules, Iterable):
            raise ArgumentTypeError(
                "ModuleList.extend should be called with an iterable, but got "
                f"{type(modules).__name__}",
                fix="pass a list of modules",
            )
        for module in modules:
            self.append(module)
        return self

    def __repr__(self) -> str:
        """Shows equal adjacent modules once, with their range of positions."""
        runs: list[tuple[int, int, str]] = []
        for index, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], index, text)
            else:
                runs.append((index, index, text))
        if not runs:
            return f"{self._get_name()}()"
        lines = [
            f"({first}): {indented(text)}"
            if first == last
            else f"({first}-{last}): {last - first + 1} x {indented(text)}"
            for first, last, text in runs
        ]
        body = "\n  ".join(lines)
        return f"{self._get_name()}(\n  {body}\n)"


class ModuleDict(Module):
    """A dict whose modules are registered; it has no forward of its own.

    Raises KeyError for an unknown name.

    >>> nn.ModuleDict({"first": nn.Linear(4, 2)})["first"].weight.shape
    metaop.Size([2, 4])
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Removes a module and returns it."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of name and module."""
        return self._modules.items()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds modules, replacing those with the same names."""
        if not isinstance(modules, Iterable):
            raise ArgumentTypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(modules).__name__}",
                fix="pass a dict of modules",
            )
        for name, module in dict(modules).items():
            self[name] = module
