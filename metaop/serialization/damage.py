"""What is wrong with a file, told before its name is known; `Reading` adds the name."""

from __future__ import annotations

from errno import EINVAL
from types import TracebackType

from metaop.errors import CheckpointError, MetaopError


class Damage(Exception):
    """A reason why a file cannot be read, worded to follow its name, and perhaps a fix."""

    def __init__(self, reason: str, *, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


class Reading:
    """While the content of a file is interpreted, whatever goes wrong is a CheckpointError.

    Garbled bytes lead the libraries that read archives to errors of many kinds.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        """Nothing has been read yet."""

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
        # A device that fails is no damage, but seeking before the start of the file is.
        is_foreign = isinstance(error, OSError) and error.errno != EINVAL
        if isinstance(error, Exception) and not isinstance(error, MetaopError) and not is_foreign:
            raise CheckpointError(
                f"cannot load {self.name}: it is damaged ({type(error).__name__}: {error})",
                fix="copy or download the file again",
            ) from error
