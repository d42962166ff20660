"""Small networks of `models/`, with inputs and the axes that may vary."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import metaop

random = np.random.default_rng(5)


class Case(NamedTuple):
    """A network, its inputs, the axes that vary, and their sizes in a second call."""

    build: Callable[[], Any]
    inputs: tuple[np.ndarray, ...]
    dynamic: Any = ()
    others: dict[str, int] = {}


def images(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def tokens(most: int, *shape: int) -> np.ndarray:
    return random.integers(0, most, shape)


BATCH = [{0: "batch"}]


def network(file: str, name: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(f"models.{file}"), name)(*arguments, **options)


def of_images(size: int, build: Callable[[], Any], channels: int = 3) -> Case:
    return Case(build, (images(2, channels, size, size),), BATCH, {"batch": 3})


def diffusion() -> Any:
    model = network("diffusion", "UNet", 1, width=4, groups=2)()
    for block in (model.before, model.down, model.up, model.after):
        metaop.nn.init.normal_(block.conv2.weight, 0.0, 0.3)
    return model


def fcn() -> Any:
    return network("fcn", "FCN", segmentation(), network("fcn", "FCNHead", 16, 3)(), None)()


def segmentation() -> Any:
    return network("segmentation", "small_backbone", 4)()


T5 = {"heads": 2, "head": 4, "hidden": 16, "dropout": 0.0, "buckets": 8, "furthest": 10}
BERT = {"layers": 2, "heads": 3, "hidden": 16, "context": 9}
SQUARE = [{0: "batch", 2: "height", 3: "width"}]
TEXT = [{0: "batch", 1: "length"}]

QUICK = {
    "mlp": Case(network("mlp", "MLP", 8, 16, 4), (images(3, 8),), BATCH, {"batch": 1}),
    "lenet": of_images(28, network("lenet", "LeNet"), 1),
    "resnet": of_images(32, network("resnet", "resnet18", num_classes=10)),
    "mobilenet_v2": of_images(32, network("mobilenet_v2", "MobileNetV2", 10, 0.25, 0.0, 1)),
    "densenet": of_images(24, network("densenet", "DenseNet", 4, (2, 2), 8, num_classes=10)),
    "unet": Case(
        network("unet", "UNet", 3, 2, 4, 2),
        (images(2, 3, 8, 12),),
        SQUARE,
        {"batch": 1, "height": 12, "width": 8},
    ),
    "dcgan": Case(network("dcgan", "Generator", 6, 4, 2, 16), (images(2, 6),), BATCH, {"batch": 3}),
    "gpt": Case(
        network("gpt", "GPT", 13, 16, 24, 2, 3),
        (tokens(13, 2, 5),),
        TEXT,
        {"batch": 3, "length": 9},
    ),
    "llama": Case(
        network("llama", "Llama", 13, 16, 24, layers=2, heads=6, kv_heads=2, hidden=40),
        (tokens(13, 2, 5),),
        TEXT,
        {"batch": 1, "length": 8},
    ),
    "lstm": Case(
        network("lstm", "LanguageModel", vocabulary=11, width=6, layers=2),
        (tokens(11, 4, 2),),
        [{1: "batch"}],
        {"batch": 5},
    ),
    "transformer": Case(
        network("transformer", "Transformer", 7, 6, 8, 2, 2, 12, 0.0),
        (tokens(7, 3, 6), tokens(7, 3, 4)),
        [{0: "batch"}, {0: "batch"}],
        {"batch": 2},
    ),
    "vit": of_images(16, network("vit", "VisionTransformer", 16, 8, 2, 2, 12, 20, num_classes=10)),
}

FURTHER = {
    "vgg": of_images(32, network("vgg", "VGG", 11, 10, True, 0.0, 1, 32)),
    "alexnet": of_images(64, network("alexnet", "AlexNet", 10, 0.0, 16)),
    "squeezenet": of_images(32, network("squeezenet", "SqueezeNet", "1_1", 10, 0.0)),
    "googlenet": of_images(40, network("googlenet", "GoogLeNet", 10)),
    "mobilenet_v3": of_images(
        32, network("mobilenet_v3", "MobileNetV3", "small", 10, 0.25, 0.0, 1)
    ),
    "efficientnet": of_images(
        32, network("efficientnet", "EfficientNet", 0.25, 0.3, 0.0, 10, 0.0, first_stride=1)
    ),
    "shufflenet_v2": of_images(
        48, network("shufflenet_v2", "ShuffleNetV2", (2, 1, 1), (8, 16, 24, 32, 40), 10)
    ),
    "mnasnet": of_images(32, network("mnasnet", "MNASNet", 0.1, 10, 0.0, 1)),
    "convnext": of_images(16, network("convnext", "ConvNeXt", (1, 2), (8, 16), 10, 0.0, 0.5)),
    "regnet": of_images(32, network("regnet", "RegNet", 4, 16, 12.0, 2.0, 8, 0.25, 10, 8)),
    "swin": of_images(
        15,
        network(
            *("swin", "SwinTransformer", 2, 8, (2, 2), (2, 4), 3),
            stochastic_depth_prob=0.0,
            num_classes=10,
        ),
    ),
    "fcn": Case(fcn, (images(2, 3, 16, 20),), BATCH, {"batch": 1}),
    "dcgan_discriminator": of_images(16, network("dcgan", "Discriminator", 4, 2, 16), 2),
    "cyclegan": Case(
        network("cyclegan", "Generator", 3, 4, 1),
        (images(2, 3, 8, 12),),
        BATCH,
        {"batch": 1},
    ),
    "diffusion": Case(
        diffusion, (images(3, 1, 4, 6), tokens(20, 3)), [{0: "n"}, {0: "n"}], {"n": 2}
    ),
    "bert": Case(
        network("bert", "MaskedLanguageModel", 17, width=12, **BERT),
        (tokens(17, 2, 6), np.ones((2, 6), np.int64)),
        [{0: "batch"}, {0: "batch"}],
        {"batch": 3},
    ),
    "t5": Case(
        network("t5", "T5", 11, 12, 2, 1, **T5),
        (tokens(11, 2, 6), tokens(11, 2, 4)),
        [{0: "batch"}, {0: "batch"}],
        {"batch": 3},
    ),
    "gpt2": Case(
        network("gpt2", "GPT2", vocabulary=13, context=16, width=24, layers=2, heads=3),
        (tokens(13, 2, 5),),
        TEXT,
        {"batch": 3, "length": 9},
    ),
    "mixture": Case(
        network("mixture", "Mixture", 13, 8, 24, 2, 6, 2, 16, experts=4, capacity=1.0),
        (tokens(13, 2, 8),),
    ),
    "whisper": Case(
        network("whisper", "WhisperEncoder", 6, 8, 12, 2, 3, 16),
        (images(2, 6, 16),),
        BATCH,
        {"batch": 3},
    ),
    "point_cloud": Case(
        network("point_cloud", "DGCNN", 3, k=4, width=4, dropout=0.0),
        (images(3, 3, 12),),
        BATCH,
        {"batch": 2},
    ),
}
NETWORKS = QUICK | FURTHER


def resized(case: Case) -> tuple[np.ndarray, ...]:
    """The inputs of the second call: the same numbers over and over."""
    found = []
    for number, array in enumerate(case.inputs):
        shape = list(array.shape)
        if number < len(case.dynamic):
            for axis, name in case.dynamic[number].items():
                shape[axis] = case.others[name]
        found.append(np.resize(array, shape))
    return tuple(found)
