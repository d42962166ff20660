"""GPT: a transformer that predicts the next letter, and writes text with it.

After A. Radford and others, "Language models are unsupervised multitask learners", 2019, with
letters for tokens. Parameters are named as in GPT-2 with linear layers for its Conv1D.

    python -m models.gpt --steps 200
    python -m models.gpt --text book.txt --layers 6 --width 384 --context 256
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import parse_options, random_batches, train, update

PROVERBS = """A bird in the hand is worth two in the bush. A stitch in time saves nine.
All that glitters is not gold. Better late than never. Birds of a feather flock together.
Every cloud has a silver lining. Fortune favours the bold. Look before you leap.
Many hands make light work. Practice makes perfect. Still waters run deep.
The early bird catches the worm. Too many cooks spoil the broth. When in Rome, do as the Romans do.
You cannot judge a book by its cover. Where there is smoke there is fire.
"""


class Attention(nn.Module):
    """Causal attention of `heads` heads over (batch, length, width)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        batch, length, width = x.shape
        split = self.c_attn(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True)
        return self.c_proj(found.transpose(1, 2).reshape(batch, length, width))


class Feedforward(nn.Module):
    """Widens four times, bends, and narrows again."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """Attention and a feedforward network, each added to its normalised input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Feedforward(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    """Tokens (batch, length), int64, to logits of the next one (batch, length, vocabulary)."""

    def __init__(
        self,
        vocabulary: int,
        context: int = 256,
        width: int = 384,
        layers: int = 6,
        heads: int = 6,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.context = context
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(context, width),
                "drop": nn.Dropout(dropout),
                "h": nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)]),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight
        self._initialise(layers)

    def _initialise(self, layers: int) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "ln_" not in name:
                # What is added to the stream grows with the depth unless it starts smaller.
                deep = name.endswith("c_proj.weight")
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(2 * layers) if deep else 0.02)

    def forward(self, tokens: metaop.Tensor) -> metaop.Tensor:
        parts = self.transformer
        positions = metaop.arange(tokens.shape[1], device=tokens.device)
        x = parts["drop"](parts["wte"](tokens) + parts["wpe"](positions))
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))

    def generate(
        self, tokens: metaop.Tensor, count: int, temperature: float = 1.0
    ) -> metaop.Tensor:
        """`tokens` continued by `count` drawn ones; temperature 0 takes the likeliest."""
        with metaop.no_grad():
            for _ in range(count):
                logits = self(tokens[:, -self.context :])[:, -1]
                if temperature == 0:
                    following = logits.argmax(-1, keepdim=True)
                else:
                    following = metaop.multinomial((logits / temperature).softmax(-1), 1)
                tokens = metaop.cat((tokens, following), 1)
        return tokens


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns a text letter by letter and writes some; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=200, batch_size=16, lr=3e-3, text="", layers=2, width=64,
        heads=4, context=32, write=100,
    )  # fmt: skip
    text = Path(options.text).read_text(encoding="utf-8") if options.text else PROVERBS
    letters = sorted(set(text))
    codes = np.searchsorted(letters, list(text))
    windows = np.lib.stride_tricks.sliding_window_view(codes, options.context + 1)
    batches = random_batches(windows, size=options.batch_size, seed=options.seed)
    model = GPT(len(letters), options.context, options.width, options.layers, options.heads)
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        (batch,) = next(batches)
        logits = model(batch[:, :-1]).flatten(0, 1)
        return {"loss": update(optimizer, F.cross_entropy(logits, batch[:, 1:].flatten()))}

    history = train(step, options.steps, "GPT")
    # A full context always has the same shape, so that writing compiles once.
    start = metaop.from_numpy(codes[None, : options.context])
    written = model.eval().generate(start, options.write)[0].tolist()
    print("".join(letters[code] for code in written))
    return history["loss"]


if __name__ == "__main__":
    main()
