"""Rank 1 is lost in the way that the first argument names; the others go on and agree with one
process that has seen the whole batch all the time."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import metaop
from metaop import nn
from metaop.dist.sbp import block
from metaop.distributed import checkpoint, elastic, get_rank, get_world_size

kind, path = sys.argv[1], Path(sys.argv[2])
STEPS, LOST_AT, BATCH = 12, 5, 24
random = np.random.default_rng(3)
inputs = random.normal(size=(BATCH, 10)).astype(np.float32)
labels = random.integers(0, 5, BATCH)
started_as = get_rank()


def network() -> nn.Module:
    metaop.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 5))


def step(model: nn.Module, optimizer: metaop.optim.Optimizer, share: slice, parts: int) -> float:
    logits, wanted = model(metaop.tensor(inputs[share])), metaop.tensor(labels[share])
    loss = nn.functional.cross_entropy(logits, wanted, reduction="sum") / BATCH
    optimizer.zero_grad()
    (loss * parts).backward()
    optimizer.step()
    total = loss.detach()
    if parts > 1:
        metaop.distributed.all_reduce(total)
    return total.item()


def train() -> list[float]:
    ranks = get_world_size()
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = metaop.optim.Adam(model.parameters(), lr=0.01)
    share = slice(*block(BATCH, ranks, get_rank()))
    state = {"model": model.state_dict(), "losses": []}
    if path.exists():
        checkpoint.load(state, checkpoint_id=path)
        optimizer.load_state_dict(state["optimizer"])
    while len(state["losses"]) < STEPS:
        if started_as == 1 and len(state["losses"]) == LOST_AT:
            if kind == "raise":
                raise ValueError("deliberate")
            os.kill(os.getpid(), signal.SIGKILL)
        loss = step(model, optimizer, share, ranks)
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "losses": [*state["losses"], loss],
        }
        checkpoint.save(state, checkpoint_id=path)
    return state["losses"]


if kind == "all":
    elastic.run(lambda: 1 / 0)
losses = elastic.run(train)
alone = network()
optimizer = metaop.optim.Adam(alone.parameters(), lr=0.01)
expected = [step(alone, optimizer, slice(None), 1) for _ in range(STEPS)]
np.testing.assert_allclose(losses, expected, rtol=1e-5)
print(f"rank {get_rank()} of {get_world_size()} agrees")
