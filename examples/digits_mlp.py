"""A two-layer MLP that classifies the 8x8 digits of scikit-learn.

Run: python examples/digits_mlp.py   (needs: pip install 'metaop[examples]')
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import metaop
from metaop import nn
from metaop.data import DataLoader, TensorDataset, random_split
from metaop.nn import functional as F


def main(epochs: int = 15) -> float:
    """Returns the accuracy on test digits."""
    metaop.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    dataset = TensorDataset(
        metaop.from_numpy((images / 16).astype(np.float32)),
        metaop.from_numpy(labels.astype(np.int64)),
    )
    train, test = random_split(dataset, [0.8, 0.2])
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = metaop.optim.Adam(model.parameters(), lr=5e-3)

    for _ in range(epochs):
        for x, y in DataLoader(train, batch_size=64, shuffle=True):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    x, y = next(iter(DataLoader(test, batch_size=len(test))))
    with metaop.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    print(f"test accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
