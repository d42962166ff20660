"""T5: an encoder-decoder transformer with relative position biases.

After C. Raffel and others, "Exploring the limits of transfer learning with a unified text-to-text
transformer", 2019. Positions enter attention only as a bias that depends on the distance.
Parameters have the names of Hugging Face, so published weights load, also of version 1.1 and
Flan-T5. The demonstration sorts a list of numbers and removes duplicates.

    python -m models.t5 --steps 400 --checkpoint runs/t5.pth
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update
from .gpt import Cache, KeyValues, generate_tokens
from .published import adopt, read_config, read_weights

PAD, END = 0, 1  # PAD also starts the decoder


def bucket(distance: metaop.Tensor, both: bool, count: int, furthest: int) -> metaop.Tensor:
    """Buckets in [0, count), int64, of distances from queries to keys.

    Half of the buckets hold one distance each, the others logarithmically growing ranges up to
    `furthest`. With `both`, half of all buckets are for later keys; otherwise these share bucket 0.
    """
    if both:
        count //= 2
        first = (distance > 0) * count
        distance = distance.abs()
    else:
        first = metaop.zeros_like(distance)
        distance = (-distance).clamp(min=0)
    exact = count // 2
    scale = (count - exact) / math.log(furthest / exact)
    # The clamp avoids log(0); small distances do not use the result.
    ranges = exact + ((distance.clamp(min=1) / exact).log() * scale).long()
    return first + metaop.where(distance < exact, distance, ranges.clamp(max=count - 1))


class Attention(nn.Module):
    """Attention over (batch, length, width) with unscaled products.

    With `buckets`, as in the first block of a stack, it owns the bias of each bucket and head.
    """

    def __init__(self, width: int, heads: int, head: int, dropout: float, buckets: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, heads * head, bias=False) for _ in range(3))
        self.o = nn.Linear(heads * head, width, bias=False)
        self.heads, self.dropout = heads, dropout
        if buckets:
            self.relative_attention_bias = nn.Embedding(buckets, heads)
            nn.init.normal_(self.relative_attention_bias.weight, 0.0, width**-0.5)
        nn.init.normal_(self.q.weight, 0.0, (width * head) ** -0.5)
        nn.init.normal_(self.k.weight, 0.0, width**-0.5)
        nn.init.normal_(self.v.weight, 0.0, width**-0.5)
        nn.init.normal_(self.o.weight, 0.0, (heads * head) ** -0.5)

    def _split(self, x: metaop.Tensor) -> metaop.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys(self, x: metaop.Tensor) -> KeyValues:
        """Keys and values (batch, heads, length, head width) of the attended vectors."""
        return self._split(self.k(x)), self._split(self.v(x))

    def forward(
        self, x: metaop.Tensor, seen: KeyValues, bias: metaop.Tensor | None
    ) -> metaop.Tensor:
        dropout = self.dropout if self.training else 0.0
        query = self._split(self.q(x))
        found = F.scaled_dot_product_attention(query, *seen, bias, dropout, scale=1.0)
        return self.o(found.transpose(1, 2).flatten(2))


class Feedforward(nn.Module):
    """The MLP with ReLU, or, if `gated`, a GELU-gated linear unit."""

    def __init__(self, width: int, hidden: int, dropout: float, gated: bool) -> None:
        super().__init__()
        names = ("wi_0", "wi_1") if gated else ("wi",)
        for name in names:
            setattr(self, name, nn.Linear(width, hidden, bias=False))
            nn.init.normal_(getattr(self, name).weight, 0.0, width**-0.5)
        self.wo = nn.Linear(hidden, width, bias=False)
        nn.init.normal_(self.wo.weight, 0.0, hidden**-0.5)
        self.dropout, self.gated = nn.Dropout(dropout), gated

    def forward(self, x: metaop.Tensor) -> metaop.Tensor:
        if self.gated:
            x = F.gelu(self.wi_0(x), approximate="tanh") * self.wi_1(x)
        else:
            x = F.relu(self.wi(x))
        return self.wo(self.dropout(x))


class Block(nn.Module):
    """Pre-norm self-attention, cross-attention in a decoder, and MLP, with residual connections."""

    def __init__(
        self, width: int, heads: int, head: int, hidden: int, dropout: float, eps: float,
        gated: bool, buckets: int, decodes: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        parts: list[tuple[str, nn.Module]] = [
            ("SelfAttention", Attention(width, heads, head, dropout, buckets))
        ]
        if decodes:
            parts.append(("EncDecAttention", Attention(width, heads, head, dropout, 0)))
        parts.append(("DenseReluDense", Feedforward(width, hidden, dropout, gated)))
        self.layer = nn.ModuleList(
            [
                nn.ModuleDict({name: part, "layer_norm": nn.RMSNorm(width, eps)})
                for name, part in parts
            ]
        )
        self.drop = nn.Dropout(dropout)

    def forward(
        self,
        x: metaop.Tensor,
        bias: metaop.Tensor,
        positions: metaop.Tensor | None = None,
        cache: KeyValues | None = None,
        read: KeyValues | None = None,
        read_bias: metaop.Tensor | None = None,
    ) -> metaop.Tensor:
        normed = self.layer[0]["layer_norm"](x)
        attention = self.layer[0]["SelfAttention"]
        seen = attention.keys(normed)
        if cache is not None:
            assert positions is not None
            key, value = (kept.index_copy_(2, positions, new) for kept, new in zip(cache, seen))
            seen = key, value
        x = x + self.drop(attention(normed, seen, bias))
        if read is not None:
            normed = self.layer[1]["layer_norm"](x)
            x = x + self.drop(self.layer[1]["EncDecAttention"](normed, read, read_bias))
        return x + self.drop(self.layer[-1]["DenseReluDense"](self.layer[-1]["layer_norm"](x)))


class Stack(nn.Module):
    """The blocks of the encoder or of the decoder; (batch, length, width) stays."""

    def __init__(
        self, layers: int, width: int, heads: int, head: int, hidden: int, dropout: float,
        eps: float, gated: bool, buckets: int, furthest: int, decodes: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.block = nn.ModuleList(
            [
                Block(width, heads, head, hidden, dropout, eps, gated, first, decodes)
                for first in [buckets] + [0] * (layers - 1)
            ]
        )
        self.final_layer_norm = nn.RMSNorm(width, eps)
        self.drop = nn.Dropout(dropout)
        self.buckets, self.furthest, self.decodes = buckets, furthest, decodes

    def bias(self, positions: metaop.Tensor, length: int) -> metaop.Tensor:
        """The bias (heads, positions, length) of scores between `positions` and all keys.

        In a decoder it also masks later keys.
        """
        table = self.block[0].layer[0]["SelfAttention"].relative_attention_bias
        distance = metaop.arange(length, device=positions.device) - positions[:, None]
        found = table(bucket(distance, not self.decodes, self.buckets, self.furthest))
        found = found.permute(2, 0, 1)
        return found.masked_fill(distance > 0, -math.inf) if self.decodes else found

    def forward(
        self,
        x: metaop.Tensor,
        mask: metaop.Tensor | None = None,
        positions: metaop.Tensor | None = None,
        cache: Cache | None = None,
        read: Cache | None = None,
    ) -> metaop.Tensor:
        """`mask` (batch, read) is 0 at padding of the encoder's input."""
        if positions is None:
            positions = metaop.arange(x.shape[1], device=x.device)
        bias = self.bias(positions, x.shape[1] if cache is None else cache[0][0].shape[2])[None]
        read_bias = None
        if mask is not None:
            hidden = (mask == 0)[:, None, None]
            if self.decodes:
                read_bias = metaop.zeros_like(hidden, dtype=x.dtype).masked_fill(hidden, -math.inf)
            else:
                bias = bias.masked_fill(hidden, -math.inf)
        x = self.drop(x)
        for number, block in enumerate(self.block):
            x = block(
                x, bias, positions, None if cache is None else cache[number],
                None if read is None else read[number], read_bias,
            )  # fmt: skip
        return self.drop(self.final_layer_norm(x))


