"""AAE: an autoencoder whose codes follow a prior, which a discriminator enforces.

After A. Makhzani and others, "Adversarial autoencoders", 2015. The prior is normal noise, so the
decoder generates images from noise.

    python -m models.aae --steps 300 --out runs/aae.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Turn, adversarial_loss, gan_options, train_adversaries
from .demonstration import digit_images
from .gan import GAN
from .mlp import MLP


class Autoencoder(nn.Module):
    """A fully connected encoder and decoder.

    `encode` maps images (batch, 1, size, size) to codes (batch, latent); calling it decodes.
    """

    def __init__(self, latent: int, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.encoder = MLP(size * size, 4 * width, 2 * width, latent)
        self.decoder = MLP(latent, 2 * width, 4 * width, size * size)

    def encode(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.encoder(images.flatten(1))

    def forward(self, codes: metaop.Tensor) -> metaop.Tensor:
        return metaop.tanh(self.decoder(codes)).view(-1, 1, self.size, self.size)


class Discriminator(nn.Module):
    """Codes (batch, latent) to logits (batch,) of being samples of the prior."""

    def __init__(self, latent: int, width: int) -> None:
        super().__init__()
        self.main = MLP(latent, 2 * width, 2 * width, 1)

    def forward(self, codes: metaop.Tensor) -> metaop.Tensor:
        return self.main(codes).flatten()


class AAE(GAN):
    """Samples of the prior are "real", codes of images are "fake"; `labels` hold the images.

    The loss of the autoencoder is the adversarial loss times `adversarial_weight` plus the L1
    reconstruction error times the rest.
    """

    adversarial_weight = 0.01

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        codes = codes or self.codes(len(real))
        return Turn(codes[0], real, self.generator.encode(real), codes)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        reconstruction = (self.generator(turn.fake) - turn.labels).abs().mean()
        adversarial = adversarial_loss(self.discriminator(turn.fake), True)
        weight = self.adversarial_weight
        return weight * adversarial + (1 - weight) * reconstruction


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to encode digits of 8 × 8 pixels; returns the losses of the autoencoder."""
    options = gan_options(__doc__, arguments, steps=300, latent=8, width=64)
    autoencoder = Autoencoder(options.latent, options.width, 8)
    discriminator = Discriminator(options.latent, options.width)
    players = AAE(autoencoder, discriminator, options.latent)

    def show() -> metaop.Tensor:
        return autoencoder(*players.codes(64))

    return train_adversaries(players, options, digit_images(8, 1), show)["generator"]


if __name__ == "__main__":
    main()
