"""SGAN: semi-supervised classification by a discriminator with the classes and one for "fake".

After A. Odena, "Semi-supervised learning with generative adversarial networks", 2016.

    python -m models.sgan --steps 150 --out runs/sgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import Adversaries, Turn, gan_options, train_on_digits
from .dcgan import Generator


class SGAN(Adversaries):
    """One softmax over "fake" and the classes.

    The discriminator learns the class of a share `labelled` of each batch, and that other real
    images are of some class. The generator wants its images to be of some class.
    """

    labelled = 0.25

    def log_probabilities(self, images: metaop.Tensor) -> metaop.Tensor:
        """Log-probabilities (batch, 1 + classes), "fake" first."""
        fake, classes = self.discriminator(images)
        return metaop.cat((fake.unsqueeze(1), classes), 1).log_softmax(1)

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = self.log_probabilities(turn.real), self.log_probabilities(turn.fake)
        count = max(1, int(self.labelled * len(turn.real)))
        supervised = F.nll_loss(real[:count], turn.labels[:count] + 1)
        return supervised - real[:, 1:].logsumexp(1).mean() - fake[:, 0].mean()

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.log_probabilities(turn.fake)[:, 1:].logsumexp(1).mean()


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to generate and classify digits of 16 × 16 pixels; returns the losses.

    They are those of the discriminator.
    """
    options = gan_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = SGAN(generator, Classifier(options.width, 1, 16, 10), options.latent)
    return train_on_digits(players, options, 16)


if __name__ == "__main__":
    main()
