"""The choice between implementations of attention, which PyTorch offers."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class SDPBackend(enum.Enum):
    """The attention implementations that PyTorch chooses from; metaop compiles the formula."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Accepted for compatibility, without effect: metaop has one implementation."""
    yield
