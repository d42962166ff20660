"""ClusterGAN: a GAN that clusters images, by a discrete code and an encoder that recovers it.

After S. Mukherjee, H. Asnani, E. Lin, S. Kannan, "ClusterGAN: latent space clustering in generative
adversarial networks", 2018. It uses no labels.

    python -m models.clustergan --steps 150 --out runs/clustergan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import Turn, adversarial_loss, gan_options, train_on_digits
from .cgan import ConditionalGenerator
from .dcgan import Discriminator, Generator
from .gan import GAN


class ClusterGenerator(ConditionalGenerator):
    """A generator of noise (batch, latent) and clusters (batch,), and an encoder of images.

    The encoder returns logits of the clusters, then the noise: (batch, clusters + latent).
    """

    def __init__(self, generator: nn.Module, encoder: nn.Module, clusters: int) -> None:
        super().__init__(generator, clusters)
        self.encoder = encoder

    def encode(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.encoder(images)[1]


class ClusterGAN(GAN):
    """The generator and its encoder also minimise the error of the recovered code, times `beta`.

    The noise has the standard deviation `sigma`.
    """

    beta, sigma = 10.0, 0.1

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        (noise,) = super().codes(count)
        return self.sigma * noise, metaop.randint(0, self.generator.classes, (count,))

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        noise, clusters = turn.codes
        encoded = self.generator.encode(turn.fake)
        count = self.generator.classes
        loss = F.mse_loss(encoded[:, count:], noise) + F.cross_entropy(encoded[:, :count], clusters)
        return adversarial_loss(self.discriminator(turn.fake), True) + self.beta * loss


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels in ten clusters; returns the losses.

    They are those of the discriminator.
    """
    options = gan_options(__doc__, arguments, latent=16)
    generator = Generator(options.latent + 10, options.width, 1, 16)
    encoder = Classifier(options.width, 1, 16, options.latent + 10)
    clusters = ClusterGenerator(generator, encoder, 10)
    players = ClusterGAN(clusters, Discriminator(options.width, 1, 16), options.latent)
    return train_on_digits(players, options, 16)


if __name__ == "__main__":
    main()
