"""The converter of PyTorch programs, described in `docs/converter.md`.

The names below need the package libcst (`pip install 'metaop[convert]'`), which their first use
imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metaop.convert.converter import Conversion, convert_source
    from metaop.convert.files import convert_path
    from metaop.convert.findings import FileReport, Finding, Verdict

_HOMES = {
    "Conversion": "converter",
    "convert_source": "converter",
    "convert_path": "files",
    "FileReport": "findings",
    "Finding": "findings",
    "Verdict": "findings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
