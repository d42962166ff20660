"""A softmax whose classes lie on all ranks, unevenly: the losses and weights of one process."""

import numpy as np

import metaop
from metaop.distributed import distribute_tensor, placement, sbp
from metaop.nn import functional as F
from models.arcface import ArcFace

random = np.random.default_rng(0)
vectors, labels = random.standard_normal((20, 6, 5)), random.integers(0, 7, (20, 6))


def train(split: bool) -> tuple[list[float], np.ndarray]:
    """The losses of 20 steps, and the weights behind them."""
    metaop.manual_seed(0)
    head = ArcFace(5, 7, scale=8.0).double()
    everywhere = placement.all("cpu")
    if split:
        head.to_global(everywhere, sbp.split(0))
        assert head.weight.to_local().shape[0] < 7
    optimizer = metaop.optim.SGD(head.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for rows in zip(map(metaop.tensor, vectors), map(metaop.tensor, labels)):
        if split:
            rows = tuple(distribute_tensor(row, everywhere, sbp.broadcast) for row in rows)
        logits = head(*rows)
        assert not split or logits.sbp == sbp.split(1)
        loss = F.cross_entropy(logits, rows[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weight = head.weight.full_tensor() if split else head.weight
    return losses, weight.detach().numpy()


for found, expected in zip(train(True), train(False)):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
