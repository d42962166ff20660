"""CUDA sources of the device functions that rows of the table call by name."""

from __future__ import annotations

CUDA_HELPERS: dict[str, str] = {}
