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


def rounded(values: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: np.asarray(value).round(6).tolist() for name, value in values.items()}


def main() -> None:
    import torch
    from torchvision.models import segmentation

    record: dict[str, Any] = {}
    for name, options in SEGMENTATION.items():
        model = getattr(segmentation, name)(weights=None, weights_backbone=None, **options)
        found = rounded(segmented(model, torch.from_numpy))
        record[name] = {**names(model), "found": found}
    FILE.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
