"""WGAN-GP: a Wasserstein GAN with a gradient penalty instead of weight clipping.

After I. Gulrajani and others, "Improved training of Wasserstein GANs", 2017. The penalty
depends on a gradient, so training it needs second-order gradients.

    python -m models.wgan_gp --steps 200 --out runs/wgan_gp.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Turn, gan_options, gradient_penalty, interpolated, train_on_digits
from .dcgan import Discriminator, Generator
from .wgan import Wasserstein


class WGANGP(Wasserstein):
    """The critic's loss adds `lambda_gp` times the mean of (gradient norm - 1)².

    The gradient is taken at points between real and generated images: see `interpolated`.
    """

    lambda_gp = 10.0

    def discriminator_loss(self, turn: Turn, epsilon: metaop.Tensor | None = None) -> metaop.Tensor:
        penalty = gradient_penalty(self.discriminator, interpolated(turn, epsilon))
        return self.lambda_gp * penalty - self.distance(turn)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments, steps=200, critic_steps=3)
    generator = Generator(options.latent, options.width, 1, 16)
    # With batch normalisation the gradient at one image would depend on the others.
    critic = Discriminator(options.width, 1, 16, batch_norm=False)
    players = WGANGP(generator, critic, options.latent)
    return train_on_digits(players, options, 16, (0.0, 0.9), options.critic_steps)


if __name__ == "__main__":
    main()
