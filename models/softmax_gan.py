"""Softmax GAN: the discriminator spreads the probability 1 over all images of a batch.

After M. Lin, "Softmax GAN", 2017. The discriminator wants it on the real images, each
with the same share; the generator wants the same share on all images, real and drawn.

    python -m models.softmax_gan --steps 400 --out runs/softmax_gan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Adversaries, Turn, drawing_options, learn_to_draw
from .gan import Discriminator, Generator


class SoftmaxGAN(Adversaries):
    """Cross-entropies between the share that each wants and that which images have."""

    def shares(self, turn: Turn) -> metaop.Tensor:
        """The logarithms of the shares (real + drawn,) of the images."""
        return metaop.cat(
            (self.discriminator(turn.real), self.discriminator(turn.fake))
        ).log_softmax(0)

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.shares(turn)[: len(turn.real)].mean()

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.shares(turn).mean()


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 8 × 8 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments, steps=400, lr=5e-4, latent=16, width=64)
    generator = Generator(options.latent, options.width, 8)
    players = SoftmaxGAN(generator, Discriminator(options.width, 8), options.latent)
    return learn_to_draw(players, options, 8)


if __name__ == "__main__":
    main()
