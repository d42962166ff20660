"""One program, several shardings: `metaop run -np 4 examples/dist/global_tensors.py`.

The network is written for one device. The placement of data and weights determines the parallelism:
data parallel, tensor parallel (column, then row), or sharded weights as in ZeRO.
"""

from __future__ import annotations

import metaop
from metaop.distributed import distribute_tensor, get_rank, placement, sbp

# The shardings of the data, the first weight and the second weight.
MODES = {
    "data parallel": (sbp.split(0), sbp.broadcast, sbp.broadcast),
    "tensor parallel": (sbp.broadcast, sbp.split(1), sbp.split(0)),
    "weights cut up": (sbp.split(0), sbp.split(0), sbp.split(0)),
}


def train(data: object, first: object, second: object) -> list[float]:
    """The losses of a few steps."""
    everywhere = placement.all("cpu")
    metaop.manual_seed(0)
    x, y = metaop.randn(64, 8), metaop.randn(64, 4)
    weights = [metaop.randn(8, 32) * 0.2, metaop.randn(32, 4) * 0.2]
    x, y = (distribute_tensor(tensor, everywhere, data) for tensor in (x, y))
    weights = [
        distribute_tensor(weight, everywhere, state).requires_grad_()
        for weight, state in zip(weights, (first, second))
    ]
    optimizer = metaop.optim.Adam(weights, lr=0.02)
    losses = []
    for _ in range(5):
        loss = ((metaop.relu(x @ weights[0]) @ weights[1] - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Trains in every mode: the losses are the same."""
    for name, states in MODES.items():
        losses = train(*states)
        if get_rank() == 0:
            print(f"{name:<16}", " ".join(f"{loss:.5f}" for loss in losses))


if __name__ == "__main__":
    main()
