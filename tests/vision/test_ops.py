"""Operators of detectors against loops in plain Python, gradients against differences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.errors import ArgumentError, ShapeError
from metaop.vision import ops
from tests.helpers import check_derivatives

Box = Any


def random_boxes(count: int, seed: int = 0, size: float = 20.0) -> np.ndarray:
    random = np.random.default_rng(seed)
    corner = random.uniform(0, size * 0.6, (count, 2))
    return np.concatenate([corner, corner + random.uniform(1, size * 0.4, (count, 2))], 1)


def overlap(a: Box, b: Box) -> tuple[float, float]:
    """Intersection and union of two boxes."""
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return width * height, sum(areas) - width * height


def iou(a: Box, b: Box) -> float:
    intersection, union = overlap(a, b)
    return intersection / union


def hull(a: Box, b: Box) -> tuple[float, float]:
    return max(a[2], b[2]) - min(a[0], b[0]), max(a[3], b[3]) - min(a[1], b[1])


def generalized(a: Box, b: Box) -> float:
    _, union = overlap(a, b)
    area = math.prod(hull(a, b))
    return iou(a, b) - (area - union) / area


def distance(a: Box, b: Box) -> float:
    dx, dy = (a[0] + a[2] - b[0] - b[2]) / 2, (a[1] + a[3] - b[1] - b[3]) / 2
    width, height = hull(a, b)
    return iou(a, b) - (dx * dx + dy * dy) / (width**2 + height**2 + 1e-7)


def complete(a: Box, b: Box) -> float:
    angles = [math.atan((box[2] - box[0]) / (box[3] - box[1])) for box in (a, b)]
    aspect = 4 / math.pi**2 * (angles[0] - angles[1]) ** 2
    return distance(a, b) - aspect**2 / (1 - iou(a, b) + aspect + 1e-7)


@pytest.mark.parametrize(
    ("name", "single"),
    [
        ("box_iou", iou),
        ("generalized_box_iou", generalized),
        ("distance_box_iou", distance),
        ("complete_box_iou", complete),
    ],
)
def test_overlaps(name: str, single: Callable[[Box, Box], float]) -> None:
    boxes1, boxes2 = random_boxes(6), random_boxes(4, 1)
    found = getattr(ops, name)(metaop.tensor(boxes1), metaop.tensor(boxes2))
    wanted = [[single(a, b) for b in boxes2] for a in boxes1]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "single"),
    [
        ("generalized_box_iou_loss", generalized),
        ("distance_box_iou_loss", distance),
        ("complete_box_iou_loss", complete),
    ],
)
def test_losses_of_boxes(name: str, single: Callable[[Box, Box], float]) -> None:
    boxes1, boxes2 = random_boxes(5), random_boxes(5, 1)
    wanted = [1 - single(a, b) for a, b in zip(boxes1, boxes2)]
    loss = getattr(ops, name)
    for reduction, expected in (("none", wanted), ("sum", sum(wanted)), ("mean", np.mean(wanted))):
        found = loss(metaop.tensor(boxes1), metaop.tensor(boxes2), reduction)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    if name != "complete_box_iou_loss":  # its weight is a constant for the gradient
        check_derivatives(loss, boxes1, boxes2, order=1)


def test_focal_loss() -> None:
    random = np.random.default_rng(0)
    logits, targets = random.normal(size=(3, 4)), random.integers(0, 2, (3, 4)).astype(float)
    p = 1 / (1 + np.exp(-logits))
    right = np.where(targets == 1, p, 1 - p)
    wanted = np.where(targets == 1, 0.3, 0.7) * -np.log(right) * (1 - right) ** 1.5
    found = ops.sigmoid_focal_loss(metaop.tensor(logits), metaop.tensor(targets), 0.3, 1.5)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9)
    check_derivatives(
        lambda x: ops.sigmoid_focal_loss(x, metaop.tensor(targets), reduction="mean"), logits
    )
    with pytest.raises(ArgumentError, match="alpha"):
        ops.sigmoid_focal_loss(metaop.tensor(logits), metaop.tensor(targets), 2.0)


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.product(("xyxy", "xywh", "cxcywh"), repeat=2))
)
def test_boxes_are_converted_and_come_back(source: str, target: str) -> None:
    corners = random_boxes(7)
    width, height = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    forms = {
        "xyxy": corners,
        "xywh": np.stack([corners[:, 0], corners[:, 1], width, height], 1),
        "cxcywh": np.stack(
            [corners[:, 0] + width / 2, corners[:, 1] + height / 2, width, height], 1
        ),
    }
    found = ops.box_convert(metaop.tensor(forms[source]), source, target)
    np.testing.assert_allclose(found.numpy(), forms[target], rtol=1e-12)


def test_areas_borders_and_small_boxes() -> None:
    boxes = np.array([[-3, 2, 8, 30], [1, 1, 2, 9], [4, 4, 12, 5.5]])
    tensor = metaop.tensor(boxes)
    np.testing.assert_allclose(ops.box_area(tensor).numpy(), [308, 8, 12])
    clipped = ops.clip_boxes_to_image(tensor, (20, 10)).numpy()
    np.testing.assert_array_equal(clipped, [[0, 2, 8, 20], [1, 1, 2, 9], [4, 4, 10, 5.5]])
    assert ops.remove_small_boxes(tensor, 1.4).tolist() == [0, 2]
    masks = np.zeros((2, 6, 7), bool)
    masks[0, 2:4, 3:6], masks[1, 5, 0] = True, True
    np.testing.assert_array_equal(
        ops.masks_to_boxes(metaop.tensor(masks)).numpy(), [[3, 2, 5, 3], [0, 5, 0, 5]]
    )
    with pytest.raises(ArgumentError, match="a mask has no pixels"):
        ops.masks_to_boxes(metaop.tensor(masks & False))
    assert ops.masks_to_boxes(metaop.tensor(masks[:0])).shape == (0, 4)
    with pytest.raises(ShapeError, match="last dimension of 4"):
        ops.box_area(metaop.zeros(3, 5))
    with pytest.raises(ArgumentError, match="Conversions"):
        ops.box_convert(tensor, "xyxy", "corners")


def suppressed(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[int]:
    kept: list[int] = []
    for candidate in sorted(range(len(boxes)), key=lambda k: -scores[k]):
        if all(iou(boxes[candidate], boxes[other]) <= threshold for other in kept):
            kept.append(candidate)
    return kept


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_suppression(count: int, threshold: float) -> None:
    boxes = random_boxes(count, size=8.0)
    scores = np.random.default_rng(2).permutation(count) / 10
    found = ops.nms(metaop.tensor(boxes), metaop.tensor(scores), threshold)
    assert found.dtype is metaop.int64
    assert found.tolist() == suppressed(boxes, scores, threshold)
    classes = np.arange(count) % 3
    together: list[int] = []
    for kind in range(3):
        members = np.flatnonzero(classes == kind)
        together += members[suppressed(boxes[members], scores[members], threshold)].tolist()
    together.sort(key=lambda k: -scores[k])
    found = ops.batched_nms(
        metaop.tensor(boxes), metaop.tensor(scores), metaop.tensor(classes), threshold
    )
    assert found.tolist() == together


def test_suppression_of_any_number_of_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal, infinite and NaN scores, boxes without area; new counts compile nothing."""

    def check(count: int) -> None:
        random = np.random.default_rng(count)
        corners = random.uniform(0, 30, (count, 2))
        boxes = np.concatenate([corners, corners + random.uniform(0, 6, (count, 2))], 1)
        boxes[::9, 2] = boxes[::9, 0]
        boxes, scores = boxes.astype("f"), random.integers(0, 9, count).astype("f")
        scores[1:3] = np.inf, np.nan
        ours = [metaop.from_numpy(part) for part in (boxes, scores)]
        wanted = []
        is_number = ~np.isnan(scores)  # NaN is the greatest, as in PyTorch
        order = np.lexsort((-np.where(is_number, scores, 0), is_number))
        for candidate in order:
            one, others = boxes[candidate], boxes[wanted]
            low, high = np.maximum(one[:2], others[:, :2]), np.minimum(one[2:], others[:, 2:])
            shared = np.maximum(high - low, 0).prod(1)
            areas = (one[2:] - one[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1)
            with np.errstate(invalid="ignore"):
                ratio = (shared / (areas - shared)).astype(np.float64)
            if not (ratio > 0.2).any():
                wanted.append(candidate)
        assert ops.nms(*ours, 0.2).tolist() == wanted

    for count in (600, 700, 1300):
        check(count)
    made: list[Any] = []
    schedule = metaop.compiler.schedule
    monkeypatch.setattr(
        metaop.compiler, "schedule", lambda *given: made.append(given) or schedule(*given)
    )
    for count in (513, 1100, 2000):
        check(count)
    assert not made


def test_suppression_of_global_boxes() -> None:
    boxes, scores = metaop.tensor(random_boxes(20, size=8.0)), metaop.rand(20)
    placement, sbp = metaop.placement("cpu", ranks=[0]), metaop.sbp.broadcast
    spread = [part.to_global(placement=placement, sbp=sbp) for part in (boxes, scores)]
    found = ops.nms(*spread, 0.3)
    assert found.is_global
    assert found.numpy().tolist() == ops.nms(boxes, scores, 0.3).tolist()


def test_thresholds_are_compared_in_double_precision() -> None:
    """0.3 in single precision lies above 0.3, so such a box goes, as in torchvision."""
    boxes = metaop.tensor([[0, 0, 10, 1], [0, 0, 3, 1]], dtype=metaop.float32)
    assert ops.nms(boxes, metaop.tensor([0.9, 0.8]), 0.3).tolist() == [0]
    assert ops.nms(boxes.double(), metaop.tensor([0.9, 0.8]), 0.3).tolist() == [0, 1]


# --- regions ------------------------------------------------------------------------------------


def interpolated(plane: np.ndarray, y: float, x: float) -> float:
    height, width = plane.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    dy, dx = y - top, x - left
    upper = plane[top, left] * (1 - dx) + plane[top, right] * dx
    lower = plane[bottom, left] * (1 - dx) + plane[bottom, right] * dx
    return upper * (1 - dy) + lower * dy


def aligned_bin(
    plane: np.ndarray, start: Any, size: Any, place: Any, bins: Any, sampling: int
) -> float:
    """The mean of the points of one bin; pairs are (y, x)."""
    steps = [size[k] / bins[k] for k in (0, 1)]
    counts = [sampling if sampling > 0 else math.ceil(step) for step in steps]
    values = [
        interpolated(
            plane,
            start[0] + place[0] * steps[0] + (a + 0.5) * steps[0] / counts[0],
            start[1] + place[1] * steps[1] + (b + 0.5) * steps[1] / counts[1],
        )
        for a in range(counts[0])
        for b in range(counts[1])
    ]
    return sum(values) / max(len(values), 1)


def rounded_bin(plane: np.ndarray, start: Any, size: Any, place: Any, bins: Any) -> np.ndarray:
    """The pixels of one bin of whole pixels."""
    ends = []
    for k in (0, 1):
        step, extent = size[k] / bins[k], plane.shape[k]
        low = math.floor(place[k] * step) + start[k]
        high = math.ceil((place[k] + 1) * step) + start[k]
        ends.append(slice(min(max(low, 0), extent), min(max(high, 0), extent)))
    return plane[ends[0], ends[1]]


FEATURES = np.random.default_rng(3).normal(size=(2, 8, 9, 11))
# Image, x1, y1, x2, y2: ordinary, small, and hanging over the border.
REGIONS = np.array([[0, 3.3, 2.1, 17.0, 12.2], [1, 5, 5, 5.5, 6], [1, -4, 10, 30, 25.7]])
SCALE = 0.5


def by_loops(bins: tuple[int, int], own: bool, bin_value: Callable[..., float]) -> np.ndarray:
    """The regions bin by bin; `own` reads a channel for every bin."""
    channels = FEATURES.shape[1] // (bins[0] * bins[1] if own else 1)
    result = np.zeros((len(REGIONS), channels, *bins))
    for place in np.ndindex(*result.shape):
        region, channel, row, column = place
        source = (channel * bins[0] + row) * bins[1] + column if own else channel
        plane = FEATURES[int(REGIONS[region, 0]), source]
        result[place] = bin_value(plane, REGIONS[region, 1:], (row, column))
    return result


@pytest.mark.parametrize("sampling", [2, -1])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align(sampling: int, aligned: bool) -> None:
    bins = (3, 2)

    def value(plane: np.ndarray, box: Any, place: Any) -> float:
        x1, y1, x2, y2 = box * SCALE - (0.5 if aligned else 0)
        size = (y2 - y1, x2 - x1)
        if not aligned:
            size = (max(size[0], 1), max(size[1], 1))
        return aligned_bin(plane, (y1, x1), size, place, bins, sampling)

    def ours(features: Any) -> Any:
        return ops.roi_align(features, metaop.tensor(REGIONS), bins, SCALE, sampling, aligned)

    wanted = by_loops(bins, False, value)
    np.testing.assert_allclose(ours(metaop.tensor(FEATURES)).numpy(), wanted, atol=1e-10)
    check_derivatives(ours, FEATURES)
    per_image = [metaop.tensor(REGIONS[:1, 1:]), metaop.tensor(REGIONS[1:, 1:])]
    module = ops.RoIAlign(bins, SCALE, sampling, aligned=aligned)
    np.testing.assert_allclose(
        module(metaop.tensor(FEATURES), per_image).numpy(), wanted, atol=1e-10
    )


def test_roi_pool() -> None:
    bins = (3, 2)

    def value(plane: np.ndarray, box: Any, place: Any) -> float:
        x1, y1, x2, y2 = np.floor(box * SCALE + 0.5).astype(int)
        size = (max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1))
        pixels = rounded_bin(plane, (y1, x1), size, place, bins)
        return pixels.max() if pixels.size else 0.0

    def ours(features: Any) -> Any:
        return ops.roi_pool(features, metaop.tensor(REGIONS), bins, SCALE)

    wanted = by_loops(bins, False, value)
    np.testing.assert_allclose(ours(metaop.tensor(FEATURES)).numpy(), wanted, atol=1e-12)
    check_derivatives(ours, FEATURES, order=1)


