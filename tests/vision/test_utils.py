"""Grids of images against NumPy, and files read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import metaop
from metaop.errors import ShapeError
from metaop.vision import io
from metaop.vision.utils import (
    draw_bounding_boxes,
    draw_segmentation_masks,
    make_grid,
    save_image,
)

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


def test_boxes_are_drawn_at_their_borders() -> None:
    image = metaop.zeros(3, 20, 30, dtype=metaop.uint8)
    boxes = metaop.tensor([[2, 3, 10, 12], [15, 5, 25, 18]])
    drawn = draw_bounding_boxes(image, boxes, colors=["red", (0, 0, 255)]).numpy()
    assert (drawn[0, 3, 2:11] == 255).all() and (drawn[0, 3:13, 10] == 255).all()
    assert (drawn[2, 18, 15:26] == 255).all() and drawn[:, 7, 6].sum() == 0
    assert drawn[0].sum() == 255 * (2 * 9 + 2 * 8)
    named = draw_bounding_boxes(metaop.zeros(1, 20, 30), boxes, ["cat", None], fill=True)
    assert named.dtype is metaop.float32 and named.shape == (3, 20, 30) and named.max() <= 1
    with pytest.raises(ShapeError, match="draw_bounding_boxes"):
        draw_bounding_boxes(image, metaop.zeros(3))


def test_masks_tint_what_they_cover() -> None:
    image = metaop.full((3, 4, 4), 100, dtype=metaop.uint8)
    masks = metaop.zeros(1, 4, 4, dtype=metaop.bool)
    masks[0, 1:3, 2] = True
    drawn = draw_segmentation_masks(image, masks, 0.5, "lime").numpy()
    assert drawn[:, 1, 2].tolist() == [50, 177, 50] and (drawn[:, 0] == 100).all()


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    pixels = metaop.from_numpy(random.integers(0, 256, (3, 5, 6)).astype(np.uint8))
    io.write_png(pixels, tmp_path / "image.png")
    np.testing.assert_array_equal(io.read_image(tmp_path / "image.png").numpy(), pixels.numpy())
    grey = io.read_image(tmp_path / "image.png", io.ImageReadMode.GRAY)
    assert grey.shape == (1, 5, 6)
    smooth = metaop.from_numpy(np.full((3, 16, 16), 90, np.uint8))
    decoded = io.decode_image(io.encode_jpeg(smooth, 95), io.ImageReadMode.RGB)
    assert np.abs(decoded.numpy().astype(int) - 90).max() <= 2
