"""What semantic segmentation networks share: their structure, the metric, the training.

The file of each network has its head; the rest is here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F
from metaop.vision.models import IntermediateLayerGetter

from .demonstration import Checkpoint, parse_options, train, update, write_metrics, write_picture
from .resnet import resnet50
from .scenes import CLASSES, Scene, draw_scenes

COLOURS = np.array([[0, 0, 0], [0.9, 0.2, 0.2], [0.2, 0.8, 0.2], [0.3, 0.4, 1.0]], np.float32)


class SegmentationModel(nn.Module):
    """Images (batch, 3, height, width) to {"out": logits (batch, classes, height, width)}.

    `backbone` returns feature maps {"out": …, "aux": …}, and `classifier` maps the first to logits,
    which are upsampled to the image. An auxiliary classifier of the second, which helps training,
    adds {"aux": …}.
    """

    def __init__(
        self, backbone: nn.Module, classifier: nn.Module, aux_classifier: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.classifier = classifier
        self.aux_classifier = aux_classifier

    def logits(self, features: dict[str, metaop.Tensor]) -> metaop.Tensor:
        """Logits (batch, classes, …) at the resolution of a feature map."""
        return self.classifier(features["out"])

    def forward(self, images: metaop.Tensor) -> dict[str, metaop.Tensor]:
        features = self.backbone(images)
        found = {"out": self.logits(features)}
        if self.aux_classifier is not None:
            found["aux"] = self.aux_classifier(features["aux"])
        size = images.shape[-2:]
        return {
            name: F.interpolate(value, size=size, mode="bilinear", align_corners=False)
            for name, value in found.items()
        }


def dilated_resnet50(layers: dict[str, str]) -> nn.Module:
    """Feature maps of a ResNet-50 with output stride 8: its last two stages are dilated.

    `layers` gives the stages their names, as in {"layer3": "aux", "layer4": "out"}.
    """
    model = resnet50(replace_stride_with_dilation=(False, True, True))
    return IntermediateLayerGetter(model, layers)


def small_backbone(width: int) -> nn.Module:
    """For small images: "low" has `width` channels and stride 2, "out" 4 × `width` and stride 4."""

    def stage(inputs: int, outputs: int, stride: int, dilation: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    stages = nn.Sequential(
        stage(3, width, 2, 1),
        stage(width, 2 * width, 2, 1),
        stage(2 * width, 2 * width, 1, 2),
        stage(2 * width, 4 * width, 1, 4),
    )
    return IntermediateLayerGetter(stages, {"0": "low", "2": "aux", "3": "out"})


def segmentation_loss(
    found: dict[str, metaop.Tensor], classes: metaop.Tensor, auxiliary: float = 0.5
) -> metaop.Tensor:
    """The mean cross-entropy of pixels, plus `auxiliary` times that of the auxiliary classifier."""
    loss = F.cross_entropy(found["out"], classes)
    if "aux" in found:
        loss = loss + auxiliary * F.cross_entropy(found["aux"], classes)
    return loss


class PixelCount:
    """The confusion matrix (true class, predicted class) of pixels, and metrics of it."""

    def __init__(self, classes: int) -> None:
        self.counts = np.zeros((classes, classes), np.int64)

    def add(self, true: np.ndarray, found: np.ndarray) -> None:
        """Counts pixels of two label maps of equal shape; negative true labels are ignored."""
        number = len(self.counts)
        known = true >= 0
        pairs = number * true[known] + found[known]
        self.counts += np.bincount(pairs, minlength=number**2).reshape(number, number)

    def accuracy(self) -> float:
        """The share of the pixels that are right."""
        return float(np.trace(self.counts) / self.counts.sum())

    def intersection_over_union(self) -> np.ndarray:
        """Of each class: pixels of both over pixels of either; NaN where there are none."""
        both = np.diag(self.counts)
        either = self.counts.sum(0) + self.counts.sum(1) - both
        return np.where(either > 0, both / np.maximum(either, 1), np.nan)

    def mean_iou(self) -> float:
        """The mean over the classes that occur."""
        return float(np.nanmean(self.intersection_over_union()))


class Learned(NamedTuple):
    """The loss of every step, and the mean IoU on test scenes."""

    losses: list[float]
    mean_iou: float


def batch_of(scenes: Sequence[Scene]) -> tuple[metaop.Tensor, metaop.Tensor]:
    """Images (batch, 3, size, size) and classes (batch, size, size)."""
    images = np.stack([scene.image for scene in scenes])
    classes = np.stack([scene.classes() for scene in scenes])
    return metaop.from_numpy(images), metaop.from_numpy(classes)


def draw_found(path: Path, scenes: Sequence[Scene], found: np.ndarray) -> None:
    """A picture of three rows: the scenes, their classes and the predictions."""
    rows = [np.stack([scene.image for scene in scenes])]
    for classes in (np.stack([scene.classes() for scene in scenes]), found):
        rows.append(COLOURS[classes].transpose(0, 3, 1, 2))
    write_picture(metaop.from_numpy(np.concatenate(rows)), path, nrow=len(scenes))


def learn_classes(
    build: Callable[[argparse.Namespace], nn.Module],
    description: str | None,
    arguments: Sequence[str] | None,
    **further: int,
) -> Learned:
    """Trains on synthetic scenes, and evaluates on others.

    `build(options)` makes the network, whose own options are `further`. `--out` names a folder for
    the metrics and a picture; `--checkpoint` names a file that is written after every `--every`
    steps, and resumed from if it exists.
    """
    options = parse_options(
        description, arguments, steps=400, batch_size=8, lr=5e-3, size=48, width=16, test=32,
        out="", every=100, **further,
    )  # fmt: skip
    model = build(options)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)
    schedule = metaop.optim.lr_scheduler.PolynomialLR(optimizer, options.steps, power=0.9)
    checkpoint = Checkpoint(
        options.checkpoint, options.every, model=model, optimizer=optimizer, schedule=schedule
    )

    def step(number: int) -> dict[str, metaop.Tensor]:
        scenes = draw_scenes(options.batch_size, options.size, (options.seed, 0, number))
        images, classes = batch_of(scenes)
        loss = update(optimizer, segmentation_loss(model(images), classes))
        schedule.step()
        return {"loss": loss}

    history = train(step, options.steps, type(model).__name__, checkpoint)
    scenes = draw_scenes(options.test, options.size, (options.seed, 1))
    count = PixelCount(len(CLASSES))
    model.eval()
    for start in range(0, len(scenes), options.batch_size):
        part = scenes[start : start + options.batch_size]
        images, classes = batch_of(part)
        with metaop.no_grad():
            found = model(images)["out"].argmax(1).numpy()
        count.add(classes.numpy(), found)
        if start == 0 and options.out:
            draw_found(Path(options.out, "found.png"), part, found)
    metrics = {"mean_iou": count.mean_iou(), "accuracy": count.accuracy()}
    write_metrics(options.out, metrics)
    return Learned(history["loss"], count.mean_iou())
