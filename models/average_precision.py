"""Mean average precision of detections as in COCO.

T. Lin and others, "Microsoft COCO: common objects in context", 2014. There are no crowds and no
size ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .detection import overlaps

THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10))
RECALLS = np.linspace(0, 1, 101)


class Things(NamedTuple):
    """The objects or the detections of an image: classes (count,), and boxes or masks.

    `scores` (count,) are those of detections. `regions` are boxes (count, 4) or masks
    (count, height, width).
    """

    labels: np.ndarray
    regions: np.ndarray
    scores: np.ndarray | None = None


def region_overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The intersection over union of all pairs of boxes, or of all pairs of masks."""
    if first.ndim == 2:
        return overlaps(first.astype(np.float64), second.astype(np.float64))
    one, other = first.astype(np.float64), second.astype(np.float64)
    both = np.tensordot(one, other, ((1, 2), (1, 2)))
    either = one.sum((1, 2))[:, None] + other.sum((1, 2)) - both
    return both / np.maximum(either, 1)


def hits(quality: np.ndarray, threshold: float) -> np.ndarray:
    """Which detections, in order of descending score, are true positives.

    `quality` (detections, objects) has IoUs. Each detection takes the unmatched object with the
    largest IoU, if that reaches the threshold.
    """
    free = np.ones(quality.shape[1], bool)
    found = np.zeros(len(quality), bool)
    for number, row in enumerate(quality):
        open_row = np.where(free, row, -1.0)
        if not len(row) or open_row.max() < threshold:
            continue
        # Ties take the last object, as in COCO's program.
        free[len(row) - 1 - open_row[::-1].argmax()] = False
        found[number] = True
    return found


def precision_at_recalls(found: np.ndarray, things: int) -> float:
    """The average precision, interpolated at 101 recalls.

    `found` says which detections, in order of descending score, are true positives; `things` is the
    number of objects.
    """
    true = np.cumsum(found)
    recall, precision = true / things, true / np.arange(1, len(found) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, RECALLS)
    reached = places < len(found)
    return float(np.where(reached, np.append(precision, 0)[places], 0).mean())


def average_precision(
    true: Sequence[Things],
    found: Sequence[Things],
    thresholds: Sequence[float] = THRESHOLDS,
    most: int = 100,
) -> float:
    """The mean average precision over IoU thresholds and classes that occur; 0 to 1.

    `true` and `found` have an entry for each image. Per image and class the `most` best detections
    count. NaN if there are no objects.
    """
    results = []
    for label in np.unique(np.concatenate([image.labels for image in true])):
        things = 0
        scores: list[np.ndarray] = []
        flags: list[np.ndarray] = []
        for here, there in zip(true, found):
            assert there.scores is not None
            goal = here.regions[here.labels == label]
            of_class = np.flatnonzero(there.labels == label)
            order = of_class[np.argsort(-there.scores[of_class], kind="stable")][:most]
            things += len(goal)
            scores.append(there.scores[order])
            quality = region_overlaps(there.regions[order], goal)
            flags.append(np.stack([hits(quality, threshold) for threshold in thresholds]))
        order = np.argsort(-np.concatenate(scores), kind="stable")
        for row in np.concatenate(flags, 1)[:, order]:
            results.append(precision_at_recalls(row, things))
    return float(np.mean(results)) if results else float("nan")
