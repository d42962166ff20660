"""SGAN: a GAN whose discriminator names what it sees, and has one more name for what is drawn.

After A. Odena, "Semi-supervised learning with generative adversarial networks", 2016.

    python -m models.sgan --steps 150 --out runs/sgan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import Adversaries, Turn, drawing_options, learn_to_draw
from .dcgan import Generator


class SGAN(Adversaries):
    """One softmax over the classes and "drawn"; the generator wants its images to be of a class.

    Labels are read for a share `known` of each batch; every real image should be of some class.
    """

    known = 0.25

    def names(self, images: metaop.Tensor) -> metaop.Tensor:
        """Logarithms of the probabilities (batch, 1 + classes), "drawn" first."""
        drawn, classes = self.discriminator(images)
        return metaop.cat((drawn.unsqueeze(1), classes), 1).log_softmax(1)

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = self.names(turn.real), self.names(turn.fake)
        count = max(1, int(self.known * len(turn.real)))
        named = F.nll_loss(real[:count], turn.labels[:count] + 1)
        return named - real[:, 1:].logsumexp(1).mean() - fake[:, 0].mean()

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return -self.names(turn.fake)[:, 1:].logsumexp(1).mean()


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw and to name digits of 16 × 16 pixels; returns the discriminator's losses."""
    options = drawing_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = SGAN(generator, Classifier(options.width, 1, 16, 10), options.latent)
    return learn_to_draw(players, options, 16)


if __name__ == "__main__":
    main()
