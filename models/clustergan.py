"""ClusterGAN: a GAN whose codes fall into groups, and which finds the code of an image.

After S. Mukherjee, H. Asnani, E. Lin, S. Kannan, "ClusterGAN: latent space clustering in generative
adversarial networks", 2018. No label is read.

    python -m models.clustergan --steps 150 --out runs/clustergan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import Turn, adversarial_loss, drawing_options, learn_to_draw
from .cgan import ConditionalGenerator
from .dcgan import Discriminator, Generator
from .gan import GAN


class Clusters(ConditionalGenerator):
    """A generator of little noise (batch, latent) and groups (batch,), and an encoder of images.

    The encoder gives logits of the groups and, behind them, the noise (batch, groups + latent).
    """

    def __init__(self, generator: nn.Module, encoder: nn.Module, groups: int) -> None:
        super().__init__(generator, groups)
        self.encoder = encoder

    def encode(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.encoder(images)[1]


class ClusterGAN(GAN):
    """The generator and its encoder also want codes to be recovered, by `weight`."""

    weight, deviation = 10.0, 0.1

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        (noise,) = super().codes(count)
        return self.deviation * noise, metaop.randint(0, self.generator.classes, (count,))

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        noise, groups = turn.codes
        found = self.generator.encode(turn.fake)
        kinds = self.generator.classes
        missed = F.mse_loss(found[:, kinds:], noise) + F.cross_entropy(found[:, :kinds], groups)
        return adversarial_loss(self.discriminator(turn.fake), True) + self.weight * missed


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels in ten groups; returns the discriminator's losses."""
    options = drawing_options(__doc__, arguments, latent=16)
    generator = Generator(options.latent + 10, options.width, 1, 16)
    encoder = Classifier(options.width, 1, 16, options.latent + 10)
    players = ClusterGAN(
        Clusters(generator, encoder, 10), Discriminator(options.width, 1, 16), options.latent
    )
    return learn_to_draw(players, options, 16)


if __name__ == "__main__":
    main()
