"""CoGAN: two GANs for two kinds of images, which share the layers that know what is shown.

After M.-Y. Liu and O. Tuzel, "Coupled generative adversarial networks", 2016. One code gives a
digit in both kinds, bright and dark, though no pair of images has ever been there.

    python -m models.cogan --steps 150 --out runs/cogan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Pair, Turn, drawing_options, learn_to_draw
from .dcgan import Discriminator, Generator
from .gan import GAN


class CoupledGenerator(nn.Module):
    """Codes (batch, latent) to images (2 batch, 1, size, size): the first kind, then the second."""

    def __init__(self, latent: int, width: int, size: int) -> None:
        super().__init__()
        whole, other = (Generator(latent, width, 1, size).main for _ in range(2))
        self.shared, self.own = whole[:-2], Pair(whole[-2:], other[-2:])

    def forward(self, codes: metaop.Tensor) -> metaop.Tensor:
        meaning = self.shared(codes[:, :, None, None])
        return self.own(metaop.cat((meaning, meaning)))


class CoupledDiscriminator(nn.Module):
    """Images (2 batch, 1, size, size) of both kinds to logits (2 batch,)."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        whole, other = (Discriminator(width, 1, size).main for _ in range(2))
        self.own, self.shared = Pair(whole[:2], other[:2]), whole[2:]

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.shared(self.own(images)).flatten()


class CoGAN(GAN):
    """A GAN of both kinds: the second is the negative of other images of the batch."""

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        return super().turn(
            metaop.cat((real, -real.flip(0))), labels, *(codes or self.codes(len(real)))
        )


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels in pairs; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments)
    generator = CoupledGenerator(options.latent, options.width, 16)
    players = CoGAN(generator, CoupledDiscriminator(options.width, 16), options.latent)
    return learn_to_draw(players, options, 16)


if __name__ == "__main__":
    main()
