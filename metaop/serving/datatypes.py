"""The protocol's names of element types."""

from __future__ import annotations

from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType

NAMES = {
    dtypes.bool_: "BOOL",
    dtypes.uint8: "UINT8",
    dtypes.int8: "INT8",
    dtypes.int16: "INT16",
    dtypes.int32: "INT32",
    dtypes.int64: "INT64",
    dtypes.float16: "FP16",
    dtypes.bfloat16: "BF16",
    dtypes.float32: "FP32",
    dtypes.float64: "FP64",
}


def datatype_of(dtype: DType) -> str:
    """The protocol's name of an element type."""
    return NAMES[dtype]
