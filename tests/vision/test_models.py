"""torchvision's networks: names of parameters and logits as recorded, weights that load."""

from __future__ import annotations

import importlib
import json
import re
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import hub, nn
from metaop.errors import ArgumentError, CheckpointError
from metaop.vision import models
from tests.models import torchvision_networks
from tests.vision import reference_models as reference

RECORD: dict[str, Any] = json.loads(reference.FILE.read_text())


@pytest.mark.parametrize("name", reference.NAMED)
def test_parameters_are_called_as_in_torchvision(name: str) -> None:
    model = getattr(models, name)()
    assert reference.digest(reference.entries_of(model)) == RECORD[name]["digest"]


@pytest.mark.parametrize("name", reference.COMPUTED)
def test_logits_are_those_of_torchvision(name: str) -> None:
    with metaop.no_grad():
        found = reference.logits(name, getattr(models, name)(), metaop.from_numpy)
    scale = RECORD[name]["scale"]
    np.testing.assert_allclose(
        found[:, :8] / scale, np.array(RECORD[name]["logits"]) / scale, rtol=0, atol=1e-4
    )


def test_the_record_has_every_network() -> None:
    assert set(RECORD) == set(reference.NAMED) == set(models.NETWORKS)
    assert models.list_models() == sorted(models.NETWORKS)


def saved_weights(name: str, file: str) -> dict[str, metaop.Tensor]:
    folder = Path(hub.get_dir(), "checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    model = getattr(models, name)()
    state = {
        key: metaop.from_numpy(reference.content(key, shape))
        for key, shape in reference.entries_of(model)
    }
    metaop.save(state, folder / file)
    return state


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "DEFAULT"},
        {"weights": models.SqueezeNet1_1_Weights.IMAGENET1K_V1},
        {"weights": "SqueezeNet1_1_Weights.DEFAULT"},
        {"pretrained": True},
    ],
)
def test_weights_are_found_in_the_folder_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(hub, "_chosen", [str(tmp_path)])
    state = saved_weights("squeezenet1_1", "squeezenet1_1-b8a52dc0.pth")
    model = models.squeezenet1_1(**options)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[name].numpy())


def test_weights_of_densenet_have_the_names_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_chosen", [str(tmp_path)])
    state = saved_weights("densenet121", "densenet121-a639ec97.pth")
    old = re.compile(r"(denselayer\d+\.(?:norm|conv))(\d)")
    renamed = {old.sub(r"\1.\2", name): value for name, value in state.items()}
    assert "features.denseblock1.denselayer1.norm.1.weight" in renamed
    metaop.save(renamed, tmp_path / "checkpoints" / "densenet121-a639ec97.pth")
    model = models.densenet121(weights="DEFAULT")
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[name].numpy())


def test_pretrained_inception_keeps_its_auxiliary_classifier_unless_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_chosen", [str(tmp_path)])
    saved_weights("inception_v3", "inception_v3_google-0cc3c7bd.pth")
    model = models.inception_v3(weights="DEFAULT")
    assert model.AuxLogits is not None and model.transform_input
    assert models.inception_v3(weights="DEFAULT", aux_logits=False).AuxLogits is None


@pytest.mark.parametrize(
    ("weights", "side", "cut", "interpolation"),
    [
        (models.ResNet50_Weights.IMAGENET1K_V1, 256, 224, "bilinear"),
        (models.RegNet_Y_3_2GF_Weights.IMAGENET1K_V2, 232, 224, "bilinear"),
        (models.EfficientNet_B1_Weights.IMAGENET1K_V1, 256, 240, "bicubic"),
        (models.EfficientNet_B1_Weights.DEFAULT, 255, 240, "bilinear"),
        (models.Inception_V3_Weights.DEFAULT, 342, 299, "bilinear"),
        (models.Swin_S_Weights.DEFAULT, 246, 224, "bicubic"),
        (models.ViT_L_16_Weights.DEFAULT, 242, 224, "bilinear"),
        (models.EfficientNet_V2_L_Weights.DEFAULT, 480, 480, "bicubic"),
        (models.Swin_V2_B_Weights.DEFAULT, 272, 256, "bicubic"),
    ],
)
def test_images_go_through_what_the_weights_were_evaluated_with(
    weights: models.WeightsEnum, side: int, cut: int, interpolation: str
) -> None:
    resize, crop, _, norm = weights.transforms().transforms
    centred = weights is models.EfficientNet_V2_L_Weights.DEFAULT
    assert tuple(norm.mean) == ((0.5, 0.5, 0.5) if centred else (0.485, 0.456, 0.406))
    assert resize.size == side and resize.interpolation.value == interpolation
    assert tuple(crop.size) == (cut, cut)


def test_pretrained_googlenet_loses_its_auxiliary_classifiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_chosen", [str(tmp_path)])
    saved_weights("googlenet", "googlenet-1378be20.pth")
    model = models.googlenet(weights="DEFAULT")
    assert model.aux1 is None and model.transform_input
    assert models.googlenet(weights="DEFAULT", aux_logits=True).aux2 is not None


def test_weights_out_of_reach_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from urllib.error import URLError

    def unreachable(*args: Any, **options: Any) -> Any:
        raise URLError("no network")

    monkeypatch.setattr(hub, "_chosen", [str(tmp_path)])
    monkeypatch.setattr(hub.urllib.request, "urlopen", unreachable)
    with pytest.raises(CheckpointError, match=r"resnet18-f37072fd.pth cannot be downloaded"):
        models.resnet18(pretrained=True, progress=False)
    with pytest.raises(ArgumentError, match="has no weights 'V9'"):
        models.resnet18(weights="V9")
    with pytest.raises(ArgumentError, match="Unknown model"):
        models.get_model("resnet7")


