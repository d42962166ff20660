"""UNIT: unpaired image-to-image translation through a latent space that two domains share.

After M.-Y. Liu, T. Breuel, J. Kautz, "Unsupervised image-to-image translation networks", 2017. The
demonstration translates digits into their negatives.

    python -m models.unit --steps 60 --out runs/unit.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Pair, Turn, adversarial_loss, gan_options, swap_halves, train_adversaries
from .cyclegan import Generator, ResidualBlock
from .demonstration import digit_images
from .gan import GAN
from .pix2pix import PatchDiscriminator


class SharedTranslator(nn.Module):
    """A VAE for each domain: images (2 batch, …), concatenated by domain, to codes and back.

    Each domain has its own first and last layers; those between are shared.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        first, second = (Generator(channels, width, blocks=1).model for _ in range(2))
        # Layers 0-9 halve the image twice, layer 10 is a residual block, the rest double it twice.
        self.down, self.up = Pair(first[:10], second[:10]), Pair(first[11:], second[11:])
        self.shared_down, self.shared_up = (ResidualBlock(4 * width) for _ in range(2))

    def encode(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.shared_down(self.down(images))

    def decode(self, codes: metaop.Tensor) -> metaop.Tensor:
        return self.up(self.shared_up(codes))


class UNIT(GAN):
    """Generated images are translations: codes plus noise, decoded by the other domain.

    The generator minimises the adversarial loss, `lambda_rec` times the L1 errors of reconstructed
    and of cyclically translated images, and `lambda_kl` times the KL terms of both encodings. Codes
    are means of normal distributions of variance 1, so a KL term is a mean square.
    """

    lambda_rec, lambda_kl = 10.0, 0.01

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        """Takes images of the first domain, and as `labels` images of the second."""
        inputs = metaop.cat((real, labels))
        means = self.generator.encode(inputs)
        noise = codes[0] if codes else metaop.randn_like(means)
        reconstructed = self.generator.decode(means + noise)
        translated = self.generator.decode(swap_halves(means + noise))
        return Turn(inputs, labels, translated, (inputs, means, reconstructed, noise))

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        inputs, means, reconstructed, noise = turn.codes
        translated_means = self.generator.encode(turn.fake)
        cycled = self.generator.decode(swap_halves(translated_means + noise))
        reconstruction = (reconstructed - inputs).abs().mean() + (cycled - inputs).abs().mean()
        kl = (means**2).mean() + (translated_means**2).mean()
        return (
            adversarial_loss(self.discriminator(turn.fake), True)
            + self.lambda_rec * reconstruction
            + self.lambda_kl * kl
        )


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to translate digits into negatives and back; returns the losses of the generator.

    `--out` names a picture: digits, translations of their negatives, translations of the digits.
    """
    options = gan_options(__doc__, arguments, steps=60, batch_size=8, width=8)
    images, _ = digit_images(16, 1)
    arrays = images[:900], -images[-900:]
    discriminators = [PatchDiscriminator(1, options.width, 2) for _ in range(2)]
    players = UNIT(SharedTranslator(1, options.width), Pair(*discriminators), latent=0)

    def show() -> metaop.Tensor:
        inputs = metaop.from_numpy(images[:8])
        codes = players.generator.encode(metaop.cat((inputs, -inputs)))
        return metaop.cat((inputs, players.generator.decode(swap_halves(codes))))

    return train_adversaries(players, options, arrays, show)["generator"]


if __name__ == "__main__":
    main()
