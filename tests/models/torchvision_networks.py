"""What torchvision's networks that mark and find things are called inside and compute: recorded.

    python -m tests.models.torchvision_networks

writes `torchvision_networks.json` with torchvision 0.28, the release for PyTorch 2.13. The tests
compare our networks with that file, so they need no torchvision.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.vision.reference_models import content, digest, entries_of

FILE = Path(__file__).with_suffix(".json")
# Full networks, by what they are built with beside no weights.
SEGMENTATION: dict[str, dict[str, Any]] = {
    "fcn_resnet50": {"aux_loss": True},
    "deeplabv3_resnet50": {"aux_loss": True},
}
DETECTION = (
    *("ssd300_vgg16", "retinanet_resnet50_fpn", "fasterrcnn_resnet50_fpn"),
    "maskrcnn_resnet50_fpn",
)
# Small detectors, whose losses, gradients and results are recorded.
SMALL = ("ssd", "retinanet", "fasterrcnn", "maskrcnn")
# With unbounded samples nothing is drawn at random.
ALL = 100_000
LAST_LAYERS = ("cls_logits", "bbox_reg", "bbox_pred", "cls_score", "mask_fcn", "module_list")


def fill(model: Any, tensor: Any) -> Any:
    """The model with numbers that follow from the names of its entries."""
    model.load_state_dict({k: tensor(content(k, shape)) for k, shape in entries_of(model)})
    return model


def names(model: Any) -> dict[str, Any]:
    """The size of a network, and a hash of the names and shapes of its entries."""
    count = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": count, "digest": digest(entries_of(model))}


def pictures(count: int, height: int, width: int, seed: int = 0) -> list[np.ndarray]:
    """Images (3, height, width) in [0, 1]."""
    random = np.random.default_rng(seed)
    return list(random.uniform(0, 1, (count, 3, height, width)).astype(np.float32))


def segmented(model: Any, tensor: Any) -> dict[str, np.ndarray]:
    """Logits of all classifiers for a small image, at some pixels."""
    images = tensor(np.stack(pictures(1, 40, 48)))
    found = fill(model, tensor).eval()(images)
    return {name: value.detach().numpy()[0, ::7, ::9, ::9] for name, value in found.items()}


def small_trunk(nn: Any) -> Any:
    """Two stages that leave a quarter and an eighth of the image."""
    stages = [nn.Conv2d(3, 6, 5, 4, 2), nn.ReLU()], [nn.Conv2d(6, 8, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*(nn.Sequential(*stage) for stage in stages))


def targets(count: int) -> list[dict[str, np.ndarray]]:
    """Two or three things for each image of 60 × 80 pixels, which may lie anywhere."""
    random = np.random.default_rng(1)
    found = []
    for number in range(count):
        things = 2 + number
        corner = random.uniform(0, (40, 25), (things, 2))
        size = random.uniform(12, 35, (things, 2))
        boxes = np.concatenate([corner, corner + size], 1).astype(np.float32)
        rows, columns = np.mgrid[:60, :80]
        x1, y1, x2, y2 = boxes.T[:, :, None, None]
        inside = (columns > x1) & (columns < x2) & (rows > y1) & (rows < y2)
        masks = inside & ((rows + columns) % 9 > 2)
        labels = random.integers(1, 3, things)
        found.append({"boxes": boxes, "labels": labels, "masks": masks.astype(np.uint8)})
    return found


def small_fill(model: Any, tensor: Any) -> Any:
    """The model with numbers that follow from names, and results that are not extreme."""
    numbers = {}
    for name, shape in entries_of(model):
        faint = 0.2 if any(part in name for part in LAST_LAYERS) else 1.0
        numbers[name] = tensor((content(name, shape) * faint).astype(np.float32))
    model.load_state_dict(numbers)
    return model


def detected(model: Any, tensor: Any) -> dict[str, Any]:
    """The losses of a small detector, sums over its gradients, and what it finds in images.

    Of each image the ten surest things and their number are kept.
    """
    images = [tensor(picture) for picture in pictures(2, 60, 80)]
    goals = [{k: tensor(v) for k, v in target.items()} for target in targets(2)]
    small_fill(model, tensor).train()
    losses = model(images, goals)
    sum(losses.values()).backward()
    slopes = {}
    for name, parameter in model.named_parameters():
        slope = parameter.grad.numpy().astype(np.float64)
        probe = np.random.default_rng(2).standard_normal(slope.shape)
        slopes[name] = np.array([np.sqrt((slope**2).sum()), (slope * probe).sum()])
    results = [
        {name: value.detach().numpy() for name, value in found.items()}
        for found in model.eval()(images)
    ]
    return {
        "losses": {name: float(value.detach().numpy()) for name, value in losses.items()},
        "slopes": slopes,
        "counts": [len(result["scores"]) for result in results],
        "results": [
            {k: v[:10, :, ::6, ::7] if k == "masks" else v[:10] for k, v in result.items()}
            for result in results
        ],
    }


def rounded(values: Any) -> Any:
    """Arrays in dicts and lists as lists of numbers."""
    if isinstance(values, dict):
        return {name: rounded(value) for name, value in values.items()}
    if isinstance(values, list):
        return [rounded(value) for value in values]
    numbers = np.array([float(f"{x:.7g}") for x in np.asarray(values, np.float64).reshape(-1)])
    return numbers.reshape(np.shape(values)).tolist()


def small_of_torchvision(name: str) -> Any:
    """The small detectors as torchvision builds them: `test_detection.small` builds ours."""
    from torch import nn
    from torchvision.models import detection
    from torchvision.models.detection import anchor_utils, backbone_utils, faster_rcnn, mask_rcnn
    from torchvision.ops import MultiScaleRoIAlign

    backbone = backbone_utils.BackboneWithFPN(small_trunk(nn), {"0": "0", "1": "1"}, [6, 8], 4)
    sides = {"min_size": 60, "max_size": 96}
    if name == "ssd":
        backbone.out_channels = [4, 4, 4]
        boxes = anchor_utils.DefaultBoxGenerator([[2], [2, 3], [2]], scales=[0.2, 0.3, 0.5, 0.7])
        return detection.ssd.SSD(backbone, boxes, (64, 72), 3)
    if name == "retinanet":
        anchors = anchor_utils.AnchorGenerator(((12, 16), (20, 28), (30, 38)), ((0.5, 1.0),) * 3)
        return detection.RetinaNet(backbone, 3, anchor_generator=anchors, **sides)
    options = {
        "rpn_anchor_generator": anchor_utils.AnchorGenerator(
            ((12,), (20,), (30,)), ((0.5, 1.0, 2.0),) * 3
        ),
        "box_roi_pool": MultiScaleRoIAlign(["0", "1"], 3, 2, canonical_scale=32, canonical_level=3),
        "box_head": faster_rcnn.TwoMLPHead(4 * 9, 10),
        "box_predictor": faster_rcnn.FastRCNNPredictor(10, 3),
        "rpn_pre_nms_top_n_train": 90,
        "rpn_pre_nms_top_n_test": 80,
        "rpn_post_nms_top_n_train": 70,
        "rpn_post_nms_top_n_test": 60,
        "rpn_batch_size_per_image": ALL,
        "box_batch_size_per_image": ALL,
        **sides,
    }
    if name == "fasterrcnn":
        return detection.FasterRCNN(backbone, **options)
    return detection.MaskRCNN(
        backbone,
        mask_roi_pool=MultiScaleRoIAlign(["0", "1"], 4, 2, canonical_scale=32, canonical_level=3),
        mask_head=mask_rcnn.MaskRCNNHeads(4, (5, 5, 5, 5), 1),
        mask_predictor=mask_rcnn.MaskRCNNPredictor(5, 5, 3),
        **options,
    )


def main() -> None:
    import torch
    from torchvision.models import detection, segmentation

    record: dict[str, Any] = {}
    for name, options in SEGMENTATION.items():
        model = getattr(segmentation, name)(weights=None, weights_backbone=None, **options)
        found = rounded(segmented(model, torch.from_numpy))
        record[name] = {**names(model), "found": found}
    for name in DETECTION:
        with torch.device("meta"):
            model = getattr(detection, name)(weights=None, weights_backbone=None)
        record[name] = names(model)
    for name in SMALL:
        record[name] = rounded(detected(small_of_torchvision(name), torch.from_numpy))
    FILE.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
