"""Networks under torchvision's names, compatible with its weights: the programs of `models/`.

Example: `resnet18(num_classes=10)`, or `resnet18(weights="DEFAULT")` with weights from the folder
of `metaop.hub`, downloaded if they are missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError

from metaop import hub, nn
from metaop.errors import ArgumentError, CheckpointError
from metaop.vision import transforms
from metaop.vision.layer_getter import IntermediateLayerGetter as IntermediateLayerGetter
from metaop.vision.networks import AUXILIARY, NETWORKS, evaluated, normalised

_SERVER = "https://download.pytorch.org/models/"


# torchvision's argument names where ours differ.
_RENAMED = {"width_mult": "width"}
# Class names of weights with irregular spelling.
_SPELLING = {
    **{"wide_resnet": "Wide_ResNet", "resnet": "ResNet", "resnext": "ResNeXt", "vgg": "VGG"},
    **{"mobilenet_v": "MobileNet_V", "squeezenet": "SqueezeNet", "googlenet": "GoogLeNet"},
    **{"alexnet": "AlexNet", "32x8d": "32X8D", "densenet": "DenseNet", "convnext": "ConvNeXt"},
    **{"vit_b": "ViT_B", "vit_l": "ViT_L", "_bn": "_BN", "32x4d": "32X4D", "mnasnet": "MNASNet"},
    **{"efficientnet_b": "EfficientNet_B", "shufflenet_v2_x": "ShuffleNet_V2_X"},
    **{"inception_v": "Inception_V", "regnet_x": "RegNet_X", "regnet_y": "RegNet_Y"},
    **{"_small": "_Small", "_large": "_Large", "_tiny": "_Tiny", "_base": "_Base"},
    **{"efficientnet_v2_": "EfficientNet_V2_", "V2_s": "V2_S", "V2_m": "V2_M", "V2_l": "V2_L"},
    **{"swin_v2_t": "Swin_V2_T", "swin_v2_s": "Swin_V2_S", "swin_v2_b": "Swin_V2_B"},
    **{"swin_t": "Swin_T", "swin_s": "Swin_S", "swin_b": "Swin_B"},
}
_SIZES = re.compile(r"(?<=\d)[mg]f$")


def program(name: str) -> ModuleType:
    """A module of `models/`: inside the installed package, or beside it in a checkout."""
    try:
        return importlib.import_module(f"metaop.models.{name}")
    except ModuleNotFoundError as error:
        if error.name != "metaop.models":
            raise
    folder = Path(__file__).parents[3] / "models"
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

    network: str

    @property
    def url(self) -> str:
        """The address of the file."""
        return f"{_SERVER}{self.value}.pth"

    def transforms(self) -> transforms.Compose:
        """The preprocessing with which the weights were evaluated."""
        side, cut, interpolation = evaluated(self.network, self.name)
        return transforms.Compose(
            [
                transforms.Resize(side, transforms.InterpolationMode(interpolation)),
                transforms.CenterCrop(cut),
                transforms.ToTensor(),
                transforms.Normalize(*normalised(self.network)),
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
    return _SIZES.sub(lambda found: found[0].upper(), network) + "_Weights"


def _weights_class(network: str) -> type[WeightsEnum]:
    files = NETWORKS[network].files
    members = {**files, "DEFAULT": list(files.values())[-1]}
    kind: Any = WeightsEnum(_weights_name(network), members)  # type: ignore
    kind.network = network
    return kind


def _chosen(name: str, weights: Any) -> WeightsEnum | None:
    """The member selected by an argument `weights` or `pretrained`."""
    kind: Any = globals()[_weights_name(name)]
    if weights is None or weights is False:
        return None
    return kind.IMAGENET1K_V1 if weights is True else member(name, kind, weights)


def member(name: str, kind: Any, weights: Any) -> WeightsEnum:
    """The member of `kind` that `weights` is or names. Raises ArgumentError if there is none."""
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
        source = program(network.module)
        chosen = _chosen(name, weights if weights is not None else pretrained)
        arguments = {**network.options, **{_RENAMED.get(k, k): v for k, v in options.items()}}
        if "block" in arguments:
            arguments["block"] = getattr(source, arguments["block"])
        kind = getattr(source, network.kind)
        if chosen is None:
            return kind(**arguments)
        state = _current_names(chosen.get_state_dict(progress))
        if name in AUXILIARY:
            return _without_auxiliary(kind, state, arguments, *AUXILIARY[name], options)
        model = kind(**arguments)
        model.load_state_dict(state)
        return model

    build.__name__ = build.__qualname__ = name
    build.__doc__ = (
        f"The network {name}, with random parameters unless `weights` are named.\n\n"
        f"    `options` are those of `metaop.models.{network.module}.{network.kind}`."
    )
    return build


def _current_names(state: dict[str, Any]) -> dict[str, Any]:
    """Renames keys of DenseNet files, which have a dot that module names cannot have."""
    old = re.compile(r"(denselayer\d+\.(?:norm|conv))\.(\d)")
    return {old.sub(r"\1\2", name): value for name, value in state.items()}


def _without_auxiliary(
    kind: Callable[..., nn.Module],
    state: dict[str, Any],
    arguments: dict[str, Any],
    auxiliary: tuple[str, ...],
    kept: bool,
    options: dict[str, Any],
) -> nn.Module:
    """As in torchvision: weights include auxiliary classifiers, which may be dropped."""
    model = kind(**{"transform_input": True, **arguments, "aux_logits": True})
    model.load_state_dict(state)
    if not options.get("aux_logits", kept):
        for name in auxiliary:
            setattr(model, name, None)
    return model


for _name in NETWORKS:
    globals()[_weights_name(_name)] = _weights_class(_name)
    globals()[_name] = _builder(_name)

_CLASSES = {network.kind: network.module for network in NETWORKS.values()}


def __getattr__(name: str) -> Any:
    if name == "resnet":
        return importlib.import_module(f"{__name__}.resnet")
    if name in _CLASSES:
        return getattr(program(_CLASSES[name]), name)
    raise AttributeError(f"module 'metaop.vision.models' has no attribute {name!r}")


def list_models() -> list[str]:
    """The names of the networks."""
    return sorted(NETWORKS)


def get_model(name: str, **config: Any) -> nn.Module:
    """Builds the network with a name."""
    if name not in NETWORKS:
        raise ArgumentError(f"Unknown model {name}", fix=f"choose {', '.join(list_models())}")
    return globals()[name](**config)


# Imported last because they use this module.
from metaop.vision.models import detection, segmentation  # noqa: E402
