"""A network of fully connected layers that learns the 8x8 digits of scikit-learn.

1,797 real digits; every fifth tests. The shortest complete training program here: read it first.

    python -m models.mlp --epochs 30
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F


class MLP(nn.Sequential):
    """Rows (batch, sizes[0]) to logits (batch, sizes[-1]), rectifiers between the layers."""

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
    """Trains and returns the test accuracy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    metaop.manual_seed(options.seed)
    random = np.random.default_rng(options.seed)
    pixels, labels = load_digits()
    is_test = np.arange(len(labels)) % 5 == 0
    train_pixels, train_labels = pixels[~is_test], labels[~is_test]
    model = MLP(64, 128, 64, 10)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)
    scheduler = metaop.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.epochs)

    for _ in range(options.epochs):
        order = random.permutation(len(train_labels))
        for start in range(0, len(order), options.batch_size):
            chosen = order[start : start + options.batch_size]
            logits = model(metaop.from_numpy(train_pixels[chosen]))
            loss = F.cross_entropy(logits, metaop.from_numpy(train_labels[chosen]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()

    with metaop.no_grad():
        found = model(metaop.from_numpy(pixels[is_test])).argmax(1).numpy()
    accuracy = float((found == labels[is_test]).mean())
    print(f"test accuracy {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    main()