class T5(nn.Module):
    """Input tokens (batch, length) and output tokens so far (batch, written) to logits.

    The logits (batch, written, vocabulary) predict the next output token at each position. `mask`
    (batch, length) is 0 at padding of the input. A `tied` head shares the weight of the embedding;
    a `scaled` one multiplies its input by width^-0.5.

    Example:
        model = T5.from_pretrained("t5-small")
        model.generate(read, 20, temperature=0, end=1)
    """

    def __init__(
        self,
        vocabulary: int = 32128,
        width: int = 512,
        layers: int = 6,
        decoder_layers: int | None = None,
        heads: int = 8,
        head: int = 64,
        hidden: int = 2048,
        dropout: float = 0.1,
        eps: float = 1e-6,
        gated: bool = False,
        buckets: int = 32,
        furthest: int = 128,
        tied: bool = True,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.shared = nn.Embedding(vocabulary, width)
        shape = (width, heads, head, hidden, dropout, eps, gated, buckets, furthest)
        self.encoder = Stack(layers, *shape, decodes=False)
        self.decoder = Stack(decoder_layers or layers, *shape, decodes=True)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.shared.weight, 0.0, 1.0)
        if tied:
            self.lm_head.weight = self.shared.weight
        self.scale = width**-0.5 if scaled else 1.0

    def read(self, tokens: metaop.Tensor, mask: metaop.Tensor | None = None) -> list[KeyValues]:
        """Encodes tokens; returns the cross-attention keys and values of each decoder block."""
        found = self.encoder(self.shared(tokens), mask)
        return [block.layer[1]["EncDecAttention"].keys(found) for block in self.decoder.block]

    def write(
        self,
        read: Cache,
        mask: metaop.Tensor | None,
        tokens: metaop.Tensor,
        positions: metaop.Tensor | None = None,
        cache: Cache | None = None,
    ) -> metaop.Tensor:
        """Decodes: logits of the next tokens; with `cache` the tokens continue at `positions`."""
        found = self.decoder(self.shared(tokens), mask, positions, cache, read)
        return self.lm_head(found * self.scale)

    def forward(
        self, read: metaop.Tensor, written: metaop.Tensor, mask: metaop.Tensor | None = None
    ) -> metaop.Tensor:
        return self.write(self.read(read, mask), mask, written)

    def generate(
        self,
        read: metaop.Tensor,
        count: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        end: int | None = None,
        mask: metaop.Tensor | None = None,
    ) -> metaop.Tensor:
        """Up to `count` output tokens (batch, written), int64; see `generate_tokens`."""
        with metaop.no_grad():
            seen = self.read(read, mask)
            shapes = [(*key.shape[:2], count + 1, key.shape[3]) for key, _ in seen]
            cache = [(seen[0][0].new_zeros(s), seen[0][0].new_zeros(s)) for s in shapes]
            start = metaop.full_like(read[:, :1], PAD)
            predict = partial(self.write, seen, mask)
            return generate_tokens(
                predict, cache, count + 1, start, count, temperature, top_k, top_p, end
            )[:, 1:]  # fmt: skip

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> T5:
        """The network of a published folder, in evaluation mode.

        Raises CheckpointError for settings that this network does not have, RuntimeError for
        weights of other names or shapes.
        """
        kinds = ("relu", "gated-gelu")
        config = read_config(
            folder, model_type="t5", feed_forward_proj=kinds, tie_word_embeddings=(True, False),
            pad_token_id=PAD, decoder_start_token_id=PAD,
        )  # fmt: skip
        weights = read_weights(folder)
        tied = "lm_head.weight" not in weights
        model = cls(
            config["vocab_size"], config["d_model"], config["num_layers"],
            config.get("num_decoder_layers"), config["num_heads"], config["d_kv"], config["d_ff"],
            config["dropout_rate"], config["layer_norm_epsilon"],
            gated=config["feed_forward_proj"] != "relu",
            buckets=config["relative_attention_num_buckets"],
            furthest=config.get("relative_attention_max_distance", 128), tied=tied,
            # Version 1.1 has an untied head without scaling; newer settings say so explicitly.
            scaled=config.get("scale_decoder_outputs", config["tie_word_embeddings"]),
        )  # fmt: skip
        adopt(model, weights, cls._renamed, {"lm_head.weight": "shared.weight"} if tied else {})
        return model.eval()

    @staticmethod
    def _renamed(name: str) -> str | None:
        """Older files repeat the embedding, and contain an unused bias of cross-attention."""
        if name.endswith(
            (".embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight")
        ):
            return None
        return name


