"""Transforms that combine transforms, and conversions of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.errors import ArgumentError, ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.generator import host_random
from metaop.unified_graph.dtype import DType
from metaop.vision.transforms import functional as F
from metaop.vision.transforms.base import Transform


class Compose:
    """Applies transforms in order; each takes the result of the previous one, of any shape.

    >>> from metaop.vision import transforms
    >>> both = transforms.Compose([transforms.CenterCrop(2), transforms.Normalize([0.5], [0.5])])
    >>> both(metaop.ones(1, 4, 4)).shape
    metaop.Size([1, 2, 2])
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        lines = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({lines}\n)"


class RandomTransforms:
    """The base of transforms that choose from a sequence of transforms.

    Raises ArgumentError for anything but a sequence.

    >>> from metaop.vision import transforms
    >>> isinstance(transforms.RandomOrder([]), transforms.RandomTransforms)
    True
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        if not isinstance(transforms, Sequence):
            raise ArgumentError("Argument transforms should be a sequence")
        self.transforms = transforms

    def __repr__(self) -> str:
        lines = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({lines}\n)"


class RandomOrder(RandomTransforms):
    """Applies all transforms in random order; each must accept the shapes of the others.

    >>> from metaop.vision import transforms
    >>> transforms.RandomOrder([transforms.RandomInvert(1.0)] * 2)(metaop.zeros(1, 1, 2))
    tensor([[[0., 0.]]])
    """

    def __call__(self, img: Any) -> Any:
        for number in host_random(None).permutation(len(self.transforms)):
            img = self.transforms[number](img)
        return img


class RandomChoice(RandomTransforms):
    """Applies one of the transforms, with probabilities `p` (equal by default).

    The shape must suit each of them.

    >>> from metaop.vision import transforms
    >>> transforms.RandomChoice([transforms.RandomInvert(1.0)])(metaop.zeros(1, 1, 2))
    tensor([[[1., 1.]]])
    """

    def __init__(
        self, transforms: Sequence[Callable[[Any], Any]], p: Sequence[float] | None = None
    ) -> None:
        super().__init__(transforms)
        if p is not None and len(p) != len(transforms):
            raise ArgumentError(f"p has {len(p)} numbers for {len(transforms)} transforms")
        self.p = p

    def __call__(self, *args: Any) -> Any:
        weights = None if self.p is None else np.asarray(self.p) / np.sum(self.p)
        return self.transforms[host_random(None).choice(len(self.transforms), p=weights)](*args)


class RandomApply(nn.Module):
    """Applies all transforms with probability `p`, else none; the shape follows from them.

    >>> from metaop.vision import transforms
    >>> transforms.RandomApply([transforms.RandomInvert(1.0)], p=1.0)(metaop.zeros(1, 1, 2))
    tensor([[[1., 1.]]])
    """

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms
        self.p = p

    def forward(self, img: Any) -> Any:
        if self.p < host_random(None).random():
            return img
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        lines = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}(\n    p={self.p}{lines}\n)"


class Lambda:
    """A function as a transform; raises ArgumentError unless it is callable.

    >>> metaop.vision.transforms.Lambda(lambda image: image * 2)(metaop.ones(1))
    tensor([2.])
    """

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise ArgumentError(f"Argument lambd should be callable, got {type(lambd)!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToTensor:
    """Converts a Pillow image or an array (height, width, channels) to a tensor in [0, 1].

    Its shape is (channels, height, width).

    >>> from PIL import Image
    >>> metaop.vision.transforms.ToTensor()(Image.new("L", (2, 1), 255))
    tensor([[[1., 1.]]])
    """

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor(ToTensor):
    """Converts a Pillow image to a tensor (channels, height, width) of the same dtype and size.

    >>> from PIL import Image
    >>> metaop.vision.transforms.PILToTensor()(Image.new("L", (2, 1), 7))
    tensor([[[7, 7]]], dtype=metaop.uint8)
    """

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)


class ToPILImage:
    """Converts a tensor (channels, height, width) or array (height, width, channels) to an image.

    Its size is (width, height); see `functional.to_pil_image`.

    >>> metaop.vision.transforms.ToPILImage()(metaop.ones(3, 2, 5)).size
    (5, 2)
    """

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


class ConvertImageDtype(Transform):
    """Converts a tensor image to another dtype and scales its range; the shape is unchanged.

    >>> image = metaop.tensor([[[0, 255]]], dtype=metaop.uint8)
    >>> metaop.vision.transforms.ConvertImageDtype(metaop.float32)(image)
    tensor([[[0., 1.]]])
    """

    def __init__(self, dtype: DType) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Tensor) -> Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(Transform):
    """`(image - mean) / std` for each channel of a float tensor (…, C, H, W).

    >>> metaop.vision.transforms.Normalize([0.5], [0.25])(metaop.ones(1, 1, 2))
    tensor([[[2., 2.]]])
    """

    shown = ("mean", "std")

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def forward(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)


class LinearTransformation(Transform):
    """`(flattened - mean_vector) @ transformation_matrix`, in the shape of the image: whitening.

    The matrix is (D, D) and the vector (D) for images of D numbers.

    >>> whiten = metaop.vision.transforms.LinearTransformation(2 * metaop.eye(2), metaop.ones(2))
    >>> whiten(metaop.tensor([[[1.0, 3.0]]]))
    tensor([[[0., 4.]]])
    """

    def __init__(self, transformation_matrix: Tensor, mean_vector: Tensor) -> None:
        super().__init__()
        size = transformation_matrix.shape[0]
        if tuple(transformation_matrix.shape) != (size, size) or mean_vector.shape != (size,):
            raise ShapeError(
                f"transformation_matrix {list(transformation_matrix.shape)} should be square, and "
                f"mean_vector {list(mean_vector.shape)} fit it"
            )
        self.transformation_matrix = transformation_matrix
        self.mean_vector = mean_vector

    def forward(self, tensor: Tensor) -> Tensor:
        image: Any = tensor
        size = math.prod(image.shape[-3:])
        if size != self.mean_vector.shape[0]:
            raise ShapeError(
                f"LinearTransformation: an image of shape {list(image.shape)} has {size} values, "
                f"the matrix is {list(self.transformation_matrix.shape)}"
            )
        flat = image.reshape(-1, size) - self.mean_vector
        return metaop.mm(flat, self.transformation_matrix).reshape(image.shape)
