"""How a tensor lies on the ranks of one mesh axis: split, broadcast or partial.

- `Split(d)`: balanced blocks of dimension `d`; the first `remainder` ranks hold one more.
- `Broadcast()`: equal copies.
- `Partial(op)`: the tensor is the combination by `op` of what the ranks hold, each of full shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from metaop.reduce.reducers import REDUCERS
from metaop.unified_graph.node import Shape


@dataclass(frozen=True)
class Split:
    """Blocks of dimension `axis`."""

    axis: int
    is_partial: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"S{self.axis}"


@dataclass(frozen=True)
class Broadcast:
    """Every rank holds the whole tensor."""

    is_partial: ClassVar[bool] = False

    def __repr__(self) -> str:
        return "B"


@dataclass(frozen=True)
class Partial:
    """The whole is the combination of what the ranks hold; `op` names a reducer."""

    op: str = "add"
    is_partial: ClassVar[bool] = True

    def __repr__(self) -> str:
        return "P" if self.op == "add" else f"P({self.op})"


Sbp = Split | Broadcast | Partial

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
    """The reducer of partial values: how gradients treat ties plays no role there."""
    return {"maximum": "max", "minimum": "min"}.get(REDUCERS[name].combine, name)


def block(extent: int, ranks: int, rank: int) -> tuple[int, int]:
    """The half-open range of indices that `rank` of `ranks` holds of a split dimension."""
    size, rest = divmod(extent, ranks)
    start = rank * size + min(rank, rest)
    return start, start + size + (rank < rest)


def local_shape(shape: Sequence[int], sbp: Sbp, ranks: int, rank: int) -> Shape:
    """The shape of what one rank holds."""
    if not isinstance(sbp, Split):
        return tuple(shape)
    start, stop = block(shape[sbp.axis], ranks, rank)
    return (*shape[: sbp.axis], stop - start, *shape[sbp.axis + 1 :])


def can_split(shape: Sequence[int], ranks: int) -> list[Split]:
    """The dimensions of which every rank gets a part."""
    return [Split(k) for k, extent in enumerate(shape) if extent >= ranks > 1]
