"""Parts of a model that backward computes again, against PyTorch: gradients of three orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")


def layer(T: Any, x: Any, w: Any) -> Any:
    """A function that reads a weight besides its argument."""
    return (x @ w).tanh() * (x @ w.mT).sigmoid()


def checkpointed(T: Any, function: Callable[[Any], Any], x: Any) -> Any:
    return T.utils.checkpoint.checkpoint(function, x, use_reentrant=False)


MODELS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "a part behind a layer": lambda T, x, v, w: checkpointed(
        T, lambda h: layer(T, h, w), (x @ v).tanh()
    ),
    "a part whose weight is used before it": lambda T, x, v, w: checkpointed(
        T, lambda h: layer(T, h, w), layer(T, x, w) @ v
    ),
    "parts in a row": lambda T, x, v, w: checkpointed(
        T, lambda h: layer(T, h, w), checkpointed(T, lambda h: layer(T, h, v), x)
    ),
    "a part in a part": lambda T, x, v, w: checkpointed(
        T, lambda h: checkpointed(T, lambda k: layer(T, k, w), h * 0.5).sin(), (x @ v).tanh()
    ),
    "a part of two arguments": lambda T, x, v, w: T.utils.checkpoint.checkpoint(
        lambda a, b: layer(T, a * b, w), (x @ v).tanh(), x.cos(), use_reentrant=False
    ),
    "a sequence": lambda T, x, v, w: T.utils.checkpoint.checkpoint_sequential(
        [T.nn.Tanh(), lambda h: layer(T, h, v), T.nn.Sigmoid(), lambda h: layer(T, h, w)],
        2,
        x * 0.7,
        use_reentrant=False,
    ),
}


def gradients(T: Any, name: str) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    leaves = [
        T.tensor(random.normal(size=shape), requires_grad=True)
        for shape in ((2, 3), (3, 3), (3, 3))
    ]
    found = []
    value = MODELS[name](T, *leaves).square().sum()
    for _ in range(3):
        slopes = T.autograd.grad(value, leaves, create_graph=True)
        found += [slope.detach().numpy() for slope in slopes]
        value = sum((slope * slope).sum() for slope in slopes)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAOP_BACKEND", "reference")
    for found, wanted in zip(gradients(metaop, name), gradients(torch, name)):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.parametrize("name", MODELS)
def test_hooks_of_what_a_part_reads_run_once(name: str) -> None:
    """The pass that computes a part again leaves them to the pass that asked for it."""

    def hooked(T: Any) -> list[Any]:
        random = np.random.default_rng(0)
        leaves = [
            T.tensor(random.normal(size=shape), requires_grad=True)
            for shape in ((2, 3), (3, 3), (3, 3))
        ]
        seen: list[int] = []

        def halve(number: int) -> Callable[[Any], Any]:
            return lambda slope: seen.append(number) or slope * 0.5  # type: ignore[func-returns-value]

        for number, leaf in enumerate(leaves):
            leaf.register_hook(halve(number))
        MODELS[name](T, *leaves).square().sum().backward()
        return [sorted(seen), *(leaf.grad.numpy() for leaf in leaves)]

    (seen, *found), (wanted_seen, *wanted) = hooked(metaop), hooked(torch)
    assert seen == wanted_seen == [0, 1, 2]
    for slope, expected in zip(found, wanted):
        np.testing.assert_allclose(slope, expected, rtol=1e-9, atol=1e-12)


def test_states_of_devices() -> None:
    """Tensors on GPUs alone have a device whose state is kept."""
    torch = pytest.importorskip("torch")
    for lib in (metaop, torch):
        utils = lib.utils.checkpoint
        assert utils.get_device_states(lib.ones(2), [lib.ones(1, device="meta")], 3) == ([], [])
        utils.set_device_states([], [])
        utils.set_device_states([0], [lib.get_rng_state()], device_type="meta")
    state = metaop.get_rng_state()
    expected = metaop.rand(3).tolist()
    metaop.utils.checkpoint.set_device_states([0], [state])
    assert metaop.rand(3).tolist() == expected
