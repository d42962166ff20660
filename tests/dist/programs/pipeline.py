"""A pipeline of modules, uneven micro-batches, both schedules, against one process."""

import numpy as np

import metaop
from metaop import nn
from metaop.dist.actor import peak_stash
from metaop.distributed import get_rank, get_world_size
from metaop.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(3)
BATCH, MICRO = 18, 4
inputs = metaop.tensor(random.normal(size=(BATCH, 10)).astype(np.float32))
labels = metaop.tensor(random.integers(0, 5, BATCH))


def blocks() -> list[nn.Module]:
    metaop.manual_seed(0)
    widths = [10, *(12 + k for k in range(ranks - 1)), 5]
    return [
        nn.Sequential(
            nn.Linear(widths[k], widths[k + 1]), nn.Tanh() if k < ranks - 1 else nn.Identity()
        )
        for k in range(ranks)
    ]


alone = nn.Sequential(*blocks())
single = metaop.optim.Adam(alone.parameters(), lr=0.02)
expected = []
for _ in range(20):
    loss = nn.functional.cross_entropy(alone(inputs), labels)
    single.zero_grad()
    loss.backward()
    single.step()
    expected.append(loss.item())

for kind in (Schedule1F1B, ScheduleGPipe):
    stage = PipelineStage(blocks()[rank], rank, ranks)
    schedule = kind(stage, MICRO, loss_fn=nn.functional.cross_entropy)
    optimizer = metaop.optim.Adam(stage.submodule.parameters(), lr=0.02)
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        losses: list[metaop.Tensor] = []
        if stage.is_first:
            schedule.step(inputs)
        elif stage.is_last:
            outputs = schedule.step(target=labels, losses=losses)
            sizes = [len(part) for part in metaop.tensor_split(labels, MICRO)]
            found.append(sum(n * x.item() for n, x in zip(sizes, losses)) / BATCH)
            assert tuple(outputs.shape) == (BATCH, 5)
        else:
            schedule.step()
        optimizer.step()
    held = ranks - rank if kind is Schedule1F1B else MICRO
    assert peak_stash(schedule.done, rank) == min(held, MICRO)
    if stage.is_last:
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    mine = dict(alone[rank].named_parameters())
    for name, value in stage.submodule.named_parameters():
        np.testing.assert_allclose(
            value.detach().cpu().numpy(), mine[name].detach().cpu().numpy(), rtol=1e-3, atol=1e-5
        )

# Without a loss only forwards run.
forward_only = ScheduleGPipe(PipelineStage(alone[rank], rank, ranks), MICRO)
with metaop.no_grad():
    outputs = forward_only.step(*([inputs] if rank == 0 else []))
    if rank == ranks - 1:
        whole = alone(inputs)
        np.testing.assert_allclose(outputs.cpu().numpy(), whole.cpu().numpy(), rtol=1e-4, atol=1e-5)

# Values of 16 bits keep their type on the way.
narrow = nn.Sequential(*blocks()).to(metaop.bfloat16)
forward_only = ScheduleGPipe(PipelineStage(narrow[rank], rank, ranks), MICRO)
with metaop.no_grad():
    outputs = forward_only.step(*([inputs.to(metaop.bfloat16)] if rank == 0 else []))
    if rank == ranks - 1:
        assert outputs.dtype is metaop.bfloat16
        whole = narrow(inputs.to(metaop.bfloat16)).float()
        np.testing.assert_allclose(
            outputs.float().cpu().numpy(), whole.cpu().numpy(), rtol=2e-2, atol=2e-2
        )
print(f"rank {rank} agrees")
