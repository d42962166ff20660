"""What adversarial networks share: two players with their losses, training in turn, pictures.

A generator draws images and a judge tells them from real ones. Each network's file shows what is
its own: the players, or what they want.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import digit_images, random_batches, train, update


class Turn(NamedTuple):
    """Real images with their labels, drawn images, and the codes that these were drawn from."""

    real: metaop.Tensor
    labels: metaop.Tensor
    false: metaop.Tensor
    codes: tuple[metaop.Tensor, ...]


class Adversaries(nn.Module):
    """A generator, which makes images of codes, and a judge, with what each of them wants."""

    def __init__(self, generator: nn.Module, judge: nn.Module, latent: int) -> None:
        super().__init__()
        self.generator, self.judge, self.latent = generator, judge, latent

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        """What the generator reads for so many images: noise (count, latent) first."""
        return (metaop.randn(count, self.latent),)

    def judge_loss(self, turn: Turn) -> metaop.Tensor:
        """What the judge makes small; the drawn images have no gradient."""
        raise NotImplementedError

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        """What the generator makes small."""
        raise NotImplementedError


def judged(logits: metaop.Tensor, real: bool) -> metaop.Tensor:
    """The loss of a judge that should call all of these real, or all false."""
    target = metaop.ones_like(logits) if real else metaop.zeros_like(logits)
    return F.binary_cross_entropy_with_logits(logits, target)


def slope_penalty(judge: nn.Module, points: metaop.Tensor) -> metaop.Tensor:
    """How far the slope of the judge is from 1 at images (batch, channels, height, width)."""
    points = points.detach().requires_grad_()
    (slope,) = metaop.autograd.grad(judge(points).sum(), points, create_graph=True)
    return ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


def learn_to_draw(
    players: Adversaries,
    options: argparse.Namespace,
    size: int,
    betas: tuple[float, float] = (0.5, 0.999),
    judge_steps: int = 1,
) -> list[float]:
    """Learns to draw digits of size × size pixels; returns the losses of the judge.

    The judge makes `judge_steps` steps for each of the generator. 64 digits are drawn into the file
    `options.out` where it is named.
    """
    images = digit_images(size, channels=1)
    batches = random_batches(*images, size=options.batch_size, seed=options.seed)
    draw = metaop.optim.Adam(players.generator.parameters(), lr=options.lr, betas=betas)
    judge = metaop.optim.Adam(players.judge.parameters(), lr=options.lr, betas=betas)

    def step(number: int) -> dict[str, metaop.Tensor]:
        for _ in range(judge_steps):
            real, labels = next(batches)
            codes = players.codes(len(real))
            turn = Turn(real, labels, players.generator(*codes), codes)
            loss = players.judge_loss(turn._replace(false=turn.false.detach()))
            judge_loss = update(judge, loss)
        return {"judge": judge_loss, "generator": update(draw, players.generator_loss(turn))}

    history = train(step, options.steps, type(players).__name__)
    if options.out:
        with metaop.no_grad():
            drawn = players.generator.eval()(*players.codes(64))
        metaop.vision.utils.save_image(drawn, options.out, normalize=True)
    return history["judge"]
