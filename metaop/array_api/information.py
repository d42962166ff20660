"""What the array API of metaop can do."""

from __future__ import annotations

from typing import Any

import metaop
from metaop.array_api.types import KINDS
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.tensor_type import CPU, Device


class __array_namespace_info__:
    """Capabilities, devices and types, as methods."""

    def capabilities(self) -> dict[str, Any]:
        """What is optional in the standard."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": 64,
        }

    def default_device(self) -> Device:
        """Where arrays are made."""
        return metaop.get_default_device()

    def devices(self) -> list[Device]:
        """The devices of this machine."""
        return [CPU, *(Device("cuda", index) for index in range(metaop.cuda.device_count()))]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The types that are taken when none is named."""
        return {
            "real floating": metaop.get_default_dtype(),
            "complex floating": metaop.get_default_dtype().whole,
            "integral": metaop.int64,
            "indexing": metaop.int64,
        }

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The types of some kinds, by their names."""
        kinds = KINDS if kind is None else ((kind,) if isinstance(kind, str) else kind)
        found = {dtype.name: dtype for one in kinds for dtype in KINDS[one]}
        return found