def random_numbers(
    random: np.random.Generator, count: int, length: int, numbers: int
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (count, length) of up to `length` random numbers, and outputs (count, length + 1).

    An output has the different numbers in order, then END. PAD fills both; numbers start at END +
    1.
    """
    read = random.integers(END + 1, END + 1 + numbers, (count, length))
    read[np.arange(length) >= random.integers(1, length + 1, (count, 1))] = PAD
    written = np.full((count, length + 1), PAD)
    for row, target in zip(read, written):
        found = np.unique(row[row != PAD])
        target[: len(found) + 1] = [*found, END]
    return read, written


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to sort numbers and remove duplicates; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=400, batch_size=32, lr=3e-3, length=6, numbers=10, layers=1,
        width=64, heads=4,
    )  # fmt: skip
    model = T5(
        END + 1 + options.numbers, options.width, options.layers, heads=options.heads,
        head=options.width // options.heads, hidden=2 * options.width, dropout=0.0,
    )  # fmt: skip
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def drawn(count: int, *seed: int) -> Any:
        random = np.random.default_rng((options.seed, *seed))
        return map(
            metaop.from_numpy, random_numbers(random, count, options.length, options.numbers)
        )

    def step(number: int) -> dict[str, metaop.Tensor]:
        read, target = drawn(options.batch_size, number)
        before = F.pad(target[:, :-1], (1, 0), value=PAD)
        logits = model(read, before, read != PAD).flatten(0, 1)
        return {
            "loss": update(optimizer, F.cross_entropy(logits, target.flatten(), ignore_index=PAD))
        }

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    history = train(step, options.steps, "T5", checkpoint)
    read, target = drawn(100, options.steps, 1)
    found = model.eval().generate(read, options.length + 1, 0, end=END, mask=read != PAD).numpy()
    # Tokens after END are ignored.
    found = np.where(np.cumsum(found == END, 1) - (found == END) > 0, PAD, found)
    right = int((found == target.numpy()[:, : found.shape[1]]).all(1).sum())
    print(f"{right} of 100 lists of numbers are sorted without a mistake")
    return history["loss"]


if __name__ == "__main__":
    main()
