"""U-Net: a segmentation network with skip connections between its encoder and its decoder.

After O. Ronneberger, P. Fischer, T. Brox, "U-Net: convolutional networks for biomedical image
segmentation", 2015, with padding and batch normalisation.

    python -m models.unet --steps 60
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update


class DoubleConvolution(nn.Sequential):
    """Two 3x3 convolutions, each with batch normalisation and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Images (batch, channels, height, width) to logits (batch, classes, height, width).

    The encoder halves the image `depth` times and doubles the channels, from `width` on. Height and
    width are multiples of 2 to the power of `depth`.
    """

    def __init__(
        self, channels: int = 3, num_classes: int = 2, width: int = 64, depth: int = 4
    ) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.entry = DoubleConvolution(channels, width)
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(
            DoubleConvolution(above, below) for above, below in itertools.pairwise(widths)
        )
        self.enlarge = nn.ModuleList(
            nn.ConvTranspose2d(below, above, 2, stride=2)
            for above, below in zip(widths[-2::-1], widths[::-1])
        )
        self.up = nn.ModuleList(DoubleConvolution(2 * above, above) for above in widths[-2::-1])
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        x = self.entry(images)
        seen = [x]
        for layer in self.down:
            x = layer(self.pool(x))
            seen.append(x)
        seen.pop()
        for enlarge, layer in zip(self.enlarge, self.up):
            x = layer(metaop.cat((seen.pop(), enlarge(x)), 1))
        return self.head(x)


def discs(count: int, size: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images (count, 1, size, size) of a bright disc, and where it is (count, size, size)."""
    rows, columns = np.mgrid[:size, :size]
    centre = random.uniform(0.25, 0.75, (2, count, 1, 1)) * size
    radius = random.uniform(0.1, 0.25, (count, 1, 1)) * size
    inside = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < radius**2
    images = inside + random.normal(0, 0.5, inside.shape)
    return images[:, None].astype(np.float32), inside.astype(np.int64)


def overlap(logits: metaop.Tensor, inside: metaop.Tensor) -> metaop.Tensor:
    """The intersection over union of predicted and true pixels."""
    found = logits.argmax(1)
    return (found & inside).sum() / (found | inside).sum()


def main(arguments: Sequence[str] | None = None) -> float:
    """Segments noisy discs; returns the intersection over union on 64 new ones."""
    options = parse_options(__doc__, arguments, steps=60, batch_size=8, lr=2e-3, size=32, width=8)
    model = UNet(1, 2, options.width, depth=3)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def drawn(count: int, *seed: int) -> tuple[metaop.Tensor, ...]:
        random = np.random.default_rng((options.seed, *seed))
        return tuple(map(metaop.from_numpy, discs(count, options.size, random)))

    def step(number: int) -> dict[str, metaop.Tensor]:
        images, inside = drawn(options.batch_size, number)
        logits = model(images)
        loss = update(optimizer, F.cross_entropy(logits, inside))
        return {"loss": loss, "overlap": overlap(logits.detach(), inside)}

    train(
        step,
        options.steps,
        "U-Net",
        Checkpoint(options.checkpoint, model=model, optimizer=optimizer),
    )
    images, inside = drawn(64, options.steps, 1)
    with metaop.no_grad():
        found = overlap(model.eval()(images), inside).item()
    print(f"overlap {found:.3f} with new discs")
    return found


if __name__ == "__main__":
    main()
