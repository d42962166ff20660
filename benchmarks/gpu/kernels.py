"""Single operations on a GPU, large enough to fill it, beside the ceilings of the card."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.frameworks import Framework

_ROWS, _WIDTH = 1 << 16, 1 << 12
_SECONDS, _LEAST, _TURNS = 0.02, 3, 5
Function = Callable[[], Any]


class Operation(NamedTuple):
    """An operation: what it reads and writes at least, in bytes, and what it multiplies and adds.

    `prepare` makes its inputs on the GPU of a framework; the result computes it once.
    """

    name: str
    nbytes: float
    flops: float
    prepare: Callable[[Framework], Function]


def operations() -> Iterator[Operation]:
    """The operations of the table."""
    numbers = 4 * _ROWS * _WIDTH
    shape = _ROWS, _WIDTH
    yield _of("x + 1", 2 * numbers, lambda f, x: x + 1, shape)
    yield _of("x * y + z", 4 * numbers, lambda f, x, y, z: x * y + z, shape, shape, shape)
    yield _of("gelu", 2 * numbers, lambda f, x: f.functional.gelu(x), shape)
    yield _of("sum", numbers, lambda f, x: x.sum(), shape)
    yield _of("sum of rows", numbers, lambda f, x: x.sum(1), shape)
    yield _of("sum of columns", numbers, lambda f, x: x.sum(0), shape)
    yield _of("softmax", 2 * numbers, lambda f, x: x.softmax(1), shape)
    yield _of("layer_norm", 2 * numbers, lambda f, x: f.functional.layer_norm(x, (_WIDTH,)), shape)
    yield _of("transpose", 2 * numbers, lambda f, x: x.t().contiguous(), shape)
    yield _of("cumsum", 2 * numbers, lambda f, x: x.cumsum(1), shape)
    images = (64, 256, 56, 56)
    pixels = 4 * math.prod(images)
    yield _of(
        "batch_norm",
        2 * pixels,
        lambda f, x: f.functional.batch_norm(x, None, None, training=True),
        images,
    )
    yield _of("max_pool2d", 1.25 * pixels, lambda f, x: f.functional.max_pool2d(x, 2), images)
    for side in (1024, 4096):
        for dtype in ("float32", "bfloat16"):
            yield _product(side, dtype)
    batched = (512, 128, 128)
    yield _of(
        "512 products of 128 x 128",
        12 * math.prod(batched),
        lambda f, x, y: x @ y,
        batched,
        batched,
        flops=2 * math.prod(batched) * 128,
    )
    for kernel in (1, 3):
        yield _of(
            f"conv2d {kernel} x {kernel}",
            2 * pixels,
            lambda f, x, w: f.functional.conv2d(x, w, padding=w.shape[-1] // 2),
            images,
            (256, 256, kernel, kernel),
            flops=2 * math.prod(images) * 256 * kernel**2,
        )
    yield _of(
        "depthwise conv2d 3 x 3",
        2 * pixels,
        lambda f, x, w: f.functional.conv2d(x, w, padding=1, groups=256),
        images,
        (256, 1, 3, 3),
    )
    heads = (16, 16, 1024, 64)
    yield _of(
        "attention",
        16 * math.prod(heads),
        lambda f, q, k, v: f.functional.scaled_dot_product_attention(q, k, v),
        *[heads] * 3,
        flops=4 * math.prod(heads) * 1024,
    )


def _of(
    name: str,
    nbytes: float,
    call: Callable[..., Any],
    *shapes: Sequence[int],
    flops: float = 0.0,
    dtype: str = "float32",
) -> Operation:
    def prepare(f: Framework) -> Function:
        kind = getattr(f.library, dtype)
        inputs = [f.library.randn(*shape, device="cuda").to(kind) for shape in shapes]
        f.finish()
        return lambda: call(f, *inputs)

    return Operation(name, nbytes, flops, prepare)


def _product(side: int, dtype: str) -> Operation:
    square = (side, side)
    nbytes = 3 * side**2 * (2 if dtype == "bfloat16" else 4)
    name = f"product of {side} x {side}, {dtype}"
    return _of(
        name, nbytes, lambda f, x, y: x @ y, square, square, flops=2.0 * side**3, dtype=dtype
    )


def seconds_of(operation: Operation, framework: Framework) -> float:
    """The seconds of one call, when many run behind each other: the least of some turns."""
    function = operation.prepare(framework)
    synchronize = framework.library.cuda.synchronize

    def turn(calls: int) -> float:
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            kept = function()
            framework.finish()
            del kept
        synchronize()
        return (time.perf_counter() - start) / calls

    turn(_LEAST)
    calls = max(_LEAST, math.ceil(_SECONDS / turn(_LEAST)))
    return min(turn(calls) for _ in range(_TURNS))
