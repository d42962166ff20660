"""Reductions in two stages mean what they meant in one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from metaop.elementwise.meta_op import apply
from metaop.fusion.kernel import reduced_axes
from metaop.fusion.recognise import recognise
from metaop.fusion.triangles import triangle_of
from metaop.fusion.two_stages import Cut, Source, cut_long_rows, in_two_stages
from metaop.reduce.meta_op import Reduce, reduce_axes, reduce_with_map
from metaop.reduce.triangle import reduce_triangle
from metaop.reindex import views
from metaop.reindex.meta_op import reindex
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.access import IndexMap, Within
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Input, Node, input_node, topological
from tests.codegen.lowering.test_lowering import matmul

F32 = dtypes.float32


def tensor(slot: int, *shape: int, dtype: dtypes.DType = F32) -> Node:
    return input_node(slot, shape, dtype)


def turned(reducer: str, source: Node, order: tuple[int, ...]) -> Node:
    """A reduction that keeps some axes in another order."""
    axes = IndexMap.axes(source.shape)
    index_map = IndexMap(source.shape, [axes[k] for k in order])
    return reduce_with_map(reducer, source, index_map, tuple(source.shape[k] for k in order))


def cut_all(outputs: list[Node], cut: Cut) -> list[Node]:
    return in_two_stages(outputs, lambda source: cut, 1)


def reductions(outputs: list[Node]) -> list[Node]:
    return [node for node in topological(outputs) if isinstance(node.op, Reduce)]


def assert_same(outputs: list[Node], others: list[Node]) -> None:
    """Both graphs have the same values, types and shapes."""
    inputs = [node for node in topological(outputs) if isinstance(node.op, Input)]
    generator = np.random.default_rng(len(inputs))
    values = [np.zeros(0)] * (max(node.op.slot for node in inputs) + 1)  # type: ignore[attr-defined]
    for node in inputs:
        values[node.op.slot] = generator.integers(-4, 5, node.shape).astype(node.dtype.numpy)  # type: ignore[attr-defined]
    for one, other in zip(outputs, others, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
    for wanted, found in zip(evaluate(outputs, values), evaluate(others, values), strict=True):
        np.testing.assert_array_equal(found, wanted)


CUTS = {
    "one axis, exactly": Cut((), (1,), 4),
    "one axis, with a rest": Cut((), (1,), 5),
    "neighbouring results": Cut((), (1,), 5, neighbours=True),
    "pieces of a multiple": Cut((), (1,), 5, multiple=4),
    "a joined run": Cut((), (1, 3), 7),
    "a joined run in another order": Cut((), (3, 1), 7),
    "a whole axis": Cut((1,)),
    "a whole axis and pieces": Cut((1,), (3,), 2, neighbours=True),
    "more pieces than elements": Cut((), (1,), 100),
}


@pytest.mark.parametrize("reducer", ("add", "max", "min", "mul"))
@pytest.mark.parametrize("name", CUTS)
def test_cuts(name: str, reducer: str) -> None:
    source = tensor(0, 3, 12, 2, 5)
    for outputs in (
        [reduce_axes(reducer, source, [1, 3])],
        [reduce_axes(reducer, apply("square", source), [1, 3], keepdim=True)],
        [turned(reducer, source, (2, 0))],
    ):
        found = cut_all(outputs, CUTS[name])
        assert len(reductions(found)) == 2
        assert_same(outputs, found)


@pytest.mark.parametrize("dtype", (dtypes.float16, dtypes.bfloat16), ids=lambda one: one.name)
def test_partial_results_are_not_rounded(dtype: dtypes.DType) -> None:
    x = tensor(0, 1, 4096, dtype=dtype)
    (total,) = cut_all([reduce_axes("add", x, [1])], Cut((), (1,), 4))
    assert [node.dtype for node in reductions([total])] == [F32, F32]
    values = np.ones((1, 4096)).astype(dtype.numpy)
    values[0, 1024:] = 0.001
    (found,) = evaluate([total], [values])
    expected = values.astype(np.float64).sum()
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=2 * _epsilon(dtype))


def _epsilon(dtype: dtypes.DType) -> float:
    return 2.0**-11 if dtype is dtypes.float16 else 2.0**-8


@pytest.mark.parametrize("pieces", (2, 7))
def test_a_contraction_stays_one(pieces: int) -> None:
    whole = matmul(tensor(0, 40, 90, dtype=dtypes.float16), tensor(1, 90, 41, dtype=dtypes.float16))
    cut = Cut((), (2,), pieces, neighbours=True, in_factors=True)
    (total,) = cut_all([whole], cut)
    first, second = reductions([total])
    found = recognise(first, lambda node: isinstance(node.op, Input))
    assert found is not None and len(found.batch) == 1 and first.dtype is F32
    assert first.shape == (pieces, 40, 41) and reduced_axes(second) == {0}
    wide = matmul(tensor(0, 40, 90), tensor(1, 90, 41))
    assert_same([wide], cut_all([wide], cut))


LONG: dict[str, tuple[Callable[[], Node], bool]] = {
    "everything": (lambda: reduce_axes("add", tensor(0, 7, 40, 333), [0, 1, 2]), True),
    "a few channels": (lambda: reduce_axes("add", tensor(0, 9, 3, 80, 81), [0, 2, 3]), True),
    "columns": (lambda: reduce_axes("max", tensor(0, 40000, 5), [0]), True),
    "short rows": (lambda: reduce_axes("add", tensor(0, 3, 9000), [1]), False),
    "many rows": (lambda: reduce_axes("add", tensor(0, 16, 20000), [1]), False),
}


@pytest.mark.parametrize("name", LONG)
def test_long_rows_of_which_there_are_few(name: str) -> None:
    graph, is_cut = LONG[name]
    outputs = [graph()]
    found = in_two_stages(outputs, cut_long_rows, 1)
    assert len(reductions(found)) == 1 + is_cut
    assert_same(outputs, found)


def test_a_product_with_another_reader_is_no_contraction() -> None:
    """Where the product has memory of its own, nothing is gained by cutting its factors."""
    box = (20, 30, 40)
    left = views.broadcast_to(tensor(0, 20, 1, 40), box)
    product = left * views.broadcast_to(tensor(1, 1, 30, 40), box)
    seen: list[bool] = []

    def cut_of(source: Source) -> None:
        seen.append(source.contraction is not None)

    total = reduce_axes("add", product, [2])
    in_two_stages([total], cut_of, 1)
    in_two_stages([total, product], cut_of, 1)
    assert seen == [True, False]


SCANS: dict[str, Callable[[], Node]] = {
    "rows": lambda: reduce_triangle("add", tensor(0, 3, 200), 1),
    "columns": lambda: reduce_triangle("add", tensor(0, 130, 5), 0),
    "a middle axis": lambda: reduce_triangle("max", tensor(0, 2, 67, 3), 1),
    "from the end": lambda: reduce_triangle("add", tensor(0, 3, 200), 1, backwards=True),
    "columns from the end": lambda: reduce_triangle("min", tensor(0, 65, 4), 0, backwards=True),
    "products": lambda: reduce_triangle("mul", tensor(0, 2, 66), 1),
    "several levels": lambda: reduce_triangle("add", tensor(0, 5000), 0),
    "a transposed one": lambda: views.transpose(reduce_triangle("add", tensor(0, 70, 70), 1), 0, 1),
    "a padded one": lambda: reduce_triangle("add", views.pad(tensor(0, 3, 90), (0, 2), (0, 3)), 1),
    "in another order": lambda: _turned_scan(),
}


def _turned_scan() -> Node:
    """A triangle whose reduced axis comes first, and whose result is transposed."""
    axes = IndexMap.axes((70, 4, 70))
    earlier = Within(axes[2] - axes[0], 70)
    source = reindex(tensor(0, 70, 4), IndexMap((70, 4, 70), axes[:2], [earlier]), 0)
    return turned("add", source, (2, 1))


@pytest.mark.parametrize("name", SCANS)
def test_long_scans_are_cut_into_blocks(name: str) -> None:
    outputs = [SCANS[name]()]
    found = in_two_stages(outputs, cut_long_rows, 1)
    (whole,) = reductions(outputs)
    assert triangle_of(whole, lambda node: False) is not None
    for part in reductions(found):
        triangle = triangle_of(part, lambda node: False)
        assert triangle is not None and part.inputs[0].shape[triangle.kept] <= 64
    assert_same(outputs, found)


def test_short_scans_stay() -> None:
    outputs = [reduce_triangle("add", tensor(0, 3, 64), 1)]
    assert in_two_stages(outputs, cut_long_rows, 1) == outputs
