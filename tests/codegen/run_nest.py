"""Runs loop nests as machine code, between bytes that must not change and pages out of reach."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
from collections.abc import Sequence

import numpy as np

from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.objects.engine import compile_kernel
from metaop.codegen.llvm.target import host_target
from metaop.codegen.nest.generalise import generalise, skeleton
from metaop.codegen.nest.ir import (
    Accumulate,
    Accumulator,
    Apply,
    For,
    Load,
    LoopIndex,
    LoopNest,
    Name,
    Number,
    Parameter,
    Store,
    Sum,
)
from metaop.codegen.nest.show import show_nest
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from tests.codegen.interpret import Interpreter

_KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
_MARGIN = 64
_CANARY = 0xA5
# Relative to the largest result: sums of a few dozen numbers, rounded in each type.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-6, "float64": 1e-13}


class Guarded:
    """A copy of an array at the first or the last bytes of pages between two that nobody may touch.

    The other bytes of its pages are known. (Windows has no such pages.)
    """

    def __init__(self, array: np.ndarray, at_end: bool) -> None:
        page = mmap.PAGESIZE
        size = -(-(array.nbytes + _MARGIN) // page) * page
        self._memory = mmap.mmap(-1, size + 2 * page)
        everything = np.frombuffer(self._memory, np.uint8)
        if sys.platform != "win32":
            for edge in (0, page + size):
                address = ctypes.c_void_p(everything.ctypes.data + edge)
                assert ctypes.CDLL(None).mprotect(address, ctypes.c_size_t(page), 0) == 0
        self._bytes = everything[page : page + size]
        self._bytes[:] = _CANARY
        start = size - array.nbytes if at_end else 0
        self._inside = slice(start, start + array.nbytes)
        self.array = self._bytes[self._inside].view(array.dtype) if array.size else array.copy()
        self.array[...] = array
        self.address = self._bytes.ctypes.data + start

    def assert_margins(self) -> None:
        outside = np.delete(self._bytes, self._inside)
        assert (outside == _CANARY).all(), "a kernel wrote outside its buffer"


def run_nest(
    nest: LoopNest, arrays: Sequence[np.ndarray], pieces: int = 1
) -> tuple[list[np.ndarray], list[int]]:
    """The buffers after a run in `pieces` tasks, and the kernel's error words.

    They are the same wherever the buffers are.
    """
    address = compile_kernel(emit(nest, host_target(), "kernel"), "kernel")
    found, others = (_run(address, nest, arrays, pieces, at_end) for at_end in (False, True))
    for one, other in zip(found[0], others[0]):
        np.testing.assert_array_equal(one, other)
    return found


def _run(
    address: int, nest: LoopNest, arrays: Sequence[np.ndarray], pieces: int, at_end: bool
) -> tuple[list[np.ndarray], list[int]]:
    guarded = [Guarded(array, at_end) for array in arrays]
    addresses = np.array([one.address for one in guarded], np.int64)
    scalars = np.array(nest.arguments, np.int64)
    error = np.zeros(4, np.int64)
    cuts = np.linspace(0, nest.tasks, pieces + 1).astype(int)
    for begin, end in itertools.pairwise(cuts):
        _KERNEL(address)(
            addresses.ctypes.data, scalars.ctypes.data, int(begin), int(end), error.ctypes.data
        )
    for one in guarded:
        one.assert_margins()
    return [one.array for one in guarded], error.tolist()


def generalised(nest: LoopNest) -> LoopNest:
    """The nest with all its integers as arguments."""
    return generalise(nest, frozenset(range(len(skeleton(nest)[1]))))


def check_nest(nest: LoopNest, arrays: Sequence[np.ndarray], pieces: int = 1) -> None:
    """Machine code agrees with the interpreter, with literal and with general integers."""
    expected = [array.copy() for array in arrays]
    Interpreter(nest, expected).run()
    for variant in (nest, generalised(nest)):
        actual, error = run_nest(variant, arrays, pieces)
        assert error == [0, 0, 0, 0]
        for array, wanted in zip(actual, expected):
            assert_close(array, wanted, show_nest(variant))


def assert_close(actual: np.ndarray, wanted: np.ndarray, text: str = "") -> None:
    """Equal up to rounding in the type of the arrays."""
    tolerance = TOLERANCE.get(actual.dtype.name, 0.0)
    left, right = actual.astype(np.float64), wanted.astype(np.float64)
    finite = right[np.isfinite(right)]
    scale = np.abs(finite).max() if finite.size else 0.0
    np.testing.assert_allclose(
        left, right, rtol=tolerance, atol=tolerance * scale, err_msg=text, equal_nan=True
    )


def random_array(generator: np.random.Generator, size: int, dtype: DType) -> np.ndarray:
    """Small numbers, exact in every type wide enough."""
    if dtype.kind == "bool":
        return generator.integers(0, 2, size).astype(bool)
    low = 0 if not dtype.signed else -4
    numbers = generator.integers(low, 5, size)
    if dtype.kind == "float":
        return (numbers + generator.random(size).round(2)).astype(dtype.numpy)
    return numbers.astype(dtype.numpy)


def arrays(*kinds: tuple[int, DType], seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [random_array(generator, size, dtype) for size, dtype in kinds]


# --- abbreviations for writing nests ------------------------------------------------------------


def index(constant: int = 0, **coefficients: int) -> Sum:
    """`index(3, i=1, k=-2)` is 3 + i - 2 k."""
    return Sum(tuple((LoopIndex(a), c) for a, c in coefficients.items() if c != 0), constant)


def load(buffer: int, dtype: DType, constant: int = 0, **coefficients: int) -> Load:
    return Load(buffer, index(constant, **coefficients), dtype)


def call(function: str, *operands, dtype: DType | None = None) -> Apply:
    return Apply(function, operands, dtype or operands[-1].dtype, operands[-1].dtype)


def number(value: float, dtype: DType) -> Number:
    return Number(value, dtype)


def vector(axis: str, extent: int, *body, kind: str = "parallel", sums=()) -> For:
    return For(axis, extent, kind, body, tuple(sums), vector=True)


def serial(axis: str, extent: int, *body, sums=(), kind: str = "serial") -> For:
    return For(axis, extent, kind, body, tuple(sums))


def nest(parameters: Sequence[tuple[DType, str]], *body) -> LoopNest:
    return LoopNest("test", tuple(Parameter(*p) for p in parameters), (), body)


def reduction(reducer: str, value, extent: int, axis: str = "k", name: str = "total") -> For:
    """A vector loop that reduces `value` to `name`."""
    accumulator = Accumulator(name, reducer, value.dtype)
    return vector(axis, extent, Accumulate(name, value), kind="serial", sums=[accumulator])


def store_name(buffer: int, offset: Sum, name: str, dtype: DType) -> Store:
    return Store(buffer, offset, Name(name, dtype))


F32, F64, I64 = dtypes.float32, dtypes.float64, dtypes.int64
READ_WRITE = [(F32, "read"), (F32, "write")]
