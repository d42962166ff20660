"""The recurrent language model: PyTorch's values, states that continue, and learning."""

from __future__ import annotations

from typing import Any

import numpy as np

import metaop
from models import lstm
from tests.models.comparison import compare


def build(module: Any) -> Any:
    return module.LanguageModel(vocabulary=11, width=6, layers=2)


def test_names_are_those_of_pytorch() -> None:
    names = list(build(lstm).state_dict())
    assert names[:3] == ["encoder.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0"]
    assert names[-2:] == ["decoder.weight", "decoder.bias"]


def test_values_and_gradients_are_those_of_torch() -> None:
    def loss(library: Any, model: Any, tokens: Any) -> tuple[Any, Any]:
        logits, _ = model(tokens[:-1])
        target = tokens[1:].flatten()
        return logits, library.nn.functional.cross_entropy(logits.flatten(0, 1), target)

    compare("lstm", build, loss, np.random.default_rng(1).integers(0, 11, (6, 3)))


def test_a_text_may_be_read_in_parts() -> None:
    model = build(lstm).eval()
    tokens = metaop.randint(0, 11, (6, 2))
    with metaop.no_grad():
        whole, _ = model(tokens)
        first, state = model(tokens[:4])
        second, _ = model(tokens[4:], state)
    parts = metaop.cat((first, second)).numpy()
    np.testing.assert_allclose(whole.numpy(), parts, rtol=1e-5, atol=1e-6)


def test_training_lowers_the_loss() -> None:
    losses = lstm.main(["--steps", "15", "--width", "16", "--length", "8", "--write", "4"])
    assert np.isfinite(losses).all() and np.mean(losses[-3:]) < losses[0]
