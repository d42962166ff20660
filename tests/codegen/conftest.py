"""Tests that run for every instruction set run for all of them at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under METAOP_TARGET, leaves out what runs for every instruction set without it."""
    if "METAOP_TARGET" not in os.environ:
        return
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    left_out = {item for item in here if "target" in getattr(item, "fixturenames", ())}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
