"""The ranks' shares of a batch: joined into one global tensor, and split again.

Shares of different sizes are padded to the largest, and the padding is removed after sending. Both
are ordinary operators, so their gradients are derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaop.dist.collectives import everyone
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, PARTIAL, Sbp, Split
from metaop.nn.functional import pad
from metaop.tensor.core import Tensor
from metaop.tensor.functions.joining import cat
from metaop.tensor.sharded.global_tensor import to_global, to_local


class Shares:
    """The number of rows that each rank has of some tensors; every rank must create it."""

    def __init__(self, placement: Placement, tensors: Sequence[Tensor]) -> None:
        self.placement = placement
        self.rank, self.ranks = everyone().rank, placement.world.size
        placement.world.verify(f"the shares of {len(tensors)} tensors")
        extents = everyone().allgather([x.shape[0] for x in tensors])
        # The row counts of all ranks, for each tensor in order.
        self._waiting = list(map(list, zip(*extents)))
        self.known = [list(sizes) for sizes in dict.fromkeys(map(tuple, self._waiting))]

    def join(self, value: Tensor) -> Tensor:
        """The global tensor of the ranks' shares; call it in the order of the tensors."""
        sizes = self._waiting.pop(0)
        if len(set(sizes)) == 1:
            return to_global(value, self.placement, Split(0))
        most = max(sizes)
        blocks = to_global(_padded(value, most), self.placement, Split(0))
        starts = range(0, most * self.ranks, most)
        return cat([blocks[start : start + size] for start, size in zip(starts, sizes) if size])

    def take(self, value: Any) -> Any:
        """This rank's share of a result; its gradient is divided by the number of ranks.

        The loss is the mean of the ranks' losses.
        """
        if not isinstance(value, Tensor) or value.device.placement is None:
            return value
        sizes = self._sizes_of(value)
        if sizes is None:
            return self._counted(value, BROADCAST, PARTIAL)
        if len(set(sizes)) == 1:
            return self._counted(value, Split(0), Split(0))
        starts = [sum(sizes[:rank]) for rank in range(self.ranks)]
        blocks = [
            _padded(value[start : start + size], max(sizes)) for start, size in zip(starts, sizes)
        ]
        return self._counted(cat(blocks), Split(0), Split(0))[: sizes[self.rank]]

    def _sizes_of(self, value: Tensor) -> list[int] | None:
        """The rows of each rank; None if the result does not have rows per row of an argument."""
        for sizes in self.known if value.ndim else ():
            if sum(sizes) and value.shape[0] % sum(sizes) == 0:
                return [size * value.shape[0] // sum(sizes) for size in sizes]
        return None

    def _counted(self, value: Tensor, sbp: Sbp, gradient: Sbp) -> Tensor:
        share = to_local(to_global(value, sbp=sbp), grad_sbp=gradient)
        if share.requires_grad:
            share.register_hook(lambda found: found / self.ranks)  # type: ignore[attr-defined]
        return share


def _padded(value: Tensor, rows: int) -> Tensor:
    """A tensor padded with zeros to some number of rows."""
    if value.shape[0] == rows:
        return value
    return pad(value, [0, 0] * (value.ndim - 1) + [0, rows - value.shape[0]])
