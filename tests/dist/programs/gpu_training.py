"""Training on a GPU for every rank against one CPU: data parallel, ZeRO, graphs, global tensors."""

from collections.abc import Callable

import numpy as np

import metaop
from metaop import nn
from metaop.dist.sbp import block
from metaop.distributed import (
    FullyShardedDataParallel,
    ZeroRedundancyOptimizer,
    all_gather,
    all_reduce,
    distribute_tensor,
    get_rank,
    get_world_size,
    placement,
    sbp,
)
from tests.cuda.emulator.cupy_stand_in import launched

STEPS = 20
rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(3)
inputs = random.normal(size=(4 * ranks, 5)).astype(np.float32)
labels = random.integers(0, 3, 4 * ranks)
start, stop = block(len(inputs), ranks, rank)
mine, everything = slice(start, stop), slice(None)
place = metaop.device("cuda")


class Network(nn.Module):
    """Sizes that the ranks do not divide, a normalisation, and a buffer."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        metaop.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.GELU(), nn.Linear(7, 3))
        # Equal values may share the memory of a GPU until they are given others.
        self.scales = nn.ParameterList([nn.Parameter(metaop.ones(3)) for _ in range(2)])
        with metaop.no_grad():
            self.scales[0].mul_(seed + 1.0)
        self.register_buffer("shift", metaop.full((3,), float(seed)))

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.layers(x) * self.scales[0] * self.scales[1] + self.shift


def step(model: nn.Module, optimizer: metaop.optim.Optimizer, share: slice) -> metaop.Tensor:
    here = "cpu" if share is everything else place
    logits = model(metaop.tensor(inputs[share], device=here))
    loss = nn.functional.cross_entropy(logits, metaop.tensor(labels[share], device=here))
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        assert parameter.grad.device is parameter.device
    optimizer.step()
    return loss.detach()


def losses(model: nn.Module, optimizer: metaop.optim.Optimizer) -> list[float]:
    found = []
    for _ in range(STEPS):
        loss = step(model, optimizer, mine)
        all_reduce(loss)
        found.append(loss.item() / ranks)
    return found


def adam(model: nn.Module) -> metaop.optim.Optimizer:
    return metaop.optim.AdamW(model.parameters(), lr=0.01)


with metaop.device("cpu"):
    alone = Network(0)
single = adam(alone)
expected = [step(alone, single, everything).item() for _ in range(STEPS)]

# Every rank begins with weights of its own.
model = nn.parallel.DistributedDataParallel(Network(rank), device_ids=[rank])
for name, value in model.module.state_dict().items():
    assert value.device is place, name
    copies = [metaop.zeros_like(value) for _ in range(ranks)]
    all_gather(copies, value)
    for copy in copies:
        np.testing.assert_array_equal(copy.cpu().numpy(), copies[0].cpu().numpy(), err_msg=name)
assert model.module.scales[0].tolist() == model.module.scales[1].tolist() == [1.0] * 3
np.testing.assert_allclose(losses(model, adam(model)), expected, rtol=1e-5)
for parameter, other in zip(model.parameters(), alone.parameters()):
    difference = parameter.detach().cpu().numpy() - other.detach().cpu().numpy()
    assert np.abs(difference).max() < 1e-5

model = nn.parallel.DistributedDataParallel(Network(0), bucket_cap_mb=1e-4)
# The first bucket starts when kernels of the backward pass are still to be launched.
output = model(metaop.tensor(inputs[mine])).square().sum()
starts: list[int] = []
for bucket in model._reducer.buckets:

    def start(ranks: int, begin: Callable[[int], None] = bucket.start) -> None:
        starts.append(len(launched))
        begin(ranks)

    bucket.start = start
output.backward()
assert len(starts) == len(model._reducer.buckets) > 2
assert starts[0] < len(launched) - 3, (starts, len(launched))
zero = ZeroRedundancyOptimizer(model.parameters(), metaop.optim.AdamW, lr=0.01)
np.testing.assert_allclose(losses(model, zero), expected, rtol=1e-5)
assert all(parameter.device is place for parameter in model.parameters())
state = next(iter(zero.optim.state.values()))["exp_avg"]
assert state.placement is placement.all("cuda") and state.sbp == sbp.split(0)

sharded = FullyShardedDataParallel(Network(0))
assert {one.placement.type for one in sharded.parameters()} == {"cuda"}
np.testing.assert_allclose(losses(sharded, adam(sharded)), expected, rtol=1e-5)

# Statistics of the whole batch.
norm = nn.SyncBatchNorm(5)
shared = metaop.tensor(inputs[mine], requires_grad=True)
(norm(shared) ** 3).sum().backward()
whole = metaop.tensor(inputs, device="cpu", requires_grad=True)
(nn.BatchNorm1d(5, device="cpu")(whole) ** 3).sum().backward()
gradient = whole.grad.numpy()[mine]
np.testing.assert_allclose(shared.grad.cpu().numpy(), gradient, rtol=1e-3, atol=1e-4)


class Step(nn.Graph):
    """One step in low precision, in two micro-batches."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.config.enable_amp(dtype=metaop.bfloat16)
        self.config.set_gradient_accumulation_steps(2)
        self.add_optimizer(metaop.optim.SGD(module.parameters(), lr=0.1))

    def build(self, x: metaop.Tensor) -> metaop.Tensor:
        result = self.module(x)
        assert result.dtype is metaop.bfloat16
        loss = result.float().square().mean()
        loss.backward()
        return loss


everywhere = placement.all("cuda")
linear = nn.Linear(5, 4).to_global(everywhere, {"weight": sbp.split(0)})
x = distribute_tensor(metaop.tensor(inputs), everywhere, sbp.split(0))
first = Step(linear)(x).item()
assert Step(linear)(x).item() < first

# From one placement to another, the other way round, and to the host.
value = metaop.arange(12).reshape(4, 3)
there = distribute_tensor(value, everywhere, sbp.split(0))
back = placement("cuda", list(reversed(range(ranks))))
moved = there.to_global(placement=back, sbp=sbp.split(1))
assert moved.device.type == "cuda" and moved.placement is back
np.testing.assert_array_equal(moved.full_tensor().cpu().numpy(), value.cpu().numpy())
assert moved.full_tensor().device is place and moved.to_local().device is place
hosted = moved.to_global(placement=placement.all("cpu"), sbp=sbp.split(0))
np.testing.assert_array_equal(hosted.numpy(), value.cpu().numpy())
print(f"rank {rank} agrees")
