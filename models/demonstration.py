"""What the short demonstrations of the networks share: options, a training loop, small real data.

Each network's file shows the network and says what it learns from; here stands the rest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import metaop
from metaop import nn
from metaop.nn import functional as F


def parse_options(
    description: str | None,
    arguments: Sequence[str] | None,
    *,
    steps: int,
    batch_size: int,
    lr: float,
    **further: int | float | str,
) -> argparse.Namespace:
    """The options of a demonstration with their defaults; `further` adds some of its own.

    The seed has been set when this returns.
    """
    title = (description or "").split("\n")[0]
    parser = argparse.ArgumentParser(description=title)
    defaults = {"steps": steps, "batch_size": batch_size, "lr": lr, "seed": 0, **further}
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    options = parser.parse_args(arguments)
    metaop.manual_seed(options.seed)
    return options


class Checkpoint:
    """What a training needs to go on, kept in a file: parts, random state, and how it went.

    `parts` are the model, its optimizer and whatever else has a `state_dict`. `steps` tells how
    many steps have been taken, and `history` the values of each. The file is written after every
    `every` steps and after the last one; without a folder `out` nothing is written.

        checkpoint = Checkpoint("runs/fcn", "", model=model, optimizer=optimizer)
    """

    def __init__(self, out: str, resume: str, every: int = 100, **parts: Any) -> None:
        self.file = Path(out, "checkpoint.pth") if out else None
        self.every, self.parts = every, parts
        self.steps = 0
        self.history: dict[str, list[float]] = {}
        if resume:
            self._resume(Path(resume))

    def _resume(self, file: Path) -> None:
        kept = metaop.load(file)
        for name, part in self.parts.items():
            part.load_state_dict(kept[name])
        self.steps, self.history = kept["steps"], kept["history"]
        metaop.set_rng_state(kept["random"])

    def save(self) -> None:
        """Writes the file."""
        if self.file is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: part.state_dict() for name, part in self.parts.items()}
        metaop.save(
            {
                **kept,
                "steps": self.steps,
                "history": self.history,
                "random": metaop.get_rng_state(),
            },
            self.file,
        )


def train(
    step: Callable[[int], dict[str, metaop.Tensor]],
    steps: int,
    title: str,
    checkpoint: Checkpoint | None = None,
) -> dict[str, list[float]]:
    """Calls `step(number)` so many times under a progress bar; returns the values it gave.

    With a checkpoint it goes on where that stands, and keeps it. What a step learns from should
    then follow from its number.
    """
    kept = checkpoint or Checkpoint("", "")
    with tqdm(range(kept.steps, steps), title, steps, initial=kept.steps, unit=" steps") as bar:
        for number in bar:
            values = {name: value.item() for name, value in step(number).items()}
            for name, value in values.items():
                kept.history.setdefault(name, []).append(value)
            kept.steps = number + 1
            if kept.steps % kept.every == 0 or kept.steps == steps:
                kept.save()
            bar.set_postfix({name: f"{value:.4f}" for name, value in values.items()})
    return kept.history


def write_metrics(out: str, metrics: dict[str, Any]) -> None:
    """Prints the metrics, and writes them to `metrics.json` in the folder where one is named."""
    print(", ".join(f"{name} {value:.3f}" for name, value in metrics.items()))
    if out:
        Path(out).mkdir(parents=True, exist_ok=True)
        Path(out, "metrics.json").write_text(json.dumps(metrics) + "\n")


def update(optimizer: metaop.optim.Optimizer, loss: metaop.Tensor) -> metaop.Tensor:
    """One step of the optimizer along the gradient of `loss`, which is returned."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def digit_images(size: int, channels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """The 1,797 digits of scikit-learn, magnified without smoothing.

    Returns images (1797, channels, size, size), float32 in [-1, 1], and labels (1797,), int64;
    `size` is a multiple of 8.
    """
    from sklearn import datasets

    pixels, labels = datasets.load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 1, 8, 8) / 8 - 1).astype(np.float32)
    magnified = images.repeat(size // 8, 2).repeat(size // 8, 3)
    return magnified.repeat(channels, 1), labels.astype(np.int64)


def random_batches(*arrays: np.ndarray, size: int, seed: int) -> Iterator[list[metaop.Tensor]]:
    """Rows of the arrays drawn at random, the same rows of each, without end."""
    random = np.random.default_rng(seed)
    while True:
        chosen = random.integers(0, len(arrays[0]), size)
        yield [metaop.from_numpy(array[chosen]) for array in arrays]


def learn_digits(
    model: nn.Module, options: argparse.Namespace, size: int, channels: int = 3
) -> list[float]:
    """Trains a classifier of images on digits of size × size pixels; returns the losses."""
    images, labels = digit_images(size, channels)
    batches = random_batches(images, labels, size=options.batch_size, seed=options.seed)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        batch, target = next(batches)
        logits = model(batch)
        loss = update(optimizer, F.cross_entropy(logits, target))
        return {"loss": loss, "accuracy": (logits.argmax(1) == target).float().mean()}

    history = train(step, options.steps, type(model).__name__)
    print(f"accuracy over the last steps {np.mean(history['accuracy'][-10:]):.3f}")
    return history["loss"]
