"""An image is changed until filters see in it the content of one image and the style of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from models.demonstration import train, update

SIZE = 64


class Filters(nn.Module):
    """An image (1, 3, size, size) to what three layers of random filters see in it."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 16), (16, 24), (24, 32))
        self.layers = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in sizes])

    def forward(self, x: metaop.Tensor) -> list[metaop.Tensor]:
        seen = []
        for layer in self.layers:
            x = F.relu(layer(x))
            seen.append(x)
            x = F.avg_pool2d(x, 2)
        return seen


def _style(x: metaop.Tensor) -> metaop.Tensor:
    """How much channels (1, channels, height, width) go together."""
    rows = x.flatten(2)[0]
    return rows @ rows.T / rows.shape[1]


def _images() -> tuple[metaop.Tensor, metaop.Tensor]:
    """A disk, and stripes."""
    rows, columns = np.mgrid[:SIZE, :SIZE] / SIZE
    disk = (rows - 0.5) ** 2 + (columns - 0.5) ** 2 < 0.1
    stripes = np.sin(20 * (rows + columns))
    shapes = (np.stack([disk, rows, columns]), np.stack([stripes, -stripes, rows]))
    content, style = (metaop.tensor(x.astype(np.float32)[None]) for x in shapes)
    return content, style


def main(steps: int, compiled: Callable[..., Any]) -> list[float]:
    metaop.manual_seed(0)
    filters = Filters().requires_grad_(False)
    content, style = _images()
    wanted = filters(content)[-1]
    manner = [_style(x) for x in filters(style)]
    image = content.clone().requires_grad_()
    optimizer = metaop.optim.Adam([image], lr=0.05)

    @compiled
    def loss_of(image: metaop.Tensor) -> metaop.Tensor:
        seen = filters(image)
        loss = F.mse_loss(seen[-1], wanted)
        for x, target in zip(seen, manner):
            loss = loss + 100 * F.mse_loss(_style(x), target)
        rough = (image[..., 1:] - image[..., :-1]).abs().mean()
        return loss + 0.01 * rough

    def step(number: int) -> dict[str, metaop.Tensor]:
        loss = update(optimizer, loss_of(image))
        with metaop.no_grad():
            image.clamp_(-1, 1)
        return {"loss": loss}

    losses = train(step, steps, "repainting")["loss"]
    image.detach().numpy().mean()
    return losses
