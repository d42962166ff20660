"""Networks that find things: torchvision's names, losses, gradients and results, and learning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.errors import ArgumentError, ShapeError
from metaop.vision.ops import MultiScaleRoIAlign
from models import (
    average_precision,
    detection,
    detection_training,
    faster_rcnn,
    feature_pyramid,
    mask_rcnn,
    retinanet,
    scenes,
    ssd,
    yolox,
)
from tests.models import torchvision_networks as reference
from tests.models.comparison import compare, parameter_count

RECORD: dict[str, Any] = json.loads(reference.FILE.read_text())
BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "ssd300_vgg16": ssd.ssd300_vgg16,
    "retinanet_resnet50_fpn": retinanet.retinanet_resnet50_fpn,
    "fasterrcnn_resnet50_fpn": faster_rcnn.fasterrcnn_resnet50_fpn,
    "maskrcnn_resnet50_fpn": mask_rcnn.maskrcnn_resnet50_fpn,
}


random = np.random.default_rng(11)


def small(name: str) -> detection.Detector:
    """The small detectors of `torchvision_networks.small_of_torchvision`."""
    backbone = feature_pyramid.BackboneWithFPN(
        reference.small_trunk(nn), {"0": "0", "1": "1"}, [6, 8], 4
    )
    sides = {"min_size": 60, "max_size": 96}
    if name == "ssd":
        backbone.out_channels = [4, 4, 4]
        boxes = ssd.DefaultBoxGenerator(((2,), (2, 3), (2,)), (0.2, 0.3, 0.5, 0.7))
        return ssd.SSD(backbone, boxes, (72, 64), 3)
    if name == "retinanet":
        anchors = detection.AnchorGenerator(((12, 16), (20, 28), (30, 38)), ((0.5, 1.0),) * 3)
        return retinanet.RetinaNet(backbone, 3, anchor_generator=anchors, **sides)
    options = {
        "rpn_anchor_generator": detection.AnchorGenerator(
            ((12,), (20,), (30,)), ((0.5, 1.0, 2.0),) * 3
        ),
        "proposing": faster_rcnn.Proposing(
            sample=reference.ALL, candidates=(90, 80), most=(70, 60)
        ),
        "box_roi_pool": MultiScaleRoIAlign(("0", "1"), 3, 2, canonical_scale=32, canonical_level=3),
        "looking": faster_rcnn.Looking(sample=reference.ALL),
        "width": 10,
        **sides,
    }
    if name == "fasterrcnn":
        return faster_rcnn.FasterRCNN(backbone, 3, **options)
    pool = MultiScaleRoIAlign(("0", "1"), 4, 2, canonical_scale=32, canonical_level=3)
    return mask_rcnn.MaskRCNN(backbone, 3, pool, 5, **options)


@pytest.mark.parametrize("name", BUILDERS)
def test_names_and_sizes_are_those_of_torchvision(name: str) -> None:
    assert reference.names(BUILDERS[name]()) == RECORD[name]


@pytest.mark.parametrize("name", reference.SMALL)
def test_losses_gradients_and_results_are_those_of_torchvision(name: str) -> None:
    found, known = reference.detected(small(name), metaop.from_numpy), RECORD[name]
    assert set(found["losses"]) == set(known["losses"])
    for key, value in known["losses"].items():
        assert found["losses"][key] == pytest.approx(value, rel=1e-4), key
    for key, (norm, product) in known["slopes"].items():
        assert found["slopes"][key] == pytest.approx([norm, product], abs=1e-3 * norm + 1e-6), key
    assert found["counts"] == known["counts"]
    for image, goal in zip(found["results"], known["results"]):
        assert len(goal["scores"]) > 5
        for key, value in goal.items():
            scale = np.abs(value).max()
            np.testing.assert_allclose(
                image[key] / scale, np.array(value) / scale, atol=1e-4, err_msg=key
            )


def test_boxes_are_what_their_codes_say() -> None:
    corner, size = random.uniform(0, 50, (2, 30, 2))
    anchors = np.concatenate([corner, corner + size + 1], 1).astype(np.float32)
    boxes = anchors[::-1].copy()
    coder = detection.BoxCoder((10.0, 10.0, 5.0, 5.0))
    np.testing.assert_allclose(
        coder.decode(coder.encode(boxes, anchors), anchors), boxes, atol=1e-3
    )
    # One width to the right and twice as high: 10 · 1, 5 · log 2.
    code = coder.encode(np.array([[10.0, -5, 20, 15]]), np.array([[0.0, 0, 10, 10]]))
    np.testing.assert_allclose(code, [[10, 0, 0, 5 * np.log(2)]], atol=1e-6)


def test_anchors_belong_to_what_they_overlap() -> None:
    quality = np.array([[0.1, 0.8, 0.45, 0.3], [0.2, 0.6, 0.40, 0.3]])
    below, between = detection.BELOW, detection.BETWEEN
    assert detection.Matcher(0.5, 0.4)(quality).tolist() == [below, 0, between, below]
    forced = detection.Matcher(0.7, 0.4, allow_low_quality=True)
    assert forced(quality).tolist() == [below, 0, between, below]
    assert forced(quality[:, [0, 2, 3]]).tolist() == [below, 0, below]
    assert ssd.BestMatcher(0.5)(quality[:, [0, 2, 1]]).tolist() == [below, below, 1]
    assert forced(np.zeros((0, 3))).tolist() == [below] * 3


def test_samples_are_balanced() -> None:
    labels = np.array([1, 2, 3, 4, 5, 6] + [0] * 20 + [-1] * 5)
    metaop.manual_seed(0)
    drawn, few = detection.balanced_samples([labels, labels[5:]], 8, 0.5)
    assert (drawn & (labels > 0)).sum() == 4 and (drawn & (labels == 0)).sum() == 4
    assert (few & (labels[5:] > 0)).sum() == 1 and (few & (labels[5:] == 0)).sum() == 7
    assert not (drawn & (labels < 0)).any()


def test_images_are_suppressed_together() -> None:
    random = np.random.default_rng(0)
    parts = []
    for count in (0, 60, 1, 90):
        corners = random.uniform(0, 20, (count, 2))
        boxes = np.concatenate([corners, corners + random.uniform(1, 9, (count, 2))], 1)
        scores, groups = random.random(count), random.integers(0, 3, count)
        parts.append((boxes.astype("f"), scores.astype("f"), groups))
    for most in (5, 100):
        found = detection.suppressed_in_each(parts, 0.4, most)
        for own, part in zip(found, parts):
            np.testing.assert_array_equal(own, detection.suppressed(*part, 0.4, most))


def test_images_of_several_sizes_make_one_batch() -> None:
    transform = detection.ImageTransform(40, 60, divisible=32)
    pictures = [metaop.rand(3, 20, 30), metaop.rand(3, 50, 20)]
    boxes = [metaop.tensor([[2.0, 3, 10, 11]]), metaop.tensor([[0.0, 0, 20, 50]])]
    targets = [{"boxes": part, "labels": metaop.tensor([1])} for part in boxes]
    batch = transform(pictures, targets)
    assert batch.sizes == [(40, 60), (60, 24)] and batch.images.shape == (2, 3, 64, 64)
    np.testing.assert_allclose(batch.boxes[0], [[4, 6, 20, 22]], rtol=1e-6)
    np.testing.assert_allclose(batch.boxes[1], [[0, 0, 24, 60]], rtol=1e-6)
    assert not batch.images[1, :, 60:].numpy().any()
    assert not batch.images[1, :, :, 24:].numpy().any()


def test_wrong_inputs_are_refused() -> None:
    model = small("retinanet")
    picture = metaop.rand(3, 40, 40)
    flat = {"boxes": metaop.tensor([[3.0, 3, 3, 9]]), "labels": metaop.tensor([1])}
    with pytest.raises(ArgumentError, match="without area"):
        model([picture], [flat])
    with pytest.raises(ArgumentError, match="targets for each image"):
        model([picture])
    with pytest.raises(ArgumentError, match="without masks"):
        small("maskrcnn")([picture], [{**flat, "boxes": metaop.tensor([[3.0, 3, 9, 9]])}])
    with pytest.raises(ShapeError, match="channels, height, width"):
        model.eval()([picture[0]])
    with pytest.raises(ArgumentError, match="feature maps"):
        model.anchors((64, 64), [(8, 8)])


def test_images_without_things_teach_that_nothing_is_there() -> None:
    pictures = [metaop.rand(3, 60, 80), metaop.rand(3, 60, 80)]
    nothing = {
        "boxes": metaop.zeros(0, 4),
        "labels": metaop.zeros(0).long(),
        "masks": metaop.zeros(0, 60, 80),
    }
    losses = small("maskrcnn")(pictures, [nothing, nothing])
    values = {name: value.item() for name, value in losses.items()}
    assert values["loss_objectness"] > 0 and values["loss_classifier"] > 0
    assert values["loss_box_reg"] == values["loss_rpn_box_reg"] == values["loss_mask"] == 0


def test_masks_are_pasted_where_their_boxes_are() -> None:
    whole = mask_rcnn.pasted(np.ones((28, 28), np.float32), np.array([10.0, 5, 30, 25]), (40, 50))
    inside = np.zeros((40, 50), bool)
    inside[5:25, 10:30] = True
    assert (whole[6:24, 11:29] > 0.99).all() and (whole >= 0.5)[~inside].mean() < 0.02
    left = np.ones((28, 28), np.float32) * (np.arange(28) < 14)
    half = mask_rcnn.pasted(left, np.array([-10.0, 0, 10, 20]), (30, 30))
    assert not (half[:, 2:] >= 0.5).any()


def things(labels: list[int], boxes: Any, scores: list[float] | None = None) -> Any:
    regions = np.array(boxes, np.float64).reshape(-1, 4)
    kept = None if scores is None else np.array(scores)
    return average_precision.Things(np.array(labels, np.int64), regions, kept)


SQUARES = [[0, 0, 10, 10], [20, 0, 30, 10], [0, 20, 10, 30], [20, 20, 30, 30]]


def test_average_precision_of_cases_made_by_hand() -> None:
    precision = average_precision.average_precision
    true = [things([1, 1, 2], SQUARES[:3])]
    assert precision(true, [things([1, 1, 2], SQUARES[:3], [0.9, 0.8, 0.7])]) == 1
    assert precision(true, [things([], [], [])]) == 0
    # Of class 1 half is found: all 51 recalls up to 0.5. Of class 2 everything, after a mistake.
    found = [things([1, 2, 2], [SQUARES[0], SQUARES[3], SQUARES[2]], [0.9, 0.8, 0.7])]
    assert precision(true, found) == pytest.approx((51 / 101 + 0.5) / 2)
    # Twice the same thing: the second time is a mistake, but after all that can be found.
    twice = [things([1, 1, 1], [*SQUARES[:2], SQUARES[0]], [0.9, 0.8, 0.7])]
    assert precision([things([1, 1], SQUARES[:2])], twice) == 1
    # An overlap of 0.8 counts at seven of ten thresholds.
    assert precision([things([1], [[0, 0, 10, 10]])], [things([1], [[0, 0, 8, 10]], [1])]) == 0.7
    # The order is that of all images together.
    both = [things([3], [SQUARES[0]]), things([3], [SQUARES[1]])]
    mixed = [things([3], [SQUARES[2]], [0.8]), things([3], [SQUARES[1]], [0.9])]
    assert precision(both, mixed) == pytest.approx(51 / 101)
    assert np.isnan(precision([things([], [])], [things([1], [SQUARES[0]], [0.5])]))


def test_average_precision_of_masks_is_that_of_equal_boxes() -> None:
    def drawn(part: Any) -> Any:
        rows, columns = np.mgrid[:40, :40]
        x1, y1, x2, y2 = part.regions.T[:, :, None, None]
        masks = (columns >= x1) & (columns < x2) & (rows >= y1) & (rows < y2)
        return part._replace(regions=masks)

    corner = random.integers(0, 25, (12, 2))
    boxes = np.concatenate([corner, corner + random.integers(5, 15, (12, 2))], 1)
    true = things([1, 2] * 6, boxes)
    found = things([1, 2] * 6, boxes + random.integers(-1, 2, (12, 4)), list(random.random(12)))
    empty = things([], []), things([], [], [])
    expected = average_precision.average_precision([true, empty[0]], [found, empty[1]])
    assert 0.1 < expected < 0.9
    assert expected == pytest.approx(
        average_precision.average_precision(
            [drawn(true), drawn(empty[0])], [drawn(found), drawn(empty[1])]
        )
    )


def test_drawing_and_metrics_of_what_is_there(tmp_path: Path) -> None:
    """A detector that knows the truth has every precision 1."""
    drawn = scenes.draw_scenes(6, 48, (5,))

    class Knowing(nn.Module):
        def forward(self, images: list[metaop.Tensor]) -> list[dict[str, metaop.Tensor]]:
            pixels = {scene.image.tobytes(): scene for scene in drawn}
            found = [pixels[image.numpy().tobytes()] for image in images]
            return [
                {
                    "boxes": metaop.from_numpy(scene.boxes),
                    "labels": metaop.from_numpy(scene.labels),
                    "scores": metaop.ones(len(scene.labels)),
                    "masks": metaop.from_numpy(scene.masks[:, None].astype(np.float32)),
                }
                for scene in found
            ]

    metrics, found = detection_training.evaluate(Knowing(), drawn, 4)
    assert metrics == {"box_map": 1, "box_map_50": 1, "mask_map": 1, "mask_map_50": 1}
    detection_training.draw_found(tmp_path / "found.png", drawn, found)
    assert (tmp_path / "found.png").stat().st_size > 2000


def test_shapes_are_found_after_training(tmp_path: Path) -> None:
    options = ["--steps", "150", "--batch-size", "4", "--test", "16", "--out", str(tmp_path)]
    learned = ssd.main([*options, "--checkpoint", str(tmp_path / "ssd.pth")])
    assert np.mean(learned.losses[-10:]) < 0.6 * learned.losses[0]
    assert learned.metrics["box_map_50"] > 0.5
    assert json.loads((tmp_path / "metrics.json").read_text()) == learned.metrics
    assert metaop.load(tmp_path / "ssd.pth")["history"] == {"loss": learned.losses}
    assert (tmp_path / "found.png").stat().st_size > 2000


def test_training_in_two_stages_lowers_the_loss() -> None:
    learned = mask_rcnn.main(["--steps", "12", "--batch-size", "2", "--test", "2", "--width", "4"])
    assert np.mean(learned.losses[-3:]) < 0.9 * learned.losses[0]
    assert set(learned.metrics) == {"box_map", "box_map_50", "mask_map", "mask_map_50"}


def test_the_small_network_of_yolox_has_its_size() -> None:
    """9.0 million parameters in the paper, 8.97 in the program of its authors."""
    assert round(parameter_count(yolox.yolox_s()) / 1e6, 2) == 8.97


def test_layers_of_yolox_are_those_of_torch() -> None:
    def build(module: Any) -> Any:
        heads = module.nn.ModuleList(module.Head(count, 4, 2) for count in (8, 16, 32))
        return module.nn.ModuleDict({"trunk": module.PAFPN(2, 1), "heads": heads})

    def told(library: Any, model: Any, images: Any) -> tuple[Any, Any]:
        maps = model["trunk"](images).values()
        found = library.cat([head(value) for head, value in zip(model["heads"], maps)], 1)
        return found, (found**2).mean()

    compare("yolox_layers", build, told, random.uniform(0, 1, (2, 3, 64, 96)))


def test_paired_overlaps_are_the_diagonal_of_all() -> None:
    corner = random.uniform(0, 20, (2, 30, 2))
    first, second = np.concatenate([corner, corner + random.uniform(5, 20, (2, 30, 2))], -1)
    found = yolox.paired_overlap(metaop.tensor(first), metaop.tensor(second)).numpy()
    np.testing.assert_allclose(found, detection.overlaps(first, second).diagonal(), atol=1e-12)


def test_places_learn_the_things_that_they_tell_best() -> None:
    # The first thing is told well by three places, the second one by none.
    quality = np.array([[0.9, 0.8, 0.7, 0.0, 0.9], [0.1, 0.0, 0.2, 0.1, 0.0]])
    cost = np.array([[1.0, 2.0, 3.0, 9.0, 0.5], [0.9, 9.0, 5.0, 4.0, 0.1]])
    near = np.array([True, True, True, True, False])
    # 0.9 + 0.8 + 0.7 make two places; the cheapest place of both goes to the second thing.
    assert yolox.assigned(cost, quality, near).tolist() == [1, 0, -1, -1, -1]
    assert yolox.assigned(cost, quality, np.zeros(5, bool)).tolist() == [-1] * 5


def test_losses_of_yolox_are_what_their_definitions_say() -> None:
    """The boxes and logits that the network tells are put into NumPy in float64."""
    metaop.manual_seed(1)
    model = yolox.YOLOX(yolox.PAFPN(4, 1), 2, 8, (64, 96))
    images = [metaop.from_numpy(part) for part in reference.pictures(2, 64, 96)]
    targets = [
        {name: metaop.from_numpy(value) for name, value in part.items()}
        for part in reference.targets(2)
    ]
    batch = model.transform(images, targets)
    features = model.backbone(batch.images)
    losses = model.losses(features, batch)
    boxes, logits, corners, strides = model.told(features, batch)
    chance = 1 / (1 + np.exp(-logits.detach().numpy().astype(np.float64)))
    box_loss = thing_loss = class_loss = count = 0.0
    for number, (true, labels) in enumerate(zip(batch.boxes, batch.labels)):
        told = boxes.detach().numpy()[number].astype(np.float64)
        quality = detection.overlaps(true.astype(np.float64), told)
        learned = model._learned(true, labels, quality, chance[number], corners, strides)
        thing_loss -= np.where(learned >= 0, np.log(chance[number, :, 0]),
                               np.log(1 - chance[number, :, 0])).sum()  # fmt: skip
        for place in np.flatnonzero(learned >= 0):
            overlap = quality[learned[place], place]
            count += 1
            box_loss += 5 * (1 - overlap**2)
            for kind in (0, 1):
                goal = overlap if labels[learned[place]] == kind + 1 else 0
                guess = chance[number, place, kind + 1]
                class_loss -= goal * np.log(guess) + (1 - goal) * np.log(1 - guess)
    found = [losses[name].item() for name in ("loss_boxes", "loss_things", "loss_classes")]
    assert count >= 3
    expected = [box_loss / count, thing_loss / count, class_loss / count]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    sum(losses.values()).backward()
    slopes = [parameter.grad.numpy() for parameter in model.parameters()]
    assert all(np.isfinite(slope).all() for slope in slopes)
