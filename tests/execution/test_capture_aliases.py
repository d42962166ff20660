"""What captured functions share with their arguments, their closure and among their results."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import Tensor, jit, nn

Function = Callable[..., Any]
# Functions of a weight that the closure holds and of arguments.
CASES: dict[str, Callable[..., Any]] = {
    "argument": lambda w, x: x,
    "view of an argument": lambda w, x: x[0],
    "view of a view": lambda w, x: x[1:][0, 1:],
    "transposed argument": lambda w, x: x.t(),
    "flat argument": lambda w, x: x.view(-1),
    "expanded argument": lambda w, x: x.unsqueeze(0)[0],
    "detached argument": lambda w, x: x.detach(),
    "data of an argument": lambda w, x: x.data,
    "view of a detached argument": lambda w, x: x.detach()[0],
    "closure": lambda w, x: w,
    "view of the closure": lambda w, x: w[0],
    "detached closure": lambda w, x: w.detach(),
    "view of a detached closure": lambda w, x: w.detach()[0],
    "written argument": lambda w, x: x.add_(1),
    "view of a written argument": lambda w, x: x.add_(1)[0],
    "written view of an argument": lambda w, x: x[0].add_(1),
    "argument written by a key": lambda w, x: (x.__setitem__(0, 5.0), x * 2)[1],
    "written closure": lambda w, x: w.add_(x),
    "view of a written closure": lambda w, x: w.add_(x)[0],
    "detached written closure": lambda w, x: w.add_(x).detach(),
    "result twice": lambda w, x: 2 * (x + w,),
    "result and its view": lambda w, x: (lambda y: (y, y[0]))(x + w),
    "view and its base": lambda w, x: (lambda y: [y[0], y])(x + w),
    "two views of one result": lambda w, x: (lambda y: (y[0], y[0, 1:]))(x + w),
    "result and its detached peer": lambda w, x: (lambda y: (y, y.detach()))(x + w),
    "detached peer and the result": lambda w, x: (lambda y: (y.detach(), y))(x + w),
    "two views of a hidden result": lambda w, x: tuple((x + w).unbind(0)),
    "pieces of an argument": lambda w, x: x.split(1),
    "argument and its view": lambda w, x: {"a": x, "b": x[0]},
    "argument and closure": lambda w, x: (x, w, x + w, x[0], w[1]),
    "view in a named tuple": lambda w, x: (x + w).max(0),
    "ordered dictionary": lambda w, x: OrderedDict(a=x + w, b=x[0]),
    "array": lambda w, x: ((x + w).sum(), np.ones(3, np.float32)),
    "new list": lambda w, x: ((x + w).sum(), [1.0, 2.0]),
    "new set": lambda w, x: ((x + w).sum(), {1.0}),
    "transposed in place": lambda w, x: x.t_(),
    "axis added in place": lambda w, x: (x + w, x.unsqueeze_(0))[0],
    "tracked argument": lambda w, x: (x + w, x.requires_grad_())[0],
}


def leaves(result: Any) -> list[Any]:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in leaves(part)]
    if isinstance(result, dict):
        return [leaf for part in result.values() for leaf in leaves(part)]
    return [result]


def weight_of(kind: str) -> Tensor:
    values = metaop.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    return values + 0 if kind == "plain" else (metaop.stack([values, values]))[1]


def seen_of(function: Function, run: Callable[[Function], Function], kind: str) -> list[Any]:
    """What is seen after calls when each result is written in turn."""
    weight = weight_of(kind)
    called = run(lambda x: function(weight, x))
    seen: list[Any] = []
    for call in range(5):
        x = weight_of(kind) * 2 + call if kind == "plain" else weight_of(kind)
        x.add_(call)
        result = called(x)
        seen.append(type(result).__name__)
        parts = leaves(result)
        for k in range(len(parts)):
            if isinstance(parts[k], Tensor):
                if parts[k].is_floating_point():
                    parts[k].mul_(2 + k)
            elif isinstance(parts[k], np.ndarray):
                parts[k] += 1
            elif isinstance(parts[k], set):
                parts[k].add(7.0 + call)
            held = [x, weight, *parts]
            seen += [one.tolist() if hasattr(one, "tolist") else repr(one) for one in held]
        seen += [x.requires_grad, list(x.shape)]
        seen += [[a is b for a in (x, weight, *parts)] for b in (x, weight, *parts)]
    return seen


@pytest.mark.parametrize("kind", ("plain", "views"))
@pytest.mark.parametrize("name", CASES)
def test_results_share_what_they_share_uncaptured(name: str, kind: str) -> None:
    with warnings.catch_warnings(), metaop.no_grad():
        warnings.simplefilter("ignore")
        expected = seen_of(CASES[name], lambda function: function, kind)
        assert seen_of(CASES[name], jit, kind) == expected


@pytest.mark.parametrize(
    "name",
    [
        "argument", "view of an argument", "detached argument", "view of a detached argument",
        "view of the closure", "detached written closure", "written view of an argument",
        "result and its view", "view in a named tuple", "detached peer and the result",
    ],
)  # fmt: skip
def test_shared_results_are_captured(name: str) -> None:
    weight = metaop.ones(3, 3)
    captured = jit(lambda x: (CASES[name](weight, x), weight + 1))
    for _ in range(6):
        captured(metaop.ones(3, 3))
    assert captured.traces == 2


def pairs() -> dict[str, tuple[Tensor, Tensor]]:
    x = metaop.ones(2, 2)
    other = metaop.ones(2, 2)
    return {
        "apart": (metaop.ones(2, 2), metaop.ones(2, 2)),
        "view": (x, x.t()),
        "base": (x.t(), x),
        "peer": (other, other.detach()),
        "overlapping": (lambda y: (y[:2], y[1:]))(metaop.ones(3, 2)),
    }


@pytest.mark.parametrize("order", (0, 1))
@pytest.mark.parametrize("first", pairs())
def test_arguments_that_share_memory_are_other_arguments(first: str, order: int) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        (x if order == 0 else y).add_(1)
        return x + 10 * y

    captured = jit(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in [first] * 3 + list(pairs()) + [first] * 2:
            given, expected = pairs()[name], pairs()[name]
            assert captured(*given).tolist() == function(*expected).tolist(), name
            assert [one.tolist() for one in given] == [one.tolist() for one in expected]


def test_arguments_that_share_memory_with_the_closure() -> None:
    def run(wrap: Callable[[Function], Function]) -> list[Any]:
        weight = metaop.zeros(2, 2)

        def function(x: Tensor) -> Tensor:
            weight.add_(1)
            return x + 10 * weight

        called, seen = wrap(function), []
        for k in range(9):
            x = metaop.ones(2, 2) if k < 4 else weight.t() if k % 2 else weight.detach()
            seen += [called(x).tolist(), x.tolist()]
        return seen

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(jit) == run(lambda function: function)


def test_gradients_that_begin_as_one_value() -> None:
    def run(wrap: Callable[[Function], Function]) -> list[Any]:
        first = metaop.zeros(2, requires_grad=True)
        second = metaop.zeros(2, requires_grad=True)
        assert first is not second

        def function(x: Tensor) -> Tensor:
            assert first.grad is not None and second.grad is not None
            return x + first.grad + 10 * second.grad

        called, seen = wrap(function), []
        for k in range(8):
            first.grad = second.grad = None
            (first + second * (1 if k < 4 else 3)).sum().backward()
            seen += called(metaop.ones(2)).tolist()
        return seen

    assert run(jit) == run(lambda function: function)


def test_parameters_tied_after_capture() -> None:
    def run(wrap: Callable[[Function], Function]) -> list[Any]:
        first, second = nn.Parameter(metaop.ones(2)), nn.Parameter(metaop.zeros(2))

        def function(x: Tensor) -> Tensor:
            with metaop.no_grad():
                first.add_(x)
                second.mul_(2)
            return x * 2

        called = wrap(function)
        for k in range(8):
            if k == 4:
                first.data = second.data
            called(metaop.ones(2))
        return [first.tolist(), second.tolist()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(jit) == run(lambda function: function)
