"""Tensors and modules that are made global, on all ranks and on some, against one process."""

import os
import tempfile
from pathlib import Path

import numpy as np

import metaop
from metaop import nn
from metaop.dist.collectives import everyone
from metaop.distributed import get_rank, get_world_size, global_mode, placement, sbp
from metaop.errors import DistributedError

rank, ranks = get_rank(), get_world_size()
everywhere, some = placement.all("cpu"), placement("cpu", range(1, ranks))


def values(**options: object) -> list[metaop.Tensor]:
    metaop.manual_seed(7)
    shape = (2 * ranks + 1, 3)
    return [
        metaop.randn(*shape, **options),
        metaop.randint(0, 99, shape, **options),
        metaop.arange(2 * ranks + 1, dtype=metaop.float32, **options),
        metaop.randperm(2 * ranks + 1, **options),
        metaop.eye(ranks, 3, **options),
    ]


for where in (everywhere, some):
    for state in (sbp.split(0), sbp.broadcast, sbp.partial_sum):
        for found, expected in zip(values(placement=where, sbp=state), values()):
            assert found.placement is where
            assert not where.world.owned or found.sbp == state
            moved = found.to_global(placement=everywhere, sbp=sbp.broadcast)
            np.testing.assert_array_equal(moved.numpy(), expected.numpy())

# The values of a module are those of the first rank, whatever the others have drawn.
metaop.manual_seed(rank)
layer = nn.Linear(5, 4).to_global(everywhere, {"weight": sbp.split(1)})
metaop.manual_seed(0)
for name, value in nn.Linear(5, 4).state_dict().items():
    np.testing.assert_array_equal(layer.state_dict()[name].numpy(), value.numpy())
assert layer.weight.to_local().shape[0] == 4 and layer.weight.to_local().shape[1] < 5

with global_mode(True, placement=everywhere, sbp=sbp.split(0)):
    metaop.manual_seed(1)
    built = nn.Linear(3, 2 * ranks + 1)
metaop.manual_seed(1)
alone = nn.Linear(3, 2 * ranks + 1)
np.testing.assert_array_equal(built.weight.detach().numpy(), alone.weight.detach().numpy())

if rank == 0:
    try:
        metaop.ones(4).to_global(placement=some, sbp=sbp.split(0))
    except DistributedError as error:
        assert "of which it is none" in str(error)
    else:
        raise AssertionError("rank 0 has no part of it")
# One rank writes, one rank reads.
path = (
    Path(tempfile.gettempdir()) / f"metaop-{os.environ['OMPI_COMM_WORLD_RANK']}-{os.getppid()}.pth"
)
path = everyone().bcast(path, ranks - 1)
metaop.save(layer.state_dict(), path, global_dst_rank=ranks - 1)
loaded = metaop.load(path, global_src_rank=ranks - 1)
np.testing.assert_array_equal(loaded["weight"].numpy(), layer.weight.detach().numpy())
everyone().Barrier()
if rank == 0:
    path.unlink()
