"""Collectives under way, whatever carries them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from metaop.dist.watchdog import Watchdog


class Request(ABC):
    """A collective under way. Its result may be used after `wait`."""

    @abstractmethod
    def Test(self) -> bool:
        """Whether the result is there; makes progress."""

    @property
    def news(self) -> int:
        """Changes whenever something has been done."""
        return 0

    def wait(self, watchdog: Watchdog, what: str) -> None:
        """Lets what comes next use the result; late ranks are named."""
        watchdog.wait(self.Test, what, lambda: self.news)
