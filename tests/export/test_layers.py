"""Layers exported for any size, at sizes other than those of the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from tests.layers import CASES, SIZES, Layer

torch = pytest.importorskip("torch")

# It reads its frequencies on the host.
_CASES = [one for one in CASES if one[2] != "spectrum"]


@pytest.mark.parametrize(("layer", "drawn"), [pytest.param(*one[:2], id=one[2]) for one in _CASES])
def test_a_layer_for_any_size(layer: Layer, drawn: Any, tmp_path: Path) -> None:
    example = drawn(np.random.default_rng(0), SIZES[0]).astype(np.float32)
    axes = {2: "height", 3: "width"} if example.ndim == 4 else {1: "length"}

    def of(lib: Any) -> Any:
        return lambda x: layer(lib, lib.nn.functional, x, x.shape[min(axes)])

    file = tmp_path / "layer.mo"
    program = metaop.export(of(metaop), metaop.from_numpy(example), file, dynamic={"x": axes})
    for n in SIZES:
        values = drawn(np.random.default_rng(n), n).astype(np.float32)
        found = program(metaop.from_numpy(values)).numpy()
        wanted = of(torch)(torch.from_numpy(values)).numpy()
        assert found.shape == wanted.shape
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-5 * scale)
