"""A mesh of two axes on processes, moves between placements, and training, against one process."""

import sys
from itertools import product
from pathlib import Path

import numpy as np

import metaop
from metaop.distributed import distribute_tensor, get_rank, get_world_size, placement, sbp

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.dist.networks import train

rank, ranks = get_rank(), get_world_size()
mesh = placement("cpu", ranks=np.arange(ranks).reshape(-1, 2))
value = np.random.default_rng(0).normal(size=(7, 9))
single = [sbp.broadcast, sbp.partial_sum, sbp.split(0), sbp.split(1)]
pairs = list(product(single, single))
for source, target in zip(pairs * 3, pairs[3:] + pairs[5:] + pairs):
    tensor = distribute_tensor(metaop.tensor(value), mesh, source)
    moved = tensor.to_global(sbp=target)
    assert moved.sbp == target
    np.testing.assert_allclose(moved.full_tensor().numpy(), value)
narrow = distribute_tensor(metaop.ones(7, 9).half(), mesh, pairs[6]).to_global(sbp=pairs[11])
assert (narrow.full_tensor() == 1).all()

# From all ranks to the last half of them, to a row, and to one rank.
half = placement("cpu", ranks=range(ranks // 2, ranks))
everyone = placement("cpu", ranks=range(ranks))
last = placement("cpu", ranks=[ranks - 1])
for source in pairs[::3]:
    start = metaop.tensor(value).requires_grad_()
    tensor = distribute_tensor(start, mesh, source)
    there = tensor.to_global(placement=half, sbp=sbp.split(1))
    alone = there.to_global(placement=last, sbp=sbp.broadcast)
    if rank == ranks - 1:
        np.testing.assert_allclose(alone.to_local().detach().numpy(), value)
    back = alone.to_global(placement=everyone, sbp=sbp.split(0))
    np.testing.assert_allclose(back.full_tensor().detach().numpy(), value)
    (back * back).sum().backward()
    np.testing.assert_allclose(start.grad.numpy(), 2 * value)

for data, weights in [
    ((sbp.split(0), sbp.broadcast), (sbp.broadcast, sbp.split(0))),
    ((sbp.split(0), sbp.split(0)), (sbp.split(0), sbp.split(1))),
]:
    expected = train(None, sbp.broadcast, sbp.broadcast, steps=20)
    np.testing.assert_allclose(train(mesh, data, weights, steps=20), expected, rtol=1e-5)
print(f"rank {rank} agrees")
