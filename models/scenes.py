"""Synthetic scenes of coloured shapes, with their classes, boxes and masks.

A scene depends only on its seed, so a resumed training sees the same scenes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

CLASSES = ("background", "disc", "square", "triangle")
# The largest share of an object that another one may occlude.
HIDDEN = 0.25


class Scene(NamedTuple):
    """An image (3, size, size), float32 in [0, 1], and its objects.

    `boxes` (objects, 4), float32, are corners (x1, y1, x2, y2) in pixels around the visible part;
    `labels` (objects,), int64, index `CLASSES`; `masks` (objects, size, size), bool, mark the
    visible pixels.
    """

    image: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray
    masks: np.ndarray

    def classes(self) -> np.ndarray:
        """The class of every pixel (size, size), int64."""
        return (self.masks * self.labels[:, None, None]).sum(0)


def shape_mask(label: int, centre: np.ndarray, radius: float, size: int) -> np.ndarray:
    """The pixels (size, size) of a disc, square or triangle around `centre` (x, y)."""
    rows, columns = np.mgrid[:size, :size] + 0.5
    right, down = columns - centre[0], rows - centre[1]
    if label == 1:
        return right**2 + down**2 <= radius**2
    if label == 2:
        return np.maximum(np.abs(right), np.abs(down)) <= 0.85 * radius
    # The tip is at the top.
    return (np.abs(down) <= radius) & (np.abs(right) <= (down + radius) / 2)


def draw_scene(size: int, seed: Sequence[int], most: int = 3) -> Scene:
    """A scene of one to `most` objects on a noisy background."""
    random = np.random.default_rng(seed)
    labels: list[int] = []
    masks: list[np.ndarray] = []
    image = random.uniform(0.0, 0.4, (3, 1, 1)) + np.zeros((3, size, size))
    count = int(random.integers(1, most + 1))
    while len(labels) < count:
        label = int(random.integers(1, len(CLASSES)))
        radius = random.uniform(0.11, 0.22) * size
        mask = shape_mask(label, random.uniform(radius, size - radius, 2), radius, size)
        # Objects below must stay mostly visible.
        if any((mask & other).sum() > HIDDEN * other.sum() for other in masks):
            continue
        masks = [other & ~mask for other in masks]
        masks.append(mask)
        labels.append(label)
        image[:, mask] = random.uniform(0.5, 1.0, (3, 1))
    image = np.clip(image + random.normal(0, 0.04, image.shape), 0, 1)
    return Scene(
        image.astype(np.float32),
        np.stack([box_around(mask) for mask in masks]),
        np.array(labels, np.int64),
        np.stack(masks),
    )


def box_around(mask: np.ndarray) -> np.ndarray:
    """The corners (x1, y1, x2, y2) around the pixels of a mask, float32; with pixels as areas."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float32)


def draw_scenes(count: int, size: int, seed: Sequence[int], most: int = 3) -> list[Scene]:
    """`count` scenes of size × size pixels."""
    return [draw_scene(size, (*seed, number), most) for number in range(count)]