@pytest.mark.parametrize("sampling", [2, -1])
def test_position_sensitive_regions(sampling: int) -> None:
    bins = (2, 2)

    def aligned(plane: np.ndarray, box: Any, place: Any) -> float:
        x1, y1, x2, y2 = box * SCALE - 0.5
        return aligned_bin(plane, (y1, x1), (y2 - y1, x2 - x1), place, bins, sampling)

    def pooled(plane: np.ndarray, box: Any, place: Any) -> float:
        x1, y1, x2, y2 = np.floor(box * SCALE + 0.5).astype(int)
        pixels = rounded_bin(plane, (y1, x1), (max(y2 - y1, 1), max(x2 - x1, 1)), place, bins)
        return pixels.mean() if pixels.size else 0.0

    features, regions = metaop.tensor(FEATURES), metaop.tensor(REGIONS)
    found = ops.ps_roi_align(features, regions, bins, SCALE, sampling)
    np.testing.assert_allclose(found.numpy(), by_loops(bins, True, aligned), atol=1e-10)
    found = ops.PSRoIPool(bins, SCALE)(features, regions)
    np.testing.assert_allclose(found.numpy(), by_loops(bins, True, pooled), atol=1e-10)
    with pytest.raises(ShapeError, match="not a multiple"):
        ops.ps_roi_pool(features, regions, (3, 3), SCALE)


