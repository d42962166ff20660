"""ACGAN: a class-conditional GAN whose discriminator also classifies images.

After A. Odena, C. Olah, J. Shlens, "Conditional image synthesis with auxiliary classifier GANs",
2016. Both players maximise the probability of the correct class.

    python -m models.acgan --steps 150 --out runs/acgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .adversarial import Turn, adversarial_loss, gan_options, train_on_digits
from .cgan import Conditional
from .dcgan import Discriminator, Generator


class Classifier(nn.Module):
    """DCGAN's discriminator with a second head for classes or codes.

    Images (batch, channels, size, size) to logits (batch,) of being real, and further outputs
    (batch, further) from the same features.
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
    """Each player adds the cross-entropy of the class to its GAN loss."""

    def class_loss(self, images: metaop.Tensor, labels: metaop.Tensor, real: bool) -> metaop.Tensor:
        logits, classes = self.discriminator(images)
        return adversarial_loss(logits, real) + F.cross_entropy(classes, labels)

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real = self.class_loss(turn.real, turn.labels, True)
        return real + self.class_loss(turn.fake, turn.codes[1], False)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.class_loss(turn.fake, turn.codes[1], True)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments)
    generator = Generator(options.latent + 10, options.width, 1, 16)
    players = ACGAN(generator, Classifier(options.width, 1, 16, 10), options.latent)
    return train_on_digits(players, options, 16)


if __name__ == "__main__":
    main()
