"""Data parallel training with PyTorch's API: `metaop run -np 2 examples/dist/data_parallel.py`.

Every rank takes its share of the batch; the gradients are averaged before every step.
"""

from __future__ import annotations

import metaop
from metaop import nn
from metaop.distributed import get_rank, get_world_size


def main() -> None:
    """Fits a small network to a sum of sines."""
    rank, ranks = get_rank(), get_world_size()
    metaop.manual_seed(0)
    x = metaop.rand(512, 4)
    y = metaop.sin(3 * x).sum(1, keepdim=True)
    share = slice(rank * 512 // ranks, (rank + 1) * 512 // ranks)

    model = nn.Sequential(nn.Linear(4, 64), nn.GELU(), nn.Linear(64, 1))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = metaop.optim.Adam(model.parameters(), lr=0.01)
    for step in range(201):
        loss = nn.functional.mse_loss(model(x[share]), y[share])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 and rank == 0:
            print(f"step {step:3d}  loss of rank 0: {loss.item():.5f}")


if __name__ == "__main__":
    main()
