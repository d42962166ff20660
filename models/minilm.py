"""MiniLM: a small BERT with mean pooling, which embeds sentences.

After W. Wang and others, "MiniLM: deep self-attention distillation for task-agnostic compression
of pre-trained transformers", 2020, and N. Reimers, I. Gurevych, "Sentence-BERT", 2019. Published
folders of sentence-transformers load. The demonstration matches halves of proverbs by a contrastive
loss.

    python -m models.minilm --steps 200
    python -m models.minilm --pretrained all-MiniLM-L6-v2 --compare "It rains. | The sun shines."

`--pretrained` is a folder with `config.json`, `model.safetensors` and `tokenizer.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.errors import CheckpointError
from metaop.nn import functional as F

from .bert import BERT, numbered, proverbs
from .demonstration import Checkpoint, parse_options, train, update


class SentenceEncoder(nn.Module):
    """Tokens (batch, length), int64, to vectors (batch, width) of length 1.

    `mask` (batch, length) is 0 at padding. The product of two vectors is the cosine similarity of
    the sentences.
    """

    def __init__(self, bert: BERT) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, tokens: metaop.Tensor, mask: metaop.Tensor) -> metaop.Tensor:
        weights = mask.to(self.bert.embeddings.word_embeddings.weight.dtype)[:, :, None]
        # A sentence without tokens has the vector 0.
        mean = (self.bert(tokens, mask) * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return F.normalize(mean, dim=1)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> SentenceEncoder:
        """The network of a published folder, which must use mean pooling.

        Raises CheckpointError for settings that this network does not have, RuntimeError for
        weights of other names or shapes.
        """
        pooling = Path(folder, "1_Pooling", "config.json")
        if pooling.exists():
            config = json.loads(pooling.read_text(encoding="utf-8"))
            modes = {name for name, on in config.items() if name.startswith("pooling_mode_") and on}
            if modes != {"pooling_mode_mean_tokens"}:
                raise CheckpointError(
                    f"{pooling} asks for {sorted(modes)}, not for means of tokens"
                )
        return cls(BERT.from_pretrained(folder)).eval()


class WordPieces:
    """Texts to tokens, by the package tokenizers and the `tokenizer.json` of a folder."""

    def __init__(self, folder: str | Path, context: int) -> None:
        from tokenizers import Tokenizer

        self._pieces: Any = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        self._pieces.enable_truncation(context)
        self._pieces.enable_padding(pad_id=self._pieces.token_to_id("[PAD]") or 0)

    def __call__(self, texts: Sequence[str]) -> tuple[metaop.Tensor, metaop.Tensor]:
        """Tokens (texts, longest), int64, and their mask of the same shape."""
        found = self._pieces.encode_batch(list(texts))
        tokens = metaop.tensor([text.ids for text in found])
        return tokens, metaop.tensor([text.attention_mask for text in found])


def compare_texts(folder: str, texts: Sequence[str]) -> np.ndarray:
    """Cosine similarities (texts, texts), by the network of a published folder."""
    model = SentenceEncoder.from_pretrained(folder)
    with metaop.no_grad():
        vectors = model(*WordPieces(folder, model.bert.context)(texts))
        return (vectors @ vectors.t()).numpy()


def halves() -> tuple[np.ndarray, np.ndarray, int]:
    """First and second halves of proverbs (2, proverbs, length); see `numbered`."""
    texts = proverbs()
    first, second = [t[: len(t) // 2] for t in texts], [t[len(t) // 2 :] for t in texts]
    tokens, mask, numbers = numbered(first + second)
    shape = (2, len(texts), -1)
    return tokens.reshape(shape), mask.reshape(shape), numbers


def main(arguments: Sequence[str] | None = None) -> Any:
    """Learns which halves of proverbs belong together; returns the losses.

    With `--pretrained` it only compares texts, and returns their similarities.
    """
    options = parse_options(
        __doc__, arguments, steps=200, batch_size=8, lr=1e-3, width=64, layers=2, heads=4,
        temperature=0.1, pretrained="", compare="It rains. | The sun shines.",
    )  # fmt: skip
    if options.pretrained:
        near = compare_texts(options.pretrained, options.compare.split(" | "))
        print(near.round(3))
        return near
    tokens, mask, numbers = halves()
    model = SentenceEncoder(
        BERT(numbers, tokens.shape[2], options.width, options.layers, options.heads,
             4 * options.width, dropout=0.0)
    )  # fmt: skip
    optimizer = metaop.optim.AdamW(model.parameters(), lr=options.lr)

    def products(chosen: np.ndarray) -> metaop.Tensor:
        first, second = (
            model(metaop.from_numpy(t[chosen]), metaop.from_numpy(m[chosen]))
            for t, m in zip(tokens, mask)
        )
        return first @ second.t() / options.temperature

    def step(number: int) -> dict[str, metaop.Tensor]:
        random = np.random.default_rng((options.seed, number))
        near = products(random.permutation(tokens.shape[1])[: options.batch_size])
        # The positive is the other half of the same proverb; the rest of the batch are negatives.
        right = metaop.arange(len(near))
        found = (near.argmax(1) == right).float().mean()
        loss = (F.cross_entropy(near, right) + F.cross_entropy(near.t(), right)) / 2
        return {"loss": update(optimizer, loss), "accuracy": found}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    history = train(step, options.steps, "MiniLM", checkpoint)
    with metaop.no_grad():
        found = products(np.arange(tokens.shape[1])).argmax(1).numpy()
    right = int((found == np.arange(len(found))).sum())
    print(f"{right} of {len(found)} proverbs are put together")
    return history["loss"]


if __name__ == "__main__":
    main()
