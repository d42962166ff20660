"""DRAGAN: a GAN whose discriminator has a slope of one around real images.

After N. Kodali, J. Abernethy, J. Hays, Z. Kira, "On convergence and stability of GANs", 2017. A
steep discriminator makes all drawn images alike; the penalty keeps it from becoming one.

    python -m models.dragan --steps 150 --out runs/dragan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Turn, drawing_options, learn_to_draw, slope_penalty
from .dcgan import Discriminator, Generator
from .gan import GAN


class DRAGAN(GAN):
    """The losses of a GAN and the penalty of the discriminator.

    The slope is that at real images which were moved by `noise` (batch, channels, height, width) in
    [0, 1], times half the deviation of all their numbers.
    """

    penalty = 10.0

    def discriminator_loss(self, turn: Turn, noise: metaop.Tensor | None = None) -> metaop.Tensor:
        if noise is None:
            noise = metaop.rand_like(turn.real)
        around = turn.real + 0.5 * turn.real.std() * noise
        return super().discriminator_loss(turn) + self.penalty * slope_penalty(
            self.discriminator, around
        )


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = DRAGAN(generator, Discriminator(options.width, 1, 16), options.latent)
    return learn_to_draw(players, options, 16)


if __name__ == "__main__":
    main()
