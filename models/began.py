"""BEGAN: a GAN whose discriminator is an autoencoder, with an equilibrium between the players.

After D. Berthelot, T. Schumm, L. Metz, "BEGAN: boundary equilibrium generative adversarial
networks", 2017.

    python -m models.began --steps 400 --out runs/began.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Adversaries, Turn, gan_options, train_on_digits
from .dcgan import Generator
from .ebgan import Autoencoder


class BEGAN(Adversaries):
    """Both losses are reconstruction errors L(x) of the autoencoder.

    The discriminator minimises L(real) - k L(fake), the generator L(fake). Each computation of the
    discriminator's loss also updates k in [0, 1]: it grows by `lambda_k` (γ L(real) - L(fake)). The
    diversity ratio γ is the wanted ratio of L(fake) to L(real).
    """

    gamma, lambda_k = 0.5, 0.01
    k: metaop.Tensor

    def __init__(self, generator: nn.Module, discriminator: nn.Module, latent: int) -> None:
        super().__init__(generator, discriminator, latent)
        self.register_buffer("k", metaop.zeros(()))

    def reconstruction_loss(self, images: metaop.Tensor) -> metaop.Tensor:
        """L(x): the L1 error of the autoencoder."""
        return (self.discriminator(images)[0] - images).abs().mean()

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = (self.reconstruction_loss(images) for images in (turn.real, turn.fake))
        loss = real - self.k * fake
        change = self.lambda_k * (self.gamma * real - fake).detach()
        self.k = (self.k + change).clamp(0, 1)
        return loss

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.reconstruction_loss(turn.fake)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments, steps=400, lr=5e-4)
    generator = Generator(options.latent, options.width, 1, 16)
    discriminator = Autoencoder(options.width, 1, 16, 16)
    return train_on_digits(BEGAN(generator, discriminator, options.latent), options, 16)


if __name__ == "__main__":
    main()
