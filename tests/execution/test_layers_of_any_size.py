"""Layers on inputs of ever new sizes: PyTorch's values and gradients, by programs for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.execution import executor, specialisation
from tests.layers import CASES, SIZES, Layer

torch = pytest.importorskip("torch")

# A program for the first sizes, one for any, and one for sizes on the other side of a threshold;
# what prepares the input has as many.
_MOST_PROGRAMS = 6


@pytest.mark.parametrize(("layer", "drawn"), [pytest.param(*one[:2], id=one[2]) for one in CASES])
def test_a_layer_of_any_size(layer: Layer, drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [0]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            programs[0] += 1
            return function(*arguments)

        return call

    for name in ("compile_subgraph", "compile_generally"):
        monkeypatch.setattr(specialisation, name, counted(getattr(specialisation, name)))
    executor.clear_programs()
    for n in SIZES:
        values = drawn(np.random.default_rng(n), n).astype(np.float32)
        results = []
        for T in (metaop, torch):
            x = T.tensor(values, requires_grad=True)
            out = layer(T, T.nn.functional, x.tanh(), n)
            (out * T.cos(out.detach())).sum().backward()
            results.append([out.detach().numpy(), x.grad.numpy()])
        for ours, theirs in zip(*results, strict=True):
            assert ours.shape == theirs.shape
            scale = max(1.0, float(np.abs(theirs).max(initial=0)))
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-5 * scale)
    assert programs[0] <= _MOST_PROGRAMS
