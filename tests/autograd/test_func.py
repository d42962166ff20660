"""Functions of functions beside torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import func
from tests.nn.parity import close, draw, pair, to_metaop

torch = pytest.importorskip("torch")

X, Y = draw(4, grad=False), draw(4, grad=False, seed=2)
MATRIX = draw(3, 4, grad=False)

CASES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "gradient": lambda f, x, y, m: f.grad(lambda x: (x**3).sum())(x),
    "two gradients": lambda f, x, y, m: f.grad(lambda x, y: (x * y**2).sum(), argnums=(0, 1))(x, y),
    "second gradient": lambda f, x, y, m: f.grad(
        lambda x: (f.grad(lambda z: (z**4).sum())(x) * y).sum()
    )(x),
    "trees": lambda f, x, y, m: f.grad(lambda p: (p["a"] * p["b"][0]).sum())({"a": x, "b": [y]}),
    "value": lambda f, x, y, m: f.grad_and_value(lambda x: (x**2).sum())(x),
    "rest": lambda f, x, y, m: f.grad(lambda x: ((x**2).sum(), x * 2), has_aux=True)(x),
    "pull": lambda f, x, y, m: f.vjp(lambda x: m @ x, x)[1](m.sum(1)),
    "jacobian": lambda f, x, y, m: f.jacrev(lambda x: (m @ x).sin())(x),
    "hessian": lambda f, x, y, m: f.hessian(lambda x: (x.sin() * y).sum() * x.sum())(x),
    "map": lambda f, x, y, m: f.vmap(lambda row, y: row.dot(y), in_dims=(0, None))(m, y),
    "mapped gradients": lambda f, x, y, m: f.vmap(f.grad(lambda row: row.dot(y) ** 2))(m),
    "other dimensions": lambda f, x, y, m: f.vmap(lambda c: c * 2, in_dims=1, out_dims=1)(m),
    "a view of another order": lambda f, x, y, m: f.vmap(m.mv, out_dims=-1)(m).view(-1),
}


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [x for item in value for x in _tensors(item)]
    return [value]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    got = _tensors(CASES[name](func, *map(to_metaop, (X, Y, MATRIX))))
    wanted = _tensors(CASES[name](torch.func, X, Y, MATRIX))
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted):
        assert not one.requires_grad
        close(one, other, 1e-4)


TRANSFORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "grad": lambda f, x, w: f.grad(lambda x: (w * x**3).sum())(x),
    "grad of what is trained": lambda f, x, w: f.grad(lambda w: (w * w * x**3).sum())(w),
    "value": lambda f, x, w: f.grad_and_value(lambda x: (w * x**3).sum())(x),
    "rest": lambda f, x, w: f.grad(lambda x: ((w * x**3).sum(), (w * x, x)), has_aux=True)(x),
    "vjp": lambda f, x, w: f.vjp(lambda x: w * x**3, x)[1](x),
    "vjp value": lambda f, x, w: f.vjp(lambda x: (w * x**3, x * 2), x)[0],
    "jvp": lambda f, x, w: f.jvp(lambda x: w * x**3, (x,), (x,)),
    "jvp along": lambda f, x, w: f.jvp(lambda x: x**3, (x,), (w,)),
    "jacrev": lambda f, x, w: f.jacrev(lambda x: w * x**3)(x),
    "jacfwd": lambda f, x, w: f.jacfwd(lambda x: w * x**3)(x),
    "jacfwd rest": lambda f, x, w: f.jacfwd(lambda x: (w * x**3, w * 2), has_aux=True)(x),
    "hessian": lambda f, x, w: f.hessian(lambda x: (w * x**3).sum())(x),
    "mapped grad": lambda f, x, w: f.vmap(f.grad(lambda x: (w * x**3).sum() ** 2))(x[None] * 2),
    "mapped hessian": lambda f, x, w: f.vmap(f.hessian(lambda x: (w * x**3).sum()))(x[None]),
    "inside": lambda f, x, w: f.grad(lambda x: (x * f.grad(lambda y: (w * y**3).sum())(x)).sum())(
        x
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mode", ["enable_grad", "no_grad"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_what_the_function_holds(name: str, mode: str) -> None:
    """Results track gradients of tensors that the function holds; `no_grad` changes no value."""
    found = []
    for library, make in ((metaop, to_metaop), (torch, lambda x: x)):
        x, w = make(X), make(Y).clone().requires_grad_()
        with getattr(library, mode)():
            results = _tensors(TRANSFORMS[name](library.func, x, w))
        flags = [result.requires_grad for result in results]
        if any(flags):
            sum((r * r).sum() for r, flag in zip(results, flags) if flag).backward()
        found.append((flags, [r.detach() for r in results], w.grad))
    (flags, results, slope), (wanted_flags, wanted, wanted_slope) = found
    assert flags == wanted_flags
    for one, other in zip(results, wanted, strict=True):
        close(one, other, 1e-4)
    assert (slope is None) == (wanted_slope is None)
    if slope is not None:
        close(slope, wanted_slope, 1e-4)


def test_no_grad_within_a_function() -> None:
    def outer(library: Any) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            with library.no_grad():
                constant = library.func.grad(lambda y: (y**3).sum())(x)
            return (constant * x).sum()

        return library.func.grad(function)

    close(outer(metaop)(to_metaop(X)), outer(torch)(X), 1e-4)


def test_models() -> None:
    ours, theirs = pair("Linear", 4, 3)
    x = draw(5, 4, grad=False)

    def gradients(library: Any, model: Any, x: Any) -> Any:
        def loss(parameters: Any) -> Any:
            return library.functional_call(model, parameters, (x,)).pow(2).sum()

        return library.grad(loss)({k: v.detach() for k, v in model.named_parameters()})

    got, wanted = gradients(func, ours, to_metaop(x)), gradients(torch.func, theirs, x)
    for name in wanted:
        close(got[name], wanted[name], 1e-4)
    assert ours.weight.grad is None


def test_inside_a_usual_backward_pass() -> None:
    x = metaop.tensor([1.0, 2.0]).requires_grad_()
    func.grad(lambda x: (x**3).sum())(x).sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_errors() -> None:
    with pytest.raises(RuntimeError, match="one element"):
        func.grad(lambda x: x)(metaop.ones(2))
    with pytest.raises((RuntimeError, ValueError), match="sizes"):
        func.vmap(lambda x, y: x + y)(metaop.ones(2), metaop.ones(3))
    np.testing.assert_array_equal(func.grad(lambda x: metaop.ones(()))(metaop.ones(2)), [0, 0])


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")  # of PyTorch's graphs
def test_linear_approximations() -> None:
    def along(T, x, y, m):
        value, slope = T.linearize(lambda a, b: ((a * b).sin(), {"s": (m @ a).exp()}), x, y)
        one, other = slope(y, x), slope(x * 0.5, y * 2)
        return [*value[:1], value[1]["s"], one[0], one[1]["s"], other[0], other[1]["s"]]

    ours = along(func, *(to_metaop(value) for value in (X, Y, MATRIX)))
    theirs = along(torch.func, X, Y, MATRIX)
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, 1e-5)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")
def test_tangents_that_do_not_fit() -> None:
    for library in (metaop, torch):
        _, along = library.func.linearize(lambda x: x.sin(), library.ones(3))
        for tangents in (
            (library.ones(2),),
            (library.ones(3, dtype=library.float64),),
            (library.ones(3), library.ones(3)),
        ):
            with pytest.raises(RuntimeError):
                along(*tangents)


def test_functions_that_write_in_place() -> None:
    def writes(x):
        y = x * 2
        y[0] = 5.0
        x.add_(1)
        return y + x

    for remove in ("mutations", "mutations_and_views"):
        found = []
        for library in (metaop, torch):
            x = library.arange(3.0)
            found.append(
                (library.func.functionalize(writes, remove=remove)(x).tolist(), x.tolist())
            )
        assert found[0] == found[1]
    with pytest.raises(RuntimeError):
        func.functionalize(writes, remove="views")


def test_batch_norms_without_statistics() -> None:
    facts = []
    for T in (metaop, torch):
        net = T.nn.Sequential(
            T.nn.BatchNorm1d(4), T.nn.Sequential(T.nn.BatchNorm1d(4, affine=False))
        )
        plain = T.nn.BatchNorm1d(4, track_running_stats=False)
        assert T.func.replace_all_batch_norm_modules_(net) is net
        T.func.replace_all_batch_norm_modules_(plain)
        x = T.arange(12.0).view(3, 4).sin()
        results = [module.eval()(x).tolist() for module in (net[0], net[1][0], plain)]
        facts.append((sorted(net.state_dict()), [net[0].track_running_stats], results))
    assert facts[0][:2] == facts[1][:2]
    np.testing.assert_allclose(facts[0][2], facts[1][2], 1e-4, 1e-5)


@pytest.mark.parametrize("name", ["grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd"])
def test_without_gradients_aux_keeps_the_graph_that_it_had(name: str) -> None:
    """What the function computes has none."""

    def tracked(lib: Any) -> list[bool]:
        weight = lib.ones(2, requires_grad=True)
        product, x = weight * 2, lib.ones(2)

        def function(x: Any) -> Any:
            result = x * x * weight
            value = result.sum() if name.startswith("grad") else result
            return value, (product, weight, x, result)

        transform = getattr(lib.func, name)
        with lib.no_grad():
            if name == "vjp":
                found = transform(function, x, has_aux=True)[2]
            elif name == "jvp":
                found = transform(function, (x,), (x,), has_aux=True)[2]
            else:
                found = transform(function, has_aux=True)(x)[1]
        found = found[1] if name == "grad_and_value" else found
        return [one.requires_grad for one in found]

    assert tracked(metaop)[:3] == tracked(torch)[:3] == [True, True, False]


def test_a_backward_pass_before_the_pullback() -> None:
    def gradients(lib: Any) -> list[Any]:
        weight = lib.ones(2, requires_grad=True)
        value, pull = lib.func.vjp(lambda x: (x * x * weight).sum(), lib.tensor([3.0, 4.0]))
        value.backward()
        return [weight.grad.tolist(), pull(lib.tensor(2.0))[0].tolist()]

    assert gradients(metaop) == gradients(torch)
