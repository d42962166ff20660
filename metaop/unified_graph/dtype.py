"""Element types and PyTorch's promotion between them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

_KIND_ORDER = {"bool": 0, "int": 1, "float": 2, "complex": 3}


class DType:
    """An element type, one object per type: compare with `is`.

    `kind` is "bool", "int", "float" or "complex"; `itemsize` counts bytes;
    `numpy` is the NumPy dtype; `compute` the type in which arithmetic on the values is done
    (float32 for the 16-bit floats).

    >>> metaop.ones(1).dtype is metaop.float32, metaop.float32.itemsize
    (True, 4)
    """

    __slots__ = ("name", "kind", "itemsize", "signed", "_numpy", "__weakref__")

    def __init__(self, name: str, kind: str, itemsize: int, signed: bool = True) -> None:
        self.name = name
        self.kind = kind
        self.itemsize = itemsize
        self.signed = signed
        self._numpy: np.dtype | None = None

    def __repr__(self) -> str:
        return f"metaop.{self.name}"

    def __reduce__(self) -> tuple:
        return (dtype_named, (self.name,))

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype (bfloat16 comes from ml_dtypes, imported when first asked for)."""
        if self._numpy is None:
            if self.name.startswith(("bfloat16", "float8")):
                import ml_dtypes

                self._numpy = np.dtype(getattr(ml_dtypes, self.name))
            else:
                self._numpy = np.dtype(self.name)
        return self._numpy

    @property
    def compute(self) -> DType:
        """The type in which a backend does arithmetic on values of this type."""
        return float32 if self.kind == "float" and self.itemsize == 2 else self

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_differentiable(self) -> bool:
        """Whether values of the type can have gradients: floats and complex numbers."""
        return self.kind in ("float", "complex")

    @property
    def part(self) -> DType:
        """The type of the real and the imaginary part; that of a real number is its own."""
        return _PARTS.get(self, self)

    @property
    def whole(self) -> DType:
        """The complex type with which values of this type are computed; complex ones stay."""
        if self.kind == "complex":
            return self
        return complex128 if self is float64 else complex64

    @property
    def is_signed(self) -> bool:
        return self.signed

    @property
    def lowest(self) -> float | int | bool:
        """The identity of max: -inf, the smallest integer, or False."""
        if self.kind == "float":
            return -math.inf
        if self.kind == "bool":
            return False
        return -(1 << (8 * self.itemsize - 1)) if self.signed else 0

    @property
    def highest(self) -> float | int | bool:
        """The identity of min: inf, the largest integer, or True."""
        if self.kind == "float":
            return math.inf
        if self.kind == "bool":
            return True
        return (1 << (8 * self.itemsize - int(self.signed))) - 1


bool_ = DType("bool", "bool", 1, signed=False)
uint8 = DType("uint8", "int", 1, signed=False)
int8 = DType("int8", "int", 1)
int16 = DType("int16", "int", 2)
int32 = DType("int32", "int", 4)
int64 = DType("int64", "int", 8)
float16 = DType("float16", "float", 2)
bfloat16 = DType("bfloat16", "float", 2)
float32 = DType("float32", "float", 4)
float64 = DType("float64", "float", 8)

# A pass of the compiler makes two real values of each complex one (fusion/split_complex.py).
complex64 = DType("complex64", "complex", 8)
complex128 = DType("complex128", "complex", 16)

# Types that programs name and compare with; there are no tensors of them.
uint16 = DType("uint16", "int", 2, signed=False)
uint32 = DType("uint32", "int", 4, signed=False)
uint64 = DType("uint64", "int", 8, signed=False)
float8_e4m3fn = DType("float8_e4m3fn", "float", 1)
float8_e5m2 = DType("float8_e5m2", "float", 1)
NAMED = (uint16, uint32, uint64, float8_e4m3fn, float8_e5m2)

ALL = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)
COMPLEX = (complex64, complex128)
FLOATS = (float16, bfloat16, float32, float64)
INTEGERS = (uint8, int8, int16, int32, int64)
_BY_NAME = {dtype.name: dtype for dtype in (*ALL, *COMPLEX, *NAMED)}
_PARTS = {complex64: float32, complex128: float64}
_OF_PYTHON: dict[object, DType] = {
    bool: bool_,
    int: int64,
    float: float64,
    complex: complex128,
}


def dtype_named(name: str) -> DType:
    """The dtype called `name` ("float32", "bool", …); KeyError when there is none."""
    return _BY_NAME[name]


def from_python_type(kind: object) -> DType | None:
    """The dtype that a type of Python's numbers stands for, as in NumPy; None for anything else."""
    return _OF_PYTHON.get(kind) if isinstance(kind, type) else None


@cache
def from_numpy_dtype(dtype: np.dtype) -> DType | None:
    """The metaop dtype of a NumPy dtype; None when metaop has no such type."""
    found = _BY_NAME.get(dtype.name)
    return None if found in NAMED else found


@cache
def promote(left: DType, right: DType) -> DType:
    """PyTorch's result type of two tensors of equal rank category.

    The higher kind wins; within a kind the wider type; uint8 with a signed type goes to the next
    wider signed type; float16 with bfloat16 gives float32; a float gives a complex type the width
    of its own.
    """
    if left is right:
        return left
    if left.kind != right.kind:
        if {left.kind, right.kind} == {"float", "complex"}:
            return complex128 if 16 in (left.whole.itemsize, right.whole.itemsize) else complex64
        return max(left, right, key=lambda dtype: _KIND_ORDER[dtype.kind])
    if left.is_differentiable:
        if left.itemsize == right.itemsize:
            return float32
        return max(left, right, key=lambda dtype: dtype.itemsize)
    if left.signed == right.signed:
        return max(left, right, key=lambda dtype: dtype.itemsize)
    signed, unsigned = (left, right) if left.signed else (right, left)
    return signed if signed.itemsize > unsigned.itemsize else int16


def kind_rank(dtype: DType) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex numbers: PyTorch's categories."""
    return _KIND_ORDER[dtype.kind]
