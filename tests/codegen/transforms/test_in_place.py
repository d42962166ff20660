"""Results take the memory of operands that die, only where no iteration can see another's write."""

from __future__ import annotations

import numpy as np

from metaop.codegen.llvm.machine import host_machine
from metaop.codegen.nest import ir
from metaop.codegen.nest.in_place import IndexCheck, exact_pairs, index_checks
from metaop.codegen.schedule import donations
from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.operators.convolution import convolution
from metaop.reduce import reduce_axes
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.node import Node, input_node
from tests.codegen.interpret import run_schedule

X = input_node(0, (40, 50), dtypes.float32)


def pairs_of(node: Node) -> set[tuple[int, int]]:
    (launch,) = schedule([X], [node]).launches
    return set(exact_pairs(launch.nest))


def test_elementwise_results_may_overwrite_their_operand() -> None:
    assert pairs_of(apply("exp", X) + X) == {(1, 0)}


def test_results_lie_where_the_operand_is_that_they_change() -> None:
    """A step of momentum: the gradient takes no state's place before the state's successor does."""
    x, momentum, weight = (input_node(k, (8, 8), dtypes.float32) for k in range(3))
    gradient = x * 2.0
    following = momentum * 0.9 + gradient
    plan = schedule([x, momentum, weight], [gradient, following, weight - following])
    found = donations(plan)
    assert found[following] is momentum
    assert found[weight - following] is weight


def test_weights_of_a_first_layer_are_updated_where_they_are() -> None:
    """Its gradient is a sum for each tap, and all of them are stored by one loop."""
    x = input_node(0, (8, 1, 28, 28), dtypes.float32)
    weight = input_node(1, (16, 1, 5, 5), dtypes.float32)
    y = convolution(x, weight, None, (1, 1), (0, 0), (0, 0), (1, 1), 1)
    cotangent = input_node(2, y.shape, dtypes.float32)
    (gradient,) = pullback([y], [cotangent], [weight])
    assert gradient is not None
    updated = weight - gradient * 0.1
    plan = schedule([x, weight, cotangent], [updated], host_machine())
    assert [launch.nest.name for launch in plan.launches] == ["stencil_add_sub"]
    assert donations(plan)[updated] is weight


def test_moved_reads_forbid_it() -> None:
    assert pairs_of(views.transpose(X, 0, 1) * 2.0) == set()
    assert pairs_of(views.flip(X, [1]) + X) == set()
    assert pairs_of(views.pad(X, (0, 0), (0, 1)) * 2.0) == set()


def test_reads_of_an_earlier_pass_forbid_it() -> None:
    shifted = X - reduce_axes("max", X, [1], True)
    assert pairs_of(shifted) == set()


def test_other_element_sizes_forbid_it() -> None:
    assert pairs_of(X > 0.0) == set()


def test_a_chain_of_temporaries_takes_one_block() -> None:
    # Sums over rows in between keep the maps apart; each map reads what the one before wrote.
    node = X
    for _ in range(4):
        node = apply("tanh", node) + views.flip(views.flip(node, [0]), [0])
        node = views.transpose(node, 0, 1) * 2.0 if node.shape == (40, 50) else node
    result = reduce_axes("add", node, [0, 1])
    plan = schedule([X], [result])
    value = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)
    (actual,) = run_schedule(plan, [value])
    assert plan.arena_bytes <= 2 * X.nbytes + 64 * 4
    assert np.isfinite(actual)


def test_sharing_keeps_values() -> None:
    import metaop

    generator = np.random.default_rng(1)
    array = generator.standard_normal((64, 48)).astype(np.float32)
    x = metaop.tensor(array)
    # The product is a temporary that the activation may overwrite; its sum is read before.
    product = x @ x.T
    total = product.sum(1, keepdim=True)
    result = (metaop.tanh(product) + total) @ x
    expected = array @ array.T
    expected = (np.tanh(expected) + expected.sum(1, keepdims=True)) @ array
    np.testing.assert_allclose(result.numpy(), expected, rtol=2e-4, atol=2e-4)


INDEX = input_node(1, (30,), dtypes.int64)


def checks_of(node: Node) -> list[IndexCheck]:
    (launch,) = schedule([X, INDEX], [node]).launches
    return list(index_checks(launch.nest))


def test_it_is_known_which_indices_are_tested() -> None:
    assert [check[1:] for check in checks_of(views.take(X, 0, INDEX))] == [(40, 30, False)]
    some = views.take(X, 0, views.slice_dimension(INDEX, 0, 5, 20))
    assert [check[1:] for check in checks_of(some)] == [(40, 0, False)]
    (computed,) = checks_of(views.take(X, 0, INDEX + 1))
    assert computed.buffer is None


def test_an_index_in_scratch_memory_is_computed() -> None:
    place = ir.Sum(((ir.LoopIndex("i"), 1),), 0)
    check = ir.CheckedIndex("k", ir.Load(-9, place, dtypes.int64), 30, 0)
    nest = ir.LoopNest("nest", (), (), (ir.For("i", 30, "serial", (check,)),))
    assert [check.buffer for check in index_checks(nest)] == [None]


def test_shared_parts_of_an_index_are_spelled_out_once() -> None:
    value = ir.Name("v0", dtypes.int64)
    body = [ir.Let("v0", ir.Number(1, dtypes.int64))]
    for k in range(60):
        body.append(ir.Let(f"v{k + 1}", ir.Apply("add", (value, value), *(dtypes.int64,) * 2)))
        value = ir.Name(f"v{k + 1}", dtypes.int64)
    check = ir.CheckedIndex("k", value, 30, 0)
    found = index_checks(ir.LoopNest("nest", (), (), (*body, check)))
    assert [check.buffer for check in found] == [None]


def test_what_may_fail_comes_before_any_overwriting() -> None:
    weight = input_node(2, (40, 50), dtypes.float32)
    used = reduce_axes("add", views.take(X, 0, INDEX), [0, 1])
    updated = weight * 2.0
    # The index is tested by the first result; the last launch then finds nothing new.
    again = reduce_axes("max", apply("exp", views.take(X, 0, INDEX)), [0])
    for outputs, found in (([used, updated, again], 1), ([updated, again], 0)):
        plan = schedule([X, INDEX, weight], outputs)
        last = len(plan.launches) - 1
        assert next(iter(index_checks(plan.launches[last].nest)), None)
        assert len(donations(plan)) == found
