"""Errors about a file, raised where its name is unknown; `Reading` adds the name."""

from __future__ import annotations

from errno import EINVAL
from types import TracebackType

from metaop.errors import CheckpointError, MetaopError


class Damage(Exception):
    """The reason why a file cannot be read, worded to follow its name, and optionally a fix."""

    def __init__(self, reason: str, *, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


class Reading:
    """Turns any error while a file is interpreted into a CheckpointError.

    Corrupt bytes make archive libraries raise many kinds of errors.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Damage):
            raise CheckpointError(
                f"cannot load {self.name}: {error}", fix=error.fix
            ) from error.__cause__
        # A failing device is not damage, but seeking before the start of the file is.
        is_foreign = isinstance(error, OSError) and error.errno != EINVAL
        if isinstance(error, Exception) and not isinstance(error, MetaopError) and not is_foreign:
            raise CheckpointError(
                f"cannot load {self.name}: it is damaged ({type(error).__name__}: {error})",
                fix="copy or download the file again",
            ) from error
