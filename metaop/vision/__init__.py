"""Images, under torchvision's names: data sets, transforms, operators, networks, grids.

Pillow reads and writes files. Submodules are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from metaop.errors import UnsupportedError
from metaop.version import torchvision as __version__

_SUBMODULES = ("datasets", "io", "models", "ops", "transforms", "utils")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"metaop.vision.{name}")
    raise AttributeError(f"module 'metaop.vision' has no attribute {name!r}")


def set_image_backend(backend: str) -> None:
    """Accepted for "PIL"; Pillow reads all images.

    Raises UnsupportedError for other names.

    >>> metaop.vision.set_image_backend("PIL")
    """
    if backend != "PIL":
        raise UnsupportedError(f"the image backend {backend!r} is not supported", fix="use 'PIL'")


def get_image_backend() -> str:
    """The library that reads images: "PIL".

    >>> metaop.vision.get_image_backend()
    'PIL'
    """
    return "PIL"
