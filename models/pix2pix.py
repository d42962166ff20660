"""Pix2pix: image-to-image translation learned from pairs, with a discriminator of patches.

After P. Isola, J.-Y. Zhu, T. Zhou, A. Efros, "Image-to-image translation with conditional
adversarial networks", 2016. Parameters have the names of the authors' program. The
demonstration fills the outlines of digits.

    python -m models.pix2pix --steps 150 --out runs/pix2pix.png
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop import nn

from .adversarial import Turn, adversarial_loss, gan_options, train_adversaries
from .dcgan import initialise
from .demonstration import digit_images
from .gan import GAN


class UnetSkipConnectionBlock(nn.Module):
    """One level of the U-Net: down, `submodule`, up, concatenated with the input.

    (batch, outer, height, width) to (batch, 2 outer, height, width). The outermost block, which has
    input `channels`, returns the image alone; the innermost one has no submodule.
    """

    def __init__(
        self, outer: int, inner: int, submodule: nn.Module | None, channels: int = 0
    ) -> None:
        super().__init__()
        self.outermost = channels > 0
        down = nn.Conv2d(channels or outer, inner, 4, 2, 1, bias=False)
        wide = 2 * inner if submodule is not None else inner
        up = nn.ConvTranspose2d(wide, outer, 4, 2, 1, bias=self.outermost)
        layers: list[nn.Module]
        if self.outermost:
            assert submodule is not None
            layers = [down, submodule, nn.ReLU(True), up, nn.Tanh()]
        elif submodule is None:
            layers = [nn.LeakyReLU(0.2, True), down, nn.ReLU(True), up, nn.BatchNorm2d(outer)]
        else:
            layers = [
                *(nn.LeakyReLU(0.2, True), down, nn.BatchNorm2d(inner), submodule),
                *(nn.ReLU(True), up, nn.BatchNorm2d(outer)),
            ]
        self.model = nn.Sequential(*layers)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        # As in the authors' program, the first layer is an in-place leaky ReLU, so the skip
        # connection carries rectified values.
        return self.model(x) if self.outermost else metaop.cat((x, self.model(x)), 1)


class UnetGenerator(nn.Module):
    """Images (batch, inputs, height, width) to images (batch, outputs, height, width) in [-1, 1].

    Height and width are multiples of 2 to the power of `levels`.
    """

    def __init__(self, inputs: int = 3, outputs: int = 3, levels: int = 8, width: int = 64) -> None:
        super().__init__()
        widths = [width * 2 ** min(level, 3) for level in range(levels)]
        submodule = None
        for level in range(levels - 1, 0, -1):
            submodule = UnetSkipConnectionBlock(widths[level - 1], widths[level], submodule)
        self.model = UnetSkipConnectionBlock(outputs, width, submodule, inputs)
        self.apply(initialise)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.model(images)


class PatchDiscriminator(nn.Module):
    """Images (batch, inputs, height, width) to logits (batch, 1, …) of overlapping patches.

    `norm` is BatchNorm2d as in pix2pix, or InstanceNorm2d as in CycleGAN. `layers` convolutions
    halve the image.
    """

    def __init__(
        self, inputs: int = 3, width: int = 64, layers: int = 3, norm: Any = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        bias = norm is not nn.BatchNorm2d
        stack: list[nn.Module] = [nn.Conv2d(inputs, width, 4, 2, 1), nn.LeakyReLU(0.2, True)]
        for level in range(1, layers + 1):
            current, following = (width * 2 ** min(k, 3) for k in (level - 1, level))
            stride = 2 if level < layers else 1
            stack += [
                nn.Conv2d(current, following, 4, stride, 1, bias=bias),
                norm(following),
                nn.LeakyReLU(0.2, True),
            ]
        self.model = nn.Sequential(*stack, nn.Conv2d(following, 1, 4, 1, 1))
        self.apply(initialise)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.model(images)


class Pix2Pix(GAN):
    """Takes target images, and as `labels` the images to translate.

    The discriminator sees both, concatenated. The generator also minimises `lambda_l1` times the
    L1 distance to the target.
    """

    lambda_l1 = 100.0

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        return Turn(real, labels, self.generator(labels), codes)

    def logits(self, turn: Turn, images: metaop.Tensor) -> metaop.Tensor:
        return self.discriminator(metaop.cat((turn.labels, images), 1))

    def discriminator_loss(self, turn: Turn) -> metaop.Tensor:
        real, fake = (self.logits(turn, images) for images in (turn.real, turn.fake))
        return (adversarial_loss(real, True) + adversarial_loss(fake, False)) / 2

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        l1 = (turn.fake - turn.real).abs().mean()
        return adversarial_loss(self.logits(turn, turn.fake), True) + self.lambda_l1 * l1


def outlines(images: np.ndarray) -> np.ndarray:
    """1 at edges of images (count, 1, height, width), else -1; the shape stays."""
    down = np.abs(np.diff(images, axis=2, prepend=-1))
    right = np.abs(np.diff(images, axis=3, prepend=-1))
    return np.where(np.maximum(down, right) > 0.5, 1, -1).astype(np.float32)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to fill the outlines of digits; returns the losses of the generator.

    `--out` names a picture: outlines, filled outlines, and the digits.
    """
    options = gan_options(__doc__, arguments)
    digits, _ = digit_images(16, 1)
    edges = outlines(digits)
    players = Pix2Pix(
        UnetGenerator(1, 1, 4, options.width), PatchDiscriminator(2, options.width, 2), latent=0
    )

    def show() -> metaop.Tensor:
        lines, targets = (metaop.from_numpy(array[:8]) for array in (edges, digits))
        return metaop.cat((lines, players.generator(lines), targets))

    return train_adversaries(players, options, (digits, edges), show)["generator"]


if __name__ == "__main__":
    main()
