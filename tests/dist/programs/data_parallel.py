"""Twenty steps on all ranks, each with its share of the batch, against one process."""

import numpy as np

import metaop
from metaop import nn
from metaop.dist.sbp import block
from metaop.distributed import get_rank, get_world_size

rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(3)
inputs = random.normal(size=(8 * ranks, 10)).astype(np.float32)
labels = random.integers(0, 5, 8 * ranks)


def network() -> nn.Module:
    metaop.manual_seed(rank)
    layers = [nn.Linear(10, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 5)]
    return nn.Sequential(*layers)


model = nn.parallel.DistributedDataParallel(network())
alone = network()
alone.load_state_dict(model.module.state_dict())
optimizers = [
    metaop.optim.AdamW(model.parameters(), lr=0.01),
    metaop.optim.AdamW(alone.parameters(), lr=0.01),
]
start, stop = block(len(inputs), ranks, rank)
shares = [slice(start, stop), slice(None)]
loss_function = nn.CrossEntropyLoss()
for _ in range(20):
    losses = []
    for module, optimizer, share in zip((model, alone), optimizers, shares):
        loss = loss_function(module(metaop.tensor(inputs[share])), metaop.tensor(labels[share]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    shared = metaop.tensor([losses[0]], dtype=metaop.float64)
    metaop.distributed.all_reduce(shared)
    np.testing.assert_allclose(shared.item() / ranks, losses[1], rtol=1e-5)

# Two halves of the share, averaged once at the end.
middle = (start + stop) // 2
for optimizer in optimizers:
    optimizer.zero_grad()
with model.no_sync():
    first = metaop.tensor(inputs[start:middle])
    (loss_function(model(first), metaop.tensor(labels[start:middle])) / 2).backward()
second = metaop.tensor(inputs[middle:stop])
(loss_function(model(second), metaop.tensor(labels[middle:stop])) / 2).backward()
loss_function(alone(metaop.tensor(inputs)), metaop.tensor(labels)).backward()
for mine, single in zip(model.parameters(), alone.parameters()):
    np.testing.assert_allclose(mine.grad.numpy(), single.grad.numpy(), rtol=1e-3, atol=1e-6)

# A pass that is asked for the gradients of some parameters averages them as well.
for optimizer in optimizers:
    optimizer.zero_grad()
for module, share in zip((model, alone), shares):
    loss = loss_function(module(metaop.tensor(inputs[share])), metaop.tensor(labels[share]))
    loss.backward(inputs=list(module.parameters()))
for mine, single in zip(model.parameters(), alone.parameters()):
    np.testing.assert_allclose(mine.grad.numpy(), single.grad.numpy(), rtol=1e-3, atol=1e-6)

# What some ranks use counts as zero on the others; what nobody uses has no gradient.
unused = nn.parallel.DistributedDataParallel(nn.ModuleList([nn.Linear(2, 2) for _ in range(3)]))
unused.module[0](metaop.ones(1, 2) * (rank + 1)).sum().backward(retain_graph=True)
np.testing.assert_allclose(unused.module[0].weight.grad.numpy(), (ranks + 1) / 2)
assert unused.module[1].weight.grad is None
unused.zero_grad()
unused.module[min(rank, 1)](metaop.ones(1, 2)).sum().backward()
np.testing.assert_allclose(unused.module[0].weight.grad.numpy(), 1 / ranks)
np.testing.assert_allclose(unused.module[1].weight.grad.numpy(), (ranks - 1) / ranks)
assert unused.module[2].weight.grad is None
print(f"rank {rank} agrees")
