"""Where contractions matter: what a mask that compares positions makes superfluous is left out."""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, where
from metaop.fusion.masks import Masks
from metaop.operators.expressions import index_along
from metaop.operators.linear_algebra import matmul
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import broadcast_to
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node, topological

ROWS, COLUMNS, DEPTH = 70, 90, 40
Q = input_node(0, (ROWS, DEPTH), dtypes.float32)
K = input_node(1, (DEPTH, COLUMNS), dtypes.float32)
V = input_node(2, (COLUMNS, DEPTH), dtypes.float32)
SCORES = matmul(Q, K)
SHAPE = SCORES.shape


def at(axis: int) -> Node:
    return index_along(SHAPE, axis)


def mask(shift: int = 0) -> Node:
    """Whether the column is at most the row and a shift."""
    return apply("le", at(1), at(0) + shift)


def kept(scores: Node, otherwise: float, shift: int = 0) -> Node:
    return where(mask(shift), scores, otherwise)


def softmax(scores: Node) -> Node:
    def along_rows(reducer: str, x: Node) -> Node:
        return broadcast_to(reduce_axes(reducer, x, [1], keepdim=True), SHAPE)

    powers = apply("exp", apply("sub", scores, along_rows("max", scores)))
    return powers * apply("reciprocal", along_rows("add", powers))


def regions(output: Node, node: Node) -> list[str]:
    found = Masks(topological([output]), [output]).of_contraction(node)
    return [repr(one).replace(" ", "") for one in found]


def test_scores_that_nobody_reads() -> None:
    assert regions(kept(SCORES * 0.5, -math.inf), SCORES) == ["i0-1*i1"]
    assert regions(kept(SCORES, 0.0, 3), SCORES) == ["i0-1*i1+3"]
    later = where(apply("gt", at(1), at(0)), SCORES, 0.0)
    assert regions(later, SCORES) == ["-1*i0+i1-1"]
    # Products with zeros do not need them either.
    assert regions(SCORES * kept(matmul(Q * 2.0, K), 0.0), SCORES) == ["i0-1*i1"]


def test_scores_that_somebody_reads() -> None:
    masked = kept(SCORES, -math.inf)
    assert regions(masked + SCORES, SCORES) == []
    assert regions(apply("exp", SCORES), SCORES) == []
    assert regions(where(mask(), masked, SCORES), SCORES) == []
    assert Masks(topological([masked]), [masked, SCORES]).of_contraction(SCORES) == ()


def test_weights_that_are_zero() -> None:
    for weights in (softmax(kept(SCORES, -math.inf)), kept(SCORES, 0.0), kept(SCORES, 0.0) * -2.0):
        mixed = matmul(weights, V)
        assert regions(mixed, mixed) == ["i0-1*i2"]


def test_weights_that_may_be_other_than_zero() -> None:
    for weights in (
        # The first row is -inf as a whole, so its weights are NaN.
        softmax(kept(SCORES, -math.inf, -1)),
        apply("exp", kept(SCORES, -math.inf) - kept(SCORES, -math.inf)),
        apply("exp", SCORES),
        kept(SCORES, 1.0),
        kept(SCORES, 0.0) + 1.0,
    ):
        mixed = matmul(weights, V)
        assert regions(mixed, mixed) == []
