"""Shares of the batch that differ from rank to rank, down to none: the losses of one process."""

from collections.abc import Callable

import numpy as np

import metaop
from metaop import nn
from metaop.distributed import (
    FullyShardedDataParallel,
    MixedPrecision,
    all_reduce,
    get_rank,
    get_world_size,
)

rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(5)
functional = nn.functional
# For each step how many rows each rank has.
SIZES = [[4] * ranks, [2 * k + 1 for k in range(ranks)], [0] * (ranks - 1) + [1], [4] * ranks]
BATCHES = [
    (random.normal(size=(sum(s), 3, 6)).astype(np.float32), random.integers(0, 5, (sum(s), 3)))
    for s in SIZES
]


class Words(nn.Module):
    """A row of the result for each of three words of each row of the batch, and a penalty."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 7), nn.Linear(7, 5)

    def forward(self, x: metaop.Tensor, scale: metaop.Tensor) -> tuple:
        hidden = metaop.tanh(self.first(x).flatten(0, 1))
        rows = self.last(hidden) * scale.flatten().unsqueeze(1)
        return rows, (self.first.weight**2).sum()


def loss_of(model: nn.Module, x: np.ndarray, y: np.ndarray, size: int) -> metaop.Tensor:
    """The part of some rows in the mean over `size` rows."""
    scale = metaop.tensor(np.full(y.shape, 1.5, np.float32))
    rows, penalty = model(metaop.tensor(x), scale=scale)
    labels = metaop.tensor(y.reshape(-1))
    return functional.cross_entropy(rows, labels, reduction="sum") / size + 0.01 * penalty


def losses(model: nn.Module, shares: bool, make: Callable) -> list[float]:
    optimizer = make(model.parameters(), lr=0.1)
    found = []
    for sizes, (x, y) in zip(SIZES, BATCHES):
        start = sum(sizes[:rank]) if shares else 0
        mine = slice(start, start + sizes[rank] if shares else None)
        # The mean over the ranks of what each has is the loss of one process.
        loss = loss_of(model, x[mine], y[mine], y.size / (ranks if shares else 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach()
        if shares:
            all_reduce(total, "avg")
        found.append(total.item())
    return found


def network() -> nn.Module:
    metaop.manual_seed(0)
    return Words()


expected = losses(network(), False, metaop.optim.SGD)
for wrap in (FullyShardedDataParallel, nn.parallel.DistributedDataParallel):
    found = losses(wrap(network()), True, metaop.optim.SGD)
    np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=wrap.__name__)

# Mixed precision: near to the above, in the type that was asked for, the masters in full.
mixed = MixedPrecision(param_dtype=metaop.bfloat16)
model = FullyShardedDataParallel(network(), mixed_precision=mixed)
rows, _ = model(metaop.ones(4, 3, 6), scale=metaop.ones(4, 3))
assert rows.dtype is metaop.bfloat16 and model.module.first.weight.dtype is metaop.float32
found = losses(model, True, metaop.optim.SGD)
np.testing.assert_allclose(found, expected, rtol=0.03)
assert max(abs(np.subtract(found, expected))) > 1e-6
print(f"rank {rank} agrees")
