"""StarGAN: one network that turns images of any kind into any other.

After Y. Choi and others, "StarGAN: unified generative adversarial networks for multi-domain
image-to-image translation", 2017. The demonstration gives digits another colour, without examples.

    python -m models.stargan --steps 300 --out runs/stargan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import Adversaries, Turn, drawing_options, learn_in_turn, slope_penalty
from .cgan import marks
from .cyclegan import Generator
from .demonstration import digit_images


class Translator(nn.Module):
    """Images (batch, channels, height, width) and kinds (batch,) to images of these kinds."""

    def __init__(self, kinds: int, channels: int, width: int, blocks: int) -> None:
        super().__init__()
        self.kinds = kinds
        # Normalising each image by itself would take away what is the same everywhere: the kind.
        self.main = Generator(channels + kinds, width, blocks, channels, nn.BatchNorm2d)

    def forward(self, images: metaop.Tensor, kinds: metaop.Tensor) -> metaop.Tensor:
        maps = marks(kinds, self.kinds, images)[:, :, None, None]
        return self.main(metaop.cat((images, maps.expand(-1, -1, *images.shape[2:])), 1))


class StarGAN(Adversaries):
    """The discriminator is a critic with a slope of one, and names the kind of an image.

    The translator wants its images to be real, of the wanted kind, and to be turned back to what
    they were, by `back`.
    """

    penalty, back = 10.0, 10.0

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        """Reads images and their kinds; codes may name the wanted kinds."""
        (kinds,) = codes or (metaop.randint(0, self.generator.kinds, (len(real),)),)
        return Turn(real, labels, self.generator(real, kinds), (kinds,))

    def discriminator_loss(self, turn: Turn, mixing: metaop.Tensor | None = None) -> metaop.Tensor:
        if mixing is None:
            mixing = metaop.rand(len(turn.real), 1, 1, 1)
        between = mixing * turn.real + (1 - mixing) * turn.fake
        real, named = self.discriminator(turn.real)
        fake, _ = self.discriminator(turn.fake)
        steep = slope_penalty(lambda images: self.discriminator(images)[0], between)
        return (
            fake.mean() - real.mean() + self.penalty * steep + F.cross_entropy(named, turn.labels)
        )

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        fake, named = self.discriminator(turn.fake)
        missed = (self.generator(turn.fake, turn.labels) - turn.real).abs().mean()
        return F.cross_entropy(named, turn.codes[0]) - fake.mean() + self.back * missed


def coloured(images: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Images (count, 1, height, width) in [-1, 1] with red (0), green (1) or blue (2) digits."""
    shown = np.eye(3)[kinds][:, :, None, None]
    return ((images + 1) * shown - 1).astype(np.float32)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to colour digits anew; returns the losses of the generator.

    With --out it draws digits, and what it makes of them in the three colours.
    """
    options = drawing_options(
        __doc__, arguments, steps=300, batch_size=16, lr=2e-3, width=8, blocks=1
    )
    digits, _ = digit_images(16, 1)
    kinds = np.random.default_rng(options.seed).integers(0, 3, len(digits))
    images = coloured(digits, kinds)
    discriminator = Classifier(options.width, 3, 16, 3, batch_norm=False)
    players = StarGAN(Translator(3, 3, options.width, options.blocks), discriminator, latent=0)

    def show() -> metaop.Tensor:
        read = metaop.from_numpy(images[:8])
        wanted = (metaop.full((8,), kind, dtype=metaop.int64) for kind in range(3))
        return metaop.cat((read, *(players.generator(read, kind) for kind in wanted)))

    return learn_in_turn(players, options, (images, kinds), show)["generator"]


if __name__ == "__main__":
    main()
