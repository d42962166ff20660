"""Checked indices, updates, scratch memory and register tiles as machine code."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.codegen.nest.ir import (
    Alloc,
    Apply,
    CheckedIndex,
    InBounds,
    Load,
    LoopIndex,
    LoopNest,
    MicroKernel,
    MultipleOf,
    Store,
    Sum,
    Update,
    ValueIndex,
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
    generalised,
    index,
    load,
    nest,
    run_nest,
    serial,
    vector,
)

# --- checked indices ----------------------------------------------------------------------------


def take_nest(extent: int, *conditions) -> LoopNest:
    picked = Load(0, Sum(((ValueIndex("at"), 2), (LoopIndex("r"), 1)), 0), F32)
    body = [
        CheckedIndex("at", load(2, dtypes.int32, i=1), 20, 11, tuple(conditions)),
        Store(1, index(0, r=extent, i=1), picked),
    ]
    lanes = vector("i", extent, *body, kind="serial")
    kinds = [(F32, "read"), (F32, "write"), (dtypes.int32, "read")]
    return nest(kinds, serial("r", 2, lanes, kind="parallel"))


def test_gathers(target: str) -> None:
    for extent in (1, 5, 16, 45):
        values = arrays((41, F32), (2 * extent, F32))
        places = np.random.default_rng(1).integers(0, 20, extent).astype(np.int32)
        check_nest(take_nest(extent), [*values, places])


@pytest.mark.parametrize("wrong", [-1, 20, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("place", [0, 17, 44])
def test_indices_out_of_range_are_reported(wrong: int, place: int, target: str) -> None:
    places = np.zeros(45, np.int32)
    places[place] = wrong
    for kernel in (take_nest(45), generalised(take_nest(45))):
        (_, output, _), error = run_nest(kernel, [*arrays((41, F32), (90, F32)), places])
        assert error == [1, 11, wrong, 20]
        assert (output[:45] == output[0]).all()


def test_indices_that_are_not_used_are_not_checked(target: str) -> None:
    places = np.full(45, -5, np.int32)
    places[3:20] = 4
    kernel = take_nest(45, InBounds(index(-3, i=1), 17))
    _, error = run_nest(kernel, [*arrays((41, F32), (90, F32)), places])
    assert error == [0] * 4
    _, error = run_nest(
        take_nest(45, InBounds(index(-2, i=1), 17)), [*arrays((41, F32), (90, F32)), places]
    )
    assert error == [1, 11, -5, 20]


def test_one_checked_index_for_all_lanes(target: str) -> None:
    body = [
        CheckedIndex("at", load(2, I64, r=1), 4, 3),
        vector(
            "i",
            21,
            Store(
                1,
                index(0, r=21, i=1),
                Load(0, Sum(((ValueIndex("at"), 21), (LoopIndex("i"), 1)), 0), F32),
            ),
            kind="serial",
        ),
    ]
    kinds = [(F32, "read"), (F32, "write"), (I64, "read")]
    kernel = nest(kinds, serial("r", 3, *body, kind="parallel"))
    values = arrays((84, F32), (63, F32))
    check_nest(kernel, [*values, np.array([3, 0, 2])])
    assert run_nest(kernel, [*values, np.array([3, 4, 2])])[1] == [1, 3, 4, 4]


def zeros_nest(extent: int, dtype: DType, *conditions) -> LoopNest:
    is_zero = Apply("logical_not", (load(0, dtype, i=1),), dtypes.bool_, dtype)
    body = [
        CheckedIndex("k", is_zero, 1, 1, tuple(conditions)),
        Store(1, index(0, i=1), load(0, dtype, i=1)),
    ]
    return nest([(dtype, "read"), (dtype, "write")], vector("i", extent, *body))


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int32, I64], ids=str)
@pytest.mark.parametrize("extent", [1, 5, 45])
def test_refused_values_are_reported(extent: int, dtype: DType, target: str) -> None:
    numbers = np.arange(1, extent + 1).astype(dtype.numpy)
    outputs = np.zeros_like(numbers)
    check_nest(zeros_nest(extent, dtype), [numbers, outputs])
    for place in (0, extent // 2, extent - 1):
        wrong = numbers.copy()
        wrong[place] = 0
        for kernel in (zeros_nest(extent, dtype), generalised(zeros_nest(extent, dtype))):
            (_, result), error = run_nest(kernel, [wrong, outputs])
            assert error == [1, 1, 1, 1]
            assert (result == wrong).all()


def test_refused_values_that_are_not_used_are_not_reported(target: str) -> None:
    numbers = np.ones(45, np.int32)
    numbers[[2, 20]] = 0
    for first, reported in ((-3, False), (-2, True)):
        kernel = zeros_nest(45, dtypes.int32, InBounds(index(first, i=1), 17))
        _, error = run_nest(kernel, [numbers, np.zeros_like(numbers)])
        assert error == ([1] * 4 if reported else [0] * 4)


# --- updates ------------------------------------------------------------------------------------


NUMBERS = (F32, F64, I64, dtypes.uint8, dtypes.float16)
UPDATES = [
    *((reducer, dtype) for reducer in ("add", "max", "mul") for dtype in NUMBERS),
    ("or", dtypes.bool_),
    ("and", dtypes.bool_),
]


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize(("reducer", "dtype"), UPDATES, ids=str)
def test_updates_with_collisions(reducer: str, dtype: DType, atomic: bool, target: str) -> None:
    body = [
        CheckedIndex("at", load(2, I64, i=1), 5, 0),
        Update(
            1,
            Sum(((ValueIndex("at"), 1),), 2),
            reducer,
            load(0, dtype, i=1),
            (InBounds(index(-1, i=1), 40),),
            atomic,
        ),
    ]
    kinds = [(dtype, "read"), (dtype, "update"), (I64, "read")]
    places = np.random.default_rng(2).integers(0, 5, 45)
    check_nest(nest(kinds, vector("i", 45, *body)), [*arrays((45, dtype), (8, dtype)), places])


@pytest.mark.parametrize("dtype", [F32, dtypes.bfloat16, dtypes.uint8], ids=str)
def test_updates_of_whole_rows(dtype: DType, target: str) -> None:
    place = Sum(((ValueIndex("at"), 40), (LoopIndex("i"), 1)), 0)
    for conditions in ((), (InBounds(index(-3, i=1), 30),)):
        add = Update(1, place, "add", load(0, dtype, r=37, i=1), conditions)
        body = [CheckedIndex("at", load(2, I64, r=1), 4, 0), vector("i", 37, add, kind="serial")]
        kinds = [(dtype, "read"), (dtype, "update"), (I64, "read")]
        kernel = nest(kinds, serial("r", 5, *body))
        places = np.array([3, 0, 3, 3, 1])
        check_nest(kernel, [*arrays((185, dtype), (160, dtype)), places])


def test_updates_of_one_element_by_all_lanes(target: str) -> None:
    for conditions in ((), (MultipleOf(index(0, i=1), 3),)):
        update = Update(1, index(1), "add", load(0, F32, i=1), conditions)
        kernel = nest([(F32, "read"), (F32, "update")], vector("i", 45, update))
        check_nest(kernel, arrays((45, F32), (3, F32)))


# --- scratch memory and the register tile -------------------------------------------------------


@pytest.mark.parametrize("elements", [40, 40_000])
def test_scratch_memory(elements: int, target: str) -> None:
    x = load(0, F32, r=40, i=1)
    body = [
        Alloc(-1, elements, F32),
        Alloc(-2, elements, F64),
        vector("i", 40, Store(-1, index(0, i=1), call("mul", x, x)), kind="serial"),
        vector(
            "i",
            40,
            Store(-2, index(0, i=1), call("cast", load(-1, F32, 39, i=-1), dtype=F64)),
            kind="serial",
        ),
        vector(
            "i",
            40,
            Store(1, index(0, r=40, i=1), call("cast", load(-2, F64, i=1), dtype=F32)),
            kind="serial",
        ),
    ]
    kernel = nest(READ_WRITE, serial("r", 3, *body, kind="parallel"))
    check_nest(kernel, arrays((120, F32), (120, F32)))


def test_exhausted_memory_is_an_error() -> None:
    body = [Alloc(-1, 1 << 58, F32), vector("i", 4, Store(-1, index(0, i=1), load(0, F32, i=1)))]
    _, error = run_nest(nest(READ_WRITE, *body), arrays((4, F32), (4, F32)))
    assert error == [2, 0, 1 << 60, 0]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (6, 8), (4, 32), (3, 4), (2, 12)])
@pytest.mark.parametrize("depth", [0, 1, 9])
def test_register_tiles(dtype: DType, rows: int, columns: int, depth: int, target: str) -> None:
    stride = columns + 3
    for accumulate in (index(0), index(1), index(0, s=1)):
        tile = MicroKernel(
            0, index(2), 1, index(1), 2, index(4), stride, rows, columns, index(depth),
            accumulate, dtype,
        )  # fmt: skip
        kinds = [(dtype, "read"), (dtype, "read"), (dtype, "update")]
        kernel = nest(kinds, serial("s", 2, tile))
        sizes = (
            (2 + depth * tile.left_pitch, dtype),
            (1 + depth * columns, dtype),
            (5 + rows * stride, dtype),
        )
        check_nest(kernel, arrays(*sizes))
