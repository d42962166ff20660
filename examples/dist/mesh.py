"""Data and tensor parallelism together: `metaop run -np 4 examples/dist/mesh.py`.

The ranks form a mesh of two columns. The data is split along its first axis, the weights along its
second: the first weight by column, the second by row. The program is that for a single device.
"""

from __future__ import annotations

import numpy as np

import metaop
from metaop.distributed import distribute_tensor, get_rank, get_world_size, placement, sbp


def main() -> None:
    """Trains two layers and prints the losses, which do not depend on the number of ranks."""
    ranks = get_world_size()
    columns = 2 if ranks % 2 == 0 else 1
    mesh = placement("cpu", ranks=np.arange(ranks).reshape(-1, columns))
    metaop.manual_seed(0)
    x, y = metaop.randn(64, 8), metaop.randn(64, 4)
    first, second = metaop.randn(8, 32) * 0.2, metaop.randn(32, 4) * 0.2

    data = (sbp.split(0), sbp.broadcast)
    x, y = distribute_tensor(x, mesh, data), distribute_tensor(y, mesh, data)
    first = distribute_tensor(first, mesh, (sbp.broadcast, sbp.split(1))).requires_grad_()
    second = distribute_tensor(second, mesh, (sbp.broadcast, sbp.split(0))).requires_grad_()

    optimizer = metaop.optim.Adam([first, second], lr=0.02)
    for step in range(5):
        loss = ((metaop.relu(x @ first) @ second - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if get_rank() == 0:
            print(f"step {step}  loss {value:.5f}")


if __name__ == "__main__":
    main()
