"""What exists once by its content: always the same object while in use, forgotten afterwards."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import metaop
from metaop.execution import executor
from metaop.fusion.inline import _without_reads
from metaop.fusion.kernel import box_axes
from metaop.operators.activations import softmax
from metaop.unified_graph import composite
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap, _axes
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.index_expr import Atom, IndexExpr, axis
from metaop.unified_graph.interning import InternTable
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.tensor_type import TensorType


class _Thing:
    pass


def test_things_in_use_stay_the_only_ones() -> None:
    table: InternTable[_Thing] = InternTable(4)
    used = table.add(("used",), _Thing())
    for number in range(20):
        table.add((number,), _Thing())
    assert len(table) <= 4
    assert table.get(("used",)) is None
    assert table.revive(("used",)) is used
    assert table.get(("used",)) is used
    assert table.add(("used",), _Thing()) is used
    assert table.revive((0,)) is None


def test_threads_that_make_a_thing_at_once_get_the_same() -> None:
    """As when a server records a network while another thread exports the same one."""
    size, count, threads = 200, 40, 4
    start = threading.Barrier(threads)

    def make(_: int) -> list[list[Node]]:
        made = []
        for length in range(1, count):
            start.wait(60)
            x = input_node(0, (length, 3), dtypes.float32)
            nodes = [x + 1000.0 * length + k for k in range(size)]
            made.append(nodes + [row + 0.5 for row in nodes])
        return made

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            first, *others = pool.map(make, range(threads))
    finally:
        sys.setswitchinterval(interval)
    for other in others:
        for left, right in zip(first, other):
            assert all(one is another for one, another in zip(left, right))


def test_expressions_stay_interned_when_their_table_is_emptied() -> None:
    before = axis(0, 12) // 5 % 2
    for table in (Atom._table, IndexExpr._table, IndexMap._table):
        table.clear()
    assert axis(0, 12) // 5 % 2 is before
    identity = IndexMap.identity((3, 4))
    IndexMap._table.clear()
    assert IndexMap.identity((3, 4)) is identity


def test_ever_new_shapes_do_not_fill_the_tables(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    tables: list[InternTable] = [Atom._table, IndexExpr._table, IndexMap._table, TensorType._table]
    # The composites of modules are among what is frozen when the tests have been collected.
    gc.unfreeze()
    composites = [found for found in gc.get_objects() if type(found) is Composite]
    for table in (*tables, *(each.signatures for each in composites)):
        monkeypatch.setattr(table, "_kept", 8)
    monkeypatch.setattr(composite, "_SIGNATURES", 8)
    monkeypatch.setattr(executor, "_KEPT_PROGRAMS", 3)
    executor.clear_programs()
    # Collections then look at what this test makes only, not at what hundreds of tests have left.
    gc.freeze()
    request.addfinalizer(gc.unfreeze)

    def most_alive(sizes: range) -> list[int]:
        """The greatest numbers of things alive while gradients of so many shapes are taken."""
        found = []
        for size in sizes:
            x = metaop.rand(3, size, requires_grad=True)
            metaop.softmax(x, 1).square().sum().backward()
            assert x.grad is not None
            x.grad.tolist()
            _axes.cache_clear()
            box_axes.cache_clear()
            _without_reads.cache_clear()
            gc.collect()
            found.append([len(Node._table), *(len(table._in_use) for table in tables)])
        return [max(numbers) for numbers in zip(*found)]

    early, late = most_alive(range(50, 75)), most_alive(range(75, 125))
    assert len(executor._programs) == 3
    # What grew by one thing a shape would have grown by fifty.
    assert all(after <= 1.1 * before + 5 for before, after in zip(early, late)), (early, late)


def test_a_program_keeps_its_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    executor.clear_programs()
    monkeypatch.setattr(softmax.signatures, "_kept", 1)
    x = metaop.zeros(4, 6)
    x.tolist()
    metaop.softmax(x, 1).tolist()
    known = len(executor._programs)
    for size in (7, 8, 9):
        metaop.softmax(metaop.zeros(size), 0)
    gc.collect()
    metaop.softmax(x, 1).tolist()
    assert len(executor._programs) == known
