"""Softmax GAN: a GAN with a softmax over all images of a batch, real and generated.

After M. Lin, "Softmax GAN", 2017. The discriminator's target distribution is uniform over the real
images, the generator's is uniform over all images.

    python -m models.softmax_gan --steps 400 --out runs/softmax_gan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Adversaries, Turn, gan_options, train_on_digits
from .gan import Discriminator, Generator


class SoftmaxGAN(Adversaries):
    """Cross-entropies between each player's target distribution and the softmax."""

    def log_probabilities(self, turn: Turn) -> metaop.Tensor:
        """Log-probabilities (real + fake,) of the images."""
        logits = self.discriminator(turn.real), self.discriminator(turn.fake)
        return metaop.cat(logits).log_softmax(0)

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.log_probabilities(turn)[: len(turn.real)].mean()

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.log_probabilities(turn).mean()


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 8 × 8 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments, steps=400, lr=5e-4, latent=16, width=64)
    generator = Generator(options.latent, options.width, 8)
    players = SoftmaxGAN(generator, Discriminator(options.width, 8), options.latent)
    return train_on_digits(players, options, 8)


if __name__ == "__main__":
    main()
