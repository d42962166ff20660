"""Relativistic average GAN: the discriminator estimates if real images look more real than fakes.

After A. Jolicoeur-Martineau, "The relativistic discriminator: a key element missing from standard
GAN", 2018. So the generator also lowers the scores of real images.

    python -m models.relativistic_gan --steps 150 --out runs/relativistic_gan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Adversaries, Turn, adversarial_loss, gan_options, train_on_digits
from .dcgan import Discriminator, Generator


class RelativisticGAN(Adversaries):
    """Each logit is compared with the mean logit of the opposite kind, by both players."""

    def relativistic_loss(self, turn: Turn, real_wins: bool) -> metaop.Tensor:
        """The loss of a player that wants real images to look more real than fakes, or less."""
        real, fake = self.discriminator(turn.real), self.discriminator(turn.fake)
        real_loss = adversarial_loss(real - fake.mean(), real_wins)
        return real_loss + adversarial_loss(fake - real.mean(), not real_wins)

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.relativistic_loss(turn, True)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.relativistic_loss(turn, False)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = RelativisticGAN(generator, Discriminator(options.width, 1, 16), options.latent)
    return train_on_digits(players, options, 16)


if __name__ == "__main__":
    main()
