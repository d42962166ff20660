"""Which sums of reductions become one reduction."""

from __future__ import annotations

from metaop.elementwise.meta_op import apply
from metaop.fusion.joining import join_reductions
from metaop.reduce.meta_op import Reduce, reduce_axes
from metaop.reduce.triangle import reduce_triangle
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node, topological


def reductions(*outputs: Node) -> list[Node]:
    return [node for node in topological(outputs) if isinstance(node.op, Reduce)]


def contractions() -> list[Node]:
    """`x.T @ y` for three pairs of slices."""
    x, y = (input_node(k, (3, 8, n), dtypes.float32) for k, n in enumerate((4, 5)))
    found = []
    for step in range(3):
        one = views.broadcast_to(views.reshape(views.select(x, 0, step), (8, 4, 1)), (8, 4, 5))
        other = views.broadcast_to(views.reshape(views.select(y, 0, step), (8, 1, 5)), (8, 4, 5))
        found.append(reduce_axes("add", one * other, [0]))
    return found


def test_contractions_of_steps_become_one() -> None:
    one, two, three = contractions()
    (joined,) = join_reductions([one + two + three])
    (reduction,) = reductions(joined)
    assert reduction.inputs[0].shape == (3, 8, 4, 5)


def test_a_contraction_with_other_readers_is_not_computed_twice() -> None:
    one, two, three = contractions()
    total = one + two + three
    for others in ([apply("tanh", one)], [three, two], [total]):
        found = reductions(*join_reductions([total, *others]))
        assert sum(node.inputs[0].size for node in found) == 3 * 8 * 4 * 5


def test_a_value_added_to_itself_is_computed_once() -> None:
    one = contractions()[0]
    assert join_reductions([one + one]) == [one + one]


def test_scans_stay_scans() -> None:
    x, y = (input_node(k, (4, 100), dtypes.float32) for k in range(2))
    one, other = (reduce_triangle("add", node, 1, False) for node in (x, y))
    for total in (one + one, one + other):
        assert join_reductions([total]) == [total]
