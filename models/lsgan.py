"""LSGAN: a GAN with least-squares losses.

After X. Mao and others, "Least squares generative adversarial networks", 2016. Generated images
far from the target value get a gradient even where the discriminator is certain.

    python -m models.lsgan --steps 150 --out runs/lsgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Adversaries, Turn, gan_options, train_on_digits
from .dcgan import Discriminator, Generator


class LSGAN(Adversaries):
    """Squared distances of the discriminator's outputs from 1 (real) and 0 (fake)."""

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = self.discriminator(turn.real), self.discriminator(turn.fake)
        return ((real - 1) ** 2).mean() / 2 + (fake**2).mean() / 2

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return ((self.discriminator(turn.fake) - 1) ** 2).mean() / 2


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = LSGAN(generator, Discriminator(options.width, 1, 16), options.latent)
    return train_on_digits(players, options, 16)


if __name__ == "__main__":
    main()
