"""EBGAN: a GAN whose discriminator is an autoencoder; its reconstruction error is an energy.

After J. Zhao, M. Mathieu, Y. LeCun, "Energy-based generative adversarial network", 2016. Real
images get low energies and generated ones high energies.

    python -m models.ebgan --steps 300 --out runs/ebgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .adversarial import Adversaries, Turn, gan_options, train_on_digits
from .dcgan import Generator


class Autoencoder(nn.Module):
    """Images (batch, channels, size, size) to reconstructions of this shape and codes.

    Codes are (batch, hidden). `size` is a multiple of 4.
    """

    def __init__(
        self, width: int = 64, channels: int = 3, size: int = 64, hidden: int = 32
    ) -> None:
        super().__init__()
        self.shape = (2 * width, size // 4, size // 4)
        inner = 2 * width * (size // 4) ** 2
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Flatten(),
            nn.Linear(inner, hidden),
        )
        self.decoder = nn.Sequential(
            nn.Linear(hidden, inner),
            nn.ReLU(inplace=True),
            nn.Unflatten(1, self.shape),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, channels, 4, 2, 1),
        )

    def forward(self, images: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        hidden = self.encoder(images)
        return self.decoder(hidden), hidden


def pulling_away_term(hidden: metaop.Tensor) -> metaop.Tensor:
    """The mean squared cosine similarity between different rows of (batch, hidden)."""
    rows = F.normalize(hidden, dim=1)
    count = len(rows)
    return ((rows @ rows.T).square().sum() - count) / (count * (count - 1))


class EBGAN(Adversaries):
    """The discriminator minimises E(real) + max(0, margin - E(fake)).

    The generator minimises E(fake) plus `pt_weight` times the pulling-away term, which keeps its
    images apart.
    """

    margin, pt_weight = 0.5, 0.1

    def energy(self, images: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        reconstructed, hidden = self.discriminator(images)
        return F.mse_loss(reconstructed, images), hidden

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        (real, _), (fake, _) = self.energy(turn.real), self.energy(turn.fake)
        return real + F.relu(self.margin - fake)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        energy, hidden = self.energy(turn.fake)
        return energy + self.pt_weight * pulling_away_term(hidden)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments, steps=300)
    generator = Generator(options.latent, options.width, 1, 16)
    discriminator = Autoencoder(options.width, 1, 16, 16)
    return train_on_digits(EBGAN(generator, discriminator, options.latent), options, 16)


if __name__ == "__main__":
    main()
