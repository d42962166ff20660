"""Reductions as machine code against the interpreter of loop nests."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.codegen.nest.ir import (
    Accumulate,
    Accumulator,
    InBounds,
    Let,
    Load,
    MultipleOf,
    Name,
    Store,
)
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from tests.codegen.run_nest import (
    F32,
    F64,
    I64,
    READ_WRITE,
    arrays,
    call,
    check_nest,
    index,
    load,
    nest,
    number,
    reduction,
    run_nest,
    serial,
    store_name,
    vector,
)

# --- reductions ---------------------------------------------------------------------------------

REDUCERS = [
    *((reducer, dtype) for reducer in ("add", "max", "min") for dtype in dtypes.ALL[1:]),
    ("mul", F32),
    ("mul", I64),
    ("max", dtypes.bool_),
    ("min", dtypes.bool_),
    ("and", dtypes.bool_),
    ("or", dtypes.bool_),
]


@pytest.mark.parametrize(("reducer", "dtype"), REDUCERS, ids=str)
def test_reductions_over_lanes(reducer: str, dtype: DType, target: str) -> None:
    body = [
        reduction(reducer, load(0, dtype, r=70, k=1), 70),
        store_name(1, index(0, r=1), "total", dtype),
    ]
    rows = nest([(dtype, "read"), (dtype, "write")], serial("r", 3, *body, kind="parallel"))
    check_nest(rows, arrays((210, dtype), (3, dtype)), pieces=2)


@pytest.mark.parametrize("dtype", [F32, F64, dtypes.bfloat16, dtypes.int8], ids=str)
def test_reductions_over_outer_axes(dtype: DType, target: str) -> None:
    sums = [Accumulator("total", "add", dtype), Accumulator("top", "max", dtype)]
    value = load(0, dtype, k=90, i=1)
    inner = serial("k", 5, Accumulate("total", value), Accumulate("top", value), sums=sums)
    stores = [
        store_name(1, index(0, i=1), "total", dtype),
        store_name(2, index(0, i=1), "top", dtype),
    ]
    three = [(dtype, "read"), (dtype, "write"), (dtype, "write")]
    columns = nest(three, vector("i", 90, inner, *stores))
    check_nest(columns, arrays((450, dtype), (90, dtype), (90, dtype)), pieces=3)


def test_sums_of_every_length(target: str) -> None:
    for extent in range(70):
        value = call("mul", load(0, F32, k=1), load(0, F32, k=1))
        body = [reduction("add", value, extent), store_name(1, index(0), "total", F32)]
        check_nest(nest(READ_WRITE, *body), arrays((70, F32), (1, F32)))


@pytest.mark.parametrize("shift", [0, 3, -3])
@pytest.mark.parametrize("length", [1, 5, 639, 640, 641, 1279, 1281, 1700, 1920])
def test_parts_of_a_sum_that_end_early(length: int, shift: int, target: str) -> None:
    """Three parts of 640 elements; those from `length` on, and before the first, count as -1."""
    at = index(shift, r=640, k=1)
    guarded = Load(0, at, F32, (InBounds(at, length),), -1.0)
    body = [reduction("add", guarded, 640), store_name(1, index(0, r=1), "total", F32)]
    parts = nest(READ_WRITE, serial("r", 3, *body, kind="parallel"))
    check_nest(parts, arrays((length, F32), (3, F32)), pieces=2)


def test_accumulating_through_two_loops(target: str) -> None:
    sums = [Accumulator("total", "add", F32)]
    inner = serial("b", 4, Accumulate("total", load(0, F32, a=160, b=40, i=1)))
    lanes = vector(
        "i", 40, serial("a", 3, inner, sums=sums), store_name(1, index(i=1), "total", F32)
    )
    check_nest(nest(READ_WRITE, lanes), arrays((480, F32), (40, F32)))
    inner = vector("i", 40, Accumulate("total", load(0, F32, a=40, i=1)), kind="serial")
    outer = serial("a", 12, inner, sums=sums)
    body = [outer, store_name(1, index(0), "total", F32)]
    check_nest(nest(READ_WRITE, *body), arrays((480, F32), (1, F32)))


def test_rows_in_stages(target: str) -> None:
    x = load(0, F32, r=50, k=1)
    shifted = call("sub", x, Name("top", F32))
    body = [
        reduction("max", x, 50, name="top"),
        reduction("add", call("mul", shifted, shifted), 50),
        Let("scale", call("div", number(1.0, F32), Name("total", F32))),
        vector(
            "k",
            50,
            Store(1, index(0, r=50, k=1), call("mul", shifted, Name("scale", F32))),
            kind="serial",
        ),
    ]
    rows = nest(READ_WRITE, serial("r", 4, *body, kind="parallel"))
    check_nest(rows, arrays((200, F32), (200, F32)))


@pytest.mark.parametrize("reducer", ["max", "min"])
def test_extremes_keep_nan(reducer: str, target: str) -> None:
    for place in (0, 17, 63, 69):
        values = arrays((70, F32), (1, F32))
        values[0][place] = np.nan
        body = [reduction(reducer, load(0, F32, k=1), 70), store_name(1, index(0), "total", F32)]
        assert np.isnan(run_nest(nest(READ_WRITE, *body), values)[0][1][0])


def test_unrolled_loops(target: str) -> None:
    sums = [Accumulator("total", "add", F32)]
    window = serial("k", 3, Accumulate("total", load(0, F32, i=1, k=1)), sums=sums, kind="unroll")
    body = vector("i", 41, window, store_name(1, index(i=1), "total", F32))
    check_nest(nest(READ_WRITE, body), arrays((43, F32), (41, F32)))


# --- random nests -------------------------------------------------------------------------------


def random_load(generator: np.random.Generator, extents: dict[str, int], dtype: DType) -> Load:
    """A load from buffer 0, 64 elements long, guarded where it would leave the buffer."""
    coefficients = {axis: int(generator.choice([-3, -1, 0, 1, 1, 2])) for axis in extents}
    offset = index(int(generator.integers(-5, 40)), **coefficients)
    conditions = [InBounds(offset, 64)]
    if generator.random() < 0.3:
        conditions.append(MultipleOf(index(int(generator.integers(-3, 3)), **coefficients), 3))
    if generator.random() < 0.3:
        axis = str(generator.choice(list(extents)))
        conditions.append(InBounds(index(-1, **{axis: 1}), int(generator.integers(1, 9))))
    return Load(0, offset, dtype, tuple(conditions), int(generator.integers(0, 3)))


def random_value(generator: np.random.Generator, extents: dict[str, int], dtype: DType, depth: int):
    if depth == 0:
        return random_load(generator, extents, dtype)
    operands = [random_value(generator, extents, dtype, depth - 1) for _ in range(2)]
    return call(str(generator.choice(["add", "sub", "mul", "maximum"])), *operands)


@pytest.mark.parametrize("seed", range(12))
def test_random_nests(seed: int, target: str) -> None:
    generator = np.random.default_rng(seed)
    dtype = [F32, F64, dtypes.int32, dtypes.int16][seed % 4]
    extents = {"r": 3, "i": int(generator.integers(1, 45)), "k": int(generator.integers(1, 4))}
    sums = [Accumulator("s", "add", dtype), Accumulator("m", "min", dtype)]
    inner = serial(
        "k",
        extents["k"],
        Accumulate("s", random_value(generator, extents, dtype, 2)),
        Accumulate("m", random_value(generator, extents, dtype, 1)),
        sums=sums,
    )
    outside = random_value(generator, {"r": 3, "i": 0}, dtype, 2)
    total = call("add", call("mul", Name("s", dtype), outside), Name("m", dtype))
    width = extents["i"]
    lanes = vector("i", width, inner, Store(1, index(0, r=width, i=1), total), kind="serial")
    kernel = nest([(dtype, "read"), (dtype, "write")], serial("r", 3, lanes, kind="parallel"))
    check_nest(kernel, arrays((64, dtype), (3 * width, dtype), seed=seed))
