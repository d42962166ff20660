"""Parallelism that the search finds by cost, in settings where one kind is clearly best."""

from __future__ import annotations

from typing import Any

import metaop
from metaop.dist.cost import Cluster, Link
from metaop.dist.mesh_rules import mesh_rules
from metaop.dist.sbp import BROADCAST, Split
from metaop.dist.search import auto_parallel, explain_plan
from metaop.dist.sharding_search import Plan
from metaop.unified_graph.dtype import float32
from metaop.unified_graph.node import input_node
from tests.dist.steps import (
    classifier,
    convolutional,
    mlp,
    training_step,
    transformer,
    transformer_shapes,
    wide_and_deep,
)

S0, S1 = (Split(0),), (Split(1),)
zeros = metaop.zeros


def found(loss: Any, parameters: list[tuple[int, ...]], *data: Any, **options: Any) -> Plan:
    """The plan found for training with parameters of these shapes."""
    count = len(parameters)
    tensors = [*(zeros(*shape) for shape in parameters), *data]
    options = {"ranks": 4, **options}
    return auto_parallel(training_step(loss, count), *tensors, updated=range(count), **options)


def test_nodes_that_are_alike_share_their_rules() -> None:
    x = input_node(0, (8, 6), float32)
    first, second, other = (mesh_rules(y, (2, 2)) for y in (x * 2.0, (x + 1.0) * 2.0, x + 2.0))
    assert first is second and first != other


def sent_shapes(plan: Plan) -> set[tuple[int, ...]]:
    """The shapes of what travels, numbers left out."""
    return {node.shape for boxes in plan.boxes for node, _ in boxes if node.shape}


def test_much_data_is_data_parallel() -> None:
    plan = found(mlp, [(64, 256), (256, 64)], zeros(4096, 64), zeros(4096, 64))
    assert plan.given[2:4] == (S0, S0)
    assert sent_shapes(plan) == {(64, 256), (256, 64)}
    assert "P -> S" in explain_plan(plan)


def test_large_weights_are_split_by_column_and_then_by_row() -> None:
    plan = found(mlp, [(1024, 4096), (4096, 1024)], zeros(8, 1024), zeros(8, 1024))
    assert plan.given[:2] == (S1, S0)
    assert sent_shapes(plan) == {(8, 1024)}


def test_data_and_tensor_parallel_along_the_links_that_suit_them() -> None:
    cluster = Cluster(flops=1e13, links=(Link(5e-6, 1e9), Link(1e-6, 1e11)))
    shapes = [(256, 1024), (1024, 256)]
    data = [zeros(32768, 256), zeros(32768, 256)]
    plan = found(mlp, shapes, *data, ranks=(2, 2), cluster=cluster)
    for states in plan.given[2:4]:
        assert states[0] == Split(0)
    slow = {node.shape for boxes in plan.boxes for node, move in boxes if move.axis == 0}
    assert slow <= {(256, 1024), (1024, 256), ()}
    assert (plan.given[0][1], plan.given[1][1]) == (Split(1), Split(0))


def test_one_long_sequence_is_split_along_its_length() -> None:
    data = [zeros(1, 1024, 32), zeros(1, 1024, 32)]
    plan = found(transformer(4, 1), transformer_shapes(1, 32), *data)
    assert plan.given[4:6] == (S1, S1)


def test_a_transformer_with_many_sequences_is_data_parallel() -> None:
    data = [zeros(64, 32, 64), zeros(64, 32, 64)]
    plan = found(transformer(4, 2), transformer_shapes(2, 64), *data)
    assert plan.given[8:10] == (S0, S0)
    assert all(shape[1:] != (32, 64) for shape in sent_shapes(plan))


def test_a_wide_transformer_with_little_data_is_tensor_parallel() -> None:
    data = [zeros(2, 8, 512), zeros(2, 8, 512)]
    plan = found(transformer(4, 1), transformer_shapes(1, 512), *data)
    assert all(states != (BROADCAST,) for states in plan.given[:4])
    assert plan.given[2:4] == (S1, S0)
    assert all(shape[0] == 2 for shape in sent_shapes(plan))


def test_a_convolutional_network_is_data_parallel() -> None:
    images, labels = zeros(1024, 3, 16, 16), zeros(1024, dtype=metaop.int64)
    plan = found(convolutional, [(16, 3, 3, 3), (32, 16, 3, 3), (512, 10)], images, labels)
    assert plan.given[3] == S0
    # Of what belongs to the images only small things travel: logits, or one number each.
    assert all(shape[0] != 1024 or shape in ((1024,), (1024, 10)) for shape in sent_shapes(plan))


def test_a_large_softmax_is_split_by_class() -> None:
    features, labels = zeros(32, 64), zeros(32, dtype=metaop.int64)
    plan = found(classifier, [(64, 65536)], features, labels)
    assert plan.given[0] == S1
    # Only maxima, sums and chosen elements of rows travel.
    assert all(65536 not in shape for shape in sent_shapes(plan))


def test_large_tables_are_split_and_the_deep_part_is_data_parallel() -> None:
    parameters = [(200_000, 16), (64, 32), (32, 1)]
    ids, labels = zeros(1024, 4, dtype=metaop.int64), zeros(1024, 1)
    plan = found(wide_and_deep, parameters, ids, labels)
    assert isinstance(plan.given[0][0], Split)
    assert (200_000, 16) not in sent_shapes(plan)
    assert plan.given[4] == S0


def test_memory_is_bounded() -> None:
    shapes = [(512, 512), (512, 512)]
    data = [zeros(65536, 512), zeros(65536, 512)]
    plan = found(mlp, shapes, *data, ranks=2, memory=600_000_000)
    assert plan.input_bytes() <= 600_000_000


def test_what_is_replaced_comes_out_as_it_went_in() -> None:
    plan = found(mlp, [(4, 4), (4, 4)], zeros(4, 4), zeros(4, 4), ranks=2)
    assert plan.states[:2] == plan.given[:2]
    assert plan.states[2] == (BROADCAST,)
