"""The base of transforms: modules that draw their parameters from metaop's generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop import nn
from metaop.errors import ArgumentError
from metaop.tensor.generator import host_random
from metaop.vision.transforms.modes import InterpolationMode


class Transform(nn.Module):
    """A function of an image; `shown` names the attributes in its repr."""

    shown: tuple[str, ...] = ()

    def forward(self, img: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={_text(getattr(self, name))}" for name in self.shown)


class RandomTransform(Transform):
    """Applies `change` to an image with probability `p`."""

    shown: tuple[str, ...] = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return self.change(img) if host_random(None).random() < self.p else img

    def change(self, img: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no change")


def _text(value: Any) -> str:
    return value.value if isinstance(value, InterpolationMode) else str(value)


def pair_of(size: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) from one number or two."""
    if isinstance(size, (int, float)):
        return int(size), int(size)
    if len(size) not in (1, 2):
        raise ArgumentError(f"Please provide only two dimensions (h, w) for size, got {size}")
    return (size[0], size[0]) if len(size) == 1 else (size[0], size[1])


def interval(name: str, value: Any, center: float = 0.0, *, bound: Any = None) -> tuple:
    """The (low, high) of a parameter given as a distance from `center`, or as a pair."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ArgumentError(f"If {name} is a single number, it must be non negative.")
        low = center - value if center == 0 else max(center - value, 0.0)
        ends = (float(low), float(center + value))
    elif len(value) == 2:
        ends = (float(value[0]), float(value[1]))
    else:
        raise ArgumentError(f"{name} should be a single number or a sequence of length 2.")
    if ends[0] > ends[1] or (bound and not bound[0] <= ends[0] <= ends[1] <= bound[1]):
        raise ArgumentError(f"{name} values should be between {bound}, but got {ends}.")
    return ends


def drawn_extents(
    rows: int,
    columns: int,
    scale: Sequence[float],
    ratio: Sequence[float],
    random: np.random.Generator,
) -> tuple[int, int]:
    """Random height and width of a crop: `scale` is the area fraction, `ratio` width over height.

    The logarithm of the ratio is uniform.
    """
    area = rows * columns * random.uniform(scale[0], scale[1])
    aspect = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
    return round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))


def uniform(low: float, high: float, random: np.random.Generator | None = None) -> float:
    """A uniform random number between two others."""
    return float((random or host_random(None)).uniform(low, high))
