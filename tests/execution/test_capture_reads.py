"""Every way of looking at a value inside a captured function is an error that names the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import CaptureError

READS: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x * x.sum().item(),
    "bool": lambda x: x * 2 if x.sum() > 0 else x,
    "not": lambda x: x * 2 if not x.sum() else x,
    "asarray": lambda x: metaop.tensor(np.asarray(x)),
    "numpy": lambda x: metaop.from_numpy(x.numpy() * 2),
    "numpy's dlpack": lambda x: metaop.tensor(np.from_dlpack(x * 2)),
    "tolist": lambda x: x * x.tolist()[0],
    "int": lambda x: x * int(x[0]),
    "float": lambda x: x * float(x[0]),
    "a bound of a slice": lambda x: x[int(x.sum()) :],
    "text": lambda x: x * len(f"{x}"),
    "contains": lambda x: x * 2 if 1.0 in x else x,
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "unique": lambda x: x.unique(),
    "equal": lambda x: x * 2 if x.equal(x) else x,
    "allclose": lambda x: x * 2 if metaop.allclose(x, x) else x,
    "python's max": lambda x: x * max(x),
    "a size": lambda x: metaop.arange(x.sum()),
}


@pytest.mark.parametrize("read", READS)
def test_reads_are_errors(read: str) -> None:
    x = metaop.ones(4)
    with pytest.raises(CaptureError, match=r"test_capture_reads.py:\d+ in"):
        metaop.jit(READS[read])(x)


@pytest.mark.parametrize("read", READS)
def test_with_fallback_they_run_as_they_are(read: str) -> None:
    captured = metaop.jit(READS[read], fallback=True)
    with pytest.warns(UserWarning, match="runs .* as it is"):
        for size in (4, 4, 4, 4, 4):
            x = metaop.ones(size)
            np.testing.assert_array_equal(captured(x).numpy(), READS[read](x).numpy())


@pytest.mark.parametrize("source", ("argument", "closure"))
def test_values_that_exist_already_count_too(source: str) -> None:
    kept = metaop.ones(3)
    kept.numpy()

    @metaop.jit
    def step(x: Any) -> Any:
        value = x if source == "argument" else kept
        return value * 2 if value.sum() > 0 else value

    with pytest.raises(CaptureError):
        step(kept + 0)
