"""BERT: a bidirectional transformer encoder, trained as a masked language model.

After J. Devlin and others, "BERT: pre-training of deep bidirectional transformers for language
understanding", 2018. Parameters have the names of Hugging Face, so published weights load. The
demonstration predicts masked letters of proverbs.

    python -m models.bert --steps 300 --checkpoint runs/bert.pth
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import drawn_rows, parse_options
from .gpt import PROVERBS
from .parallel import OPTIONS, Part
from .published import adopt, read_config, read_weights
from .trainer import Trainer, Training, Values


class SelfAttention(nn.Module):
    """Multi-head attention over (batch, length, width); False in `mask` hides a key."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.heads, self.dropout = heads, dropout

    def forward(self, x: metaop.Tensor, mask: metaop.Tensor | None) -> metaop.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(query, key, value, mask, dropout)
        return found.transpose(1, 2).flatten(2)


class Joined(nn.Module):
    """A linear layer, the residual connection and a layer norm: norm(dense(x) + before)."""

    def __init__(self, inputs: int, outputs: int, dropout: float, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)
        self.LayerNorm = nn.LayerNorm(outputs, eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: metaop.Tensor, before: metaop.Tensor) -> metaop.Tensor:
        return self.LayerNorm(self.dropout(self.dense(x)) + before)


class Block(nn.Module):
    """Post-norm attention and feedforward network, with residual connections."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float, eps: float) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {
                "self": SelfAttention(width, heads, dropout),
                "output": Joined(width, width, dropout, eps),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, hidden)})
        self.output = Joined(hidden, width, dropout, eps)

    def forward(self, x: metaop.Tensor, mask: metaop.Tensor | None) -> metaop.Tensor:
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(F.gelu(self.intermediate["dense"](x)), x)


class Embeddings(nn.Module):
    """The sum of token, position and segment embeddings, normalised: (batch, length, width)."""

    def __init__(
        self, vocabulary: int, context: int, width: int, segments: int, dropout: float, eps: float
    ) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width)
        self.position_embeddings = nn.Embedding(context, width)
        self.token_type_embeddings = nn.Embedding(segments, width)
        self.LayerNorm = nn.LayerNorm(width, eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: metaop.Tensor, segments: metaop.Tensor | None) -> metaop.Tensor:
        positions = metaop.arange(tokens.shape[1], device=tokens.device)
        segments = metaop.zeros_like(tokens) if segments is None else segments
        found = self.word_embeddings(tokens) + self.token_type_embeddings(segments)
        return self.dropout(self.LayerNorm(found + self.position_embeddings(positions)))


class BERT(nn.Module):
    """Tokens (batch, length), int64, to vectors (batch, length, width).

    `mask` (batch, length) is 0 at padding. `segments` (batch, length), int64, are 0 for the
    first sentence and 1 for the second.

    Example:
        BERT.from_pretrained("bert-base-uncased")(tokens, mask)
    """

    def __init__(
        self,
        vocabulary: int = 30522,
        context: int = 512,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        hidden: int = 3072,
        segments: int = 2,
        dropout: float = 0.1,
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self.context = context
        self.embeddings = Embeddings(vocabulary, context, width, segments, dropout, eps)
        blocks = [Block(width, heads, hidden, dropout, eps) for _ in range(layers)]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(blocks)})
        initialise(self, width)

    def forward(
        self,
        tokens: metaop.Tensor,
        mask: metaop.Tensor | None = None,
        segments: metaop.Tensor | None = None,
    ) -> metaop.Tensor:
        x = self.embeddings(tokens, segments)
        kept = None if mask is None else mask[:, None, None].bool()
        for block in self.encoder["layer"]:
            x = block(x, kept)
        return x

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> BERT:
        """The network of a published folder, whichever task it was published for.

        Raises CheckpointError for settings that this network does not have, RuntimeError for
        weights of other names or shapes.
        """
        model = cls(**settings(folder))
        adopt(model, read_weights(folder), _without_head)
        return model.eval()


class MaskedLanguageModel(nn.Module):
    """Tokens (batch, length), int64, to logits of the original ones (batch, length, vocabulary).

    The decoder shares the weight of the token embedding unless `tied` is False.
    """

    columns = tuple(
        f"{name}.{kind}"
        for name in ("query", "key", "value", "intermediate.dense")
        for kind in ("weight", "bias")
    )
    rows = ("output.dense.weight",)

    def __init__(
        self, vocabulary: int = 30522, width: int = 768, tied: bool = True, **options: Any
    ) -> None:
        super().__init__()
        self.bert = BERT(vocabulary, width=width, **options)
        transform = nn.ModuleDict(
            {
                "dense": nn.Linear(width, width),
                "LayerNorm": nn.LayerNorm(width, options.get("eps", 1e-12)),
            }
        )
        decoder = nn.Linear(width, vocabulary)
        self.cls = nn.ModuleDict(
            {"predictions": nn.ModuleDict({"transform": transform, "decoder": decoder})}
        )
        initialise(self, width)
        if tied:
            decoder.weight = self.bert.embeddings.word_embeddings.weight

    def forward(
        self,
        tokens: metaop.Tensor,
        mask: metaop.Tensor | None = None,
        segments: metaop.Tensor | None = None,
    ) -> metaop.Tensor:
        return self.guess(self.bert(tokens, mask, segments))

    def guess(self, x: metaop.Tensor, *_: metaop.Tensor) -> metaop.Tensor:
        """The head: vectors (batch, length, width) to logits (batch, length, vocabulary)."""
        head = self.cls["predictions"]
        x = F.gelu(head["transform"]["dense"](x))
        return head["decoder"](head["transform"]["LayerNorm"](x))

    def in_order(self) -> list[nn.Module]:
        """The network as a sequence of modules, by which a pipeline is cut.

        They take tokens and a mask, and pass the mask on with the vectors.
        """
        blocks = [
            Part(lambda x, mask, block=block: (block(x, mask), mask), block)
            for block in self.bert.encoder["layer"]
        ]
        embeddings = self.bert.embeddings
        first = Part(
            lambda tokens, mask: (embeddings(tokens, None), mask[:, None, None].bool()), embeddings
        )
        return [first, *blocks, Part(self.guess, self.cls)]

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> MaskedLanguageModel:
        """The network of a published folder; see `BERT.from_pretrained`."""
        model = cls(**settings(folder))
        weights = dict(read_weights(folder))
        bias = weights.pop("cls.predictions.bias", None)
        if bias is not None:
            weights["cls.predictions.decoder.bias"] = bias
        tied = {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight"}
        adopt(model, weights, _without_pooler, tied)
        return model.eval()


def initialise(model: nn.Module, width: int) -> None:
    """Normal weights with a standard deviation of 0.02 at width 768, scaled by width^-0.5."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "LayerNorm" not in name:
            nn.init.normal_(parameter, 0.0, 0.02 * math.sqrt(768 / width))


