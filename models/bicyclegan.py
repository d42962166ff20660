"""BicycleGAN: image-to-image translation with a latent code that selects one of many outputs.

After J.-Y. Zhu and others, "Toward multimodal image-to-image translation", 2017. The demonstration
fills the outlines of digits; the code determines the brightness. In the paper the loss of the
recovered code does not train the encoder; here it does.

    python -m models.bicyclegan --steps 300 --out runs/bicyclegan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn

from .acgan import Classifier
from .adversarial import Turn, adversarial_loss, gan_options, train_adversaries
from .demonstration import digit_images
from .gan import GAN
from .pix2pix import PatchDiscriminator, UnetGenerator, outlines


class CodedTranslator(nn.Module):
    """Images (batch, 1, size, size) and codes (batch, latent) to images of the same shape.

    `encode` maps images to the mean and the log-variance of their code, (batch, latent) each.
    """

    def __init__(self, latent: int, width: int, levels: int) -> None:
        super().__init__()
        self.latent = latent
        self.translator = UnetGenerator(1 + latent, 1, levels, width)
        self.encoder = Classifier(width, 1, 2**levels, 2 * latent)

    def encode(self, images: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        mean, log_variance = self.encoder(images)[1].chunk(2, 1)
        return mean, log_variance

    def forward(self, images: metaop.Tensor, codes: metaop.Tensor) -> metaop.Tensor:
        planes = codes[:, :, None, None].expand(-1, -1, *images.shape[2:])
        return self.translator(metaop.cat((images, planes), 1))


class BicycleGAN(GAN):
    """cVAE-GAN and cLR-GAN: the first half of a batch has encoded codes, the second half noise.

    cVAE-GAN reconstructs the real image from its code (L1, `lambda_image`), whose distribution is
    drawn to the normal one (`lambda_kl`). cLR-GAN recovers the noise from the generated image (L1,
    `lambda_latent`).
    """

    lambda_image, lambda_kl, lambda_latent = 10.0, 0.01, 0.5

    def codes(self, count: int) -> tuple[metaop.Tensor, ...]:
        return metaop.randn(count, self.latent), metaop.randn(count, self.latent)

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        noise, code = codes or self.codes(len(real))
        mean, log_variance = self.generator.encode(real)
        sampled = mean + (log_variance / 2).exp() * noise
        images, all_codes = metaop.cat((labels, labels)), metaop.cat((sampled, code))
        fake = self.generator(images, all_codes)
        return Turn(metaop.cat((real, real)), images, fake, (code, mean, log_variance))

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        code, mean, log_variance = turn.codes
        image_loss = (turn.fake - turn.real)[: len(code)].abs().mean()
        kl = (mean**2 + log_variance.exp() - log_variance - 1).sum(1).mean() / 2
        recovered = self.generator.encode(turn.fake[len(code) :])[0]
        vae_loss = (
            adversarial_loss(self.discriminator(turn.fake), True)
            + self.lambda_image * image_loss
            + self.lambda_kl * kl
        )
        return vae_loss + self.lambda_latent * (recovered - code).abs().mean()


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to fill outlines in several ways; returns the losses of the generator.

    `--out` names a picture: each row has eight outputs for one outline.
    """
    options = gan_options(__doc__, arguments, steps=300, lr=2e-3, latent=4, width=8)
    digits, _ = digit_images(16, 1)
    lines = outlines(digits)
    bright = np.random.default_rng(options.seed).uniform(0.2, 1, (len(digits), 1, 1, 1))
    shaded = ((digits + 1) * bright - 1).astype(np.float32)
    translator = CodedTranslator(options.latent, options.width, 4)
    players = BicycleGAN(translator, PatchDiscriminator(1, options.width, 2), options.latent)

    def show() -> metaop.Tensor:
        images = metaop.from_numpy(np.repeat(lines[:8], 8, 0))
        return translator(images, metaop.randn(64, options.latent))

    return train_adversaries(players, options, (shaded, lines), show)["generator"]


if __name__ == "__main__":
    main()
