"""A language model of letters with a context of three, which generates text.

Run: python examples/text_generation.py
"""

from __future__ import annotations

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

TEXT = "the cat sat on the mat and the rat ran from the cat to the mat. " * 8
LETTERS = sorted(set(TEXT))
CONTEXT = 3


class NextLetter(nn.Module):
    """Letters (batch, CONTEXT), int64, to logits of the next one (batch, len(LETTERS))."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), 8)
        self.layers = nn.Sequential(
            nn.Linear(CONTEXT * 8, 64), nn.Tanh(), nn.Linear(64, len(LETTERS))
        )

    def forward(self, letters: metaop.Tensor) -> metaop.Tensor:
        return self.layers(self.embedding(letters).flatten(1))


def write(model: NextLetter, start: str, length: int) -> str:
    """Continues `start` by `length` letters, greedily."""
    text = start
    with metaop.no_grad():
        for _ in range(length):
            context = metaop.tensor([[LETTERS.index(letter) for letter in text[-CONTEXT:]]])
            text += LETTERS[model(context).argmax(1).item()]
    return text


def main(steps: int = 200) -> str:
    """Returns the text that the trained model generates after "the"."""
    metaop.manual_seed(0)
    codes = np.array([LETTERS.index(letter) for letter in TEXT])
    windows = np.lib.stride_tricks.sliding_window_view(codes, CONTEXT + 1)
    contexts = metaop.tensor(windows[:, :CONTEXT])
    following = metaop.tensor(windows[:, CONTEXT])
    model = NextLetter()
    optimizer = metaop.optim.AdamW(model.parameters(), lr=1e-2)

    for _ in range(steps):
        loss = F.cross_entropy(model(contexts), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    text = write(model, "the", 40)
    print(f"loss {loss.item():.3f}: {text}")
    return text


if __name__ == "__main__":
    main()
