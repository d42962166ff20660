"""CycleGAN: turns images of one kind into images of another, and back, without examples.

After J.-Y. Zhu, T. Park, P. Isola, A. Efros, "Unpaired image-to-image translation using
cycle-consistent adversarial networks", 2017. Layers stand in `model` as in the authors' program.
The demonstration turns digits into their negatives.

    python -m models.cyclegan --steps 150 --out runs/cyclegan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Adversaries, Pair, Turn, drawing_options, exchanged, learn_in_turn
from .demonstration import digit_images
from .pix2pix import PatchDiscriminator


class ResidualBlock(nn.Module):
    """Two convolutions of the reflected image, added to it."""

    def __init__(self, width: int, norm: type[nn.Module] = nn.InstanceNorm2d) -> None:
        super().__init__()
        self.conv_block = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(width, width, 3),
            norm(width),
            nn.ReLU(inplace=True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(width, width, 3),
            norm(width),
        )

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x + self.conv_block(x)


class Generator(nn.Module):
    """Images (batch, channels, height, width) in [-1, 1] to images of the same height and width.

    They are multiples of 4; there are as many `outputs` as channels unless it is said otherwise.
    """

    def __init__(
        self,
        channels: int = 3,
        width: int = 64,
        blocks: int = 9,
        outputs: int | None = None,
        norm: type[nn.Module] = nn.InstanceNorm2d,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.ReflectionPad2d(3),
            nn.Conv2d(channels, width, 7),
            norm(width),
            nn.ReLU(inplace=True),
        ]
        for current in (width, 2 * width):
            layers += [
                nn.Conv2d(current, 2 * current, 3, stride=2, padding=1),
                norm(2 * current),
                nn.ReLU(inplace=True),
            ]
        layers += [ResidualBlock(4 * width, norm) for _ in range(blocks)]
        for current in (4 * width, 2 * width):
            layers += [
                nn.ConvTranspose2d(current, current // 2, 3, 2, padding=1, output_padding=1),
                norm(current // 2),
                nn.ReLU(inplace=True),
            ]
        layers += [nn.ReflectionPad2d(3), nn.Conv2d(width, outputs or channels, 7), nn.Tanh()]
        self.model = nn.Sequential(*layers)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.normal_(module.weight, 0.0, 0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.model(images)


class CycleGAN(Adversaries):
    """Both generators and both discriminators, which stand in pairs.

    The generators want their images to be called real, and to be turned back to what they were, by
    `weight`, and to leave alone what is of the right kind, by half of that.
    """

    weight = 10.0

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        """Reads images of the first kind and, in the place of labels, of the second.

        Images of the second kind come first in what is real and in what is drawn.
        """
        read = metaop.cat((real, labels))
        return Turn(exchanged(read), labels, self.generator(read), (read,))

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = self.discriminator(turn.real), self.discriminator(turn.fake)
        return ((real - 1) ** 2).mean() + (fake**2).mean()

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        # Drawn images of the second kind go to the generator that reads the second kind.
        back = exchanged(self.generator(exchanged(turn.fake)))
        missed = (back - turn.codes[0]).abs().mean()
        same = (self.generator(turn.real) - turn.real).abs().mean()
        wanted = ((self.discriminator(turn.fake) - 1) ** 2).mean()
        return 2 * (wanted + self.weight * (missed + same / 2))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to turn digits into negatives and back; returns the losses of the generators.

    With --out it draws digits, what it makes of them, and what it makes of that.
    """
    options = drawing_options(
        __doc__, arguments, steps=150, batch_size=4, lr=2e-3, width=8, blocks=2
    )
    images, _ = digit_images(16, 1)
    generators = [Generator(1, options.width, options.blocks) for _ in range(2)]
    discriminators = [PatchDiscriminator(1, options.width, 2, nn.InstanceNorm2d) for _ in range(2)]
    players = CycleGAN(Pair(*generators), Pair(*discriminators), latent=0)

    def show() -> metaop.Tensor:
        first = metaop.from_numpy(images[:8])
        second = generators[0](first)
        return metaop.cat((first, second, generators[1](second)))

    # The second kind is that of other digits.
    arrays = images[:900], -images[-900:]
    return learn_in_turn(players, options, arrays, show)["generator"]


if __name__ == "__main__":
    main()
