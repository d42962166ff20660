"""Synchronised batch normalisation over uneven shares against one process with the whole batch."""

import numpy as np

import metaop
from metaop import nn
from metaop.dist.sbp import block
from metaop.distributed import get_rank, get_world_size

rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(5)
BATCH = 4 * ranks + 1
inputs = random.normal(size=(BATCH, 3, 6, 6)).astype(np.float32)
labels = random.integers(0, 5, BATCH)
start, stop = block(BATCH, ranks, rank)


def network() -> nn.Module:
    metaop.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5)
    )


alone = network()
together = nn.SyncBatchNorm.convert_sync_batchnorm(network())
together = nn.parallel.DistributedDataParallel(together, bucket_cap_mb=0.002)
assert ranks == 1 or len(together._reducer.buckets) > 1
for _ in range(20):
    losses = []
    for model, share in ((alone, slice(None)), (together, slice(start, stop))):
        if not hasattr(model, "optimizer"):
            model.optimizer = metaop.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        logits = model(metaop.tensor(inputs[share]))
        loss = nn.functional.cross_entropy(logits, metaop.tensor(labels[share]), reduction="sum")
        # The mean over ranks of the gradients of these is the gradient of the batch's mean.
        factor = (1 if model is alone else ranks) / BATCH
        model.optimizer.zero_grad()
        (loss * factor).backward()
        model.optimizer.step()
        losses.append(loss.detach() / BATCH)
    metaop.distributed.all_reduce(losses[1])
    np.testing.assert_allclose(losses[1].item(), losses[0].item(), rtol=1e-5)

for name, value in alone.state_dict().items():
    other = together.module.state_dict()[name]
    np.testing.assert_allclose(other.numpy(), value.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)

# Local statistics, and the buffers of rank 0 on every rank.
metaop.manual_seed(0)
local = nn.parallel.DistributedDataParallel(nn.BatchNorm1d(3))
single = nn.BatchNorm1d(3)
shares = [metaop.randn(5, 3) for _ in range(ranks)]
for _ in range(3):
    local(shares[rank]).sum().backward()
    single(shares[0])
np.testing.assert_allclose(  # Also before the next pass, for a rank that evaluates now.
    local.module.running_mean.numpy(), single.running_mean.numpy(), rtol=1e-5
)
local(shares[rank])
expected = single.running_mean * 0.9 + 0.1 * shares[rank].mean(0)
np.testing.assert_allclose(local.module.running_mean.numpy(), expected.numpy(), rtol=1e-5)
print(f"rank {rank} agrees")
