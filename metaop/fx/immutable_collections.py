"""Arguments of nodes: lists and dictionaries that cannot be changed, and walks over nests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from metaop.errors import ArgumentTypeError

__all__ = ["fx_map", "immutable_dict", "immutable_list", "map_aggregate"]


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise ArgumentTypeError(
        f"'{type(self).__name__}' object does not support mutation",
        fix="assign new arguments to node.args or node.kwargs",
    )


class immutable_list(list):
    """A list that cannot be changed: a node would not learn whom it reads."""

    __delitem__ = __setitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return (immutable_list, (list(self),))


class immutable_dict(dict):
    """A dictionary that cannot be changed: a node would not learn whom it reads."""

    __delitem__ = __setitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return (immutable_dict, (dict(self),))


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Applies a function to everything in nested tuples, lists, dictionaries and slices.

    Lists and dictionaries of the result cannot be changed; named tuples keep their type.
    """
    if isinstance(a, tuple):
        parts = [map_aggregate(part, fn) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list([map_aggregate(part, fn) for part in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)


fx_map = map_aggregate
