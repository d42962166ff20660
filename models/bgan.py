"""BGAN: a GAN whose generator aims at the decision boundary of the discriminator.

After R. D. Hjelm and others, "Boundary-seeking generative adversarial networks", 2017. At the
boundary, where D(x) = 1/2, generated and real images are equally likely.

    python -m models.bgan --steps 400 --out runs/bgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Turn, gan_options, train_on_digits
from .gan import GAN, Discriminator, Generator


class BGAN(GAN):
    """The generator minimises (log D - log(1 - D))² / 2, where the difference is D's logit."""

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return (self.discriminator(turn.fake) ** 2).mean() / 2


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 8 × 8 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments, steps=400, lr=5e-4, latent=16, width=64)
    generator = Generator(options.latent, options.width, 8)
    players = BGAN(generator, Discriminator(options.width, 8), options.latent)
    return train_on_digits(players, options, 8)


if __name__ == "__main__":
    main()
