"""The names of torchvision's v2 interface, for images.

The transforms are those of the v1 interface: they take an image. Accompanying boxes and masks are
not transformed. Example:

    v2.Compose([v2.ToImage(), v2.Resize(64), v2.ToDtype(metaop.float32, scale=True)])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.tensor.core import Tensor
from metaop.tensor.generator import host_random
from metaop.unified_graph.dtype import DType
from metaop.vision import transforms as first
from metaop.vision.transforms import functional as functional
from metaop.vision.transforms.base import Transform
from metaop.vision.transforms.pillow import is_pillow

globals().update({name: value for name, value in vars(first).items() if name[0].isupper()})


class Identity(Transform):
    """Returns the image unchanged."""

    def forward(self, img: Any) -> Any:
        return img


class ToImage(Transform):
    """Converts a Pillow image or array (height, width, channels) to a tensor of the same dtype."""

    def forward(self, img: Any) -> Tensor:
        if isinstance(img, Tensor):
            return img
        if is_pillow(img):
            return functional.pil_to_tensor(img)
        array = img[..., None] if img.ndim == 2 else img
        return metaop.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))


class ToPureTensor(Identity):
    """Does nothing: images are already plain tensors."""


class ToDtype(Transform):
    """Converts the image to another dtype; `scale` preserves black and white."""

    shown = ("dtype", "scale")

    def __init__(self, dtype: DType, scale: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.scale = scale

    def forward(self, img: Any) -> Any:
        if not isinstance(img, Tensor):
            return img
        if self.scale:
            return functional.convert_image_dtype(img, self.dtype)
        return img.to(self.dtype)  # type: ignore[attr-defined]


class RGB(Transform):
    """Repeats the channel of grey images three times; leaves others unchanged."""

    def forward(self, img: Any) -> Any:
        if functional.get_image_num_channels(img) == 3:
            return img
        return functional.rgb_to_grayscale(img, 3)


class _Mixing(Transform):
    """The base of transforms of (images, labels) that mix the images of a batch."""

    shown = ("alpha", "num_classes")

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None) -> None:
        super().__init__()
        self.alpha = alpha
        self.num_classes = num_classes

    def labels(self, labels: Any, share: float) -> Any:
        """The labels as class probabilities, mixed with those of the previous image."""
        if labels.ndim == 1:
            labels = metaop.nn.functional.one_hot(labels, self.num_classes or -1)
        labels = labels.float()
        return labels * share + labels.roll(1, 0) * (1.0 - share)

    def forward(self, *batch: Any) -> Any:
        images, labels = batch if len(batch) == 2 else batch[0]
        share = float(host_random(None).beta(self.alpha, self.alpha))
        mixed, share = self.mix(images, share)
        return mixed, self.labels(labels, share)

    def mix(self, images: Any, share: float) -> tuple[Any, float]:
        raise NotImplementedError(f"{type(self).__name__} has no mix")


class MixUp(_Mixing):
    """Blends every image with the previous one. H. Zhang and others, "mixup", 2017."""

    def mix(self, images: Any, share: float) -> tuple[Any, float]:
        return images * share + images.roll(1, 0) * (1.0 - share), share


class CutMix(_Mixing):
    """Pastes a window of the previous image into each. S. Yun and others, "CutMix", 2019."""

    def mix(self, images: Any, share: float) -> tuple[Any, float]:
        rows, columns = images.shape[-2:]
        random = host_random(None)
        half = 0.5 * (1.0 - share) ** 0.5
        y, x = random.integers(rows), random.integers(columns)
        top, bottom = max(int(y - half * rows), 0), min(int(y + half * rows), rows)
        left, right = max(int(x - half * columns), 0), min(int(x + half * columns), columns)
        mixed = images.clone()
        mixed[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
        return mixed, 1.0 - (bottom - top) * (right - left) / (rows * columns)


def query_size(img: Any) -> Sequence[int]:
    """Height and width of an image."""
    return functional.get_dimensions(img)[1:]
