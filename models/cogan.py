"""CoGAN: a pair of GANs for two domains, which share the layers of high-level features.

After M.-Y. Liu and O. Tuzel, "Coupled generative adversarial networks", 2016. One code
gives a digit in both domains, here bright and dark, though training sees no corresponding pairs.

    python -m models.cogan --steps 150 --out runs/cogan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Pair, Turn, gan_options, train_on_digits
from .dcgan import Discriminator, Generator
from .gan import GAN


class CoupledGenerator(nn.Module):
    """Codes (batch, latent) to images (2 batch, 1, size, size): one domain, then the other."""

    def __init__(self, latent: int, width: int, size: int) -> None:
        super().__init__()
        whole, other = (Generator(latent, width, 1, size).main for _ in range(2))
        self.shared, self.own = whole[:-2], Pair(whole[-2:], other[-2:])

    def forward(self, codes: metaop.Tensor) -> metaop.Tensor:
        features = self.shared(codes[:, :, None, None])
        return self.own(metaop.cat((features, features)))


class CoupledDiscriminator(nn.Module):
    """Images (2 batch, 1, size, size) of both domains to logits (2 batch,)."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        whole, other = (Discriminator(width, 1, size).main for _ in range(2))
        self.own, self.shared = Pair(whole[:2], other[:2]), whole[2:]

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.shared(self.own(images)).flatten()


class CoGAN(GAN):
    """The second domain has negatives, of the batch in reverse order: pairs do not correspond."""

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        return super().turn(
            metaop.cat((real, -real.flip(0))), labels, *(codes or self.codes(len(real)))
        )


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate pairs of digits of 16 × 16 pixels; returns the discriminator's losses."""
    options = gan_options(__doc__, arguments)
    generator = CoupledGenerator(options.latent, options.width, 16)
    players = CoGAN(generator, CoupledDiscriminator(options.width, 16), options.latent)
    return train_on_digits(players, options, 16)


if __name__ == "__main__":
    main()
