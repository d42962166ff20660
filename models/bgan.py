"""BGAN: a GAN whose generator wants the discriminator to be undecided.

After R. D. Hjelm and others, "Boundary-seeking generative adversarial networks", 2017. At the
boundary, where the discriminator gives one half, drawn images are as likely as real ones.

    python -m models.bgan --steps 400 --out runs/bgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Turn, drawing_options, learn_to_draw
from .gan import GAN, Discriminator, Generator


class BGAN(GAN):
    """Half the squares of log(D / (1 - D)), which is the logit of the discriminator."""

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return (self.discriminator(turn.fake) ** 2).mean() / 2


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 8 × 8 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments, steps=400, lr=5e-4, latent=16, width=64)
    generator = Generator(options.latent, options.width, 8)
    players = BGAN(generator, Discriminator(options.width, 8), options.latent)
    return learn_to_draw(players, options, 8)


if __name__ == "__main__":
    main()
