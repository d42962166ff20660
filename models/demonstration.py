"""What the demonstrations of the networks share: options, the training loop, small real data.

The file of a network has the network and its data; the rest is here.
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

from .parallel import Parallel

# The help of options that several demonstrations have.
HELP = {
    "steps": "training steps",
    "batch_size": "samples per step",
    "lr": "learning rate",
    "seed": "of all random numbers",
    "data_parallel": "ranks that share each batch",
    "tensor_parallel": "ranks that share each layer",
    "pipeline": "stages of a pipeline",
    "auto_parallel": "search for a sharding of the network",
    "checkpoint": "file or folder to write, and to resume from if it exists",
    "every": "steps between two checkpoints",
    "out": "file or folder for results",
    "log": "file for a line of JSON per step",
}


def parse_options(
    description: str | None,
    arguments: Sequence[str] | None,
    *,
    steps: int,
    batch_size: int,
    lr: float,
    **further: int | float | str | tuple[int, ...] | tuple[str, ...],
) -> argparse.Namespace:
    """Parses the options of a demonstration; `further` adds options by their defaults.

    A tuple has the values that an option may take, the default first.

    Every demonstration has `--checkpoint`, the file of a `Checkpoint`. It also sets the seed, and
    starts the ranks of `--data-parallel`.
    """
    title = (description or "").split("\n")[0]
    parser = argparse.ArgumentParser(description=title)
    defaults: dict[str, Any] = {
        "steps": steps,
        "batch_size": batch_size,
        "lr": lr,
        "seed": 0,
        "data_parallel": 1,
        "checkpoint": "",
    }
    defaults |= further
    for name, value in defaults.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(option, action="store_true", help=HELP.get(name))
            continue
        choices = value if isinstance(value, tuple) else None
        default = choices[0] if choices else value
        shown = "none" if default == "" else default
        text = f"{HELP.get(name, '')} (default: {shown})".strip()
        parser.add_argument(
            option, type=type(default), default=default, choices=choices, help=text,
            metavar=None if choices else type(default).__name__.upper(),
        )  # fmt: skip
    options = parser.parse_args(arguments)
    Parallel.of(options).start()
    metaop.manual_seed(options.seed)
    return options


class Checkpoint:
    """The file of a checkpoint, and the `parts` to store in it, which have a `state_dict`.

    `train` writes it after every `every` steps, unless the name is empty. A name without a suffix
    is a folder, to which each rank of a job writes its share. If the file exists, `train` resumes
    from it, on any number of ranks. The result is that of an uninterrupted training if each step
    depends only on its number, the parts and metaop's random state.

    Example:
        train(step, 100, "GPT", Checkpoint("gpt.pth", model=model, optimizer=optimizer))
    """

    def __init__(self, file: str = "", every: int = 100, **parts: Any) -> None:
        self.file, self.every, self.parts = file, every, parts

    def read(self) -> dict[str, list[float]]:
        """Restores the parts; returns the history, the values of the finished steps by name."""
        if not self.file or not Path(self.file).exists():
            return {}
        kept: dict[str, Any] = dict(self.parts)
        metaop.distributed.checkpoint.load(kept, checkpoint_id=self.file)
        metaop.set_rng_state(kept["random"])
        return kept["history"]

    def write(self, history: dict[str, list[float]]) -> None:
        """Stores the parts and the history."""
        if self.file:
            Path(self.file).parent.mkdir(parents=True, exist_ok=True)
            kept = {**self.parts, "random": metaop.get_rng_state(), "history": history}
            metaop.distributed.checkpoint.save(kept, checkpoint_id=self.file)


def train(
    step: Callable[[int], dict[str, metaop.Tensor]],
    steps: int,
    title: str,
    kept: Checkpoint | None = None,
    log: str = "",
) -> dict[str, list[float]]:
    """Calls `step(number)` for all `steps`, with a progress bar; returns the values by name.

    `kept` resumes and stores the training, also after the last step. The file `log` gets a line of
    JSON for each step.
    """
    kept = kept or Checkpoint()
    history = kept.read()
    start = max(map(len, history.values()), default=0)
    if log:
        _begin_log(log, start)
    with tqdm(total=steps, initial=start, desc=title, unit=" steps") as bar:
        for number in range(start, steps):
            values = {name: value.item() for name, value in step(number).items()}
            for name, value in values.items():
                history.setdefault(name, []).append(value)
            if log:
                with open(log, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"step": number, **values}) + "\n")
            bar.set_postfix({name: f"{value:.4f}" for name, value in values.items()})
            bar.update()
            if (number + 1) % kept.every == 0 or number + 1 == steps:
                kept.write(history)
    return history


def _begin_log(file: str, start: int) -> None:
    """Drops the lines of steps from `start` on, which belong to an interrupted run."""
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    before = [line for line in lines if json.loads(line)["step"] < start]
    path.write_text("".join(line + "\n" for line in before), encoding="utf-8")


def write_metrics(out: str, metrics: dict[str, Any]) -> None:
    """Prints the metrics, and writes them to `metrics.json` in the folder `out`, if given."""
    print(", ".join(f"{name} {value:.3f}" for name, value in metrics.items()))
    if out:
        Path(out).mkdir(parents=True, exist_ok=True)
        Path(out, "metrics.json").write_text(json.dumps(metrics) + "\n")


def write_picture(images: Any, path: str | Path, **grid: Any) -> None:
    """Writes a grid of images, as `save_image` does, and creates the folder of the file."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    metaop.vision.utils.save_image(images, path, **grid)


