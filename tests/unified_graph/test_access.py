"""Guards and index maps: conditions of different forms are never taken for one another."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest

from metaop.codegen.nest import ir
from metaop.unified_graph import access
from metaop.unified_graph.access import Divisible, IndexMap, Within

FORMS = {"guards": access.Guard, "conditions": ir.Condition, "factors": ir.Factor}


@pytest.mark.parametrize("name", FORMS)
def test_forms_with_equal_fields_differ(name: str) -> None:
    kinds: tuple[Any, ...] = get_args(FORMS[name])
    for one, other in itertools.combinations(kinds, 2):
        if len(one._fields) == len(other._fields):
            fields = range(len(one._fields))
            assert one(*fields) == one(*fields) != other(*fields)
            assert len({one(*fields), other(*fields)}) == 2


def test_a_map_keeps_guards_of_both_forms_on_one_index() -> None:
    (axis,) = IndexMap.axes((9,))
    place = axis - 3
    both = IndexMap((9,), (place,), [Within(place, 2), Divisible(place, 2)])
    assert len(both.guards) == 2
    alone = [IndexMap((9,), (place,), [guard(axis, 2)]) for guard in (Within, Divisible)]
    assert alone[0] is not alone[1]
