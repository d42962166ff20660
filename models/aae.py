"""AAE: an autoencoder whose codes a discriminator cannot tell from noise.

After A. Makhzani and others, "Adversarial autoencoders", 2015. So noise may be decoded to images.

    python -m models.aae --steps 300 --out runs/aae.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Turn, adversarial_loss, drawing_options, learn_in_turn
from .demonstration import digit_images
from .gan import GAN
from .mlp import MLP


class Coder(nn.Module):
    """Images (batch, 1, size, size) to codes (batch, latent) and back, fully connected."""

    def __init__(self, latent: int, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.encoder = MLP(size * size, 4 * width, 2 * width, latent)
        self.decoder = MLP(latent, 2 * width, 4 * width, size * size)

    def encode(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.encoder(images.flatten(1))

    def forward(self, codes: metaop.Tensor) -> metaop.Tensor:
        return metaop.tanh(self.decoder(codes)).view(-1, 1, self.size, self.size)


class Examiner(nn.Module):
    """Codes (batch, latent) to logits (batch,): are they noise?"""

    def __init__(self, latent: int, width: int) -> None:
        super().__init__()
        self.main = MLP(latent, 2 * width, 2 * width, 1)

    def forward(self, codes: metaop.Tensor) -> metaop.Tensor:
        return self.main(codes).flatten()


class AAE(GAN):
    """What is real is noise, and codes are drawn: images come in the place of the labels.

    The coder wants its codes to pass for noise, by `weight`, and images to be decoded as they were.
    """

    weight = 0.01

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        codes = codes or self.codes(len(real))
        return Turn(codes[0], real, self.generator.encode(real), codes)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        missed = (self.generator(turn.fake) - turn.labels).abs().mean()
        return (
            self.weight * adversarial_loss(self.discriminator(turn.fake), True)
            + (1 - self.weight) * missed
        )


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to code digits of 8 × 8 pixels; returns the losses of the coder."""
    options = drawing_options(__doc__, arguments, steps=300, latent=8, width=64)
    coder = Coder(options.latent, options.width, 8)
    players = AAE(coder, Examiner(options.latent, options.width), options.latent)

    def show() -> metaop.Tensor:
        return coder(*players.codes(64))

    return learn_in_turn(players, options, digit_images(8, 1), show)["generator"]


if __name__ == "__main__":
    main()
