"""Networks that tell the class of every pixel: torchvision's names and values, and learning."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError
from models import deeplabv3, fcn, pspnet, resnet, scenes, segmentation
from tests.models import torchvision_networks as reference
from tests.models.comparison import compare, parameter_count

RECORD: dict[str, Any] = json.loads(reference.FILE.read_text())
BUILDERS = {
    "fcn_resnet50": fcn.fcn_resnet50,
    "deeplabv3_resnet50": deeplabv3.deeplabv3_resnet50,
}
random = np.random.default_rng(6)


@pytest.mark.parametrize("name", BUILDERS)
def test_names_and_sizes_are_those_of_torchvision(name: str) -> None:
    model = BUILDERS[name](**reference.SEGMENTATION[name])
    known = RECORD[name]
    assert reference.names(model) == {key: known[key] for key in ("parameters", "digest")}


def test_logits_are_those_of_torchvision() -> None:
    with metaop.no_grad():
        found = reference.segmented(fcn.fcn_resnet50(aux_loss=True), metaop.from_numpy)
    for name, value in RECORD["fcn_resnet50"]["found"].items():
        scale = np.abs(value).max()
        np.testing.assert_allclose(found[name] / scale, np.array(value) / scale, atol=1e-4)


def logits_and_loss(library: Any, model: Any, images: Any, classes: Any) -> tuple[Any, Any]:
    found = model(images)
    entropy = library.nn.functional.cross_entropy
    return found["out"], sum(entropy(value, classes) for value in found.values())


def backbone(module: Any) -> Any:
    return module.small_backbone(4)


def small_fcn(module: Any) -> Any:
    return module.FCN(backbone(module), module.FCNHead(16, 3), module.FCNHead(8, 3))


def small_deeplab(module: Any) -> Any:
    return module.DeepLabV3(backbone(module), module.DeepLabHead(16, 3, (2, 3), 6))


def small_deeplab_plus(module: Any) -> Any:
    return module.DeepLabV3Plus(backbone(module), module.Decoder(16, 4, 3, (2, 3), 6, 2))


def small_pspnet(module: Any) -> Any:
    return module.PSPNet(backbone(module), module.PSPHead(16, 3, (1, 4)), None)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("fcn", small_fcn),
        ("deeplabv3", small_deeplab),
        ("deeplabv3", small_deeplab_plus),
        ("pspnet", small_pspnet),
    ],
)
def test_values_and_gradients_are_those_of_torch(name: str, build: Callable[[Any], Any]) -> None:
    def without_dropout(module: Any) -> Any:
        model = build(module)
        for part in model.modules():
            if "Dropout" in type(part).__name__:
                part.p = 0.0
        return model

    images, classes = random.uniform(0, 1, (2, 3, 20, 28)), random.integers(0, 3, (2, 20, 28))
    compare(name, without_dropout, logits_and_loss, images, classes)


def test_dilated_stages_keep_the_size_of_the_image() -> None:
    """Their values are compared with torchvision's in the logits of the FCN."""
    layers, options = (1, 2, 1, 2), {"width_per_group": 8}
    model = resnet.ResNet(
        resnet.Bottleneck, layers, 4, replace_stride_with_dilation=(True, False, True), **options
    )
    plain = resnet.ResNet(resnet.Bottleneck, layers, 4, **options)
    assert list(model.state_dict()) == list(plain.state_dict())
    convolutions = [model.layer2[0], model.layer2[1], model.layer3[0], model.layer4[1]]
    spread = [(block.conv2.stride, block.conv2.dilation) for block in convolutions]
    assert spread == [((1, 1), (1, 1)), ((1, 1), (2, 2)), ((2, 2), (2, 2)), ((1, 1), (4, 4))]


def test_only_bottlenecks_are_dilated() -> None:
    with pytest.raises(ArgumentError, match="of type Bottleneck"):
        resnet.ResNet(
            resnet.BasicBlock, (1, 1, 1, 2), replace_stride_with_dilation=(False, False, True)
        )


