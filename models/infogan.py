"""InfoGAN: a GAN with latent codes that learn to represent how images differ.

After X. Chen and others, "InfoGAN: interpretable representation learning by information maximizing
generative adversarial nets", 2016. Besides noise the generator gets a categorical and a continuous
code. The discriminator's second head recovers both from the image, which maximises a lower bound of
their mutual information.

    python -m models.infogan --steps 150 --out runs/infogan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import Adversaries, Turn, adversarial_loss, gan_options, train_on_digits
from .cgan import one_hot
from .dcgan import Generator


class CodedGenerator(nn.Module):
    """Noise (batch, latent), categories (batch,) and continuous codes in [-1, 1] to images."""

    def __init__(self, generator: nn.Module, categories: int) -> None:
        super().__init__()
        self.generator, self.categories = generator, categories

    def forward(
        self, noise: metaop.Tensor, categories: metaop.Tensor, continuous: metaop.Tensor
    ) -> metaop.Tensor:
        category = one_hot(categories, self.categories, noise)
        return self.generator(metaop.cat((noise, category, continuous), 1))


class InfoGAN(Adversaries):
    """Both players add the error of the recovered code to their GAN loss.

    The discriminator returns logits (batch,), and the logits of the categories followed by the
    means of the continuous codes, (batch, categories + continuous). `lambda_continuous` weights
    the error of the latter.
    """

    lambda_continuous = 0.1

    def __init__(
        self,
        generator: nn.Module,
        discriminator: nn.Module,
        latent: int,
        categories: int = 10,
        continuous: int = 2,
    ) -> None:
        super().__init__(CodedGenerator(generator, categories), discriminator, latent)
        self.categories, self.continuous = categories, continuous

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        categories = metaop.randint(0, self.categories, (count,))
        return *super().codes(count), categories, 2 * metaop.rand(count, self.continuous) - 1

    def information_loss(self, recovered: metaop.Tensor, turn: Turn) -> metaop.Tensor:
        """The error of the recovered code: up to constants, minus the bound of the information."""
        _, categories, continuous = turn.codes
        error = F.mse_loss(recovered[:, self.categories :], continuous)
        logits = recovered[:, : self.categories]
        return F.cross_entropy(logits, categories) + self.lambda_continuous * error

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, _ = self.discriminator(turn.real)
        fake, recovered = self.discriminator(turn.fake)
        gan_loss = adversarial_loss(real, True) + adversarial_loss(fake, False)
        return gan_loss + self.information_loss(recovered, turn)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        fake, recovered = self.discriminator(turn.fake)
        return adversarial_loss(fake, True) + self.information_loss(recovered, turn)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate digits of 16 × 16 pixels; returns the losses of the discriminator."""
    options = gan_options(__doc__, arguments)
    generator = Generator(options.latent + 12, options.width, 1, 16)
    players = InfoGAN(generator, Classifier(options.width, 1, 16, 12), options.latent)
    return train_on_digits(players, options, 16)


if __name__ == "__main__":
    main()
