"""Maps as machine code against the interpreter of loop nests: accesses, types, texts."""

from __future__ import annotations

import numpy as np
import pytest

from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.emission.scalars import reciprocal
from metaop.codegen.llvm.target import host_target
from metaop.codegen.nest.ir import (
    NEAR,
    Apply,
    Argument,
    Choose,
    InBounds,
    IndexValue,
    Load,
    LoopIndex,
    LoopNest,
    MultipleOf,
    QuotientIndex,
    RemainderIndex,
    Store,
    Sum,
)
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType
from tests.codegen.run_nest import (
    F32,
    I64,
    READ_WRITE,
    arrays,
    call,
    check_nest,
    generalised,
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

# --- accesses -----------------------------------------------------------------------------------


def flat(dividend: Sum, divisor: int, width: int) -> Sum:
    """A transposed index that stays a quotient and a remainder."""
    quotient, remainder = QuotientIndex(dividend, divisor), RemainderIndex(dividend, divisor)
    return Sum(((quotient, 1), (remainder, width)), 0)


def guarded(offset: Sum, *conditions, fill: float = 0.0) -> Load:
    return Load(0, offset, F32, tuple(conditions), fill)


def pitched(dividend: Sum, divisor: int, pitch: int) -> Sum:
    """Rows of `divisor` elements that lie `pitch` apart."""
    quotient, remainder = QuotientIndex(dividend, divisor), RemainderIndex(dividend, divisor)
    return Sum(((remainder, 1), (quotient, pitch)), 0)


def rows_of_images(position: Sum, width: int, height: int) -> Sum:
    """Pixels of images with a border of two around them, as a convolution walks over them."""
    row = Sum(((QuotientIndex(position, width), 1),), 0)
    image = QuotientIndex(position, width * height)
    terms = (
        (RemainderIndex(position, width), 1),
        (RemainderIndex(row, height), width + 2),
        (image, (width + 2) * (height + 2)),
    )
    return Sum(terms, 0)


def padded_rows(position: Sum, width: int, height: int) -> Load:
    """A pixel of an image shifted by one, zero outside."""
    row = RemainderIndex(Sum(((QuotientIndex(position, width), 1),), 0), height)
    column = RemainderIndex(position, width)
    inside = (
        InBounds(Sum(((row, 1),), -1), height),
        InBounds(Sum(((column, 1),), -1), width),
    )
    image = QuotientIndex(position, width * height)
    offset = Sum(((column, 1), (row, width), (image, width * height)), -width - 1)
    return guarded(offset, *inside)


ACCESSES = {
    "contiguous": load(0, F32, 3, i=1),
    "strided": load(0, F32, 1, i=3),
    "reversed": load(0, F32, 79, i=-1),
    "backward strided": load(0, F32, 199, i=-2),
    "broadcast": load(0, F32, 5),
    "inside": guarded(index(-2, i=1), InBounds(index(-2, i=1), 20), fill=7.0),
    "inside reversed": guarded(index(9, i=-1), InBounds(index(9, i=-1), 8), fill=-1.5),
    "inside strided": guarded(index(-4, i=3), InBounds(index(-4, i=3), 50)),
    "multiples": guarded(index(0, i=1), MultipleOf(index(-7, i=1), 3), fill=2.0),
    "multiples of strides": guarded(index(0, i=2), MultipleOf(index(-3, i=2), 4)),
    "never": guarded(index(-1000, i=1), InBounds(index(-1), 5), fill=4.0),
    "both": guarded(index(0, i=1), InBounds(index(-3, i=1), 30), MultipleOf(index(0, i=1), 2)),
    "unravelled": Load(0, flat(index(0, i=1), 7, 10), F32),
    "unravelled strides": Load(0, flat(index(5, i=3), 11, 16), F32),
    "nested": Load(0, flat(flat(index(2, i=1), 5, 20), 6, 9), F32),
    "guarded quotient": guarded(
        flat(index(0, i=1), 4, 9), InBounds(flat(index(0, i=1), 4, 9), 25), fill=1.0
    ),
    "rows": Load(0, pitched(index(3, i=1), 28, 40), F32),
    "short rows": Load(0, pitched(index(0, i=1), 14, 20), F32),
    "rows apart": Load(0, rows_of_images(index(5, i=1), 7, 3), F32),
    "padded rows": padded_rows(index(5, i=1), 9, 5),
    "padded tiny rows": padded_rows(index(0, i=1), 3, 3),
    "reversed rows": Load(0, pitched(index(60, i=-1), 9, 16), F32),
    "quotient of what may be negative": guarded(
        flat(index(-6, i=1), 4, 9), InBounds(index(-6, i=1), 25), fill=1.0
    ),
    "quotient of far lanes": guarded(
        flat(index(-60, i=7), 11, 5), InBounds(index(-60, i=7), 160), fill=1.0
    ),
    "far bounds": guarded(index(0, i=1), InBounds(index(-(1 << 40), i=1 << 37), 1 << 39), fill=3),
    "multiples of a remainder": guarded(
        index(0, i=1), MultipleOf(Sum(((RemainderIndex(index(0, i=1), 9), 1),), -4), 2)
    ),
}


def map_nest(value, extent: int) -> LoopNest:
    loop = vector("i", extent, Store(1, index(0, i=1), call("add", value, number(1.0, F32))))
    return nest(READ_WRITE, loop)


@pytest.mark.parametrize("access", ACCESSES)
def test_accesses(access: str, target: str) -> None:
    for extent in (0, 1, 3, 16, 40, 53):
        check_nest(map_nest(ACCESSES[access], extent), arrays((300, F32), (extent, F32)))


def test_tails_of_every_length(target: str) -> None:
    general = generalised(map_nest(ACCESSES["inside"], 50))
    for extent in range(50):
        values = arrays((60, F32), (extent, F32))
        exact = map_nest(ACCESSES["inside"], extent)
        same = general._replace(arguments=generalised(exact).arguments)
        outputs = [run_nest(one, values)[0][1] for one in (exact, same)]
        wanted = np.full(extent, 8.0, np.float32)
        wanted[2:22] = values[0][: max(min(extent, 22) - 2, 0)] + 1
        for output in outputs:
            np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize("offset", [index(3, i=1), index(0, i=2), index(70, i=-1)], ids=str)
def test_stores(offset: Sum, target: str) -> None:
    condition = InBounds(index(-3, i=1), 30)
    for conditions in ((), (condition,), (MultipleOf(index(0, i=1), 3),)):
        store = Store(1, offset, load(0, F32, i=1), conditions)
        check_nest(nest(READ_WRITE, vector("i", 37, store)), arrays((40, F32), (80, F32)))


def test_stores_in_rows(target: str) -> None:
    for width in (3, 7, 14, 15, 16, 28, 100):
        offset = rows_of_images(index(5, i=1), width, 3)
        condition = MultipleOf(index(0, i=1), 3)
        for conditions in ((), (condition,)):
            store = Store(1, offset, load(0, F32, i=1), conditions)
            check_nest(nest(READ_WRITE, vector("i", 61, store)), arrays((61, F32), (700, F32)))


@pytest.mark.parametrize("extent", [1, 3, 8, 31, 64, 150])
def test_random_bits_of_several_vectors_at_once(extent: int, target: str) -> None:
    """Keys that lanes share and keys of their own, in floats beside which bits take two vectors."""
    counter = call("cast", load(1, F32, i=1), dtype=I64)
    for key in (load(0, I64), load(0, I64, i=1)):
        bits = call("right_shift", call("random_bits", key, counter), number(40, I64))
        value = call("mul", call("cast", bits, dtype=F32), number(0.5, F32))
        kernel = nest(
            [(I64, "read"), (F32, "read"), (F32, "write")],
            vector("i", extent, Store(2, index(0, i=1), value)),
        )
        check_nest(kernel, arrays((extent, I64), (extent, F32), (extent, F32)))


def test_parallel_pieces_of_a_vector_loop(target: str) -> None:
    check_nest(map_nest(ACCESSES["contiguous"], 101), arrays((120, F32), (101, F32)), pieces=7)


def test_index_values_and_choices(target: str) -> None:
    position = Apply("cast", (IndexValue(index(4, i=3)),), F32, I64)
    condition = (InBounds(index(-5, i=1), 9),)
    value = Choose(condition, call("mul", position, load(0, F32, i=1)), position, F32)
    check_nest(map_nest(value, 45), arrays((45, F32), (45, F32)))


def test_scalar_conditions_protect_memory(target: str) -> None:
    first = guarded(index(-5000, r=5000), InBounds(index(-1, r=1), 1), fill=3.0)
    loop = vector("i", 20, Store(1, index(0, r=20, i=1), first), kind="serial")
    check_nest(nest(READ_WRITE, serial("r", 3, loop, kind="parallel")), arrays((9, F32), (60, F32)))


def test_in_place(target: str) -> None:
    both = [
        Store(0, index(0, i=1), call("mul", load(0, F32, i=1), number(2.0, F32))),
        Store(1, index(0, i=1), call("add", load(1, F32, i=1), load(0, F32, i=1))),
    ]
    exact = nest([(F32, "update"), (F32, "update")], vector("i", 45, *both))
    check_nest(exact, arrays((45, F32), (45, F32)))


def test_shared_parts_are_computed_once() -> None:
    value = load(0, F32, i=1)
    for _ in range(120):
        value = call("mul", value, value)
    text = emit(map_nest(value, 64), host_target(), "kernel")
    assert text.count("fmul") == 2 * 120  # in whole vectors and in the last one


# --- types --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", dtypes.ALL, ids=lambda d: d.name)
def test_conversions(source: DType, target: str) -> None:
    stores = [
        Store(k + 1, index(0, i=1), call("cast", load(0, source, i=1), dtype=to))
        for k, to in enumerate(dtypes.ALL)
    ]
    parameters = [(source, "read"), *((to, "write") for to in dtypes.ALL)]
    values = arrays((37, source), *((37, to) for to in dtypes.ALL))
    # Negative floats as uint8 are modulo 256 on all machines that matter.
    check_nest(nest(parameters, vector("i", 37, *stores)), values)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_arithmetic_of_every_type(dtype: DType, target: str) -> None:
    value = call("maximum", call("add", load(0, dtype, i=1), load(1, dtype)), load(0, dtype, 2))
    three = [(dtype, "read"), (dtype, "read"), (dtype, "write")]
    check_nest(
        nest(three, vector("i", 70, Store(2, index(0, i=1), value))),
        arrays((70, dtype), (1, dtype), (70, dtype)),
    )


def test_casts_round() -> None:
    value = call("cast", call("cast", load(0, F32, i=1), dtype=dtypes.float16), dtype=F32)
    values = [np.linspace(0, 1, 33).astype(np.float32), np.zeros(33, np.float32)]
    (_, result), _ = run_nest(
        nest(READ_WRITE, vector("i", 33, Store(1, index(i=1), value))), values
    )
    np.testing.assert_array_equal(result, values[0].astype(np.float16).astype(np.float32))


def test_floats_out_of_range_convert_to_something(target: str) -> None:
    wild = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30] * 7, np.float32)
    for to in dtypes.INTEGERS:
        store = Store(1, index(0, i=1), call("cast", load(0, F32, i=1), dtype=to))
        kernel = nest([(F32, "read"), (to, "write")], vector("i", 35, store))
        assert run_nest(kernel, [wild, np.zeros(35, to.numpy)])[1] == [0] * 4


