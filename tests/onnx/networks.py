"""A small form of every network of `models/` that takes and returns tensors, and its inputs."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import metaop
from metaop import nn
from models import gan

Build = Callable[[Any], Any]


def images(size: int, channels: int = 3) -> Any:
    """Two images."""
    return metaop.rand(2, channels, size, size)


def tokens(count: int, length: int) -> Any:
    """Two rows of tokens."""
    return metaop.randint(0, count, (2, length))


def mask(length: int) -> Any:
    """Which of two rows' tokens are there."""
    return (metaop.arange(length) < metaop.tensor([[length], [length - 2]])).long()


def small(module: Any) -> Any:
    """A network for segmentation, as the program of its file makes it."""
    return module.small(argparse.Namespace(width=4, size=32, plus=False))


class FirstOf(nn.Module):
    """A network without the hidden state that it takes and returns."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Any) -> Any:
        return self.network(x)[0]


class InOrder(nn.Module):
    """Heads on the maps of a trunk, behind each other."""

    def __init__(self, trunk: Any, heads: Any) -> None:
        super().__init__()
        self.trunk, self.heads = trunk, heads

    def forward(self, x: Any) -> Any:
        maps = self.trunk(x).values()
        return metaop.cat([head(value) for head, value in zip(self.heads, maps)], 1)


def yolox_parts(module: Any) -> Any:
    return InOrder(
        module.PAFPN(2, 1), nn.ModuleList([module.Head(count, 4, 2) for count in (8, 16, 32)])
    )


BERT = {"context": 8, "layers": 2, "heads": 3, "hidden": 16, "dropout": 0.0}
# The file in models/, how a small network is made of it, and its inputs.
NETWORKS: dict[str, tuple[str, Build, Callable[[], tuple[Any, ...]]]] = {
    "alexnet": ("alexnet", lambda m: m.AlexNet(10, 0.0, 16), lambda: (images(64),)),
    "bert": ("bert", lambda m: m.BERT(13, width=12, **BERT), lambda: (tokens(13, 6), mask(6))),
    "masked_language": (
        "bert",
        lambda m: m.MaskedLanguageModel(13, width=12, **BERT),
        lambda: (tokens(13, 6), mask(6), mask(6)),
    ),
    "classifier_of_acgan": (
        "acgan", lambda m: m.Classifier(4, 1, 16, 10), lambda: (images(16, 1),),
    ),
    "cgan": (
        "cgan",
        lambda m: m.ConditionalGenerator(gan.Generator(16, 8, 8), 10),
        lambda: (metaop.randn(2, 6), metaop.tensor([3, 7])),
    ),
    "convnext": (
        "convnext", lambda m: m.ConvNeXt((1, 2), (8, 16), 10, 0.0, 0.5), lambda: (images(16),),
    ),
    "cyclegan": ("cyclegan", lambda m: m.Generator(3, 4, 1), lambda: (images(16),)),
    "dcgan": ("dcgan", lambda m: m.Generator(6, 4, 2, 16), lambda: (metaop.randn(2, 6),)),
    "discriminator_of_dcgan": (
        "dcgan",
        lambda m: m.Discriminator(4, 2, 16),
        lambda: (images(16, 2),),
    ),
    "deeplabv3": ("deeplabv3", small, lambda: (images(32),)),
    "densenet": (
        "densenet",
        lambda m: m.DenseNet(4, (2, 2), 8, num_classes=10),
        lambda: (images(24),),
    ),
    "diffusion": (
        "diffusion",
        lambda m: m.UNet(1, width=4, groups=2),
        lambda: (metaop.randn(2, 1, 8, 8), metaop.tensor([3, 9])),
    ),
    "ebgan": ("ebgan", lambda m: m.Autoencoder(4, 1, 16, 8), lambda: (images(16, 1),)),
    "efficientnet": (
        "efficientnet",
        lambda m: m.EfficientNet(0.25, 0.3, 0.0, 10, 0.0, first_stride=1),
        lambda: (images(32),),
    ),
    "fcn": ("fcn", small, lambda: (images(32),)),
    "gan": ("gan", lambda m: m.Generator(6, 8, 8), lambda: (metaop.randn(2, 6),)),
    "discriminator_of_gan": ("gan", lambda m: m.Discriminator(8, 8), lambda: (images(8, 1),)),
    "googlenet": ("googlenet", lambda m: m.GoogLeNet(10, dropout=0.0), lambda: (images(40),)),
    "gpt": ("gpt", lambda m: m.GPT(13, 8, 24, 2, 3), lambda: (tokens(13, 6),)),
    "gpt2": ("gpt2", lambda m: m.GPT2(13, 8, 24, 2, 3), lambda: (tokens(13, 6),)),
    "gru": (
        "lstm", lambda m: FirstOf(m.LanguageModel(13, 8, 2, kind=nn.GRU)), lambda: (tokens(13, 5),),
    ),
    "inception": (
        "inception_v3",
        lambda m: nn.Sequential(
            m.InceptionA(4, 4), m.InceptionB(228), m.InceptionC(708, 8), m.InceptionD(768),
            m.InceptionE(1280),
        ),
        lambda: (metaop.rand(2, 4, 9, 9),),
    ),
    "infogan": (
        "infogan",
        lambda m: m.CodedGenerator(gan.Generator(18, 8, 8), 10),
        lambda: (metaop.randn(2, 6), metaop.tensor([3, 7]), metaop.randn(2, 2)),
    ),
    "knowledge": (
        "knowledge",
        lambda m: m.RotatE(7, 3, 6),
        lambda: (tokens(7, 1)[:, 0], tokens(3, 1)[:, 0], tokens(7, 1)[:, 0]),
    ),
    "lenet": ("lenet", lambda m: m.LeNet(), lambda: (images(28, 1),)),
    "llama": (
        "llama", lambda m: m.Llama(13, 8, 24, 2, 6, 2, 16), lambda: (tokens(13, 6),),
    ),
    "lstm": ("lstm", lambda m: m.LanguageModel(13, 8, 2), lambda: (tokens(13, 5),)),
    "minilm": (
        "minilm",
        lambda m: m.SentenceEncoder(m.BERT(13, width=12, **BERT)),
        lambda: (tokens(13, 6), mask(6)),
    ),
    "mixture": (
        "mixture",
        lambda m: m.Mixture(13, 8, 24, 2, 6, 2, 16, experts=4, capacity=1.0),
        lambda: (tokens(13, 6),),
    ),
    "mlp": ("mlp", lambda m: m.MLP(8, 12, 3), lambda: (metaop.randn(2, 8),)),
    "mnasnet": ("mnasnet", lambda m: m.MNASNet(0.1, 10, 0.0, 1), lambda: (images(32),)),
    "mobilenet_v2": (
        "mobilenet_v2", lambda m: m.MobileNetV2(10, 0.25, 0.0, 1), lambda: (images(32),),
    ),
    "mobilenet_v3": (
        "mobilenet_v3",
        lambda m: m.MobileNetV3("small", 10, 0.25, 0.0, 1),
        lambda: (images(32),),
    ),
    "point_cloud": (
        "point_cloud", lambda m: m.DGCNN(3, k=4, width=4), lambda: (metaop.randn(2, 3, 12),),
    ),
    "pspnet": ("pspnet", small, lambda: (images(32),)),
    "regnet": (
        "regnet", lambda m: m.RegNet(4, 16, 12.0, 2.0, 8, 0.25, 10, 8), lambda: (images(32),),
    ),
    "res2net": (
        "res2net", lambda m: m.Bottle2neck(32, 8, 1, None), lambda: (metaop.rand(2, 32, 8, 8),),
    ),
    "resnet": (
        "resnet", lambda m: m.ResNet(m.Bottleneck, (1, 1, 1, 1), 10), lambda: (images(40),),
    ),
    "shufflenet_v2": (
        "shufflenet_v2",
        lambda m: m.ShuffleNetV2((2, 1, 1), (8, 16, 24, 32, 40), 10),
        lambda: (images(48),),
    ),
    "squeezenet": ("squeezenet", lambda m: m.SqueezeNet("1_1", 10, 0.0), lambda: (images(32),)),
    "swin": (
        "swin",
        lambda m: m.SwinTransformer(2, 8, (2, 2), (2, 4), 3, num_classes=10),
        lambda: (images(15),),
    ),
    "t5": (
        "t5",
        lambda m: m.T5(11, 12, 2, 1, 2, 4, 16, 0.0, buckets=8, furthest=10),
        lambda: (tokens(11, 6), tokens(11, 4), mask(6)),
    ),
    "transformer": (
        "transformer",
        lambda m: m.Transformer(7, 6, 8, heads=2, layers=2, hidden=12),
        lambda: (tokens(7, 6), tokens(7, 4)),
    ),
    "unet": ("unet", lambda m: m.UNet(3, 2, 4, 2), lambda: (images(16),)),
    "vgg": ("vgg", lambda m: m.VGG(11, 10, True, 0.0, 1, 32), lambda: (images(32),)),
    "vit": (
        "vit",
        lambda m: m.VisionTransformer(16, 8, 2, 2, 12, 20, num_classes=10),
        lambda: (images(16),),
    ),
    "whisper": (
        "whisper",
        lambda m: m.AudioClassifier(m.WhisperEncoder(6, 8, 12, 2, 3, 16), 4),
        lambda: (metaop.randn(2, 6, 16),),
    ),
    "yolox": ("yolox_layers", yolox_parts, lambda: (images(64),)),
}  # fmt: skip


def network(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A small network in evaluation, and inputs for it."""
    file, build, inputs = NETWORKS[name]
    metaop.manual_seed(5)
    model = build(importlib.import_module(f"models.{file}")).eval()
    # Fresh networks give zeros, or hardly more.
    for key, value in model.state_dict().items():
        if "running_var" in key:
            value.uniform_(0.5, 1.5)
        elif value.dtype.kind == "float":
            value.add_(0.1 * metaop.randn(value.shape))
    return model, inputs()
