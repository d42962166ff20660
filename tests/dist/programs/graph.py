"""nn.Graph against one device: accumulation, ZeRO, checkpoints, and a pipeline of stages that are
each data or tensor parallel."""

import numpy as np

import metaop
from metaop import nn
from metaop.distributed import distribute_tensor, get_rank, get_world_size, placement, sbp

rank, ranks = get_rank(), get_world_size()
random = np.random.default_rng(3)
BATCH, WIDTH = 16, 12
inputs = random.normal(size=(BATCH, WIDTH)).astype(np.float32)
labels = random.integers(0, 5, BATCH)


class Part(nn.Module):
    """Half of a network: two layers, the second one's input may be cut up by columns."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, 5 if last else WIDTH)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.down(nn.functional.gelu(self.up(self.norm(x))))

    def to_ranks(self, where: object, tensor_parallel: bool) -> None:
        """Column then row parallel along the last mesh axis, or everything on every rank."""
        axes = where.ranks.ndim
        rest = [sbp.broadcast] * (axes - 1)
        self.to_global(where, [sbp.broadcast] * axes)
        if tensor_parallel:
            for layer, weight in ((self.up, 0), (self.down, 1)):
                layer.weight.data = layer.weight.data.to_global(sbp=[*rest, sbp.split(weight)])
            self.up.bias.data = self.up.bias.data.to_global(sbp=[*rest, sbp.split(0)])


def network() -> nn.Sequential:
    metaop.manual_seed(0)
    return nn.Sequential(Part(False), Part(True))


def optimizer_of(model: nn.Module) -> metaop.optim.Optimizer:
    return metaop.optim.AdamW(model.parameters(), lr=0.01)


class Step(nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer_of(model))

    def build(self, x: metaop.Tensor, y: metaop.Tensor) -> metaop.Tensor:
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def losses(graph: nn.Graph, x: metaop.Tensor, y: metaop.Tensor) -> list[float]:
    return [graph(x, y).item() for _ in range(20)]


x, y = metaop.tensor(inputs), metaop.tensor(labels)
alone, single = network(), []
optimizer = optimizer_of(alone)
for _ in range(20):
    loss = nn.functional.cross_entropy(alone(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    single.append(loss.item())

# On one device: micro-batches, and values computed again.
graph = Step(network())
graph.config.set_gradient_accumulation_steps(3)
graph.model[0].config.activation_checkpointing = True
np.testing.assert_allclose(losses(graph, x, y), single, rtol=1e-5)

# Data parallel on all ranks, with ZeRO.
everywhere = placement.all("cpu")
for stage in (1, 3):
    model = network().to_global(everywhere, sbp.broadcast)
    graph = Step(model)
    graph.config.set_gradient_accumulation_steps(2)
    graph.config.enable_zero(stage > 0, stage=max(stage, 1))
    placed = [distribute_tensor(value, everywhere, sbp.split(0)) for value in (x, y)]
    np.testing.assert_allclose(losses(graph, *placed), single, rtol=1e-5)
    assert (model[0].up.weight.sbp == sbp.split(0)) == (stage == 3)

# Laid out by the search: local tensors become global, parameters lie as is cheapest.
graph = Step(network())
graph.config.enable_auto_parallel()
np.testing.assert_allclose(losses(graph, x, y), single, rtol=1e-5)
assert all(p.placement is everywhere for p in graph.model.parameters())

# A pipeline of two stages, each on half of the ranks.
half = ranks // 2
for tensor_parallel in (False, True)[:half]:
    stages = [placement("cpu", range(half)), placement("cpu", range(half, 2 * half))]
    model = network()
    for part, where in zip(model, stages):
        part.to_ranks(where, tensor_parallel)
    graph = Step(model)
    for number, where in enumerate(stages):
        graph.model[number].config.set_stage(number, where)
    graph.model[0].config.activation_checkpointing = tensor_parallel
    graph.config.set_gradient_accumulation_steps(4)
    lie = sbp.broadcast if tensor_parallel else sbp.split(0)
    placed = [distribute_tensor(v, where, lie) for v, where in zip((x, y), stages)]
    np.testing.assert_allclose(losses(graph, *placed), single, rtol=1e-5)
print(f"rank {rank} agrees")
