"""The instruction sets that kernels are tested for."""

from __future__ import annotations

import pytest

from metaop.codegen.llvm.target import host_target
from metaop.errors import DeviceError


@pytest.fixture(params=["native", "avx2", "baseline"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test for several instruction sets."""
    monkeypatch.setenv("METAOP_TARGET", request.param)
    try:
        host_target()
    except DeviceError as error:
        pytest.skip(str(error))
    return request.param
