"""Rows of a table replaced: the values, and what is read of the old table."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.reduce.replacement import replace_rows
from metaop.tensor.core import wrap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Node
from metaop.unified_graph.recording import record, results


@composite(differentiable=False)
def replaced(base: Node, rows: Node, values: Node) -> Node:
    return replace_rows(base, rows, values)


@composite(differentiable=False)
def replaced_and_read(base: Node, rows: Node, values: Node) -> tuple[Node, Node]:
    found = replace_rows(base, rows, values)
    return found, found * 2 + base


def drawn(shape, count, dims, dtype="float32"):
    random = np.random.default_rng(0)
    base = random.standard_normal(shape).astype(dtype)
    extent = int(np.prod(shape[:dims]))
    rows = random.integers(0, extent, count)
    values = random.standard_normal((extent, *shape[dims:])).astype(dtype)[rows]
    expected = base.copy()
    expected.reshape(extent, *shape[dims:])[rows] = values
    return base, rows, values, expected


@pytest.mark.parametrize(
    "shape, count, dims",
    [((7, 3), 5, 1), ((1, 1), 3, 1), ((40, 17), 100, 1), ((300, 64), 1, 1), ((5, 4), 9, 2),
     ((6, 2, 3), 4, 1), ((9,), 4, 1), ((7, 3), 0, 1)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values(shape, count, dims, dtype):
    base, rows, values, expected = drawn(shape, count, dims, dtype)
    calls = [metaop.tensor(array).call for array in (base, rows, values)]
    call = record(replaced, calls)
    np.testing.assert_array_equal(wrap(call).numpy(), expected)
    nodes = evaluate(call.signature.outputs, [base, rows, values])
    np.testing.assert_array_equal(nodes[0], expected)
    np.testing.assert_array_equal(wrap(calls[0]).numpy(), base)  # which is still held


def test_what_is_read_besides():
    """Readers of the old and of the new table see them as they are."""
    base, rows, values, expected = drawn((40, 8), 12, 1)
    calls = [metaop.tensor(array).call for array in (base, rows, values)]
    first = record(replaced_and_read, calls)
    del calls
    found, read = map(wrap, results(first))
    np.testing.assert_array_equal(read.numpy(), expected * 2 + base)
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("row", [-1, 7])
def test_rows_outside_are_refused(row):
    base, rows, values, _ = drawn((7, 3), 5, 1)
    rows[2] = row
    calls = [metaop.tensor(array).call for array in (base, rows, values)]
    with pytest.raises(IndexError):
        wrap(record(replaced, calls)).numpy()
    with pytest.raises(IndexError):
        evaluate(record(replaced, calls).signature.outputs, [base, rows, values])
