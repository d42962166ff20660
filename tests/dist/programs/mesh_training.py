"""A program in PyTorch's style: a mesh of data and tensor parallelism, against one process."""

from typing import Any

import numpy as np

import metaop
import metaop.distributed as dist
from metaop import nn
from metaop.distributed.device_mesh import init_device_mesh
from metaop.distributed.tensor import DTensor, Replicate, Shard
from metaop.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

WORDS, WIDTH, CLASSES, STEPS = 11, 8, 6, 3


class Network(nn.Module):
    """An embedding, a norm and two layers, over sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, words: Any) -> Any:
        hidden = self.norm(self.table(words))
        return self.head(self.down(nn.functional.relu(self.up(hidden))))


def network() -> Network:
    """A network whose weights depend on nothing."""
    generator, model = np.random.default_rng(0), Network()
    for parameter in model.parameters():
        values = generator.normal(size=tuple(parameter.shape)) / 2
        parameter.data = metaop.tensor(values.astype(np.float32))
    return model


def batch() -> tuple[Any, Any]:
    """Sequences of words, and a class for every word."""
    generator = np.random.default_rng(1)
    words, classes = generator.integers(0, WORDS, (4, 6)), generator.integers(0, CLASSES, (4, 6))
    return metaop.tensor(words), metaop.tensor(classes)


def loss_of(scores: Any, classes: Any) -> Any:
    return nn.functional.cross_entropy(scores.flatten(0, 1), classes.flatten(0, 1))


def alone() -> list[float]:
    """The losses of one process."""
    model, (words, classes), losses = network(), batch(), []
    optimizer = metaop.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for _ in range(STEPS):
        loss = loss_of(model(words), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def on_a_mesh() -> list[float]:
    """The losses of all ranks: a row of the mesh has a share of the batch, a column of weights."""
    ranks = dist.get_world_size()
    columns = min(ranks, 2)
    mesh = init_device_mesh("cpu", (ranks // columns, columns), mesh_dim_names=("dp", "tp"))
    plan = {
        "table": RowwiseParallel(
            input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False
        ),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "do*": RowwiseParallel(output_layouts=Shard(1)),
        "head": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
        "": PrepareModuleInput(
            input_layouts=Replicate(), desired_input_layouts=Replicate(), use_local_output=True
        ),
    }
    model = parallelize_module(network(), mesh["tp"], plan)
    row = mesh.get_local_rank("dp")
    words, classes = (value.chunk(mesh.size(0))[row] for value in batch())
    optimizer, losses = metaop.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), []
    for _ in range(STEPS):
        with loss_parallel():
            loss = loss_of(model(words), classes)
            optimizer.zero_grad()
            loss.backward()
        for parameter in model.parameters():
            gradient = parameter.grad
            part = gradient.redistribute(placements=parameter.placements).to_local()
            dist.all_reduce(part, op=dist.ReduceOp.SUM, group=mesh.get_group("dp"))
            parameter.grad = DTensor.from_local(
                part / mesh.size(0),
                gradient.device_mesh,
                parameter.placements,
                shape=gradient.shape,
                stride=gradient.stride(),
            )
        optimizer.step()
        total = loss.full_tensor().detach()
        dist.all_reduce(total, group=mesh["dp"].get_group())
        losses.append(total.item() / mesh.size(0))
    assert isinstance(model.up.weight, DTensor) and isinstance(model.up.weight, nn.Parameter)
    assert model.up.weight.placements == (Shard(0),)
    return losses


dist.init_process_group("gloo")
expected, found = alone(), on_a_mesh()
print(f"rank {dist.get_rank()} has the losses {' '.join(f'{loss:.5f}' for loss in found)}")
np.testing.assert_allclose(found, expected, rtol=1e-5)
