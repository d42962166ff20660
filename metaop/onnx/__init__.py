"""Networks in ONNX format: `load` and `export`; `docs/onnx.md` lists what is covered.

Reading and writing needs the package onnx (`pip install 'metaop[onnx]'`), which is imported on
first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from metaop.errors import MissingPackageError
from metaop.onnx.exporting.options import (
    OperatorExportTypes,
    TrainingMode,
    is_in_onnx_export,
    register_custom_op_symbolic,
    unregister_custom_op_symbolic,
)

if TYPE_CHECKING:
    from metaop.onnx.exporting.export import ONNXProgram, export
    from metaop.onnx.module import Network, load

__all__ = [
    "Network",
    "ONNXProgram",
    "OperatorExportTypes",
    "TrainingMode",
    "backend",
    "export",
    "is_in_onnx_export",
    "load",
    "register_custom_op_symbolic",
    "unregister_custom_op_symbolic",
]

_HOMES = {
    "Network": "module",
    "ONNXProgram": "exporting.export",
    "backend": "backend",
    "export": "exporting.export",
    "load": "module",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if error.name not in ("onnx", "google", "google.protobuf"):
            raise
        raise MissingPackageError(
            f"metaop.onnx.{name} needs the package onnx, which is not installed",
            fix="pip install 'metaop[onnx]'",
        ) from None
    return module if name == "backend" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
