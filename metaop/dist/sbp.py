"""How a tensor is sharded on the ranks of one mesh axis: split, broadcast or partial.

- `Split(d)`: balanced blocks of dimension `d`; the first `remainder` ranks hold one more.
- `Broadcast()`: equal copies.
- `Partial(op)`: the tensor is the combination by `op` of what the ranks hold, each of full shape.

On a mesh of several axes, a tensor has one state for each axis, outermost first: an `NdSbp`. Two
axes that split the same dimension split it one after the other: blocks of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

from metaop.reduce.reducers import REDUCERS
from metaop.unified_graph.node import Shape


class _Interned:
    """Makes equal states the same object: millions of them are compared and hashed."""

    __slots__: tuple[str, ...] = ()
    _table: ClassVar[dict[tuple, Any]] = {}
    is_partial: ClassVar[bool] = False

    def __new__(cls, *arguments: Any) -> Any:
        key = (cls, *arguments)
        if key not in cls._table:
            cls._table[key] = object.__new__(cls)
        return cls._table[key]

    def __reduce__(self) -> tuple:
        return (type(self), tuple(getattr(self, name) for name in self.__slots__))


class Split(_Interned):
    """Blocks of dimension `axis`."""

    __slots__ = ("axis",)
    axis: int

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def __repr__(self) -> str:
        return f"S{self.axis}"


class Broadcast(_Interned):
    """Every rank holds the whole tensor."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "B"


class Partial(_Interned):
    """The whole is the combination of what the ranks hold; `op` names a reducer."""

    __slots__ = ("op",)
    is_partial: ClassVar[bool] = True
    op: str

    def __new__(cls, op: str = "add") -> Any:
        return super().__new__(cls, op)

    def __init__(self, op: str = "add") -> None:
        self.op = op

    def __repr__(self) -> str:
        return "P" if self.op == "add" else f"P({self.op})"


Sbp = Split | Broadcast | Partial
NdSbp = tuple[Sbp, ...]
Mesh = tuple[int, ...]

BROADCAST = Broadcast()
PARTIAL = Partial()

broadcast = BROADCAST
partial_sum = PARTIAL
partial_max = Partial("max")
partial_min = Partial("min")


def split(dim: int) -> Split:
    """Blocks of dimension `dim` (a negative one counts from the end once the shape is known)."""
    return Split(dim)


def reducer_name(name: str) -> str:
    """The reducer of partial values; variants that differ only in the gradient of ties are one."""
    return {"maximum": "max", "minimum": "min"}.get(REDUCERS[name].combine, name)


def block(extent: int, ranks: int, rank: int) -> tuple[int, int]:
    """The half-open range of indices that `rank` of `ranks` holds of a split dimension."""
    size, rest = divmod(extent, ranks)
    start = rank * size + min(rank, rest)
    return start, start + size + (rank < rest)


@lru_cache(maxsize=4096)
def blocks(extent: int, mesh: Mesh) -> tuple[tuple[int, int], ...]:
    """The ranges of all ranks when every axis of a mesh splits one dimension, in rank order."""
    ranges = [(0, extent)]
    for ranks in mesh:
        ranges = [
            (low + start, low + stop)
            for low, high in ranges
            for start, stop in (block(high - low, ranks, rank) for rank in range(ranks))
        ]
    return tuple(ranges)


def local_shape(shape: Sequence[int], sbp: Sbp, ranks: int, rank: int) -> Shape:
    """The shape of one rank's part."""
    if not isinstance(sbp, Split):
        return tuple(shape)
    start, stop = block(shape[sbp.axis], ranks, rank)
    return (*shape[: sbp.axis], stop - start, *shape[sbp.axis + 1 :])


def local_box(
    shape: Sequence[int], states: Sequence[Sbp], mesh: Sequence[int], place: Sequence[int]
) -> list[tuple[int, int]]:
    """The ranges of indices, one for each dimension, that the rank at `place` of a mesh holds."""
    box = [(0, extent) for extent in shape]
    for state, ranks, rank in zip(states, mesh, place):
        if isinstance(state, Split):
            low, high = box[state.axis]
            start, stop = block(high - low, ranks, rank)
            box[state.axis] = (low + start, low + stop)
    return box


def mesh_shape(
    shape: Sequence[int], states: Sequence[Sbp], mesh: Sequence[int], place: Sequence[int]
) -> Shape:
    """The shape of the part that the rank at `place` of a mesh holds."""
    return tuple(stop - start for start, stop in local_box(shape, states, mesh, place))


def can_split(shape: Sequence[int], ranks: int) -> list[Split]:
    """The dimensions of which every rank would get a part."""
    return [Split(k) for k, extent in enumerate(shape) if extent >= ranks > 1]


def nd_text(states: Sequence[Sbp]) -> str:
    """The states of a mesh as one word: `S0`, or `(S0,B)`."""
    inside = ",".join(map(repr, states))
    return inside if len(states) == 1 else f"({inside})"


def replaced(states: NdSbp, axis: int, state: Sbp) -> NdSbp:
    """`states` with the state of one mesh axis replaced."""
    return (*states[:axis], state, *states[axis + 1 :])
