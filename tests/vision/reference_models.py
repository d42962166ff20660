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
    *("densenet121", "mobilenet_v3_small", "efficientnet_b0", "shufflenet_v2_x0_5", "mnasnet0_5"),
    *("inception_v3", "convnext_tiny", "regnet_y_400mf", "swin_t"),
    *("efficientnet_v2_s", "swin_v2_t"),
)
# With the determined numbers their rounding in float32 grows to a share of the logits.
DOUBLE = ("efficientnet_v2_s",)
SIZES = ("400mf", "800mf", "1_6gf", "3_2gf", "8gf", "16gf", "32gf")
NAMED = (
    *(*COMPUTED, "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "vgg11"),
    *("vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"),
    *("squeezenet1_0", "vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32"),
    *("resnext101_32x8d", "wide_resnet101_2", "densenet161", "densenet169", "densenet201"),
    *(f"efficientnet_b{number}" for number in range(1, 8)),
    *("shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0"),
    *("mnasnet0_75", "mnasnet1_0", "mnasnet1_3"),
    *("convnext_small", "convnext_base", "convnext_large", "swin_s", "swin_b"),
    *("swin_v2_s", "swin_v2_b", "efficientnet_v2_m", "efficientnet_v2_l"),
    *(f"regnet_y_{size}" for size in SIZES[1:]),
    *(f"regnet_x_{size}" for size in SIZES),
    "mobilenet_v3_large",
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


def image(name: str) -> np.ndarray:
    side = 75 if name == "inception_v3" else 64
    return np.random.default_rng(0).standard_normal((2, 3, side, side)).astype(np.float32)


def digest(entries: list[tuple[str, tuple[int, ...]]]) -> str:
    """A hash of the names and shapes of a state_dict, in its order."""
    lines = "\n".join(f"{name} {list(shape)}" for name, shape in entries)
    return hashlib.sha256(lines.encode()).hexdigest()


def entries_of(model: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(value.shape)) for name, value in model.state_dict().items()]


def logits(name: str, model: Any, tensor: Any) -> np.ndarray:
    """What a network with the determined numbers makes of the image."""
    kind = np.float64 if name in DOUBLE else np.float32

    def cast(values: np.ndarray) -> Any:
        return tensor(values.astype(kind) if values.dtype == np.float32 else values)

    model = model.double() if name in DOUBLE else model
    state = model.state_dict()
    for key, shape in entries_of(model):
        if not key.endswith("relative_position_index"):
            state[key] = cast(content(key, shape))
    model.load_state_dict(state)
    return model.eval()(cast(image(name))).detach().numpy()


def main() -> None:
    import torch
    from torchvision import models

    record: dict[str, Any] = {}
    for name in NAMED:
        # RegNet computes its widths with tensors.
        with torch.device("cpu" if name.startswith("regnet") else "meta"):
            skeleton = getattr(models, name)()
        record[name] = {"digest": digest(entries_of(skeleton))}
        if name in COMPUTED:
            found = logits(name, getattr(models, name)(), torch.from_numpy)
            record[name]["logits"] = found[:, :8].round(5).tolist()
            record[name]["scale"] = float(np.abs(found).max())
    FILE.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
