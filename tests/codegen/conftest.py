"""Under METAOP_TARGET, only tests run that depend on the instruction set that it names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# What these modules test is the same for every instruction set.
_INDEPENDENT = {
    *("test_code_memory", "test_compile_queue", "test_engine", "test_runtime", "test_systems"),
    *("test_without_unix", "test_compiler", "test_machine", "test_memory", "test_verify"),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with the fixture `target` run for every instruction set where none is named."""
    if "METAOP_TARGET" not in os.environ:
        return
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    left_out = {
        item
        for item in here
        if "target" in getattr(item, "fixturenames", ()) or item.path.stem in _INDEPENDENT
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
