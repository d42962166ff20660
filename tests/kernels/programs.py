"""Kernels that show everything that the language can say, with NumPy's word for what they mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import metaop
from metaop.kernels import (
    Kernel,
    Output,
    atomic_add,
    atomic_max,
    barrier,
    cast,
    copy,
    fill,
    lanes,
    scratch,
    shared,
    task,
    tasks,
)

THIRD = 1 / 3


@metaop.kernel(tasks=lambda x: x.shape[0], outputs=lambda x: x)
def row_softmax(x, y):
    """A row in scratch memory, an extreme and a sum over lanes."""
    row, columns = task(), x.shape[1]
    line = scratch(columns, x.dtype)
    copy(line, x[row])
    largest = -math.inf
    for j in lanes(columns):
        largest = max(largest, line[j])
    total = 0.0
    for j in lanes(columns):
        line[j] = metaop.exp(line[j] - largest)
        total += line[j]
    for j in lanes(columns):
        y[row, j] = line[j] / total


@metaop.kernel(
    tasks=lambda scale, x: x.shape[0],
    outputs=lambda scale, x: [(x.shape, metaop.int64), (x.shape, x.dtype)],
)
def escape(scale, x, count, last):
    """A value carried through a loop, a count under a condition, a float argument."""
    z = 0.0
    n = 0
    for _ in range(20):
        if z < 4.0:
            z = z * z + x[task()] * scale
            n += 1
    count[task()] = n
    last[task()] = z


@metaop.kernel(
    tasks=lambda starts, columns, values, x: starts.shape[0] - 1,
    outputs=lambda starts, columns, values, x: ((starts.shape[0] - 1,), x.dtype),
)
def sparse_product(starts, columns, values, x, y):
    """Loops whose extents, and indices which, only the run tells."""
    total = 0.0
    for k in range(starts[task()], starts[task() + 1]):
        total += values[k] * x[columns[k]]
    y[task()] = total


@metaop.kernel(tasks=4, outputs=lambda x: [Output((10,), metaop.int64, 0), Output((), x.dtype, -1)])
def counts(x, y, largest):
    """Updates of elements that tasks share."""
    part = -(-x.shape[0] // tasks())
    for i in range(task() * part, min((task() + 1) * part, x.shape[0])):
        atomic_add(y, x[i], 1)
        atomic_max(largest, (), x[i])


@metaop.kernel(tasks=lambda x, sweeps: x.shape[0], outputs=lambda x, sweeps: x)
def smooth(x, sweeps, y):
    """Barriers in a loop, memory of all tasks, neighbours under a condition."""
    i = task()
    before = shared(x.shape, x.dtype)
    y[i] = x[i]
    for _ in range(sweeps):
        barrier()
        before[i] = y[i]
        barrier()
        if i > 0 and i + 1 < tasks():
            y[i] = (before[i - 1] + before[i] + before[i + 1]) * THIRD


@metaop.kernel(
    tasks=lambda left, right: left.shape[0] // 4,
    outputs=lambda left, right: ((left.shape[0], right.shape[1]), left.dtype),
)
def tiled_product(left, right, y):
    """Tiles of several dimensions, slices, nested loops."""
    first, columns = task() * 4, right.shape[1]
    tile = scratch((4, columns), y.dtype)
    panel = scratch((4, 8), left.dtype)
    fill(tile, 0.0)
    for k in range(0, left.shape[1], 8):
        copy(panel, left[first : first + 4, k : k + 8])
        for depth in range(8):
            for row in range(4):
                for j in lanes(columns):
                    tile[row, j] += panel[row, depth] * right[k + depth, j]
    copy(y[first : first + 4], tile)


@metaop.kernel(tasks=lambda x: x.shape[0], outputs=lambda x: x)
def clipped_ramp(x, y):
    """Branches that give names values, conditional expressions, chained comparisons."""
    v = x[task()]
    if v > 1:
        r = 1.0
    elif v < 0:
        r = 0.0
    else:
        r = v
    inside = 0.25 < r <= 0.75
    y[task()] = r + 10 * (1 if inside else 2) if not (v == 0.5 or r == 0) else -1


@metaop.kernel(tasks=lambda x: x.shape[0], outputs=lambda x: (x.shape, metaop.float32))
def triangle(x, y):
    """Extents that depend on the task, steps, going down, casts, integer arithmetic."""
    total = cast(0, metaop.float32)
    for j in range(task() + 1):
        total += x[j]
    for j in range(task(), -1, -2):
        total -= x[j] // 3 % 5
    for j in range(0, x.shape[0], 3):
        total += j * task() % 7
    y[task()] = total


@metaop.kernel(
    tasks=lambda x: x.shape[0] * x.shape[1], outputs=lambda x: ((x.shape[1], x.shape[0]), x.dtype)
)
def transposed(x, y):
    """Quotients and remainders of the task number."""
    columns = x.shape[1]
    y[task() % columns, task() // columns] = x[task() // columns, task() % columns]


class Program(NamedTuple):
    """A kernel with operands and what NumPy makes of them."""

    kernel: Kernel
    operands: Callable[[np.random.Generator], list[Any]]
    meaning: Callable[..., Any]


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _escape(scale: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    z, n = np.zeros(x.shape), np.zeros(x.shape, np.int64)
    for _ in range(20):
        alive = z < 4
        z = np.where(alive, z * z + x * scale, z)
        n += alive
    return n, z


def _matrix(generator: np.random.Generator) -> list[np.ndarray]:
    dense = generator.random((30, 40)) * (generator.random((30, 40)) < 0.2)
    starts = np.concatenate([[0], np.cumsum((dense != 0).sum(1))])
    x = generator.standard_normal(40).astype(np.float32)
    return [starts, np.nonzero(dense)[1], dense[dense != 0].astype(np.float32), x]


def _sparse(starts: Any, columns: Any, values: Any, x: np.ndarray) -> np.ndarray:
    products = values * x[columns]
    return np.array([products[a:b].sum() for a, b in pairwise(starts)])


def _smooth(x: np.ndarray, sweeps: int) -> np.ndarray:
    y = x.astype(np.float64)
    for _ in range(sweeps):
        y[1:-1] = (y[:-2] + y[1:-1] + y[2:]) / 3
    return y


def _ramp(x: np.ndarray) -> np.ndarray:
    r = np.clip(x, 0, 1)
    weight = np.where((r > 0.25) & (r <= 0.75), 1, 2)
    return np.where((x == 0.5) | (r == 0), -1, r + 10 * weight)


def _triangle(x: np.ndarray) -> np.ndarray:
    result = []
    for t in range(len(x)):
        down = x[np.arange(t, -1, -2)] // 3 % 5
        ramp = np.arange(0, len(x), 3) * t % 7
        result.append(x[: t + 1].sum() - down.sum() + ramp.sum())
    return np.array(result)


def _normal(*shape: int, dtype: type = np.float32) -> Callable[..., list[Any]]:
    return lambda generator: [generator.standard_normal(shape).astype(dtype)]


PROGRAMS: dict[str, Program] = {
    "softmax": Program(row_softmax, _normal(37, 133), _softmax),
    "softmax short rows": Program(row_softmax, _normal(9, 5), _softmax),
    "softmax float64": Program(row_softmax, _normal(3, 700, dtype=np.float64), _softmax),
    "escape": Program(escape, lambda g: [0.5, *_normal(101)(g)], _escape),
    "sparse": Program(sparse_product, _matrix, _sparse),
    "counts": Program(
        counts,
        lambda g: [g.integers(0, 10, 403)],
        lambda x: (np.bincount(x, minlength=10), x.max()),
    ),
    "smooth": Program(smooth, lambda g: [*_normal(50)(g), 3], _smooth),
    "smooth not at all": Program(smooth, lambda g: [*_normal(5)(g), 0], _smooth),
    "tiles": Program(
        tiled_product, lambda g: [*_normal(12, 24)(g), *_normal(24, 19)(g)], np.matmul
    ),
    "ramp": Program(clipped_ramp, lambda g: [np.round(_normal(300)(g)[0] * 4) / 8], _ramp),
    "triangle": Program(triangle, lambda g: [g.integers(-20, 20, 23)], _triangle),
    "triangle bytes": Program(
        triangle, lambda g: [g.integers(0, 9, 40).astype(np.uint8)], _triangle
    ),
    "transposed": Program(transposed, _normal(7, 11), np.transpose),
    "transposed halves": Program(transposed, _normal(16, 8, dtype=np.float16), np.transpose),
}


def operands_of(name: str) -> list[Any]:
    """Operands for a program, the same each time."""
    return PROGRAMS[name].operands(np.random.default_rng(len(name)))


def as_tensors(operands: list[Any]) -> list[Any]:
    """Arrays as tensors; numbers stay."""
    return [metaop.tensor(one) if isinstance(one, np.ndarray) else one for one in operands]


def assert_means(results: Any, meaning: Any) -> None:
    """The results are those that NumPy computes."""
    made = results if isinstance(results, tuple) else (results,)
    wanted = meaning if isinstance(meaning, tuple) else (meaning,)
    for one, other in zip(made, wanted, strict=True):
        tolerance = 2e-5 if one.is_floating_point() else 0
        np.testing.assert_allclose(one.numpy(), other, rtol=tolerance, atol=tolerance)
