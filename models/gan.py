"""GAN: a generator and a discriminator, trained against each other.

After I. Goodfellow and others, "Generative adversarial networks", 2014. Both are fully connected.
The generator maximises log D(G(z)) instead of minimising log(1 - D(G(z))), because the gradient is
larger early in training.

    python -m models.gan --steps 400 --out runs/gan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Adversaries, Turn, adversarial_loss, gan_options, train_on_digits


class Generator(nn.Module):
    """Codes (batch, latent) to images (batch, 1, size, size) in [-1, 1]."""

    def __init__(self, latent: int = 100, width: int = 128, size: int = 28) -> None:
        super().__init__()
        self.size = size
        self.main = nn.Sequential(
            nn.Linear(latent, width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(width, 2 * width),
            nn.BatchNorm1d(2 * width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(2 * width, 4 * width),
            nn.BatchNorm1d(4 * width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(4 * width, size * size),
            nn.Tanh(),
        )

    def forward(self, codes: metaop.Tensor) -> metaop.Tensor:
        return self.main(codes).view(-1, 1, self.size, self.size)


class Discriminator(nn.Module):
    """Images (batch, 1, size, size) to logits (batch,) of being real.

    With `further`, it takes a second input (batch, further), for example one-hot labels.
    """

    def __init__(self, width: int = 256, size: int = 28, further: int = 0) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(size * size + further, 2 * width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(2 * width, width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(width, 1),
        )

    def forward(self, images: metaop.Tensor, *further: metaop.Tensor) -> metaop.Tensor:
        return self.main(metaop.cat((images.flatten(1), *further), 1)).flatten()


class GAN(Adversaries):
    """Binary cross-entropy for the discriminator, and the non-saturating loss for the generator."""

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = self.discriminator(turn.real), self.discriminator(turn.fake)
        return adversarial_loss(real, True) + adversarial_loss(fake, False)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return adversarial_loss(self.discriminator(turn.fake), True)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 8 × 8 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments, steps=400, lr=5e-4, latent=16, width=64)
    generator = Generator(options.latent, options.width, 8)
    players = GAN(generator, Discriminator(options.width, 8), options.latent)
    return train_on_digits(players, options, 8)


if __name__ == "__main__":
    main()
