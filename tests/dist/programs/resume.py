"""Half of a training run with parameters cut up, saved; the other half on any number of ranks."""

import sys
from pathlib import Path

import numpy as np

import metaop
from metaop import nn
from metaop.dist.sbp import block
from metaop.distributed import FullyShardedDataParallel, checkpoint, get_rank, get_world_size

path, BATCH = Path(sys.argv[1]), 12
rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(3)
inputs = random.normal(size=(BATCH, 10)).astype(np.float32)
labels = random.integers(0, 5, BATCH)


def network() -> nn.Module:
    metaop.manual_seed(rank)
    return nn.Sequential(nn.Linear(10, 17), nn.Tanh(), nn.Linear(17, 5))


def losses(model: nn.Module, optimizer: metaop.optim.Optimizer, share: slice) -> list[float]:
    found = []
    for _ in range(10):
        logits = model(metaop.tensor(inputs[share]))
        loss = nn.functional.cross_entropy(logits, metaop.tensor(labels[share]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach()
        if share != slice(None):
            metaop.distributed.all_reduce(total, "avg")
        found.append(total.item())
    return found


share = slice(*block(BATCH, ranks, rank))
model = FullyShardedDataParallel(network())
optimizer = metaop.optim.AdamW(model.parameters(), lr=0.02)
state = {"model": model, "optimizer": optimizer, "losses": []}
if path.exists():
    checkpoint.load(state, checkpoint_id=path)
    first = optimizer.state_dict()["state"][0]["exp_avg"]
    assert first.sbp == model.module[0].weight.sbp and len(state["losses"]) == 10
    state["losses"] += losses(model, optimizer, share)
    alone = network()
    alone.load_state_dict(
        {k.removeprefix("module."): v for k, v in metaop.load(f"{path}.start").items()}
    )
    single = metaop.optim.AdamW(alone.parameters(), lr=0.02)
    expected = losses(alone, single, slice(None)) + losses(alone, single, slice(None))
    np.testing.assert_allclose(state["losses"], expected, rtol=1e-5)
else:
    checkpoint.save(model.state_dict(), checkpoint_id=f"{path}.start")
    state["losses"] = losses(model, optimizer, share)
    checkpoint.save(state, checkpoint_id=path)
print(f"rank {rank} agrees")