# --- texts --------------------------------------------------------------------------------------


class _Machine:
    """The AVX-512 machine that the golden texts are for."""

    vector_bytes, vector_registers = 64, 32
    has_avx512, has_fma, has_f16c, has_rounding = True, True, True, True


GOLDEN = {
    "map.txt": map_nest(load(0, F32, i=1), 40),
    "row_sums.txt": nest(
        READ_WRITE,
        serial(
            "r",
            Argument(0),
            reduction("add", load(0, F32, r=100, k=1), 100),
            store_name(1, index(0, r=1), "total", F32),
            kind="parallel",
        ),
    )._replace(arguments=(7,)),
    "padded.txt": map_nest(ACCESSES["inside"], 32),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_texts(name: str, golden) -> None:
    golden(name, emit(GOLDEN[name], _Machine(), "kernel"))


@pytest.mark.parametrize("is_near", [True, False])
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, 15, 17, 52, 4099, NEAR - 1, NEAR, NEAR + 1])
def test_lanes_divided_by_arguments(divisor: int, is_near: bool, target: str) -> None:
    if is_near and divisor > NEAR:
        return
    count, by = 53, Argument(0, True, False, is_near)
    for step in (1, 3, 1000, -1):
        dividend = Sum(((LoopIndex("i"), step),), Argument(1))
        factors = QuotientIndex(dividend, by), RemainderIndex(dividend, by)
        inside = Choose(
            (InBounds(Sum(((factors[1], 2),), -1), by),), number(1, I64), number(0, I64), I64
        )
        values = [*(IndexValue(Sum(((x, 1),), 0)) for x in factors), inside]
        stores = [Store(k, index(0, i=1), value) for k, value in enumerate(values)]
        kernel = nest([(I64, "write")] * 3, vector("i", count, *stores))
        for start in (60, divisor - 3, 5 * divisor - 20, 2**49 // divisor * divisor - 5):
            start += max(0, -step * count - start)
            found, _ = run_nest(
                kernel._replace(arguments=(divisor, start)), [np.zeros(count, np.int64)] * 3
            )
            places = [start + step * k for k in range(count)]
            np.testing.assert_array_equal(found[0], [x // divisor for x in places])
            np.testing.assert_array_equal(found[1], [x % divisor for x in places])
            doubled = [2 * (x % divisor) - 1 for x in places]
            np.testing.assert_array_equal(found[2], [0 <= x < divisor for x in doubled])


@pytest.mark.parametrize("bits", [32, 63])
def test_reciprocals_divide_exactly(bits: int) -> None:
    random = np.random.default_rng(0)
    found = 0
    for _ in range(300):
        divisor = int(random.integers(2, 1 << int(random.integers(2, 20))))
        limit = int(random.integers(divisor, 1 << int(random.integers(21, bits - 1))))
        pair = reciprocal(divisor, limit, bits)
        if pair is None:
            continue
        found += 1
        factor, shift = pair
        assert factor * limit < 1 << bits
        near = [limit, 0, *(k * divisor + d for k in (1, limit // divisor) for d in (-1, 0, 1))]
        for x in [*near, *map(int, random.integers(0, limit, 50))]:
            if 0 <= x <= limit:
                assert x * factor >> shift == x // divisor
    assert found > 10
