"""Recurrent language models: PyTorch's values, states that continue, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from models import gru, lstm
from tests.models.comparison import compare

KINDS = pytest.mark.parametrize("kind", ["LSTM", "GRU"])


def build(module: Any, kind: str = "LSTM") -> Any:
    return module.LanguageModel(vocabulary=11, width=6, layers=2, kind=getattr(module.nn, kind))


def test_names_are_those_of_pytorch() -> None:
    names = list(build(lstm).state_dict())
    assert names[:3] == ["encoder.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0"]
    assert names[-2:] == ["decoder.weight", "decoder.bias"]


@KINDS
def test_values_and_gradients_are_those_of_torch(kind: str) -> None:
    def loss(library: Any, model: Any, tokens: Any) -> tuple[Any, Any]:
        logits, _ = model(tokens[:-1])
        target = tokens[1:].flatten()
        return logits, library.nn.functional.cross_entropy(logits.flatten(0, 1), target)

    tokens = np.random.default_rng(1).integers(0, 11, (6, 3))
    compare("lstm", lambda module: build(module, kind), loss, tokens)


@KINDS
def test_a_text_may_be_read_in_parts(kind: str) -> None:
    model = build(lstm, kind).eval()
    tokens = metaop.randint(0, 11, (6, 2))
    with metaop.no_grad():
        whole, _ = model(tokens)
        first, state = model(tokens[:4])
        second, _ = model(tokens[4:], state)
    parts = metaop.cat((first, second)).numpy()
    np.testing.assert_allclose(whole.numpy(), parts, rtol=1e-5, atol=1e-6)


@KINDS
def test_what_is_written_follows_from_what_was_written(kind: str) -> None:
    metaop.manual_seed(0)
    model = build(lstm, kind).eval()
    for parameter in model.parameters():
        metaop.nn.init.normal_(parameter)
    written = model.write(3, 9)
    assert len(set(written)) > 2
    with metaop.no_grad():
        logits, _ = model(metaop.tensor([[token] for token in written[:-1]]))
    assert logits[:, 0].argmax(1).tolist() == written[1:]
    assert model.write(3, 9, 1.0, top_k=1) == written


def test_training_lowers_the_loss() -> None:
    losses = lstm.main(["--steps", "15", "--width", "16", "--length", "8", "--write", "4"])
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < losses[0]


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--width", "16", "--length", "8", "--write", "4", "--steps"]
    whole = gru.main([*words, "12"])
    assert np.isfinite(whole).all() and np.mean(whole[-3:]) < whole[0]
    kept = ["--checkpoint", str(tmp_path / "kept.pth")]
    assert gru.main([*words, "5", *kept]) == whole[:5]
    assert gru.main([*words, "12", *kept]) == whole
