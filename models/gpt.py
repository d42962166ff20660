"""GPT: a transformer that predicts the next letter, and writes text with it.

After A. Radford and others, "Language models are unsupervised multitask learners", 2019, with
letters for tokens. Parameters are named as in GPT-2 with linear layers for its Conv1D. A memory of
keys and values, as long as the context from the start, lets each further letter cost one position.

    python -m models.gpt --steps 200
    python -m models.gpt --text book.txt --layers 6 --width 384 --context 256
    python -m models.gpt --steps 400 --checkpoint runs/gpt.pth  # goes on where it ended
    python -m models.gpt --write 500 --temperature 0.8 --top-k 10 --top-p 0.9
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import drawn_rows, parse_options
from .parallel import OPTIONS, Part
from .trainer import Trainer, Training, Values

PROVERBS = """A bird in the hand is worth two in the bush. A stitch in time saves nine.
All that glitters is not gold. Better late than never. Birds of a feather flock together.
Every cloud has a silver lining. Fortune favours the bold. Look before you leap.
Many hands make light work. Practice makes perfect. Still waters run deep.
The early bird catches the worm. Too many cooks spoil the broth. When in Rome, do as the Romans do.
You cannot judge a book by its cover. Where there is smoke there is fire.
"""

# The keys and the values (batch, heads, context, width of a head) of the letters in a block, and
# those of all blocks.
Remembered = tuple[metaop.Tensor, metaop.Tensor]
Memory = list[Remembered]


def attend(
    query: metaop.Tensor,
    key: metaop.Tensor,
    value: metaop.Tensor,
    dropout: float = 0.0,
    positions: metaop.Tensor | None = None,
    memory: Remembered | None = None,
) -> metaop.Tensor:
    """Causal attention (batch, length, width) of (batch, heads, length, width of a head).

    Groups of query heads may share a head of keys and values. With `memory`, keys and values are
    written there at `positions` (length,), int64, and attention goes to all that lies there up to
    each position.
    """
    reached = None
    if memory is not None:
        assert positions is not None
        key = memory[0].index_copy_(2, positions, key)
        value = memory[1].index_copy_(2, positions, value)
        reached = metaop.arange(key.shape[2], device=query.device) <= positions[:, None]
    found = F.scaled_dot_product_attention(
        query, key, value, reached, dropout, is_causal=memory is None,
        enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip
    return found.transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Causal attention of `heads` heads over (batch, length, width); see `attend`."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(
        self,
        x: metaop.Tensor,
        positions: metaop.Tensor | None = None,
        memory: Remembered | None = None,
    ) -> metaop.Tensor:
        batch, length, width = x.shape
        split = self.c_attn(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout if self.training else 0.0
        return self.c_proj(attend(query, key, value, dropout, positions, memory))


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

    def forward(
        self,
        x: metaop.Tensor,
        positions: metaop.Tensor | None = None,
        memory: Remembered | None = None,
    ) -> metaop.Tensor:
        x = x + self.drop(self.attn(self.ln_1(x), positions, memory))
        return x + self.drop(self.mlp(self.ln_2(x)))


def draw(
    logits: metaop.Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> metaop.Tensor:
    """One token (batch, 1), int64, drawn from logits (batch, vocabulary).

    Temperature 0 takes the likeliest. Left are the `top_k` likeliest tokens, and of these the
    likeliest until their probabilities reach `top_p`; tokens as likely as the last stay too.
    """
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits / temperature
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    if top_p is not None:
        ordered = logits.sort(-1, descending=True).values
        likely = ordered.softmax(-1)
        before = likely.cumsum(-1) - likely
        least = ordered.masked_fill(before >= top_p, math.inf).amin(-1, keepdim=True)
        least = metaop.minimum(least, ordered[:, :1])  # the likeliest stays in any case
        logits = logits.masked_fill(logits < least, -math.inf)
    return metaop.multinomial(logits.softmax(-1), 1)


def continued(
    predict: Callable[[metaop.Tensor, metaop.Tensor, Memory], metaop.Tensor],
    memory: Memory,
    context: int,
    tokens: metaop.Tensor,
    count: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    end: int | None = None,
) -> metaop.Tensor:
    """`tokens` (batch, length) continued by `count` drawn ones; options of `draw`.

    `predict(tokens, positions, memory)` gives logits (batch, length, vocabulary). A token costs one
    position while all of them fit the context. Behind it each token moves all others to new
    positions, and costs the whole context. A sequence that has drawn `end` repeats it; when all
    of them have, no more is drawn.
    """
    device, start = tokens.device, tokens.shape[1]
    written = tokens.numpy(force=True)
    known = 0  # the positions of the memory that hold what stands there
    with metaop.no_grad():
        for _ in range(count):
            window = written[:, -context:]
            length = window.shape[1]
            fresh = metaop.from_numpy(window[:, known:].copy()).to(device)
            positions = metaop.from_numpy(np.arange(known, length)).to(device)
            logits = predict(fresh, positions, memory)[:, -1]
            token = draw(logits, temperature, top_k, top_p).numpy(force=True)
            if end is not None:
                ended = (written[:, start:] == end).any(1, keepdims=True)
                token = np.where(ended, end, token)
            written = np.concatenate((written, token), 1)
            known = length if length < context else 0
            if end is not None and (written[:, start:] == end).any(1).all():
                break
    return metaop.from_numpy(written).to(device)


class Writer(nn.Module):
    """What writes tokens by means of a memory; `context` is the most that it sees at once."""

    context: int
    lm_head: nn.Linear

    def memory_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """The shape of the keys of each block for so many sequences."""
        raise NotImplementedError

    def memory(self, batch: int) -> Memory:
        """An empty memory for so many sequences."""
        like = next(self.parameters())  # the weights of linear maps may be whole numbers
        shapes = self.memory_shapes(batch)
        return [(like.new_zeros(shape), like.new_zeros(shape)) for shape in shapes]

    def loss(
        self, tokens: metaop.Tensor, following: metaop.Tensor, network: Any = None
    ) -> metaop.Tensor:
        """The mean cross-entropy of what follows each of the tokens, both (batch, length).

        `network` computes the logits, for example the stages of a pipeline; without it this one.
        """
        logits = (self if network is None else network)(tokens)
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())

    def generate(
        self,
        tokens: metaop.Tensor,
        count: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        end: int | None = None,
    ) -> metaop.Tensor:
        """`tokens` (batch, length) continued by up to `count` drawn ones; see `continued`."""
        memory = self.memory(tokens.shape[0])
        return continued(
            self, memory, self.context, tokens, count, temperature, top_k, top_p, end
        )  # fmt: skip


class GPT(Writer):
    """Tokens (batch, length), int64, to logits of the next one (batch, length, vocabulary).

    With `memory`, tokens go on at `positions` (length,), int64, after those that lie there.
    The matrix at the end is that of the letters unless `tied` is False.
    """

    columns = ("c_attn.weight", "c_fc.weight", "c_fc.bias")
    rows = ("c_proj.weight",)

    def __init__(
        self,
        vocabulary: int,
        context: int = 256,
        width: int = 384,
        layers: int = 6,
        heads: int = 6,
        dropout: float = 0.0,
        tied: bool = True,
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
        if tied:
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

    def embed(self, tokens: metaop.Tensor, positions: metaop.Tensor | None = None) -> metaop.Tensor:
        """Tokens as vectors (batch, length, width) that know their positions."""
        parts = self.transformer
        if positions is None:
            positions = metaop.arange(tokens.shape[1], device=tokens.device)
        return parts["drop"](parts["wte"](tokens) + parts["wpe"](positions))

    def in_order(self) -> list[nn.Module]:
        """The network as modules of which each takes what the one before gives."""
        parts = self.transformer
        first = Part(self.embed, parts["wte"], parts["wpe"], parts["drop"])
        return [first, *parts["h"], parts["ln_f"], self.lm_head]

    def forward(
        self,
        tokens: metaop.Tensor,
        positions: metaop.Tensor | None = None,
        memory: Memory | None = None,
    ) -> metaop.Tensor:
        parts = self.transformer
        x = self.embed(tokens, positions)
        for number, block in enumerate(parts["h"]):
            x = block(x, positions, None if memory is None else memory[number])
        return self.lm_head(parts["ln_f"](x))

    def memory_shapes(self, batch: int) -> list[tuple[int, ...]]:
        width = self.transformer["wte"].weight.shape[1]
        heads = [block.attn.heads for block in self.transformer["h"]]
        return [(batch, count, self.context, width // count) for count in heads]


def sampling(options: argparse.Namespace) -> tuple[float, int | None, float | None]:
    """The temperature, `top_k` and `top_p` that options ask for; see `WRITING`."""
    top_p = options.top_p if options.top_p < 1 else None
    return options.temperature, options.top_k or None, top_p


def learn_text(
    build: Callable[[int, argparse.Namespace], Writer], options: argparse.Namespace
) -> list[float]:
    """Learns a text letter by letter and writes some; returns the losses.

    `build(letters, options)` makes the network for so many different letters.
    """
    text = Path(options.text).read_text(encoding="utf-8") if options.text else PROVERBS
    letters = sorted(set(text))
    codes = np.searchsorted(letters, list(text))
    windows = np.lib.stride_tricks.sliding_window_view(codes, options.context + 1)
    model = build(len(letters), options)

    def batch(number: int) -> tuple[metaop.Tensor, metaop.Tensor]:
        (rows,) = drawn_rows(windows, size=options.batch_size, seed=(options.seed, number))
        return rows[:, :-1], rows[:, 1:]

    def values(network: Any, tokens: metaop.Tensor, following: metaop.Tensor) -> Values:
        return {"loss": model.loss(tokens, following, network)}

    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)
    trainer = Trainer(model, optimizer, batch, values, Training.of(options))
    history = trainer.fit(type(model).__name__)
    # Python's part of a step costs as much as the kernels of a small network. A network that reads
    # values, as the choice of experts does, is called as it is.
    model.forward = metaop.jit(model.forward, fallback=True)  # type: ignore[method-assign]
    first = metaop.from_numpy(codes[None, :1].copy())
    written = model.eval().generate(first, options.write, *sampling(options))[0].tolist()
    print("".join(letters[code] for code in written))
    return history["loss"]


# What `learn_text` reads beside the options of a network.
WRITING: dict[str, int | float | str] = {
    **OPTIONS,
    "text": "",
    "log": "",
    "context": 32,
    "write": 100,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
}


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns a text letter by letter and writes some; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=200, batch_size=16, lr=3e-3, layers=2, width=64, heads=4,
        tied=1, **WRITING,
    )  # fmt: skip

    def build(letters: int, options: argparse.Namespace) -> GPT:
        sizes = (options.context, options.width, options.layers, options.heads)
        return GPT(letters, *sizes, tied=bool(options.tied))

    return learn_text(build, options)


if __name__ == "__main__":
    main()
