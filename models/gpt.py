"""GPT: a decoder-only transformer that predicts the next token and generates text.

After A. Radford and others, "Language models are unsupervised multitask learners", 2019, with
letters as tokens. Parameters have the names of GPT-2, with linear layers instead of its Conv1D. A
preallocated key-value cache makes each generated token cost one position.

    python -m models.gpt --steps 200
    python -m models.gpt --text book.txt --layers 6 --width 384 --context 256
    python -m models.gpt --steps 400 --checkpoint runs/gpt.pth  # resumes from the file
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

# The cached keys and values of a block, (batch, heads, context, head width) each; and of all
# blocks.
KeyValues = tuple[metaop.Tensor, metaop.Tensor]
Cache = list[KeyValues]


def attend(
    query: metaop.Tensor,
    key: metaop.Tensor,
    value: metaop.Tensor,
    dropout: float = 0.0,
    positions: metaop.Tensor | None = None,
    cache: KeyValues | None = None,
) -> metaop.Tensor:
    """Causal attention of (batch, heads, length, head width); returns (batch, length, width).

    Groups of query heads may share a head of keys and values. With `cache`, the keys and values are
    written into it at `positions` (length,), int64, and each position attends to all cached ones
    up to its own.
    """
    mask = None
    if cache is not None:
        assert positions is not None
        key = cache[0].index_copy_(2, positions, key)
        value = cache[1].index_copy_(2, positions, value)
        mask = metaop.arange(key.shape[2], device=query.device) <= positions[:, None]
    found = F.scaled_dot_product_attention(
        query, key, value, mask, dropout, is_causal=cache is None,
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
        cache: KeyValues | None = None,
    ) -> metaop.Tensor:
        batch, length, width = x.shape
        split = self.c_attn(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout if self.training else 0.0
        return self.c_proj(attend(query, key, value, dropout, positions, cache))


class Feedforward(nn.Module):
    """The MLP: a hidden layer of four times the width, with GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """Pre-norm attention and MLP, each with a residual connection; (batch, length, width) stays."""

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
        cache: KeyValues | None = None,
    ) -> metaop.Tensor:
        x = x + self.drop(self.attn(self.ln_1(x), positions, cache))
        return x + self.drop(self.mlp(self.ln_2(x)))


