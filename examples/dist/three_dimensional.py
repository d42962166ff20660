"""GPT, BERT and ViT with 3D parallelism: data × tensor × pipeline.

    metaop run -np 8 examples/dist/three_dimensional.py --model gpt --data 2 --tensor 2 --stages 2

The networks are written for one device. What makes them parallel: each half of the blocks is put on
a mesh of ranks; on it the batch is split along the first axis and the weights along the second,
columns where a layer widens and rows where it narrows; `nn.Graph` runs the halves as a pipeline.
The losses are compared with those of one device.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

import metaop
from metaop import nn
from metaop.distributed import distribute_tensor, get_rank, placement, sbp
from models.gpt import Block
from models.vit import EncoderBlock

WIDTH, HEADS, LAYERS, LENGTH, WORDS, BATCH, MICRO = 32, 4, 4, 12, 40, 16, 4
# The weights that are split by input, because the previous layer is split by output.
ROWS = ("c_proj.weight", "linear2.weight", "out_proj.weight", "mlp.3.weight")
COLUMNS = (
    *("c_attn.weight", "c_fc.weight", "c_fc.bias", "linear1.weight", "linear1.bias"),
    *("in_proj_weight", "mlp.0.weight", "mlp.0.bias"),
)


class Words(nn.Module):
    """Token plus position embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: metaop.Tensor) -> metaop.Tensor:
        places = metaop.arange(tokens.shape[1], device=tokens.device)
        return self.words(tokens) + self.places(places)


class Patches(nn.Module):
    """Patch embeddings of an image after the class token."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, WIDTH, 4, 4)
        self.token = nn.Parameter(metaop.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(metaop.randn(1, 5, WIDTH) * 0.02)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        patches = self.project(images).flatten(2).transpose(1, 2)
        tokens = self.token.expand(len(images), -1, -1)
        return metaop.cat((tokens, patches), 1) + self.places


class First(nn.Module):
    """The vector of the first token."""

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x[:, 0]


def network(model: str) -> tuple[list[nn.Module], np.ndarray, np.ndarray]:
    """The layers of a small network in their order, inputs and labels."""
    metaop.manual_seed(0)
    random = np.random.default_rng(0)
    tokens = random.integers(0, WORDS, (BATCH, LENGTH + 1))
    head = [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)]
    if model == "gpt":
        blocks = [Block(WIDTH, HEADS, 0.0) for _ in range(LAYERS)]
        return [Words(), *blocks, *head], tokens[:, :-1], tokens[:, 1:]
    if model == "bert":
        blocks = [
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True)
            for _ in range(LAYERS)
        ]
        hidden = np.where(random.random((BATCH, LENGTH)) < 0.15, 0, tokens[:, 1:])
        return [Words(), *blocks, *head], hidden, tokens[:, 1:]
    blocks = [EncoderBlock(HEADS, WIDTH, 2 * WIDTH, 0.0) for _ in range(LAYERS)]
    images = random.normal(size=(BATCH, 3, 8, 8)).astype(np.float32)
    return [Patches(), *blocks, First(), *head], images, tokens[:, 0]


def loss_of(logits: metaop.Tensor, labels: metaop.Tensor) -> metaop.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def single_device(model: str, steps: int) -> list[float]:
    """The losses of the whole network in one process."""
    layers, inputs, labels = network(model)
    whole = nn.Sequential(*layers)
    optimizer = metaop.optim.AdamW(whole.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        loss = loss_of(whole(metaop.tensor(inputs)), metaop.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def spread(stage: nn.Module, mesh: placement) -> None:
    """Puts a stage on a mesh of data × tensor ranks."""
    stage.to_global(mesh, (sbp.broadcast, sbp.broadcast))
    for name, parameter in stage.named_parameters():
        if name.endswith(ROWS + COLUMNS):
            state = sbp.split(1) if name.endswith(ROWS) else sbp.split(0)
            parameter.data = parameter.data.to_global(sbp=(sbp.broadcast, state))


class Step(nn.Graph):
    """A training step through all stages."""

    def __init__(self, stages: nn.Sequential, meshes: Sequence[placement]) -> None:
        super().__init__()
        self.model = stages
        for number, mesh in enumerate(meshes):
            self.model[number].config.set_stage(number, mesh)
            self.model[number].config.activation_checkpointing = True
        self.config.set_gradient_accumulation_steps(MICRO)
        self.add_optimizer(metaop.optim.AdamW(stages.parameters(), lr=1e-3))

    def build(self, inputs: metaop.Tensor, labels: metaop.Tensor) -> metaop.Tensor:
        loss = loss_of(self.model(inputs), labels)
        loss.backward()
        return loss


def parallel(model: str, data: int, tensor: int, count: int, steps: int) -> list[float]:
    """The losses of the same network on `data` × `tensor` × `count` ranks."""
    layers, inputs, labels = network(model)
    bounds = np.linspace(0, len(layers), count + 1).astype(int)
    stages = nn.Sequential(*(nn.Sequential(*layers[a:b]) for a, b in pairwise(bounds)))
    size = data * tensor
    meshes = [
        placement("cpu", np.arange(k * size, (k + 1) * size).reshape(data, tensor))
        for k in range(count)
    ]
    for stage, mesh in zip(stages, meshes):
        spread(stage, mesh)
    step = Step(stages, meshes)
    lie = (sbp.split(0), sbp.broadcast)
    x = distribute_tensor(metaop.tensor(inputs), meshes[0], lie)
    y = distribute_tensor(metaop.tensor(labels), meshes[-1], lie)
    return [step(x, y).item() for _ in range(steps)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains both ways and compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", choices=("gpt", "bert", "vit"), default=["gpt"])
    numbers: dict[str, int] = {"data": 2, "tensor": 2, "stages": 2, "steps": 20}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)
    show: Callable[..., None] = print if get_rank() == 0 else lambda *_: None
    for model in options.model:
        found = parallel(model, options.data, options.tensor, options.stages, options.steps)
        expected = single_device(model, options.steps)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        show(f"{model}: loss {found[0]:.5f} -> {found[-1]:.5f}, as on one device")


if __name__ == "__main__":
    main()
