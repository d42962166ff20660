"""What PyTorch refuses is refused, by an error that PyTorch's programs would catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import MetaopError

torch = pytest.importorskip("torch")

NUMBERS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)

# Functions of the library, a float matrix, whole numbers, truth values, and a scalar.
REFUSED: dict[str, Callable[..., Any]] = {
    "autocast of a device that nobody knows": lambda t, x, i, b, s: t.set_autocast_dtype(
        "tpu", t.bfloat16
    ),
    "a margin below 0": lambda t, x, i, b, s: t.nn.functional.triplet_margin_with_distance_loss(
        x, x, x, margin=-1
    ),
    "a mask subtracted": lambda t, x, i, b, s: 1 - b,
    "from a mask": lambda t, x, i, b, s: b - x,
    "a mask negated": lambda t, x, i, b, s: -b,
    "powers of whole numbers": lambda t, x, i, b, s: i**-1,
    "shapes that do not broadcast": lambda t, x, i, b, s: x + t.ones(5),
    "products that do not fit": lambda t, x, i, b, s: x @ x,
    "types that differ": lambda t, x, i, b, s: t.matmul(i, x.T),
    "a mean of whole numbers": lambda t, x, i, b, s: i.mean(),
    "a dimension too far": lambda t, x, i, b, s: x.sum(2),
    "a dimension twice": lambda t, x, i, b, s: x.sum((0, 0)),
    "the maximum of nothing": lambda t, x, i, b, s: x[:0].max(),
    "the maximum over nothing": lambda t, x, i, b, s: x[:0].max(0),
    "the largest norm of nothing": lambda t, x, i, b, s: x[:0].norm(float("inf"), 0),
    "the smallest norm of nothing": lambda t, x, i, b, s: t.linalg.vector_norm(x[:0], -1),
    "an index too far": lambda t, x, i, b, s: x[3],
    "too many indices": lambda t, x, i, b, s: x[0, 0, 0],
    "an index of floats": lambda t, x, i, b, s: x[t.tensor([1.0])],
    "a step backwards": lambda t, x, i, b, s: x[:, ::-1],
    "a mask of another shape": lambda t, x, i, b, s: x[b[:2]],
    "a view of another size": lambda t, x, i, b, s: x.view(5),
    "a view of what is transposed": lambda t, x, i, b, s: x.T.view(12),
    "no tensors": lambda t, x, i, b, s: t.cat([]),
    "slices of a number": lambda t, x, i, b, s: t.unbind(s),
    "uneven columns": lambda t, x, i, b, s: t.hsplit(x, 3),
    "uneven rows": lambda t, x, i, b, s: t.vsplit(x, 2),
    "rows of a vector": lambda t, x, i, b, s: t.vsplit(x[0], 2),
    "a depth that is not there": lambda t, x, i, b, s: t.dsplit(x, 2),
    "whole uniform numbers": lambda t, x, i, b, s: t.rand(2, dtype=t.int64),
    "whole normal numbers": lambda t, x, i, b, s: i.clone().normal_(),
    "whole exponential numbers": lambda t, x, i, b, s: i.clone().exponential_(),
    "a negative permutation": lambda t, x, i, b, s: t.randperm(-1),
    "a transform of nothing": lambda t, x, i, b, s: t.fft.fft(x, n=0),
    "a float written into whole numbers": lambda t, x, i, b, s: i.clone().add_(1.5),
    "a larger result in place": lambda t, x, i, b, s: x[0].clone().add_(x),
    "a result that needs a gradient": lambda t, x, i, b, s: t.add(
        x.requires_grad_(), 1, out=t.empty(0)
    ),
    "a gradient of whole numbers": lambda t, x, i, b, s: i.requires_grad_(),
    "a gradient of a matrix": lambda t, x, i, b, s: (x.requires_grad_() * 2).backward(),
    "a leaf in place": lambda t, x, i, b, s: x.requires_grad_().add_(1),
}


def _arguments(library: Any) -> tuple[Any, ...]:
    whole = np.arange(12).reshape(3, 4)
    arrays = (NUMBERS.copy(), whole, whole % 2 == 0)
    return (*(library.tensor(array) for array in arrays), library.tensor(2.5))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    function = REFUSED[name]
    with pytest.raises(Exception) as wanted:
        function(torch, *_arguments(torch))
    with pytest.raises(MetaopError) as got:
        function(metaop, *_arguments(metaop))
    # NotImplementedError, which PyTorch raises for types, is a RuntimeError.
    kinds = [kind for kind in (IndexError, TypeError, ValueError) if wanted.errisinstance(kind)]
    assert got.errisinstance(tuple(kinds) or RuntimeError)


def test_deviations_are_not_negative() -> None:
    with pytest.raises(ValueError, match="std >= 0"):
        metaop.normal(0.0, -1.0, (2,))


@pytest.mark.parametrize("name", ["round", "floor", "ceil", "trunc", "sign", "sgn"])
def test_steps_have_a_gradient_of_zero(name: str) -> None:
    for library in (metaop, torch):
        x = library.tensor(NUMBERS).requires_grad_()
        getattr(x, name)().sum().backward()
        assert not x.grad.any()


@pytest.mark.parametrize(
    "weight, groups, fix",
    [((12, 3, 3, 3), 1, "an input with 3 channels"), ((5, 2, 3, 3), 2, "multiples of groups")],
)
def test_convolutions_name_what_would_fit(weight: tuple[int, ...], groups: int, fix: str) -> None:
    with pytest.raises(MetaopError, match=fix):
        metaop.nn.functional.conv2d(metaop.ones(2, 4, 8, 8), metaop.ones(*weight), groups=groups)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (lambda lib: lib.ones(3, 3)[[0, 1], [0, 1, 2]], IndexError),
        (lambda lib: lib.ones(3, 3).__setitem__(([0, 1], [0, 1, 2]), 1), IndexError),
        (lambda lib: lib.complex(lib.ones(2), lib.ones(3)), RuntimeError),
        (lambda lib: lib.normal(lib.ones(2), lib.ones(3)), RuntimeError),
        (lambda lib: lib.take_along_dim(lib.ones(2, 3), lib.ones(3, 1).long(), 1), RuntimeError),
        (lambda lib: lib.masked_select(lib.ones(2), lib.ones(3).bool()), RuntimeError),
        (lambda lib: lib.ones(2).masked_scatter(lib.ones(3).bool(), lib.ones(3)), RuntimeError),
        (lambda lib: lib.tensor(["a"]), ValueError),
        (lambda lib: lib.tensor("a"), TypeError),
        (lambda lib: lib.tensor(2**70), ValueError),
        (lambda lib: lib.tensor([1, 2**64]), ValueError),
        (lambda lib: lib.full((2,), 2**70), OverflowError),
        (lambda lib: lib.ones(2).long() + 2**70, OverflowError),
        (lambda lib: lib.ones(2).long() < 2**70, OverflowError),
    ],
)
def test_mistakes_have_pytorchs_classes_and_the_users_line(
    program: Callable[..., Any], error: type
) -> None:
    with pytest.raises(error):
        program(torch)
    with pytest.raises(error, match="test_refusals.py") as raised:
        program(metaop)
    assert isinstance(raised.value, MetaopError)
