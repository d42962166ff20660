"""Elements of tensors: calls that take one position of a dimension, or that put one there."""

from __future__ import annotations

from typing import Any, NamedTuple

from metaop.operators import shaping
from metaop.operators.view_write import view_write
from metaop.unified_graph.composite import Composite, Signature
from metaop.unified_graph.recording import Call

# A result of a call by its number, or a leaf and 0.
Value = tuple[Call, int]


class Stacked(NamedTuple):
    """The values number `output` of all copies of a call, one after another."""

    run: int
    call: int
    output: int


class Whole(NamedTuple):
    """What elements are taken from: a value, indexed by `items` and brought to a shape if given."""

    source: Value | Stacked
    items: tuple[Any, ...] | None = None
    shape: tuple[int, ...] | None = None


class Element(NamedTuple):
    """Position `at` of dimension `dim` of a whole, without that dimension."""

    whole: Whole
    dim: int
    at: int


class Position(NamedTuple):
    """The position `at` that an indexing call takes of dimension `dim` after indexing by `items`.

    It removes the dimension, or takes one of equal parts of `length`, which 0 stands for otherwise.
    """

    items: tuple[Any, ...]
    dim: int
    at: int
    length: int = 0

    def placed_in(self, shape: tuple[int, ...]) -> Placed | None:
        """The place in a tensor of a shape; None if the call also cuts something off."""
        if tuple(item for item in self.items if item is not None) != _items(shape):
            return None
        return Placed(shape, self.dim - self.items[: self.dim].count(None), self.at, self.length)


class Placed(NamedTuple):
    """An element at its place in a tensor of a shape; see `Position`."""

    shape: tuple[int, ...]
    dim: int
    at: int
    length: int


def position_of(
    composite: Composite, attributes: tuple[Any, ...], shape: tuple[int, ...]
) -> Position | None:
    """The position that a call takes of a tensor of this shape; None if it takes none."""
    if composite is shaping.select:
        return Position(_items(shape), *attributes)
    if composite is shaping.narrow:
        dim, start, length = attributes
        return _part(_items(shape), dim, (start, length, 1))
    if composite is not shaping.index:
        return None
    (items,) = attributes
    plain = [place for place, item in enumerate(items) if isinstance(item, int)]
    if len(plain) == 1:
        (place,) = plain
        extent = shape[place - items[:place].count(None)]
        return Position((*items[:place], _full(extent), *items[place + 1 :]), place, items[place])
    if plain or None in items:
        return None
    cut = [dim for dim, item in enumerate(items) if item != _full(shape[dim])]
    return _part(_items(shape), cut[0], items[cut[0]]) if len(cut) == 1 else None


def _part(items: tuple[Any, ...], dim: int, item: tuple[int, int, int]) -> Position | None:
    """The position of a slice among equal parts of a dimension; None if it is none of them."""
    (start, length, step), extent = item, items[dim][1]
    if not 0 < length < extent or extent % length or start % length or (step != 1 < length):
        return None
    return Position(items, dim, start // length, length)


def element_of(signature: Signature, source: Value) -> Element | None:
    """The element of `source` that a call with this signature takes."""
    found = _position(signature)
    if found is None:
        return None
    items = None if found.items == _items(_shape(signature)) else found.items
    shape = None
    if found.length:
        extents = [item[1] for item in found.items]
        number = extents[found.dim] // found.length
        shape = (*extents[: found.dim], number, found.length, *extents[found.dim + 1 :])
    return Element(Whole(source, items, shape), found.dim, found.at)


def placed_by(signature: Signature) -> Placed | None:
    """Where the gradient of what takes an element puts it in zeros; None for other signatures."""
    source = differentiated(signature)
    if source is None or len(signature.input_types) != 1:
        return None
    found = _position(source)
    return None if found is None else found.placed_in(_shape(source))


def written_by(signature: Signature) -> Placed | None:
    """Where a write puts a value of the same type into a tensor; None for other signatures."""
    if signature.composite is not view_write:
        return None
    base, value = signature.input_types
    (steps,) = signature.attributes
    assert base is not None and value is not None
    if len(steps) > 1 or base.dtype is not value.dtype:
        return None
    ((composite, attributes),) = steps
    found = position_of(composite, attributes, base.shape)
    placed = None if found is None else found.placed_in(base.shape)
    if placed is None:
        return None
    kept = (placed.length,) if placed.length else ()
    is_whole = value.shape == (*base.shape[: placed.dim], *kept, *base.shape[placed.dim + 1 :])
    return placed if is_whole else None


def element_at(placed: Placed, source: Value) -> Element:
    """The element of `source` at a place."""
    shape, dim, at, length = placed
    parts = (*shape[:dim], shape[dim] // length, length, *shape[dim + 1 :]) if length else None
    return Element(Whole(source, None, parts), dim, at)


def parts_of(call: Call, source: Value) -> list[Element] | None:
    """The results of the gradient of a `stack`, or a `concatenate` of equal extents, as elements.

    `source` is the cotangent.
    """
    signature = call.signature
    assert signature is not None
    joined = differentiated(signature)
    if joined is None or len(signature.input_types) != 1:
        return None
    kind, targets = signature.input_types[0], targets_of(signature)
    assert kind is not None
    if any(one.dtype is not kind.dtype for one in signature.types[: len(targets)]):
        return None
    if joined.composite is shaping.stack:
        whole, dim = Whole(source), joined.attributes[0]
    elif joined.composite is shaping.concatenate:
        dim = joined.attributes[0]
        extents = {one.shape[dim] for one in joined.input_types if one is not None}
        if len(extents) > 1:
            return None
        (extent,) = extents
        number = len(joined.input_types)
        shape = (*kind.shape[:dim], number, extent, *kind.shape[dim + 1 :])
        whole = Whole(source, None, shape)
    else:
        return None
    return [Element(whole, dim, number) for number in targets]


def targets_of(gradient: Signature) -> tuple[int, ...]:
    """The inputs whose gradients a gradient returns, in order."""
    derivation = gradient.composite.derivation
    assert derivation is not None
    targets: tuple[int, ...] = derivation.asked[-2]  # type: ignore[index]
    return targets


def differentiated(signature: Signature) -> Signature | None:
    """The signature of which one is the gradient; None if it is none."""
    derivation = signature.composite.derivation
    if derivation is None or derivation.asked[0] != "gradient":  # type: ignore[index]
        return None
    return derivation.source


def _position(signature: Signature) -> Position | None:
    if len(signature.input_types) != 1 or signature.input_types[0] is None:
        return None
    return position_of(signature.composite, signature.attributes, _shape(signature))


def _shape(signature: Signature) -> tuple[int, ...]:
    kind = signature.input_types[0]
    assert kind is not None
    return kind.shape


def _items(shape: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(map(_full, shape))


def _full(extent: int) -> tuple[int, int, int]:
    return 0, extent, 1
