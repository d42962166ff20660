"""ESRGAN: adversarial super-resolution by a factor of 4.

After X. Wang and others, "ESRGAN: enhanced super-resolution generative adversarial networks", 2018.
Parameters have the names of the authors' program. The demonstration enlarges synthetic faces. The
perceptual loss of the paper is left out, because it needs the published weights of VGG.

    python -m models.esrgan --steps 200 --out runs/esrgan.png
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .adversarial import Turn, gan_options, train_adversaries
from .arcface import draw_faces
from .pix2pix import PatchDiscriminator
from .relativistic_gan import RelativisticGAN


class ResidualDenseBlock_5C(nn.Module):
    """Five densely connected convolutions; their result, scaled by 0.2, is added to the input."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        for number in range(1, 6):
            outputs = growth if number < 5 else width
            inputs = width + (number - 1) * growth
            setattr(self, f"conv{number}", nn.Conv2d(inputs, outputs, 3, 1, 1))

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        features = [x]
        for number in range(1, 5):
            new = getattr(self, f"conv{number}")(metaop.cat(features, 1))
            features.append(F.leaky_relu(new, 0.2))
        return x + 0.2 * self.conv5(metaop.cat(features, 1))


class RRDB(nn.Module):
    """A residual in residual dense block: three dense blocks, scaled by 0.2, added to the input."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.RDB1, self.RDB2, self.RDB3 = (ResidualDenseBlock_5C(width, growth) for _ in range(3))

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return x + 0.2 * self.RDB3(self.RDB2(self.RDB1(x)))


class RRDBNet(nn.Module):
    """Images (batch, channels, height, width) to (batch, channels, 4 height, 4 width)."""

    def __init__(
        self, channels: int = 3, width: int = 64, blocks: int = 23, growth: int = 32
    ) -> None:
        super().__init__()
        self.conv_first = nn.Conv2d(channels, width, 3, 1, 1)
        self.RRDB_trunk = nn.Sequential(*(RRDB(width, growth) for _ in range(blocks)))
        self.trunk_conv = nn.Conv2d(width, width, 3, 1, 1)
        self.upconv1 = nn.Conv2d(width, width, 3, 1, 1)
        self.upconv2 = nn.Conv2d(width, width, 3, 1, 1)
        self.HRconv = nn.Conv2d(width, width, 3, 1, 1)
        self.conv_last = nn.Conv2d(width, channels, 3, 1, 1)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        x = self.conv_first(images)
        x = x + self.trunk_conv(self.RRDB_trunk(x))
        for layer in (self.upconv1, self.upconv2):
            x = F.leaky_relu(layer(F.interpolate(x, scale_factor=2.0, mode="nearest")), 0.2)
        return self.conv_last(F.leaky_relu(self.HRconv(x), 0.2))


class ESRGAN(RelativisticGAN):
    """Takes high-resolution images, and as `labels` low-resolution ones.

    The generator minimises the L1 loss plus `lambda_adv` times the relativistic loss.
    """

    lambda_adv = 0.005

    def turn(self, real: metaop.Tensor, labels: metaop.Tensor, *codes: metaop.Tensor) -> Turn:
        return Turn(real, labels, self.generator(labels), codes)

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        content = (turn.fake - turn.real).abs().mean()
        return content + self.lambda_adv * super().generator_loss(turn)


def downsampled(images: np.ndarray) -> np.ndarray:
    """The means of squares of 4 × 4 pixels: (count, channels, height/4, width/4)."""
    count, channels, height, width = images.shape
    return images.reshape(count, channels, height // 4, 4, width // 4, 4).mean((3, 5))


def psnr(images: np.ndarray, originals: np.ndarray) -> float:
    """The peak signal-to-noise ratio of images in [-1, 1], in decibels."""
    return -10 * math.log10(np.mean((images - originals) ** 2) / 4)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns to enlarge faces; returns the peak signal-to-noise ratio of new ones, in decibels.

    `--out` names a picture: small faces, enlarged by repeated pixels, the faces, and the results.
    """
    options = gan_options(__doc__, arguments, steps=200, batch_size=16, blocks=1, growth=8)
    random = np.random.default_rng(options.seed)
    faces = draw_faces(random.uniform(size=(1100, 9)), random).clip(-1, 1)
    small = downsampled(faces)
    network = RRDBNet(1, options.width, options.blocks, options.growth)
    players = ESRGAN(network, PatchDiscriminator(1, options.width, 2), latent=0)
    new = small[1000:]
    plain = new.repeat(4, 2).repeat(4, 3)

    def show() -> metaop.Tensor:
        found = network(metaop.from_numpy(new[:8]))
        return metaop.cat((*map(metaop.from_numpy, (plain[:8], faces[1000:1008])), found))

    train_adversaries(players, options, (faces[:1000], small[:1000]), show)
    with metaop.no_grad():
        found = network.eval()(metaop.from_numpy(new)).numpy()
    ratio, least = (psnr(images, faces[1000:]) for images in (found, plain))
    print(f"peak signal-to-noise ratio {ratio:.2f} dB of new faces; {least:.2f} dB of large pixels")
    return ratio


if __name__ == "__main__":
    main()
