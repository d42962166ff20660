"""BicycleGAN: translates an image in as many ways as there are codes.

After J.-Y. Zhu and others, "Toward multimodal image-to-image translation", 2017. The demonstration
fills the outlines of digits, each code with a brightness of its own. (The paper keeps the encoder
from learning where it reads what was drawn; here it learns there, too.)

    python -m models.bicyclegan --steps 300 --out runs/bicyclegan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn

from .acgan import Classifier
from .adversarial import Turn, adversarial_loss, drawing_options, learn_in_turn
from .demonstration import digit_images
from .gan import GAN
from .pix2pix import PatchDiscriminator, UnetGenerator, outlines


class CodedTranslator(nn.Module):
    """Images (batch, 1, size, size) and codes (batch, latent) to images of the same shape.

    `encode` gives the means and the logarithms of the variances of codes (batch, latent) of images.
    """

    def __init__(self, latent: int, width: int, levels: int) -> None:
        super().__init__()
        self.latent = latent
        self.translator = UnetGenerator(1 + latent, 1, levels, width)
        self.encoder = Classifier(width, 1, 2**levels, 2 * latent)

    def encode(self, images: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        mean, spread = self.encoder(images)[1].chunk(2, 1)
        return mean, spread

    def forward(self, images: metaop.Tensor, codes: metaop.Tensor) -> metaop.Tensor:
        spread = codes[:, :, None, None].expand(-1, -1, *images.shape[2:])
        return self.translator(metaop.cat((images, spread), 1))


class BicycleGAN(GAN):
    """Half of what is drawn has the codes of the real images, the other half has noise as codes.

    The first shall be the real images (by `near`) from codes like noise (by `plain`); the codes of
    the second shall be found again (by `found`).
    """

    near, plain, found = 10.0, 0.01, 0.5

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        return metaop.randn(count, self.latent), metaop.randn(count, self.latent)

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        noise, code = codes or self.codes(len(real))
        mean, spread = self.generator.encode(real)
        sampled = mean + (spread / 2).exp() * noise
        images, all_codes = metaop.cat((labels, labels)), metaop.cat((sampled, code))
        fake = self.generator(images, all_codes)
        return Turn(metaop.cat((real, real)), images, fake, (code, mean, spread))

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        code, mean, spread = turn.codes
        near = (turn.fake - turn.real)[: len(code)].abs().mean()
        plain = (mean**2 + spread.exp() - spread - 1).sum(1).mean() / 2
        again = self.generator.encode(turn.fake[len(code) :])[0]
        wanted = (
            adversarial_loss(self.discriminator(turn.fake), True)
            + self.near * near
            + self.plain * plain
        )
        return wanted + self.found * (again - code).abs().mean()


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to fill outlines in several ways; returns the losses of the generator.

    With --out it draws digits from one outline each, in eight ways.
    """
    options = drawing_options(__doc__, arguments, steps=300, lr=2e-3, latent=4, width=8)
    digits, _ = digit_images(16, 1)
    lines = outlines(digits)
    bright = np.random.default_rng(options.seed).uniform(0.2, 1, (len(digits), 1, 1, 1))
    shaded = ((digits + 1) * bright - 1).astype(np.float32)
    translator = CodedTranslator(options.latent, options.width, 4)
    players = BicycleGAN(translator, PatchDiscriminator(1, options.width, 2), options.latent)

    def show() -> metaop.Tensor:
        images = metaop.from_numpy(np.repeat(lines[:8], 8, 0))
        return translator(images, metaop.randn(64, options.latent))

    return learn_in_turn(players, options, (shaded, lines), show)["generator"]


if __name__ == "__main__":
    main()
