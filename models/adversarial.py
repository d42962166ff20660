"""What GANs share: a generator and a discriminator with their losses, the training loop, samples.

The generator makes images, and the discriminator tells them from real ones. The file of each GAN
has only what distinguishes it: its networks or its losses.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import (
    Checkpoint,
    digit_images,
    drawn_rows,
    parse_options,
    train,
    update,
    write_picture,
)

Score = Callable[[metaop.Tensor], metaop.Tensor]


class Turn(NamedTuple):
    """One batch of both players: real images, labels, generated images and their latent codes.

    `labels` and `codes` hold other inputs for some networks, such as the images to translate.
    """

    real: metaop.Tensor
    labels: metaop.Tensor
    fake: metaop.Tensor
    codes: tuple[metaop.Tensor, ...]


class Adversaries(nn.Module):
    """A generator, which maps latent codes to images, a discriminator, and the losses of both."""

    def __init__(self, generator: nn.Module, discriminator: nn.Module, latent: int) -> None:
        super().__init__()
        self.generator, self.discriminator, self.latent = generator, discriminator, latent

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        """Random inputs of the generator for `count` images: noise (count, latent) first."""
        return (metaop.randn(count, self.latent),)

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        """A batch with generated images; codes are sampled unless they are given."""
        codes = codes or self.codes(len(real))
        return Turn(real, labels, self.generator(*codes), codes)

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        """What the discriminator minimises; `turn.fake` is detached from the generator."""
        raise NotImplementedError

    def after_discriminator_step(self) -> None:
        """A hook that runs after each step of the discriminator."""

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        """What the generator minimises."""
        raise NotImplementedError


def adversarial_loss(logits: metaop.Tensor, real: bool) -> metaop.Tensor:
    """Binary cross-entropy of logits whose images are all labelled real, or all fake."""
    target = metaop.ones_like(logits) if real else metaop.zeros_like(logits)
    return F.binary_cross_entropy_with_logits(logits, target)


def gradient_norms(discriminator: Score, points: metaop.Tensor) -> metaop.Tensor:
    """The norms (batch,) of gradients with respect to images (batch, channels, height, width)."""
    points = points.detach().requires_grad_()
    (gradient,) = metaop.autograd.grad(discriminator(points).sum(), points, create_graph=True)
    return gradient.flatten(1).norm(2, dim=1)


def gradient_penalty(discriminator: Score, points: metaop.Tensor) -> metaop.Tensor:
    """The mean of (gradient norm - 1)² at images (batch, channels, height, width)."""
    return ((gradient_norms(discriminator, points) - 1) ** 2).mean()


def interpolated(turn: Turn, epsilon: metaop.Tensor | None = None) -> metaop.Tensor:
    """Points on the lines between real and generated images, where penalties are taken.

    `epsilon` (batch, 1, 1, 1) in [0, 1] is the share of the real images; random by default.
    """
    if epsilon is None:
        epsilon = metaop.rand(len(turn.real), 1, 1, 1)
    return epsilon * turn.real + (1 - epsilon) * turn.fake


class Pair(nn.Module):
    """Two networks for two domains, whose images are concatenated along the batch axis.

    The first network reads the first half of a batch, the second network the second half.
    """

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        first, second = x.chunk(2)
        return metaop.cat((self.first(first), self.second(second)))


def swap_halves(x: metaop.Tensor) -> metaop.Tensor:
    """A batch with its halves swapped."""
    return metaop.cat(x.chunk(2)[::-1])


def gan_options(
    description: str | None, arguments: Sequence[str] | None, **further: int | float | str
) -> argparse.Namespace:
    """`parse_options` with the options of GANs; defaults suit small images."""
    defaults = dict(steps=150, batch_size=32, lr=1e-3, latent=32, width=16, out="")
    options: dict[str, Any] = {**defaults, **further}
    return parse_options(description, arguments, **options)


def train_adversaries(
    players: Adversaries,
    options: argparse.Namespace,
    arrays: Sequence[np.ndarray],
    show: Callable[[], metaop.Tensor],
    betas: tuple[float, float] = (0.5, 0.999),
    discriminator_steps: int = 1,
) -> dict[str, list[float]]:
    """Trains on batches of the arrays, which `players.turn` takes; returns both losses by step.

    The discriminator takes `discriminator_steps` steps for each step of the generator. If
    `options.out` names a file, the images that `show` returns are written there.
    """
    optimizer_g, optimizer_d = (
        metaop.optim.Adam(network.parameters(), lr=options.lr, betas=betas)
        for network in (players.generator, players.discriminator)
    )

    def step(number: int) -> dict[str, metaop.Tensor]:
        for repetition in range(discriminator_steps):
            seed = options.seed, number, repetition
            turn = players.turn(*drawn_rows(*arrays, size=options.batch_size, seed=seed))
            loss = players.discriminator_loss(turn._replace(fake=turn.fake.detach()))
            discriminator_loss = update(optimizer_d, loss)
            players.after_discriminator_step()
        return {
            "discriminator": discriminator_loss,
            "generator": update(optimizer_g, players.generator_loss(turn)),
        }

    checkpoint = Checkpoint(
        options.checkpoint, players=players, optimizer_g=optimizer_g, optimizer_d=optimizer_d
    )
    history = train(step, options.steps, type(players).__name__, checkpoint)
    if options.out:
        players.eval()
        with metaop.no_grad():
            write_picture(show(), options.out, normalize=True)
    return history


def train_on_digits(
    players: Adversaries,
    options: argparse.Namespace,
    size: int,
    betas: tuple[float, float] = (0.5, 0.999),
    discriminator_steps: int = 1,
) -> list[float]:
    """Learns to generate digits of size × size pixels; returns the losses of the discriminator.

    If `options.out` names a file, 64 generated digits are written there.
    """

    def show() -> metaop.Tensor:
        return players.generator(*players.codes(64))

    arrays = digit_images(size, channels=1)
    return train_adversaries(players, options, arrays, show, betas, discriminator_steps)[
        "discriminator"
    ]
