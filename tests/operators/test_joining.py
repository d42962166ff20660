"""Joining tensors against PyTorch: values, promotion, gradients and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

JOINS: dict[str, tuple[list[tuple[int, ...]], Callable[[Any, list[Any]], Any]]] = {
    "cat": ([(2, 3), (4, 3), (1, 3)], lambda lib, x: lib.cat(x)),
    "cat dim": ([(2, 3), (2, 1), (2, 5)], lambda lib, x: lib.cat(x, dim=-1)),
    "cat empty": ([(0,), (2, 3)], lambda lib, x: lib.cat(x)),
    "cat zero rows": ([(0, 3), (2, 3)], lambda lib, x: lib.cat(x)),
    "cat reductions": ([(2, 17, 3)], lambda lib, x: lib.cat((x[0].amax(2), x[0].amin(2)), 1)),
    "cat a maximum twice": ([(20, 3)], lambda lib, x: lib.cat((x[0].amax(1), 2 * x[0].amax(1)))),
    "concat": ([(2,), (3,)], lambda lib, x: lib.concat(x, 0)),
    "stack": ([(2, 3), (2, 3), (2, 3)], lambda lib, x: lib.stack(x)),
    "stack last": ([(2, 3), (2, 3)], lambda lib, x: lib.stack(x, -1)),
    "stack numbers": ([(), (), ()], lambda lib, x: lib.stack(x)),
    "hstack": ([(2, 3), (2, 1)], lambda lib, x: lib.hstack(x)),
    "hstack vectors": ([(3,), ()], lambda lib, x: lib.hstack(x)),
    "vstack": ([(3,), (2, 3)], lambda lib, x: lib.vstack(x)),
    "dstack": ([(2, 3), (2, 3)], lambda lib, x: lib.dstack(x)),
    "column_stack": ([(3,), (3, 2)], lambda lib, x: lib.column_stack(x)),
    "meshgrid": ([(3,), (2,)], lambda lib, x: lib.stack(lib.meshgrid(*x, indexing="ij"))),
    "meshgrid xy": ([(3,), (2,), (4,)], lambda lib, x: lib.stack(lib.meshgrid(*x, indexing="xy"))),
    "broadcast": ([(3, 1), (2,)], lambda lib, x: lib.stack(lib.broadcast_tensors(*x))),
    "atleast": ([(3,), ()], lambda lib, x: lib.cat(lib.atleast_3d(*x), 1)),
}


def test_a_concatenation_in_another_feeds_a_contraction() -> None:
    """As in densely connected networks; one piece of the whole chooses by position itself."""
    random = np.random.default_rng(0)
    a, b, d = (random.standard_normal((2, 8, 16, 16)).astype(np.float32) for _ in range(3))
    scale = random.random((24, 1, 1), np.float32)
    weight = random.standard_normal((8, 24, 1, 1)).astype(np.float32)

    def network(lib: Any, x: list[Any]) -> Any:
        whole = lib.cat((lib.cat((x[0], x[1]), 1), x[2]), 1)
        return lib.nn.functional.conv2d((whole * x[3]).relu(), x[4])

    arrays = [a, b, d, scale, weight]
    ours = [metaop.from_numpy(array.copy()).requires_grad_() for array in arrays]
    theirs = [torch.from_numpy(array).requires_grad_() for array in arrays]
    found, wanted = network(metaop, ours), network(torch, theirs)
    np.testing.assert_allclose(found.numpy(force=True), wanted.detach(), rtol=1e-4, atol=1e-4)
    found.sum().backward()
    wanted.sum().backward()
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one.grad.numpy(), other.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", JOINS)
def test_value_and_gradient(name: str) -> None:
    shapes, function = JOINS[name]
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape) for shape in shapes]
    ours = [metaop.tensor(x, requires_grad=True) for x in values]
    theirs = [torch.tensor(x, requires_grad=True) for x in values]
    result, expected = function(metaop, ours), function(torch, theirs)
    assert tuple(result.shape) == tuple(expected.shape)
    assert np.array_equal(result.detach().numpy(), expected.detach().numpy())
    weights = rng.standard_normal(tuple(expected.shape))
    (result * metaop.tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    for mine, other in zip(ours, theirs):
        if other.numel():
            np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("left", ["bool", "uint8", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("right", ["int8", "int32", "float32"])
def test_promotion(left: str, right: str) -> None:
    def joined(lib: Any) -> Any:
        pieces = [lib.ones(2, dtype=getattr(lib, left)), lib.ones(1, dtype=getattr(lib, right))]
        return lib.cat(pieces)

    assert joined(metaop).dtype.name == str(joined(torch).dtype).split(".")[1]
    assert joined(metaop).tolist() == joined(torch).tolist()


def test_pieces_are_views() -> None:
    x = metaop.arange(10)
    for piece in x.split(3):
        piece.mul_(2)
    assert x.tolist() == list(range(0, 20, 2))
    for k, number in enumerate(x.unbind()):
        number.fill_(k)
    assert x.tolist() == list(range(10))


@pytest.mark.parametrize("extent", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 9])
def test_sizes_of_pieces(extent: int, parts: int) -> None:
    ours, theirs = metaop.zeros(extent, 2), torch.zeros(extent, 2)
    for name in ("chunk", "tensor_split", "split"):
        mine, other = getattr(ours, name)(parts), getattr(theirs, name)(parts)
        assert [tuple(x.shape) for x in mine] == [tuple(x.shape) for x in other]


@pytest.mark.parametrize(
    "function",
    [
        lambda lib: lib.cat([]),
        lambda lib: lib.cat([lib.zeros(2, 3), lib.zeros(3, 2)]),
        lambda lib: lib.cat([lib.zeros(())]),
        lambda lib: lib.stack([lib.zeros(2), lib.zeros(3)]),
        lambda lib: lib.cat([lib.zeros(2), lib.zeros(2)], dim=1),
        lambda lib: lib.zeros(3).chunk(0),
    ],
)
def test_errors(function: Callable[[Any], Any]) -> None:
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        function(torch)
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        function(metaop)


def test_sizes_may_be_numbers_of_numpy() -> None:
    x = metaop.arange(20.0).reshape(4, 5).requires_grad_()
    sizes, count = [np.int64(2), np.int32(3)], np.int64(2)
    left, right = x.split(sizes, 1)
    (left.sum() + right.exp().sum()).backward()
    assert left.shape == (4, 2) and type(left.shape[1]) is int
    pieces = (
        *(x.unfold(1, count, count), x.narrow(0, np.int64(1), count), x.expand(count, 4, 5)),
        *(x.tile(count, 1), x.repeat(count, count), x.diagonal(count)),
        *(x.unflatten(0, (count, 2)), x.reshape(count, -1), metaop.zeros(count, np.int32(3))),
    )
    for piece in pieces:
        assert all(type(extent) is int for extent in piece.shape)
        assert piece.sum().item() == pytest.approx(float(piece.detach().numpy().sum()))
