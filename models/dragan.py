"""DRAGAN: a GAN with a gradient penalty around real images.

After N. Kodali, J. Abernethy, J. Hays, Z. Kira, "On convergence and stability of GANs", 2017. Mode
collapse comes with sharp gradients of the discriminator around real images; the penalty keeps
their norms near 1.

    python -m models.dragan --steps 150 --out runs/dragan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Turn, gan_options, gradient_penalty, train_on_digits
from .dcgan import Discriminator, Generator
from .gan import GAN


class DRAGAN(GAN):
    """The losses of a GAN, plus `lambda_gp` times the gradient penalty of the discriminator.

    The penalty is taken at real images plus half their standard deviation times `noise` (batch,
    channels, height, width), uniform in [0, 1].
    """

    lambda_gp = 10.0

    def discriminator_loss(self, turn: Turn, noise: metaop.Tensor | None = None) -> metaop.Tensor:
        if noise is None:
            noise = metaop.rand_like(turn.real)
        perturbed = turn.real + 0.5 * turn.real.std() * noise
        penalty = gradient_penalty(self.discriminator, perturbed)
        return super().discriminator_loss(turn) + self.lambda_gp * penalty


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = DRAGAN(generator, Discriminator(options.width, 1, 16), options.latent)
    return train_on_digits(players, options, 16)


if __name__ == "__main__":
    main()
