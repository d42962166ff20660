"""Augmentation by published policies: AutoAugment, RandAugment, TrivialAugment."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from metaop.tensor.generator import host_random
from metaop.vision.transforms import functional as F
from metaop.vision.transforms.base import Transform
from metaop.vision.transforms.modes import InterpolationMode, mode_of


class AutoAugmentPolicy(Enum):
    """The data sets whose policies were learned; raises ValueError for other names.

    >>> [policy.value for policy in metaop.vision.transforms.AutoAugmentPolicy]
    ['imagenet', 'cifar10', 'svhn']
    """

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


# Pairs of operations with probability and magnitude index (of ten), from the
# appendix of E. Cubuk and others, "AutoAugment: learning augmentation policies from data", 2018.
_POLICIES = {
    "imagenet": """
        Posterize 0.4 8 + Rotate 0.6 9; Solarize 0.6 5 + AutoContrast 0.6 0;
        Equalize 0.8 0 + Equalize 0.6 0; Posterize 0.6 7 + Posterize 0.6 6;
        Equalize 0.4 0 + Solarize 0.2 4; Equalize 0.4 0 + Rotate 0.8 8;
        Solarize 0.6 3 + Equalize 0.6 0; Posterize 0.8 5 + Equalize 1.0 0;
        Rotate 0.2 3 + Solarize 0.6 8; Equalize 0.6 0 + Posterize 0.4 6; Rotate 0.8 8 + Color 0.4 0;
        Rotate 0.4 9 + Equalize 0.6 0; Equalize 0.0 0 + Equalize 0.8 0;
        Invert 0.6 0 + Equalize 1.0 0; Color 0.6 4 + Contrast 1.0 8; Rotate 0.8 8 + Color 1.0 2;
        Color 0.8 8 + Solarize 0.8 7; Sharpness 0.4 7 + Invert 0.6 0; ShearX 0.6 5 + Equalize 1.0 0;
        Color 0.4 0 + Equalize 0.6 0; Equalize 0.4 0 + Solarize 0.2 4;
        Solarize 0.6 5 + AutoContrast 0.6 0; Invert 0.6 0 + Equalize 1.0 0;
        Color 0.6 4 + Contrast 1.0 8; Equalize 0.8 0 + Equalize 0.6 0
    """,
    "cifar10": """
        Invert 0.1 0 + Contrast 0.2 6; Rotate 0.7 2 + TranslateX 0.3 9;
        Sharpness 0.8 1 + Sharpness 0.9 3; ShearY 0.5 8 + TranslateY 0.7 9;
        AutoContrast 0.5 0 + Equalize 0.9 0; ShearY 0.2 7 + Posterize 0.3 7;
        Color 0.4 3 + Brightness 0.6 7; Sharpness 0.3 9 + Brightness 0.7 9;
        Equalize 0.6 0 + Equalize 0.5 0; Contrast 0.6 7 + Sharpness 0.6 5;
        Color 0.7 7 + TranslateX 0.5 8; Equalize 0.3 0 + AutoContrast 0.4 0;
        TranslateY 0.4 3 + Sharpness 0.2 6; Brightness 0.9 6 + Color 0.2 8;
        Solarize 0.5 2 + Invert 0.0 0; Equalize 0.2 0 + AutoContrast 0.6 0;
        Equalize 0.2 0 + Equalize 0.6 0; Color 0.9 9 + Equalize 0.6 0;
        AutoContrast 0.8 0 + Solarize 0.2 8; Brightness 0.1 3 + Color 0.7 0;
        Solarize 0.4 5 + AutoContrast 0.9 0; TranslateY 0.9 9 + TranslateY 0.7 9;
        AutoContrast 0.9 0 + Solarize 0.8 3; Equalize 0.8 0 + Invert 0.1 0;
        TranslateY 0.7 9 + AutoContrast 0.9 0
    """,
    "svhn": """
        ShearX 0.9 4 + Invert 0.2 0; ShearY 0.9 8 + Invert 0.7 0; Equalize 0.6 0 + Solarize 0.6 6;
        Invert 0.9 0 + Equalize 0.6 0; Equalize 0.6 0 + Rotate 0.9 3;
        ShearX 0.9 4 + AutoContrast 0.8 0; ShearY 0.9 8 + Invert 0.4 0;
        ShearY 0.9 5 + Solarize 0.2 6; Invert 0.9 0 + AutoContrast 0.8 0;
        Equalize 0.6 0 + Rotate 0.9 3; ShearX 0.9 4 + Solarize 0.3 3; ShearY 0.8 8 + Invert 0.7 0;
        Equalize 0.9 0 + TranslateY 0.6 6; Invert 0.9 0 + Equalize 0.6 0;
        Contrast 0.3 3 + Rotate 0.8 4; Invert 0.8 0 + TranslateY 0.0 2;
        ShearY 0.7 6 + Solarize 0.4 8; Invert 0.6 0 + Rotate 0.8 4; ShearY 0.3 7 + TranslateX 0.9 3;
        ShearX 0.1 6 + Invert 0.6 0; Solarize 0.7 2 + TranslateY 0.6 7; ShearY 0.8 4 + Invert 0.8 0;
        ShearX 0.7 9 + TranslateY 0.8 3; ShearY 0.8 5 + AutoContrast 0.7 0;
        ShearX 0.7 2 + Invert 0.1 0
    """,
}


def _sheared(axis: int) -> Callable[..., Any]:
    def change(img: Any, size: float, options: dict[str, Any]) -> Any:
        shear = [0.0, 0.0]
        shear[axis] = math.degrees(math.atan(size))
        return F.affine(img, 0.0, (0, 0), 1.0, shear, center=(0, 0), **options)

    return change


def _translated(axis: int) -> Callable[..., Any]:
    def change(img: Any, size: float, options: dict[str, Any]) -> Any:
        distance = [0, 0]
        distance[axis] = int(size)
        return F.affine(img, 0.0, distance, 1.0, (0.0, 0.0), **options)

    return change


# Every operation as a function of the image, a magnitude, and interpolation and fill.
_OPERATIONS: dict[str, Callable[[Any, float, dict[str, Any]], Any]] = {
    "Identity": lambda img, size, options: img,
    "ShearX": _sheared(0),
    "ShearY": _sheared(1),
    "TranslateX": _translated(0),
    "TranslateY": _translated(1),
    "Rotate": lambda img, size, options: F.rotate(img, size, **options),
    "Brightness": lambda img, size, options: F.adjust_brightness(img, 1.0 + size),
    "Color": lambda img, size, options: F.adjust_saturation(img, 1.0 + size),
    "Contrast": lambda img, size, options: F.adjust_contrast(img, 1.0 + size),
    "Sharpness": lambda img, size, options: F.adjust_sharpness(img, 1.0 + size),
    "Posterize": lambda img, size, options: F.posterize(img, int(size)),
    "Solarize": lambda img, size, options: F.solarize(img, size),
    "AutoContrast": lambda img, size, options: F.autocontrast(img),
    "Equalize": lambda img, size, options: F.equalize(img),
    "Invert": lambda img, size, options: F.invert(img),
}
# Operations whose magnitude may also be negative.
_SIGNED = frozenset(
    (
        *("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"),
        *("Brightness", "Color", "Contrast", "Sharpness"),
    )
)
# The operations of the two methods without learned policies.
_CHOICES = [name for name in _OPERATIONS if name != "Invert"]


def magnitudes(
    bins: int,
    reach: tuple[float, float],
    shear: float = 0.3,
    turn: float = 30.0,
    colour: float = 0.9,
    bits: int = 4,
) -> dict[str, np.ndarray]:
    """The magnitudes of the operations in `bins` steps; `reach` is the range along x and y."""
    ends = {
        **dict.fromkeys(("ShearX", "ShearY"), shear),
        **dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), colour),
        "TranslateX": reach[0],
        "TranslateY": reach[1],
        "Rotate": turn,
    }
    table = {name: np.linspace(0.0, end, bins) for name, end in ends.items()}
    table["Posterize"] = 8 - np.rint(np.arange(bins) / ((bins - 1) / bits))
    table["Solarize"] = np.linspace(255.0, 0.0, bins)
    return table


def _reach(img: Any) -> tuple[float, float]:
    """The maximum translation along x and y, in proportion to the image size."""
    _, height, width = F.get_dimensions(img)
    return 150.0 / 331.0 * width, 150.0 / 331.0 * height


class _Automatic(Transform):
    """The base of the three methods: interpolation, fill, and applying an operation."""

    def __init__(self, interpolation: Any, fill: Any) -> None:
        super().__init__()
        self.interpolation = mode_of(interpolation)
        self.fill = fill

    def operate(self, img: Any, name: str, size: float, random: np.random.Generator) -> Any:
        if name in _SIGNED and random.integers(2):
            size = -size
        options = {"interpolation": self.interpolation, "fill": self.fill}
        return _OPERATIONS[name](img, size, options)


class AutoAugment(_Automatic):
    """Applies two operations of a learned policy to uint8 images; the shape is unchanged.

    E. Cubuk and others, "AutoAugment: learning augmentation policies from data", 2019.

    >>> image = metaop.zeros(3, 8, 8, dtype=metaop.uint8)
    >>> metaop.vision.transforms.AutoAugment()(image).shape
    metaop.Size([3, 8, 8])
    """

    shown = ("policy", "fill")

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.policy = policy
        self.policies = [
            [_parsed(operation) for operation in pair.split("+")]
            for pair in _POLICIES[policy.value].split(";")
        ]

    def forward(self, img: Any) -> Any:
        random = host_random(None)
        table = magnitudes(10, _reach(img))
        for name, probability, number in self.policies[random.integers(len(self.policies))]:
            if random.random() <= probability:
                size = float(table[name][number]) if name in table else 0.0
                img = self.operate(img, name, size, random)
        return img


def _parsed(operation: str) -> tuple[str, float, int]:
    name, probability, number = operation.split()
    return name, float(probability), int(number)


class RandAugment(_Automatic):
    """Applies `num_ops` random operations of one magnitude to uint8 images; keeps the shape.

    E. Cubuk and others, "RandAugment: practical automated data augmentation", 2019.

    >>> image = metaop.zeros(3, 8, 8, dtype=metaop.uint8)
    >>> metaop.vision.transforms.RandAugment()(image).shape
    metaop.Size([3, 8, 8])
    """

    shown = ("num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill")

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_ops = num_ops
        self.magnitude = magnitude
        self.num_magnitude_bins = num_magnitude_bins

    def forward(self, img: Any) -> Any:
        random = host_random(None)
        table = magnitudes(self.num_magnitude_bins, _reach(img))
        for number in random.integers(len(_CHOICES), size=self.num_ops):
            name = _CHOICES[number]
            size = float(table[name][self.magnitude]) if name in table else 0.0
            img = self.operate(img, name, size, random)
        return img


class TrivialAugmentWide(_Automatic):
    """Applies one random operation of random magnitude to uint8 images; keeps the shape.

    S. Müller and F. Hutter, "TrivialAugment: tuning-free yet state-of-the-art data augmentation",
    2021.

    >>> image = metaop.zeros(3, 8, 8, dtype=metaop.uint8)
    >>> metaop.vision.transforms.TrivialAugmentWide()(image).shape
    metaop.Size([3, 8, 8])
    """

    shown = ("num_magnitude_bins", "interpolation", "fill")

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = num_magnitude_bins

    def forward(self, img: Any) -> Any:
        random = host_random(None)
        bins = self.num_magnitude_bins
        table = magnitudes(bins, (32.0, 32.0), shear=0.99, turn=135.0, colour=0.99, bits=6)
        name = _CHOICES[random.integers(len(_CHOICES))]
        size = float(table[name][random.integers(bins)]) if name in table else 0.0
        return self.operate(img, name, size, random)
