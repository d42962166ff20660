"""Classifiers of images: torchvision's names and sizes, PyTorch's values, and learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from models import alexnet, googlenet, mobilenet_v2, squeezenet, vgg, vit
from tests.models.comparison import classification, compare, image_batch, parameter_count


@pytest.mark.parametrize(
    ("build", "count", "names"),
    [
        (vgg.vgg16, 138_357_544, ("features.0.weight", "features.28.bias", "classifier.6.bias")),
        (lambda: vgg.VGG(11, batch_norm=True), 132_868_840, ("features.26.running_var",)),
        (
            mobilenet_v2.MobileNetV2,
            3_504_872,
            (
                *("features.0.0.weight", "features.1.conv.1.weight"),
                *("features.17.conv.3.running_mean", "features.18.1.bias", "classifier.1.weight"),
            ),
        ),
        (
            squeezenet.SqueezeNet,
            1_248_424,
            ("features.3.squeeze.weight", "features.12.expand3x3.bias", "classifier.1.weight"),
        ),
        (lambda: squeezenet.SqueezeNet("1_1"), 1_235_496, ("features.12.squeeze.bias",)),
        (
            googlenet.GoogLeNet,
            6_624_904,
            ("conv1.conv.weight", "inception3a.branch2.1.bn.weight", "fc.bias"),
        ),
        (
            lambda: googlenet.GoogLeNet(aux_logits=True),
            13_004_888,
            ("aux1.conv.conv.weight", "aux2.fc2.bias"),
        ),
        (
            vit.vit_b_16,
            86_567_656,
            (
                *("class_token", "conv_proj.weight", "encoder.pos_embedding"),
                "encoder.layers.encoder_layer_0.self_attention.in_proj_weight",
                "encoder.layers.encoder_layer_11.self_attention.out_proj.bias",
                *("encoder.layers.encoder_layer_3.mlp.3.weight", "encoder.ln.weight"),
                "heads.head.bias",
            ),
        ),
        (vit.vit_s_16, 22_050_664, ()),
        (alexnet.AlexNet, 61_100_840, ("features.10.bias", "classifier.6.weight")),
    ],
)
def test_sizes_and_names_are_those_of_torchvision(
    build: Callable[[], Any], count: int, names: tuple[str, ...]
) -> None:
    model = build()
    assert parameter_count(model) == count
    assert set(names) <= set(model.state_dict())


def small_googlenet(module: Any) -> Any:
    return module.GoogLeNet(10, aux_logits=True, dropout=0.0).eval()


@pytest.mark.parametrize(
    ("name", "build", "size"),
    [
        ("vgg", lambda m: m.VGG(11, 10, True, 0.0, 1, 32), 32),
        ("mobilenet_v2", lambda m: m.MobileNetV2(10, 0.25, 0.0, 1), 32),
        ("squeezenet", lambda m: m.SqueezeNet("1_1", 10, 0.0), 32),
        ("alexnet", lambda m: m.AlexNet(10, 0.0, 16), 64),
        ("googlenet", small_googlenet, 40),
        ("vit", lambda m: m.VisionTransformer(16, 8, 2, 2, 12, 20, num_classes=10), 16),
    ],
)
def test_values_and_gradients_are_those_of_torch(
    name: str, build: Callable[[Any], Any], size: int
) -> None:
    compare(name, build, classification, *image_batch(2, size))


def test_auxiliary_classifiers_speak_in_training() -> None:
    model = googlenet.GoogLeNet(7, aux_logits=True)
    outputs = model(metaop.randn(2, 3, 64, 64))
    assert [tuple(part.shape) for part in outputs] == [(2, 7)] * 3
    assert model.eval()(metaop.randn(1, 3, 64, 64)).shape == (1, 7)


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (lambda: vgg.VGG(11, 10, True, 0.0, 1, 32), 32),
        (lambda: mobilenet_v2.MobileNetV2(10, 0.25, 0.0, 1), 32),
        (lambda: squeezenet.SqueezeNet("1_1", 10, 0.0), 32),
        (lambda: vit.VisionTransformer(16, 8, 2, 2, 12, 20, num_classes=10), 16),
    ],
)
def test_training_on_one_batch_lowers_its_loss(model: Callable[[], Any], size: int) -> None:
    metaop.manual_seed(0)
    network = model()
    images, labels = image_batch(8, size)
    batch = metaop.tensor(images.astype(np.float32)), metaop.tensor(labels)
    optimizer = metaop.optim.AdamW(network.parameters(), lr=1e-3)
    losses = []
    for _ in range(8):
        _, loss = classification(metaop, network, *batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


def test_a_demonstration_runs() -> None:
    assert np.isfinite(vit.main(["--steps", "3", "--batch-size", "4", "--width", "16"])).all()
