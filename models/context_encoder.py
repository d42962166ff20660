"""Context encoder: paints what is missing from the middle of an image.

After D. Pathak and others, "Context encoders: feature learning by inpainting", 2016. A
discriminator keeps it from being a blur.

    python -m models.context_encoder --steps 150 --out runs/context_encoder.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Turn, adversarial_loss, drawing_options, learn_in_turn
from .dcgan import Discriminator, Generator
from .demonstration import digit_images
from .gan import GAN


class Painter(nn.Module):
    """Images (batch, channels, size, size) to their middles (batch, channels, size/2, size/2)."""

    def __init__(self, width: int = 64, channels: int = 3, size: int = 128, hidden: int = 100):
        super().__init__()
        features = Discriminator(width, channels, size).main[:-1]
        self.encoder = nn.Sequential(features, nn.Conv2d(width * size // 8, hidden, 4))
        self.decoder = Generator(hidden, width, channels, size // 2)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.decoder(self.encoder(images).flatten(1))


def without_middle(images: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
    """Images (batch, channels, size, size) with 0 in the middle, and what was there."""
    quarter = images.shape[-1] // 4
    inside = slice(quarter, 3 * quarter)
    rest = images.clone()
    rest[:, :, inside, inside] = 0
    return rest, images[:, :, inside, inside]


class ContextEncoder(GAN):
    """What is real are the middles of images; what they are drawn from comes for the labels.

    The generator also wants to come near to what was there; the adversarial loss has the share
    `weight`.
    """

    weight = 0.001

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        rest, middle = without_middle(real)
        return Turn(middle, rest, self.generator(rest), codes)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        missed = ((turn.fake - turn.real) ** 2).mean()
        return (
            self.weight * adversarial_loss(self.discriminator(turn.fake), True)
            + (1 - self.weight) * missed
        )


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to fill in digits of 16 × 16 pixels; returns the losses of the generator.

    With --out it draws digits with a hole, with what it put there, and as they were.
    """
    options = drawing_options(__doc__, arguments)
    digits, labels = digit_images(16, 1)
    painter = Painter(options.width, 1, 16, options.latent)
    players = ContextEncoder(painter, Discriminator(options.width, 1, 8), latent=0)

    def show() -> metaop.Tensor:
        wanted = metaop.from_numpy(digits[:8])
        rest, _ = without_middle(wanted)
        filled = rest.clone()
        filled[:, :, 4:12, 4:12] = painter(rest)
        return metaop.cat((rest, filled, wanted))

    return learn_in_turn(players, options, (digits, labels), show)["generator"]


if __name__ == "__main__":
    main()
