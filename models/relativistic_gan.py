"""Relativistic GAN: the discriminator says whether an image is more real than the other kind.

After A. Jolicoeur-Martineau, "The relativistic discriminator: a key element missing from standard
GAN", 2018. So drawn images become real at the expense of real ones.

    python -m models.relativistic_gan --steps 150 --out runs/relativistic_gan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Adversaries, Turn, adversarial_loss, drawing_options, learn_to_draw
from .dcgan import Discriminator, Generator


class RelativisticGAN(Adversaries):
    """Each image is compared with the mean of the other kind, by both players."""

    def compared(self, turn: Turn, real: bool) -> metaop.Tensor:
        """The loss of one who wants that real images are the more real ones, or the less."""
        right, fake = self.discriminator(turn.real), self.discriminator(turn.fake)
        return adversarial_loss(right - fake.mean(), real) + adversarial_loss(
            fake - right.mean(), not real
        )

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.compared(turn, True)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.compared(turn, False)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = RelativisticGAN(generator, Discriminator(options.width, 1, 16), options.latent)
    return learn_to_draw(players, options, 16)


if __name__ == "__main__":
    main()
