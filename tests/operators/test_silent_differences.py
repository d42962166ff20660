"""What metaop did otherwise than PyTorch without saying so: each case runs in both."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

Case = Callable[[Any], Any]
NAN = float("nan")


def small(lib: Any) -> Any:
    return lib.zeros(2, dtype=lib.int8)


# Integers divided by the number 0, and numbers that a type cannot hold.
ERRORS: dict[str, Case] = {
    "floor division": lambda lib: lib.tensor([1, 2]) // 0,
    "remainder": lambda lib: lib.tensor([1, 2]) % 0,
    "fmod": lambda lib: lib.fmod(lib.tensor([1, 2]), 0),
    "rounded division": lambda lib: lib.div(lib.tensor([1, 2]), 0, rounding_mode="trunc"),
    "floored division": lambda lib: lib.div(lib.tensor([1, 2]), 0, rounding_mode="floor"),
    "in-place division": lambda lib: lib.tensor([1, 2]).floor_divide_(0),
    "division of bytes": lambda lib: lib.tensor([1], dtype=lib.uint8) % 0,
    "full": lambda lib: lib.full((2,), 300, dtype=lib.int8),
    "full of a negative number": lambda lib: lib.full((2,), -300, dtype=lib.uint8),
    "full of a large number": lambda lib: lib.full((2,), 1e40),
    "full of half precision": lambda lib: lib.full((2,), 1e6, dtype=lib.float16),
    "full of bfloat16": lambda lib: lib.full((2,), 1e39, dtype=lib.bfloat16),
    "full_like": lambda lib: lib.full_like(small(lib), 300),
    "new_full": lambda lib: small(lib).new_full((2,), 300),
    "tensor": lambda lib: lib.tensor([300], dtype=lib.int8),
    "tensor of bytes": lambda lib: lib.tensor([256], dtype=lib.uint8),
    "tensor of int32": lambda lib: lib.tensor([2**40], dtype=lib.int32),
    "fill_": lambda lib: small(lib).fill_(300),
    "fill_ with infinity": lambda lib: lib.zeros(2, dtype=lib.int32).fill_(float("inf")),
    "masked_fill": lambda lib: small(lib).masked_fill(lib.tensor([True, False]), 300),
    "item": lambda lib: small(lib).__setitem__(0, 300),
    "where": lambda lib: lib.where(lib.tensor([True, False]), small(lib), 300),
    "index_fill": lambda lib: small(lib).index_fill(0, lib.tensor([0]), 300),
    "scatter": lambda lib: small(lib).scatter(0, lib.tensor([0]), 300),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_pytorch_are_errors(name: str) -> None:
    with pytest.raises(RuntimeError) as expected:
        ERRORS[name](torch)
    with pytest.raises(RuntimeError) as found:
        ERRORS[name](metaop)
    kind = "ZeroDivision" if "ZeroDivision" in str(expected.value) else "without overflow"
    assert kind in str(expected.value) and kind in str(found.value)


def written(x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


def gradient(function: Case, values: list[float]) -> Case:
    def run(lib: Any) -> Any:
        x = lib.tensor(values, requires_grad=True)
        function(x).sum().backward()
        return x.grad

    return run


def hooked(register: Callable[[Any, list[Any]], None]) -> Case:
    def run(lib: Any) -> Any:
        x, seen = lib.tensor([1.0, 2.0], requires_grad=True), []
        y = x * 3
        register(y, seen)
        y.sum().backward()
        return [*seen, x.grad, *([y.grad] if y.retains_grad else [])]

    return run


def copies(make: Callable[[Any], list[Any]]) -> Case:
    def run(lib: Any) -> Any:
        tensors = copy.deepcopy(make(lib.zeros(2, 2)))
        tensors[1].add_(1)
        return tensors

    return run


TIES = ([1.0, 1.0, 1.0], [2.0, 1.0, 1.0, 3.0], [3.0, 1.0, 3.0, 3.0], [5.0, 5.0], [1.0, NAN, NAN])
VALUES: dict[str, Case] = {
    "negative byte": lambda lib: lib.tensor([-1, -255], dtype=lib.uint8),
    "negative byte alone": lambda lib: lib.tensor(-1, dtype=lib.uint8),
    "full of a negative byte": lambda lib: lib.full((2,), -1, dtype=lib.uint8),
    "fraction in integers": lambda lib: lib.tensor([3.7, -3.7], dtype=lib.int8),
    "infinity of half precision": lambda lib: lib.full((2,), float("inf"), dtype=lib.float16),
    "sum that wraps": lambda lib: small(lib) + 300,
    "large integer": lambda lib: lib.tensor([2**53 + 1], dtype=lib.int64),
    "empty key": lambda lib: written(lib.zeros(2), (), 5),
    "empty key of a number": lambda lib: written(lib.zeros(()), (), 5),
    "empty key and a tensor": lambda lib: written(lib.zeros(2), (), lib.tensor([1.0, 2.0])),
    "unique": lambda lib: lib.unique(lib.tensor([NAN, 1.0, NAN]), return_counts=True),
    "unique places": lambda lib: lib.unique(lib.tensor([NAN, 1.0, NAN]), return_inverse=True),
    **{f"median of {v}": gradient(lambda x: x.median(), v) for v in TIES},
    **{f"nanmedian of {v}": gradient(lambda x: x.nanmedian(), v) for v in TIES},
    "hook before a write": hooked(lambda y, seen: (y.register_hook(seen.append), y.mul_(2))),
    "hook after a write": hooked(lambda y, seen: (y.mul_(2), y.register_hook(seen.append))),
    "hooks around a write": hooked(
        lambda y, seen: (y.register_hook(lambda g: g * 10), y.mul_(2), y.register_hook(seen.append))
    ),
    "hook and a write through a view": hooked(
        lambda y, seen: (y.register_hook(seen.append), y[0].mul_(2))
    ),
    "retained before a write": hooked(lambda y, seen: (y.retain_grad(), y.mul_(2))),
    "retained before a hook": hooked(
        lambda y, seen: (y.retain_grad(), y.register_hook(lambda g: g * 10))
    ),
    "retained after a hook": hooked(
        lambda y, seen: (y.register_hook(lambda g: g * 10), y.retain_grad())
    ),
    "copies of a tensor and its view": copies(lambda y: [y, y[0]]),
    "copies of a view and its base": copies(lambda y: [y[0], y]),
    "copies of two views": copies(lambda y: [y[0], y[:, 0]]),
    "copies of peers": copies(lambda y: [y, y.detach()]),
    "copies of the same": copies(lambda y: [y, y]),
    "type of a class": lambda lib: lib.ones(2, dtype=lib.float64).type(lib.Tensor),
    "type of floats": lambda lib: lib.ones(2, dtype=lib.int64).type(lib.FloatTensor),
    "type of integers": lambda lib: lib.ones(2).type(lib.LongTensor),
    "data of a class": lambda lib: lib.Tensor(np.ones((2, 3))),
    "data of floats": lambda lib: lib.FloatTensor(np.ones((2, 3))),
    "labels of a network": lambda lib: lib.autograd.Variable(
        lib.FloatTensor(3, 1).fill_(1.0), requires_grad=False
    ),
}


def plain(result: Any) -> Any:
    if isinstance(result, (metaop.Tensor, torch.Tensor)):
        value = result.detach()
        return [str(value.dtype).rpartition(".")[2], tuple(value.shape), repr(value.tolist())]
    return [plain(part) for part in result]


@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_of_pytorch(name: str) -> None:
    assert plain(VALUES[name](metaop)) == plain(VALUES[name](torch))


@pytest.mark.parametrize("name", ["cdist", "pdist"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distances_of_order_zero_keep_nan(name: str, dtype: str) -> None:
    rows = np.array([[1.0, np.nan], [0.0, 1.0], [0.25, np.inf], [0.25, 1.0]], dtype)

    def distances(lib: Any) -> Any:
        x = lib.from_numpy(rows)
        return (lib.cdist(x, x[1:], p=0) if name == "cdist" else lib.pdist(x, 0)).numpy()

    np.testing.assert_array_equal(distances(metaop), distances(torch))


@pytest.mark.parametrize("name", ["hinge_embedding_loss", "cosine_embedding_loss"])
def test_targets_that_are_only_compared_have_no_gradient(name: str) -> None:
    def gradients(lib: Any) -> list[bool]:
        count = 2 if name == "cosine_embedding_loss" else 1
        inputs = [lib.ones(3, 2, requires_grad=True) for _ in range(count)]
        target = lib.ones(*((3,) if count == 2 else (3, 2)), requires_grad=True)
        getattr(lib.nn.functional, name)(*inputs, target).backward()
        return [x.grad is None for x in (*inputs, target)]

    assert gradients(metaop) == gradients(torch)
