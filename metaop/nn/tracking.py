"""Code of modules and optimizers that gradients do not see."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from metaop.unified_graph.recording import modes


class untracked(ContextDecorator):
    """A block, or a decorated function, in which nothing is recorded for gradients."""

    def __enter__(self) -> None:
        self._previous, modes.gradients = modes.gradients, False

    def __exit__(self, *exception: Any) -> None:
        modes.gradients = self._previous

    def _recreate_cm(self) -> untracked:
        return untracked()
