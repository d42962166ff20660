"""Rows are found where they are independent, and nowhere else; compared with rows one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.export.program import Program
from metaop.nn import functional as F
from metaop.reindex.meta_op import reindex
from metaop.reindex.order import Order
from metaop.serving.model import Model
from metaop.serving.rows import DependentError, Place, Proof, Rows, rows_of
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.node import Node, constant, index_node, input_node
from metaop.unified_graph.shape_env import ShapeEnv
from tests.export.networks import QUICK, Case

random = np.random.default_rng(3)
ROW = [{0: "batch"}]


def exported(function: Any, *arrays: np.ndarray, dynamic: Any = ROW, folder: Path) -> Program:
    inputs = tuple(map(metaop.from_numpy, arrays))
    return metaop.export(function, inputs, folder / "m.mo", dynamic=dynamic)


def floats(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


WEIGHT = floats(6, 5)
TABLE = floats(9, 4)
APART: dict[str, Callable[[metaop.Tensor], Any]] = {
    "a product": lambda x: x @ metaop.from_numpy(WEIGHT),
    "a softmax of each row": lambda x: x.softmax(1),
    "rows in one axis and apart again": lambda x: (x.view(-1) * 2).view(-1, 3, 2).sum(1),
    "rows in the last axis": lambda x: x.transpose(0, 1) + 1,
    "pieces of rows": lambda x: x.view(-1, 2).exp(),
    "a sorted row": lambda x: x.sort(1).values,
    "its own elements": lambda x: x.gather(1, x.argsort(1)),
    "a table": lambda x: metaop.from_numpy(TABLE)[(x.abs() * 3).long().clamp(0, 8)],
    "a window over a row": lambda x: F.max_pool1d(x[:, None], 3, 1, 1),
    "a running sum of a row": lambda x: x.cumsum(1),
    "a result that no row has a part in": lambda x: (x, metaop.arange(4)),
}
MIXED: dict[str, Callable[[metaop.Tensor], Any]] = {
    "a softmax over rows": lambda x: x.softmax(0),
    "the mean of rows": lambda x: x - x.mean(0),
    "the largest of rows": lambda x: x.amax(0),
    "rows backwards": lambda x: x.flip(0),
    "rows moved on": lambda x: x.roll(1, 0),
    "the first row": lambda x: x - x[:1],
    "sums of rows so far": lambda x: x.cumsum(0),
    "rows in order": lambda x: x.sort(0).values,
    "each row with each": lambda x: x @ x.transpose(0, 1),
    "the number of rows": lambda x: x * x.shape[0],
    "the place of a row": lambda x: x + metaop.arange(x.shape[0])[:, None],
    "rows that data choose": lambda x: x[(x[:, 0] > 0).long()],
    "all elements in a row": lambda x: x.reshape(-1).softmax(0),
    "rows in the inner axis": lambda x: x.transpose(0, 1).reshape(-1) * 2,
    "rows padded behind the last": lambda x: F.pad(x, (0, 0, 0, 1)),
    "rows without the last": lambda x: x[:-1] * 2,
    "all but the first rows": lambda x: F.pad(x[2:], (0, 0, 2, 0)),
    "the places of rows in order": lambda x: x.argsort(0),
    "the number of rows as an integer": lambda x: x.long() * x.shape[0],
    "neighbours": lambda x: F.max_pool1d(x.transpose(0, 1), 3, 1, 1),
}


def parts(results: list[np.ndarray], places: Any, row: int) -> list[np.ndarray]:
    found = []
    for result, place in zip(results, places):
        if place is None:
            found.append(result)
        else:
            start = row * place.block
            found.append(result.take(range(start, start + place.block), place.axis))
    return found


@pytest.mark.parametrize("name", APART)
def test_rows_that_are_apart(name: str, tmp_path: Path) -> None:
    program = exported(APART[name], floats(3, 6), folder=tmp_path)
    model = Model("m", "1", program)
    assert model.counted is program.sizes[0], model.reason
    rows = rows_of(program, program.sizes[0], {})
    x = floats(4, 6)
    (whole,) = model.run([[x]])
    joined = model.run([[x[:1]], [x[1:3]], [x[3:]]])
    alone = [model.run([[x[k : k + 1]]])[0] for k in range(4)]
    for row, (request, inside) in enumerate([(0, 0), (1, 0), (1, 1), (2, 0)]):
        wanted = parts(whole, rows.outputs, row)
        for other in (parts(joined[request], rows.outputs, inside), alone[row]):
            for found, expected in zip(other, wanted, strict=True):
                np.testing.assert_allclose(found, expected, 1e-6, 1e-6)


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_are_not_apart(name: str, tmp_path: Path) -> None:
    program = exported(MIXED[name], floats(5, 6), folder=tmp_path)
    with pytest.raises(DependentError):
        rows_of(program, program.sizes[0], {})
    model = Model("m", "1", program)
    assert model.counted is None and model.reason.startswith("batch: ")


def made_by_hand(count: Any) -> dict[str, tuple[Node, bool]]:
    """Nodes that read a tensor of `count` rows of 6, and whether rows are apart in them."""
    rows = input_node(0, (count, 6), dtypes.float32)
    table = input_node(1, (6,), dtypes.float32)
    picks = input_node(2, (count, 3), dtypes.int64)
    row, column = IndexMap.axes((count, 3))

    def read(source: Node, *indices: Any, guards: Any = ()) -> Node:
        operands = [picks] if source is not picks else []
        return reindex(source, IndexMap((count, 3), indices, guards), 0, operands)

    def picked(*indices: Any) -> Any:
        return index_expr.lookup(1, indices, 6)

    zero = index_expr.constant(0)
    return {
        "its own pick": (read(rows, row, picked(row, column)), True),
        "a pick of a table": (read(table, picked(row, column)), True),
        "the pick of the first row": (read(rows, row, picked(zero, column)), False),
        "picks across": (read(rows, row, picked(column, zero)), False),
        "a pick as row": (read(rows, picked(row, column), column), False),
        "a guard of columns": (read(rows, row, column, guards=[Within(column - 1, 2)]), True),
        "a guard of rows": (read(rows, row, column, guards=[Within(row - 1, count)]), False),
        "a guard by the count": (
            read(rows, row, column, guards=[Within(column * 9, count)]),
            False,
        ),
        "a step of the count": (index_node(column * count, (count, 3)), False),
        "the remainder by the count": (index_node(column % count, (count, 3)), False),
        "columns": (index_node(column * 2, (count, 3)), True),
        "the count": (index_node(index_expr.constant(count), (count, 3)), False),
        "order in a row": (Node(Order(), (rows,), (count, 6), dtypes.int64), True),
        "order across rows": (
            Node(Order(), (input_node(3, (6, count), dtypes.float32),), (6, count), dtypes.int64),
            False,
        ),
        "two axes of rows": (constant(1, dtypes.float32, (count, count)), False),
        "a row too many": (constant(1, dtypes.float32, (count + 1, 3)), False),
        "pairs of rows": (constant(1, dtypes.float32, (count * 2, 3)), True),
    }


@pytest.mark.parametrize("name", made_by_hand(4))
def test_each_rule_alone(name: str) -> None:
    count = ShapeEnv().symbol(7)
    node, is_apart = made_by_hand(count)[name]
    if is_apart:
        Proof(count).check(node)
    else:
        with pytest.raises(DependentError):
            Proof(count).check(node)


def test_a_table_that_is_an_input_belongs_to_all_rows(tmp_path: Path) -> None:
    def function(table: metaop.Tensor, places: metaop.Tensor) -> metaop.Tensor:
        return table[places].sum(1)

    dynamic = {"places": {0: "n"}}
    given = (floats(5, 2), random.integers(0, 5, (3, 4)))
    program = exported(function, *given, dynamic=dynamic, folder=tmp_path)
    rows = rows_of(program, program.sizes[0], {})
    assert rows.inputs == (None, Place(0, 1)) and rows.outputs == (Place(0, 1),)
    model, (table, places) = Model("m", "1", program), given
    assert model.fit([table, places]) == model.fit([table.copy(), places + 1])
    assert model.fit([table, places]).key != model.fit([table + 1, places]).key


def test_statistics_of_a_batch_are_refused(tmp_path: Path) -> None:
    layer = nn.BatchNorm1d(6, track_running_stats=False)
    program = exported(layer, floats(3, 6), folder=tmp_path)
    with pytest.raises(DependentError):
        rows_of(program, program.sizes[0], {})


@pytest.mark.parametrize("name", ["gpt", "lstm", "vit"])
def test_rows_of_networks(name: str, tmp_path: Path) -> None:
    case: Case = QUICK[name]
    program = exported(case.build().eval(), *case.inputs, dynamic=case.dynamic, folder=tmp_path)
    model = Model("m", "1", program)
    assert model.counted is not None and model.counted.name == "batch"
    axis = 1 if name == "lstm" else 0
    rows = rows_of(program, model.counted, {"length": 5} if name == "gpt" else {})
    assert {*rows.inputs, *rows.outputs} == {Place(axis, 1)}


def test_rows_of_loops(tmp_path: Path) -> None:
    """Steps map rows to rows; a choice that looks at all rows does not."""

    def each(x: metaop.Tensor) -> Any:
        return metaop.scan(lambda c, row: ((c + row).tanh(), c), x[0] * 0, x)[1]

    program = exported(each, floats(5, 3, 4), dynamic=[{0: "steps", 1: "batch"}], folder=tmp_path)
    steps, batch = program.sizes
    assert rows_of(program, batch, {"steps": 7}) == Rows("batch", (Place(1, 1),), (Place(1, 1),))
    with pytest.raises(DependentError):
        rows_of(program, steps, {"batch": 3})

    def chosen(x: metaop.Tensor) -> metaop.Tensor:
        return metaop.cond(x.sum() > 0, lambda x: x * 2, lambda x: -x, (x,))

    program = exported(chosen, floats(3, 4), folder=tmp_path)
    with pytest.raises(DependentError):
        rows_of(program, program.sizes[0], {})
