"""Collectives in progress, for any transport."""

from __future__ import annotations

from abc import ABC, abstractmethod

from metaop.dist.watchdog import Watchdog


class Request(ABC):
    """A collective in progress. Its result may be used after `wait`."""

    @abstractmethod
    def Test(self) -> bool:
        """Whether the result has arrived; makes progress."""

    @property
    def news(self) -> int:
        """A value that changes whenever there is progress."""
        return 0

    def wait(self, watchdog: Watchdog, what: str) -> None:
        """Makes later work wait for the result; reports ranks that are late."""
        watchdog.wait(self.Test, what, lambda: self.news)
