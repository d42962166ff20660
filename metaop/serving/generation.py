"""Continuous batching: each step computes all texts in progress, and new ones join at once.

A step is scheduled like any request, so other requests run between two steps.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from math import isfinite
from typing import Any

from metaop.serving.decoder import Decoder, Sampling, Text
from metaop.serving.refusal import Refusal
from metaop.serving.scheduler import Scheduler

_FIELDS = ("tokens", "count", "temperature", "top_k", "seed", "end")


def read_text(content: Mapping[str, Any], decoder: Decoder) -> Text:
    """The text that a request asks to continue. Raises Refusal (400) for an invalid one."""
    for name in content:
        if name not in _FIELDS:
            raise Refusal(400, f"unknown field {name[:100]!r}; known are {', '.join(_FIELDS)}")
    tokens, vocabulary = content.get("tokens"), decoder.vocabulary
    is_legal = isinstance(tokens, list) and len(tokens) > 0
    if not is_legal or any(type(one) is not int or not 0 <= one < vocabulary for one in tokens):  # type: ignore[union-attr]
        raise Refusal(400, f"tokens is not a non-empty list of integers from 0 to {vocabulary - 1}")
    assert isinstance(tokens, list)
    count = _integer(content, "count", 1)
    if count is None or len(tokens) + count - 1 > decoder.context:
        raise Refusal(
            400,
            f"{len(tokens)} tokens and count = {count} do not fit the context of {decoder.context}",
        )
    temperature = content.get("temperature", 0.0)
    if type(temperature) not in (int, float) or not (isfinite(temperature) and temperature >= 0):
        raise Refusal(400, "temperature is not a number from 0")
    sampling = Sampling(
        count,
        float(temperature),
        _integer(content, "top_k", 1),
        _integer(content, "seed", 0) or 0,
        _integer(content, "end", 0),
    )
    return Text(tokens, sampling)


def _integer(content: Mapping[str, Any], name: str, least: int) -> int | None:
    value = content.get(name)
    if value is not None and (type(value) is not int or not least <= value < 1 << 63):
        raise Refusal(400, f"{name} is not an integer from {least}")
    return value


class Generation:
    """The texts that one decoder generates, at most `most_rows` at a time; others wait.

    `ended` is called when none is left.
    """

    def __init__(
        self, decoder: Decoder, scheduler: Scheduler, most_rows: int, ended: Callable[[], object]
    ) -> None:
        self.decoder, self._scheduler, self._most_rows = decoder, scheduler, most_rows
        self._ended = ended
        self._texts: dict[Text, asyncio.Queue[int | BaseException]] = {}
        self._task: asyncio.Task[None] | None = None

    async def tokens(self, text: Text) -> AsyncIterator[int]:
        """Yields each token as soon as it is sampled. Raises what a step raises."""
        queue = self._texts[text] = asyncio.Queue()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write())
        try:
            while not (text.is_over and queue.empty()):
                found = await queue.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            # Also if the client has disconnected: the rest is not needed.
            self._texts.pop(text, None)

    async def _write(self) -> None:
        while roster := [one for one in self._texts if not one.is_over][: self._most_rows]:
            drawn: list[int | BaseException | None]
            try:
                logits = await self._scheduler.call(self.decoder.step, roster)
                drawn = [text.advance(row) for text, row in zip(roster, logits)]
            except Exception as error:
                drawn = [error] * len(roster)
                for text in roster:
                    text.is_over = True
            for text, token in zip(roster, drawn):
                if token is not None and text in self._texts:
                    self._texts[text].put_nowait(token)
        self._task = None
        self._ended()


def event(content: Mapping[str, Any]) -> bytes:
    """Formats one event of a stream."""
    return f"data: {json.dumps(content)}\n\n".encode()