def test_regions_of_a_pyramid_come_from_their_level() -> None:
    random = np.random.default_rng(0)
    maps = {
        str(level): metaop.tensor(random.normal(size=(1, 4, 64 >> level, 64 >> level)))
        for level in range(3)
    }
    boxes = metaop.tensor(np.array([[0.0, 0, 40, 40], [4, 4, 60, 50], [2, 3, 250, 255]]))
    pooler = ops.MultiScaleRoIAlign(["0", "1", "2"], 3, 2, canonical_scale=64, canonical_level=3)
    found = pooler(maps, [boxes], [(256, 256)]).numpy()
    # Sides of 40, 51 and 250 pixels, in maps at 1/4, 1/8 and 1/16 of the image.
    for row, (level, scale) in enumerate([("0", 1 / 4), ("0", 1 / 4), ("2", 1 / 16)]):
        wanted = ops.roi_align(maps[level], [boxes[row : row + 1]], 3, scale, 2)
        np.testing.assert_allclose(found[row : row + 1], wanted.numpy(), atol=1e-10)


def test_maps_that_no_box_reads_have_a_gradient_of_zeros() -> None:
    random = np.random.default_rng(6)
    sides = {"0": 16, "1": 8}
    maps = {
        name: metaop.tensor(random.normal(size=(1, 2, side, side)), requires_grad=True)
        for name, side in sides.items()
    }
    boxes = metaop.tensor([[2.0, 3, 12, 15]])
    pooler = ops.MultiScaleRoIAlign(["0", "1"], 3, 2, canonical_scale=64, canonical_level=3)
    pooler(maps, [boxes], [(64, 64)]).square().sum().backward()
    alone = maps["0"].detach().requires_grad_()
    ops.roi_align(alone, [boxes], 3, 1 / 4, 2).square().sum().backward()
    np.testing.assert_allclose(maps["0"].grad.numpy(), alone.grad.numpy(), atol=1e-10)
    assert maps["1"].grad is not None and not maps["1"].grad.numpy().any()


