"""Networks under torchvision's names, whose weights load: the programs of `models/`.

Example: `resnet18(num_classes=10)`, or `resnet18(weights="DEFAULT")` with weights that are found in
(or downloaded into) the folder of `metaop.hub`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.error import URLError

from metaop import hub, nn
from metaop.errors import ArgumentError, CheckpointError
from metaop.vision import transforms
from metaop.vision.layer_getter import IntermediateLayerGetter as IntermediateLayerGetter

_SERVER = "https://download.pytorch.org/models/"


class Network(NamedTuple):
    """The class of a network, its arguments, and its weights by their torchvision names."""

    module: str
    kind: str
    options: dict[str, Any]
    files: dict[str, str]


def _residual(block: str, layers: tuple[int, ...], *files: str, **options: int) -> Network:
    arguments = {"block": block, "layers": layers, **options}
    names = ("IMAGENET1K_V1", "IMAGENET1K_V2")
    return Network("resnet", "ResNet", arguments, dict(zip(names, files)))


def _plain(depth: int, batch_norm: bool, file: str) -> Network:
    options = {"depth": depth, "batch_norm": batch_norm}
    return Network("vgg", "VGG", options, {"IMAGENET1K_V1": file})


def _transformer(patch: int, layers: int, heads: int, width: int, file: str) -> Network:
    options = {
        **{"patch_size": patch, "num_layers": layers, "num_heads": heads},
        **{"hidden_dim": width, "mlp_dim": 4 * width},
    }
    return Network("vit", "VisionTransformer", options, {"IMAGENET1K_V1": file})


_BASIC, _BOTTLENECK = "BasicBlock", "Bottleneck"
NETWORKS = {
    "resnet18": _residual(_BASIC, (2, 2, 2, 2), "resnet18-f37072fd"),
    "resnet34": _residual(_BASIC, (3, 4, 6, 3), "resnet34-b627a593"),
    "resnet50": _residual(_BOTTLENECK, (3, 4, 6, 3), "resnet50-0676ba61", "resnet50-11ad3fa6"),
    "resnet101": _residual(_BOTTLENECK, (3, 4, 23, 3), "resnet101-63fe2227", "resnet101-cd907fc2"),
    "resnet152": _residual(_BOTTLENECK, (3, 8, 36, 3), "resnet152-394f9c45", "resnet152-f82ba261"),
    "resnext50_32x4d": _residual(
        *(_BOTTLENECK, (3, 4, 6, 3), "resnext50_32x4d-7cdf4587", "resnext50_32x4d-1a0047aa"),
        groups=32,
        width_per_group=4,
    ),
    "resnext101_32x8d": _residual(
        *(_BOTTLENECK, (3, 4, 23, 3), "resnext101_32x8d-8ba56ff5", "resnext101_32x8d-110c445d"),
        groups=32,
        width_per_group=8,
    ),
    "wide_resnet101_2": _residual(
        *(_BOTTLENECK, (3, 4, 23, 3), "wide_resnet101_2-32ee1156", "wide_resnet101_2-d733dc28"),
        width_per_group=128,
    ),
    "wide_resnet50_2": _residual(
        *(_BOTTLENECK, (3, 4, 6, 3), "wide_resnet50_2-95faca4d", "wide_resnet50_2-9ba9bcbe"),
        width_per_group=128,
    ),
    "vgg11": _plain(11, False, "vgg11-8a719046"),
    "vgg13": _plain(13, False, "vgg13-19584684"),
    "vgg16": _plain(16, False, "vgg16-397923af"),
    "vgg19": _plain(19, False, "vgg19-dcbb9e9d"),
    "vgg11_bn": _plain(11, True, "vgg11_bn-6002323d"),
    "vgg13_bn": _plain(13, True, "vgg13_bn-abd245e5"),
    "vgg16_bn": _plain(16, True, "vgg16_bn-6c64b313"),
    "vgg19_bn": _plain(19, True, "vgg19_bn-c79401a0"),
    "mobilenet_v2": Network(
        *("mobilenet_v2", "MobileNetV2", {}),
        {"IMAGENET1K_V1": "mobilenet_v2-b0353104", "IMAGENET1K_V2": "mobilenet_v2-7ebf99e0"},
    ),
    "squeezenet1_0": Network(
        *("squeezenet", "SqueezeNet", {"version": "1_0"}),
        {"IMAGENET1K_V1": "squeezenet1_0-b66bff10"},
    ),
    "squeezenet1_1": Network(
        *("squeezenet", "SqueezeNet", {"version": "1_1"}),
        {"IMAGENET1K_V1": "squeezenet1_1-b8a52dc0"},
    ),
    "googlenet": Network(
        *("googlenet", "GoogLeNet", {"aux_logits": True}),
        {"IMAGENET1K_V1": "googlenet-1378be20"},
    ),
    "alexnet": Network("alexnet", "AlexNet", {}, {"IMAGENET1K_V1": "alexnet-owt-7be5be79"}),
    "vit_b_16": _transformer(16, 12, 12, 768, "vit_b_16-c867db91"),
    "vit_b_32": _transformer(32, 12, 12, 768, "vit_b_32-d86f8d99"),
    "vit_l_16": _transformer(16, 24, 16, 1024, "vit_l_16-852ce7e3"),
    "vit_l_32": _transformer(32, 24, 16, 1024, "vit_l_32-c7638314"),
}

# torchvision's names of arguments where ours differ.
_RENAMED = {"width_mult": "width"}
# Class names of weights are spelled in their own ways.
_SPELLING = {
    **{"wide_resnet": "Wide_ResNet", "resnet": "ResNet", "resnext": "ResNeXt", "vgg": "VGG"},
    **{"mobilenet_v": "MobileNet_V", "squeezenet": "SqueezeNet", "googlenet": "GoogLeNet"},
    **{"alexnet": "AlexNet", "32x8d": "32X8D"},
    **{"vit_b": "ViT_B", "vit_l": "ViT_L", "_bn": "_BN", "32x4d": "32X4D"},
}


def _program(name: str) -> ModuleType:
    """A module of `models/`: inside the installed package, or beside it in a checkout."""
    try:
        return importlib.import_module(f"metaop.models.{name}")
    except ModuleNotFoundError as error:
        if error.name != "metaop.models":
            raise
    folder = Path(__file__).parents[2] / "models"
    spec = importlib.util.spec_from_file_location(
        "metaop.models", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["metaop.models"] = package
    spec.loader.exec_module(package)
    return importlib.import_module(f"metaop.models.{name}")


class WeightsEnum(Enum):
    """The published weights of a network; `DEFAULT` names the best ones."""

    @property
    def url(self) -> str:
        """Where the file is."""
        return f"{_SERVER}{self.value}.pth"

    def transforms(self) -> transforms.Compose:
        """What images went through when the weights were evaluated."""
        side = 232 if self.name.endswith("V2") else 256
        return transforms.Compose(
            [
                transforms.Resize(side),
                transforms.CenterCrop(224),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def get_state_dict(self, progress: bool = True, check_hash: bool = True) -> Any:
        """The weights, from the folder of `metaop.hub` or from their server.

        Raises CheckpointError when the server cannot be reached.
        """
        try:
            return hub.load_state_dict_from_url(self.url, progress=progress, check_hash=check_hash)
        except URLError as error:
            raise CheckpointError(
                f"{self.url} cannot be downloaded ({error.reason})",
                fix=f"put the file into {Path(hub.get_dir(), 'checkpoints')}",
            ) from error


def _weights_name(network: str) -> str:
    for ours, theirs in _SPELLING.items():
        network = network.replace(ours, theirs)
    return f"{network}_Weights"


def _weights_class(network: str) -> type[WeightsEnum]:
    files = NETWORKS[network].files
    members = {**files, "DEFAULT": list(files.values())[-1]}
    return WeightsEnum(_weights_name(network), members)  # type: ignore


def _chosen(name: str, weights: Any) -> WeightsEnum | None:
    """The member that an argument `weights` or `pretrained` stands for."""
    kind: Any = globals()[_weights_name(name)]
    if weights is None or weights is False:
        return None
    if weights is True:
        return kind.IMAGENET1K_V1
    if isinstance(weights, kind):
        return weights
    label = str(weights).rpartition(".")[2]
    if label not in kind.__members__:
        raise ArgumentError(
            f"{name} has no weights {weights!r}", fix=f"choose from {', '.join(kind.__members__)}"
        )
    return kind[label]


def _builder(name: str) -> Callable[..., nn.Module]:
    network = NETWORKS[name]

    def build(
        pretrained: Any = None, progress: bool = True, *, weights: Any = None, **options: Any
    ) -> nn.Module:
        program = _program(network.module)
        chosen = _chosen(name, weights if weights is not None else pretrained)
        arguments = {**network.options, **{_RENAMED.get(k, k): v for k, v in options.items()}}
        if "block" in arguments:
            arguments["block"] = getattr(program, arguments["block"])
        if chosen is None:
            return getattr(program, network.kind)(**arguments)
        if name == "googlenet":
            return _pretrained_googlenet(program, chosen, progress, options)
        model = getattr(program, network.kind)(**arguments)
        model.load_state_dict(chosen.get_state_dict(progress))
        return model

    build.__name__ = build.__qualname__ = name
    build.__doc__ = (
        f"The network {name}, with random parameters unless `weights` are named.\n\n"
        f"    `options` are those of `metaop.models.{network.module}.{network.kind}`."
    )
    return build


def _pretrained_googlenet(
    program: ModuleType, weights: WeightsEnum, progress: bool, options: dict[str, Any]
) -> nn.Module:
    """As in torchvision: weights come with auxiliary classifiers, which go unless asked for."""
    keeps = options.get("aux_logits", False)
    model = program.GoogLeNet(**{"transform_input": True, **options, "aux_logits": True})
    model.load_state_dict(weights.get_state_dict(progress))
    if not keeps:
        model.aux1 = model.aux2 = None
    return model


for _name in NETWORKS:
    globals()[_weights_name(_name)] = _weights_class(_name)
    globals()[_name] = _builder(_name)

_CLASSES = {network.kind: network.module for network in NETWORKS.values()}


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(_program(_CLASSES[name]), name)
    raise AttributeError(f"module 'metaop.vision.models' has no attribute {name!r}")


def list_models() -> list[str]:
    """The names of the networks."""
    return sorted(NETWORKS)


def get_model(name: str, **config: Any) -> nn.Module:
    """The network of a name."""
    if name not in NETWORKS:
        raise ArgumentError(f"Unknown model {name}", fix=f"there are {', '.join(list_models())}")
    return globals()[name](**config)
