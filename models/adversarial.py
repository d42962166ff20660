"""What adversarial networks share: two players with their losses, training in turn, pictures.

A generator draws images and a discriminator tells them from real ones. Each network's file shows
only what is its own: the players, or their losses.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, digit_images, drawn_rows, parse_options, train, update

Score = Callable[[metaop.Tensor], metaop.Tensor]


class Turn(NamedTuple):
    """Real images with their labels, drawn images, and the codes that these were drawn from.

    In the place of labels and codes may come what else a network reads, as images to translate.
    """

    real: metaop.Tensor
    labels: metaop.Tensor
    fake: metaop.Tensor
    codes: tuple[metaop.Tensor, ...]


class Adversaries(nn.Module):
    """A generator, which makes images of codes, a discriminator, and the losses of both."""

    def __init__(self, generator: nn.Module, discriminator: nn.Module, latent: int) -> None:
        super().__init__()
        self.generator, self.discriminator, self.latent = generator, discriminator, latent

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        """What the generator reads for so many images: noise (count, latent) first."""
        return (metaop.randn(count, self.latent),)

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        """What the generator draws beside a batch; codes are drawn at random if none are given."""
        codes = codes or self.codes(len(real))
        return Turn(real, labels, self.generator(*codes), codes)

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        """What the discriminator makes small; the drawn images have no gradient."""
        raise NotImplementedError

    def after_discriminator_step(self) -> None:
        """What is done after each step of the discriminator."""

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        """What the generator makes small."""
        raise NotImplementedError


def adversarial_loss(logits: metaop.Tensor, real: bool) -> metaop.Tensor:
    """The loss of a discriminator that should call all of these real, or all fake."""
    target = metaop.ones_like(logits) if real else metaop.zeros_like(logits)
    return F.binary_cross_entropy_with_logits(logits, target)


def slopes(discriminator: Score, points: metaop.Tensor) -> metaop.Tensor:
    """The slopes (batch,) of the discriminator at images (batch, channels, height, width)."""
    points = points.detach().requires_grad_()
    (slope,) = metaop.autograd.grad(discriminator(points).sum(), points, create_graph=True)
    return slope.flatten(1).norm(2, dim=1)


def slope_penalty(discriminator: Score, points: metaop.Tensor) -> metaop.Tensor:
    """How far the discriminator's slope is from 1 at images (batch, channels, height, width)."""
    return ((slopes(discriminator, points) - 1) ** 2).mean()


class Pair(nn.Module):
    """Two networks, of which the first reads the first half of a batch and the second the other.

    So do networks of two kinds of images, which stand behind each other.
    """

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        first, second = x.chunk(2)
        return metaop.cat((self.first(first), self.second(second)))


def exchanged(x: metaop.Tensor) -> metaop.Tensor:
    """A batch with its halves in the other order."""
    return metaop.cat(x.chunk(2)[::-1])


def drawing_options(
    description: str | None, arguments: Sequence[str] | None, **further: int | float | str
) -> argparse.Namespace:
    """The options of `parse_options` for those who draw, with defaults that suit small images."""
    defaults = dict(steps=150, batch_size=32, lr=1e-3, latent=32, width=16, out="")
    options: dict[str, Any] = {**defaults, **further}
    return parse_options(description, arguments, **options)


def learn_in_turn(
    players: Adversaries,
    options: argparse.Namespace,
    arrays: Sequence[np.ndarray],
    show: Callable[[], metaop.Tensor],
    betas: tuple[float, float] = (0.5, 0.999),
    discriminator_steps: int = 1,
) -> dict[str, list[float]]:
    """Learns from batches of the arrays, which `players.turn` reads; returns both losses.

    The discriminator makes `discriminator_steps` steps for each of the generator. The images of
    `show` are drawn into the file `options.out` if it is given.
    """
    draw = metaop.optim.Adam(players.generator.parameters(), lr=options.lr, betas=betas)
    discriminator = metaop.optim.Adam(
        players.discriminator.parameters(), lr=options.lr, betas=betas
    )

    def step(number: int) -> dict[str, metaop.Tensor]:
        for again in range(discriminator_steps):
            seed = options.seed, number, again
            turn = players.turn(*drawn_rows(*arrays, size=options.batch_size, seed=seed))
            loss = players.discriminator_loss(turn._replace(fake=turn.fake.detach()))
            discriminator_loss = update(discriminator, loss)
            players.after_discriminator_step()
        return {
            "discriminator": discriminator_loss,
            "generator": update(draw, players.generator_loss(turn)),
        }

    checkpoint = Checkpoint(
        options.checkpoint, players=players, draw=draw, discriminator=discriminator
    )
    history = train(step, options.steps, type(players).__name__, checkpoint)
    if options.out:
        players.eval()
        with metaop.no_grad():
            metaop.vision.utils.save_image(show(), options.out, normalize=True)
    return history


def learn_to_draw(
    players: Adversaries,
    options: argparse.Namespace,
    size: int,
    betas: tuple[float, float] = (0.5, 0.999),
    discriminator_steps: int = 1,
) -> list[float]:
    """Learns to draw digits of size × size pixels; returns the losses of the discriminator.

    64 digits are drawn into the file `options.out` where it is named.
    """

    def show() -> metaop.Tensor:
        return players.generator(*players.codes(64))

    arrays = digit_images(size, channels=1)
    return learn_in_turn(players, options, arrays, show, betas, discriminator_steps)[
        "discriminator"
    ]
