"""BEGAN: a GAN whose judge repeats images, with a balance between its two aims.

After D. Berthelot, T. Schumm, L. Metz, "BEGAN: boundary equilibrium generative adversarial
networks", 2017.

    python -m models.began --steps 400 --out runs/began.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Adversaries, Turn, drawing_options, learn_to_draw
from .dcgan import Generator
from .ebgan import Autoencoder


class BEGAN(Adversaries):
    """The judge repeats real images well and drawn ones badly, the latter by the factor `balance`.

    The factor grows by `pace` while the loss of drawn images is less than `diversity` times that of
    real ones; in [0, 1]. It moves whenever the loss of the judge is asked for.
    """

    diversity, pace = 0.5, 0.01
    balance: metaop.Tensor

    def __init__(self, generator: nn.Module, judge: nn.Module, latent: int) -> None:
        super().__init__(generator, judge, latent)
        self.register_buffer("balance", metaop.zeros(()))

    def missed(self, images: metaop.Tensor) -> metaop.Tensor:
        """The mean distance of the repeated images from these."""
        return (self.judge(images)[0] - images).abs().mean()

    def judge_loss(self, turn: Turn) -> metaop.Tensor:
        real, false = self.missed(turn.real), self.missed(turn.false)
        loss = real - self.balance * false
        change = self.pace * (self.diversity * real - false).detach()
        self.balance = (self.balance + change).clamp(0, 1)
        return loss

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        return self.missed(turn.false)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the judge."""
    options = drawing_options(__doc__, arguments, steps=400, lr=5e-4)
    generator = Generator(options.latent, options.width, 1, 16)
    judge = Autoencoder(options.width, 1, 16, 16)
    return learn_to_draw(BEGAN(generator, judge, options.latent), options, 16)


if __name__ == "__main__":
    main()
