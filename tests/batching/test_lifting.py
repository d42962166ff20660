"""What is lifted out of a loop, and what must stay, against the oracle, which lifts nothing."""

import numpy as np
import pytest

import metaop
from metaop.batching.lifting import lift
from metaop.execution.executor import pending_subgraph
from metaop.unified_graph.evaluation import evaluate
from metaop.unified_graph.loop import Loop
from metaop.unified_graph.node import topological
from tests.control_flow.test_loops import random

# A step of (hidden, total), the slices and two weights, and how much is carried after lifting.
STEPS = {
    "a sum of products": (lambda h, t, x, v, w: ((h + x).tanh(), t + h.T @ x, h), 1),
    "two terms": (lambda h, t, x, v, w: ((h * 0.5 + x), t + h.T @ x + x.T @ h, h), 1),
    "a sum that is read": (lambda h, t, x, v, w: ((h + x @ t).tanh(), t + h.T @ x, h), 2),
    "a sum that is read when made": (
        lambda h, t, x, v, w: ((h + x @ (t + h.T @ x)).tanh(), t + h.T @ x, h),
        2,
    ),
    "a part of a sum that is read": (
        lambda h, t, x, v, w: ((h + x @ (t + h.T @ x)).tanh(), t + h.T @ x + x.T @ h, h),
        2,
    ),
    "a sum that is stacked": (lambda h, t, x, v, w: ((h + x).tanh(), t + h.T @ x, t), 2),
    "a sum counted twice": (lambda h, t, x, v, w: ((h + x).tanh(), t + t + h.T @ x, h), 2),
    "no sum of rows": (lambda h, t, x, v, w: ((h + x).tanh(), t + (h * x).sum(), h), 2),
    "a product given": (lambda h, t, x, v, w: ((h @ v + x @ w).tanh(), t * 0.5, h), 2),
    "all of it": (lambda h, t, x, v, w: ((h @ v + x @ w).tanh(), t + h.T @ (x @ w), h), 1),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("reverse", [False, True])
def test_steps(name, reverse):
    function, carried = STEPS[name]
    arrays = [random(*s, seed=k) * 0.4 for k, s in enumerate(((4, 3), (3, 3), (5, 4, 3)))]
    weights = [random(3, 3, seed=k) * 0.4 for k in (7, 8)]
    h, t, xs, v, w = map(metaop.tensor, (*arrays, *weights))

    def step(carry, x):
        new, total, y = function(*carry, x, v, w)
        return (new, total), y

    (last, total), ys = metaop.scan(step, (h, t), xs, reverse=reverse)
    pending = pending_subgraph([last.call, total.call, ys.call])
    _, outputs = pending.expand()
    lifted = lift(outputs)
    loops = [x for x in topological(lifted) if isinstance(x.op, Loop)]
    assert {len(x.op.definition.carried) for x in loops} == {carried}
    values = [
        np.asarray(leaf.scalar)
        if leaf.buffer is None
        else leaf.buffer.view(leaf.type.shape, leaf.type.dtype.numpy)
        for leaf in pending.leaves
    ]
    for one, other in zip(evaluate(lifted, values), evaluate(outputs, values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for one, other in zip((last, total, ys), evaluate(outputs, values), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-5)


def test_reductions_that_steps_keep_are_computed_once() -> None:
    """Another kernel may round them differently, and then no element equals its own maximum."""

    def step(carry, x):
        share = metaop.softmax(x, 1)
        largest = share.max(1, keepdim=True)[0]
        return (carry - largest) * 0.7, (share, largest)

    xs = metaop.tensor(random(64, 3, 4).astype("float64"))
    last, (share, largest) = metaop.scan(step, metaop.ones(3, 4, dtype=metaop.float64), xs)
    last.numpy()
    assert int((share == largest).sum()) == 64 * 3