def settings(folder: str | Path) -> dict[str, Any]:
    """The arguments of `BERT` for the network of a published folder."""
    config = read_config(
        folder,
        model_type="bert",
        hidden_act="gelu",
        position_embedding_type="absolute",
        is_decoder=False,
        add_cross_attention=False,
        tie_word_embeddings=True,
    )
    return {
        "vocabulary": config["vocab_size"],
        "context": config["max_position_embeddings"],
        "width": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": config["num_attention_heads"],
        "hidden": config["intermediate_size"],
        "segments": config["type_vocab_size"],
        "dropout": config["hidden_dropout_prob"],
        "eps": config["layer_norm_eps"],
    }


def _present(name: str) -> str | None:
    """Older files call weight and bias of a norm gamma and beta, and contain position_ids."""
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    name = name.replace("LayerNorm.beta", "LayerNorm.bias")
    return None if name.endswith("embeddings.position_ids") else name


def _without_head(name: str) -> str | None:
    """The name inside of `BERT`; None for a pooler and for what a task has added."""
    name = name.removeprefix("bert.")
    return _present(name) if name.startswith(("embeddings.", "encoder.")) else None


def _without_pooler(name: str) -> str | None:
    """The name inside of `MaskedLanguageModel`, which has no next-sentence prediction."""
    known = ("bert.embeddings.", "bert.encoder.", "cls.predictions.")
    return _present(name) if name.startswith(known) else None


def numbered(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int]:
    """Texts as tokens (texts, longest), their mask, and the size of the vocabulary.

    A letter is a token, from 1 on; 0 is padding.
    """
    letters = sorted(set("".join(texts)))
    tokens = np.zeros((len(texts), max(map(len, texts))), np.int64)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = 1 + np.searchsorted(letters, list(text))
    return tokens, tokens > 0, len(letters) + 1


def proverbs() -> list[str]:
    """The sentences of GPT's text."""
    return [part.strip() for part in PROVERBS.replace("\n", " ").split(".")][:-1]


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Predicts masked letters of proverbs; returns the losses."""
    options = parse_options(
        __doc__, arguments, steps=300, batch_size=16, lr=3e-3, width=64, layers=2, heads=4,
        share=0.15, tied=1, log="", **OPTIONS,
    )  # fmt: skip
    tokens, mask, hidden_letter = numbered(proverbs())
    model = MaskedLanguageModel(
        hidden_letter + 1, options.width, context=tokens.shape[1], layers=options.layers,
        heads=options.heads, hidden=4 * options.width, dropout=0.0, tied=bool(options.tied),
    )  # fmt: skip
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def batch(number: int) -> tuple[metaop.Tensor, metaop.Tensor, metaop.Tensor]:
        seed = (options.seed, number)
        whole, kept = drawn_rows(tokens, mask, size=options.batch_size, seed=seed)
        random = np.random.default_rng((*seed, 1)).random(whole.shape)
        hidden = metaop.from_numpy(random < options.share) & kept
        # Visible letters get the target -100, which cross_entropy ignores.
        return (
            whole.masked_fill(hidden, hidden_letter), kept, whole.masked_fill(~hidden, -100)
        )  # fmt: skip

    def values(
        network: Any, tokens: metaop.Tensor, kept: metaop.Tensor, target: metaop.Tensor
    ) -> Values:
        logits = network(tokens, kept)
        right = (logits.argmax(-1) == target).sum() / (target >= 0).sum()
        return {"loss": F.cross_entropy(logits.flatten(0, 1), target.flatten()), "accuracy": right}

    trainer = Trainer(model, optimizer, batch, values, Training.of(options), inputs=2)
    history = trainer.fit("BERT")
    print(f"accuracy over the last steps {np.mean(history['accuracy'][-10:]):.3f}")
    return history["loss"]


if __name__ == "__main__":
    main()
