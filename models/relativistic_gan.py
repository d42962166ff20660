"""Relativistic GAN: the judge says whether an image is more real than those of the other kind.

After A. Jolicoeur-Martineau, "The relativistic discriminator: a key element missing from standard
GAN", 2018. So drawn images become real at the expense of real ones.

    python -m models.relativistic_gan --steps 150 --out runs/relativistic_gan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop

from .adversarial import Adversaries, Turn, drawing_options, judged, learn_to_draw
from .dcgan import Discriminator, Generator


class RelativisticGAN(Adversaries):
    """Each image is compared with the mean of the other kind, by both players."""

    def compared(self, turn: Turn, real: bool) -> metaop.Tensor:
        """The loss of one who wants that real images are the more real ones, or the less."""
        right, false = self.judge(turn.real), self.judge(turn.false)
        return judged(right - false.mean(), real) + judged(false - right.mean(), not real)

    def judge_loss(self, turn: Turn) -> metaop.Tensor:
        return self.compared(turn, True)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.compared(turn, False)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the judge."""
    options = drawing_options(__doc__, arguments)
    generator = Generator(options.latent, options.width, 1, 16)
    players = RelativisticGAN(generator, Discriminator(options.width, 1, 16), options.latent)
    return learn_to_draw(players, options, 16)


if __name__ == "__main__":
    main()