def update(optimizer: metaop.optim.Optimizer, loss: metaop.Tensor) -> metaop.Tensor:
    """Zeroes the gradients, differentiates `loss` and takes a step; returns the detached loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def digit_images(size: int, channels: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """The 1,797 digits of scikit-learn, enlarged by repeating pixels.

    Returns images (1797, channels, size, size), float32 in [-1, 1], and labels (1797,), int64;
    `size` is a multiple of 8.
    """
    from sklearn import datasets

    pixels, labels = datasets.load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 1, 8, 8) / 8 - 1).astype(np.float32)
    magnified = images.repeat(size // 8, 2).repeat(size // 8, 3)
    return magnified.repeat(channels, 1), labels.astype(np.int64)


def drawn_rows(*arrays: np.ndarray, size: int, seed: Sequence[int]) -> list[metaop.Tensor]:
    """`size` random rows, with replacement, the same of each array; determined by `seed`."""
    chosen = np.random.default_rng(seed).integers(0, len(arrays[0]), size)
    return [metaop.from_numpy(array[chosen]) for array in arrays]


def random_batches(*arrays: np.ndarray, size: int, seed: int) -> Iterator[list[metaop.Tensor]]:
    """Endless batches of `size` random rows, the same of each array."""
    random = np.random.default_rng(seed)
    while True:
        chosen = random.integers(0, len(arrays[0]), size)
        yield [metaop.from_numpy(array[chosen]) for array in arrays]


def learn_digits(
    model: nn.Module, options: argparse.Namespace, size: int, channels: int = 3
) -> list[float]:
    """Trains an image classifier on digits of size × size pixels; returns the losses."""
    from .trainer import Trainer, Training

    digits = digit_images(size, channels)

    def batch(number: int) -> list[metaop.Tensor]:
        return drawn_rows(*digits, size=options.batch_size, seed=(options.seed, number))

    def values(
        network: Any, images: metaop.Tensor, target: metaop.Tensor
    ) -> dict[str, metaop.Tensor]:
        logits = network(images)
        right = (logits.argmax(1) == target).float().mean()
        return {"loss": F.cross_entropy(logits, target), "accuracy": right}

    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)
    trainer = Trainer(model, optimizer, batch, values, Training.of(options))
    history = trainer.fit(type(model).__name__)
    print(f"accuracy over the last steps {np.mean(history['accuracy'][-10:]):.3f}")
    return history["loss"]