def test_feature_maps_come_from_inside() -> None:
    model = models.resnet18().eval()
    inside = models.IntermediateLayerGetter(model, {"layer1": "low", "layer3": "high"})
    images = metaop.randn(1, 3, 32, 32)
    found = inside(images)
    assert list(found) == ["low", "high"] and found["high"].shape == (1, 256, 2, 2)
    stem = model.maxpool(model.relu(model.bn1(model.conv1(images))))
    np.testing.assert_allclose(
        found["low"].detach().numpy(), model.layer1(stem).detach().numpy(), atol=1e-5
    )
    with pytest.raises(ArgumentError, match="not present"):
        models.IntermediateLayerGetter(model, {"layer9": "x"})


def test_options_are_those_of_torchvision() -> None:
    assert models.resnet18(num_classes=7).fc.out_features == 7
    assert models.mobilenet_v2(width_mult=0.5, num_classes=3).classifier[1].out_features == 3
    assert models.ResNet is type(models.get_model("resnet18"))
    assert models.mobilenet_v3_small(width_mult=0.5).classifier[0].out_features == 512
    preset = models.ResNet18_Weights.DEFAULT.transforms()
    assert preset(metaop.vision.datasets.FakeData(1)[0][0]).shape == (3, 224, 224)


def test_programs_build_residual_networks_of_their_own() -> None:
    """As they do from torchvision's blocks, by its names and in its order of arguments."""
    resnet = importlib.import_module("metaop.vision.models.resnet")
    assert models.resnet is resnet and resnet.resnet18 is models.resnet18
    names = "inplanes planes stride downsample groups base_width dilation norm_layer".split()
    for block in (resnet.BasicBlock, resnet.Bottleneck):
        assert [*signature(block).parameters] == names
        assert block(64, 64 // block.expansion)(metaop.ones(1, 64, 3, 3)).shape == (1, 64, 3, 3)

    class Wide(resnet.BasicBlock):
        expansion = 2

        def __init__(self, inplanes: int, planes: int, *shape: Any, **options: Any) -> None:
            super().__init__(inplanes, planes, *shape, **options)
            self.conv2 = resnet.conv3x3(planes, 2 * planes)
            self.bn2 = nn.BatchNorm2d(2 * planes)

    class Encoder(resnet.ResNet):
        def __init__(self, **options: Any) -> None:
            super().__init__(Wide, [1, 1, 1, 2], zero_init_residual=True, **options)
            self.layer5 = self._make_layer(Wide, 16, 1, stride=2)
            del self.fc

        def _forward_impl(self, x: metaop.Tensor) -> metaop.Tensor:
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            return self.layer5(self.layer4(self.layer3(self.layer2(self.layer1(x)))))

    encoder = Encoder(norm_layer=nn.BatchNorm2d)
    assert encoder(metaop.rand(2, 3, 64, 64)).shape == (2, 32, 1, 1)
    assert encoder.inplanes == 32 and not encoder.layer1[0].bn2.weight.any()
    assert resnet.resnext50_32x4d().layer1[0].conv2.groups == 32
    with pytest.raises(ArgumentError, match="BasicBlock: groups=2"):
        resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], groups=2)


WHOLE = (
    *[("segmentation", name) for name in ("fcn_resnet50", "deeplabv3_resnet50")],
    *[("detection", name) for name in ("ssd300_vgg16", "retinanet_resnet50_fpn")],
    *[("detection", name) for name in ("fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn")],
)


@pytest.mark.parametrize(("module", "name"), WHOLE)
def test_networks_that_mark_and_find_things_have_the_names_of_torchvision(
    module: str, name: str
) -> None:
    record = json.loads(torchvision_networks.FILE.read_text())[name]
    options = torchvision_networks.SEGMENTATION.get(name, {})
    build = getattr(importlib.import_module(f"metaop.vision.models.{module}"), name)
    assert torchvision_networks.names(build(weights=None, **options)) == {
        key: record[key] for key in ("parameters", "digest")
    }
    with pytest.raises(ArgumentError, match="weights_backbone='DEFAULT'"):
        build(weights_backbone="DEFAULT")


def test_heads_of_detectors_may_be_changed() -> None:
    detector = models.detection.fasterrcnn_resnet50_fpn(num_classes=3)
    predictor = models.detection.FastRCNNPredictor(1024, 5)
    assert isinstance(detector.roi_heads.box_predictor, type(predictor))
    assert isinstance(detector, models.detection.FasterRCNN)
    assert models.segmentation.fcn_resnet50(num_classes=4).classifier[4].out_channels == 4
    with pytest.raises(ArgumentError, match="frozen normalisation"):
        models.detection.ssd300_vgg16(weights="DEFAULT")


def test_weights_of_segmentation_are_found_in_the_folder_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_chosen", [str(tmp_path)])
    (tmp_path / "checkpoints").mkdir()
    network = models.segmentation.fcn_resnet50(aux_loss=True)
    entries = reference.entries_of(network)
    state = {key: metaop.from_numpy(reference.content(key, shape)) for key, shape in entries}
    metaop.save(state, tmp_path / "checkpoints" / "fcn_resnet50_coco-1167a1af.pth")
    weights = models.segmentation.FCN_ResNet50_Weights.DEFAULT
    found = models.segmentation.fcn_resnet50(weights=weights).state_dict()
    name = "aux_classifier.4.weight"
    np.testing.assert_array_equal(found[name].numpy(), state[name].numpy())
    assert weights.transforms().transforms[0].size == 520
    with pytest.raises(ArgumentError, match="21 classes with an auxiliary classifier"):
        models.segmentation.fcn_resnet50(weights=weights, num_classes=3)
