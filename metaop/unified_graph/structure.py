"""The structure of recorded calls: their types and attributes without numbers.

Calls of one structure differ only in *numbers*: extents, slice starts, slopes. The numbers -1, 0
and 1 and all signs belong to the structure, because operators treat them specially. So do
dimensions: a result may have one shape along each of them, so that shapes tell none apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from metaop.unified_graph.interning import InternTable
from metaop.unified_graph.tensor_type import TensorType

if TYPE_CHECKING:
    from metaop.unified_graph.composite import Signature
    from metaop.unified_graph.shape_rule import Rules

_TREATED_APART = (-1, 0, 1)


class Structure:
    """A signature or a type without its numbers; one object for equal content.

    `rules` give the result types of its signatures, once these have come with different numbers;
    `count` is how many signatures of it were recorded.
    """

    __slots__ = ("rules", "count", "__weakref__")
    rules: Rules | None
    count: int
    _table: InternTable[Structure] = InternTable()

    def __new__(cls, *content: Hashable) -> Structure:
        found = cls._table.get(content) or cls._table.revive(content)
        if found is None:
            found = object.__new__(cls)
            found.rules, found.count = None, 0
            found = cls._table.add(content, found)
        return found


def structure_of(signature: Signature) -> tuple[Structure, tuple[float, ...]]:
    """The structure of a signature and its numbers in order: of attributes, then of types.

    A composite that was derived from a signature has the numbers of that signature, which determine
    its own types.
    """
    derivation = signature.composite.derivation
    origin: tuple[Hashable, ...] = (signature.composite,)
    numbers: list[float] = []
    if derivation is not None:
        origin = derivation.source.structure, derivation.asked
        numbers.extend(derivation.source.numbers)
    dimensions = signature.dimensions
    attributes = tuple(
        (type(value), value) if place in dimensions else without_numbers(value, numbers)
        for place, value in enumerate(signature.attributes)
    )
    types: list[Structure | None] = []
    for kind in signature.input_types:
        structure, extents = (None, ()) if kind is None else parted(kind)
        types.append(structure)
        numbers.extend(extents)
    return Structure(*origin, attributes, tuple(types)), tuple(numbers)


def without_numbers(value: Any, numbers: list[float]) -> Hashable:
    """A value without its numbers, which it appends to `numbers`."""
    kind = type(value)
    if kind is int or kind is float:
        if value in _TREATED_APART or not math.isfinite(value):
            return kind, value
        numbers.append(value)
        return kind, "positive" if value > 0 else "negative"
    if kind is TensorType:
        structure, extents = parted(value)
        numbers.extend(extents)
        return structure
    if isinstance(value, tuple):
        return (kind, *[without_numbers(item, numbers) for item in value])
    return kind, value


def parted(kind: TensorType) -> tuple[Structure, tuple[float, ...]]:
    """The structure and the numbers of a type, computed once."""
    if kind.parted is None:
        extents: list[float] = []
        shape = without_numbers(kind.shape, extents)
        kind.parted = Structure(shape, kind.dtype, kind.device), tuple(extents)
    return kind.parted


def with_attribute_numbers(signature: Signature, take: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The attributes of a signature with the numbers that `take` gives, in order."""
    dimensions = signature.dimensions
    return tuple(
        value if place in dimensions else with_numbers(value, take)
        for place, value in enumerate(signature.attributes)
    )


def with_numbers(value: Any, take: Callable[[Any], Any]) -> Any:
    """The value with each number replaced by the result of `take` for it, in order."""
    if type(value) is int or type(value) is float:
        is_apart = value in _TREATED_APART or not math.isfinite(value)
        return value if is_apart else take(value)
    if isinstance(value, tuple):
        items = [with_numbers(item, take) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, TensorType):
        shape = tuple([with_numbers(n, take) for n in value.shape])
        return TensorType(shape, value.dtype, value.device)
    return value
