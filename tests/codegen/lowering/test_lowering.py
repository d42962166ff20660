"""Fusion and lowering keep the value of every graph: nests interpreted against the oracle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from metaop.codegen.schedule import PLAIN_MACHINE, Schedule
from metaop.compiler import run_passes, schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply, cast
from metaop.elementwise.meta_op import Elementwise, where
from metaop.operators import convolution, ordering
from metaop.reduce import reduce_axes
from metaop.reduce.meta_op import Reduce
from metaop.reindex import views
from metaop.reindex.meta_op import Reindex
from metaop.reindex.order import KEY_TYPES, order
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.node import Input, Node, index_node, input_node, topological
from tests.codegen.interpret import run_schedule

F32 = dtypes.float32


def tensor(slot: int, *shape: int, dtype: dtypes.DType = F32) -> Node:
    return input_node(slot, shape, dtype)


def softmax(x: Node, dim: int) -> Node:
    shifted = x - reduce_axes("max", x, [dim], True)
    exponential = apply("exp", shifted)
    return exponential / reduce_axes("add", exponential, [dim], True)


def layer_norm(x: Node) -> Node:
    count = float(x.shape[-1])
    centred = x - reduce_axes("add", x, [x.ndim - 1], True) / count
    variance = reduce_axes("add", centred * centred, [x.ndim - 1], True) / count
    return centred * apply("rsqrt", variance + 1e-5)


def batch_norm(x: Node) -> Node:
    count = float(x.size // x.shape[1])
    centred = x - reduce_axes("add", x, [0, 2, 3], True) / count
    variance = reduce_axes("add", centred * centred, [0, 2, 3], True) / count
    return apply("relu", centred * apply("rsqrt", variance + 1e-5))


def matmul(left: Node, right: Node) -> Node:
    rows, depth, columns = left.shape[0], left.shape[1], right.shape[1]
    shape = (rows, columns, depth)
    a = views.broadcast_to(views.reshape(left, (rows, 1, depth)), shape)
    b = views.reshape(views.transpose(right, 0, 1), (1, columns, depth))
    return reduce_axes("add", a * views.broadcast_to(b, shape), [2])


def pieces_that_are_read(x: Node) -> list[Node]:
    """Pieces that others read as well, that appear twice, that scatter, or that are results."""
    one, two = apply("exp", x), reduce_axes("add", tensor(2, 6, 4, 10), [1])
    found = views.take(tensor(3, 6, 10), 0, INDEX)
    (scattered,) = pullback([found], [tensor(4, *found.shape)], [tensor(3, 6, 10)])
    assert scattered is not None
    whole = views.concatenate([one, two, one, scattered, x], 0)
    return [whole, one, two * 3.0, views.concatenate([whole, whole * 2.0], 1)]


def sum_of_slices(x: Node) -> Node:
    parts = [views.select(x, 0, k) for k in (4, 1, 2, 6, 0)]
    return parts[0] * parts[1] + apply("sin", parts[2]) * parts[3] + parts[4]


def steps(x: Node, weight: Node, order: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> Node:
    """A recurrent network: every step adds to the gradient of the weight."""
    state = apply("exp", views.select(x, 0, order[0]))
    states = {order[0]: state}
    for k in order[1:]:
        state = apply("tanh", matmul(state, weight) + views.select(x, 0, k))
        states[k] = state
    return views.concatenate([views.unsqueeze(states[k], 0) for k in sorted(states)], 0)


def steps_back(x: Node, weight: Node) -> Node:
    return steps(x, weight, (5, 4, 3, 2, 1, 0))


def products(x: Node, weight: Node) -> Node:
    wide = views.broadcast_to(views.reshape(x, (6, 1, 10)), (6, 6, 10))
    return reduce_axes("add", wide * weight + apply("sin", wide), [2]) + reduce_axes("add", x, [1])


def gradients(function: Callable[..., Node], *sources: Node) -> list[Node]:
    result = function(*sources)
    cotangent = input_node(9, result.shape, result.dtype)
    return [g for g in pullback([result], [cotangent], sources) if g is not None]


X = tensor(0, 6, 10)
IMAGE = tensor(0, 2, 3, 7, 6)
WEIGHT = tensor(1, 4, 3, 3, 3)
INDEX = tensor(1, 5, dtype=dtypes.int64)
POSITIONS = index_node(index_expr.axis(0, 3) * 2 + 1, (3,))


def conv(x: Node, w: Node) -> Node:
    return convolution.convolution(x, w, None, (2, 1), (1, 1), (1, 1), (1, 1), 1)


def orders(source: Node, dtype: dtypes.DType) -> Node:
    """The order of integers with digits of all values, of which many are equal."""
    whole = cast(apply("abs", source) if dtype is dtypes.uint8 else source, dtype)
    return order(whole * (int(dtype.highest) // 16 - 1))


GRAPHS: dict[str, Callable[[], list[Node]]] = {
    "chain": lambda: [apply("tanh", X * 2.0 + 1.0)],
    "two products": lambda: [X * X - apply("floor", X) * apply("exp", X)],
    "a product used twice": lambda: [X * X - apply("floor", X * X), 2.0 * X + 1.0],
    "broadcast": lambda: [X + views.broadcast_to(tensor(1, 10), (6, 10))],
    "transposed": lambda: [views.transpose(apply("exp", X), 0, 1) * 3.0],
    "padded": lambda: [views.pad(apply("exp", X), (1, 0), (2, 3), 0.5)],
    "rolled": lambda: [views.roll(X, 3, 1), views.flip(X, [0])],
    "reshaped": lambda: [apply("sin", views.reshape(X, (4, 15))) + 1.0],
    "concatenated": lambda: [views.concatenate([X, X * 2.0, tensor(1, 6, 1)], 1)],
    "long pieces": lambda: [
        views.concatenate([X, apply("exp", X), tensor(1, 4, 10), X], 0),
        views.concatenate([tensor(2, 3, 40), tensor(3, 3, 24)], 1) * 2.0,
    ],
    "pieces that are read": lambda: pieces_that_are_read(X),
    "slices gradient": lambda: gradients(sum_of_slices, tensor(0, 7, 20)),
    "strips with gaps": lambda: [
        views.pad(X, (0, 3), (0, 30)) + views.pad(apply("exp", X), (0, 25), (0, 8)) + 0.0
    ],
    "steps gradient": lambda: gradients(steps, tensor(0, 6, 8, 10), tensor(1, 10, 10)),
    "steps back gradient": lambda: gradients(steps_back, tensor(0, 6, 8, 10), tensor(1, 10, 10)),
    "sums of few products": lambda: gradients(products, X, tensor(1, 6, 10)),
    "constant along rows": lambda: [
        reduce_axes("add", views.broadcast_to(X, (5, 6, 10)) * 2.0, [2]),
        reduce_axes("max", views.broadcast_to(views.reshape(X, (6, 1, 10)), (6, 5, 10)) * 2.0, [0]),
    ],
    "gathered by position": lambda: [
        views.take(X, 0, POSITIONS),
        views.take(X, 1, POSITIONS),
        views.take(X, 1, index_node(index_expr.axis(0, 14) // 3, (14,))),
    ],
    "gathered by position gradient": lambda: gradients(lambda x: views.take(x, 0, POSITIONS), X),
    "gathered": lambda: [views.take(X, 0, INDEX), views.take(X, 1, INDEX)],
    "scattered": lambda: gradients(lambda x: views.take(x, 0, INDEX), X)[:1],
    "scattered in rows": lambda: gradients(lambda x: views.take(x, 1, INDEX), X)[:1],
    "rows": lambda: [reduce_axes("add", X, [1]), reduce_axes("max", X, [0])],
    "everything": lambda: [reduce_axes("add", X * X, [0, 1]), reduce_axes("min", X, [0, 1])],
    "logic": lambda: [reduce_axes("or", X > 1.0, [1]), reduce_axes("and", X > -9.0, [0])],
    "kept": lambda: [reduce_axes("mul", tensor(0, 3, 4, 5), [0, 2], True)],
    "softmax rows": lambda: [softmax(X, 1)],
    "softmax columns": lambda: [softmax(X, 0)],
    "softmax gradient": lambda: gradients(lambda x: softmax(x, 1), X),
    "layer norm": lambda: [layer_norm(X)],
    "layer norm gradient": lambda: gradients(layer_norm, X),
    "batch norm": lambda: [batch_norm(IMAGE)],
    "batch norm gradient": lambda: gradients(batch_norm, IMAGE),
    "matmul": lambda: [apply("relu", matmul(tensor(0, 33, 40), tensor(1, 40, 37)) + 1.0)],
    "matmul gradient": lambda: gradients(matmul, tensor(0, 20, 30), tensor(1, 30, 25)),
    "convolution": lambda: [conv(IMAGE, WEIGHT)],
    "several outputs": lambda: [X, X + 1.0, X + 1.0, reduce_axes("add", X + 1.0, [1])],
    "mixed types": lambda: [cast(X, dtypes.int32), where(X > 0.0, cast(X, dtypes.float64), 1.0)],
    "long rows": lambda: [reduce_axes("add", tensor(0, 40000), [0])],
    **{f"order of {t.name}": lambda t=t: [orders(tensor(0, 3, 70) * 3.0, t)] for t in KEY_TYPES},
    "sorted": lambda: list(ordering.sort(tensor(0, 70, 3), 0, True)),
    "sorted short rows": lambda: list(ordering.sort(X, 1, False)),
}


def random_inputs(nodes: list[Node], seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    arrays = []
    for node in nodes:
        if node.dtype.kind == "int":
            arrays.append(generator.integers(0, 5, node.shape).astype(node.dtype.numpy))
        else:
            arrays.append(generator.standard_normal(node.shape).astype(node.dtype.numpy))
    return arrays


def optimise(outputs: list[Node]) -> list[Node]:
    """The nodes for which it is decided what is computed again and what shares a kernel."""
    made = {stage.name: stage.schedule for stage in run_passes((), outputs, PLAIN_MACHINE)}
    return list(made["split_reductions"].outputs)


def scheduled(outputs: list[Node]) -> tuple[Schedule, list[np.ndarray], list[np.ndarray]]:
    found = [node for node in topological(outputs) if isinstance(node.op, Input)]
    inputs = sorted(found, key=lambda node: node.op.slot)
    values = random_inputs(inputs)
    by_slot = dict(zip((node.op.slot for node in inputs), values))
    expected = evaluate(outputs, [by_slot.get(k, values[0]) for k in range(max(by_slot) + 1)])
    return schedule(inputs, outputs), values, expected


@pytest.mark.parametrize("name", GRAPHS)
def test_nests_compute_what_the_graph_means(name: str) -> None:
    plan, values, expected = scheduled(GRAPHS[name]())
    for actual, wanted in zip(run_schedule(plan, values), expected, strict=True):
        assert actual.dtype == wanted.dtype
        np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=2e-5)


def launches(name: str) -> list[str]:
    return [launch.nest.name.split("_")[0] for launch in scheduled(GRAPHS[name]())[0].launches]


def test_consecutive_reductions_of_one_row_are_one_kernel() -> None:
    for name in ("softmax rows", "softmax columns", "softmax gradient", "layer norm"):
        assert launches(name) == ["rows"], name
    assert launches("batch norm") == ["rows"]


def test_elementwise_work_is_fused_behind_a_contraction() -> None:
    assert launches("matmul") == ["contraction"]


def test_a_concatenation_is_one_launch_for_each_different_piece() -> None:
    plan, _, _ = scheduled(GRAPHS["long pieces"]())
    # The first tensor is written at two places; its exponential is computed at a third.
    stores = [[p.role for p in launch.nest.parameters] for launch in plan.launches]
    assert stores == [["read", "write"]] * 4


def test_pieces_are_computed_where_the_whole_needs_them() -> None:
    one = reduce_axes("add", tensor(0, 6, 4, 20), [1])
    two = reduce_axes("max", tensor(1, 6, 4, 20), [1])
    plan, _, _ = scheduled([views.concatenate([one, two], 1)])
    assert [launch.nest.name.split("_")[0] for launch in plan.launches] == ["windows", "windows"]
    assert not plan.temporaries


def test_the_gradient_of_slices_adds_nothing() -> None:
    (gradient,) = optimise(gradients(sum_of_slices, tensor(0, 7, 20)))
    names = [n.op.function.name for n in topological([gradient]) if isinstance(n.op, Elementwise)]
    assert "add" not in names
    assert names.count("where") == 6


@pytest.mark.parametrize("name", ["steps gradient", "steps back gradient"])
def test_the_gradient_of_a_shared_weight_is_one_reduction(name: str) -> None:
    last = optimise(GRAPHS[name]())[-1]
    assert isinstance(last.op, Reduce)
    assert last.inputs[0].shape == (5, 8, 10, 10)


def test_the_gradient_of_a_concatenation_chooses_nothing() -> None:
    parts = [tensor(k, 2 + k, 40) for k in range(4)]
    whole = views.concatenate(parts, 0)
    gradient = tensor(4, *whole.shape)
    wanted = optimise([part for part in pullback([whole], [gradient], parts) if part is not None])
    assert not any(isinstance(node.op, Elementwise) for node in topological(wanted))
    array = np.random.default_rng(0).standard_normal(whole.shape, dtype=np.float32)
    for part, start, found in zip(parts, (0, 2, 5, 9), evaluate(wanted, [array] * 5)):
        np.testing.assert_array_equal(found, array[start : start + part.shape[0]])


def test_indices_that_count_positions_are_not_looked_up() -> None:
    for name in ("gathered by position", "gathered by position gradient"):
        for node in topological(optimise(GRAPHS[name]())):
            assert not isinstance(node.op, Reindex) or not node.op.map.lookups()
            assert not isinstance(node.op, Reduce)


def test_chains_of_maps_are_one_kernel() -> None:
    for name in ("chain", "broadcast", "transposed", "padded", "concatenated"):
        assert launches(name) == ["map"], name
