"""`loss_parallel`: losses of global values and local labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST
from metaop.tensor.core import Tensor
from metaop.tensor.sharded import data_parallel
from metaop.tensor.sharded.global_tensor import distribute_tensor
from metaop.unified_graph.recording import Call, meeting


@contextmanager
def loss_parallel() -> Iterator[None]:
    """Local tensors that meet global ones inside, such as labels, are whole on every rank.

    Their values are those of the mesh's first rank; every rank gives the same shape. Losses of
    values that are split by class never gather them, inside or outside. Raises ArgumentError in a
    program that runs with --data-parallel.

    >>> mesh = metaop.distributed.init_device_mesh("cpu", (1,))
    >>> shard = metaop.distributed.tensor.Shard(1)
    >>> values = metaop.distributed.tensor.zeros(2, 4, device_mesh=mesh, placements=[shard])
    >>> with metaop.distributed.tensor.parallel.loss_parallel():
    ...     loss = F.cross_entropy(values, metaop.tensor([0, 3]))
    >>> loss.full_tensor()
    tensor(1.3863)
    """
    data_parallel.refuse("loss_parallel()")
    before = meeting.joined
    meeting.joined = lambda inputs: data_parallel.joined_by(_whole, inputs)
    try:
        yield
    finally:
        meeting.joined = before


def _whole(value: Tensor, placement: Placement) -> Call:
    return distribute_tensor(value, placement, (BROADCAST,) * placement.ranks.ndim).call
