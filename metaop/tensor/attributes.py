"""The attributes that programs attach to a tensor, apart from metaop's own fields.

`tensor.__dict__` has only the attached ones, as in PyTorch: programs pass them on to other tensors,
as in `Parameter(value, **old.__dict__)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any


class _WithFields:
    """An object with a plain `__dict__`."""


_dictionary = _WithFields.__dict__["__dict__"].__get__


def fields(holder: Any) -> dict[str, Any]:
    """All attributes of a tensor: its own fields and attached ones."""
    return _dictionary(holder)


# The names of metaop's own fields.
own_fields: set[str] = set()


def _attached(holder: Any) -> Attributes:
    """The attached attributes."""
    return Attributes(fields(holder))


def _attach(holder: Any, attributes: Mapping[str, Any]) -> None:
    """Replaces the attached attributes."""
    given, held = dict(attributes), Attributes(fields(holder))
    held.clear()
    held.update(given)


# Called with each new class of tensors.
when_defined: list[Callable[[type], None]] = []


class TensorClass(type):
    """The type of the classes of tensors, all of which hide the fields in `__dict__`.

    A class whose first base is no tensor needs that anew: the base's `__dict__` would show them.
    """

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> TensorClass:
        if not isinstance(bases[0], TensorClass):
            namespace.setdefault("__dict__", property(_attached, _attach))
        made = super().__new__(cls, name, bases, namespace, **options)
        for call in when_defined:
            call(made)
        return made


class Holder(_WithFields, metaclass=TensorClass):
    """The base of tensors."""

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.__dict__]


class Attributes(MutableMapping[str, Any]):
    """The attached attributes of a tensor, without the fields that are its own."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Any:
        if name in own_fields:
            raise KeyError(name)
        return self._fields[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in own_fields:
            raise KeyError(f"{name} is a field of the tensor itself")
        self._fields[name] = value

    def __delitem__(self, name: str) -> None:
        self[name]  # raises for a name that is not attached
        del self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in list(self._fields) if name not in own_fields)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def copy(self) -> dict[str, Any]:
        """The attached attributes as a dictionary of their own."""
        return dict(self)

    __copy__ = copy

    def __reduce__(self) -> tuple[type[dict], tuple[dict[str, Any]]]:
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return repr(dict(self))
