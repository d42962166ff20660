"""Programs that generate tokens one by one: their required form, and one step for several texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaop.serving.model import Arrays, Model
from metaop.serving.refusal import Refusal
from metaop.unified_graph.dtype import int64


@dataclass(frozen=True)
class Sampling:
    """How tokens are sampled: greedily at temperature 0, else from the `top_k` most likely.

    Generation ends after `count` tokens or after the token `end`.
    """

    count: int
    temperature: float = 0.0
    top_k: int | None = None
    seed: int = 0
    end: int | None = None


class Text:
    """The tokens of one request, and the decoder's key-value memory for them.

    `memory` has one row per memory input, None before the first step.
    """

    def __init__(self, tokens: Sequence[int], sampling: Sampling) -> None:
        self.given, self.sampling = list(tokens), sampling
        self.position, self.next, self.drawn = 0, self.given[0], 0
        self.memory: Arrays | None = None
        self.is_over = False
        self._random = np.random.default_rng(sampling.seed)

    def advance(self, logits: np.ndarray) -> int | None:
        """Advances to the next token; returns it if it was sampled, None within the prompt."""
        self.position += 1
        if self.position < len(self.given):
            self.next = self.given[self.position]
            return None
        self.next = self._draw(logits.astype(np.float64))
        self.drawn += 1
        self.is_over = self.drawn == self.sampling.count or self.next == self.sampling.end
        return self.next

    def _draw(self, logits: np.ndarray) -> int:
        if self.sampling.temperature == 0:
            return int(logits.argmax())
        scaled = (logits - logits.max()) / self.sampling.temperature
        if self.sampling.top_k is not None:
            place = -min(self.sampling.top_k, scaled.size)
            scaled[scaled < np.partition(scaled, place)[place]] = -np.inf
        likely = np.exp(scaled)
        return int(self._random.choice(likely.size, p=likely / likely.sum()))


class Decoder:
    """A model as a decoder; `step` runs on the thread that computes.

    Its inputs are tokens (batch, 1) and positions (batch,), int64, and memories (batch, heads,
    context, width); its outputs are logits (batch, vocabulary) and the memories in the same order,
    with the token written at its position. Raises Refusal (400) for other programs.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        batch = "" if model.counted is None else model.counted.name
        given = [(one.dtype, list(one.shape)) for one in model.inputs]
        found = [(dtype, list(shape)) for _, dtype, shape in model.outputs]
        memories, logits = given[2:], found[0][1]
        for holds, text in (
            (len(model.program.sizes) == 1 and batch, "has no batch of independent rows alone"),
            (given[:1] == [(int64, [batch, 1])], "has no tokens (batch, 1) first"),
            (given[1:2] == [(int64, [batch])], "has no positions (batch,) second"),
            (
                memories and all(len(one) == 4 and one[0] == batch for _, one in memories),
                "has no memories (batch, heads, context, width) behind them",
            ),
            (found[1:] == memories, "does not give its memories behind the logits"),
            (
                len(logits) == 2 and logits[0] == batch and type(logits[1]) is int,
                "gives no logits (batch, vocabulary) first",
            ),
        ):
            if not holds:
                raise Refusal(400, f"{model.name!r} is not a decoder: it {text}")
        self.vocabulary: Any = logits[1]
        self.context: Any = min(shape[2] for _, shape in memories)
        self._roster: list[Text] = []
        self._joined: Arrays = []

    def step(self, texts: Sequence[Text]) -> np.ndarray:
        """The logits (texts, vocabulary) for the next token of each text."""
        if self._roster != list(texts):
            self._join(texts)
        rows = len(self._joined[0])
        tokens, positions = np.zeros((rows, 1), np.int64), np.zeros(rows, np.int64)
        for row, text in enumerate(texts):
            tokens[row], positions[row] = text.next, text.position
        logits, *self._joined = self._model.computed_rows([tokens, positions, *self._joined])
        return logits[: len(texts)]

    def _join(self, texts: Sequence[Text]) -> None:
        """Joins the memories of these texts; the previous texts get theirs back."""
        for row, text in enumerate(self._roster):
            text.memory = [array[row : row + 1] for array in self._joined]
        counted = self._model.counted
        assert counted is not None
        rows = next(n for n in range(len(texts), 2 * len(texts) + counted.min) if counted.admits(n))
        self._roster, self._joined = list(texts), []
        for number, one in enumerate(self._model.inputs[2:]):
            shape = [rows, *one.shape[1:]]
            joined = np.zeros(shape, one.dtype.numpy)  # type: ignore[arg-type]
            for row, text in enumerate(texts):
                if text.memory is not None:
                    joined[row] = text.memory[number][0]
            self._joined.append(joined)
