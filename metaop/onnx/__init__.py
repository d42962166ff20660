"""Networks in the format of ONNX: `load` and `export`; `docs/onnx.md` says what is covered.

All but `is_in_onnx_export` need the package onnx (`pip install 'metaop[onnx]'`), which is imported
when a name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from metaop.errors import UnsupportedError

if TYPE_CHECKING:
    from metaop.onnx.module import Network, load

__all__ = ["Network", "backend", "is_in_onnx_export", "load"]

_HOMES = {"Network": "module", "load": "module"}


class MissingPackageError(UnsupportedError, ImportError):
    """The package onnx is not installed."""


def is_in_onnx_export() -> bool:
    """False: no model is ever exported."""
    return False


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name != "backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_HOMES.get(name, name)}")
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "google", "google.protobuf"):
            raise
        raise MissingPackageError(
            f"metaop.onnx.{name} needs the package onnx, which is not installed",
            fix="pip install 'metaop[onnx]'",
        ) from None
    return module if name == "backend" else getattr(module, name)