# --- deformable convolution and layers ----------------------------------------------------------


def zero_outside(plane: np.ndarray, y: float, x: float) -> float:
    total, top, left = 0.0, math.floor(y), math.floor(x)
    for row, column in itertools.product((top, top + 1), (left, left + 1)):
        if 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]:
            total += plane[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


@pytest.mark.parametrize("masked", [False, True])
def test_deformable_convolution(masked: bool) -> None:
    random = np.random.default_rng(5)
    image, weight = random.normal(size=(2, 4, 6, 5)), random.normal(size=(6, 2, 3, 2))
    stride, padding, dilation, groups, offset_groups = (2, 1), (1, 2), (1, 2), 2, 2
    high, wide = (6 + 2 - 2 - 1) // 2 + 1, 5 + 4 - 2 - 1 + 1
    offset = random.normal(size=(2, 2 * offset_groups * 6, high, wide))
    mask = random.uniform(size=(2, offset_groups * 6, high, wide)) if masked else None
    bias = random.normal(size=6)
    wanted = np.zeros((2, 6, high, wide))
    for n, o, y, x in np.ndindex(*wanted.shape):
        total = bias[o]
        for c, i, j in np.ndindex(2, 3, 2):
            channel = o // 3 * 2 + c
            group, tap = channel // 2, i * 2 + j
            place = offset[n].reshape(offset_groups, 6, 2, high, wide)[group, tap, :, y, x]
            value = zero_outside(
                image[n, channel],
                y * stride[0] - padding[0] + i * dilation[0] + place[0],
                x * stride[1] - padding[1] + j * dilation[1] + place[1],
            )
            if mask is not None:
                value *= mask[n].reshape(offset_groups, 6, high, wide)[group, tap, y, x]
            total += weight[o, c, i, j] * value
        wanted[n, o, y, x] = total
    inputs = [image, offset, weight, bias] + ([] if mask is None else [mask])

    def ours(image: Any, offset: Any, weight: Any, bias: Any, mask: Any = None) -> Any:
        return ops.deform_conv2d(image, offset, weight, bias, stride, padding, dilation, mask)

    found = ours(*(metaop.tensor(array) for array in inputs))
    assert groups * weight.shape[1] == image.shape[1]
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-10)
    check_derivatives(ours, *inputs, order=1)


