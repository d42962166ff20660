"""Object detectors, under torchvision's names.

Example: `fasterrcnn_resnet50_fpn(num_classes=3)`. The interface is torchvision's: a list of images
in [0, 1] (3, height, width) gives dictionaries of boxes, labels and scores, or losses in training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop import nn
from metaop.errors import ArgumentError
from metaop.vision import models
from metaop.vision.models.segmentation import refuse_backbone

_BUILDERS = {
    "fasterrcnn_resnet50_fpn": "faster_rcnn",
    "maskrcnn_resnet50_fpn": "mask_rcnn",
    "retinanet_resnet50_fpn": "retinanet",
    "ssd300_vgg16": "ssd",
}
_CLASSES = {
    "FasterRCNN": "faster_rcnn",
    "FastRCNNPredictor": "faster_rcnn",
    "TwoMLPHead": "faster_rcnn",
    "RPNHead": "faster_rcnn",
    "RegionProposalNetwork": "faster_rcnn",
    "RoIHeads": "faster_rcnn",
    "MaskRCNN": "mask_rcnn",
    "RetinaNet": "retinanet",
    "RetinaNetHead": "retinanet",
    "SSD": "ssd",
    "SSDHead": "ssd",
    "DefaultBoxGenerator": "ssd",
    "AnchorGenerator": "detection",
    "BackboneWithFPN": "feature_pyramid",
}


def _builder(name: str, module: str) -> Callable[..., nn.Module]:
    def build(
        *,
        weights: Any = None,
        progress: bool = True,
        num_classes: int | None = None,
        weights_backbone: Any = None,
        **options: Any,
    ) -> nn.Module:
        refuse_backbone(name, weights_backbone)
        if weights is not None:
            raise ArgumentError(
                f"{name} got weights={weights!r}: the published files are for frozen normalisation",
                fix="build it without, and load a state_dict of this network",
            )
        make = getattr(models.program(module), name)
        return make(91 if num_classes is None else num_classes, **options)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = (
        f"The network {name} with random parameters and 91 classes unless `num_classes` is given."
        f"\n\n    Further `options` are those of `metaop.models.{module}`. Raises ArgumentError\n"
        "    for `weights` and `weights_backbone`, because nothing is downloaded."
    )
    return build


for _name, _module in _BUILDERS.items():
    globals()[_name] = _builder(_name, _module)


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(models.program(_CLASSES[name]), name)
    raise AttributeError(f"module 'metaop.vision.models.detection' has no attribute {name!r}")
