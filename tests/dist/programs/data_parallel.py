"""Twenty steps on all ranks, each with its share of the batch, against one process."""

from contextlib import nullcontext

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

# The forward pass decides whether its gradients are averaged, wherever the backward pass runs.
own, averaged = [], []
for forward_inside, backward_inside in ((True, True), (True, False), (False, False), (False, True)):
    model.zero_grad()
    with model.no_sync() if forward_inside else nullcontext():
        loss = loss_function(model(first), metaop.tensor(labels[start:middle]))
    with model.no_sync() if backward_inside else nullcontext():
        loss.backward()
    kept = own if forward_inside else averaged
    kept.append([parameter.grad.numpy() for parameter in model.parameters()])
for same in (own, averaged):
    for one, other in zip(*same):
        np.testing.assert_array_equal(one, other)
assert ranks == 1 or not np.array_equal(own[0][0], averaged[0][0])

# Gradients that exist are written in place: they may be views of a flat buffer.
flat = metaop.zeros(sum(parameter.numel() for parameter in model.parameters()))
sizes = [parameter.numel() for parameter in model.parameters()]
for parameter, view in zip(model.parameters(), flat.split(sizes)):
    parameter.grad = view.view_as(parameter)
kept = [parameter.grad for parameter in model.parameters()]
loss_function(model(first), metaop.tensor(labels[start:middle])).backward()
for parameter, before in zip(model.parameters(), kept):
    assert parameter.grad is before
np.testing.assert_allclose(
    flat.numpy(), np.concatenate([one.reshape(-1) for one in averaged[0]]), rtol=1e-5, atol=1e-7
)

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

# Ranks with different numbers of batches: rank k has k + 1 of them.
batches = random.normal(size=(ranks, ranks, 4, 10)).astype(np.float32)
for by_all in (True, False):
    normed = nn.parallel.DistributedDataParallel(nn.Sequential(network(), nn.BatchNorm1d(5)))
    reference = nn.Sequential(network(), nn.BatchNorm1d(5))
    reference.load_state_dict(normed.module.state_dict())
    descents = [metaop.optim.SGD(one.parameters(), lr=0.1) for one in (normed, reference)]
    with normed.join(divide_by_initial_world_size=by_all):
        for number in range(rank + 1):
            descents[0].zero_grad()
            normed(metaop.tensor(batches[number, rank])).pow(3).mean().backward()
            descents[0].step()
    for number in range(ranks):
        descents[1].zero_grad()
        training = range(number, ranks)
        before = {name: value.clone() for name, value in reference[1].named_buffers()}
        for k in training:
            # Each rank starts from the same statistics; those of the last rank remain.
            for name, value in reference[1].named_buffers():
                value.copy_(before[name])
            loss = reference(metaop.tensor(batches[number, k])).pow(3).mean()
            (loss / (ranks if by_all else len(training))).backward()
        descents[1].step()
    for name, value in reference.state_dict().items():
        np.testing.assert_allclose(
            normed.module.state_dict()[name].numpy(), value.numpy(), rtol=1e-4, atol=1e-5
        )
if ranks > 1:
    try:
        with model.join(throw_on_early_termination=True):
            for _ in range(rank + 1):
                model(first).sum().backward()
    except metaop.errors.DistributedError as error:
        assert f"of {ranks} ranks only" in str(error)
    else:
        raise AssertionError("a rank ended before the others unnoticed")
print(f"rank {rank} agrees")
