"""Errors that clients see when their request is refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from metaop.errors import InternalError, MetaopError, OutOfMemoryError

_NONE: Mapping[str, str] = MappingProxyType({})


class Refusal(Exception):
    """An error response: an HTTP status, a message and headers."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] = _NONE) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


def refusal_of(error: BaseException) -> Refusal | None:
    """The response to a program's error if the client caused it, else None."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, MemoryError):
        return Refusal(503, "there is no memory left to compute this", {"Retry-After": "1"})
    if isinstance(error, MetaopError) and not isinstance(error, (InternalError, OutOfMemoryError)):
        # After the first line come locations in programs and advice for their authors.
        return Refusal(400, str(error).split("\n", 1)[0])
    return None
