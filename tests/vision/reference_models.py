"""What torchvision's networks are called inside and what they compute: recorded.

    python -m tests.vision.reference_models

writes `reference_models.json` with torchvision 0.28, the release for PyTorch 2.13.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("reference_models.json")
# Networks whose logits are recorded too; of the others the names of the parameters are enough.
COMPUTED = (
    *("resnet18", "resnext50_32x4d", "mobilenet_v2", "squeezenet1_1", "googlenet", "alexnet"),
)
NAMED = (
    *(*COMPUTED, "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "vgg11"),
    *("vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"),
    *("squeezenet1_0", "vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32"),
    *("resnext101_32x8d", "wide_resnet101_2"),
)


def content(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers for an entry of a state_dict, determined by its name."""
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("running_var"):
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) > 1:
        fan_in = int(np.prod(shape[1:]))
        return (random.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
    return (random.uniform(-0.1, 0.1, shape) + name.endswith("weight")).astype(np.float32)


def image() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 3, 64, 64)).astype(np.float32)


def digest(entries: list[tuple[str, tuple[int, ...]]]) -> str:
    """A hash of the names and shapes of a state_dict, in its order."""
    lines = "\n".join(f"{name} {list(shape)}" for name, shape in entries)
    return hashlib.sha256(lines.encode()).hexdigest()


def entries_of(model: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(value.shape)) for name, value in model.state_dict().items()]


def logits(model: Any, tensor: Any) -> np.ndarray:
    """What a network with the determined numbers makes of the image."""
    model.load_state_dict({name: tensor(content(name, s)) for name, s in entries_of(model)})
    return model.eval()(tensor(image())).detach().numpy()


def main() -> None:
    import torch
    from torchvision import models

    record: dict[str, Any] = {}
    for name in NAMED:
        with torch.device("meta"):
            skeleton = getattr(models, name)()
        record[name] = {"digest": digest(entries_of(skeleton))}
        if name in COMPUTED:
            found = logits(getattr(models, name)(), torch.from_numpy)
            record[name]["logits"] = found[:, :8].round(5).tolist()
            record[name]["scale"] = float(np.abs(found).max())
    FILE.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
