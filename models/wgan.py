"""WGAN: a GAN whose critic estimates the Wasserstein distance to the real images.

After M. Arjovsky, S. Chintala, L. Bottou, "Wasserstein GAN", 2017. The critic has to be Lipschitz
continuous, so its weights are clipped. The paper optimises with RMSprop, this file with Adam.

    python -m models.wgan --steps 200 --out runs/wgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Adversaries, Turn, gan_options, train_on_digits
from .dcgan import Discriminator, Generator


class Wasserstein(Adversaries):
    """The critic maximises the mean score of real images minus that of generated ones."""

    def distance(self, turn: Turn) -> metaop.Tensor:
        """The mean score of real images minus that of generated ones."""
        return self.discriminator(turn.real).mean() - self.discriminator(turn.fake).mean()

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.distance(turn)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.discriminator(turn.fake).mean()


class WGAN(Wasserstein):
    """The critic's weights are clipped to [-`clip`, `clip`] after each of its steps."""

    clip = 0.05

    def after_discriminator_step(self) -> None:
        with metaop.no_grad():
            for parameter in self.discriminator.parameters():
                parameter.clamp_(-self.clip, self.clip)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments, steps=200, critic_steps=3)
    generator = Generator(options.latent, options.width, 1, 16)
    critic = Discriminator(options.width, 1, 16, batch_norm=False)
    players = WGAN(generator, critic, options.latent)
    return train_on_digits(players, options, 16, (0.0, 0.9), options.critic_steps)


if __name__ == "__main__":
    main()
