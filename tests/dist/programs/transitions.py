"""Every transition between processes, and training on global tensors, against one process."""

import numpy as np

import metaop
from metaop.dist.sbp import Split
from metaop.distributed import distribute_tensor, get_rank, placement, sbp

everywhere = placement.all("cpu")
value = np.random.default_rng(0).normal(size=(5, 7))
states = [sbp.broadcast, sbp.partial_sum, sbp.split(0), sbp.split(1)]
for source in states:
    for target in (sbp.broadcast, sbp.split(0), sbp.split(1)):
        tensor = distribute_tensor(metaop.tensor(value), everywhere, source)
        moved = tensor.to_global(sbp=target)
        assert moved.sbp == target
        np.testing.assert_allclose(moved.full_tensor().numpy(), value)

random = np.random.default_rng(1)
inputs, wanted = random.normal(size=(10, 6)), random.normal(size=(10, 4))
start = random.normal(size=(6, 4))


def losses(shared: bool, data: object, weights: object) -> list[float]:
    tensors = [metaop.tensor(array) for array in (inputs, wanted, start)]
    if shared:
        tensors = [
            distribute_tensor(tensor, everywhere, state)
            for tensor, state in zip(tensors, (data, data, weights))
        ]
    x, y, weight = tensors
    weight.requires_grad_()
    optimizer = metaop.optim.Adam([weight], lr=0.05)
    found = []
    for _ in range(20):
        loss = ((metaop.tanh(x @ weight) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


single = losses(False, None, None)
for data in (sbp.split(0), sbp.broadcast):
    for weights in (sbp.broadcast, sbp.split(0), Split(1)):
        np.testing.assert_allclose(losses(True, data, weights), single, rtol=1e-5)
print(f"rank {get_rank()} agrees")
