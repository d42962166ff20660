"""Gradients of functions of matrices where inverses and gaps of values are at stake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from tests.helpers import check, check_derivatives

torch = pytest.importorskip("torch")


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape)


def of_rank(rank: int, size: int) -> np.ndarray:
    return normal(size, rank) @ normal(rank, size)


SINGULAR: dict[str, Any] = {
    "a zero pivot": np.array([[1.0, 2], [2, 4]]),
    "rank n - 1": of_rank(3, 4),
    "rank n - 2": of_rank(2, 4),
    "rank n - 3": of_rank(1, 4),
    "zeros": np.zeros((2, 2)),
    "a zero": np.zeros((1, 1)),
    "a batch with regular ones": np.stack([normal(3, 3), of_rank(2, 3), of_rank(1, 3), np.eye(3)]),
    "exact beside regular": np.array([[[1.0, 2], [2, 4]], [[1, 2], [3, 4]]]),
    "regular": normal(2, 3, 3),
    "the identity": np.eye(3),
    "nothing": np.zeros((0, 0)),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_derivatives_of_determinants(name: str) -> None:
    matrices = SINGULAR[name]
    check_derivatives(metaop.linalg.det, matrices)
    # PyTorch itself gives the adjugate only to those who may differentiate again.
    theirs = torch.tensor(matrices, requires_grad=True)
    (expected,) = torch.autograd.grad(theirs.det().sum(), theirs, create_graph=True)
    for dtype in (metaop.float64, metaop.float32):
        mine = metaop.tensor(matrices, dtype=dtype, requires_grad=True)
        (found,) = metaop.autograd.grad(metaop.det(mine).sum(), mine)
        tolerance = 1e-10 if dtype is metaop.float64 else 1e-4
        np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), atol=tolerance)


def test_third_derivative_of_a_singular_determinant_is_refused() -> None:
    x = metaop.zeros(2, 2, requires_grad=True)
    (first,) = metaop.autograd.grad(metaop.det(x), x, create_graph=True)
    (second,) = metaop.autograd.grad((first * first).sum() + first.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivative"):
        metaop.autograd.grad(second.sum(), x)


@pytest.mark.parametrize("name", ["slogdet", "logdet"])
def test_logarithms_of_singular_determinants(name: str) -> None:
    def logarithm(library: Any, matrices: np.ndarray) -> tuple[Any, Any]:
        x = library.tensor(matrices, requires_grad=True)
        found = getattr(library, name)(x)
        logarithms = found[1] if name == "slogdet" else found
        return logarithms.detach().numpy(), library.autograd.grad(logarithms.sum(), x)[0].numpy()

    matrices = np.array([[[1.0, 2], [2, 4]], [[4, 2], [3, 4]]])
    (values, gradient), (wanted, slopes) = (logarithm(x, matrices) for x in (metaop, torch))
    np.testing.assert_allclose(values, wanted)
    np.testing.assert_allclose(gradient[1], slopes[1])
    # The slope is infinite: no number is right.
    assert not np.isfinite(gradient[0]).any() and not np.isfinite(slopes[0]).any()


def symmetric(x: Any) -> Any:
    return (x + x.transpose(-2, -1)) / 2


def first(x: Any) -> int:
    return min(x.shape[-2:])


# Only what is unique is compared: not the signs of vectors, nor those beyond the smaller size.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "full svd, values": lambda lib, x: lib.linalg.svd(x)[1],
    "full svd, left": lambda lib, x: lib.linalg.svd(x)[0][..., : first(x)].square(),
    "full svd, right": lambda lib, x: lib.linalg.svd(x)[2][..., : first(x), :].square(),
    "older full svd": lambda lib, x: lib.svd(x, some=False)[2][..., : first(x)].square(),
    "reduced svd": lambda lib, x: lib.linalg.svd(x, full_matrices=False)[2].square(),
    "svdvals": lambda lib, x: lib.linalg.svdvals(x),
    "pinv": lambda lib, x: lib.linalg.pinv(x),
    "lstsq": lambda lib, x: lib.linalg.lstsq(x, lib.ones_like(x)).solution,
    "lstsq of vectors": lambda lib, x: lib.linalg.lstsq(x, lib.ones_like(x[..., 0])).solution,
    "complete qr": lambda lib, x: lib.linalg.qr(x, "complete")[1].square(),
    "r of qr": lambda lib, x: lib.linalg.qr(x.detach(), "r")[1].square(),
    "no q of qr": lambda lib, x: lib.linalg.qr(x.detach(), "r")[0],
    "mode of qr": lambda lib, x: lib.linalg.qr(x, "raw")[0],
    "eigh": lambda lib, x: lib.linalg.eigh(symmetric(x))[1].square(),
    "eigh of a triangle": lambda lib, x: lib.linalg.eigh(x, UPLO="U")[1].square(),
    "eigvalsh": lambda lib, x: lib.linalg.eigvalsh(symmetric(x)),
    "symmetric pinv": lambda lib, x: lib.linalg.pinv(symmetric(x), hermitian=True),
    "spectral norm": lambda lib, x: lib.linalg.matrix_norm(x, 2),
    "smallest value": lambda lib, x: lib.linalg.matrix_norm(x, -2),
    "nuclear norm": lambda lib, x: lib.linalg.matrix_norm(x, "nuc"),
    "cond": lambda lib, x: lib.linalg.cond(x),
    "matrix_exp": lambda lib, x: lib.linalg.matrix_exp(x),
}
SHAPES = [
    *((3, 3), (2, 4), (4, 2), (2, 3, 4), (2, 4, 3), (2, 1, 3, 3), (1, 1), (1, 3), (3, 1)),
    *((0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 3, 3), (3,), ()),
]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape(name: str, shape: tuple[int, ...]) -> None:
    """Values and gradients are PyTorch's, or both refuse."""
    function = FUNCTIONS[name]
    theirs = torch.tensor(normal(*shape), requires_grad=True)
    try:
        result = function(torch, theirs)
        result.sum().backward() if result.requires_grad else None
    except (RuntimeError, IndexError):
        with pytest.raises((RuntimeError, IndexError, NotImplementedError)):
            x = metaop.tensor(normal(*shape), requires_grad=True)
            function(metaop, x).sum().backward()
        return
    pair = (lambda x: function(metaop, x), lambda x: function(torch, x))
    # PyTorch lets no gradient through an empty condition number: there is none to compare.
    check(pair, normal(*shape), gradient=result.requires_grad, tolerance=1e-8)


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances_of_pairs_leave_out_those_of_rows_to_themselves(order: float) -> None:
    """The distance of a row to itself is computed too, where some norms have infinite slopes."""
    found = []
    for framework in (torch, metaop):
        rows = framework.tensor(normal(9, 4), requires_grad=True)
        distances = framework.pdist(rows, order)
        (distances * framework.arange(36)).sum().backward()
        found.append((distances.detach().numpy(), rows.grad.numpy()))
    for wanted, ours in zip(*found):
        np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-12)
