"""Reading the body of a request within bounds of size and time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request

from metaop.serving.refusal import Refusal

# A client that writes before it reads sees the response only if its data are consumed.
_DISCARDED = 16


class BodyReader:
    """Reads bodies of at most `most_bytes` that arrive within `seconds`."""

    def __init__(self, most_bytes: int, seconds: float) -> None:
        self._most_bytes, self._seconds = most_bytes, seconds

    async def read(self, request: Request) -> bytes:
        """The body. Raises Refusal (413, 415, 408), or ClientDisconnect if the client is gone."""
        encoding = request.headers.get("content-encoding", "identity")
        try:
            body = await asyncio.wait_for(self._received(request, self._most_bytes), self._seconds)
        except asyncio.TimeoutError:
            raise Refusal(
                408, f"the body did not arrive in {self._seconds:g} s", {"Connection": "close"}
            ) from None
        if body is None:
            raise Refusal(
                413, f"the body has more than {self._most_bytes} bytes", {"Connection": "close"}
            )
        if encoding != "identity":
            raise Refusal(415, f"the body is encoded as {encoding[:40]!r}; send it unencoded")
        return body

    async def discard(self, request: Request) -> None:
        """Reads and drops the body of a refused request, within the bounds."""
        with suppress(asyncio.TimeoutError, ClientDisconnect):
            await asyncio.wait_for(self._received(request, 0), self._seconds)

    async def _received(self, request: Request, most: int) -> bytes | None:
        """A body of at most `most` bytes; None for a larger one."""
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size <= most:
                parts.append(part)
            else:
                parts.clear()
            if size > _DISCARDED * self._most_bytes:
                break
        return b"".join(parts) if size <= most else None
