"""BEGAN: a GAN whose discriminator repeats images, with a balance between its two aims.

After D. Berthelot, T. Schumm, L. Metz, "BEGAN: boundary equilibrium generative adversarial
networks", 2017.

    python -m models.began --steps 400 --out runs/began.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Adversaries, Turn, drawing_options, learn_to_draw
from .dcgan import Generator
from .ebgan import Autoencoder


class BEGAN(Adversaries):
    """The discriminator repeats real images well and, by the factor `balance`, drawn ones badly.

    The factor grows by `pace` while the loss of drawn images is less than `diversity` times that of
    real ones; in [0, 1]. It moves whenever the loss of the discriminator is asked for.
    """

    diversity, pace = 0.5, 0.01
    balance: metaop.Tensor

    def __init__(self, generator: nn.Module, discriminator: nn.Module, latent: int) -> None:
        super().__init__(generator, discriminator, latent)
        self.register_buffer("balance", metaop.zeros(()))

    def missed(self, images: metaop.Tensor) -> metaop.Tensor:
        """The mean distance of the repeated images from these."""
        return (self.discriminator(images)[0] - images).abs().mean()

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = self.missed(turn.real), self.missed(turn.fake)
        loss = real - self.balance * fake
        change = self.pace * (self.diversity * real - fake).detach()
        self.balance = (self.balance + change).clamp(0, 1)
        return loss

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.missed(turn.fake)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments, steps=400, lr=5e-4)
    generator = Generator(options.latent, options.width, 1, 16)
    discriminator = Autoencoder(options.width, 1, 16, 16)
    return learn_to_draw(BEGAN(generator, discriminator, options.latent), options, 16)


if __name__ == "__main__":
    main()
