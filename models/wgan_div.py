"""WGAN-DIV: a critic whose slope costs by its sixth power.

After J. Wu and others, "Wasserstein divergence for GANs", 2017. Nothing has to be kept within
bounds: the distance less this cost is a divergence by itself.

    python -m models.wgan_div --steps 200 --out runs/wgan_div.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Turn, drawing_options, learn_to_draw, slopes
from .dcgan import Discriminator, Generator
from .wgan import Wasserstein


class WGANDIV(Wasserstein):
    """The slope costs `penalty` (k in the paper) times its power by `power` (p).

    It is taken between real and drawn images, where `mixing` (batch, 1, 1, 1) in [0, 1] says.
    """

    penalty, power = 2.0, 6.0

    def discriminator_loss(self, turn: Turn, mixing: metaop.Tensor | None = None) -> metaop.Tensor:
        if mixing is None:
            mixing = metaop.rand(len(turn.real), 1, 1, 1)
        between = mixing * turn.real + (1 - mixing) * turn.fake
        cost = (slopes(self.discriminator, between) ** self.power).mean()
        return self.penalty * cost - self.distance(turn)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments, steps=200, critic_steps=3)
    generator = Generator(options.latent, options.width, 1, 16)
    critic = Discriminator(options.width, 1, 16, batch_norm=False)
    players = WGANDIV(generator, critic, options.latent)
    return learn_to_draw(players, options, 16, (0.0, 0.9), options.critic_steps)


if __name__ == "__main__":
    main()
