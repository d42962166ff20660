"""PixelDA: makes labelled images look like others, which have no labels, and learns from them.

After K. Bousmalis and others, "Unsupervised pixel-level domain adaptation with generative
adversarial networks", 2016. The demonstration knows the names of plain digits, and learns to read
digits on a noisy ground.

    python -m models.pixelda --steps 300 --out runs/pixelda.png
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import Turn, adversarial_loss, drawing_options, learn_in_turn
from .cyclegan import Generator
from .dcgan import Discriminator
from .demonstration import digit_images
from .gan import GAN


class Adapter(nn.Module):
    """Images (batch, 1, size, size) and noise (batch, latent) to images that look like others.

    `reader` names what images show; it learns with the generator.
    """

    def __init__(self, latent: int, width: int, size: int, classes: int) -> None:
        super().__init__()
        self.size = size
        self.spread = nn.Linear(latent, size * size)
        self.main = Generator(2, width, blocks=1, outputs=1)
        self.reader = Classifier(width, 1, size, classes)

    def named(self, images: metaop.Tensor) -> metaop.Tensor:
        """Logits of the classes (batch, classes)."""
        return self.reader(images)[1]

    def forward(self, images: metaop.Tensor, noise: metaop.Tensor) -> metaop.Tensor:
        further = self.spread(noise).view(-1, 1, self.size, self.size)
        return self.main(metaop.cat((images, further), 1))


class PixelDA(GAN):
    """Reads what is real, plain images and the labels of these.

    The adapter wants what it draws to be called real, its reader to name it and plain images, and
    what is bright to change all alike, by `content`: else it could draw one digit for another.
    """

    content = 10.0

    def turn(  # type: ignore[override]
        self,
        real: metaop.Tensor,
        plain: metaop.Tensor,
        labels: metaop.Tensor,
        *codes: metaop.Tensor,
    ) -> Turn:
        codes = codes or self.codes(len(real))
        return Turn(real, labels, self.generator(plain, *codes), (plain,))

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        drawn, plain = (self.generator.named(images) for images in (turn.fake, *turn.codes))
        named = F.cross_entropy(drawn, turn.labels) + F.cross_entropy(plain, turn.labels)
        bright = (turn.codes[0] > 0).to(plain.dtype)
        change = bright * (turn.fake - turn.codes[0])
        share = bright.mean((1, 2, 3))
        alike = (change**2).mean((1, 2, 3)) / share - (change.mean((1, 2, 3)) / share) ** 2
        return (
            adversarial_loss(self.discriminator(turn.fake), True)
            + named
            + self.content * alike.mean()
        )


def strange(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Digits on a ground of noise, of images (count, 1, height, width) in [-1, 1]."""
    return np.where(images > 0, images, random.uniform(-1, 0.8, images.shape)).astype(np.float32)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns to read digits on noise; returns the share of new ones that it reads.

    With --out it draws plain digits, what it makes of them, and digits on noise.
    """
    options = drawing_options(__doc__, arguments, steps=300, latent=10, width=8)
    digits, labels = digit_images(16, 1)
    random = np.random.default_rng(options.seed)
    others = strange(digits, random)
    new, known, target = slice(597), slice(597, 1197), slice(1197, 1797)
    adapter = Adapter(options.latent, options.width, 16, 10)
    players = PixelDA(adapter, Discriminator(options.width, 1, 16), options.latent)

    def show() -> metaop.Tensor:
        plain, wanted = (metaop.from_numpy(array[:8]) for array in (digits, others))
        return metaop.cat((plain, adapter(plain, metaop.randn(8, options.latent)), wanted))

    # Digits stand in turn in the data: without order, rows of both kinds have nothing in common.
    order = known.start + random.permutation(600)
    arrays = others[target], digits[order], labels[order]
    learn_in_turn(players, options, arrays, show)
    with metaop.no_grad():
        found = adapter.eval().named(metaop.from_numpy(others[new])).argmax(1).numpy()
    accuracy = float((found == labels[new]).mean())
    print(f"accuracy {accuracy:.3f} of digits on noise, whose labels were never read")
    return accuracy


if __name__ == "__main__":
    main()
