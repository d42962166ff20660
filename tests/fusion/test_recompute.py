"""What is computed again keeps every value, takes less memory, and comes when it is needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from metaop.compiler import schedule
from metaop.differentiation.transposition import pullback
from metaop.elementwise import apply
from metaop.fusion import recompute as passes
from metaop.fusion.recompute import recompute
from metaop.operators.linear_algebra import matmul as product
from metaop.reduce import reduce_axes
from metaop.reduce.meta_op import Reduce
from metaop.reindex import views
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.loop import Body, Loop, body_inputs, stack
from metaop.unified_graph.node import Node, topological
from tests.codegen.interpret import run_schedule
from tests.codegen.lowering.test_lowering import (
    GRAPHS,
    layer_norm,
    matmul,
    optimise,
    scheduled,
    softmax,
    tensor,
)


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every program is large enough."""
    monkeypatch.setattr(passes, "_LEAST_PEAK", 1)
    monkeypatch.setattr(passes, "_LEAST_BYTES", 1)
    monkeypatch.setattr(passes, "_SHORT_WAIT", -1)
    yield


def network(x: Node, *weights: Node) -> Node:
    """Layers that widen, bend and narrow, each added to its normalised input."""
    for first, second in zip(weights[::2], weights[1::2]):
        x = x + matmul(apply("tanh", matmul(layer_norm(x), first)), second)
    return reduce_axes("add", x * x, [0, 1])


def training_step(layers: int = 3, rows: int = 20) -> list[Node]:
    shapes = [(16, 48), (48, 16)] * layers
    weights = [tensor(k, *shape) for k, shape in enumerate(shapes, start=1)]
    loss = network(tensor(0, rows, 16), *weights)
    gradients = pullback([loss], [loss * 0.0 + 1.0], weights)
    return [loss, *(w - g * 0.1 for w, g in zip(weights, gradients) if g is not None)]


def attention(query: Node, key: Node, value: Node) -> Node:
    return matmul(softmax(matmul(query, views.transpose(key, 0, 1)), 1), value)


def attention_step() -> list[Node]:
    sources = [tensor(k, 64, 8) for k in range(3)]
    loss = reduce_axes("add", apply("sin", attention(*sources)), [0, 1])
    return [loss, *(g for g in pullback([loss], [loss * 0.0 + 1.0], sources) if g is not None)]


STEPS = {"network": training_step, "attention": attention_step}


@pytest.mark.parametrize("name", [*STEPS, *(name for name in GRAPHS if "gradient" in name)])
def test_values_stay(forced: None, name: str) -> None:
    plan, values, expected = scheduled((STEPS | GRAPHS)[name]())
    for actual, wanted in zip(run_schedule(plan, values), expected, strict=True):
        # Sums cancel, so what counts is the error beside the largest element.
        scale = max(float(np.abs(wanted).max()), 1.0)
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5 * scale)


def test_it_takes_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = schedule([], training_step(8, 256)).arena_bytes
    monkeypatch.setattr(passes, "_LEAST_PEAK", 1)
    monkeypatch.setattr(passes, "_LEAST_BYTES", 1024)
    assert schedule([], training_step(8, 256)).arena_bytes < 0.7 * plain


def test_scores_of_attention_are_computed_again_from_their_factors(forced: None) -> None:
    graph = recompute(optimise(attention_step()))
    assert not any(node.shape == (64, 64) for node in graph.kept)
    scores = [n for n in graph.order if isinstance(n.op, Reduce) and n.shape == (64, 64)]
    assert sum(node in graph.late for node in scores) == 2, "once more, and its gradient"


def test_what_is_read_soon_is_not_computed_again(
    forced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "_SHORT_WAIT", 4)
    outputs = optimise(attention_step()[:1])
    assert recompute(outputs).outputs == outputs


def test_what_is_computed_again_comes_just_before_it_is_needed(forced: None) -> None:
    graph = recompute(optimise(training_step()))
    after_reduction: set[Node] = set()
    pending: list[Node] = []
    freed: list[Node] = []
    for node in graph.order:
        if node not in graph.late or not node.inputs:
            continue
        follows = any(source in after_reduction for source in node.inputs)
        if not follows and not isinstance(node.op, Reduce):
            pending.append(node)
            continue
        after_reduction.add(node)
        needed = set(topological([node]))
        assert all(node in needed for node in pending)
        freed += pending
        pending = []
    assert len(freed) > 10


def test_small_programs_stay_as_they_are() -> None:
    outputs = optimise(training_step())
    graph = recompute(outputs)
    assert graph.outputs == outputs
    assert not graph.kept and not graph.late


def test_what_is_rounded_behind_the_peak_is_kept_rounded(forced: None) -> None:
    """A product of bfloat16 at the peak is rounded where it is stored, not by a kernel more."""
    x, w = (tensor(k, 48, 48, dtype=dtypes.bfloat16) for k in range(2))
    plan = schedule([x, w], [product(x, w)])
    assert len(plan.kernels) == 1


def test_a_loop_whose_results_are_read_early_and_late_runs_once(forced: None) -> None:
    """Gradients read values of each step of a recurrent layer that nothing reads before."""
    x, w, wide = tensor(0, 32, 4), tensor(1, 4, 24), tensor(2, 24, 200)
    operands = [tensor(3, 24), matmul(x, w) + 1.0]
    _, hidden, piece = body_inputs(operands, 1, [True])
    body = Body((apply("tanh", hidden + piece),), (True,), 32)
    states = stack(body, operands, body.carried[0])
    gates = stack(body, operands, apply("sigmoid", hidden * 2.0))
    total = reduce_axes("add", apply("tanh", matmul(states, wide)), [0, 1])
    late = reduce_axes("add", gates * apply("exp", states * total), [0])
    found = recompute(optimise([total, late])).outputs
    loops = [node for node in topological(found) if isinstance(node.op, Loop)]
    assert len({node.inputs for node in loops}) == 1
    assert len(loops) == 2
