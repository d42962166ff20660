"""DCGAN: a GAN with a convolutional generator and a convolutional discriminator.

After A. Radford, L. Metz, S. Chintala, "Unsupervised representation learning with deep
convolutional generative adversarial networks", 2015.

    python -m models.dcgan --steps 200 --out runs/dcgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import gan_options, train_on_digits
from .gan import GAN


def initialise(module: nn.Module) -> None:
    """Normal weights of standard deviation 0.02, as in the paper."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


class Generator(nn.Module):
    """Noise (batch, latent) to images (batch, channels, size, size) in [-1, 1].

    `size` is a power of 2. Transposed convolutions double the image from 4 × 4 pixels, and halve
    the channels down to `width`.
    """

    def __init__(
        self, latent: int = 100, width: int = 64, channels: int = 3, size: int = 64
    ) -> None:
        super().__init__()
        current = width * size // 8
        layers: list[nn.Module] = [nn.ConvTranspose2d(latent, current, 4, bias=False)]
        while current > width:
            layers += [
                nn.BatchNorm2d(current),
                nn.ReLU(inplace=True),
                nn.ConvTranspose2d(current, current // 2, 4, 2, 1, bias=False),
            ]
            current //= 2
        layers += [
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, channels, 4, 2, 1, bias=False),
            nn.Tanh(),
        ]
        self.main = nn.Sequential(*layers)
        self.apply(initialise)

    def forward(self, noise: metaop.Tensor) -> metaop.Tensor:
        return self.main(noise[:, :, None, None])


class Discriminator(nn.Module):
    """Images (batch, channels, size, size) to logits (batch,) of being real.

    Strided convolutions halve the image to 4 × 4 pixels, and double the channels from `width`.
    """

    def __init__(
        self, width: int = 64, channels: int = 3, size: int = 64, batch_norm: bool = True
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(channels, width, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
        ]
        current = width
        while current < width * size // 8:
            layers.append(nn.Conv2d(current, 2 * current, 4, 2, 1, bias=False))
            current *= 2
            if batch_norm:
                layers.append(nn.BatchNorm2d(current))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
        self.main = nn.Sequential(*layers, nn.Conv2d(current, 1, 4, bias=False))
        self.apply(initialise)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.main(images).flatten()


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = GAN(generator, Discriminator(options.width, 1, 16), options.latent)
    return train_on_digits(players, options, 16)


if __name__ == "__main__":
    main()
