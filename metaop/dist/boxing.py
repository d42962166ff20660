"""Resharding along one mesh axis.

`shard` and `assemble` define the meaning of a state; a `World` moves the parts. `SimulatedWorld`
holds all ranks in one process and is the oracle of `MPIWorld` (in `collectives`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from metaop.dist.cost import sent_bytes
from metaop.dist.sbp import Broadcast, Partial, Sbp, Split, block
from metaop.reduce.reducers import REDUCERS
from metaop.unified_graph import dtype as dtypes

Parts = dict[int, np.ndarray]

# How NumPy combines partial values.
COMBINE = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.logical_and,
    "or": np.logical_or,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


class World(Protocol):
    """Collectives among the ranks of one mesh axis; this process owns the ranks in `owned`."""

    size: int
    owned: tuple[int, ...]

    def box(self, parts: Parts, source: Sbp, target: Sbp, shape: Sequence[int]) -> Parts:
        """Reshards the parts of a tensor of logical `shape` from `source` to `target`."""

    def total(self, extent: int) -> int:
        """The full extent of a dimension that is split over the ranks; this rank has `extent`."""

    def verify(self, plan: str) -> None:
        """Raises an error if the ranks are about to do different things."""


def shard(value: np.ndarray, sbp: Sbp, ranks: int, rank: int) -> np.ndarray:
    """One rank's part; rank 0 holds all of a partial value, the others the reducer's identity."""
    if isinstance(sbp, Split):
        start, stop = block(value.shape[sbp.axis], ranks, rank)
        return value[(slice(None),) * sbp.axis + (slice(start, stop),)].copy()
    if isinstance(sbp, Partial) and rank:
        dtype = dtypes.from_numpy_dtype(value.dtype)
        assert dtype is not None
        return np.full_like(value, REDUCERS[sbp.op].identity(dtype))
    return value


def assemble(parts: Sequence[np.ndarray], sbp: Sbp) -> np.ndarray:
    """The value whose parts the ranks hold."""
    if isinstance(sbp, Split):
        return np.concatenate(parts, axis=sbp.axis)
    if isinstance(sbp, Partial):
        total = parts[0]
        for part in parts[1:]:
            total = COMBINE[sbp.op](total, part)
        return total
    return parts[0]


def box_alone(
    parts: Mapping[int, np.ndarray], source: Sbp, target: Sbp, ranks: int, shape: Sequence[int]
) -> Parts | None:
    """Reshards without communication; None if that needs data from other ranks."""
    if source == target:
        return dict(parts)
    if isinstance(source, Broadcast):
        return {rank: shard(part, target, ranks, rank) for rank, part in parts.items()}
    if isinstance(source, Split) and target == Partial():
        return {rank: _padded(part, source, ranks, rank, shape) for rank, part in parts.items()}
    return None


def _padded(
    part: np.ndarray, source: Split, ranks: int, rank: int, shape: Sequence[int]
) -> np.ndarray:
    """A rank's block in a tensor of the full shape, with zeros elsewhere."""
    whole = np.zeros_like(part, shape=tuple(shape))
    start, stop = block(shape[source.axis], ranks, rank)
    whole[(slice(None),) * source.axis + (slice(start, stop),)] = part
    return whole


class SimulatedWorld:
    """All ranks of one mesh axis in this process; `sent` counts the bytes that each would send."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.owned = tuple(range(size))
        self.sent = [0] * size

    def box(self, parts: Parts, source: Sbp, target: Sbp, shape: Sequence[int]) -> Parts:
        alone = box_alone(parts, source, target, self.size, shape)
        if alone is not None:
            return alone
        value = assemble([parts[rank] for rank in self.owned], source)
        for rank in self.owned:
            self.sent[rank] += sent_bytes(source, target, shape, value.itemsize, self.size, rank)
        return {rank: shard(value, target, self.size, rank).copy() for rank in self.owned}

    def total(self, extent: int) -> int:
        return extent * self.size

    def verify(self, plan: str) -> None:
        """Does nothing: ranks in one process run the same plan."""
