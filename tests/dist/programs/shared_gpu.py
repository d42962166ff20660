"""Ranks that share one GPU, for which NCCL has nothing: values go by way of host memory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.cuda.emulator.cupy_stand_in import install

install(devices=1)

import numpy as np  # noqa: E402

import metaop  # noqa: E402
import metaop.distributed as dist  # noqa: E402
from metaop import nn  # noqa: E402
from metaop.dist.memory import memory_of  # noqa: E402
from metaop.dist.nccl import StagedTransport  # noqa: E402
from metaop.distributed import placement, sbp  # noqa: E402
from metaop.distributed.pipelining import PipelineStage, Schedule1F1B  # noqa: E402

rank, ranks = dist.get_rank(), dist.get_world_size()
device = metaop.device("cuda:0")
total = sum(range(1, ranks + 1))


def check(tensor: metaop.Tensor, expected: object) -> None:
    assert tensor.device == device
    np.testing.assert_allclose(tensor.detach().cpu().float().numpy(), expected)


for dtype in (metaop.float32, metaop.bfloat16, metaop.int16):
    value = metaop.full((5,), rank + 1, device=device).to(dtype)
    dist.all_reduce(value)
    check(value, np.full(5, total))
    part = metaop.zeros(2, device=device, dtype=dtype)
    dist.reduce_scatter_tensor(part, metaop.arange(2 * ranks, device=device).to(dtype))
    check(part, ranks * np.arange(2 * rank, 2 * rank + 2))
    places = [metaop.zeros(k + 1, device=device, dtype=dtype) for k in range(ranks)]
    dist.all_gather(places, metaop.full((rank + 1,), rank, device=device).to(dtype))
    for k, place in enumerate(places):
        check(place, np.full(k + 1, k))
    dist.all_to_all(
        places, [metaop.full((rank + 1,), k, device=device).to(dtype) for k in range(ranks)]
    )
    for place in places:
        check(place, np.full(len(place), rank))
    dist.broadcast(value.add_(rank), ranks - 1)
    check(value, np.full(5, total + ranks - 1))
if rank == 0:
    dist.send(metaop.ones(3, device=device), 1)
elif rank == 1:
    value = metaop.zeros(3, device=device)
    dist.recv(value, 0)
    check(value, np.ones(3))

metaop.manual_seed(rank)
model = nn.parallel.DistributedDataParallel(nn.Linear(3, 2).to(device))
model(metaop.full((1, 3), float(rank), device=device)).sum().backward()
check(model.module.weight.grad, np.full((2, 3), np.arange(ranks).mean()))
# Stages on one GPU, and on a host and a GPU: gradients are those of one module.
for places in ([device] * ranks, [metaop.device("cpu"), *[device] * (ranks - 1)]):
    metaop.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(3, 3) for _ in range(ranks)))
    inputs = metaop.arange(12.0).reshape(4, 3) / 12
    nn.functional.mse_loss(layers(inputs), inputs).backward()
    expected = layers[rank].weight.grad.numpy()
    layers.zero_grad()
    stage = PipelineStage(layers[rank].to(places[rank]), rank, ranks)
    schedule = Schedule1F1B(stage, 2, loss_fn=nn.functional.mse_loss)
    there = inputs.to(places[rank])
    schedule.step(*([there] if rank == 0 else []), target=there if rank == ranks - 1 else None)
    assert layers[rank].weight.grad.device == places[rank]
    np.testing.assert_allclose(layers[rank].weight.grad.cpu().numpy(), expected, rtol=1e-5)
summed = metaop.ones(4, 3, device=device).to_global(
    placement=placement.all("cuda"), sbp=sbp.partial_sum
)
check(summed.to_global(sbp=sbp.split(0)).full_tensor(), np.full((4, 3), ranks))
assert isinstance(dist.group.WORLD.world.transport_at(memory_of(device)), StagedTransport)
print(f"rank {rank} agrees")
