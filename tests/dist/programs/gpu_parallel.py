"""Twenty steps with a network shared out over ranks that have a GPU each, against one device:
tensor, sequence and pipeline parallel, and nn.Graph in mixed precision."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.dist.memory import GpuMemory
from metaop.distributed import distribute_tensor, get_rank, get_world_size, placement, sbp
from metaop.distributed.pipelining import PipelineStage, Schedule1F1B
from tests.cuda.emulator import nccl_stand_in

STEPS, BATCH, TOKENS, WIDTH, INNER, CLASSES = 20, 8, 5, 4, 6, 3
rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(3)
inputs = random.normal(size=(BATCH, TOKENS, WIDTH)).astype(np.float32)
labels = random.integers(0, CLASSES, BATCH)
everywhere = placement.all("cuda")


class Attention(nn.Module):
    """Tokens that attend to those alike, behind a normalisation, added to their input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        y = self.norm(x)
        return x + (y @ y.transpose(1, 2)).softmax(2) @ self.value(y)


class Head(nn.Module):
    """A mean over the tokens and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, CLASSES)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.down(self.up(x.mean(1)).tanh())


def network() -> nn.Sequential:
    metaop.manual_seed(0)
    return nn.Sequential(Attention(), Head())


def sgd(model: nn.Module) -> metaop.optim.Optimizer:
    return metaop.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)


def losses(model: nn.Module, x: metaop.Tensor, y: metaop.Tensor) -> list[float]:
    optimizer, found = sgd(model), []
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


class Step(nn.Graph):
    def __init__(self, model: nn.Module, dtype: metaop.dtype | None = None) -> None:
        super().__init__()
        self.model = model
        if dtype is not None:
            self.config.enable_amp(dtype=dtype)
        self.add_optimizer(sgd(model))

    def build(self, x: metaop.Tensor, y: metaop.Tensor) -> metaop.Tensor:
        loss = nn.functional.cross_entropy(self.model(x).float(), y)
        loss.backward()
        return loss


def agree(what: str, found: list[float]) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=what)


@contextmanager
def from_gpu_to_gpu() -> Iterator[list[nccl_stand_in.Call]]:
    """Single numbers alone may come to host memory; the list gets what NCCL sent."""
    read, before = GpuMemory.get, len(nccl_stand_in.calls_made)

    def get(memory: GpuMemory, array: Any) -> np.ndarray:
        assert array.size == 1, array.shape
        return read(memory, array)

    GpuMemory.get = get  # type: ignore[method-assign]
    sent: list[nccl_stand_in.Call] = []
    try:
        yield sent
    finally:
        GpuMemory.get = read  # type: ignore[method-assign]
        sent += [one for _, one in nccl_stand_in.calls_made[before:] if one.name == "send"]


with metaop.device("cpu"):
    expected = losses(network(), metaop.tensor(inputs), metaop.tensor(labels))
assert expected[-1] < 0.7 * expected[0]

x, y = metaop.tensor(inputs), metaop.tensor(labels)
whole = [distribute_tensor(value, everywhere, sbp.broadcast) for value in (x, y)]
model = network().to_global(everywhere, sbp.broadcast)
for name, cut in (("up.weight", 0), ("up.bias", 0), ("down.weight", 1)):
    parameter = model[1].get_parameter(name)
    parameter.data = parameter.data.to_global(sbp=sbp.split(cut))
agree("tensor parallel", losses(model, *whole))
model = network().to_global(everywhere, sbp.broadcast)
agree("sequence parallel", losses(model, whole[0].to_global(sbp=sbp.split(1)), whole[1]))

# A stage for every rank, the attention alone on the first one.
metaop.manual_seed(0)
attention, head = network()
middle = [nn.Identity() for _ in range(ranks - 2)]
stage = PipelineStage([attention, *middle, head][rank], rank, ranks, device="cuda")
schedule = Schedule1F1B(stage, 2, loss_fn=nn.functional.cross_entropy)
optimizer = sgd(stage.submodule) if rank in (0, ranks - 1) else None
found = []
for _ in range(STEPS):
    for parameter in stage.submodule.parameters():
        parameter.grad = None
    parts: list[metaop.Tensor] = []
    with from_gpu_to_gpu() as sent:
        if stage.is_last:
            schedule.step(target=y, losses=parts)
        else:
            schedule.step(*([x] if stage.is_first else []))
    # Two micro-batches, forward and backward, between two stages.
    assert len(sent) == 2 * (not stage.is_first) + 2 * (not stage.is_last), sent
    if optimizer is not None:
        optimizer.step()
    found.append(sum(part.item() for part in parts) / 2)
if stage.is_last:
    agree("pipeline", found)

# A graph whose stages lie on half of the ranks each, with data parallel halves.
half = ranks // 2
places = [placement("cuda", range(half)), placement("cuda", range(half, ranks))]
model = network()
graph = Step(model)
for number, where in enumerate(places):
    model[number].to_global(where, sbp.broadcast)
    graph.model[number].config.set_stage(number, where)
graph.config.set_gradient_accumulation_steps(2)
given = [distribute_tensor(v, where, sbp.split(0)) for v, where in zip((x, y), places)]
with from_gpu_to_gpu() as sent:
    results = [graph(*given) for _ in range(STEPS)]
assert len(sent) >= 2 * STEPS
agree("graph of stages", [result.item() for result in results])

# Mixed precision, against the same on one device.
with metaop.device("cpu"):
    alone = Step(network(), metaop.bfloat16)
    values = metaop.tensor(inputs), metaop.tensor(labels)
    expected = [alone(*values).item() for _ in range(STEPS)]
graph = Step(network().to_global(everywhere, sbp.broadcast), metaop.bfloat16)
given = [distribute_tensor(v, everywhere, sbp.split(0)) for v in (x, y)]
agree("graph in mixed precision", [graph(*given).item() for _ in range(STEPS)])
print(f"rank {rank} agrees")
