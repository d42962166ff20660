"""Types for annotations."""

from __future__ import annotations

from metaop.tensor.core import Tensor
from metaop.tensor.size import Size
from metaop.unified_graph.dtype import DType as _dtype
from metaop.unified_graph.tensor_type import Device as _device

__all__ = ["Device", "Number", "_bool", "_device", "_dtype", "_float", "_int", "_size"]

_int, _float, _bool = int, float, bool
_size = Size | list[int] | tuple[int, ...]
_TensorOrTensors = Tensor | tuple[Tensor, ...]
Number = int | float | bool
Device = _device | str | int | None
