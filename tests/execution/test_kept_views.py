"""Gradients of results of which a view is kept, and memory that every element of is written."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import metaop

# Their gradients read their results.
NONLINEARITIES = ("tanh", "sigmoid", "relu", "exp", "sqrt", "reciprocal")
VIEWS: dict[str, Callable[[Any], Any]] = {
    "flatten": lambda x: x.flatten(),
    "view": lambda x: x.view(-1),
    "squeeze": lambda x: x.squeeze(1),
    "select": lambda x: x[:, 0],
    "transposed": lambda x: x.t(),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "clone": lambda x: x.clone(),
    "with itself": lambda x: x.flatten() * x.view(16),
}
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "squares": lambda x, y: ((x - y) ** 2).mean(),
    "distances": lambda x, y: (x - y).abs().mean(),
}


@pytest.mark.parametrize("name", NONLINEARITIES)
@pytest.mark.parametrize(("view", "loss"), list(itertools.product(VIEWS, LOSSES)))
def test_a_kept_view_of_a_result_does_not_change_gradients(name: str, view: str, loss: str) -> None:
    random = np.random.default_rng(0)
    inputs = random.uniform(0.5, 1.5, (16, 4)).astype(np.float32)
    start = random.uniform(0.5, 1.5, (1, 4)).astype(np.float32)
    wanted = random.standard_normal(16).astype(np.float32)
    found = []
    for library in (torch, metaop):
        x, w = library.tensor(inputs), library.tensor(start).requires_grad_()
        y = library.tensor(wanted.reshape(tuple(VIEWS[view](torch.zeros(16, 1)).shape)))
        gradients = []
        # Other numbers in each turn: what an earlier one left in memory is wrong in the next.
        for turn in range(1, 4):
            result = getattr(x * turn @ w.t(), name)()
            kept = VIEWS[view](result)
            w.grad = None
            LOSSES[loss](kept, y).backward()
            gradients.append(w.grad.detach().numpy().copy())
        found.append(gradients)
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (5, 1), (2, 2)])
@pytest.mark.parametrize("batch", [2, 8])
def test_taps_that_never_meet_the_image_get_no_gradient(batch: int, size: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    images = random.standard_normal((batch, 64, *size)).astype(np.float32)
    kernels = (0.1 * random.standard_normal((192, 64, 3, 3))).astype(np.float32)
    found = []
    for library in (torch, metaop):
        functional = library.nn.functional
        w = library.tensor(kernels).requires_grad_()
        optimizer = library.optim.SGD([w], lr=0.1)
        features = functional.conv2d(library.tensor(images), w, padding=1).relu()
        features.mean((2, 3)).square().sum().backward()
        optimizer.step()
        found.append([w.grad.numpy().copy(), w.detach().numpy().copy()])
    for ours, theirs in zip(found[1], found[0]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("size", [6, 7, 9])
@pytest.mark.parametrize("taps", [1, 2, 3])
def test_pixels_that_no_window_covers_get_no_gradient(taps: int, size: int, stride: int) -> None:
    random = np.random.default_rng(0)
    images = random.standard_normal((2, 64, size, size)).astype(np.float32)
    kernels = (0.1 * random.standard_normal((64, 64, taps, taps))).astype(np.float32)
    found = []
    for library in (torch, metaop):
        x = library.tensor(images).requires_grad_()
        y = library.nn.functional.conv2d(x.tanh(), library.tensor(kernels), stride=stride)
        y.relu().square().sum().backward()
        found.append(x.grad.numpy().copy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("channels", [(8, 1), (1, 8), (8, 2), (3, 3)])
def test_what_follows_a_small_convolution_is_computed_behind_it(
    channels: tuple[int, int], size: int
) -> None:
    inputs, outputs = channels
    random = np.random.default_rng(0)
    images = random.standard_normal((1, inputs, size, size)).astype(np.float32)
    kernels = random.standard_normal((outputs, inputs, 3, 3)).astype(np.float32)
    found = []
    for library in (torch, metaop):
        y = library.nn.functional.conv2d(
            library.tensor(images), library.tensor(kernels), library.zeros(outputs) + 1, padding=1
        )
        found.append(float(y.pow(2).mean()))
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_a_kept_view_that_is_also_a_part_is_written_once(mode: str) -> None:
    """The whole is made from the part, which an earlier kernel wrote in another shape."""
    images = np.random.default_rng(0).standard_normal((2, 4, 3, 6)).astype(np.float32)
    found = []
    for library in (torch, metaop):
        x = library.nn.functional.interpolate(library.tensor(images), scale_factor=2, mode=mode)
        bounded = library.nn.functional.hardtanh(x)
        both = library.cat([library.nn.functional.leaky_relu(bounded, 0.1), x], 1)
        found.append(np.concatenate([both.numpy().ravel(), x.numpy().ravel()]))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


CONSUMERS: dict[str, Callable[[Any, Any], Any]] = {
    "plus": lambda x, c: x + c,
    "minus": lambda x, c: x - c,
    "from": lambda x, c: c - x,
    "twice": lambda x, c: (x + c) + (x - c),
}
KEPT: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "flatten": lambda x: x.flatten(),
    "rows": lambda x: x[1:],
    "transposed": lambda x: x.T,
    "column": lambda x: x[:, 2],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("view", "name"), list(itertools.product(KEPT, CONSUMERS)))
def test_what_follows_a_kept_product_sees_it_rounded(
    view: str, name: str, scaled: bool, dtype: str
) -> None:
    random = np.random.default_rng(0)
    a, b, c = (random.standard_normal((9, 37)).astype(dtype) for _ in range(3))
    product = metaop.tensor(a) * (0.3 if scaled else metaop.tensor(b))
    kept = KEPT[view](product)
    found = CONSUMERS[name](kept, KEPT[view](metaop.tensor(c))).numpy()
    wanted = a * (np.asarray(0.3, dtype) if scaled else b)
    np.testing.assert_array_equal(KEPT[view](product).numpy(), KEPT[view](wanted))
    np.testing.assert_array_equal(found, CONSUMERS[name](KEPT[view](wanted), KEPT[view](c)))


# A product that has several uses is one number in all of them.
DIFFERENCES: dict[str, Callable[[Any], Any]] = {
    "from itself": lambda p: p - p.detach(),
    "twice": lambda p: (p + 1.5) - (p.detach() + 1.5),
    "of views": lambda p: p.view(-1) - p.detach().flatten(),
    "of transposes": lambda p: p.T - p.detach().T.clone(),
    "of rows and columns": lambda p: p.sum(0) - p.detach().sum(0),
    "straight through": lambda p: p + (p.round() - p).detach() - (p.detach() + (p.round() - p)),
    "of softmax": lambda p: (p - p.amax(1, keepdim=True)).amax(1),
}
PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda a, b: a * b,
    "square": lambda a, b: a * a,
    "scaled": lambda a, b: 0.3 * a,
    "of sums": lambda a, b: (a + b) * (a - b),
    "of reductions": lambda a, b: a * b.sum(1, keepdim=True),
    "silu": lambda a, b: metaop.nn.functional.silu(a),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("product", "name"), list(itertools.product(PRODUCTS, DIFFERENCES)))
def test_a_product_is_one_number_in_all_its_uses(product: str, name: str, dtype: str) -> None:
    random = np.random.default_rng(0)
    a, b = (
        metaop.tensor(random.standard_normal((9, 37)), dtype=getattr(metaop, dtype))
        for _ in range(2)
    )
    assert not DIFFERENCES[name](PRODUCTS[product](a, b)).any()
