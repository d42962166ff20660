"""The training of detectors on synthetic scenes, and their evaluation."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import metaop
from metaop import nn

from .average_precision import Things, average_precision
from .demonstration import Checkpoint, parse_options, train, update, write_metrics, write_picture
from .scenes import CLASSES, Scene, draw_scenes


class Learned(NamedTuple):
    """The loss of every step, and the metrics on test scenes."""

    losses: list[float]
    metrics: dict[str, float]


def images_of(scenes: Sequence[Scene]) -> list[metaop.Tensor]:
    return [metaop.from_numpy(scene.image) for scene in scenes]


def targets_of(scenes: Sequence[Scene]) -> list[dict[str, metaop.Tensor]]:
    """The objects of each scene as targets of detectors."""
    return [
        {
            "boxes": metaop.from_numpy(scene.boxes),
            "labels": metaop.from_numpy(scene.labels),
            "masks": metaop.from_numpy(scene.masks),
        }
        for scene in scenes
    ]


def evaluate(
    model: nn.Module, scenes: Sequence[Scene], size: int
) -> tuple[dict[str, float], list[dict[str, metaop.Tensor]]]:
    """The mean average precision of boxes and, if there are any, masks; and the detections."""
    found: list[dict[str, metaop.Tensor]] = []
    model.eval()
    with metaop.no_grad():
        for start in range(0, len(scenes), size):
            found += model(images_of(scenes[start : start + size]))
    metrics = {}
    for name, score in (("boxes", "box_map"), ("masks", "mask_map")):
        if name in found[0]:
            true = [Things(scene.labels, getattr(scene, name)) for scene in scenes]
            seen = [
                Things(*(part[key].numpy() for key in ("labels", name, "scores"))) for part in found
            ]
            if name == "masks":
                seen = [part._replace(regions=part.regions[:, 0] >= 0.5) for part in seen]
            metrics[score] = average_precision(true, seen)
            metrics[f"{score}_50"] = average_precision(true, seen, (0.5,))
    return metrics, found


def draw_found(
    path: Path, scenes: Sequence[Scene], found: Sequence[dict[str, metaop.Tensor]]
) -> None:
    """A picture of the scenes, with boxes and masks of detections with a score above 0.5."""
    pictures = []
    for scene, part in zip(scenes, found):
        sure = part["scores"].numpy() > 0.5
        picture = metaop.nn.functional.interpolate(
            metaop.from_numpy(scene.image)[None], scale_factor=4
        )[0]
        labels = part["labels"].numpy()[sure]
        if "masks" in part and sure.any():
            masks = metaop.from_numpy(part["masks"].numpy()[sure, 0] >= 0.5)
            masks = metaop.nn.functional.interpolate(masks[None].float(), scale_factor=4)[0] > 0
            picture = metaop.vision.utils.draw_segmentation_masks(picture, masks, 0.5)
        boxes = metaop.from_numpy(4 * part["boxes"].numpy()[sure])
        names = [CLASSES[label] for label in labels]
        pictures.append(metaop.vision.utils.draw_bounding_boxes(picture, boxes, names, width=2))
    write_picture(pictures, path, nrow=4)


def learn_to_find(
    build: Callable[[argparse.Namespace], nn.Module],
    description: str | None,
    arguments: Sequence[str] | None,
    **defaults: int | float | str,
) -> Learned:
    """Trains a detector on synthetic scenes, and evaluates it on others.

    `build(options)` makes the detector; `defaults` changes or adds defaults of options. `--out`
    names a folder for the metrics and a picture; `--checkpoint` names a file that is written after
    every `--every` steps, and resumed from if it exists.
    """
    usual: dict[str, int | float | str] = {
        **{"steps": 600, "batch_size": 8, "lr": 2e-3, "size": 64, "width": 16, "test": 64},
        **{"out": "", "every": 100},
    }
    options = parse_options(description, arguments, **{**usual, **defaults})  # type: ignore
    model = build(options)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)
    schedule = metaop.optim.lr_scheduler.PolynomialLR(optimizer, options.steps, power=0.9)
    checkpoint = Checkpoint(
        options.checkpoint, options.every, model=model, optimizer=optimizer, schedule=schedule
    )

    def step(number: int) -> dict[str, metaop.Tensor]:
        scenes = draw_scenes(options.batch_size, options.size, (options.seed, 0, number))
        losses = model(images_of(scenes), targets_of(scenes))
        loss = update(optimizer, sum(losses.values()))
        schedule.step()
        return {"loss": loss}

    history = train(step, options.steps, type(model).__name__, checkpoint)
    scenes = draw_scenes(options.test, options.size, (options.seed, 1))
    metrics, found = evaluate(model, scenes, options.batch_size)
    write_metrics(options.out, metrics)
    if options.out:
        draw_found(Path(options.out, "found.png"), scenes[:8], found[:8])
    return Learned(history["loss"], metrics)
