"""Loads in tiles: lanes far apart, iterations of the serial loop side by side."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from metaop.codegen.llvm.builder import Builder
from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.objects.engine import compile_kernel
from metaop.codegen.llvm.target import Target, host_target
from metaop.codegen.llvm.transposition import symbol_for, text_of, transposed
from metaop.codegen.nest.ir import (
    Accumulate,
    Accumulator,
    CheckedIndex,
    For,
    InBounds,
    Load,
    LoopNest,
    MultipleOf,
    QuotientIndex,
    RemainderIndex,
    Store,
    Sum,
    ValueIndex,
)
from metaop.compiler import schedule
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import input_node
from tests.codegen.interpret import run_schedule
from tests.codegen.run_nest import (
    F32,
    I64,
    READ_WRITE,
    arrays,
    call,
    check_nest,
    index,
    nest,
    number,
    run_nest,
    serial,
    store_name,
    vector,
)

_TRANSPOSE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
SIZES = [(16, 16), (16, 35), (37, 21), (5, 8), (3, 4), (70, 6)]
GUARDS = {
    "lanes": (InBounds(index(-2, i=1), 30),),
    "iterations": (InBounds(index(-3, k=1), 9),),
    "both": (InBounds(index(-2, i=1), 30), MultipleOf(index(1, k=1), 2)),
    "sums": (InBounds(index(-9, i=1, k=1), 40),),
}


def transposition(rows: int, depth: int, value, dtype: DType = F32) -> LoopNest:
    """`b1[k, i] = value`, where lanes run along i."""
    store = Store(1, index(1, i=1, k=rows + 1), value)
    loop = vector("i", rows, serial("k", depth, store))
    return nest([(F32, "read"), (dtype, "write")], loop)


def strided(rows: int, depth: int, *conditions, fill: float = 0.0) -> Load:
    return Load(0, index(3, i=depth + 5, k=1), F32, tuple(conditions), fill)


def check(found: LoopNest, rows: int, depth: int, dtype: DType = F32) -> None:
    source, target = (rows * (depth + 5) + depth + 3, F32), ((rows + 1) * depth + 1, dtype)
    check_nest(found, arrays(source, target))


@pytest.mark.parametrize("rows, depth", SIZES)
def test_sizes(rows: int, depth: int, target: str) -> None:
    value = strided(rows, depth)
    check(transposition(rows, depth, value), rows, depth)
    long = call("tanh", call("mul", call("add", value, number(1.0, F32)), call("exp", value)))
    check(transposition(rows, depth, call("mul", long, call("sin", long))), rows, depth)


@pytest.mark.parametrize("guards", GUARDS)
def test_guards(guards: str, target: str) -> None:
    for (rows, depth), fill in itertools.product(SIZES, (0.0, 2.5)):
        value = strided(rows, depth, *GUARDS[guards], fill=fill)
        check(transposition(rows, depth, value), rows, depth)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_types(dtype: DType, target: str) -> None:
    for rows, depth in ((64, 64), (37, 21)):
        value = Load(0, index(3, i=depth + 5, k=1), dtype)
        store = Store(1, index(1, i=1, k=rows + 1), value)
        loop = vector("i", rows, serial("k", depth, store))
        found = nest([(dtype, "read"), (dtype, "write")], loop)
        sizes = rows * (depth + 5) + depth + 3, (rows + 1) * depth + 1
        check_nest(found, arrays((sizes[0], dtype), (sizes[1], dtype)))


@pytest.mark.parametrize("width", [3, 7, 14, 28, 40])
def test_rows_of_images_along_the_serial_axis(width: int, target: str) -> None:
    position = index(0, k=1)
    row, column = QuotientIndex(position, width), RemainderIndex(position, width)
    offset = Sum((*index(0, i=900).terms, (row, width + 2), (column, 1)), 0)
    inside = InBounds(Sum(((column, 1),), -1), width - 2)
    for conditions in ((), (inside,)):
        store = Store(1, index(0, i=1, k=20), Load(0, offset, F32, conditions, 3.0))
        found = nest(READ_WRITE, vector("i", 20, serial("k", 83, store)))
        check_nest(found, arrays((900 * 20, F32), (20 * 83, F32)))


@pytest.mark.parametrize("stride", [2, 3, 4, 5])
def test_iterations_a_few_elements_apart(stride: int, target: str) -> None:
    """The gradient of a strided convolution by its weight reads its image so."""
    for (rows, depth), guards in itertools.product(SIZES, (None, *GUARDS)):
        length = stride * depth + 5
        conditions = GUARDS[guards] if guards else ()
        value = Load(0, index(3, i=length, k=stride), F32, conditions, 0.0)
        target_array = ((rows + 1) * depth + 1, F32)
        check_nest(
            transposition(rows, depth, value), arrays((rows * length + 3, F32), target_array)
        )


def test_sums_of_tiles(target: str) -> None:
    """Several chains of lanes, each with a tile of its own; one load is no tile."""
    for rows, depth in SIZES:
        product = call("mul", strided(rows, depth), Load(0, index(0, k=1), F32))
        loop = serial("k", depth, Accumulate("a", product), sums=[Accumulator("a", "add", F32)])
        store = store_name(1, index(0, i=1), "a", F32)
        check(nest(READ_WRITE, vector("i", rows, loop, store)), rows, depth)


def test_a_buffer_written_in_the_loop_is_read_element_by_element(target: str) -> None:
    value = call("add", strided(20, 20), number(1.0, F32))
    loop = serial("k", 20, Store(0, index(3, i=25, k=1), value))
    check_nest(nest([(F32, "update")], vector("i", 20, loop)), arrays((600, F32)))


def test_gathered_lanes_stay_gathered(target: str) -> None:
    place = Load(1, index(0, i=1), I64)
    offset = Sum((*index(0, k=1).terms, (ValueIndex("n"), 30)), 0)
    store = Store(2, index(0, i=1, k=20), Load(0, offset, F32))
    body = CheckedIndex("n", place, 9, 0), serial("k", 20, store)
    found = nest([(F32, "read"), (I64, "read"), (F32, "write")], vector("i", 20, *body))
    source, target_array = arrays((300, F32), (400, F32))
    places = np.random.default_rng(1).integers(0, 9, 20)
    check_nest(found, [source, places, target_array])


@pytest.mark.parametrize("stride", [1, 2])
def test_tiles_leave_no_gathers(stride: int) -> None:
    value = Load(0, index(3, i=160, k=stride), F32)
    target = Target("x86_64", "znver4", "+avx512f,+avx512bw,+avx512vl,+avx512dq", 64)
    assert "gather" not in emit(transposition(32, 64, value), target, "kernel")


@pytest.mark.parametrize("kind, count", [("float", 16), ("double", 8), ("i16", 32), ("i8", 2)])
def test_shuffles_stay_in_blocks_first(kind: str, count: int) -> None:
    """Rows whose elements are their coordinates, through the shuffles as Python lists."""
    code = Code(host_target())
    contents: dict[str, list] = {}
    rows = []
    for row in range(count):
        value = code.value(f"%row{row}", kind, count)
        contents[value.text] = [(row, column) for column in range(count)]
        rows.append(value)
    original = Builder.shuffle

    def shuffle(x, y, order):
        result = original(code, x, y, order)
        both = contents[x.text] + contents[y.text]
        contents[result.text] = [both[position] for position in order]
        return result

    code.shuffle = shuffle  # type: ignore[method-assign]
    for column, value in enumerate(transposed(code, rows)):
        assert contents[value.text] == [(row, column) for row in range(count)]


@pytest.mark.parametrize(
    "kind, dtype", [("float", "f4"), ("double", "f8"), ("i16", "i2"), ("i8", "i1")]
)
def test_the_function_that_kernels_call(kind: str, dtype: str, target: str) -> None:
    """Rows a step apart, also when the columns take their place; some rows may not exist."""
    for lanes, count in ((2, 2), (4, 4), (8, 8), (16, 16), (2, 1), (4, 3), (8, 6), (16, 14)):
        symbol = symbol_for(kind, lanes, count)
        text = text_of(symbol, host_target())
        assert text is not None
        address = compile_kernel(text, symbol)  # it holds the code
        transpose = _TRANSPOSE(address)
        rows = np.random.default_rng(0).integers(-99, 99, (lanes, lanes + 3)).astype(dtype)
        columns = aligned(lanes * lanes, dtype)
        transpose(rows.ctypes.data, rows.strides[0], columns.ctypes.data)
        expected = rows[:, :lanes].T * (np.arange(lanes) < count)
        np.testing.assert_array_equal(columns.reshape(lanes, lanes), expected)
        columns[...] = rows[:, :lanes].ravel()
        transpose(columns.ctypes.data, lanes * columns.itemsize, columns.ctypes.data)
        np.testing.assert_array_equal(columns.reshape(lanes, lanes), expected)
    assert text_of("memcpy", host_target()) is None


def aligned(size: int, dtype: str) -> np.ndarray:
    """Room as kernels have it on their stack."""
    room = np.zeros(size * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size * np.dtype(dtype).itemsize].view(dtype)


@pytest.mark.parametrize("stride", [2, 3, 4, 5])
def test_small_strides(stride: int, target: str) -> None:
    """Lanes of rows, under guards and not: loaded with the elements between them."""
    for width, dtype in itertools.product((7, 28, 40), (F32, dtypes.float64, dtypes.int16)):
        position = index(3, i=1)
        row, column = QuotientIndex(position, width), RemainderIndex(position, width)
        offset = Sum(((row, stride * width + 5), (column, stride)), 0)
        inside = InBounds(Sum(((column, stride),), -2), stride * width - 7)
        for conditions, extent in itertools.product(((), (inside,)), (64, 37)):
            for place in (offset, index(1, i=stride)):
                store = Store(1, index(0, i=1), Load(0, place, dtype, conditions, 3))
                found = nest([(dtype, "read"), (dtype, "write")], vector("i", extent, store))
                check_nest(found, arrays((1000, dtype), (extent, dtype)))


PERMUTATIONS = [
    ((40, 64), (1, 0)),
    ((37, 53), (1, 0)),
    ((2, 19, 3, 32), (0, 2, 3, 1)),
    ((2, 24, 5, 7), (0, 2, 3, 1)),
    ((2, 9, 11, 16), (0, 3, 1, 2)),
    ((3, 8, 9, 10), (3, 2, 1, 0)),
    ((700, 9), (1, 0)),
]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("shape, order", PERMUTATIONS, ids=str)
def test_permutations(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: DType, target: str
) -> None:
    node = input_node(0, shape, dtype)
    output = views.permute(node, order)
    plan = schedule([node], [output])
    (x,) = arrays((node.size, dtype))
    x = x.reshape(shape)
    wanted = np.ascontiguousarray(x.transpose(order))
    (nested,) = run_schedule(plan, [x])
    np.testing.assert_array_equal(nested, wanted)
    (launch,) = plan.launches
    (_, found), _ = run_nest(launch.nest, [x.reshape(-1), np.zeros_like(x).reshape(-1)], pieces=3)
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


def test_permutations_are_tiled_unless_they_are_short() -> None:
    for shape, depth in (((64, 64), 3), ((64, 4), 1)):
        node = input_node(0, shape, F32)
        (launch,) = schedule([node], [views.transpose(node, 0, 1)]).launches
        assert nesting(launch.nest.body) >= depth
        assert (nesting(launch.nest.body) == 3) == (depth == 3)


def nesting(body) -> int:
    return max((1 + nesting(one.body) for one in body if isinstance(one, For)), default=0)
