"""LSGAN: a GAN whose discriminator gives numbers, 1 for real images and 0 for drawn ones.

After X. Mao and others, "Least squares generative adversarial networks", 2016. Drawn images that
are far from 1 have a gradient even where the discriminator is sure.

    python -m models.lsgan --steps 150 --out runs/lsgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Adversaries, Turn, drawing_options, learn_to_draw
from .dcgan import Discriminator, Generator


class LSGAN(Adversaries):
    """Squares of the distances from 1 and 0."""

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = self.discriminator(turn.real), self.discriminator(turn.fake)
        return ((real - 1) ** 2).mean() / 2 + (fake**2).mean() / 2

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return ((self.discriminator(turn.fake) - 1) ** 2).mean() / 2


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = LSGAN(generator, Discriminator(options.width, 1, 16), options.latent)
    return learn_to_draw(players, options, 16)


if __name__ == "__main__":
    main()
