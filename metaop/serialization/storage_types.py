"""The names of element types in PyTorch and safetensors files."""

from __future__ import annotations

from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType

# PyTorch's storage classes: a checkpoint names one for every tensor.
STORAGE_CLASSES: dict[str, DType] = {
    "BoolStorage": dtypes.bool_,
    "ByteStorage": dtypes.uint8,
    "CharStorage": dtypes.int8,
    "ShortStorage": dtypes.int16,
    "IntStorage": dtypes.int32,
    "LongStorage": dtypes.int64,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "FloatStorage": dtypes.float32,
    "DoubleStorage": dtypes.float64,
    "ComplexFloatStorage": dtypes.complex64,
    "ComplexDoubleStorage": dtypes.complex128,
}
CLASS_OF_DTYPE = {dtype: name for name, dtype in STORAGE_CLASSES.items()}

# `torch.float` is the same object as `torch.float32`; files name the long form.
DTYPE_NAMES = {dtype.name: dtype for dtype in (*dtypes.ALL, *dtypes.COMPLEX)}

SAFETENSORS_NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool_,
    "U8": dtypes.uint8,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
}
