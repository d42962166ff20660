"""WGAN: a critic that measures how far drawn images are from real ones.

After M. Arjovsky, S. Chintala, L. Bottou, "Wasserstein GAN", 2017. The difference between the means
of a function that is nowhere steep is at most the distance between the images; so all weights of
the critic are kept small. (The paper takes steps of RMSprop, here they are Adam's.)

    python -m models.wgan --steps 200 --out runs/wgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Adversaries, Turn, drawing_options, learn_to_draw
from .dcgan import Discriminator, Generator


class Wasserstein(Adversaries):
    """The critic wants a great distance between the means of its values, the generator a small."""

    def distance(self, turn: Turn) -> metaop.Tensor:
        """How much larger the values of real images are than those of drawn ones."""
        return self.discriminator(turn.real).mean() - self.discriminator(turn.fake).mean()

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.distance(turn)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.discriminator(turn.fake).mean()


class WGAN(Wasserstein):
    """The weights of the critic are cut off at `limit` after each of its steps."""

    limit = 0.05

    def after_discriminator_step(self) -> None:
        with metaop.no_grad():
            for parameter in self.discriminator.parameters():
                parameter.clamp_(-self.limit, self.limit)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments, steps=200, critic_steps=3)
    generator = Generator(options.latent, options.width, 1, 16)
    critic = Discriminator(options.width, 1, 16, batch_norm=False)
    players = WGAN(generator, critic, options.latent)
    return learn_to_draw(players, options, 16, (0.0, 0.9), options.critic_steps)


if __name__ == "__main__":
    main()