def test_without_offsets_it_is_a_convolution() -> None:
    layer = ops.DeformConv2d(4, 6, 3, padding=1, groups=2)
    image = metaop.randn(2, 4, 7, 8)
    plain = nn.functional.conv2d(image, layer.weight, layer.bias, padding=1, groups=2)
    found = layer(image, metaop.zeros(2, 18, 7, 8))
    np.testing.assert_allclose(found.detach().numpy(), plain.detach().numpy(), atol=1e-5)
    with pytest.raises(ShapeError, match="offset"):
        layer(image, metaop.zeros(2, 18, 7, 7))


def test_frozen_normalisation_is_the_evaluated_one() -> None:
    plain = nn.BatchNorm2d(3).eval()
    for value in plain.state_dict().values():
        if value.dtype.kind == "float":
            value.uniform_(0.5, 2.0)
    frozen = ops.FrozenBatchNorm2d(3)
    frozen.load_state_dict(dict(plain.state_dict()))
    image = metaop.randn(2, 3, 4, 4)
    np.testing.assert_allclose(
        frozen(image).numpy(), plain(image).detach().numpy(), rtol=1e-5, atol=1e-5
    )
    assert not list(frozen.parameters())


def test_blocks() -> None:
    block = ops.Conv2dNormActivation(3, 8, 5, stride=2)
    assert block(metaop.randn(2, 3, 9, 9)).shape == (2, 8, 5, 5)
    assert list(block.state_dict())[:2] == ["0.weight", "1.weight"]
    squeeze = ops.SqueezeExcitation(8, 2)
    assert squeeze(metaop.randn(2, 8, 5, 5)).shape == (2, 8, 5, 5)
    mlp = ops.MLP(4, [8, 2])
    assert list(mlp.state_dict()) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert ops.Permute([2, 0, 1])(metaop.zeros(1, 2, 3)).shape == (3, 1, 2)


