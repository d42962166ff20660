"""Semantic segmentation networks, under torchvision's names.

Example: `fcn_resnet50(num_classes=5)`, or `fcn_resnet50(weights="DEFAULT")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop import nn
from metaop.errors import ArgumentError
from metaop.vision import models, transforms

_CLASSES = {
    "FCN": "fcn",
    "FCNHead": "fcn",
    "DeepLabV3": "deeplabv3",
    "DeepLabHead": "deeplabv3",
    "ASPP": "deeplabv3",
}


class SegmentationWeights(models.WeightsEnum):
    """The published weights of a segmentation network."""

    def transforms(self) -> transforms.Compose:
        """The preprocessing with which the weights were evaluated."""
        return transforms.Compose(
            [
                transforms.Resize(520),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )


class FCN_ResNet50_Weights(SegmentationWeights):
    """Trained on COCO with the classes of Pascal VOC."""

    COCO_WITH_VOC_LABELS_V1 = "fcn_resnet50_coco-1167a1af"
    DEFAULT = COCO_WITH_VOC_LABELS_V1


class DeepLabV3_ResNet50_Weights(SegmentationWeights):
    """Trained on COCO with the classes of Pascal VOC."""

    COCO_WITH_VOC_LABELS_V1 = "deeplabv3_resnet50_coco-cd0a2569"
    DEFAULT = COCO_WITH_VOC_LABELS_V1


def refuse_backbone(name: str, weights_backbone: Any) -> None:
    """Raises ArgumentError if weights are requested for the backbone."""
    if weights_backbone is not None:
        raise ArgumentError(
            f"{name} got weights_backbone={weights_backbone!r}",
            fix="build it without, and load a state_dict into model.backbone",
        )


def _builder(name: str, module: str, kind: Any) -> Callable[..., nn.Module]:
    def build(
        *,
        weights: Any = None,
        progress: bool = True,
        num_classes: int | None = None,
        aux_loss: bool | None = None,
        weights_backbone: Any = None,
    ) -> nn.Module:
        refuse_backbone(name, weights_backbone)
        make = getattr(models.program(module), name)
        if weights is None:
            return make(21 if num_classes is None else num_classes, bool(aux_loss))
        if num_classes not in (None, 21) or aux_loss is False:
            raise ArgumentError(
                f"the weights of {name} are those of 21 classes with an auxiliary classifier, "
                f"not of num_classes={num_classes}, aux_loss={aux_loss}",
                fix="omit both",
            )
        model = make(21, True)
        model.load_state_dict(models.member(name, kind, weights).get_state_dict(progress))
        return model

    build.__name__ = build.__qualname__ = name
    build.__doc__ = (
        f"The network {name}, with random parameters unless `weights` are named.\n\n"
        "    It has 21 classes unless `num_classes` says otherwise; `aux_loss` adds a classifier\n"
        "    of its third stage. Raises ArgumentError for `weights_backbone`."
    )
    return build


fcn_resnet50 = _builder("fcn_resnet50", "fcn", FCN_ResNet50_Weights)
deeplabv3_resnet50 = _builder("deeplabv3_resnet50", "deeplabv3", DeepLabV3_ResNet50_Weights)


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(models.program(_CLASSES[name]), name)
    raise AttributeError(f"module 'metaop.vision.models.segmentation' has no attribute {name!r}")
