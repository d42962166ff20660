"""Grids of images against NumPy, and files read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop.errors import ShapeError
from metaop.vision.utils import make_grid, save_image

Image = pytest.importorskip("PIL.Image")
random = np.random.default_rng(0)


@pytest.mark.parametrize(("count", "nrow", "padding"), [(5, 3, 2), (4, 8, 0), (2, 1, 1)])
def test_images_stand_in_rows(count: int, nrow: int, padding: int) -> None:
    images = random.uniform(size=(count, 3, 4, 5)).astype(np.float32)
    columns = min(nrow, count)
    rows = -(-count // columns)
    expected = np.full((3, rows * (4 + padding) + padding, columns * (5 + padding) + padding), 0.5)
    for number, image in enumerate(images):
        top = number // columns * (4 + padding) + padding
        left = number % columns * (5 + padding) + padding
        expected[:, top : top + 4, left : left + 5] = image
    found = make_grid(metaop.tensor(images), nrow, padding, pad_value=0.5)
    np.testing.assert_allclose(found.numpy(), expected)


def test_one_channel_becomes_three_and_one_image_has_no_border() -> None:
    image = random.uniform(size=(4, 5)).astype(np.float32)
    found = make_grid(metaop.tensor(image)).numpy()
    np.testing.assert_array_equal(found, np.stack([image] * 3))


@pytest.mark.parametrize("each", [False, True])
def test_values_are_scaled(each: bool) -> None:
    images = random.normal(size=(2, 3, 4, 4)).astype(np.float32)
    axes = (1, 2, 3) if each else None
    low, high = images.min(axes, keepdims=True), images.max(axes, keepdims=True)
    expected = np.concatenate(list((images - low) / (high - low)), 2)
    found = make_grid(metaop.tensor(images), padding=0, normalize=True, scale_each=each)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_file_holds_the_rounded_values(tmp_path: Path) -> None:
    image = random.uniform(size=(3, 6, 7)).astype(np.float32)
    save_image(metaop.tensor(image), tmp_path / "image.png")
    found = np.asarray(Image.open(tmp_path / "image.png"))
    expected = np.floor(image * 255 + np.float32(0.5)).astype(np.uint8).transpose(1, 2, 0)
    np.testing.assert_array_equal(found, expected)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="must have 2, 3 or 4 dimensions"):
        make_grid(metaop.zeros(3))
