"""Networks of image features: PyTorch's values, gradients and training steps, and learning.

Names, sizes and logits are compared with torchvision's in `tests/vision/test_models.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from models import convnext, efficientnet, regnet, res2net, swin
from models.__main__ import main, networks
from tests.models.comparison import classification, compare, image_batch, parameter_count


def small_swin(module: Any, kind: Any = None) -> Any:
    kind = kind or module.SwinTransformer
    return kind(2, 8, (2, 2), (2, 4), 3, stochastic_depth_prob=0.0, num_classes=10)


# At night only: networks of the layers of others, each of which takes half a minute to compile.
NIGHTLY = ("efficientnet_v2", "mnasnet", "mobilenet_v3", "regnet", "swin_v2")
NETWORKS: list[tuple[str, Callable[[Any], Any], int]] = [
    ("densenet", lambda m: m.DenseNet(4, (2, 2), 8, num_classes=10), 24),
    ("mobilenet_v3", lambda m: m.MobileNetV3("small", 10, 0.25, 0.0, 1), 32),
    ("efficientnet", lambda m: m.EfficientNet(0.25, 0.3, 0.0, 10, 0.0, first_stride=1), 32),
    (
        "efficientnet_v2",
        lambda m: m.EfficientNetV2("s", 0.0, 10, 0.0, 0.3, 0.1, first_stride=1, last_channels=32),
        32,
    ),
    ("shufflenet_v2", lambda m: m.ShuffleNetV2((2, 1, 1), (8, 16, 24, 32, 40), 10), 48),
    ("mnasnet", lambda m: m.MNASNet(0.1, 10, 0.0, 1), 32),
    ("convnext", lambda m: m.ConvNeXt((1, 2), (8, 16), 10, 0.0, 0.5), 16),
    ("regnet", lambda m: m.RegNet(4, 16, 12.0, 2.0, 8, 0.25, 10, 8), 32),
    ("swin", small_swin, 15),  # 8 x 8 patches in windows of 3: images are filled up
    ("swin_v2", lambda m: small_swin(m, m.SwinTransformerV2), 15),
]


@pytest.mark.parametrize(
    ("name", "build", "size"),
    [
        pytest.param(*one, marks=[pytest.mark.nightly] if one[0] in NIGHTLY else [])
        for one in NETWORKS
    ],
)
def test_values_gradients_and_steps_are_those_of_torch(
    name: str, build: Callable[[Any], Any], size: int
) -> None:
    compare(name, build, classification, *image_batch(2, size), steps=3)


def mean_square(library: Any, model: Any, x: Any) -> tuple[Any, Any]:
    found = model(x)
    return found, (found**2).mean()


def inception_blocks(module: Any) -> Any:
    return module.nn.Sequential(
        module.InceptionA(4, 4),
        module.InceptionB(228),
        module.InceptionC(708, 8),
        module.InceptionD(768),
        module.InceptionE(1280),
    )


def res2net_blocks(module: Any) -> Any:
    """One that projects its input, and one that does not; the rest is ResNet."""
    projection = module.nn.Conv2d(6, 32, 1, 2)
    return module.nn.Sequential(
        module.Bottle2neck(6, 8, 2, projection), module.Bottle2neck(32, 8, 1, None)
    )


@pytest.mark.parametrize(
    ("name", "build", "shape"),
    [
        ("inception_v3", inception_blocks, (2, 4, 9, 9)),
        ("inception_v3", lambda m: m.InceptionAux(4, 10), (2, 4, 17, 17)),
        ("res2net", res2net_blocks, (2, 6, 8, 8)),
        ("densenet", lambda m: m.DenseBlock(2, 4, 4, 2, 0.0, memory_efficient=True), (2, 4, 6, 6)),
    ],
)
def test_parts_are_those_of_torch(
    name: str, build: Callable[[Any], Any], shape: tuple[int, ...]
) -> None:
    images = np.random.default_rng(4).standard_normal(shape)
    compare(name, build, mean_square, images, steps=3 if name == "res2net" else 0)


def test_names_and_size_of_res2net_are_those_of_the_authors_program() -> None:
    model = res2net.res2net50()
    assert parameter_count(model) == 25_699_120
    names = list(model.state_dict())
    assert len(names) == 512 and names[-2:] == ["fc.weight", "fc.bias"]
    statistics = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert names[6:34] == [
        "layer1.0.conv1.weight",
        *(f"layer1.0.bn1.{name}" for name in statistics),
        *(f"layer1.0.convs.{number}.weight" for number in range(3)),
        *(f"layer1.0.bns.{number}.{name}" for number in range(3) for name in statistics),
        *("layer1.0.conv3.weight", *(f"layer1.0.bn3.{name}" for name in statistics[:3])),
    ]


def test_stages_of_regnet_are_those_of_the_paper() -> None:
    """RegNetX-3.2GF has these blocks and widths in the appendix of the paper."""
    stages = regnet.RegNet(25, 88, 26.31, 2.25, 48).trunk_output
    assert [len(stage) for stage in stages] == [2, 6, 15, 2]
    assert [stage[0].f.c[0].out_channels for stage in stages] == [96, 192, 432, 1008]


def test_windows_that_the_shift_brought_together_do_not_see_each_other() -> None:
    """A pixel of the first row changes none that only the shifted windows join it with."""
    metaop.manual_seed(0)
    attention = swin.ShiftedWindowAttention(4, 2, 4, 2, 0.0, 0.0)
    images = metaop.randn(1, 8, 8, 4)
    changed = images.clone()
    changed[0, 0, 0] += 1
    with metaop.no_grad():
        differ = (attention(images) != attention(changed)).any(-1)[0].numpy()
    # The first window has its corner in the last two rows and columns, apart from the rest.
    assert differ[:2, :2].all() and differ.sum() == 4


def test_samples_skip_deep_blocks_in_training() -> None:
    model = efficientnet.EfficientNet(0.25, 0.5, num_classes=2)
    drops = [block.stochastic_depth.p for stage in model.features[1:-1] for block in stage]
    assert drops[0] == 0 and drops[-1] == pytest.approx(0.2 * (len(drops) - 1) / len(drops))
    assert drops == sorted(drops)


def test_training_lowers_the_loss() -> None:
    losses = convnext.main(["--steps", "40", "--width", "16"])
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < 0.95 * losses[0]


def test_the_list_has_every_network(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(networks())
    assert {"alexnet", "swin", "res2net", "gpt"} <= set(networks())
    assert not {"demonstration", "__main__"} & set(networks())
    for name in networks():
        assert callable(importlib.import_module(f"models.{name}").main)
    assert main(["mlp", "train", "--steps", "25"]) > 0.5
    with pytest.raises(SystemExit, match="did you mean resnet.*python -m models list"):
        main(["resnet7", "train"])
    with pytest.raises(SystemExit, match="no network 'reznet'; did you mean"):
        main(["coverage", "reznet"])
    with pytest.raises(SystemExit, match="use: python -m models mlp train"):
        main(["mlp", "test"])


@pytest.mark.parametrize("name", ["resnet", "vgg"])
def test_other_depths_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "train", "--depth", "17"])
    assert "17" in capsys.readouterr().err
