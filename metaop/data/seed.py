"""Where samplers get their randomness from: a NumPy generator seeded by metaop's."""

from __future__ import annotations

from typing import Any

import numpy as np

# A metaop generator, a NumPy generator, or None for metaop's default generator.
Source = Any

_default = np.random.default_rng()


def draw_seed(source: Source = None) -> int:
    """A non-negative 62-bit number from `source`, which advances it."""
    return int(_numbers(source).integers(0, 1 << 62))


def random_state(source: Source = None) -> np.random.Generator:
    """A NumPy generator seeded by one draw from `source`."""
    return np.random.default_rng(draw_seed(source))


def _numbers(source: Source) -> np.random.Generator:
    if isinstance(source, np.random.Generator):
        return source
    return _default


def seed_default(seed: int) -> None:
    """Seeds the default generator: worker processes draw numbers of their own."""
    global _default
    _default = np.random.default_rng(seed)
