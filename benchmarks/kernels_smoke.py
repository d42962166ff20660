"""Single-thread bandwidth of generated kernels beside NumPy: map, sum, rows like softmax.

python benchmarks/kernels_smoke.py [elements]
"""

from __future__ import annotations

import ctypes
import functools
import sys
import time
from collections.abc import Callable

import numpy as np

from metaop.codegen.llvm.kernels import compile_nest
from metaop.codegen.nest import ir
from metaop.unified_graph.dtype import float32

_COLUMNS = 1024
_REPETITIONS = 15
_KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
_PARAMETERS = (ir.Parameter(float32, "read"), ir.Parameter(float32, "write"))


def _index(**coefficients: int) -> ir.Sum:
    return ir.Sum(tuple((ir.LoopIndex(axis), c) for axis, c in coefficients.items()), 0)


def _call(function: str, *operands: ir.Expr) -> ir.Apply:
    return ir.Apply(function, operands, float32, float32)


def _reduction(reducer: str, name: str, value: ir.Expr) -> ir.For:
    sums = (ir.Accumulator(name, reducer, float32),)
    return ir.For("k", _COLUMNS, "serial", (ir.Accumulate(name, value),), sums, vector=True)


def affine(size: int) -> ir.LoopNest:
    """y = 2 x + 1."""
    x = ir.Load(0, _index(i=1), float32)
    value = _call("add", _call("mul", x, ir.Number(2.0, float32)), ir.Number(1.0, float32))
    loop = ir.For("i", size, "parallel", (ir.Store(1, _index(i=1), value),), vector=True)
    return ir.LoopNest("affine", _PARAMETERS, (), (loop,))


def row_sums(size: int) -> ir.LoopNest:
    """The sum of every row."""
    total = _reduction("add", "total", ir.Load(0, _index(r=_COLUMNS, k=1), float32))
    store = ir.Store(1, _index(r=1), ir.Name("total", float32))
    loop = ir.For("r", size // _COLUMNS, "parallel", (total, store))
    return ir.LoopNest("row_sums", _PARAMETERS, (), (loop,))


def softmax(size: int) -> ir.LoopNest:
    """Softmax of every row, in three stages."""
    place = _index(r=_COLUMNS, k=1)
    x = ir.Load(0, place, float32)
    power = _call("exp", _call("sub", x, ir.Name("top", float32)))
    scaled = _call("mul", ir.Load(1, place, float32), ir.Name("scale", float32))
    one = ir.Number(1.0, float32)
    body = (
        _reduction("max", "top", x),
        ir.For("k", _COLUMNS, "serial", (ir.Store(1, place, power),), vector=True),
        _reduction("add", "total", ir.Load(1, place, float32)),
        ir.Let("scale", _call("div", one, ir.Name("total", float32))),
        ir.For("k", _COLUMNS, "serial", (ir.Store(1, place, scaled),), vector=True),
    )
    loop = ir.For("r", size // _COLUMNS, "parallel", body)
    return ir.LoopNest("softmax", _PARAMETERS, (), (loop,))


def _numpy_softmax(x: np.ndarray, y: np.ndarray) -> None:
    rows, out = x.reshape(-1, _COLUMNS), y.reshape(-1, _COLUMNS)
    np.subtract(rows, rows.max(1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(1, keepdims=True)


def _numpy_affine(x: np.ndarray, y: np.ndarray) -> None:
    np.multiply(x, 2.0, out=y)
    y += 1.0


def _numpy_row_sums(x: np.ndarray, y: np.ndarray) -> None:
    np.sum(x.reshape(-1, _COLUMNS), axis=1, out=y[: x.size // _COLUMNS])


CASES: tuple[tuple[Callable[[int], ir.LoopNest], Callable[..., None], int], ...] = (
    (affine, _numpy_affine, 8),
    (row_sums, _numpy_row_sums, 4),
    (softmax, _numpy_softmax, 8),
)


def _fastest(run: Callable[[], None]) -> float:
    times = []
    for _ in range(_REPETITIONS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Prints GB/s of the bytes that have to move."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 22
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    wanted, y = np.zeros_like(x), np.zeros_like(x)
    error = np.zeros(4, np.int64)
    addresses = np.array([x.ctypes.data, y.ctypes.data])
    for make, reference, element_bytes in CASES:
        nest = make(size)
        kernel = _KERNEL(compile_nest(nest))
        call = (addresses.ctypes.data, 0, 0, nest.tasks, error.ctypes.data)
        ours = _fastest(functools.partial(kernel, *call))
        theirs = _fastest(functools.partial(reference, x, wanted))
        assert np.allclose(y, wanted, rtol=1e-4, atol=1e-4), nest.name
        speeds = (size * element_bytes / seconds / 1e9 for seconds in (ours, theirs))
        print("{:10s} metaop {:6.1f} GB/s   NumPy {:6.1f} GB/s".format(nest.name, *speeds))


if __name__ == "__main__":
    main()
