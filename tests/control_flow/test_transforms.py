"""Loops and choices under `jit`, `vmap` and the functions of `metaop.func`."""

import numpy as np
import pytest

import metaop
from metaop import func
from metaop.execution.executor import pending_subgraph
from metaop.fusion.unroll import unroll
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import topological
from tests.control_flow.test_loops import random


def decay(begin, xs, weight):
    def step(carry, x):
        carry = (carry @ weight).tanh() + x
        return carry, carry.sum()

    return metaop.scan(step, begin, xs)


def newton(x):
    def is_far(y, x):
        return (y * y - x).abs() > 1e-3

    return metaop.while_loop(is_far, lambda y, x: ((y + x / y) / 2,), (x,), (x,))[0]


def absolute(x):
    return metaop.cond(x.sum() > 0, lambda x: x * 2, lambda x: -x.exp(), (x,))


@pytest.mark.parametrize("in_dims", [(0, 1, None), (None, 1, 0), (0, None, None), (None, None, 0)])
def test_a_scan_over_a_batch(in_dims):
    shapes = ((3,), (5, 3), (3, 3))
    given = []
    for seed, (shape, dim) in enumerate(zip(shapes, in_dims)):
        whole = shape if dim is None else (*shape[:dim], 4, *shape[dim:])
        given.append(metaop.tensor(random(*whole, seed=seed)))
    found = metaop.vmap(decay, in_dims)(*given)
    for k in range(4):
        one = [x if dim is None else x.select(dim, k) for x, dim in zip(given, in_dims)]
        for got, wanted in zip(found, decay(*one), strict=True):
            np.testing.assert_allclose(got[k].numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_loops_that_end_apart_and_choices_that_differ():
    x = metaop.tensor([1.0, 2.0, 100.0, 0.25])
    np.testing.assert_allclose(metaop.vmap(newton)(x).numpy(), np.sqrt(x.numpy()), rtol=1e-3)
    rows = random(4, 3)
    found = metaop.vmap(absolute)(metaop.tensor(rows)).numpy()
    wanted = np.where(rows.sum(1, keepdims=True) > 0, rows * 2, -np.exp(rows))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    shared = metaop.vmap(
        lambda x, y: metaop.cond(y > 0, lambda x: x, lambda x: -x, (x,)), (0, None)
    )
    np.testing.assert_allclose(shared(x, metaop.tensor(-1.0)).numpy(), -x.numpy())


def test_gradients_of_each_element():
    def loss(begin, xs, weight):
        last, sums = decay(begin, xs, weight)
        return absolute(last).sum() + (sums * sums).sum()

    begin, xs, weight = random(4, 3), random(4, 5, 3, seed=1), random(3, 3, seed=2)
    given = [metaop.tensor(one) for one in (begin, xs, weight)]
    found = metaop.vmap(func.grad(loss, argnums=(0, 1, 2)), (0, 0, None))(*given)
    for k in range(4):
        one = [metaop.tensor(x) for x in (begin[k], xs[k], weight)]
        for got, wanted in zip(found, func.grad(loss, argnums=(0, 1, 2))(*one), strict=True):
            np.testing.assert_allclose(got[k].numpy(), wanted.numpy(), rtol=1e-3, atol=1e-4)


def test_in_captured_functions():
    weight = metaop.tensor(random(3, 3) * 0.5).requires_grad_()
    optimizer = metaop.optim.SGD([weight], lr=0.1)

    def train(x):
        optimizer.zero_grad()
        last, sums = decay(metaop.zeros(3), x, weight)
        loss = absolute(last).square().sum() + sums.square().sum()
        loss.backward()
        optimizer.step()
        return loss

    first, xs = weight.detach().clone(), [metaop.tensor(random(6, 3, seed=k)) for k in range(6)]
    wanted = [train(x).item() for x in xs]
    after = weight.detach().clone()
    with metaop.no_grad():
        weight.copy_(first)
    captured = metaop.jit(train)
    found = [captured(x).item() for x in xs]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(weight.detach().numpy(), after.numpy(), rtol=1e-5)
    assert captured.traces < len(xs)


def test_a_choice_in_a_captured_function_follows_its_argument():
    captured = metaop.jit(lambda x: (absolute(x), newton(x.square().sum())))
    for k in range(6):
        x = random(3, seed=k)
        chosen, root = captured(metaop.tensor(x))
        np.testing.assert_allclose(chosen.numpy(), x * 2 if x.sum() > 0 else -np.exp(x), rtol=1e-5)
        assert root.item() == pytest.approx(np.linalg.norm(x), rel=1e-3)
    assert captured.traces < 6


def test_the_oracle_agrees(monkeypatch):
    begin, xs, weight = (metaop.tensor(random(*s)) for s in ((3,), (5, 3), (3, 3)))
    wanted = [x.numpy() for x in (*decay(begin, xs, weight), newton(xs.square().sum()))]
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    metaop.execution.executor.clear_programs()
    found = [x.numpy() for x in (*decay(begin, xs, weight), newton(xs.square().sum()))]
    monkeypatch.undo()
    metaop.execution.executor.clear_programs()
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_loops_written_out():
    """Backends that repeat nothing get the same values, also of choices and of loops in loops."""

    def nested(carry, xs):
        chosen = metaop.cond(carry.sum() > 0, lambda c: c - 1, lambda c: c + 2, (carry,))
        last, sums = metaop.scan(lambda c, x: (c * x, c + x), chosen, xs, reverse=True)
        return last, sums

    def run(begin, xs):
        last, sums = metaop.scan(nested, begin, xs)
        return last, sums

    begin, xs = random(3), random(4, 2, 3, seed=1)
    wanted = [x.numpy() for x in run(metaop.tensor(begin), metaop.tensor(xs))]
    results = run(metaop.tensor(begin), metaop.tensor(xs))
    inputs, outputs = pending_subgraph([x.call for x in results]).expand()
    assert any(isinstance(node.op, Loop) for node in topological(outputs))
    written = unroll(outputs)
    assert not any(isinstance(node.op, Loop) for node in topological(written))
    values = [begin, xs] if inputs[0].shape == (3,) else [xs, begin]
    for one, other in zip(evaluate(written, [*values, *([0] * 9)]), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_global_tensors():
    placement = metaop.placement("cpu", [0])

    def spread(x):
        return x.to_global(placement=placement, sbp=metaop.sbp.broadcast)

    given = [metaop.tensor(random(*shape)) for shape in ((3,), (5, 3), (3, 3))]
    for one, other in zip(decay(*map(spread, given)), decay(*given), strict=True):
        np.testing.assert_allclose(one.to_local().numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
    # The condition is read on every rank; a captured function cannot.
    root = newton(spread(given[0][0].abs()))
    np.testing.assert_allclose(
        root.to_local().numpy(), newton(given[0][0].abs()).numpy(), rtol=1e-6
    )
    with pytest.raises(metaop.errors.CaptureError, match="reads"):
        metaop.jit(newton)(spread(given[0][0].abs()))
    counted = metaop.while_loop(
        lambda state, step: state["x"].sum() < 50,
        lambda state, step: {"x": state["x"] + step},
        {"x": spread(given[0])},
        (spread(metaop.ones(3)),),
    )
    assert 50 <= counted["x"].sum().item() < 53
