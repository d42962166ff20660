"""InfoGAN: a GAN that finds for itself what its images differ in.

After X. Chen and others, "InfoGAN: interpretable representation learning by information maximizing
generative adversarial nets", 2016. Beside noise the generator reads a kind and a few numbers, and
the discriminator has to recover both from the image, so that they come to mean something.

    python -m models.infogan --steps 150 --out runs/infogan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import Adversaries, Turn, adversarial_loss, drawing_options, learn_to_draw
from .cgan import marks
from .dcgan import Generator


class CodedGenerator(nn.Module):
    """Noise (batch, latent), kinds (batch,), numbers (batch, numbers) in [-1, 1] to images."""

    def __init__(self, generator: nn.Module, kinds: int) -> None:
        super().__init__()
        self.generator, self.kinds = generator, kinds

    def forward(
        self, noise: metaop.Tensor, kinds: metaop.Tensor, numbers: metaop.Tensor
    ) -> metaop.Tensor:
        return self.generator(metaop.cat((noise, marks(kinds, self.kinds, noise), numbers), 1))


class InfoGAN(Adversaries):
    """What is real is told as in a GAN; both players want the code to be recovered.

    The discriminator gives logits (batch,), and the logits of the kinds followed by the means of
    the numbers (batch, kinds + numbers). `weight` is that of the numbers.
    """

    weight = 0.1

    def __init__(
        self,
        generator: nn.Module,
        discriminator: nn.Module,
        latent: int,
        kinds: int = 10,
        numbers: int = 2,
    ) -> None:
        super().__init__(CodedGenerator(generator, kinds), discriminator, latent)
        self.kinds, self.numbers = kinds, numbers

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        kinds = metaop.randint(0, self.kinds, (count,))
        return *super().codes(count), kinds, 2 * metaop.rand(count, self.numbers) - 1

    def unknown(self, found: metaop.Tensor, turn: Turn) -> metaop.Tensor:
        """How little of the code was recovered: a bound of the information that is lost."""
        _, kinds, numbers = turn.codes
        missed = F.mse_loss(found[:, self.kinds :], numbers)
        return F.cross_entropy(found[:, : self.kinds], kinds) + self.weight * missed

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, _ = self.discriminator(turn.real)
        fake, found = self.discriminator(turn.fake)
        return (
            adversarial_loss(real, True) + adversarial_loss(fake, False) + self.unknown(found, turn)
        )

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        fake, found = self.discriminator(turn.fake)
        return adversarial_loss(fake, True) + self.unknown(found, turn)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = drawing_options(__doc__, arguments)
    generator = Generator(options.latent + 12, options.width, 1, 16)
    players = InfoGAN(generator, Classifier(options.width, 1, 16, 12), options.latent)
    return learn_to_draw(players, options, 16)


if __name__ == "__main__":
    main()