def test_sizes_of_networks_that_torchvision_has_not() -> None:
    """Counted by hand from the layers of the papers."""
    trunk = parameter_count(resnet.resnet50()) - parameter_count(resnet.resnet50().fc)
    pooling = 4 * (2048 * 512 + 2 * 512)
    head = pooling + 4096 * 512 * 9 + 2 * 512 + 512 * 21 + 21
    assert parameter_count(pspnet.pspnet_resnet50(aux_loss=False)) == trunk + head
    pyramid = 2048 * 256 + 3 * 9 * 2048 * 256 + 2048 * 256 + 5 * 2 * 256 + 1280 * 256 + 2 * 256
    decoder = 256 * 48 + 2 * 48 + 9 * 304 * 256 + 9 * 256 * 256 + 4 * 256 + 256 * 21 + 21
    assert parameter_count(deeplabv3.deeplabv3plus_resnet50()) == trunk + pyramid + decoder


def test_pixels_are_counted_as_by_sets() -> None:
    true, found = random.integers(-1, 3, (5, 6, 7)), random.integers(0, 3, (5, 6, 7))
    count = segmentation.PixelCount(4)
    for number in range(5):
        count.add(true[number], found[number])
    expected = [
        ((true == k) & (found == k)).sum() / ((true >= 0) & ((true == k) | (found == k))).sum()
        for k in range(3)
    ]
    np.testing.assert_allclose(count.intersection_over_union(), [*expected, np.nan])
    assert count.mean_iou() == pytest.approx(np.mean(expected))
    assert count.accuracy() == pytest.approx((true == found).sum() / (true >= 0).sum())


def test_scenes_follow_from_their_seed_and_their_boxes_hold_their_masks() -> None:
    first, again = (scenes.draw_scenes(20, 40, (3,)) for _ in range(2))
    for scene, same in zip(first, again):
        np.testing.assert_array_equal(scene.image, same.image)
        assert scene.masks.sum(0).max() == 1
        for box, label, mask in zip(scene.boxes.astype(int), scene.labels, scene.masks):
            assert 1 <= label < len(scenes.CLASSES)
            inside = np.zeros_like(mask)
            inside[box[1] : box[3], box[0] : box[2]] = True
            assert not (mask & ~inside).any()
            cut = mask[box[1] : box[3], box[0] : box[2]]
            assert all(edge.any() for edge in (cut[0], cut[-1], cut[:, 0], cut[:, -1]))
            assert (scene.classes()[mask] == label).all()
    assert any((a.image != b.image).any() for a, b in itertools.pairwise(first))


def test_an_option_chooses_the_network_with_a_decoder() -> None:
    small = ["--steps", "3", "--test", "4", "--batch-size", "4", "--size", "32", "--width", "8"]
    assert np.isfinite(deeplabv3.main([*small, "--plus", "1"]).losses).all()


def test_shapes_are_told_apart_after_training(tmp_path: Path) -> None:
    learned = fcn.main(["--steps", "250", "--out", str(tmp_path)])
    assert learned.mean_iou > 0.6
    assert json.loads((tmp_path / "metrics.json").read_text())["mean_iou"] == learned.mean_iou
    assert (tmp_path / "found.png").stat().st_size > 1000


def test_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    options = ["--steps", "8", "--test", "4", "--width", "8", "--size", "32"]
    whole = fcn.main([*options, "--checkpoint", str(tmp_path / "whole.pth")])
    assert metaop.load(tmp_path / "whole.pth")["history"] == {"loss": whole.losses}
    kept = [*options, "--checkpoint", str(tmp_path / "runs" / "part.pth"), "--every", "4"]

    class Stop(Exception):
        pass

    draw = segmentation.draw_scenes

    def stopping(count: int, size: int, seed: tuple[int, ...]) -> Any:
        if seed[-1] == 5:
            raise Stop
        return draw(count, size, seed)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr(segmentation, "draw_scenes", stopping)
        fcn.main(kept)
    assert len(metaop.load(tmp_path / "runs" / "part.pth")["history"]["loss"]) == 4
    again = fcn.main(kept)
    # Programs are cut elsewhere, so sums may round otherwise.
    np.testing.assert_allclose(again.losses, whole.losses, rtol=1e-5)
    assert again.mean_iou == pytest.approx(whole.mean_iou, abs=1e-2)
