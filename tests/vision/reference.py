"""What torchvision gives for an image: recorded, so that the tests need it only to record again.

    python -m tests.vision.reference

writes `reference.npz` with torchvision 0.28, the release for PyTorch 2.13.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("reference.npz")
KINDS = ("bytes", "floats", "pillow")

# The corners of the image, and where they go.
_TILT = (
    [[0, 0], [14, 0], [14, 10], [0, 10]],
    [[2, 1], [13, 1], [12, 9], [1, 8]],
)

# Name, arguments, options; a text for an interpolation is the name of a member.
Case = tuple[str, tuple[Any, ...], dict[str, Any]]
CASES: list[Case] = [
    ("hflip", (), {}),
    ("vflip", (), {}),
    ("crop", (2, 3, 5, 6), {}),
    ("crop", (-2, -3, 5, 30), {}),
    ("center_crop", ([5, 6],), {}),
    ("center_crop", ([20, 8],), {}),
    ("pad", ([2, 3],), {}),
    ("pad", ([2, 3, 4, 5],), {"fill": 7}),
    ("pad", ([2],), {"padding_mode": "reflect"}),
    ("pad", ([1, 2, 3, 4],), {"padding_mode": "edge"}),
    ("pad", ([1, 2, 3, 4],), {"padding_mode": "symmetric"}),
    ("resize", ([6],), {}),
    ("resize", ([6, 25],), {}),
    ("resize", ([20],), {"interpolation": "BICUBIC"}),
    ("resize", ([5],), {"interpolation": "BICUBIC"}),
    ("resize", ([5],), {"interpolation": "NEAREST"}),
    ("resize", ([20],), {"interpolation": "NEAREST_EXACT"}),
    ("resize", ([9],), {"max_size": 11}),
    ("resized_crop", (1, 2, 7, 9, [8, 10]), {}),
    ("five_crop", ([4, 5],), {}),
    ("ten_crop", ([4, 5],), {}),
    ("affine", (17.0, [2, 3], 1.2, [5.0, 3.0]), {}),
    (
        "affine",
        (17.0, [2, 3], 0.8, [5.0, 3.0]),
        {"interpolation": "BILINEAR", "fill": [9.0, 8.0, 7.0], "center": [3, 4]},
    ),
    ("rotate", (33.0,), {}),
    ("rotate", (33.0,), {"expand": True, "interpolation": "BILINEAR"}),
    ("rotate", (-50.0,), {"center": [2, 3], "fill": [5.0, 6.0, 7.0]}),
    ("rotate", (90.0,), {"expand": True}),
    ("perspective", _TILT, {}),
    ("perspective", _TILT, {"fill": [3.0, 2.0, 1.0], "interpolation": "NEAREST"}),
    ("gaussian_blur", ([5, 3],), {}),
    ("gaussian_blur", ([3, 5], [1.0, 2.0]), {}),
    ("adjust_brightness", (0.5,), {}),
    ("adjust_brightness", (1.7,), {}),
    ("adjust_contrast", (0.5,), {}),
    ("adjust_contrast", (1.7,), {}),
    ("adjust_saturation", (0.5,), {}),
    ("adjust_saturation", (1.7,), {}),
    ("adjust_sharpness", (0.5,), {}),
    ("adjust_sharpness", (1.7,), {}),
    ("adjust_hue", (0.2,), {}),
    ("adjust_hue", (-0.4,), {}),
    ("adjust_gamma", (1.7, 1.1), {}),
    ("rgb_to_grayscale", (1,), {}),
    ("rgb_to_grayscale", (3,), {}),
    ("invert", (), {}),
    ("posterize", (3,), {}),
    ("solarize", (100,), {}),
    ("autocontrast", (), {}),
    ("equalize", (), {}),
]
# What is defined for images of bytes only.
BYTES_ONLY = ("posterize", "solarize", "equalize")


def image() -> np.ndarray:
    """A smooth image (3, 11, 15) of bytes with different channels."""
    y, x = np.mgrid[0:11, 0:15]
    phase = np.array([0.0, 1.7, 3.9])[:, None, None]
    waves = np.sin(0.7 * x + phase) * np.cos(0.5 * y - phase) + 0.3 * np.sin(x * y / 9 + phase)
    return ((waves - waves.min()) / (waves.max() - waves.min()) * 255).astype(np.uint8)


def picture(kind: str, tensor: Any) -> Any:
    """The image as one of `KINDS`; `tensor` makes a library's tensor of an array."""
    if kind == "pillow":
        from PIL import Image

        return Image.fromarray(np.ascontiguousarray(image().transpose(1, 2, 0)))
    return tensor(image() if kind == "bytes" else (image() / 255).astype(np.float32))


def run(functional: Any, case: Case, kind: str, tensor: Any) -> list[np.ndarray]:
    """The results of a case in one library, as arrays."""
    name, arguments, options = case
    if "interpolation" in options:
        mode = getattr(functional.InterpolationMode, options["interpolation"])
        options = options | {"interpolation": mode}
    result = getattr(functional, name)(picture(kind, tensor), *arguments, **options)
    results = result if isinstance(result, tuple) else (result,)
    return [np.asarray(part) for part in results]


def every() -> list[tuple[str, Case, str]]:
    """The cases with their kinds, and a key for each."""
    found = []
    for number, case in enumerate(CASES):
        for kind in KINDS:
            if kind != "floats" or case[0] not in BYTES_ONLY:
                found.append((f"{number}_{case[0]}_{kind}", case, kind))
    return found


def main() -> None:
    import torch
    from torchvision.transforms import functional

    recorded = {}
    for key, case, kind in every():
        for part, array in enumerate(run(functional, case, kind, torch.from_numpy)):
            recorded[f"{key}_{part}"] = array
    np.savez_compressed(FILE, **recorded)


if __name__ == "__main__":
    main()
