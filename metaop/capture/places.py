"""How captured calls find their tensors, and which of these share memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import attrgetter, is_not
from typing import Any, NamedTuple

from metaop.tensor.core import Tensor

Arguments = Sequence[Tensor]
_base = attrgetter("_base")
_cell = attrgetter("_cell")


class Given(NamedTuple):
    """The tensor argument at a position."""

    position: int

    def find(self, tensors: Arguments) -> Tensor:
        return tensors[self.position]


class Known(NamedTuple):
    """A tensor that stays the same: a parameter, a state, a tensor of the closure."""

    tensor: Tensor

    def find(self, tensors: Arguments) -> Tensor:
        return self.tensor


class GradientOf(NamedTuple):
    """The gradient that a tensor has when the call starts."""

    owner: Place

    def find(self, tensors: Arguments) -> Tensor | None:
        return self.owner.find(tensors).grad  # type: ignore[union-attr]


# Finds a tensor anew in each call, from the tensor arguments.
Place = Given | Known | GradientOf


def root_of(tensor: Tensor) -> Tensor:
    """The tensor at the end of a chain of views."""
    while tensor._base is not None:
        tensor = tensor._base
    return tensor


def sharing(tensors: Sequence[Tensor]) -> list[tuple[int, bool]]:
    """For each tensor, the first one that shares its memory, and whether it is a view.

    Empty if no two tensors share memory.
    """
    links = chain(map(_base, tensors), map(_cell, tensors))
    if not any(map(is_not, links, repeat(None))):
        return []
    first: dict[Any, int] = {}
    groups = []
    for number, tensor in enumerate(tensors):
        root = root_of(tensor)
        _ = root.call  # drops dead peers
        storage = root if root._cell is None else root._cell
        groups.append((first.setdefault(id(storage), number), tensor is not root))
    return groups if len(first) < len(groups) else []
