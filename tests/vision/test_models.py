"""torchvision's networks: names of parameters and logits as recorded, weights that load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import hub
from metaop.errors import ArgumentError, CheckpointError
from metaop.vision import models
from tests.vision import reference_models as reference

RECORD: dict[str, Any] = json.loads(reference.FILE.read_text())


@pytest.mark.parametrize("name", reference.NAMED)
def test_parameters_are_called_as_in_torchvision(name: str) -> None:
    model = getattr(models, name)()
    assert reference.digest(reference.entries_of(model)) == RECORD[name]["digest"]


@pytest.mark.parametrize("name", reference.COMPUTED)
def test_logits_are_those_of_torchvision(name: str) -> None:
    with metaop.no_grad():
        found = reference.logits(getattr(models, name)(), metaop.from_numpy)
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
    preset = models.ResNet18_Weights.DEFAULT.transforms()
    assert preset(metaop.vision.datasets.FakeData(1)[0][0]).shape == (3, 224, 224)
