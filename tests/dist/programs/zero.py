"""ZeRO stages 1, 2 and 3 against one process: losses, where the states lie, and checkpoints."""

import numpy as np

import metaop
from metaop import nn
from metaop.dist.sbp import block
from metaop.distributed import (
    FullyShardedDataParallel,
    ShardingStrategy,
    ZeroRedundancyOptimizer,
    get_rank,
    get_world_size,
)

rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(3)
inputs = random.normal(size=(8 * ranks, 10)).astype(np.float32)
labels = random.integers(0, 5, 8 * ranks)
start, stop = block(len(inputs), ranks, rank)
mine, everything = slice(start, stop), slice(None)


def network() -> nn.Module:
    """Sizes that the ranks do not divide: 17 and 5."""
    metaop.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 17), nn.LayerNorm(17), nn.GELU(), nn.Linear(17, 5))


def step(model: nn.Module, optimizer: metaop.optim.Optimizer, share: slice) -> metaop.Tensor:
    logits = model(metaop.tensor(inputs[share]))
    loss = nn.functional.cross_entropy(logits, metaop.tensor(labels[share]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def make(stage: int) -> tuple[nn.Module, metaop.optim.Optimizer]:
    if stage == 3:
        model = FullyShardedDataParallel(network())
        return model, metaop.optim.AdamW(model.parameters(), lr=0.01)
    if stage == 2:
        strategy = ShardingStrategy.SHARD_GRAD_OP
        model = FullyShardedDataParallel(network(), sharding_strategy=strategy)
    else:
        model = nn.parallel.DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), metaop.optim.AdamW, lr=0.01)
    return model, optimizer


alone = network()
single = metaop.optim.AdamW(alone.parameters(), lr=0.01)
expected = [step(alone, single, everything).item() for _ in range(20)]
for stage in (1, 2, 3):
    model, optimizer = make(stage)
    schedule = metaop.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    losses = []
    for number in range(20):
        loss = step(model, optimizer, mine)
        schedule.step()
        metaop.distributed.all_reduce(loss)
        losses.append(loss.item() / ranks)
        if number == 9 and stage < 3:
            # Half way everything is saved and taken up by new objects.
            saved = optimizer.state_dict()
            assert tuple(saved["state"][0]["exp_avg"].shape) == (17, 10)
            parameters = [p.detach().clone() for p in model.parameters()]
            model, optimizer = make(stage)
            with metaop.no_grad():
                for parameter, value in zip(model.parameters(), parameters):
                    parameter.copy_(value)
            optimizer.load_state_dict(saved)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    inner = optimizer if stage == 3 else optimizer.optim
    state = next(iter(inner.state.values()))["exp_avg"]
    assert state.sbp == metaop.distributed.sbp.split(0)
    rows = block(17, ranks, rank)
    assert tuple(state.to_local().shape) == (rows[1] - rows[0], 10)

# One rank saves alone after consolidation: whole states, and settings that a schedule has changed.
model, optimizer = make(1)
schedule = metaop.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
rate = optimizer.param_groups[0]["lr"]
weight = next(model.parameters())
view = weight.detach().view(-1)
step(model, optimizer, mine)
schedule.step()
np.testing.assert_array_equal(view.numpy(), weight.detach().reshape(-1).numpy())
optimizer.consolidate_state_dict(to=ranks - 1)
if rank == ranks - 1:
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["lr"] == rate / 2
    assert saved["state"][0]["exp_avg"].abs().sum() > 0
    assert tuple(saved["state"][0]["exp_avg"].shape) == (17, 10)
else:
    try:
        optimizer.state_dict()
    except metaop.errors.DistributedError as error:
        assert f"rank {ranks - 1} alone" in str(error)
    else:
        raise AssertionError("a rank without the consolidated states returned some")
step(model, optimizer, mine)
assert optimizer.state_dict()["param_groups"][0]["lr"] == rate / 2, "on all ranks again"

# Statistics of each rank's own share, where a global batch norm would use all of them.
norm = nn.BatchNorm1d(10)
placed = metaop.tensor(inputs[mine]).to_global(
    placement=metaop.distributed.placement.all("cpu"), sbp=metaop.distributed.sbp.split(0)
)
normalised = metaop.distributed.local_map(norm)(placed)
assert normalised.is_global
reference = nn.BatchNorm1d(10)(metaop.tensor(inputs[mine]))
np.testing.assert_allclose(
    normalised.to_local().detach().numpy(), reference.detach().numpy(), rtol=1e-6
)
print(f"rank {rank} agrees")