def sample(
    logits: metaop.Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> metaop.Tensor:
    """One sampled token (batch, 1), int64, from logits (batch, vocabulary).

    Temperature 0 is greedy. `top_k` keeps the most probable tokens, and `top_p` the smallest set of
    these with at least that probability (nucleus sampling); ties with the last one are kept too.
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
        least = metaop.minimum(least, ordered[:, :1])  # the most probable token always stays
        logits = logits.masked_fill(logits < least, -math.inf)
    return metaop.multinomial(logits.softmax(-1), 1)


def generate_tokens(
    predict: Callable[[metaop.Tensor, metaop.Tensor, Cache], metaop.Tensor],
    cache: Cache,
    context: int,
    tokens: metaop.Tensor,
    count: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    end: int | None = None,
) -> metaop.Tensor:
    """`tokens` (batch, length) followed by `count` sampled ones; options as in `sample`.

    `predict(tokens, positions, cache)` returns logits (batch, length, vocabulary). While all tokens
    fit the context, a new one costs one position. After that the window slides, which changes all
    positions, so that each token costs the whole context. A sequence that has sampled `end`
    repeats it, and generation stops when all sequences have.
    """
    device, start = tokens.device, tokens.shape[1]
    written = tokens.numpy(force=True)
    known = 0  # how many leading positions of the cache are valid
    with metaop.no_grad():
        for _ in range(count):
            window = written[:, -context:]
            length = window.shape[1]
            fresh = metaop.from_numpy(window[:, known:].copy()).to(device)
            positions = metaop.from_numpy(np.arange(known, length)).to(device)
            logits = predict(fresh, positions, cache)[:, -1]
            token = sample(logits, temperature, top_k, top_p).numpy(force=True)
            if end is not None:
                ended = (written[:, start:] == end).any(1, keepdims=True)
                token = np.where(ended, end, token)
            written = np.concatenate((written, token), 1)
            known = length if length < context else 0
            if end is not None and (written[:, start:] == end).any(1).all():
                break
    return metaop.from_numpy(written).to(device)


class CausalLanguageModel(nn.Module):
    """A causal language model with a key-value cache; `context` is the maximal sequence length."""

    context: int
    lm_head: nn.Linear

    def cache_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """The shape of the cached keys of each block, for a batch of sequences."""
        raise NotImplementedError

    def cache(self, batch: int) -> Cache:
        """An empty cache for a batch of sequences."""
        like = next(self.parameters())  # weights of linear layers may be quantised
        shapes = self.cache_shapes(batch)
        return [(like.new_zeros(shape), like.new_zeros(shape)) for shape in shapes]

    def loss(
        self, tokens: metaop.Tensor, following: metaop.Tensor, network: Any = None
    ) -> metaop.Tensor:
        """The mean cross-entropy of the `following` token at each position, both (batch, length).

        `network` computes the logits, for example the stages of a pipeline; by default this model.
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
        """`tokens` (batch, length) with up to `count` sampled ones; see `generate_tokens`."""
        cache = self.cache(tokens.shape[0])
        return generate_tokens(
            self, cache, self.context, tokens, count, temperature, top_k, top_p, end
        )  # fmt: skip


class GPT(CausalLanguageModel):
    """Tokens (batch, length), int64, to logits of the next ones (batch, length, vocabulary).

    With `cache`, the tokens continue the cached ones at `positions` (length,), int64. The output
    layer shares the weight of the token embedding unless `tied` is False.
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
                # Smaller weights keep the variance of the residual stream independent of depth.
                deep = name.endswith("c_proj.weight")
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(2 * layers) if deep else 0.02)

    def embed(self, tokens: metaop.Tensor, positions: metaop.Tensor | None = None) -> metaop.Tensor:
        """Token plus position embeddings (batch, length, width)."""
        parts = self.transformer
        if positions is None:
            positions = metaop.arange(tokens.shape[1], device=tokens.device)
        return parts["drop"](parts["wte"](tokens) + parts["wpe"](positions))

    def in_order(self) -> list[nn.Module]:
        """The network as a sequence of modules, by which a pipeline is cut."""
        parts = self.transformer
        first = Part(self.embed, parts["wte"], parts["wpe"], parts["drop"])
        return [first, *parts["h"], parts["ln_f"], self.lm_head]

    def forward(
        self,
        tokens: metaop.Tensor,
        positions: metaop.Tensor | None = None,
        cache: Cache | None = None,
    ) -> metaop.Tensor:
        parts = self.transformer
        x = self.embed(tokens, positions)
        for number, block in enumerate(parts["h"]):
            x = block(x, positions, None if cache is None else cache[number])
        return self.lm_head(parts["ln_f"](x))

    def cache_shapes(self, batch: int) -> list[tuple[int, ...]]:
        width = self.transformer["wte"].weight.shape[1]
        heads = [block.attn.heads for block in self.transformer["h"]]
        return [(batch, count, self.context, width // count) for count in heads]


def sampling(options: argparse.Namespace) -> tuple[float, int | None, float | None]:
    """Temperature, `top_k` and `top_p` from the options; see `WRITING`."""
    top_p = options.top_p if options.top_p < 1 else None
    return options.temperature, options.top_k or None, top_p


def learn_text(
    build: Callable[[int, argparse.Namespace], CausalLanguageModel], options: argparse.Namespace
) -> list[float]:
    """Learns a text letter by letter and generates some; returns the losses.

    `build(vocabulary, options)` makes the network for the number of different letters.
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
    # In a small network the overhead of Python is as large as the kernels' time, so the steps are
    # captured. `fallback` serves networks that read values, such as a choice of experts.
    model.forward = metaop.jit(model.forward, fallback=True)  # type: ignore[method-assign]
    first = metaop.from_numpy(codes[None, :1].copy())
    written = model.eval().generate(first, options.write, *sampling(options))[0].tolist()
    print("".join(letters[code] for code in written))
    return history["loss"]


# The options of `learn_text`, in addition to those of a network.
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
    """Learns a text letter by letter and generates some; returns the losses."""
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