def test_stochastic_depth_keeps_the_mean() -> None:
    metaop.manual_seed(0)
    found = ops.stochastic_depth(metaop.ones(4000, 3), 0.25, "row").numpy()
    assert set(np.unique(found.round(4))) == {0.0, np.float32(1.3333)}
    assert (found == found[:, :1]).all() and abs(found.mean() - 1) < 0.05
    module = ops.StochasticDepth(0.5, "batch").eval()
    np.testing.assert_array_equal(module(metaop.ones(2, 2)).numpy(), np.ones((2, 2)))


def test_feature_pyramid_adds_what_smaller_maps_know() -> None:
    pyramid = ops.FeaturePyramidNetwork([3, 5], 4)
    assert list(pyramid.state_dict())[:4] == [
        *("inner_blocks.0.0.weight", "inner_blocks.0.0.bias"),
        *("inner_blocks.1.0.weight", "inner_blocks.1.0.bias"),
    ]
    maps = {"a": metaop.randn(1, 3, 8, 8), "b": metaop.randn(1, 5, 4, 4)}
    found = pyramid(maps)
    inner = [block(value) for block, value in zip(pyramid.inner_blocks, maps.values())]
    grown = inner[1].repeat_interleave(2, 2).repeat_interleave(2, 3)
    wanted = pyramid.layer_blocks[0](inner[0] + grown)
    np.testing.assert_allclose(found["a"].detach().numpy(), wanted.detach().numpy(), atol=1e-5)
    assert list(found) == ["a", "b"] and found["b"].shape == (1, 4, 4, 4)
