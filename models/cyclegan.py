"""CycleGAN: translates images between two domains without paired examples.

After J.-Y. Zhu, T. Park, P. Isola, A. Efros, "Unpaired image-to-image translation using
cycle-consistent adversarial networks", 2017. Layers are numbered in `model` as in the authors'
program. The demonstration translates digits into their negatives.

    python -m models.cyclegan --steps 150 --out runs/cyclegan.png
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .adversarial import Adversaries, Pair, Turn, gan_options, swap_halves, train_adversaries
from .demonstration import digit_images
from .pix2pix import PatchDiscriminator


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with reflection padding, added to their input; the shape stays."""

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
    """Images (batch, channels, height, width) in [-1, 1] to images (batch, outputs, height, width).

    Height and width are multiples of 4. `outputs` is `channels` by default.
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
    """Both generators as a `Pair`, and both discriminators.

    The generators minimise least-squares adversarial losses, plus `lambda_cycle` times the cycle
    consistency loss and `lambda_identity` times the identity loss.
    """

    lambda_cycle, lambda_identity = 10.0, 5.0

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        """Takes images of the first domain, and as `labels` images of the second.

        In `real` and `fake` of the turn the second domain comes first.
        """
        inputs = metaop.cat((real, labels))
        return Turn(swap_halves(inputs), labels, self.generator(inputs), (inputs,))

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = self.discriminator(turn.real), self.discriminator(turn.fake)
        return ((real - 1) ** 2).mean() + (fake**2).mean()

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        # Generated images of the second domain go to the generator that reads this domain.
        reconstructed = swap_halves(self.generator(swap_halves(turn.fake)))
        cycle = (reconstructed - turn.codes[0]).abs().mean()
        identity = (self.generator(turn.real) - turn.real).abs().mean()
        adversarial = ((self.discriminator(turn.fake) - 1) ** 2).mean()
        # Means over both domains become sums.
        return 2 * (adversarial + self.lambda_cycle * cycle + self.lambda_identity * identity)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to translate digits into negatives and back; returns the losses of the generators.

    `--out` names a picture: digits, their translations, and these translated back.
    """
    options = gan_options(__doc__, arguments, steps=150, batch_size=4, lr=2e-3, width=8, blocks=2)
    images, _ = digit_images(16, 1)
    generators = [Generator(1, options.width, options.blocks) for _ in range(2)]
    discriminators = [PatchDiscriminator(1, options.width, 2, nn.InstanceNorm2d) for _ in range(2)]
    players = CycleGAN(Pair(*generators), Pair(*discriminators), latent=0)

    def show() -> metaop.Tensor:
        first = metaop.from_numpy(images[:8])
        second = generators[0](first)
        return metaop.cat((first, second, generators[1](second)))

    # The negatives are of other digits, so no pairs exist.
    arrays = images[:900], -images[-900:]
    return train_adversaries(players, options, arrays, show)["generator"]


if __name__ == "__main__":
    main()
