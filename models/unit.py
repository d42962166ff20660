"""UNIT: two kinds of images with one space of codes, in which they are translated.

After M.-Y. Liu, T. Breuel, J. Kautz, "Unsupervised image-to-image translation networks", 2017. The
demonstration turns digits into their negatives without examples.

    python -m models.unit --steps 60 --out runs/unit.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Pair, Turn, adversarial_loss, drawing_options, exchanged, learn_in_turn
from .cyclegan import Generator, ResidualBlock
from .demonstration import digit_images
from .gan import GAN
from .pix2pix import PatchDiscriminator


class SharedTranslator(nn.Module):
    """Images of two kinds, which stand behind each other, to codes and back.

    Both kinds have first and last layers of their own, and share those between.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        first, second = (Generator(channels, width, blocks=1).model for _ in range(2))
        # Ten layers halve the image twice, then comes a residual block, and the rest doubles it.
        self.down, self.up = Pair(first[:10], second[:10]), Pair(first[11:], second[11:])
        self.shared_down, self.shared_up = (ResidualBlock(4 * width) for _ in range(2))

    def encode(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.shared_down(self.down(images))

    def decode(self, codes: metaop.Tensor) -> metaop.Tensor:
        return self.up(self.shared_up(codes))


class UNIT(GAN):
    """What is drawn are images of the other kind, from the codes of images and noise.

    Images shall be found again from their codes, and behind both ways, by `near`; codes shall be
    near to 0, by `plain`: they are means of normal noise of deviation 1.
    """

    near, plain = 10.0, 0.01

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        """Reads images of the first kind and, in the place of labels, of the second."""
        read = metaop.cat((real, labels))
        means = self.generator.encode(read)
        noise = codes[0] if codes else metaop.randn_like(means)
        again = self.generator.decode(means + noise)
        crossed = self.generator.decode(exchanged(means + noise))
        return Turn(read, labels, crossed, (read, means, again, noise))

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        read, means, again, noise = turn.codes
        others = self.generator.encode(turn.fake)
        back = self.generator.decode(exchanged(others + noise))
        near = (again - read).abs().mean() + (back - read).abs().mean()
        plain = (means**2).mean() + (others**2).mean()
        return (
            adversarial_loss(self.discriminator(turn.fake), True)
            + self.near * near
            + self.plain * plain
        )


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to turn digits into negatives and back; returns the losses of the generator.

    With --out it draws digits, what it makes of their negatives, and what it makes of them.
    """
    options = drawing_options(__doc__, arguments, steps=60, batch_size=8, width=8)
    images, _ = digit_images(16, 1)
    arrays = images[:900], -images[-900:]
    discriminators = [PatchDiscriminator(1, options.width, 2) for _ in range(2)]
    players = UNIT(SharedTranslator(1, options.width), Pair(*discriminators), latent=0)

    def show() -> metaop.Tensor:
        read = metaop.from_numpy(images[:8])
        codes = players.generator.encode(metaop.cat((read, -read)))
        return metaop.cat((read, players.generator.decode(exchanged(codes))))

    return learn_in_turn(players, options, arrays, show)["generator"]


if __name__ == "__main__":
    main()
