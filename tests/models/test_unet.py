"""U-Net: the size in the literature, PyTorch's values, and learning."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from models import unet
from tests.models.comparison import classification, compare, parameter_count


def test_size_and_shape() -> None:
    assert parameter_count(unet.UNet(3, 2)) == 31_037_698
    assert unet.UNet(1, 5, width=4, depth=2)(metaop.randn(2, 1, 16, 8)).shape == (2, 5, 16, 8)


def test_values_and_gradients_are_those_of_torch() -> None:
    def build(module: Any) -> Any:
        return module.UNet(2, 3, width=4, depth=2)

    random = np.random.default_rng(0)
    images, labels = random.standard_normal((2, 2, 16, 16)), random.integers(0, 3, (2, 16, 16))
    compare("unet", build, classification, images, labels)


def test_overlap_is_the_intersection_over_the_union() -> None:
    inside = metaop.tensor([[1, 1, 0, 0, 0]])
    logits = metaop.nn.functional.one_hot(metaop.tensor([[0, 1, 1, 1, 0]])).transpose(1, 2)
    assert unet.overlap(logits, inside).item() == 1 / 4


def test_new_discs_are_found() -> None:
    """Pixels brighter than the middle between disc and background overlap by 0.37."""
    assert unet.main(["--steps", "40", "--batch-size", "4", "--lr", "5e-3"]) > 0.7
