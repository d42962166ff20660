"""MLP: a multilayer perceptron that classifies the 8x8 digits of scikit-learn.

Every fifth of the 1,797 digits is for testing. The shortest complete training program here: read it
first.

    python -m models.mlp --steps 690
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, drawn_rows, parse_options, train, update


class MLP(nn.Sequential):
    """Rows (batch, sizes[0]) to logits (batch, sizes[-1]), with ReLU between the linear layers."""

    def __init__(self, *sizes: int) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        super().__init__(*layers[:-1])


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels (1797, 64), float32 in [0, 1], and labels (1797,), int64."""
    from sklearn import datasets

    pixels, labels = datasets.load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32), labels.astype(np.int64)


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns digits; returns the accuracy on test digits."""
    options = parse_options(__doc__, arguments, steps=690, batch_size=64, lr=3e-3)
    pixels, labels = load_digits()
    is_test = np.arange(len(labels)) % 5 == 0
    known = pixels[~is_test], labels[~is_test]
    model = MLP(64, 128, 64, 10)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        x, target = drawn_rows(*known, size=options.batch_size, seed=(options.seed, number))
        return {"loss": update(optimizer, F.cross_entropy(model(x), target))}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, "MLP", checkpoint)
    with metaop.no_grad():
        found = model(metaop.from_numpy(pixels[is_test])).argmax(1).numpy()
    accuracy = float((found == labels[is_test]).mean())
    print(f"accuracy {accuracy:.4f} on test digits")
    return accuracy


if __name__ == "__main__":
    main()
