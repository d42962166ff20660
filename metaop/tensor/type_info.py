"""Numerical limits of element types: `finfo` and `iinfo`."""

from __future__ import annotations

from metaop.errors import ArgumentTypeError
from metaop.tensor.promotion import defaults
from metaop.unified_graph.dtype import DType, from_python_type

# Bits of the significand, with the hidden one, and the largest exponent.
_FORMATS = {
    **{"float16": (11, 15), "bfloat16": (8, 127), "float32": (24, 127), "float64": (53, 1023)},
    **{"float8_e4m3fn": (4, 7), "float8_e5m2": (3, 15)},
}
_DIGITS = {"float16": 3, "bfloat16": 2, "float32": 6, "float64": 15}
# This type has no infinity: the largest exponent has numbers too.
_LARGEST = {"float8_e4m3fn": 448.0}


class finfo:
    """The limits of a floating-point type: `max`, `min`, `eps`, `tiny`, `bits`, `resolution`.

    Those of a complex type are the limits of its parts. Raises ArgumentTypeError for other types.

    >>> metaop.finfo(metaop.float32).eps, metaop.finfo(metaop.bfloat16).bits
    (1.1920928955078125e-07, 16)
    """

    def __init__(self, type: DType | None = None) -> None:
        dtype = defaults.dtype if type is None else from_python_type(type) or type
        dtype = dtype.part
        if dtype.kind != "float":
            raise ArgumentTypeError(
                f"torch.finfo() requires a floating point input type, not {dtype.name}",
                fix="use iinfo for integers",
            )
        precision, exponent = _FORMATS[dtype.name]
        self.bits = 8 * dtype.itemsize
        self.dtype = dtype.name
        self.eps = 2.0 ** (1 - precision)
        self.max = _LARGEST.get(dtype.name, (2.0 - self.eps) * 2.0**exponent)
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** (1 - exponent)
        self.resolution = 10.0 ** -_DIGITS.get(dtype.name, 0)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


class iinfo:
    """The limits of an integer type: `max`, `min`, `bits`.

    Raises ArgumentTypeError for other types.

    >>> metaop.iinfo(metaop.int8).min, metaop.iinfo(metaop.uint8).max
    (-128, 255)
    """

    def __init__(self, type: DType) -> None:
        type = from_python_type(type) or type
        if type.kind != "int":
            raise ArgumentTypeError(
                f"torch.iinfo() requires an integer input type, not {type.name}",
                fix="use finfo for floats",
            )
        self.bits = 8 * type.itemsize
        self.dtype = type.name
        self.min, self.max = int(type.lowest), int(type.highest)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
