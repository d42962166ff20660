"""Reads and writes image files as uint8 tensors (channels, height, width)."""

from __future__ import annotations

import io
import os
from enum import Enum
from typing import Any

import numpy as np

from metaop.errors import ArgumentError, DTypeError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import from_numpy
from metaop.vision.transforms.conversion import pil_to_tensor, to_pil_image

Path = str | os.PathLike[str]


class ImageReadMode(Enum):
    """The channels to decode an image to, the first size of its tensor.

    >>> metaop.vision.io.ImageReadMode.GRAY.name
    'GRAY'
    """

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


_MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def read_file(path: Path) -> Tensor:
    """The bytes of a file as a one-dimensional tensor.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     metaop.vision.io.write_file(file.name, metaop.tensor([1, 2], dtype=metaop.uint8))
    ...     metaop.vision.io.read_file(file.name)
    tensor([1, 2], dtype=metaop.uint8)
    """
    return from_numpy(np.fromfile(path, np.uint8))


def write_file(filename: Path, data: Tensor) -> None:
    r"""Writes the bytes of a one-dimensional tensor to a file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     metaop.vision.io.write_file(file.name, metaop.tensor([1, 2], dtype=metaop.uint8))
    ...     file.read()
    b'\x01\x02'
    """
    with open(filename, "wb") as file:
        file.write(data.numpy(force=True).astype(np.uint8).tobytes())


def decode_image(input: Tensor | Path, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """Decodes image bytes (or a file) to a uint8 tensor (channels, height, width).

    The shape depends on `mode`: one channel for grey, three for colour, one more for alpha.

    >>> png = metaop.vision.io.encode_png(metaop.zeros(3, 2, 5, dtype=metaop.uint8))
    >>> metaop.vision.io.decode_image(png).shape
    metaop.Size([3, 2, 5])
    """
    from PIL import Image

    wanted = mode.name if isinstance(mode, ImageReadMode) else str(mode)
    if wanted != "UNCHANGED" and wanted not in _MODES:
        raise ArgumentError(f"mode {mode!r} is not one of {', '.join(('UNCHANGED', *_MODES))}")
    source: Any = input
    if isinstance(input, Tensor):
        if input.dtype.name != "uint8" or input.ndim != 1:
            raise DTypeError(f"decode_image: expected a 1-d tensor of uint8, got {input.dtype}")
        source = io.BytesIO(input.numpy().tobytes())
    with Image.open(source) as image:
        if wanted == "UNCHANGED":
            plain = image.convert("RGB") if image.mode == "P" else image
        else:
            plain = image.convert(_MODES[wanted])
        return pil_to_tensor(plain)


def read_image(path: Path, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """Reads an image file as a uint8 tensor (channels, height, width); see `decode_image`.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".png") as file:
    ...     metaop.vision.io.write_png(metaop.zeros(3, 2, 5, dtype=metaop.uint8), file.name)
    ...     metaop.vision.io.read_image(file.name).shape
    metaop.Size([3, 2, 5])
    """
    return decode_image(path, mode)


def _encoded(input: Tensor, format: str, **options: Any) -> Tensor:
    if input.dtype.name != "uint8":
        raise DTypeError(f"an image of {input.dtype} cannot be written", fix="use uint8")
    file = io.BytesIO()
    to_pil_image(input).save(file, format, **options)
    return from_numpy(np.frombuffer(file.getvalue(), np.uint8).copy())


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """Encodes an image (channels, height, width) as PNG bytes, in one dimension.

    >>> bytes(metaop.vision.io.encode_png(metaop.zeros(1, 2, 2, dtype=metaop.uint8)).tolist())[1:4]
    b'PNG'
    """
    return _encoded(input, "PNG", compress_level=compression_level)


def encode_jpeg(input: Tensor, quality: int = 75) -> Tensor:
    """Encodes an image (channels, height, width) as JPEG bytes, in one dimension.

    `quality` is from 1 to 100.

    >>> metaop.vision.io.encode_jpeg(metaop.zeros(1, 2, 2, dtype=metaop.uint8))[:2]
    tensor([255, 216], dtype=metaop.uint8)
    """
    return _encoded(input, "JPEG", quality=quality)


def write_png(input: Tensor, filename: Path, compression_level: int = 6) -> None:
    """Writes an image (channels, height, width) as PNG.

    The image is uint8; `compression_level` is from 0 to 9 (smallest file).

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".png") as file:
    ...     metaop.vision.io.write_png(metaop.zeros(1, 2, 2, dtype=metaop.uint8), file.name)
    ...     file.read()[1:4]
    b'PNG'
    """
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: Tensor, filename: Path, quality: int = 75) -> None:
    """Writes an image (channels, height, width) as JPEG.

    The image is uint8; `quality` is from 1 to 100.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
    ...     metaop.vision.io.write_jpeg(metaop.zeros(1, 2, 2, dtype=metaop.uint8), file.name)
    ...     file.read()[6:10]
    b'JFIF'
    """
    write_file(filename, encode_jpeg(input, quality))
