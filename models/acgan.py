"""ACGAN: a GAN whose discriminator also tells what an image shows.

After A. Odena, C. Olah, J. Shlens, "Conditional image synthesis with auxiliary classifier GANs",
2016. The generator is told what to draw, and both want the class to be recognised.

    python -m models.acgan --steps 150 --out runs/acgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .adversarial import Turn, adversarial_loss, drawing_options, learn_to_draw
from .cgan import Conditional
from .dcgan import Discriminator, Generator


class Classifier(nn.Module):
    """Images (batch, channels, size, size) to logits (batch,) and further ones (batch, further).

    A discriminator, from whose last features a layer reads the further ones.
    """

    def __init__(
        self, width: int, channels: int, size: int, further: int, batch_norm: bool = True
    ) -> None:
        super().__init__()
        layers = Discriminator(width, channels, size, batch_norm).main
        self.features, self.real = layers[:-1], layers[-1]
        self.further = nn.Conv2d(self.real.in_channels, further, 4)

    def forward(self, images: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        features = self.features(images)
        return self.real(features).flatten(), self.further(features).flatten(1)


class ACGAN(Conditional):
    """What is real is told as in a GAN; the class is told of real and drawn images."""

    def class_loss(self, images: metaop.Tensor, labels: metaop.Tensor, real: bool) -> metaop.Tensor:
        logits, classes = self.discriminator(images)
        return adversarial_loss(logits, real) + F.cross_entropy(classes, labels)

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        right = self.class_loss(turn.real, turn.labels, True)
        return right + self.class_loss(turn.fake, turn.codes[1], False)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.class_loss(turn.fake, turn.codes[1], True)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments)
    generator = Generator(options.latent + 10, options.width, 1, 16)
    players = ACGAN(generator, Classifier(options.width, 1, 16, 10), options.latent)
    return learn_to_draw(players, options, 16)


if __name__ == "__main__":
    main()
