"""A pipeline writes a checkpoint, to which every rank has another part; all ranks, data parallel,
go on from it."""

import shutil
import tempfile

import numpy as np

import metaop
from metaop import nn
from metaop.dist.collectives import everyone
from metaop.distributed import checkpoint, distribute_tensor, get_rank, get_world_size

rank, half = get_rank(), get_world_size() // 2
random = np.random.default_rng(0)
ROWS, STEPS = 9, 10
inputs = random.normal(size=(ROWS, 6)).astype(np.float32)
labels = random.integers(0, 4, ROWS)


class Step(nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(metaop.optim.AdamW(model.parameters(), lr=0.02))

    def build(self, x: metaop.Tensor, y: metaop.Tensor) -> metaop.Tensor:
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def network() -> nn.Sequential:
    metaop.manual_seed(0)
    first = nn.Sequential(nn.Linear(6, 9), nn.Tanh())
    return nn.Sequential(first, nn.Sequential(nn.Linear(9, 4)))


def losses(graph: Step, places: list, lie: metaop.sbp) -> list[float]:
    data = zip((inputs, labels), places)
    x, y = (distribute_tensor(metaop.tensor(value), place, lie) for value, place in data)
    return [graph(x, y).item() for _ in range(STEPS)]


alone = Step(network())
x, y = metaop.tensor(inputs), metaop.tensor(labels)
expected = [alone(x, y).item() for _ in range(2 * STEPS)]

folder = everyone().bcast(tempfile.mkdtemp() if rank == 0 else "", 0)
stages = [metaop.placement("cpu", range(half)), metaop.placement("cpu", range(half, 2 * half))]
model = network()
graph = Step(model)
for number, place in enumerate(stages):
    model[number].to_global(place, metaop.sbp.broadcast)
    graph.model[number].config.set_stage(number, place)
graph.config.set_gradient_accumulation_steps(3)
found = losses(graph, stages, metaop.sbp.broadcast)
checkpoint.save({"graph": graph, "losses": found}, checkpoint_id=folder)

everywhere = metaop.placement.all("cpu")
state = {"graph": Step(network().to_global(everywhere, metaop.sbp.split(0))), "losses": []}
checkpoint.load(state, checkpoint_id=folder)
found = state["losses"] + losses(state["graph"], [everywhere] * 2, metaop.sbp.split(0))
np.testing.assert_allclose(found, expected, rtol=1e-5)
everyone().Barrier()
if rank == 0:
    shutil.rmtree(folder)
