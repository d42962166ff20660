"""WGAN-GP: adversarial training with a critic whose slope is held at one.

After I. Gulrajani and others, "Improved training of Wasserstein GANs", 2017. The penalty is a
function of a gradient, so its own gradient is of second order.

    python -m models.wgan_gp --steps 200
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Turn, drawing_options, learn_to_draw, slope_penalty
from .dcgan import Discriminator, Generator
from .wgan import Wasserstein


class WGAN(Wasserstein):
    """The critic makes the distance between the means of its values great, with a slope of one.

    The slope is that between real and drawn images; `mixing` (batch, 1, 1, 1) in [0, 1] chooses the
    points.
    """

    penalty = 10.0

    def discriminator_loss(self, turn: Turn, mixing: metaop.Tensor | None = None) -> metaop.Tensor:
        if mixing is None:
            mixing = metaop.rand(len(turn.real), 1, 1, 1)
        between = mixing * turn.real + (1 - mixing) * turn.fake
        return self.penalty * slope_penalty(self.discriminator, between) - self.distance(turn)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments, steps=200, critic_steps=3)
    generator = Generator(options.latent, options.width, 1, 16)
    # Batch normalisation would make the slope at one image depend on the others.
    critic = Discriminator(options.width, 1, 16, batch_norm=False)
    players = WGAN(generator, critic, options.latent)
    return learn_to_draw(players, options, 16, (0.0, 0.9), options.critic_steps)


if __name__ == "__main__":
    main()
