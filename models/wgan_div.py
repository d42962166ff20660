"""WGAN-DIV: a GAN that minimises the Wasserstein divergence.

After J. Wu and others, "Wasserstein divergence for GANs", 2017. The gradient term is a part of
the divergence, so the critic needs no Lipschitz constraint.

    python -m models.wgan_div --steps 200 --out runs/wgan_div.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Turn, gan_options, gradient_norms, interpolated, train_on_digits
from .dcgan import Discriminator, Generator
from .wgan import Wasserstein


class WGANDIV(Wasserstein):
    """The critic's loss has the term k times the mean of the gradient norm to the power of p.

    The gradient is taken at points between real and generated images: see `interpolated`.
    """

    k, p = 2.0, 6.0

    def discriminator_loss(self, turn: Turn, epsilon: metaop.Tensor | None = None) -> metaop.Tensor:
        norms = gradient_norms(self.discriminator, interpolated(turn, epsilon))
        return self.k * (norms**self.p).mean() - self.distance(turn)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments, steps=200, critic_steps=3)
    generator = Generator(options.latent, options.width, 1, 16)
    critic = Discriminator(options.width, 1, 16, batch_norm=False)
    players = WGANDIV(generator, critic, options.latent)
    return train_on_digits(players, options, 16, (0.0, 0.9), options.critic_steps)


if __name__ == "__main__":
    main()
