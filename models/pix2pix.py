"""Pix2pix: translates images by examples, which a discriminator sees in patches.

After P. Isola, J.-Y. Zhu, T. Zhou, A. Efros, "Image-to-image translation with conditional
adversarial networks", 2016. Names of parameters are those of the authors' program. The
demonstration makes digits of their outlines.

    python -m models.pix2pix --steps 150 --out runs/pix2pix.png
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop import nn

from .adversarial import Turn, adversarial_loss, drawing_options, learn_in_turn
from .dcgan import initialise
from .demonstration import digit_images
from .gan import GAN


class UnetSkipConnectionBlock(nn.Module):
    """Halves the image, does what is within, doubles it, and puts what it read beside that.

    The outermost block ends with its image, the innermost one has nothing within.
    """

    def __init__(self, outer: int, inner: int, within: nn.Module | None, channels: int = 0) -> None:
        super().__init__()
        self.outermost = channels > 0
        down = nn.Conv2d(channels or outer, inner, 4, 2, 1, bias=False)
        wide = 2 * inner if within is not None else inner
        up = nn.ConvTranspose2d(wide, outer, 4, 2, 1, bias=self.outermost)
        layers: list[nn.Module]
        if self.outermost:
            assert within is not None
            layers = [down, within, nn.ReLU(True), up, nn.Tanh()]
        elif within is None:
            layers = [nn.LeakyReLU(0.2, True), down, nn.ReLU(True), up, nn.BatchNorm2d(outer)]
        else:
            layers = [
                *(nn.LeakyReLU(0.2, True), down, nn.BatchNorm2d(inner), within),
                *(nn.ReLU(True), up, nn.BatchNorm2d(outer)),
            ]
        self.model = nn.Sequential(*layers)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        # As in the authors' program, the first layer rectifies in place: so is what is put beside.
        return self.model(x) if self.outermost else metaop.cat((x, self.model(x)), 1)


class UnetGenerator(nn.Module):
    """Images (batch, inputs, height, width) to images (batch, outputs, height, width) in [-1, 1].

    Height and width are multiples of 2 to the power of `levels`.
    """

    def __init__(self, inputs: int = 3, outputs: int = 3, levels: int = 8, width: int = 64) -> None:
        super().__init__()
        widths = [width * 2 ** min(level, 3) for level in range(levels)]
        within = None
        for level in range(levels - 1, 0, -1):
            within = UnetSkipConnectionBlock(widths[level - 1], widths[level], within)
        self.model = UnetSkipConnectionBlock(outputs, width, within, inputs)
        self.apply(initialise)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.model(images)


class PatchDiscriminator(nn.Module):
    """Images (batch, inputs, height, width) to logits (batch, 1, …) of overlapping patches.

    `norm` is BatchNorm2d as in pix2pix, or InstanceNorm2d as in CycleGAN; `layers` halve the image.
    """

    def __init__(
        self, inputs: int = 3, width: int = 64, layers: int = 3, norm: Any = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        bias = norm is not nn.BatchNorm2d
        found: list[nn.Module] = [nn.Conv2d(inputs, width, 4, 2, 1), nn.LeakyReLU(0.2, True)]
        for level in range(1, layers + 1):
            current, following = (width * 2 ** min(k, 3) for k in (level - 1, level))
            stride = 2 if level < layers else 1
            found += [
                nn.Conv2d(current, following, 4, stride, 1, bias=bias),
                norm(following),
                nn.LeakyReLU(0.2, True),
            ]
        self.model = nn.Sequential(*found, nn.Conv2d(following, 1, 4, 1, 1))
        self.apply(initialise)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.model(images)


class Pix2Pix(GAN):
    """Reads real images and, in the place of labels, what they are to be made of.

    The discriminator sees both; the generator is also drawn to the real image, by `weight`.
    """

    weight = 100.0

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        return Turn(real, labels, self.generator(labels), codes)

    def seen(self, turn: Turn, images: metaop.Tensor) -> metaop.Tensor:
        return self.discriminator(metaop.cat((turn.labels, images), 1))

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        right, fake = (self.seen(turn, images) for images in (turn.real, turn.fake))
        return (adversarial_loss(right, True) + adversarial_loss(fake, False)) / 2

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        missed = (turn.fake - turn.real).abs().mean()
        return adversarial_loss(self.seen(turn, turn.fake), True) + self.weight * missed


def outlines(images: np.ndarray) -> np.ndarray:
    """1 where the brightness of images (count, 1, height, width) changes much, else -1."""
    down = np.abs(np.diff(images, axis=2, prepend=-1))
    right = np.abs(np.diff(images, axis=3, prepend=-1))
    return np.where(np.maximum(down, right) > 0.5, 1, -1).astype(np.float32)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to fill the outlines of digits; returns the losses of the generator.

    With --out it draws outlines, what it makes of them, and the digits.
    """
    options = drawing_options(__doc__, arguments)
    digits, _ = digit_images(16, 1)
    drawn = outlines(digits)
    players = Pix2Pix(
        UnetGenerator(1, 1, 4, options.width), PatchDiscriminator(2, options.width, 2), latent=0
    )

    def show() -> metaop.Tensor:
        lines, wanted = (metaop.from_numpy(array[:8]) for array in (drawn, digits))
        return metaop.cat((lines, players.generator(lines), wanted))

    return learn_in_turn(players, options, (digits, drawn), show)["generator"]


if __name__ == "__main__":
    main()
