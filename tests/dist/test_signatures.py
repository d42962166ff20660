"""Derived signatures: what must come out does, and nothing that comes out is wrong."""

from __future__ import annotations

import pytest

import metaop
from metaop.dist import explain, signatures
from tests.dist.oracle import check_signatures
from tests.dist.signature_cases import COMPLETE, REQUIRED

ALL = {**COMPLETE, **REQUIRED}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", ALL)
def test_every_signature_gives_the_logical_result(name: str, ranks: int) -> None:
    function, arrays, _ = ALL[name]
    found = check_signatures(function, *(metaop.tensor(array) for array in arrays), ranks=ranks)
    assert found


@pytest.mark.parametrize("name", REQUIRED)
def test_what_must_come_out(name: str) -> None:
    function, arrays, required = REQUIRED[name]
    found = signatures(function, *(metaop.tensor(array) for array in arrays), ranks=2)
    assert set(required.split()) <= set(found)


def test_explain_lists_the_cheapest_first() -> None:
    text = explain(metaop.matmul, metaop.ones(64, 64), metaop.ones(64, 64), ranks=2)
    rows = [line.split() for line in text.splitlines()[1:]]
    costs = [float(row[1]) for row in rows]
    assert costs == sorted(costs)
    assert rows[0][-1] == "chosen"
    assert costs[0] < next(cost for row, cost in zip(rows, costs) if row[0] == "B,B->B")
    assert rows[-1][-1] == "rejected"


def test_the_package_is_a_function_as_well() -> None:
    a, b = metaop.tensor([3.0, 0.0]), metaop.tensor([0.0, 4.0])
    assert metaop.dist(a, b).item() == 5
    assert metaop.dist.signatures(metaop.add, a, b) == signatures(metaop.add, a, b)
