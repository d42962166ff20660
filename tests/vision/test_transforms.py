"""Transforms against what torchvision gave, gradients against differences, and random ranges."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, ArgumentTypeError, ShapeError
from metaop.vision import transforms
from metaop.vision.transforms import functional
from tests.helpers import check_derivatives
from tests.vision import reference

pytest.importorskip("PIL")

RECORDED = np.load(reference.FILE)


def expected(key: str) -> list[np.ndarray]:
    parts = [name for name in RECORDED.files if name.rpartition("_")[0] == key]
    return [RECORDED[f"{key}_{part}"] for part in range(len(parts))]


def compare(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(found) == len(wanted) > 0
    for ours, theirs in zip(found, wanted):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
        else:
            # torchvision resizes bytes in fixed-point arithmetic, Pillow rounds in its own ways.
            distance = np.abs(ours.astype(int) - theirs.astype(int))
            assert distance.max() <= 1 and (distance > 0).mean() < 0.01


@pytest.mark.parametrize(
    ("key", "case", "kind"), reference.every(), ids=[key for key, _, _ in reference.every()]
)
def test_functions_give_what_torchvision_gives(key: str, case: Any, kind: str) -> None:
    compare(reference.run(functional, case, kind, metaop.tensor), expected(key))


@pytest.mark.parametrize(
    ("key", "case", "kind"),
    [item for item in reference.every() if item[2] == "floats"],
    ids=[key for key, _, kind in reference.every() if kind == "floats"],
)
def test_recorded_operators_give_the_same(key: str, case: Any, kind: str) -> None:
    def tracked(array: np.ndarray) -> metaop.Tensor:
        return metaop.tensor(array, requires_grad=True)

    with metaop.no_grad():
        pending = reference.run(functional, case, kind, lambda a: metaop.tensor(a) + 0)
    compare(pending, expected(key))
    name, arguments, options = case
    if "interpolation" in options:
        mode = functional.InterpolationMode[options["interpolation"]]
        options = options | {"interpolation": mode}
    result = getattr(functional, name)(reference.picture(kind, tracked), *arguments, **options)
    results = result if isinstance(result, tuple) else (result,)
    assert all(part.requires_grad for part in results)
    compare([part.detach().numpy() for part in results], expected(key))


def test_the_record_is_what_torchvision_gives() -> None:
    """Where torchvision is installed, the record is checked too; everywhere else it stands in."""
    try:
        import torch
        from torchvision.transforms import functional as theirs
    except (ImportError, RuntimeError):
        assert len(RECORDED.files) >= len(reference.every())
        return
    for key, case, kind in reference.every():
        compare(reference.run(theirs, case, kind, torch.from_numpy), expected(key))


SMOOTH: list[tuple[str, Callable[[Any], Any]]] = [
    ("resize", lambda x: functional.resize(x, [4, 9])),
    ("pad", lambda x: functional.pad(x, [1, 2], padding_mode="symmetric")),
    ("blur", lambda x: functional.gaussian_blur(x, [3, 5])),
    ("rotate", lambda x: functional.rotate(x, 20.0, transforms.InterpolationMode.BILINEAR)),
    ("hue", lambda x: functional.adjust_hue(x, 0.1)),
    ("contrast", lambda x: functional.adjust_contrast(x, 0.7)),
    ("normalize", lambda x: functional.normalize(x, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4])),
]


@pytest.mark.parametrize("function", [f for _, f in SMOOTH], ids=[name for name, _ in SMOOTH])
def test_gradients_are_right(function: Callable[[Any], Any]) -> None:
    values = np.random.default_rng(1).uniform(0.2, 0.8, (3, 6, 7))
    check_derivatives(function, values, order=1)


def test_images_become_tensors_and_come_back() -> None:
    picture = reference.picture("pillow", None)
    tensor = transforms.ToTensor()(picture)
    assert tensor.dtype is metaop.float32 and tuple(tensor.shape) == (3, 11, 15)
    np.testing.assert_array_equal(tensor.numpy(), np.float32(reference.image()) / np.float32(255))
    back = transforms.ToPILImage()(tensor)
    np.testing.assert_array_equal(np.asarray(back), np.asarray(picture))
    raw = transforms.PILToTensor()(picture)
    assert raw.dtype is metaop.uint8
    np.testing.assert_array_equal(raw.numpy(), reference.image())
    array = np.asarray(picture)
    np.testing.assert_array_equal(transforms.ToTensor()(array).numpy(), tensor.numpy())


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGBA", "I", "F", "P"])
def test_all_modes_of_pillow_become_tensors(mode: str) -> None:
    picture = reference.picture("pillow", None).convert(mode)
    tensor = transforms.ToTensor()(picture)
    array = np.asarray(picture)
    wanted = array.astype(np.float32) / 255 if array.dtype == np.uint8 else array
    if mode == "1":
        wanted = array.astype(np.float32)
    channels_first = wanted[None] if wanted.ndim == 2 else wanted.transpose(2, 0, 1)
    np.testing.assert_allclose(tensor.numpy(), channels_first, rtol=1e-6)


def test_a_training_pipeline() -> None:
    pipeline = transforms.Compose(
        [
            transforms.RandomCrop(10, padding=2),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.2, 0.2, 0.2, 0.1),
            transforms.RandomRotation(10),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
            transforms.RandomErasing(p=1.0),
        ]
    )
    metaop.manual_seed(3)
    first = [pipeline(reference.picture("pillow", None)).numpy() for _ in range(3)]
    metaop.manual_seed(3)
    again = [pipeline(reference.picture("pillow", None)).numpy() for _ in range(3)]
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert first[0].shape == (3, 10, 10)
    assert str(pipeline).splitlines()[1] == "    RandomCrop(size=(10, 10), padding=2)"
    assert "    Normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))" in str(pipeline)
    pickle.loads(pickle.dumps(pipeline))


EVERY: list[Any] = [
    transforms.Resize(8),
    transforms.CenterCrop(7),
    transforms.Pad(2, fill=3),
    transforms.RandomResizedCrop(8),
    transforms.RandomVerticalFlip(1.0),
    transforms.RandomAffine(15, (0.1, 0.2), (0.8, 1.2), 10),
    transforms.RandomAffine(15, shear=(1, 2, 3, 4)),
    transforms.RandomPerspective(p=1.0),
    transforms.ElasticTransform(5.0, 2.0),
    transforms.GaussianBlur(3),
    transforms.Grayscale(3),
    transforms.RandomGrayscale(1.0),
    transforms.RandomInvert(1.0),
    transforms.RandomPosterize(4, 1.0),
    transforms.RandomSolarize(128, 1.0),
    transforms.RandomAdjustSharpness(2, 1.0),
    transforms.RandomAutocontrast(1.0),
    transforms.RandomEqualize(1.0),
    transforms.RandomApply([transforms.RandomCrop(5)], 0.5),
    transforms.RandomChoice([transforms.RandomCrop(5), transforms.Resize(5)]),
    transforms.RandomOrder([transforms.RandomCrop(9), transforms.Resize(11)]),
    transforms.AutoAugment(),
    transforms.AutoAugment(transforms.AutoAugmentPolicy.CIFAR10),
    transforms.RandAugment(),
    transforms.TrivialAugmentWide(),
]


@pytest.mark.parametrize("transform", EVERY, ids=[type(t).__name__ for t in EVERY])
def test_both_kinds_of_image_get_the_same_transformation(transform: Any) -> None:
    for seed in range(6):
        metaop.manual_seed(seed)
        picture = transform(reference.picture("pillow", None))
        metaop.manual_seed(seed)
        tensor = transform(reference.picture("bytes", metaop.tensor))
        assert tensor.dtype is metaop.uint8
        assert [picture.height, picture.width] == list(tensor.shape[-2:])
        pixels = functional.pil_to_tensor(picture).numpy().astype(float)
        # Where Pillow takes the neighbouring pixel, or rounds, the mean stays close.
        assert abs(pixels.mean() - tensor.numpy().mean()) < 12
    assert type(transform).__name__ in repr(transform)


def test_windows_are_drawn_from_all_places() -> None:
    picture = metaop.zeros(3, 12, 9)
    metaop.manual_seed(0)
    places = {transforms.RandomCrop.get_params(picture, (10, 8))[:2] for _ in range(80)}
    assert places == {(top, left) for top in range(3) for left in range(2)}
    for _ in range(50):
        top, left, height, width = transforms.RandomResizedCrop.get_params(
            picture, (0.1, 0.5), (0.5, 2.0)
        )
        assert 0 <= top <= 12 - height and 0 <= left <= 9 - width
        assert 0.05 <= height * width / 108 <= 0.6
        low, high = -7.0, 20.0
        assert low <= transforms.RandomRotation.get_params((low, high)) <= high


def test_erasing_hits_one_window() -> None:
    metaop.manual_seed(1)
    image = metaop.ones(3, 20, 20)
    erased = transforms.RandomErasing(1.0, scale=(0.1, 0.2), ratio=(0.5, 2.0))(image).numpy()
    rows, columns = np.nonzero((erased == 0).all(0))
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    assert len(rows) == height * width and 0.07 < height * width / 400 < 0.23
    assert image.numpy().min() == 1


def test_whitening_is_a_matrix_product() -> None:
    random = np.random.default_rng(0)
    matrix, mean = random.normal(size=(12, 12)), random.normal(size=12)
    image = random.normal(size=(3, 2, 2))
    transform = transforms.LinearTransformation(metaop.tensor(matrix), metaop.tensor(mean))
    wanted = ((image.reshape(12) - mean) @ matrix).reshape(3, 2, 2)
    np.testing.assert_allclose(transform(metaop.tensor(image)).numpy(), wanted)


def test_types_are_converted_by_their_range() -> None:
    values = metaop.arange(256, dtype=metaop.uint8).reshape(1, 16, 16)
    floats = functional.convert_image_dtype(values, metaop.float32)
    back = functional.convert_image_dtype(floats, metaop.uint8)
    np.testing.assert_array_equal(back.numpy(), values.numpy())
    wide = functional.convert_image_dtype(values, metaop.int32)
    assert wide.numpy().max() == 255 * 2**23
    np.testing.assert_array_equal(
        functional.convert_image_dtype(wide, metaop.uint8).numpy(), values.numpy()
    )


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="PIL Image or a Tensor"):
        functional.hflip(np.zeros((3, 4, 4)))
    with pytest.raises(ShapeError, match="no height"):
        functional.hflip(metaop.zeros(3))
    with pytest.raises(ArgumentError, match="larger than input image"):
        transforms.RandomCrop(30)(metaop.zeros(3, 4, 4))
    with pytest.raises(ArgumentError, match="not in"):
        functional.adjust_hue(metaop.zeros(3, 4, 4), 0.7)
    with pytest.raises(ShapeError, match="permitted channel values"):
        functional.adjust_saturation(metaop.zeros(2, 4, 4), 0.5)
    with pytest.raises(ArgumentError, match="odd"):
        transforms.GaussianBlur(4)


def test_second_interface() -> None:
    from metaop.vision.transforms import v2

    pipeline = v2.Compose([v2.ToImage(), v2.Resize(6), v2.ToDtype(metaop.float32, scale=True)])
    image = pipeline(reference.picture("pillow", None))
    wanted = functional.resize(functional.pil_to_tensor(reference.picture("pillow", None)), 6)
    np.testing.assert_allclose(image.numpy(), wanted.numpy() / np.float32(255), rtol=1e-6)
    assert v2.ToImage()(np.zeros((4, 5), np.uint8)).shape == (1, 4, 5)
    assert v2.RGB()(metaop.zeros(1, 4, 4)).shape == (3, 4, 4)


def test_batches_are_mixed() -> None:
    from metaop.vision.transforms import v2

    values = np.arange(4.0).reshape(4, 1, 1, 1) * np.ones((4, 3, 8, 8))
    images, labels = metaop.tensor(values), metaop.arange(4)
    for kind in (v2.MixUp, v2.CutMix):
        metaop.manual_seed(5)
        mixed, shares = kind(alpha=1.0, num_classes=4)(images, labels)
        # The share of a label is that of its image: with these images the mean shows it.
        means = mixed.numpy().mean((1, 2, 3))
        wanted = (shares.numpy() * np.arange(4)).sum(1)
        np.testing.assert_allclose(means, wanted, atol=1e-6)
        np.testing.assert_allclose(shares.numpy().sum(1), np.ones(4), rtol=1e-6)
