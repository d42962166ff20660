"""`vmap` beside torch.func.vmap: values, gradients, and how often the function runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import func, nn

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(0)
BATCH = RANDOM.normal(size=(5, 3, 4)).astype(np.float32)
WEIGHT = RANDOM.normal(size=(4, 6)).astype(np.float32)
PLACES = RANDOM.integers(0, 3, (5, 2))
PICTURES = RANDOM.normal(size=(5, 2, 3, 8, 8)).astype(np.float32)
FILTERS = RANDOM.normal(size=(4, 3, 3, 3)).astype(np.float32)

# PyTorch's own modules warn when they are first used.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...], dict[str, Any]]

# Functions of the library, its nn.functional, and the arguments.
CASES: dict[str, Case] = {
    "elementwise": (lambda t, F, x: (x.sin() * x).exp(), (BATCH,), {}),
    "shared operand": (lambda t, F, x, w: x @ w, (BATCH, WEIGHT), {"in_dims": (0, None)}),
    "softmax": (lambda t, F, x: F.softmax(x, -1), (BATCH,), {}),
    "indices and values": (lambda t, F, x, i: x[i], (BATCH, PLACES), {}),
    "indices only": (lambda t, F, x, i: x[i], (BATCH, PLACES), {"in_dims": (None, 0)}),
    "values only": (lambda t, F, x, i: x[i[0]], (BATCH, PLACES), {"in_dims": (0, None)}),
    "scatter": (
        lambda t, F, x, i: t.zeros(3).index_add(0, i, x[0, :2]),
        (BATCH, PLACES),
        {},
    ),
    "scatter of one value": (
        lambda t, F, x, i: t.zeros(3, 4).index_add(0, i, x[0, :2]),
        (BATCH, PLACES),
        {"in_dims": (None, 0)},
    ),
    "convolution": (
        lambda t, F, x, k: F.conv2d(x, k, padding=1, stride=2),
        (PICTURES, FILTERS),
        {"in_dims": (0, None)},
    ),
    "pooling": (lambda t, F, x: F.max_pool2d(x, 3, padding=1), (PICTURES,), {}),
    "several results": (lambda t, F, x: tuple(x.max(1)), (BATCH,), {}),
    "scan": (lambda t, F, x: x.cumsum(0), (BATCH,), {}),
    "product": (lambda t, F, x: x.prod(), (BATCH,), {}),
    "loss": (lambda t, F, x, i: F.cross_entropy(x[:2], i), (BATCH, PLACES), {}),
    "computed on the host": (lambda t, F, x: tuple(x.sort(0)), (BATCH,), {}),
    "in place": (lambda t, F, x: x.clone().mul_(2).add_(1), (BATCH,), {}),
    "in place on the argument": (lambda t, F, x: x.add_(1), (BATCH,), {}),
    "other dimensions": (lambda t, F, x: x * 2, (BATCH,), {"in_dims": 2, "out_dims": -1}),
    "nested": (
        lambda t, F, x: t.func.vmap(lambda r, q: (r * q).sum(), in_dims=(0, None))(x, x[0]),
        (BATCH,),
        {},
    ),
    "the same for all": (lambda t, F, x: t.ones(3), (BATCH,), {}),
    "no elements": (lambda t, F, x: x.sum(0), (BATCH[:0],), {}),
    "chunks": (lambda t, F, x: (x.sin(), x.sum()), (BATCH,), {"chunk_size": 2}),
    "gradient": (
        lambda t, F, x: t.func.grad(lambda r: (r.std(1) * r.amax(1)).sum())(x),
        (BATCH,),
        {},
    ),
    "jacobian": (lambda t, F, x: t.func.jacrev(lambda r: (r @ r.T).sin())(x), (BATCH,), {}),
    "jacobian by columns": (
        lambda t, F, x: t.func.jacfwd(lambda r: (r @ r.T).sin())(x),
        (BATCH,),
        {},
    ),
    "hessian": (
        lambda t, F, x: t.func.hessian(lambda r: (r @ r.T).sin().sum())(x),
        (BATCH[:2],),
        {},
    ),
}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, arrays, options = CASES[name]
    functional = torch.nn.functional
    wanted = torch.func.vmap(lambda *x: function(torch, functional, *x), **options)(
        *[torch.tensor(x) for x in arrays]
    )
    given = [metaop.tensor(x) for x in arrays]
    got = func.vmap(lambda *x: function(metaop, nn.functional, *x), **options)(*given)
    for one, other in zip(_listed(got), _listed(wanted), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)
    if name == "in place on the argument":
        np.testing.assert_array_equal(given[0].numpy(), BATCH + 1)


@pytest.mark.parametrize("name", ["shared operand", "values only", "convolution", "scan"])
def test_gradients_flow_through(name: str) -> None:
    function, arrays, options = CASES[name]

    def gradients(library: Any, make: Callable[[np.ndarray], Any]) -> list[Any]:
        given = [make(x) for x in arrays]
        tracked = [x.requires_grad_() for x in given if x.dtype.is_floating_point]
        functional = library.nn.functional
        mapped = library.func.vmap(lambda *x: function(library, functional, *x), **options)
        (mapped(*given) ** 2).sum().backward()
        return [x.grad for x in tracked]

    for one, other in zip(gradients(metaop, metaop.tensor), gradients(torch, torch.tensor)):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-4)


def test_the_function_runs_once_unless_it_reads_a_value() -> None:
    runs = []

    def function(x: Any, reads: bool) -> Any:
        runs.append(x)
        return x * 2 if not reads or x.sum() > 0 else -x

    func.vmap(lambda x: function(x, False))(metaop.ones(5, 2))
    assert len(runs) == 1
    runs.clear()
    got = func.vmap(lambda x: function(x, True))(metaop.tensor([[1.0], [-1.0], [2.0]]))
    assert got.tolist() == [[2.0], [1.0], [4.0]]
    # Once more than there are elements: the first run found out.
    assert len(runs) == 4


def test_gradients_that_the_user_wrote_are_used() -> None:
    class Doubled(metaop.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            return 2 * cotangent

    x = metaop.rand(3, 2, requires_grad=True)
    func.vmap(Doubled.apply)(x).sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0]] * 3
    got = func.vmap(func.grad(lambda x: Doubled.apply(x).sum()))(x.detach())
    assert got.tolist() == [[2.0, 2.0]] * 3


def test_random_numbers() -> None:
    x = metaop.ones(40, 3)

    def noisy(x: Any) -> Any:
        return nn.functional.dropout(x, 0.5) + metaop.rand(3)

    with pytest.raises(RuntimeError, match="randomness"):
        func.vmap(noisy)(x)
    same = func.vmap(noisy, randomness="same")(x).numpy()
    assert len(np.unique(same, axis=0)) == 1
    different = func.vmap(noisy, randomness="different")(x).numpy()
    assert len(np.unique(different, axis=0)) == 40
    assert 0.3 < (different > 1).mean() < 0.7


def test_a_tensor_that_is_not_mapped_cannot_be_written() -> None:
    total = metaop.zeros(2)
    with pytest.raises(RuntimeError, match="not mapped"):
        func.vmap(lambda x: total.add_(x))(metaop.ones(3, 2))
    with pytest.raises(RuntimeError, match="not mapped"):
        func.vmap(lambda x: total.copy_(x) * 2)(metaop.ones(3, 2))
    with pytest.raises(RuntimeError, match="not mapped"):
        func.vmap(lambda x: (total.copy_(x), x * 2)[1])(metaop.ones(3, 2))
    layer = nn.BatchNorm1d(2).eval()
    assert func.vmap(layer)(metaop.randn(3, 5, 2)).shape == (3, 5, 2)


def test_models_side_by_side() -> None:
    models = [nn.Linear(3, 2) for _ in range(4)]
    parameters, buffers = func.stack_module_state(models)
    x = metaop.randn(5, 3)

    def run(parameters: Any, buffers: Any, x: Any) -> Any:
        return func.functional_call(models[0], (parameters, buffers), (x,))

    got = func.vmap(run, in_dims=(0, 0, None))(parameters, buffers, x)
    wanted = metaop.stack([model(x) for model in models])
    np.testing.assert_allclose(got.detach(), wanted.detach(), rtol=1e-5, atol=1e-6)
    named = func.vmap(lambda p, x: p["weight"] @ x, in_dims=({"weight": 0, "bias": None}, None))
    assert named({**parameters, "bias": metaop.ones(1)}, x[0]).shape == (4, 2)


def test_products_with_directions() -> None:
    x, direction = BATCH[0], BATCH[1]
    got = func.jvp(
        lambda x: (x.sin() @ x.T, x.sum()), (metaop.tensor(x),), (metaop.tensor(direction),)
    )
    wanted = torch.func.jvp(
        lambda x: (x.sin() @ x.T, x.sum()), (torch.tensor(x),), (torch.tensor(direction),)
    )
    for one, other in zip((*got[0], *got[1]), (*wanted[0], *wanted[1]), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)


def test_errors() -> None:
    x = metaop.ones(2, 3)
    with pytest.raises(ValueError, match="only return Tensors"):
        func.vmap(lambda x: 3)(x)
    with pytest.raises(ValueError, match="entries"):
        func.vmap(lambda x: x, in_dims=(0, 0))(x)
    with pytest.raises(ValueError, match="out_dims is None"):
        func.vmap(lambda x: x, out_dims=None)(x)
    with pytest.raises(ValueError, match="randomness"):
        func.vmap(lambda x: x, randomness="some")
    with pytest.raises(IndexError, match="out of range"):
        func.vmap(lambda x: x, in_dims=2)(x)
