"""PixelDA: domain adaptation that makes labelled images look like an unlabelled target domain.

After K. Bousmalis and others, "Unsupervised pixel-level domain adaptation with generative
adversarial networks", 2016. The demonstration has labels of plain digits, and learns to classify
digits on a noisy background.

    python -m models.pixelda --steps 300 --out runs/pixelda.png
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .acgan import Classifier
from .adversarial import Turn, adversarial_loss, gan_options, train_adversaries
from .cyclegan import Generator
from .dcgan import Discriminator
from .demonstration import digit_images
from .gan import GAN


class Adapter(nn.Module):
    """Source images (batch, 1, size, size) and noise (batch, latent) to images like the target's.

    `reader` is the task classifier, which learns with the generator.
    """

    def __init__(self, latent: int, width: int, size: int, classes: int) -> None:
        super().__init__()
        self.size = size
        self.spread = nn.Linear(latent, size * size)
        self.main = Generator(2, width, blocks=1, outputs=1)
        self.reader = Classifier(width, 1, size, classes)

    def classify(self, images: metaop.Tensor) -> metaop.Tensor:
        """Logits of the classes (batch, classes)."""
        return self.reader(images)[1]

    def forward(self, images: metaop.Tensor, noise: metaop.Tensor) -> metaop.Tensor:
        further = self.spread(noise).view(-1, 1, self.size, self.size)
        return self.main(metaop.cat((images, further), 1))


class PixelDA(GAN):
    """Takes target images, source images and the labels of the latter.

    The generator minimises the adversarial loss, the task loss of source and adapted images, and
    `content_weight` times the masked pairwise mean squared error of the foreground, which keeps it
    from turning one digit into another.
    """

    content_weight = 10.0

    def turn(  # type: ignore[override]
        self,
        real: metaop.Tensor,
        source: metaop.Tensor,
        labels: metaop.Tensor,
        *codes: metaop.Tensor,
    ) -> Turn:
        codes = codes or self.codes(len(real))
        return Turn(real, labels, self.generator(source, *codes), (source,))

    def generator_loss(self, turn: Turn) -> metaop.Tensor:
        (source,) = turn.codes
        adapted_logits, source_logits = map(self.generator.classify, (turn.fake, source))
        task = sum(F.cross_entropy(x, turn.labels) for x in (adapted_logits, source_logits))
        mask = (source > 0).to(source.dtype)
        change = mask * (turn.fake - source)
        share = mask.mean((1, 2, 3))
        # The variance of the change of foreground pixels.
        content = (change**2).mean((1, 2, 3)) / share - (change.mean((1, 2, 3)) / share) ** 2
        return (
            adversarial_loss(self.discriminator(turn.fake), True)
            + task
            + self.content_weight * content.mean()
        )


def on_noise(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Images (count, 1, height, width) in [-1, 1] with uniform noise as their background."""
    return np.where(images > 0, images, random.uniform(-1, 0.8, images.shape)).astype(np.float32)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns to classify digits on noise; returns the accuracy on new ones.

    `--out` names a picture: plain digits, adapted ones, and digits on noise.
    """
    options = gan_options(__doc__, arguments, steps=300, latent=10, width=8)
    digits, labels = digit_images(16, 1)
    random = np.random.default_rng(options.seed)
    others = on_noise(digits, random)
    new, known, target = slice(597), slice(597, 1197), slice(1197, 1797)
    adapter = Adapter(options.latent, options.width, 16, 10)
    players = PixelDA(adapter, Discriminator(options.width, 1, 16), options.latent)

    def show() -> metaop.Tensor:
        plain, noisy = (metaop.from_numpy(array[:8]) for array in (digits, others))
        return metaop.cat((plain, adapter(plain, metaop.randn(8, options.latent)), noisy))

    # The data is sorted by digit in runs, so source images are shuffled: rows of both domains must
    # not correspond.
    order = known.start + random.permutation(600)
    arrays = others[target], digits[order], labels[order]
    train_adversaries(players, options, arrays, show)
    with metaop.no_grad():
        found = adapter.eval().classify(metaop.from_numpy(others[new])).argmax(1).numpy()
    accuracy = float((found == labels[new]).mean())
    print(f"accuracy {accuracy:.3f} on digits with noise, whose labels were not used")
    return accuracy


if __name__ == "__main__":
    main()
