"""StarGAN: one generator that translates images between many domains.

After Y. Choi and others, "StarGAN: unified generative adversarial networks for multi-domain
image-to-image translation", 2017. The demonstration changes the colour of digits.

    python -m models.stargan --steps 300 --out runs/stargan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import (
    Adversaries,
    Turn,
    gan_options,
    gradient_penalty,
    interpolated,
    train_adversaries,
)
from .cgan import one_hot
from .cyclegan import Generator
from .demonstration import digit_images


class Translator(nn.Module):
    """Images (batch, channels, height, width) and domains (batch,) to images of these domains."""

    def __init__(self, domains: int, channels: int, width: int, blocks: int) -> None:
        super().__init__()
        self.domains = domains
        # Instance normalisation would remove what is constant in an image: the domain's planes.
        self.main = Generator(channels + domains, width, blocks, channels, nn.BatchNorm2d)

    def forward(self, images: metaop.Tensor, domains: metaop.Tensor) -> metaop.Tensor:
        planes = one_hot(domains, self.domains, images)[:, :, None, None]
        return self.main(metaop.cat((images, planes.expand(-1, -1, *images.shape[2:])), 1))


class StarGAN(Adversaries):
    """The discriminator is a WGAN-GP critic that also classifies the domain of an image.

    The generator minimises the adversarial loss, the classification loss of the target domain, and
    `lambda_rec` times the L1 error of the image translated back.
    """

    lambda_gp, lambda_rec = 10.0, 10.0

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        """Takes images and their domains; `codes` may give the target domains."""
        (targets,) = codes or (metaop.randint(0, self.generator.domains, (len(real),)),)
        return Turn(real, labels, self.generator(real, targets), (targets,))

    def discriminator_loss(self, turn: Turn, epsilon: metaop.Tensor | None = None) -> metaop.Tensor:
        points = interpolated(turn, epsilon)
        real, domains = self.discriminator(turn.real)
        fake, _ = self.discriminator(turn.fake)
        penalty = gradient_penalty(lambda images: self.discriminator(images)[0], points)
        classification = F.cross_entropy(domains, turn.labels)
        return fake.mean() - real.mean() + self.lambda_gp * penalty + classification

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        fake, domains = self.discriminator(turn.fake)
        reconstruction = (self.generator(turn.fake, turn.labels) - turn.real).abs().mean()
        classification = F.cross_entropy(domains, turn.codes[0])
        return classification - fake.mean() + self.lambda_rec * reconstruction


def coloured(images: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Images (count, 1, height, width) in [-1, 1] with red (0), green (1) or blue (2) digits."""
    shown = np.eye(3)[colours][:, :, None, None]
    return ((images + 1) * shown - 1).astype(np.float32)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to change the colour of digits; returns the losses of the generator.

    `--out` names a picture: digits, and their translations into the three colours.
    """
    options = gan_options(__doc__, arguments, steps=300, batch_size=16, lr=2e-3, width=8, blocks=1)
    digits, _ = digit_images(16, 1)
    colours = np.random.default_rng(options.seed).integers(0, 3, len(digits))
    images = coloured(digits, colours)
    discriminator = Classifier(options.width, 3, 16, 3, batch_norm=False)
    players = StarGAN(Translator(3, 3, options.width, options.blocks), discriminator, latent=0)

    def show() -> metaop.Tensor:
        inputs = metaop.from_numpy(images[:8])
        targets = (metaop.full((8,), colour, dtype=metaop.int64) for colour in range(3))
        return metaop.cat((inputs, *(players.generator(inputs, target) for target in targets)))

    return train_adversaries(players, options, (images, colours), show)["generator"]


if __name__ == "__main__":
    main()
