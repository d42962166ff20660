"""BERT and MiniLM: transformers' and PyTorch's values, masks, word pieces, and learning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import CheckpointError
from models import bert, minilm
from tests.models import published
from tests.models.comparison import compare, parameter_count

TOKENS, MASK = published.tokens(), published.mask()
SIZES: dict[str, Any] = {"context": 8, "layers": 1, "heads": 3, "hidden": 16, "dropout": 0.0}


def test_sizes_and_names_are_those_of_the_published_networks() -> None:
    # Both have a pooler besides, of 768² + 768 and 384² + 384 parameters.
    assert parameter_count(bert.BERT()) + 768 * 769 == 109_482_240
    small = bert.BERT(width=384, layers=6, hidden=1536)
    assert parameter_count(small) + 384 * 385 == 22_713_216
    attention = "encoder.layer.0.attention.self"
    assert list(small.state_dict())[5:9] == [
        f"{attention}.{layer}.{part}" for layer in ("query", "key") for part in ("weight", "bias")
    ]


def test_values_are_those_of_transformers(tmp_path: Path) -> None:
    expected = published.write_folder("bert", tmp_path)
    model = bert.MaskedLanguageModel.from_pretrained(tmp_path)
    with metaop.no_grad():
        found = model(metaop.tensor(TOKENS), metaop.tensor(MASK)).numpy()
        inner = model.bert(metaop.tensor(TOKENS), metaop.tensor(MASK)).numpy()
        alone = bert.BERT.from_pretrained(tmp_path)(metaop.tensor(TOKENS), metaop.tensor(MASK))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(alone.numpy(), inner, atol=1e-6)


def test_vectors_of_sentences_are_those_of_transformers(tmp_path: Path) -> None:
    expected = published.write_folder("minilm", tmp_path)
    weights = metaop.load(tmp_path / "model.safetensors")
    older = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("m.bias", "m.beta"): value
        for name, value in weights.items()
    }
    older["embeddings.position_ids"] = metaop.arange(12)[None]
    metaop.save(older, tmp_path / "model.safetensors")
    model = minilm.SentenceEncoder.from_pretrained(tmp_path)
    with metaop.no_grad():
        found = model(metaop.tensor(TOKENS), metaop.tensor(MASK)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    published.write_folder("minilm", tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    with pytest.raises(CheckpointError, match="pooling_mode_cls_token"):
        minilm.SentenceEncoder.from_pretrained(tmp_path)
    published.rewrite(tmp_path, position_embedding_type="relative_key")
    with pytest.raises(CheckpointError, match="position_embedding_type"):
        bert.BERT.from_pretrained(tmp_path)


def test_guesses_and_gradients_are_those_of_torch() -> None:
    def build(module: Any) -> Any:
        return module.MaskedLanguageModel(published.VOCABULARY, width=12, **SIZES)

    def loss(library: Any, model: Any, tokens: Any, mask: Any) -> tuple[Any, Any]:
        logits = model(tokens, mask, mask)  # the mask is as good as any segments
        target = tokens.masked_fill(mask == 0, -100).flatten()
        return logits, library.nn.functional.cross_entropy(logits.flatten(0, 1), target)

    compare("bert", build, loss, TOKENS, MASK)


def test_nearness_and_gradients_are_those_of_torch() -> None:
    def build(module: Any) -> Any:
        return module.SentenceEncoder(module.BERT(published.VOCABULARY, width=12, **SIZES))

    def loss(library: Any, model: Any, tokens: Any, mask: Any) -> tuple[Any, Any]:
        near = model(tokens, mask)
        return near, (near[0] * near[1]).sum()

    compare("minilm", build, loss, TOKENS, MASK)


def test_hidden_places_change_nothing() -> None:
    metaop.manual_seed(0)
    model = minilm.SentenceEncoder(bert.BERT(published.VOCABULARY, width=12, **SIZES)).eval()
    changed = np.where(MASK == 1, TOKENS, (TOKENS + 1) % published.VOCABULARY)
    with metaop.no_grad():
        first, second = (model(metaop.tensor(t), metaop.tensor(MASK)) for t in (TOKENS, changed))
    np.testing.assert_allclose(first.numpy(), second.numpy(), atol=1e-6)
    np.testing.assert_allclose((first.numpy() ** 2).sum(1), 1, atol=1e-5)


def test_texts_are_cut_into_word_pieces(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    published.write_folder("minilm", tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "rain", "sun", "##s", "it", "the", "."]
    pieces = tokenizers.BertWordPieceTokenizer({word: n for n, word in enumerate(words)})
    pieces.save(str(tmp_path / "tokenizer.json"))
    tokens, mask = minilm.WordPieces(tmp_path, 8)(["It rains.", "the Sun", "moon"])
    expected = [[2, 7, 4, 6, 9, 3], [2, 8, 5, 3, 0, 0], [2, 1, 3, 0, 0, 0]]
    assert tokens.tolist() == expected
    assert mask.tolist() == [[int(token != 0) for token in row] for row in expected]
    assert minilm.WordPieces(tmp_path, 4)(["it rains rains"])[0].shape == (1, 4)
    words_of = ["--pretrained", str(tmp_path), "--compare", "it rains | rain"]
    near = minilm.main(words_of)
    assert near.shape == (2, 2) and np.allclose(np.diag(near), 1, atol=1e-5)


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    words = ["--width", "16", "--layers", "1", "--batch-size", "8"]
    losses = bert.main([*words, "--steps", "40"])
    assert np.isfinite(losses).all() and np.mean(losses[-5:]) < 0.9 * losses[0]
    kept = [*words, "--checkpoint", str(tmp_path / "minilm.pth"), "--steps"]
    first = minilm.main([*kept, "10"])
    losses = minilm.main([*kept, "25"])
    assert losses[:10] == first and np.mean(losses[-5:]) < 0.8 * losses[0]
