"""Element types and literals in CUDA C++."""

from __future__ import annotations

import math

import numpy as np

from metaop.unified_graph.dtype import DType, float64

# What a buffer of the type holds; the 16-bit floats are structures around their bits.
STORAGE = {
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
}


def storage_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    return STORAGE[dtype.name]


def compute_type(dtype: DType) -> str:
    """The C++ type in which values of an element type are computed."""
    return STORAGE[dtype.compute.name]


def is_narrow_float(dtype: DType) -> bool:
    """Whether values are converted between memory and arithmetic."""
    return dtype.compute is not dtype


def literal(value: int | float | bool, dtype: DType) -> str:
    """A number of the compute type of `dtype`, exact, and of exactly that C++ type."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.kind == "float":
        return _float_literal(float(value), dtype.compute is float64)
    number = int(value)
    if dtype.name == "int64":
        # The smallest integer has no literal: that would be a minus sign and a number too large.
        return f"({number + 1}ll - 1)" if number == -(1 << 63) else f"{number}ll"
    if dtype.name == "int32":
        return f"({number + 1} - 1)" if number == -(1 << 31) else str(number)
    return f"({storage_type(dtype)}){number}"


def _float_literal(value: float, is_double: bool) -> str:
    if math.isfinite(value):
        number = value if is_double else np.float32(value)
        if np.isfinite(number):
            text = repr(float(value)) if is_double else str(number)
            if not any(sign in text for sign in ".e"):
                text += ".0"
            return text if is_double else text + "f"
    bits = np.float64(value).view(np.uint64) if is_double else np.float32(value).view(np.uint32)
    convert, suffix = ("__longlong_as_double", "ull") if is_double else ("__int_as_float", "u")
    return f"{convert}({int(bits):#x}{suffix}) /* {value} */"
