"""Vector loops inside of borders and between wraps: the same values wherever these are."""

from __future__ import annotations

import itertools
import re

import pytest

from metaop.codegen.llvm.emission.emit import emit
from metaop.codegen.llvm.target import host_target
from metaop.codegen.nest.generalise import generalise, walked
from metaop.codegen.nest.ir import (
    InBounds,
    Load,
    LoopIndex,
    LoopNest,
    QuotientIndex,
    RemainderIndex,
    Store,
    Sum,
)
from metaop.unified_graph.dtype import int64 as I64
from tests.codegen.run_nest import (
    F32,
    READ_WRITE,
    arrays,
    call,
    check_nest,
    index,
    load,
    nest,
    number,
    serial,
    vector,
)

pytestmark = pytest.mark.usefixtures("target")
_EXTENTS = (5, 47, 64, 203)


def shifted(extent: int, first: int, second: int, bound: int) -> LoopNest:
    """Sums of two neighbours within bounds, or of what stands for them."""
    values = []
    for offset in (first, second):
        place = index(offset, i=1)
        values.append(Load(0, place, F32, (InBounds(place, bound),), 2.5))
    loop = vector("i", extent, Store(1, index(0, i=1), call("add", *values)))
    return nest(READ_WRITE, loop)


@pytest.mark.parametrize("extent", _EXTENTS)
def test_values_at_both_borders(extent: int) -> None:
    for first, second in itertools.product((-260, -9, -1, 40, 230), (0, -3)):
        for bound in (50, 203):
            check_nest(shifted(extent, first, second, bound), arrays((203, F32), (extent, F32)))


def test_conditions_of_rows_and_columns() -> None:
    """The rows are outside of the vector loop; some columns lie before and behind the image."""
    place = index(-2 * 40 - 3, r=40, i=1)
    inside = (InBounds(index(-2, r=1), 6), InBounds(index(-3, i=1), 40))
    padded = Store(1, index(0, r=71, i=1), Load(0, place, F32, inside, -1.0))
    for extent in (43, 71):
        kernel = nest(READ_WRITE, serial("r", 10, vector("i", extent, padded, kind="serial")))
        check_nest(kernel, arrays((240, F32), (710, F32)))


def wrapped(extent: int, stride: int, start: int, divisor: int, is_serial: bool) -> LoopNest:
    """Elements of a ring, and how often it has been passed; places before the start count too."""
    place = index(start, i=stride)
    ring = Sum(((RemainderIndex(place, divisor), 1), (QuotientIndex(place, divisor), 300)), 0)
    inside = (InBounds(place, 3 * divisor),)
    value = Load(0, ring, F32, inside, 7.0)
    if is_serial:
        # Such loops compute several vectors at a time.
        bits = call("random_bits", number(3, I64), call("cast", value, dtype=I64))
        bits = call("right_shift", bits, number(60, I64))
        value = call("add", value, call("cast", bits, dtype=F32))
    return nest(READ_WRITE, vector("i", extent, Store(1, index(0, i=1), value)))


@pytest.mark.parametrize("extent", [64, 203])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("is_serial", [False, True])
def test_rings(extent: int, stride: int, is_serial: bool) -> None:
    for start, divisor in itertools.product((-70, -1, 5, 127), (5, 128, 300)):
        kernel = wrapped(extent, stride, start, divisor, is_serial)
        values = arrays((900, F32), (extent, F32))
        check_nest(kernel, values)
        # Offsets are arguments before anything else is.
        check_nest(generalise(kernel, frozenset(walked(kernel).constants)), values)


def test_quotients_of_quotients() -> None:
    rows = QuotientIndex(index(0, i=1), 60)
    place = Sum(((RemainderIndex(Sum(((rows, 1),), 0), 3), 60), (LoopIndex("i"), 1)), 0)
    for extent in _EXTENTS:
        loop = vector("i", extent, Store(1, index(0, i=1), Load(0, place, F32)))
        check_nest(nest(READ_WRITE, loop), arrays((400, F32), (extent, F32)))


def test_nothing_is_tested_inside(target: str) -> None:
    def selects(kernel: LoopNest) -> list[int]:
        """The selections in each of the innermost loops."""
        text = emit(kernel, host_target(), "kernel")
        loops = re.findall(r"\n(loop\d+):\n((?:(?!\nloop).)*?)br i1 %\w+, label %\1\b", text, re.S)
        return [body.count("select") for _, body in loops]

    if host_target().has_avx512:
        pytest.skip("masks cost nothing there")
    assert 0 in selects(shifted(203, -1, 2, 203))
    assert 0 not in selects(shifted(20, -1, 2, 20))
    plain = nest(READ_WRITE, vector("i", 203, Store(1, index(0, i=1), load(0, F32, i=1))))
    assert set(selects(plain)) == {0}
