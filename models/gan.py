"""GAN: a generator draws, a discriminator tells drawn from real, and each learns from the other.

After I. Goodfellow and others, "Generative adversarial networks", 2014. Both are fully connected.
The generator wants its images to be called real, which has a greater gradient at first than that
they are not called fake.

    python -m models.gan --steps 400 --out runs/gan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Adversaries, Turn, adversarial_loss, drawing_options, learn_to_draw


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
    """Images (batch, 1, size, size) to logits (batch,): are they real?

    `further` numbers (batch, further) may come with each image.
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
    """The discriminator tells what is real; the generator wants its images to be called so."""

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        return adversarial_loss(self.discriminator(turn.real), True) + adversarial_loss(
            self.discriminator(turn.fake), False
        )

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return adversarial_loss(self.discriminator(turn.fake), True)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 8 × 8 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments, steps=400, lr=5e-4, latent=16, width=64)
    generator = Generator(options.latent, options.width, 8)
    players = GAN(generator, Discriminator(options.width, 8), options.latent)
    return learn_to_draw(players, options, 8)


if __name__ == "__main__":
    main()
