"""Tensors with tangents, compared with PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import UnsupportedError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
LIBRARIES = pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sin": lambda lib, x: (x * x).sin(),
    "sum": lambda lib, x: x.exp().sum(0),
    "softmax": lambda lib, x: x.softmax(-1).log(),
    "product": lambda lib, x: x @ x.mT,
    "view": lambda lib, x: x.mT[1:].reshape(-1) * 3,
    "linear": lambda lib, x: x * 2 + 1,
    "written": lambda lib, x: lib.zeros(2, 3, dtype=lib.float64).copy_(x).mul_(x),
    "itself": lambda lib, x: x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents(name: str) -> None:
    values, directions = np.random.default_rng(0).standard_normal((2, 2, 3))
    found = []
    for lib in (metaop, torch):
        forward = lib.autograd.forward_ad
        with forward.dual_level():
            dual = forward.make_dual(lib.from_numpy(values), lib.from_numpy(directions))
            result = forward.unpack_dual(FUNCTIONS[name](lib, dual))
        assert not result.primal.requires_grad and not result.tangent.requires_grad
        found.append([part.numpy() for part in result])
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@LIBRARIES
def test_two_sources_and_none(lib: Any) -> None:
    forward = lib.autograd.forward_ad
    x, y = lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0])
    level = forward.enter_dual_level()
    a, b = forward.make_dual(x, lib.ones(2)), forward.make_dual(y, lib.tensor([1.0, 0.0]))
    assert forward.unpack_dual(a * b).tangent.tolist() == [4.0, 4.0]
    assert forward.unpack_dual(a * y, level=level).tangent.tolist() == [3.0, 4.0]
    assert forward.unpack_dual(x).tangent is None and forward.unpack_dual(a > 0).tangent is None
    assert forward.unpack_dual(a.detach()).tangent is None
    forward.exit_dual_level(level=level)
    assert forward.unpack_dual(a * b).tangent is None


@LIBRARIES
def test_tangents_are_differentiated_backwards(lib: Any) -> None:
    forward = lib.autograd.forward_ad
    w = lib.tensor([1.0, 2.0], requires_grad=True)
    with forward.dual_level():
        dual = forward.make_dual(w, lib.tensor([1.0, 3.0]))
        primal, tangent = forward.unpack_dual(dual**3)
        tangent.sum().backward()
    assert tangent.tolist() == [3.0, 36.0] and w.grad.tolist() == [6.0, 36.0]
    assert primal.tolist() == [1.0, 8.0]


@LIBRARIES
def test_mistakes_are_told(lib: Any) -> None:
    forward = lib.autograd.forward_ad
    x = lib.ones(3)
    with pytest.raises(RuntimeError, match="no level exists"):
        forward.make_dual(x, x)
    with pytest.raises(RuntimeError):
        forward.exit_dual_level()
    with forward.dual_level():
        with pytest.raises(RuntimeError, match="Nested"):
            forward.enter_dual_level()
        with pytest.raises(RuntimeError, match="different size"):
            forward.make_dual(x, lib.ones(2))
        with pytest.raises(ValueError, match="floating point"):
            forward.make_dual(lib.ones(3, dtype=lib.int64), x)
        dual = forward.make_dual(x, x)
        with pytest.raises(RuntimeError, match="already has a forward gradient"):
            forward.make_dual(dual, x)


def test_no_grad_cannot_stop_gradients_alone() -> None:
    with metaop.no_grad(), metaop.autograd.forward_ad.dual_level():
        dual = metaop.autograd.forward_ad.make_dual(metaop.ones(2), metaop.ones(2))
        assert metaop.autograd.forward_ad.unpack_dual(dual * 2).tangent is not None
        with pytest.raises(UnsupportedError, match="would stop tangents"), metaop.no_grad():
            pass
        with pytest.raises(UnsupportedError, match="would stop tangents"):
            metaop.set_grad_enabled(False)
        metaop.nn.init.ones_(metaop.empty(2))
