"""Conversions between images and tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import metaop
from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.tensor.core import Tensor
from metaop.vision.transforms.pillow import is_pillow

if TYPE_CHECKING:
    from PIL.Image import Image


def _pixels(image: Image) -> np.ndarray:
    """The pixels of a Pillow image as a new array (channels, height, width)."""
    if image.mode == "1":
        array = 255 * np.array(image, np.uint8)
    elif image.mode.startswith("I;16"):
        array = np.array(image, np.int16)
    else:
        array = np.array(image)
    if array.ndim == 2:
        return array[None]
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def _channels_first(array: np.ndarray) -> np.ndarray:
    if array.ndim not in (2, 3):
        raise ArgumentError(
            f"pic should be 2/3 dimensional. Got {array.ndim} dimensions.",
            fix="pass (height, width) or (height, width, channels)",
        )
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def to_tensor(pic: Any) -> Tensor:
    """Converts a Pillow image or array (height, width, channels) to a tensor (channels, …).

    The shape is (channels, height, width). uint8 becomes the default float type in [0, 1]; other
    types keep their values.

    >>> import numpy as np
    >>> metaop.vision.transforms.functional.to_tensor(np.full((1, 2, 3), 255, np.uint8)).shape
    metaop.Size([3, 1, 2])
    """
    if is_pillow(pic):
        array = _pixels(pic)
    elif isinstance(pic, np.ndarray):
        array = _channels_first(pic)
    else:
        raise ArgumentTypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    if array.dtype == np.uint8:
        array = np.true_divide(array, 255, dtype=metaop.get_default_dtype().numpy)
    return metaop.from_numpy(np.ascontiguousarray(array))


def pil_to_tensor(pic: Any) -> Tensor:
    """Converts a Pillow image to a tensor (channels, height, width) of the same dtype.

    The sizes are those of the image.

    >>> from PIL import Image
    >>> metaop.vision.transforms.functional.pil_to_tensor(Image.new("L", (2, 1), 7))
    tensor([[[7, 7]]], dtype=metaop.uint8)
    """
    if not is_pillow(pic):
        raise ArgumentTypeError(f"pic should be PIL Image. Got {type(pic)}")
    return metaop.from_numpy(_pixels(pic))


# The image mode by number of channels and dtype.
_MODES = {
    (1, "uint8"): "L",
    (1, "int16"): "I;16",
    (1, "int32"): "I",
    (1, "float32"): "F",
    (2, "uint8"): "LA",
    (3, "uint8"): "RGB",
    (4, "uint8"): "RGBA",
}
_ALSO = {2: ("LA",), 3: ("RGB", "YCbCr", "HSV", "LAB"), 4: ("RGBA", "CMYK", "RGBX")}


def to_pil_image(pic: Any, mode: str | None = None) -> Image:
    """Converts a tensor (channels, height, width) or array (height, width, channels) to an image.

    Float tensors of one, three or four channels in [0, 1] become bytes, unless `mode` is "F".
    Raises ArgumentError unless there are two or three dimensions.

    >>> image = metaop.vision.transforms.functional.to_pil_image(metaop.ones(3, 2, 5))
    >>> image.mode, image.size
    ('RGB', (5, 2))
    """
    from PIL import Image

    if isinstance(pic, Tensor):
        array = _from_tensor(pic, mode)
    elif isinstance(pic, np.ndarray):
        array = pic[..., None] if pic.ndim == 2 else pic
    else:
        raise ArgumentTypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    if array.ndim != 3 or array.shape[2] > 4:
        raise ArgumentError(
            f"pic should be 2/3 dimensional with at most 4 channels. Got shape {list(pic.shape)}."
        )
    channels = array.shape[2]
    expected = _MODES.get((channels, array.dtype.name))
    if expected is None:
        raise ArgumentTypeError(
            f"Input type {array.dtype} with {channels} channels is not supported"
        )
    if mode is not None and mode != expected and mode not in _ALSO.get(channels, ()):
        raise ArgumentError(f"Incorrect mode ({mode}) supplied. Should be {expected}")
    content = np.ascontiguousarray(array[..., 0] if channels == 1 else array)
    image = Image.fromarray(content)
    if mode is None or mode == image.mode:
        return image
    return Image.frombytes(mode, image.size, content.tobytes())


def _from_tensor(pic: Tensor, mode: str | None) -> np.ndarray:
    array = pic.numpy(force=True)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3:
        raise ArgumentError(f"pic should be 2/3 dimensional. Got {array.ndim} dimensions.")
    if array.dtype.kind == "f" and mode != "F":
        array = (array * 255).astype(np.uint8)
    return array.transpose(1, 2, 0)
