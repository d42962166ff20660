"""CGAN: a GAN conditioned on the class label.

After M. Mirza and S. Osindero, "Conditional generative adversarial nets", 2014. The label,
one-hot encoded, is a further input of both the generator and the discriminator.

    python -m models.cgan --steps 400 --out runs/cgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .adversarial import Adversaries, Turn, adversarial_loss, gan_options, train_on_digits
from .gan import Discriminator, Generator


def one_hot(labels: metaop.Tensor, classes: int, like: metaop.Tensor) -> metaop.Tensor:
    """Labels (batch,) to one-hot rows (batch, classes) in the dtype of `like`."""
    return F.one_hot(labels, classes).to(like.dtype)


class ConditionalGenerator(nn.Module):
    """A generator of noise (batch, latent) and labels (batch,), concatenated as one input."""

    def __init__(self, generator: nn.Module, classes: int) -> None:
        super().__init__()
        self.generator, self.classes = generator, classes

    def forward(self, noise: metaop.Tensor, labels: metaop.Tensor) -> metaop.Tensor:
        return self.generator(metaop.cat((noise, one_hot(labels, self.classes, noise)), 1))


class Conditional(Adversaries):
    """Adversaries whose codes are noise (count, latent) and labels (count,)."""

    def __init__(
        self, generator: nn.Module, discriminator: nn.Module, latent: int, classes: int = 10
    ) -> None:
        super().__init__(ConditionalGenerator(generator, classes), discriminator, latent)
        self.classes = classes

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        return *super().codes(count), metaop.randint(0, self.classes, (count,))


class CGAN(Conditional):
    """The discriminator classifies pairs of image and label as real or fake."""

    def pair_loss(self, images: metaop.Tensor, labels: metaop.Tensor, real: bool) -> metaop.Tensor:
        return adversarial_loss(
            self.discriminator(images, one_hot(labels, self.classes, images)), real
        )

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real = self.pair_loss(turn.real, turn.labels, True)
        return real + self.pair_loss(turn.fake, turn.codes[1], False)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.pair_loss(turn.fake, turn.codes[1], True)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 8 × 8 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments, steps=400, lr=5e-4, latent=16, width=64)
    generator = Generator(options.latent + 10, options.width, 8)
    players = CGAN(generator, Discriminator(options.width, 8, 10), options.latent)
    return train_on_digits(players, options, 8)


if __name__ == "__main__":
    main()
