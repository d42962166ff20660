"""EBGAN: a GAN whose discriminator repeats images, and is better at real ones.

After J. Zhao, M. Mathieu, Y. LeCun, "Energy-based generative adversarial network", 2016. What the
discriminator misses of an image is the energy of the image.

    python -m models.ebgan --steps 300 --out runs/ebgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .adversarial import Adversaries, Turn, drawing_options, learn_to_draw
from .dcgan import Generator


class Autoencoder(nn.Module):
    """Images (batch, channels, size, size) to repeated ones, and what they were repeated from.

    The second is (batch, hidden). The size is a multiple of 4.
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


def likeness(hidden: metaop.Tensor) -> metaop.Tensor:
    """The mean square of the cosines between different rows (batch, hidden)."""
    rows = F.normalize(hidden, dim=1)
    count = len(rows)
    return ((rows @ rows.T).square().sum() - count) / (count * (count - 1))


class EBGAN(Adversaries):
    """The discriminator wants low energies of real images, and above `margin` of drawn ones.

    The generator wants low energies, and images that are unlike each other, by `apart`.
    """

    margin, apart = 0.5, 0.1

    def energy(self, images: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        repeated, hidden = self.discriminator(images)
        return F.mse_loss(repeated, images), hidden

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        (real, _), (fake, _) = self.energy(turn.real), self.energy(turn.fake)
        return real + F.relu(self.margin - fake)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        energy, hidden = self.energy(turn.fake)
        return energy + self.apart * likeness(hidden)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments, steps=300)
    generator = Generator(options.latent, options.width, 1, 16)
    discriminator = Autoencoder(options.width, 1, 16, 16)
    return learn_to_draw(EBGAN(generator, discriminator, options.latent), options, 16)


if __name__ == "__main__":
    main()
