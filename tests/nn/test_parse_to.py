"""The arguments of `to`, as modules that override it read them."""

from __future__ import annotations

from typing import Any

import pytest

import metaop
from metaop.nn.module_conversion import parse_to

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "arguments",
    [
        lambda lib: (("cpu",), {}),
        lambda lib: ((lib.float64,), {}),
        lambda lib: ((lib.device("cpu"), lib.float64, True), {}),
        lambda lib: ((lib.ones(1, dtype=lib.float64), True), {}),
        lambda lib: ((), {"dtype": lib.float16, "non_blocking": True}),
        lambda lib: ((None, lib.int8), {}),
        lambda lib: ((), {}),
        lambda lib: ((), {"memory_format": lib.channels_last}),
        lambda lib: ((), {"memory_format": lib.legacy_contiguous_format}),
    ],
)
def test_it_tells_what_pytorch_tells(arguments: Any) -> None:
    def told(lib: Any, parse: Any) -> list[str]:
        args, kwargs = arguments(lib)
        return [str(part).replace("metaop.", "torch.") for part in parse(*args, **kwargs)]

    assert told(metaop, parse_to) == told(torch, torch._C._nn._parse_to)
