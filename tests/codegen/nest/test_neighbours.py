"""Groups of iterations that access neighbours, against what their accesses evaluate to."""

from __future__ import annotations

import pytest

from metaop.codegen.nest import ir
from metaop.codegen.nest.neighbours import is_group_of_neighbours
from metaop.unified_graph import dtype as dtypes

WIDTH = 4
V, Q = ir.LoopIndex("v"), ir.LoopIndex("q")


def total(*terms: tuple[ir.Factor, ir.Integer], constant: ir.Integer = 0) -> ir.Sum:
    return ir.Sum(terms, constant)


NUMBER = total((Q, 4), (V, 1))
OFFSETS = {
    "neighbours": (NUMBER, True),
    "neighbours behind others": (total((Q, 40), (V, 1), constant=8), True),
    "neighbours in a remainder": (total((ir.RemainderIndex(NUMBER, 28), 1)), True),
    "neighbours of rows": (
        total((ir.QuotientIndex(NUMBER, 28), 100), (ir.RemainderIndex(NUMBER, 28), 1)),
        True,
    ),
    "an odd start": (total((V, 1), constant=2), False),
    "an odd distance": (total((Q, 6), (V, 1)), False),
    "a stride": (total((Q, 8), (V, 2)), False),
    "backwards": (total((Q, 4), (V, -1), constant=4), False),
    "one element": (total((Q, 4)), False),
    "rows that end within a group": (total((ir.RemainderIndex(NUMBER, 30), 1)), False),
    "a remainder of what starts within a group": (
        total((ir.RemainderIndex(total((V, 1), constant=1), 28), 1)),
        False,
    ),
    "what data tell": (total((V, 1), (ir.ValueIndex("x"), 4)), False),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets(name: str) -> None:
    offset, expected = OFFSETS[name]
    assert is_group_of_neighbours(ir.Load(0, offset, dtypes.float32), "v", WIDTH) == expected


CONDITIONS = {
    "a bound of whole groups": (ir.InBounds(NUMBER, 100), True),
    "a bound within a group": (ir.InBounds(NUMBER, 102), False),
    "a start within a group": (ir.InBounds(total((V, 1), constant=-1), 100), False),
    "another axis": (ir.InBounds(total((Q, 1), constant=-1), 3), True),
    "multiples": (ir.MultipleOf(total((V, 1)), 4), False),
    "multiples along another axis": (ir.MultipleOf(total((Q, 3)), 2), True),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(name: str) -> None:
    condition, expected = CONDITIONS[name]
    load = ir.Load(0, NUMBER, dtypes.float32, (condition,))
    assert is_group_of_neighbours(load, "v", WIDTH) == expected


def test_arguments_have_the_values_of_the_nest() -> None:
    load = ir.Load(0, total((Q, ir.Argument(0)), (V, 1)), dtypes.float32)
    assert is_group_of_neighbours(load, "v", WIDTH, (8,))
    assert not is_group_of_neighbours(load, "v", WIDTH, (6,))
    assert not is_group_of_neighbours(load, "v", WIDTH)
