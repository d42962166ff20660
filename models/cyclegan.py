"""CycleGAN's generator: turns images of one kind into images of another.

After J.-Y. Zhu, T. Park, P. Isola, A. Efros, "Unpaired image-to-image translation using
cycle-consistent adversarial networks", 2017. Layers stand in `model` as in the authors' program.
The demonstration trains two generators to be each other's inverse on digits and inverted digits.

    python -m models.cyclegan --steps 40
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .demonstration import digit_images, parse_options, random_batches, train, update


class ResidualBlock(nn.Module):
    """Two convolutions of the reflected image, added to it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_block = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(width, width, 3),
            nn.InstanceNorm2d(width),
            nn.ReLU(inplace=True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(width, width, 3),
            nn.InstanceNorm2d(width),
        )

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x + self.conv_block(x)


class Generator(nn.Module):
    """Images (batch, channels, height, width) in [-1, 1] to images of the same shape.

    Height and width are multiples of 4.
    """

    def __init__(self, channels: int = 3, width: int = 64, blocks: int = 9) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.ReflectionPad2d(3),
            nn.Conv2d(channels, width, 7),
            nn.InstanceNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        for current in (width, 2 * width):
            layers += [
                nn.Conv2d(current, 2 * current, 3, stride=2, padding=1),
                nn.InstanceNorm2d(2 * current),
                nn.ReLU(inplace=True),
            ]
        layers += [ResidualBlock(4 * width) for _ in range(blocks)]
        for current in (4 * width, 2 * width):
            layers += [
                nn.ConvTranspose2d(current, current // 2, 3, 2, padding=1, output_padding=1),
                nn.InstanceNorm2d(current // 2),
                nn.ReLU(inplace=True),
            ]
        layers += [nn.ReflectionPad2d(3), nn.Conv2d(width, channels, 7), nn.Tanh()]
        self.model = nn.Sequential(*layers)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.normal_(module.weight, 0.0, 0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.model(images)


def cycle_loss(
    there: nn.Module, back: nn.Module, first: metaop.Tensor, second: metaop.Tensor
) -> metaop.Tensor:
    """How far images are from where they started after both ways."""
    forwards = (back(there(first)) - first).abs().mean()
    return forwards + (there(back(second)) - second).abs().mean()


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Trains two generators to undo each other; returns the losses."""
    options = parse_options(__doc__, arguments, steps=40, batch_size=4, lr=2e-3, width=8, blocks=2)
    images, _ = digit_images(32)
    batches = random_batches(images, -images, size=options.batch_size, seed=options.seed)
    there, back = (Generator(3, options.width, options.blocks) for _ in range(2))
    parameters = [*there.parameters(), *back.parameters()]
    optimizer = metaop.optim.Adam(parameters, lr=options.lr, betas=(0.5, 0.999))

    def step(number: int) -> dict[str, metaop.Tensor]:
        first, second = next(batches)
        return {"loss": update(optimizer, cycle_loss(there, back, first, second))}

    return train(step, options.steps, "CycleGAN")["loss"]


if __name__ == "__main__":
    main()
