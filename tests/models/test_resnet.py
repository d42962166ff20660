"""ResNet: torchvision's names and sizes, PyTorch's values, and learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from models import resnet
from tests.models.comparison import classification, compare, image_batch, parameter_count


@pytest.mark.parametrize(
    ("build", "count", "tensors"),
    [
        (resnet.resnet18, 11_689_512, 122),
        (resnet.resnet34, 21_797_672, 218),
        (resnet.resnet50, 25_557_032, 320),
    ],
)
def test_sizes_are_those_of_torchvision(build: Any, count: int, tensors: int) -> None:
    model = build()
    assert parameter_count(model) == count
    assert len(model.state_dict()) == tensors


def test_names_are_those_of_torchvision() -> None:
    names = list(resnet.resnet50().state_dict())
    statistics = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert names[:6] == ["conv1.weight", *(f"bn1.{name}" for name in statistics)]
    assert "layer1.0.downsample.0.weight" in names and "layer2.0.downsample.1.bias" in names
    assert "layer4.2.conv3.weight" in names and names[-2:] == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
@pytest.mark.parametrize("block", ["BasicBlock", "Bottleneck"])
def test_values_and_gradients_are_those_of_torch(stem: str, block: str) -> None:
    def build(module: Any) -> Any:
        return module.ResNet(getattr(module, block), (1, 1, 1, 1), 10, stem=stem)

    compare("resnet", build, classification, *image_batch(2, 16 if stem == "cifar" else 40))


def test_training_lowers_the_loss() -> None:
    losses = resnet.main(["--steps", "8", "--batch-size", "16"])
    assert np.isfinite(losses).all() and np.mean(losses[-2:]) < losses[0]


def test_evaluation_uses_the_running_statistics() -> None:
    model = resnet.resnet18(10, "cifar").eval()
    images = metaop.randn(3, 3, 16, 16)
    with metaop.no_grad():
        together, alone = model(images), model(images[:1])
    np.testing.assert_allclose(together[:1].numpy(), alone.numpy(), rtol=1e-4, atol=1e-5)
