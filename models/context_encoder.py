"""Context encoder: inpaints the missing centre of an image.

After D. Pathak and others, "Context encoders: feature learning by inpainting", 2016. The
adversarial loss makes the result sharp; the L2 loss alone would blur it.

    python -m models.context_encoder --steps 150 --out runs/context_encoder.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Turn, adversarial_loss, gan_options, train_adversaries
from .dcgan import Discriminator, Generator
from .demonstration import digit_images
from .gan import GAN


class EncoderDecoder(nn.Module):
    """Images (batch, channels, size, size) to centres (batch, channels, size/2, size/2)."""

    def __init__(self, width: int = 64, channels: int = 3, size: int = 128, hidden: int = 100):
        super().__init__()
        features = Discriminator(width, channels, size).main[:-1]
        self.encoder = nn.Sequential(features, nn.Conv2d(width * size // 8, hidden, 4))
        self.decoder = Generator(hidden, width, channels, size // 2)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.decoder(self.encoder(images).flatten(1))


def without_centre(images: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
    """Splits images (batch, channels, size, size) into context, with zeros inside, and centre."""
    quarter = images.shape[-1] // 4
    inside = slice(quarter, 3 * quarter)
    context = images.clone()
    context[:, :, inside, inside] = 0
    return context, images[:, :, inside, inside]


class ContextEncoder(GAN):
    """Centres are real or generated; `labels` of a turn hold the contexts.

    The generator minimises the adversarial loss times `lambda_adv` plus the L2 reconstruction loss
    times `lambda_rec`.
    """

    lambda_rec, lambda_adv = 0.999, 0.001

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        context, centre = without_centre(real)
        return Turn(centre, context, self.generator(context), codes)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        reconstruction = ((turn.fake - turn.real) ** 2).mean()
        adversarial = adversarial_loss(self.discriminator(turn.fake), True)
        return self.lambda_adv * adversarial + self.lambda_rec * reconstruction


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to inpaint digits of 16 × 16 pixels; returns the losses of the generator.

    `--out` names a picture: digits without their centre, inpainted, and as they were.
    """
    options = gan_options(__doc__, arguments)
    digits, labels = digit_images(16, 1)
    network = EncoderDecoder(options.width, 1, 16, options.latent)
    players = ContextEncoder(network, Discriminator(options.width, 1, 8), latent=0)

    def show() -> metaop.Tensor:
        originals = metaop.from_numpy(digits[:8])
        context, _ = without_centre(originals)
        filled = context.clone()
        filled[:, :, 4:12, 4:12] = network(context)
        return metaop.cat((context, filled, originals))

    return train_adversaries(players, options, (digits, labels), show)["generator"]


if __name__ == "__main__":
    main()
