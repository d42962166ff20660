"""Mixture of experts: Llama whose MLPs are replaced by a sparse choice of experts.

After N. Shazeer and others, "Outrageously large neural networks", 2017, W. Fedus and others,
"Switch transformers", 2021, A. Jiang and others, "Mixtral of experts", 2024. A gate routes each
token to a few experts. Experts have a fixed capacity, so sizes do not depend on the routing, and
all experts together are three batched matrix products. An auxiliary loss balances the load.

    python -m models.mixture --steps 200 --experts 4 --chosen 2
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import metaop
from metaop import nn
from metaop.errors import ArgumentError
from metaop.nn import functional as F

from .demonstration import parse_options
from .gpt import WRITING, Cache, learn_text
from .llama import Llama


class Experts(nn.Module):
    """A sparse SwiGLU layer: each token (..., width) goes to the top `chosen` of `experts`.

    In training an expert takes at most `capacity` times its even share of tokens, first choices
    before second ones, and drops the rest. In evaluation the capacity is unlimited.
    """

    def __init__(
        self, width: int, hidden: int, experts: int, chosen: int = 2, capacity: float = 1.25
    ) -> None:
        super().__init__()
        if not 1 <= chosen <= experts:
            raise ArgumentError(f"Experts: {chosen} of {experts} experts cannot be chosen")
        self.gate = nn.Linear(width, experts, bias=False)
        self.w1, self.w3 = (nn.Parameter(metaop.empty(experts, hidden, width)) for _ in range(2))
        self.w2 = nn.Parameter(metaop.empty(experts, width, hidden))
        self.chosen, self.capacity = chosen, capacity
        for parameter in self.parameters():
            nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, x: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        """The results, of the shape of `x`, and the load-balancing loss, 1 for a uniform load."""
        tokens = x.flatten(0, -2)
        shares = self.gate(tokens).softmax(-1)
        weights, experts = shares.topk(self.chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        # (choices, experts), all first choices before all second ones.
        numbers = metaop.arange(shares.shape[1], device=x.device)
        choices = (experts.t().flatten()[:, None] == numbers).long()
        imbalance = shares.shape[1] * (choices.to(x.dtype).mean(0) * shares.mean(0)).sum()
        found = self._through(tokens, choices).unflatten(0, (self.chosen, -1))
        return (found * weights.t()[:, :, None]).sum(0).view(x.shape), imbalance

    def _through(self, tokens: metaop.Tensor, choices: metaop.Tensor) -> metaop.Tensor:
        """The expert's output for each choice (choices, width), 0 for dropped tokens."""
        count, experts = choices.shape
        room = len(tokens)
        if self.training:
            room = min(room, math.ceil(self.capacity * count / experts))
        place = ((choices.cumsum(0) - choices) * choices).sum(1)
        dropped = experts * room
        slot = metaop.where(place < room, choices.argmax(1) * room + place, dropped)
        # The token in each slot of each expert; empty slots read the row of zeros after the tokens.
        sources = metaop.arange(count, device=tokens.device) % len(tokens)
        source_of_slot = (
            metaop.full_like(slot[:1], len(tokens)).repeat(dropped + 1).scatter(0, slot, sources)
        )
        rows = F.pad(tokens, (0, 0, 0, 1))[source_of_slot[:-1]].view(experts, room, -1)
        hidden = F.silu(rows @ self.w1.transpose(1, 2)) * (rows @ self.w3.transpose(1, 2))
        found = (hidden @ self.w2.transpose(1, 2)).flatten(0, 1)
        return F.pad(found, (0, 0, 0, 1))[slot]


class Mixture(Llama):
    """Tokens (batch, length), int64, to logits of the next ones (batch, length, vocabulary).

    `options` are those of Llama. `balance` is the weight of the load-balancing loss.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        width: int,
        layers: int,
        heads: int,
        kv_heads: int,
        hidden: int,
        experts: int = 8,
        chosen: int = 2,
        capacity: float = 1.25,
        balance: float = 0.01,
        **options: Any,
    ) -> None:
        super().__init__(vocabulary, context, width, layers, heads, kv_heads, hidden, **options)
        self.balance = balance
        for block in self.model["layers"]:
            block.mlp = Experts(width, hidden, experts, chosen, capacity)

    def logits_and_balance(
        self,
        tokens: metaop.Tensor,
        positions: metaop.Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[metaop.Tensor, metaop.Tensor]:
        """The logits, and the mean load-balancing loss of the blocks."""
        if positions is None:
            positions = metaop.arange(tokens.shape[1], device=tokens.device)
        x, imbalances = self.model["embed_tokens"](tokens), []
        for number, block in enumerate(self.model["layers"]):
            kept = None if cache is None else cache[number]
            x = x + block.self_attn(block.input_layernorm(x), positions, kept)
            found, imbalance = block.mlp(block.post_attention_layernorm(x))
            x = x + found
            imbalances.append(imbalance)
        return self.lm_head(self.model["norm"](x)), metaop.stack(imbalances).mean()

    def forward(
        self,
        tokens: metaop.Tensor,
        positions: metaop.Tensor | None = None,
        cache: Cache | None = None,
    ) -> metaop.Tensor:
        return self.logits_and_balance(tokens, positions, cache)[0]

    def loss(
        self, tokens: metaop.Tensor, following: metaop.Tensor, network: Any = None
    ) -> metaop.Tensor:
        logits, imbalance = self.logits_and_balance(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), following.flatten())
        return loss + self.balance * imbalance


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns a text letter by letter and generates some; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=200, batch_size=16, lr=3e-3, layers=2, width=64, heads=4,
        kv_heads=2, experts=4, chosen=2, **WRITING,
    )  # fmt: skip

    def build(letters: int, options: argparse.Namespace) -> Mixture:
        return Mixture(
            letters, options.context, options.width, options.layers, options.heads,
            options.kv_heads, 2 * options.width, options.experts, options.chosen,
        )  # fmt: skip

    return learn_text(build, options)


if __name__ == "__main__":
    main()
