"""How a tensor lies along one axis of a mesh, under PyTorch's names.

They are names of the states in `metaop.dist.sbp`, which everything else uses: `states_of` and
`placements_of` translate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metaop.dist.sbp import BROADCAST, NdSbp, Sbp, Split
from metaop.dist.sbp import Partial as PartialState
from metaop.errors import ArgumentError, ArgumentTypeError

# PyTorch's names of reductions, and the reducers of partial values.
_REDUCERS = {"sum": "add", "product": "mul", "max": "max", "min": "min"}
_NAMES = {reducer: name for name, reducer in _REDUCERS.items()}


class MeshPlacement:
    """How a tensor lies along one axis of a mesh: a `Shard`, a `Replicate` or a `Partial`.

    It says nothing about shapes; a tensor on a mesh has one placement for each axis.

    >>> metaop.distributed.tensor.Replicate().is_shard()
    False
    """

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it splits a dimension; with `dim`, this one."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every rank holds the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the ranks hold what is still to be reduced; with `reduce_op`, in this way."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(MeshPlacement):
    """Each rank holds a block of dimension `dim`; a negative one counts from the end.

    Where the ranks do not divide the extent, the first blocks are one longer. (PyTorch's are all of
    the largest length, except for the last ones.) Raises ArgumentTypeError unless `dim` is an int.

    >>> metaop.distributed.tensor.Shard(1)
    Shard(dim=1)
    """

    dim: int

    def __post_init__(self) -> None:
        if not isinstance(self.dim, int):
            raise ArgumentTypeError(
                f"Shard takes the number of a dimension, not {self.dim!r}", fix="write Shard(0)"
            )

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class Replicate(MeshPlacement):
    """Each rank holds the whole tensor, in its full shape.

    >>> metaop.distributed.tensor.Replicate()
    Replicate()
    """

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, repr=False)
class Partial(MeshPlacement):
    """Each rank holds a tensor of the full shape; the value is their sum, product, max or min.

    Other reductions, such as PyTorch's "avg", raise ArgumentError where a tensor is to lie so.

    >>> metaop.distributed.tensor.Partial("max")
    Partial(max)
    """

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


def states_of(placements: Sequence[MeshPlacement] | None, axes: int) -> NdSbp:
    """The states that placements name, one for each axis of a mesh; without any, all replicate.

    Raises ArgumentError for another number of them, and ArgumentTypeError for anything else.
    """
    if placements is None:
        return (BROADCAST,) * axes
    if isinstance(placements, MeshPlacement) or not isinstance(placements, Sequence):
        raise ArgumentTypeError(
            f"placements is {placements!r}", fix="give a list with one placement per mesh axis"
        )
    if len(placements) != axes:
        raise ArgumentError(
            f"{len(placements)} placements for a mesh of {axes} axes",
            fix=f"give a list of {axes}: Shard(dim), Replicate() or Partial()",
        )
    return tuple(_state(placement) for placement in placements)


def _state(placement: Any) -> Sbp:
    if isinstance(placement, Shard):
        return Split(placement.dim)
    if isinstance(placement, Replicate):
        return BROADCAST
    if not isinstance(placement, Partial):
        raise ArgumentTypeError(
            f"{placement!r} is no placement", fix="use Shard(dim), Replicate() or Partial()"
        )
    if placement.reduce_op not in _REDUCERS:
        raise ArgumentError(
            f"{placement!r} is not supported",
            fix=f"use one of {list(_REDUCERS)}; for a mean, divide by the size of the axis",
        )
    state: PartialState = PartialState(_REDUCERS[placement.reduce_op])
    return state


def placements_of(states: NdSbp) -> tuple[MeshPlacement, ...]:
    """PyTorch's names of states; ArgumentError for one that PyTorch has no name for."""
    return tuple(_placement(state) for state in states)


def _placement(state: Sbp) -> MeshPlacement:
    if isinstance(state, Split):
        return Shard(state.axis)
    if not isinstance(state, PartialState):
        return Replicate()
    if state.op not in _NAMES:
        raise ArgumentError(
            f"a tensor that lies as {state!r}, for which PyTorch has no placement",
            fix="read its state as tensor.sbp, or reduce it with to_global(sbp=sbp.broadcast)",
        )
    return Partial(_NAMES[state.op])
