"""Comparison with PyTorch and with finite differences, shared by the tests of all operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.differentiation.tape import backward
from metaop.tensor.core import Tensor, wrap

TOLERANCE = {"float64": 1e-10, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}


def from_numpy(value: Any) -> Any:
    """Arrays become metaop tensors, in nested sequences too; everything else stays."""
    if isinstance(value, np.ndarray):
        return metaop.tensor(value)
    if isinstance(value, (list, tuple)):
        return type(value)(from_numpy(item) for item in value)
    return value


def to_torch(value: Any) -> Any:
    """Arrays become PyTorch tensors, in nested sequences too; everything else stays."""
    import torch

    if isinstance(value, np.ndarray):
        if value.dtype.name == "bfloat16":
            return torch.from_numpy(value.astype(np.float32)).to(torch.bfloat16)
        return torch.from_numpy(value.copy())
    if isinstance(value, (list, tuple)):
        return type(value)(to_torch(item) for item in value)
    return value


def tensors_in(value: Any) -> list[Any]:
    """All tensors in nested sequences, in order."""
    if isinstance(value, (list, tuple)):
        return [found for item in value for found in tensors_in(item)]
    return [value] if hasattr(value, "requires_grad_") else []


def gradients(
    outputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    inputs: Sequence[Tensor],
    create_graph: bool = False,
) -> list[Tensor | None]:
    """The gradients of `inputs`; with `create_graph` they can be differentiated again."""
    roots = [(y.call, g.call) for y, g in zip(outputs, cotangents) if y.requires_grad]
    targets = [x.call for x in inputs]
    found = backward(
        roots, retain_graph=True, create_graph=create_graph, targets=targets, accumulate=False
    )
    return [wrap(found[call]) if call in found else None for call in targets]


def assert_same(actual: Tensor, expected: Any, what: str, tolerance: float | None = None) -> None:
    """Asserts that a metaop tensor has the dtype, shape and values of a PyTorch tensor."""
    assert actual.dtype.name == str(expected.dtype).removeprefix("torch."), what
    assert tuple(actual.shape) == tuple(expected.shape), what
    expected = expected.detach()
    if actual.dtype.kind == "float":
        tolerance = TOLERANCE[actual.dtype.name] if tolerance is None else tolerance
        want, got = expected.double().numpy(force=True), actual.detach().numpy().astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=what)
    else:
        np.testing.assert_array_equal(actual.numpy(), expected.numpy(), err_msg=what)


def _pair(function: Any) -> tuple[Callable, Callable, str]:
    """The metaop and the PyTorch function for "name", "linalg.name" or a pair of callables."""
    import torch

    if not isinstance(function, str):
        return function[0], function[1], "the pair of functions"
    ours, theirs = metaop, torch
    for part in function.split("."):
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    return ours, theirs, function


def check(
    function: Any,
    *inputs: Any,
    gradient: bool = True,
    tolerance: float | None = None,
    **options: Any,
) -> None:
    """Runs a function in metaop and in PyTorch and compares results and gradients.

    `function` is a name, or a pair (metaop's, PyTorch's). Arrays among `inputs` become tensors;
    with `gradient`, the gradients with respect to all float ones are compared too, for random
    cotangents. Options are passed on; values that differ between the two are pairs in a
    `Versus`.
    """
    torch = pytest.importorskip("torch")
    ours, theirs, name = _pair(function)
    mine, other = from_numpy(list(inputs)), to_torch(list(inputs))
    pairs = zip(tensors_in(mine), tensors_in(other))
    leaves = [(m, t) for m, t in pairs if m.dtype.kind == "float"]
    if gradient:
        for leaf in leaves:
            leaf[0].requires_grad_()
            leaf[1].requires_grad_()
    actual = ours(*mine, **{key: _side(value, 0) for key, value in options.items()})
    expected = theirs(*other, **{key: _side(value, 1) for key, value in options.items()})
    results = list(zip(_results(actual), _results(expected)))
    assert len(_results(actual)) == len(_results(expected)), name
    for position, (a, e) in enumerate(results):
        what = f"{name}, result {position}"
        if hasattr(e, "requires_grad"):
            assert_same(a, e, what, tolerance)
        else:
            assert a == e, what
    if gradient and leaves:
        _compare_gradients(name, results, leaves, tolerance, torch)


class Versus(tuple):
    """An option that has one value for metaop and another for PyTorch: `Versus((a, b))`."""


def _side(value: Any, side: int) -> Any:
    if isinstance(value, Versus):
        return value[side]
    return (from_numpy if side == 0 else to_torch)(value)


def _results(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [found for item in value for found in _results(item)]
    return [value]


def _compare_gradients(
    name: str, results: list, leaves: list, tolerance: float | None, torch: Any
) -> None:
    tracked = [(a, e) for a, e in results if getattr(e, "requires_grad", False)]
    if not tracked:
        assert not any(getattr(a, "requires_grad", False) for a, _ in results), name
        return
    random = np.random.default_rng(7)
    seeds = [random.uniform(0.5, 1.5, tuple(e.shape)) for _, e in tracked]
    expected = torch.autograd.grad(
        [e for _, e in tracked],
        [t for _, t in leaves],
        [torch.from_numpy(np.asarray(s)).to(e.dtype) for s, (_, e) in zip(seeds, tracked)],
        allow_unused=True,
    )
    cotangents = [metaop.tensor(s).to(a.dtype) for s, (a, _) in zip(seeds, tracked)]
    actual = gradients([a for a, _ in tracked], cotangents, [m for m, _ in leaves])
    for position, (a, e) in enumerate(zip(actual, expected)):
        what = f"gradient {position} of {name}"
        if e is None or a is None:
            # No gradient and a gradient of zeros are the same.
            rest = e if a is None else a
            assert rest is None or not bool((rest != 0).any()), what
        else:
            assert_same(a, e, what, tolerance)


def check_derivatives(
    function: Callable[..., Any],
    *inputs: np.ndarray,
    order: int = 2,
    step: float = 1e-5,
    tolerance: float = 1e-6,
) -> None:
    """Compares gradients of first and second order with central differences in float64.

    `function` takes tensors and returns one or several; every input is varied along one random
    direction.
    """
    random = np.random.default_rng(11)
    arrays = [np.asarray(x, np.float64) for x in inputs]
    directions = [random.standard_normal(x.shape) for x in arrays]
    weights: dict[Any, np.ndarray] = {}

    def value(xs: list[Tensor]) -> Tensor:
        results = [y for y in tensors_in(function(*xs)) if y.dtype.kind == "float"]
        total: Any = 0.0
        for position, y in enumerate(results):
            if position not in weights:
                weights[position] = random.uniform(0.5, 1.5, tuple(y.shape))
            total = total + (y * metaop.tensor(weights[position])).sum()
        return total

    def slope(xs: list[Tensor]) -> Tensor:
        y = value(xs)
        found = gradients([y], [metaop.tensor(1.0, dtype=y.dtype)], xs, order == 2)
        total: Any = metaop.tensor(0.0, dtype=metaop.float64)
        for g, d in zip(found, directions):
            if g is not None:
                total = total + (g * metaop.tensor(d)).sum()
        return total

    def along(of: Callable[[list[Tensor]], Tensor], offset: float) -> float:
        moved = [metaop.tensor(x + offset * d) for x, d in zip(arrays, directions)]
        return of([x.requires_grad_() for x in moved]).item()

    def directional(of: Callable[[list[Tensor]], Tensor]) -> float:
        return (along(of, step) - along(of, -step)) / (2 * step)

    np.testing.assert_allclose(
        along(slope, 0.0), directional(value), rtol=tolerance, atol=tolerance, err_msg="first order"
    )
    if order == 2:
        leaves = [metaop.tensor(x).requires_grad_() for x in arrays]
        y = slope(leaves)
        analytic = 0.0
        if y.requires_grad:
            found = gradients([y], [metaop.tensor(1.0, dtype=y.dtype)], leaves)
            for g, d in zip(found, directions):
                analytic += 0.0 if g is None else float((g.detach().numpy() * d).sum())
        expected = directional(slope)
        np.testing.assert_allclose(
            analytic, expected, rtol=tolerance, atol=tolerance, err_msg="second order"
        )
